"""The programs of docs/guide/delivery-semantics.md, killed in the middle: how often each record was done."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from streamlet.devcluster import DevCluster
from tests.brokers import BROKERS, ONE_BROKER
from tests.docs.pages import ROOT, blocks
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.real
PAGE = ROOT / "docs" / "guide" / "delivery-semantics.md"
RECORDS = 600
Done = Callable[[], Counter[str]]


def program(name: str, folder: Path) -> Path:
    """One of the page's programs, as a file."""
    text = next(block.text for block in blocks(PAGE) if block.says.get("file") == name)
    file = folder / name
    # Each test has names of its own, and a killed member's session is over soon.
    text = text.replace('group_id="', 'session_timeout_ms=6000, group_id=topic + "')
    file.write_text(text.replace('transactional_id="', 'transactional_id=topic + "'))
    return file


def _die_with_us() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def killed_and_restarted(
    file: Path,
    servers: str,
    topic: str,
    out: str,
    done: Done,
    enough: Callable[[], bool],
    kills: int = 1,
    before_the_last: Callable[[], None] = lambda: None,
) -> None:
    """Run it, kill it -9 at seeded moments while it works, and let the last one finish."""
    seed = int(os.environ.get("STREAMLET_SEED", random.SystemRandom().getrandbits(32)))
    print(f"STREAMLET_SEED={seed}")
    rng = random.Random(seed)
    for turn in range(kills + 1):
        before = sum(done().values())
        if turn == kills:
            before_the_last()
        process = subprocess.Popen(
            [sys.executable, str(file), servers, topic, out],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            preexec_fn=_die_with_us,
        )
        try:
            deadline = time.monotonic() + PATIENCE_S
            wanted = before + rng.randrange(20, 120)
            while not (enough() if turn == kills else sum(done().values()) >= wanted or enough()):
                assert time.monotonic() < deadline, done()
                assert process.poll() is None
                time.sleep(0.002)
        finally:
            process.kill()
            process.wait(10)


def lines_of(path: Path) -> Done:
    return lambda: Counter(path.read_text().split()) if path.exists() else Counter()


@pytest.fixture(params=BROKERS)
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    found: DevCluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def topic(cluster: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None]) -> str:
    """600 records, each its own number."""
    name = make_topic(cluster)
    produce(cluster, name, [b"%d" % number for number in range(RECORDS)])
    return name


def committed(cluster: DevCluster, group: str, topic: str) -> int:
    witness = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    try:
        return int(witness.committed([confluent_kafka.TopicPartition(topic, 0)], 20)[0].offset)
    finally:
        witness.close()


@pytest.mark.parametrize("cluster", ONE_BROKER, indirect=True)
def test_c9_at_most_once_does_nothing_twice(
    cluster: DevCluster, topic: str, produce: Callable[..., None], tmp_path: Path
) -> None:
    """What was committed is gone when the process dies with it; nothing is there twice."""
    out = tmp_path / "out"
    killed_and_restarted(
        program("at_most_once.py", tmp_path),
        cluster.bootstrap_servers,
        topic,
        str(out),
        lines_of(out),
        lambda: "last" in lines_of(out)(),
        # Written after the kill: any record before it may be among the lost, the last of them too.
        before_the_last=lambda: produce(cluster, topic, [b"last"]),
    )
    counts = lines_of(out)()
    assert set(counts.values()) == {1}
    print(f"{RECORDS + 1 - len(counts)} of {RECORDS} were lost")


@pytest.mark.parametrize("cluster", ONE_BROKER, indirect=True)
def test_c9_at_least_once_loses_nothing(cluster: DevCluster, topic: str, tmp_path: Path) -> None:
    """Every record is done; some twice."""
    out = tmp_path / "out"
    killed_and_restarted(
        program("at_least_once.py", tmp_path),
        cluster.bootstrap_servers,
        topic,
        str(out),
        lines_of(out),
        lambda: committed(cluster, f"{topic}least", topic) == RECORDS if len(lines_of(out)()) == RECORDS else False,
    )
    counts = lines_of(out)()
    assert set(counts) == {str(number) for number in range(RECORDS)}
    print(f"{sum(counts.values()) - RECORDS} were done again")


def test_c9_exactly_once_into_sqlite_stores_each_record_once(cluster: DevCluster, topic: str, tmp_path: Path) -> None:
    """Outcome and offset in one transaction: each record once."""
    out = tmp_path / "out.db"

    def done() -> Counter[str]:
        if not out.exists():
            return Counter()
        base = sqlite3.connect(out)
        try:
            return Counter(row[0] for row in base.execute("select value from results"))
        except sqlite3.OperationalError:  # no table yet
            return Counter()
        finally:
            base.close()

    killed_and_restarted(
        program("exactly_once_sqlite.py", tmp_path),
        cluster.bootstrap_servers,
        topic,
        str(out),
        done,
        lambda: len(done()) == RECORDS,
        kills=3,
    )
    assert done() == Counter(str(number) for number in range(RECORDS))


def test_c9_exactly_once_from_kafka_to_kafka_writes_each_record_once(
    cluster: DevCluster, topic: str, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """One transaction for records and offsets; read back by librdkafka with read_committed: each record once."""
    out = make_topic(cluster)
    found: Counter[str] = Counter()
    witness = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"{topic}-witness",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    witness.assign([confluent_kafka.TopicPartition(out, 0, 0)])

    def done() -> Counter[str]:
        message = witness.poll(0.05)
        while message is not None:
            if message.error() is None:
                found[message.value().decode()] += 1
            message = witness.poll(0)
        return found

    try:
        killed_and_restarted(
            program("exactly_once_kafka.py", tmp_path),
            cluster.bootstrap_servers,
            topic,
            out,
            done,
            lambda: len(done()) == RECORDS,
        )
        assert done() == Counter(str(number) for number in range(RECORDS))
    finally:
        witness.close()
