"""Tasks of a KafkaSpout as members of a real group, as Kafka's own tool and other consumers see them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError

from streamlet.devcluster import DevCluster
from streamlet.kafka.admin import Admin
from streamlet.spouts.kafka import KafkaHosts, SpoutConfig
from streamlet.spouts.kafka.errors import ForeignMembers, RunDeposed, SessionRefused, TaskReplaced
from tests.patience import PATIENCE_S
from tests.spout_harness import Harness, Witness

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
QUICK = {"state_update_interval_ms": 50, "session_timeout_ms": 6_000}

Make = Callable[..., Harness]


@pytest.fixture(params=["3.9", "4"])
def cluster(request: Any) -> DevCluster:
    """Both brokers: each has a group coordinator of its own writing."""
    found: DevCluster = request.getfixturevalue("kafka39" if request.param == "3.9" else "kafka4")
    return found


@pytest.fixture
def topic(cluster: DevCluster, make_topic: Callable[..., str]) -> str:
    """Four partitions of ten records each."""
    name = make_topic(cluster, 4)
    for partition in range(4):
        Witness(cluster).produce(name, [f"{partition}-{offset}" for offset in range(10)], partition)
    return name


def config_of(cluster: DevCluster, topic: str, **changes: Any) -> SpoutConfig:
    return SpoutConfig(KafkaHosts(cluster.bootstrap_servers), topic, id=topic, **{**QUICK, **changes})


class Turning:
    """Turns some spouts on a thread of its own, as a worker's loop would; the first error ends it."""

    def __init__(self, *spouts: Harness) -> None:
        self.spouts, self.error = spouts, None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Turning:
        self._thread.start()
        return self

    def _run(self) -> None:
        while not self._over.is_set():
            for spout in self.spouts:
                try:
                    spout.turn()
                except Exception as error:
                    self.error = error  # type: ignore[assignment]
                    return
            time.sleep(0.005)

    def wait(self) -> Exception:
        """Wait for the error that ends it."""
        self._thread.join(PATIENCE_S)
        assert self.error is not None
        return self.error

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def values(*spouts: Harness) -> Iterator[str]:
    for spout in spouts:
        for row, _ in spout.tuples:
            yield row[0]


def test_kafkas_own_tool_shows_each_task_with_its_partitions_and_the_lag(
    harness: Make, cluster: DevCluster, topic: str
) -> None:
    config = config_of(cluster, topic)
    first = harness(config, task_index=0, task_count=2)
    second = harness(config, task_index=1, task_count=2)
    taken = [*first.take(20), *second.take(20)]
    slot = next(manager.slot for manager in first.spout._managers if manager.partition.number == 2)
    first.spout.ack_many([tup_id for _, tup_id in taken if tup_id in [(slot, offset) for offset in range(4)]])
    first.until(first.committed(4, 2))
    with Turning(first, second):
        said = cluster.run_tool(GROUPS, "--describe", "--group", topic)
        members = cluster.run_tool(GROUPS, "--describe", "--group", topic, "--members", "--verbose")
    rows = [line.split() for line in said.splitlines() if f" {topic} " in line]
    shown = {int(row[2]): (int(row[5]), row[6]) for row in rows}
    lags = {row["partition"]: row["lag"] for spout in (first, second) for row in spout.spout.partition_status()}
    assert {partition: lag for partition, (lag, _) in shown.items()} == lags == {0: 10, 1: 10, 2: 6, 3: 10}
    for partition, (_, member) in shown.items():
        assert member.startswith(f"run-1-lines-{partition % 2}")
    (row,) = [line for line in members.splitlines() if " run-1-lines-0 " in line]
    assert row.split()[3:6] == ["/127.0.0.1", "streamlet", "2"]
    assert "(0,2)" in row or f"{topic}:0,2" in row  # 3.9 and 4


def test_a_task_that_comes_later_takes_nothing_from_the_others_and_nothing_comes_twice(
    harness: Make, cluster: DevCluster, topic: str
) -> None:
    """The group rebalances; what is open stays open, and is acked and committed afterwards."""
    config = config_of(cluster, topic)
    first = harness(config, task_index=0, task_count=2)
    first.until(lambda: len(first.tuples) >= 7)
    with Turning(first):
        second = harness(config, task_index=1, task_count=2)
    first.until(lambda: len(first.tuples) == 20)
    second.until(lambda: len(second.tuples) == 20)
    assert sorted(values(first, second)) == sorted(f"{p}-{n}" for p in range(4) for n in range(10))
    first.ack_all()
    for partition in (0, 2):
        first.until(first.committed(10, partition))


def test_a_replacement_has_its_place_without_a_rebalance_and_its_predecessor_none(
    harness: Make, cluster: DevCluster, topic: str
) -> None:
    config = config_of(cluster, topic)
    zombie = harness(config)
    zombie.take(40)
    assert zombie.spout._gate is not None and zombie.spout._gate.grant is not None
    generation = zombie.spout._gate.grant.generation_id
    began = time.monotonic()
    other = harness(config, epoch=2)
    other.until(lambda: len(other.tuples) == 40)
    assert time.monotonic() - began < QUICK["session_timeout_ms"] / 1e3
    assert other.spout._gate is not None and other.spout._gate.grant is not None
    assert other.spout._gate.grant.generation_id == generation
    with Turning(zombie) as turning:
        assert isinstance(turning.wait(), TaskReplaced)
    other.ack_all()
    other.until(other.committed(10, 3))


def test_of_two_runs_the_newer_one_reads_what_the_older_one_committed_last(
    harness: Make, cluster: DevCluster, topic: str
) -> None:
    """The commit before the rebalance: nothing that was done comes again."""
    config = config_of(cluster, topic, state_update_interval_ms=600_000)
    older = harness(config)
    older.until(lambda: len(older.tuples) >= 17)
    done = {*values(older)}
    older.ack_all()
    with Turning(older) as turning:
        newer = harness(config, topology_id="run-2")
        assert isinstance(turning.wait(), RunDeposed)
    rest = {f"{p}-{n}" for p in range(4) for n in range(10)} - done
    newer.until(lambda: len(newer.tuples) >= len(rest))
    assert {*values(newer)} == rest


def test_an_ordinary_consumer_and_a_spout_do_not_share_a_group(harness: Make, cluster: DevCluster, topic: str) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        deadline = time.monotonic() + 60
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < deadline
        with pytest.raises(ForeignMembers, match="ordinary consumers among its members"):
            harness(config_of(cluster, topic))
    finally:
        consumer.close()
    spout = harness(config_of(cluster, topic))
    with Turning(spout):
        late = Consumer(settings)
        late.subscribe([topic])
        try:
            deadline = time.monotonic() + 60
            while (message := late.poll(0.1)) is None or message.error() is None:
                assert time.monotonic() < deadline
            assert message.error().code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        finally:
            late.close()
    assert spout.spout._gate is not None and spout.spout._gate.grant is not None


def test_a_session_time_out_that_the_broker_refuses_is_said_with_its_settings(
    harness: Make, cluster: DevCluster, topic: str
) -> None:
    with pytest.raises(SessionRefused, match=r"refuses session_timeout_ms=500\. Choose one between its group.min"):
        harness(config_of(cluster, topic, session_timeout_ms=500))


def test_the_tasks_of_a_worker_leave_side_by_side(harness: Make, cluster: DevCluster, topic: str) -> None:
    """All have left when the last one has begun to close, before the first one is closed."""
    spouts = [harness(config_of(cluster, topic), task_index=index, task_count=2) for index in (0, 1)]
    for spout in spouts:
        spout.spout.begin_close()
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        deadline = time.monotonic() + PATIENCE_S
        while admin.describe_groups([topic])[topic].members:
            assert time.monotonic() < deadline
            time.sleep(0.05)
