"""One group of ours, librdkafka's and Java's members, through joins and leaves in a seeded order, in either protocol.

What must hold: after each change every partition has an owner among the living within ``SETTLED_WITHIN_S`` (no stuck
group); no partition is owned by two at once (the rebalances are cooperative); at the end every record was read.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamlet.devcluster import DevCluster
from tests.faults.group_members import KINDS, NEWER_KINDS, GroupMember
from tests.patience import PATIENCE_S

PARTITIONS = 8
SETTLED_WITHIN_S = PATIENCE_S
_CLOCK_S = 0.005
"""Two processes' lines about one hand-over may be so far out of order: callbacks are printed, then acted on."""


class Writer(threading.Thread):
    """Writes round robin until it is stopped; ``count`` a partition were acknowledged."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True})
        self._topic = topic
        self.stop_it = threading.Event()
        self.count = 0
        self.unwritten = -1

    def run(self) -> None:
        """The thread."""
        while not self.stop_it.wait(0.02):
            for partition in range(PARTITIONS):
                for _ in range(5):
                    self._producer.produce(self._topic, b"x" * 20, partition=partition)
            self.count += 5
            self._producer.poll(0)
        self.unwritten = self._producer.flush(30)

    def finish(self) -> int:
        """Stop; how many records each partition has."""
        self.stop_it.set()
        self.join(PATIENCE_S)
        assert self.unwritten == 0
        return self.count


def play(cluster: DevCluster, folder: Path, seed: int, changes: int, *, newer: bool = False) -> str:
    """The whole of it; ``newer``: in the newer protocol, with a classic member.

    Raises AssertionError where something does not hold. Returns a line of figures.
    """
    kinds = NEWER_KINDS if newer else KINDS
    rng = random.Random(seed)
    topic = f"mixed-{seed}-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)], operation_timeout=20)[topic].result(30)
    writer = Writer(cluster.bootstrap_servers, topic)
    writer.start()
    everyone: list[GroupMember] = []
    slowest = 0.0

    def join(kind: str) -> None:
        everyone.append(GroupMember(kind, cluster, topic, topic, folder, newer))

    try:
        for kind in kinds:
            join(kind)
        slowest = max(slowest, _settle(everyone))
        for number in range(changes):
            living = [member for member in everyone if member.alive]
            if newer and number == 0:  # nobody else may commit what it has read
                everyone[0].end(kill=True)
                print(f"change 1: {everyone[0].kind} was killed")
            elif len(living) > 4 or (len(living) > 1 and rng.random() < 0.5):
                leaver = rng.choice(living)
                leaver.end(kill=rng.random() < 0.3)
                print(f"change {number + 1}: {leaver.kind} left")
            else:
                kind = rng.choice(kinds)
                join(kind)
                print(f"change {number + 1}: {kind} joins")
            slowest = max(slowest, _settle(everyone))
        count = writer.finish()
        _await_all_read(everyone, count)
    finally:
        writer.stop_it.set()
        for member in everyone:
            if member.alive:
                member.end()
    _check_owners(everyone)
    return f"{len(everyone)} members, {changes} changes, {count * PARTITIONS} records, slowest change {slowest:.1f} s"


def _settle(everyone: list[GroupMember]) -> float:
    """Until the living share all partitions out, evenly, and stay so for a moment; how long it took."""
    begun = time.monotonic()
    since: float | None = None
    while True:
        living = [member for member in everyone if member.alive]
        owned = sorted(number for member in living for number in list(member.holding))
        sizes = [len(member.holding) for member in living]
        even = owned == list(range(PARTITIONS)) and max(sizes) - min(sizes) <= 1
        now = time.monotonic()
        since = (since or now) if even else None
        if since is not None and now - since > 0.3:
            return since - begun
        assert now - begun < SETTLED_WITHIN_S, f"the group is stuck: {living}"
        for member in living:
            assert member.process.poll() is None, f"{member} ended by itself: {member.last_words()}"
        time.sleep(0.05)


def _await_all_read(everyone: list[GroupMember], count: int) -> None:
    deadline = time.monotonic() + SETTLED_WITHIN_S
    while missing := _missing(everyone, count):
        assert time.monotonic() < deadline, f"never read: {missing[:5]}, of {count} a partition"
        time.sleep(0.1)


def _missing(everyone: list[GroupMember], count: int) -> list[tuple[int, int]]:
    read: list[set[int]] = [set() for _ in range(PARTITIONS)]
    for member in everyone:
        for partition, first, last in list(member.read):
            read[partition].update(range(first, last + 1))
    return [(number, offset) for number in range(PARTITIONS) for offset in range(count) if offset not in read[number]]


def _check_owners(everyone: list[GroupMember]) -> None:
    held = [(partition, since, until, member) for member in everyone for partition, since, until in member.closed]
    for partition in range(PARTITIONS):
        rows = sorted((row for row in held if row[0] == partition), key=lambda row: row[1])
        for one, next_one in itertools.pairwise(rows):
            overlap = one[2] - next_one[1]
            assert overlap <= _CLOCK_S, f"partition {partition}: {one[3]} and {next_one[3]} both, for {overlap:.3f} s"
