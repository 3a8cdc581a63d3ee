"""A KafkaSpout without a topology around it: the test is the runtime, and gives the acks."""

from __future__ import annotations

import contextlib
import dataclasses
import select
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from kazoo.client import KazooClient

from streamlet.base.clock import Clock, SystemClock
from streamlet.components.context import TopologyContext
from streamlet.devcluster import DevCluster
from streamlet.spouts.kafka import KafkaSpout, SpoutConfig, last_commits
from tests.patience import PATIENCE_S


class Harness:
    """Binds what a spout emits to lists. ``tuples`` holds (values, message id); an ``emit_many`` gives one entry with
    a list of values.
    """

    def __init__(self, config: SpoutConfig, *, conf: dict[str, Any] | None = None, **context: Any) -> None:
        self.clock: Clock = context.setdefault("clock", SystemClock())
        self.tuples: list[tuple[Any, Any]] = []
        self.most = 1
        self.spout = KafkaSpout.spec(config=config).cls(**KafkaSpout.spec(config=config).kwargs)
        self.spout.bind(self)  # type: ignore[arg-type]
        self.conf = conf or {}
        names = {"topology_name": "test", "topology_id": "run-1", "component_name": "lines", "task_id": 1}
        self.context = TopologyContext(**{**names, "task_index": 0, "task_count": 1, **context})

    def emit(self, values: Sequence[Any], tup_id: Any = None, *_: Any, **__: Any) -> None:
        self.tuples.append((values, tup_id))

    emit_many = emit

    def emit_each(self, tuples: Sequence[Sequence[Any]], tup_ids: Sequence[Any]) -> bool:
        self.tuples += zip(tuples, tup_ids, strict=True)
        return False

    def as_last_try(self, emit: Any) -> None:
        emit()

    def room(self) -> int:
        return self.most

    def report_metric(self, name: str, value: float) -> None: ...

    def start(self) -> Harness:
        self.spout.initialize(self.conf, self.context)
        self.spout.activate()
        return self

    def turn(self) -> bool:
        """What the runtime's loop does once; whether anything was emitted."""
        before = len(self.tuples)
        self.spout.rests = False
        self.spout.next_tuple()
        self.spout.on_timer()
        return len(self.tuples) > before

    def until(self, reached: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        """Turn until it is so; fails the test after ``patience_s``."""
        deadline = time.monotonic() + patience_s
        while not reached():
            assert time.monotonic() < deadline, (self.spout.partition_status(), len(self.tuples))
            if not self.turn():
                select.select([self.spout.fileno()], [], [], 0.02)

    def values(self) -> list[Any]:
        return [values for values, _ in self.tuples]

    def take(self, count: int) -> list[tuple[Any, Any]]:
        """Turn until ``count`` tuples came; takes them all."""
        self.until(lambda: len(self.tuples) >= count)
        taken, self.tuples = self.tuples, []
        return taken

    def ack_all(self) -> None:
        taken, self.tuples = self.tuples, []
        self.spout.ack_many([tup_id for _, tup_id in taken])

    def status(self, partition: int = 0) -> dict[str, Any]:
        return next(row for row in self.spout.partition_status() if row["partition"] == partition)

    def committed(self, offset: int, partition: int = 0) -> Callable[[], bool]:
        return lambda: self.status(partition)["committed"] == offset


def read_all(one: Harness, count: int) -> list[str]:
    """Read, ack, commit; the values."""
    taken = one.take(count)
    one.spout.ack_many([tup_id for _, tup_id in taken])
    one.until(one.committed(one.status()["position"]))
    return [values[0] for values, _ in taken]


@pytest.fixture
def harness() -> Iterator[Callable[..., Harness]]:
    """``harness(config, conf={}, task_index=0, task_count=1 ...)``: a started spout, closed after the test."""
    # All tests are the run "run-1": what one of an earlier test waited for its store at the end is not this one's.
    last_commits._shared.clear()
    made: list[Harness] = []

    def make(config: SpoutConfig, **keys: Any) -> Harness:
        one = Harness(config, **keys)
        made.append(one)
        return one.start()

    yield make
    for one in made:
        with contextlib.suppress(Exception):
            one.spout.close()


@dataclasses.dataclass
class Witness:
    """Kafka and ZooKeeper as others see them: librdkafka and kazoo."""

    cluster: DevCluster

    def produce(self, topic: str, values: Sequence[Any], partition: int = 0, **config: Any) -> None:
        producer = Producer(
            {"bootstrap.servers": self.cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5, **config}
        )
        for value in values:
            key, body = value if isinstance(value, tuple) else (None, value)
            producer.produce(topic, body, key, partition=partition)
        assert producer.flush(20) == 0

    def add_partitions(self, topic: str, total: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(20)

    @contextlib.contextmanager
    def zookeeper(self) -> Iterator[KazooClient]:
        client = KazooClient(self.cluster.zookeeper)
        client.start(10)
        try:
            yield client
        finally:
            client.stop()
            client.close()


@pytest.fixture
def witness39(kafka39: DevCluster) -> Witness:
    """The Kafka 3.9 of the session, as seen by others."""
    return Witness(kafka39)


@pytest.fixture
def witness4(kafka4: DevCluster) -> Witness:
    """The Kafka 4.x of the session, as seen by others."""
    return Witness(kafka4)
