"""The waits of a start: what may pass is tried again until the deadline, what waiting cannot mend is said at once."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.base.clock import ManualClock
from streamlet.components.context import TopologyContext
from streamlet.coordination.node_store import NodeStoreUnavailable
from streamlet.kafka.errors import BootstrapFailed
from streamlet.spouts.kafka.activity import Background
from streamlet.spouts.kafka.chosen_topics import ChosenTopics
from streamlet.spouts.kafka.coordinator import KafkaCoordinator, StaticCoordinator
from streamlet.spouts.kafka.errors import NoBrokers, NoUsableListener, SpoutCannotStart
from streamlet.spouts.kafka.hosts import KafkaHosts, StaticHosts, ZkBrokerReader, ZkHosts
from streamlet.spouts.kafka.partition import Broker
from streamlet.spouts.kafka.schemes.scheme import StringScheme
from streamlet.spouts.kafka.spout_config import GroupOffsets, SpoutConfig
from streamlet.spouts.kafka.startup import Held, living_brokers, wire
from tests.memory_nodes import MemoryNodeStore
from tests.scripted.fake_cluster import FakeCluster
from tests.spout_harness import Harness

DEADLINE_S = 15.0


class Waits:
    """A clock that only the pauses move; at a given time something happens."""

    def __init__(self, at_s: float = 1e9, happens: Callable[[], None] = lambda: None) -> None:
        self.clock = ManualClock()
        self.told: list[str] = []
        self._at_s = at_s
        self._happens = happens

    def pause(self, seconds: float) -> None:
        assert seconds > 0, "waiting must not be a busy loop"
        self.clock.advance(seconds)
        if self.clock.monotonic() >= self._at_s:
            self._at_s = 1e9
            self._happens()

    def brokers(self, reader: ZkBrokerReader) -> list[Broker]:
        return living_brokers(reader.read_brokers, DEADLINE_S, self.clock, self.told.append, self.pause)


@pytest.fixture
def nodes() -> MemoryNodeStore:
    return MemoryNodeStore()


@pytest.fixture
def reader(nodes: MemoryNodeStore) -> Iterator[ZkBrokerReader]:
    background = Background("test", lambda: None)
    yield ZkBrokerReader(ChosenTopics(("t",)), nodes, background, "/brokers", "zk:2181")
    background.close()


def register(nodes: MemoryNodeStore, listener: str = "PLAINTEXT") -> None:
    broker = {"listener_security_protocol_map": {listener: listener}, "endpoints": [f"{listener}://a:9092"]}
    nodes.create("/brokers/ids/1", json.dumps(broker).encode())


def test_brokers_that_come_up_later_are_waited_for_and_that_is_said(
    nodes: MemoryNodeStore, reader: ZkBrokerReader
) -> None:
    waits = Waits(6.0, lambda: register(nodes))
    assert waits.brokers(reader) == [Broker("a", 9092)]
    assert waits.clock.monotonic() < 7.0
    (told,) = waits.told
    assert told.startswith("waiting for a Kafka broker, for up to 14 s more. So far: ZooKeeper zk:2181 has no broker")


def test_a_zookeeper_that_loses_its_connection_meanwhile_is_asked_again(
    nodes: MemoryNodeStore, reader: ZkBrokerReader
) -> None:
    register(nodes)
    nodes.suspend()
    assert Waits(2.0, nodes.resume).brokers(reader) == [Broker("a", 9092)]


def test_what_is_there_at_once_is_taken_without_a_word(nodes: MemoryNodeStore, reader: ZkBrokerReader) -> None:
    register(nodes)
    waits = Waits()
    waits.brokers(reader)
    assert (waits.clock.monotonic(), waits.told) == (0.0, [])


def test_no_broker_until_the_deadline_is_the_error_itself(nodes: MemoryNodeStore, reader: ZkBrokerReader) -> None:
    waits = Waits()
    with pytest.raises(NoBrokers, match="no Kafka that lives in this ZooKeeper is running"):
        waits.brokers(reader)
    assert DEADLINE_S - 1 < waits.clock.monotonic() <= DEADLINE_S
    nodes.suspend()
    with pytest.raises(NodeStoreUnavailable):
        Waits().brokers(reader)


class LateNodes(MemoryNodeStore):
    """A broker registers after the first look."""

    def children(self, path: str) -> list[str]:
        try:
            return super().children(path)
        finally:
            if self.exists("/brokers/ids/1") is None:
                broker = {"listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}}
                self.create("/brokers/ids/1", json.dumps({**broker, "endpoints": ["PLAINTEXT://127.0.0.1:1"]}).encode())


def test_a_start_through_zookeeper_waits_for_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may come up a moment after the topology; here the one that comes is then found to be silent."""
    late = LateNodes()
    monkeypatch.setattr(Held, "nodes", lambda *_: late)
    config = SpoutConfig(ZkHosts("zk:2181"), "t", "/streamlet", "demo", start_timeout_ms=700)
    with pytest.raises(BootstrapFailed, match=r"127\.0\.0\.1:1"):
        wire(
            config, StringScheme(), TopologyContext("t", "id", "s", 1, 0, 1), lambda: 0.5, print, until_caught_up=False
        )


def test_what_waiting_does_not_mend_is_said_at_once(nodes: MemoryNodeStore, reader: ZkBrokerReader) -> None:
    register(nodes, "SSL")
    waits = Waits()
    with pytest.raises(NoUsableListener):
        waits.brokers(reader)
    assert waits.clock.monotonic() == 0.0


@pytest.mark.parametrize("index", [0, 1])
def test_k11_the_task_takes_its_share_by_the_index_and_the_count_of_its_context_and_says_so(
    index: int, harness: Callable[..., Harness], caplog: pytest.LogCaptureFixture
) -> None:
    """Of five partitions; counted from 1 in the log, where users read it."""
    caplog.set_level(logging.INFO)
    with FakeCluster({"lines": 5}) as cluster:
        config = SpoutConfig(KafkaHosts(cluster.broker.address), "lines", id="demo", start_timeout_ms=5000)
        spout = harness(config, task_index=index, task_count=2)
        mine = [0, 2, 4] if index == 0 else [1, 3]
        assert [row["partition"] for row in spout.spout.partition_status()] == mine
        said = f"topic lines: task {index + 1} of 2 owns partitions: {', '.join(map(str, mine))}"
        assert [row.getMessage() for row in caplog.records if "owns partitions" in row.getMessage()] == [said]
        spout.spout.close()


def test_what_cannot_be_closed_keeps_nothing_else_open() -> None:
    closed: list[str] = []

    def part(name: str) -> Any:
        def close(*_: Any) -> None:
            closed.append(name)
            if name == "owner":
                raise OSError("no")

        return SimpleNamespace(close=close)

    held = Held(lambda: None, lambda text: None)
    held.dead_letters, held.owner, held.client = part("letters"), part("owner"), part("client")
    held.background = part("thread")
    with pytest.raises(OSError, match="no"):
        held.close()
    assert closed == ["letters", "owner", "client", "thread"]


def test_a_start_that_takes_too_long_names_both_times_that_bound_it(harness: Callable[..., Harness]) -> None:
    with FakeCluster({"lines": 1}) as cluster:
        cluster.leaders["lines", 0] = 99  # no broker's number
        config = SpoutConfig(
            KafkaHosts(cluster.broker.address), "lines", id="demo", start_timeout_ms=300, session_timeout_ms=400
        )
        said = r"within start_timeout_ms=300 and session_timeout_ms=400: partitions 0 have no leader"
        with pytest.raises(SpoutCannotStart, match=said):
            harness(config)


@pytest.mark.parametrize("static", [True, False])
def test_k11_the_type_of_the_hosts_decides_which_coordinator_there_is(
    static: bool, harness: Callable[..., Harness]
) -> None:
    """A list written by hand is never looked up again by its age; brokers that were asked once are asked again."""
    with FakeCluster({"lines": 1}) as cluster:
        address = cluster.broker.address
        hosts = StaticHosts({0: address}) if static else KafkaHosts(address, refresh_freq_secs=7)
        config = SpoutConfig(hosts, "lines", id="demo", offset_store=GroupOffsets(), start_timeout_ms=5000)
        spout = harness(config)
        parts = spout.spout._parts
        assert parts is not None
        kind, age_s = (StaticCoordinator, None) if static else (KafkaCoordinator, 7)
        assert type(parts.coordinator) is kind and parts.coordinator.refresh_interval_s == age_s
        spout.spout.close()
