"""Producers while brokers die and leaders move, and while they die themselves; read back by librdkafka.

Each function plays one whole scenario with a seed, and raises AssertionError where a record is lost, doubled, out of
order, or seen though its transaction was aborted. What was hit is asserted too: a scenario in which nothing went wrong
has shown nothing.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from streamlet.devcluster import DevCluster
from streamlet.kafka import KafkaError, Producer
from streamlet.kafka.errors import ClientTimeout
from streamlet.kafka.producer.errors import BufferExhausted
from tests.patience import PATIENCE_S
from tests.read_back import read_back

PARTITIONS = 3
MOST_ADDED = 20


def make_topic(cluster: DevCluster, partitions: int = PARTITIONS) -> str:
    """A fresh topic with three replicas, two of which must be in sync."""
    name = f"rounds-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    config = {"min.insync.replicas": "2"}
    topic = NewTopic(name, num_partitions=partitions, replication_factor=3, config=config)
    admin.create_topics([topic], operation_timeout=30)[name].result(60)
    return name


def read_all(cluster: DevCluster, topic: str, isolation: str = "read_committed") -> dict[int, list[bytes]]:
    """Every value by partition, to each log's (stable) end."""
    found: dict[int, list[bytes]] = defaultdict(list)
    for row in read_back(cluster, topic, 0, isolation=isolation, within_s=PATIENCE_S):
        found[row.partition].append(row.value or b"")
    return found


class Trouble:
    """Kills, pauses and moves leaders, one after the other, in a thread of its own; every broker is up at the end."""

    def __init__(
        self, cluster: DevCluster, topic: str, rounds: int, rng: random.Random, felt: Callable[[], object]
    ) -> None:
        """``felt``: whether the client has noticed anything; kills are added until it has."""
        self._cluster, self._topic, self._rng, self._felt = cluster, topic, rng, felt
        self._kinds = [("kill", "pause", "move")[number % 3] for number in range(rounds)]
        rng.shuffle(self._kinds)
        self.done = threading.Event()
        self.error: BaseException | None = None
        self.hits: list[str] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Trouble:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            for kind in self._kinds:
                self._play(kind)
            for _ in range(MOST_ADDED):
                if self._felt():
                    break
                self._play("kill")
        except BaseException as err:
            self.error = err
        finally:
            self.done.set()

    def _play(self, kind: str) -> None:
        partition = self._rng.randrange(PARTITIONS)
        state = self._cluster.describe_topic(self._topic)[partition]
        leader = state.leader
        if kind == "move":
            others = [node for node in state.isr if node != leader]
            self._cluster.move_leader(self._topic, partition, self._rng.choice(others))
        elif kind == "pause":
            self._cluster.pause(leader)
            threading.Event().wait(self._rng.uniform(0.5, 3.0))
            self._cluster.resume(leader)
        else:
            self._cluster.kill(leader)
            threading.Event().wait(self._rng.uniform(0.1, 1.5))
            self._cluster.restart(leader)
        self.hits.append(f"{kind} broker {leader}, which led partition {partition}")
        self._await_in_sync()

    def _await_in_sync(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while any(len(row.isr) < 3 for row in self._cluster.describe_topic(self._topic)):
            assert time.monotonic() < deadline, "the replicas did not come back into sync"
            time.sleep(0.2)


@dataclass
class Found:
    """What a scenario did."""

    records: int = 0
    hits: list[str] = field(default_factory=list)
    metrics: dict[str, object] = field(default_factory=dict)
    aborted: int = 0
    seconds: float = 0.0


def idempotent(cluster: DevCluster, records: int, rounds: int, seed: int) -> Found:
    """acks=all and idempotence, five in flight: every record once and in order in its partition."""
    rng = random.Random(seed)
    topic = make_topic(cluster)
    sent: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    failed: list[BaseException] = []
    began = time.monotonic()
    with Producer(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=5000) as producer:
        producer.partitions_for(topic)
        with Trouble(cluster, topic, rounds, rng, lambda: producer.metrics()["retries"]) as trouble:
            count = 0
            while count < records or not trouble.done.is_set():
                number = rng.randrange(PARTITIONS)
                values = [b"%d" % n for n in range(count, count + rng.randrange(1, 400))]
                count += len(values)
                sent[number] += values
                for future in producer.send_many(topic, values, partition=number):
                    future.add_errback(failed.append)
                if count >= records:
                    trouble.done.wait(0.02)
        producer.flush(PATIENCE_S)
        metrics = producer.metrics()
    assert not failed, failed[:3]
    assert len(trouble.hits) >= rounds and metrics["retries"], "no send was hit"
    found = read_all(cluster, topic)
    for number, values in sent.items():
        assert_same(found[number], values, f"partition {number}, seed {seed}")
    return Found(count, trouble.hits, metrics, 0, time.monotonic() - began)


def transactions(cluster: DevCluster, records: int, rounds: int, seed: int) -> Found:
    """Transactions, a third of them aborted: read_committed shows the committed ones, whole, in order, and no other."""
    rng = random.Random(seed)
    topic = make_topic(cluster)
    committed: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    began = time.monotonic()
    count = attempt = aborted = 0
    settings = {"delivery_timeout_ms": 15_000, "request_timeout_ms": 5000, "max_block_ms": 60_000}
    with Producer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=f"rounds-{seed}-{topic}", **settings
    ) as producer:
        producer.init_transactions()
        with Trouble(cluster, topic, rounds, rng, lambda: producer.metrics()["retries"]) as trouble:
            while count < records or not trouble.done.is_set():
                attempt += 1
                rows = {number: [b"%d.%d" % (attempt, n) for n in range(rng.randrange(60))] for number in committed}
                if _attempt(producer, topic, rows, give_up=rng.random() < 0.3):
                    for number, values in rows.items():
                        committed[number] += values
                        count += len(values)
                else:
                    aborted += 1
        metrics = producer.metrics()
    assert len(trouble.hits) >= rounds and metrics["retries"], f"no send was hit by {trouble.hits}"
    assert aborted, "no transaction was given up"
    found = read_all(cluster, topic)
    for number, values in committed.items():
        assert_same(found[number], values, f"partition {number}, seed {seed}")
    return Found(count, trouble.hits, metrics, aborted, time.monotonic() - began)


def _attempt(producer: Producer, topic: str, rows: dict[int, list[bytes]], give_up: bool) -> bool:
    """One transaction; True when it is committed."""
    producer.begin_transaction()
    try:
        for number, values in rows.items():
            producer.send_many(topic, values, partition=number)
        if not give_up:
            _patiently(producer.commit_transaction)
            return True
    except KafkaError as err:
        if isinstance(err, ClientTimeout):
            raise
    _patiently(producer.abort_transaction)
    return False


def _patiently(call: object) -> None:
    """A call that gave up waiting is called again."""
    for tries in range(5):
        try:
            call()  # type: ignore[operator]
            return
        except ClientTimeout:
            if tries == 4:
                raise


def read_process_write(cluster: DevCluster, records: int, kills: int, seed: int) -> Found:
    """A process reads, and writes in transactions with its offsets; it is killed with one open, again and again.

    Its output has every input record exactly once, in order.
    """
    rng = random.Random(seed)
    source, target = make_topic(cluster), make_topic(cluster)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(PARTITIONS):
            values = [b"%d" % n for n in range(number, records, PARTITIONS)]
            producer.send_many(source, values, partition=number)
    began = time.monotonic()
    turns = max(records // 200, 1)
    moments = [rng.randrange(1, max(turns // (kills + 1), 2)) for _ in range(kills)]
    arguments = [cluster.bootstrap_servers, source, target, f"rpw-{seed}-{target}", str(PARTITIONS), str(records)]
    open_transactions = 0
    for moment in [*moments, 0]:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.producer_child", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            text=True,
        )
        assert child.stdin is not None and child.stdout is not None
        with child, child.stdin, child.stdout:
            for turn, line in enumerate(child.stdout, 1):
                if line.strip() == "done":
                    break
                assert line.startswith("open"), line
                if turn == moment:
                    child.kill()
                    open_transactions += 1
                    break
                child.stdin.write("go\n")
                child.stdin.flush()
            if moment == 0:
                assert child.wait(PATIENCE_S) == 0
    assert open_transactions == kills, f"only {open_transactions} of {kills} kills met an open transaction"
    found = read_all(cluster, target)
    for number in range(PARTITIONS):
        assert_same(
            found[number], [b"%d" % n for n in range(number, records, PARTITIONS)], f"partition {number}, {seed}"
        )
    everything = sum(map(len, read_all(cluster, target, "read_uncommitted").values()))
    assert everything > records, "no aborted record is in the log: the kills met nothing"
    return Found(
        records, [f"kill with transaction open at turn {n}" for n in moments], {}, kills, time.monotonic() - began
    )


def memory(cluster: DevCluster, records: int, rounds: int, seed: int) -> Found:
    """Ten times buffer_memory offered while all brokers are paused: send blocks, says so, and memory stays flat."""
    topic = make_topic(cluster, 1)
    buffer = 8 << 20
    value = bytes(random.Random(seed).randbytes(1000))
    began = time.monotonic()
    with Producer(bootstrap_servers=cluster.bootstrap_servers, buffer_memory=buffer, max_block_ms=1000) as producer:
        for _ in range(40):  # as much as the buffer holds several times: the allocator has what it needs
            producer.send_many(topic, [value] * 1000)
            producer.flush(PATIENCE_S)
        before = resident_bytes()
        for broker in range(3):  # all of them, or another one would lead
            cluster.pause(broker)
        refused, taken, peak = 0, 0, 0
        try:
            for _ in range(10 * buffer // (2000 * len(value))):
                try:
                    taken += len(producer.send_many(topic, [value] * 2000))
                except BufferExhausted as err:
                    refused += 1
                    taken += len(err.taken)  # type: ignore[attr-defined]
                peak = max(peak, resident_bytes())
                in_use = producer.metrics()["buffer_bytes_in_use"]
                assert isinstance(in_use, int) and in_use <= buffer
        finally:
            for broker in range(3):
                cluster.resume(broker)
        producer.flush(PATIENCE_S)
        assert producer.metrics()["buffer_bytes_in_use"] == 0
        metrics = producer.metrics()
    grown = (peak - before) / 1e6
    assert refused and taken * len(value) <= buffer, f"{refused} refused, {taken} taken"
    assert grown < 40, f"{grown:.0f} MB more than before the pause, with {buffer / 1e6:.0f} MB of buffer"
    hits = [f"{refused} times BufferExhausted, {taken} records taken, resident memory grew by {grown:.1f} MB"]
    return Found(taken, hits, metrics, 0, time.monotonic() - began)


def resident_bytes() -> int:
    """Of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def assert_same(found: list[bytes], wanted: list[bytes], where: str) -> None:
    """Equal, or the first difference."""
    if found == wanted:
        return
    at = next((n for n, (one, other) in enumerate(zip(found, wanted, strict=False)) if one != other), -1)
    lost, more = len(set(wanted) - set(found)), len(found) - len(set(found))
    near = (found[max(at - 3, 0) : at + 5], wanted[max(at - 3, 0) : at + 5])
    raise AssertionError(
        f"{where}: {len(found)} read, {len(wanted)} written, {lost} lost, {more} doubled, differs from {at} on: {near}"
    )
