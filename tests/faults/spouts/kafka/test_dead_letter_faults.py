"""Two in a hundred records are poison, while workers and brokers are killed: nothing is lost, what is twice is said."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from streamlet.devcluster import DevCluster
from streamlet.kafka import Admin
from streamlet.kafka.admin import NewTopic
from tests.marked_processes import REPOSITORY, Marked, streamlet
from tests.patience import PATIENCE_S
from tests.read_back import Row, read_back
from tests.seeds import seeds
from tests.worker_pids import kill_worker

pytestmark = pytest.mark.real

TOPOLOGY = REPOSITORY / "tests" / "topologies" / "poison.py"
OWN = "streamlet.dlq."


def is_poison(number: int) -> bool:
    """Two in a hundred, in three ways: see the topology."""
    return number % 100 == 13 or number % 200 in (7, 99)


class Rig:
    """Numbers in a topic of two partitions, a run over them, its dead letters and what its last bolt wrote down."""

    def __init__(self, cluster: DevCluster, folder: Path, topic: str, letters: str) -> None:
        self.cluster, self.folder, self.topic, self.letters = cluster, folder, topic, letters

    def produce(self, count: int) -> None:
        self.count = count
        producer = Producer(
            {"bootstrap.servers": self.cluster.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True}
        )
        for number in range(count):
            producer.produce(self.topic, str(number), b"key", partition=number % 2, headers=[("own", b"%d" % number)])
            if number % 10_000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0

    def streamlet(self, *command: str, fixed: bool = False, pause_s: float = 0.0, spouts: int = 1) -> Marked:
        names = {
            "SERVERS": self.cluster.bootstrap_servers,
            "TOPIC": self.topic,
            "LETTERS": self.letters,
            "DONE": str(self.folder),
            "FIXED": "yes" if fixed else "",
            "PAUSE_S": str(pause_s),
            "SPOUTS": str(spouts),
        }
        environment = {f"POISON_{name}": value for name, value in names.items()}
        with (self.folder / "log").open("w") as log:
            return streamlet(
                list(command),
                {"TMPDIR": str(self.folder), **environment},
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )

    def start(self, fixed: bool = False, pause_s: float = 0.0, spouts: int = 1) -> Marked:
        command = ["run", str(TOPOLOGY), "--workers", "2", "--until-caught-up", "--json"]
        return self.streamlet(*command, fixed=fixed, pause_s=pause_s, spouts=spouts)

    def command(self, *words: str) -> Any:
        run = self.streamlet("dlq", words[0], str(TOPOLOGY), *words[1:], "--json")
        self.end_of(run)
        return json.loads(self.said().splitlines()[-1])

    def end_of(self, run: Marked) -> None:
        try:
            run.process.wait(PATIENCE_S)
            assert run.process.returncode == 0, self.said()
        finally:
            run.end()

    def said(self) -> str:
        return (self.folder / "log").read_text()

    def until_letters(self, count: int, run: Marked) -> None:
        """Wait until the dead-letter topic has so many records, about."""
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": "ends"})
        deadline = time.monotonic() + PATIENCE_S
        try:
            while sum(consumer.get_watermark_offsets(TopicPartition(self.letters, at), 10)[1] for at in (0, 1)) < count:
                assert time.monotonic() < deadline and run.process.poll() is None, self.said()
                time.sleep(0.05)
        finally:
            consumer.close()

    def until(self, reached: Callable[[], bool], run: Marked) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < deadline and run.process.poll() is None, self.said()
            time.sleep(0.1)

    def done(self) -> Counter[int]:
        # The last line of a worker that was killed may be cut.
        texts = [file.read_text().rpartition("\n")[0] for file in self.folder.glob("done.*")]
        return Counter(int(line) for text in texts for line in text.split())

    def dead(self, at_least: int) -> dict[int, list[Row]]:
        """The dead letters by number, each with its own key, value and headers, and ours."""
        found: dict[int, list[Row]] = {}
        for row in read_back(self.cluster, self.letters, at_least, within_s=PATIENCE_S):
            number = int(row.value or b"")
            own = {name: value for name, value in row.headers if name.startswith(OWN)}
            assert (row.key, row.headers[0]) == (b"key", ("own", b"%d" % number))
            assert own[OWN + "topic"] == self.topic.encode()
            assert own[OWN + "partition"] == b"%d" % (number % 2)
            assert int(own[OWN + "offset"] or b"") % (self.count // 2) == number // 2
            said, by = {13: (b"unlucky", b"refuse"), 99: (b"not wanted:", b"done"), 7: (b"cannot decode", b"numbers")}[
                number % 100
            ]
            assert own[OWN + "error.text"] == b"%b %d" % (said, number) and own[OWN + "component"] == by
            found.setdefault(number, []).append(row)
        return found


@pytest.fixture
def rig(cluster: DevCluster, tmp_path: Path, make_topic: Callable[..., str]) -> Rig:
    return Rig(cluster, tmp_path, make_topic(cluster, 2), make_topic(cluster, 2))


def test_of_100_000_records_the_poison_is_kept_once_the_others_are_done_and_a_replay_after_the_fix_empties_it(
    rig: Rig,
) -> None:
    count = 100_000
    rig.produce(count)
    poison = {*filter(is_poison, range(count))}
    assert len(poison) == count // 50
    rig.end_of(rig.start(spouts=2))
    spout = json.loads(rig.said().splitlines()[-1])["components"][0]
    assert (spout["given_up"], spout["kept"]) == (len(poison), len(poison)), "of both tasks"
    dead = rig.dead(len(poison))
    assert dead.keys() == poison and {len(rows) for rows in dead.values()} == {1}
    assert rig.done() == Counter({*range(count)} - poison), "each of the others once"
    assert len(rig.command("replay", "--yes")["letters"]) == len(poison)
    rig.end_of(rig.start(fixed=True))
    assert rig.done() == Counter(range(count))
    assert rig.command("list")["letters"] == []


@pytest.mark.parametrize("seed", seeds("dead-letter-kills"))
def test_a_killed_worker_loses_no_record_and_no_dead_letter(rig: Rig, seed: int) -> None:
    """Three times. What is there twice is what at-least-once allows: a letter written, its offset not committed."""
    count, kills = 20_000, 3
    rig.produce(count)
    poison = {*filter(is_poison, range(count))}
    run = rig.start(pause_s=0.0005)  # some five seconds of work, so that the third kill finds it at work
    try:
        for kill in range(kills):
            rig.until_letters((kill + 1) * len(poison) // 5, run)
            kill_worker(rig.folder, (seed + kill) % 2, run)
            time.sleep(1.0)
    except BaseException:
        run.end()
        raise
    rig.end_of(run)
    dead, done = rig.dead(len(poison)), rig.done()
    assert dead.keys() == poison
    assert {*range(count)} - poison - done.keys() == set()
    assert done.keys() & poison == set()
    # At least once: what is open at a kill, or not committed yet, comes again with it, and once.
    again = [len(rows) - 1 for rows in dead.values()]
    print(f"{sum(again)} of {len(poison)} dead letters again, {done.total() - len(done)} of the others")
    assert max(again) <= kills and max(done.values()) <= 1 + kills


def test_a_broker_that_is_killed_and_comes_back_costs_no_dead_letter_and_doubles_none(rig: Rig) -> None:
    count = 20_000
    rig.produce(count)
    poison = {*filter(is_poison, range(count))}
    run = rig.start()
    try:
        rig.until_letters(len(poison) // 4, run)
        rig.cluster.restart(0, graceful=False)
    except BaseException:
        run.end()
        raise
    rig.end_of(run)
    dead = rig.dead(len(poison))
    assert dead.keys() == poison and {len(rows) for rows in dead.values()} == {1}
    assert rig.done().keys() == {*range(count)} - poison


def test_while_the_topic_is_away_the_spout_holds_and_goes_on_when_it_is_back(rig: Rig) -> None:
    run = rig.streamlet("run", str(TOPOLOGY), "--workers", "2", "--json")
    poison = {*filter(is_poison, range(2000))}
    try:
        rig.until(lambda: "begins at offset 0" in rig.said(), run)
        with Admin(bootstrap_servers=rig.cluster.bootstrap_servers) as admin:
            admin.delete_topics(rig.letters)
            rig.produce(2000)
            rig.until(lambda: "dead letters wait for topic" in rig.said(), run)
            rig.produce(2000)
            done = rig.done()
            time.sleep(3)
            assert rig.done() == done, "it emits nothing new"
            assert run.process.poll() is None and rig.said().count("dead letters wait for topic") == 1
            admin.create_topics(NewTopic(rig.letters, 2))
            rig.until(lambda: rig.done().total() == 2 * (2000 - len(poison)), run)
            rig.until(lambda: "goes on: the dead letters are written" in rig.said(), run)
        rig.until_letters(2 * len(poison), run)
        run.process.send_signal(signal.SIGINT)
        run.process.wait(PATIENCE_S)
        assert run.process.returncode == 130, rig.said()
    finally:
        run.end()
    dead = rig.dead(2 * len(poison))
    assert dead.keys() == poison and {len(rows) for rows in dead.values()} == {2}, "each record of the two times once"
