"""One connection a broker, counted by partition, closed with the last."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.kafka.broker_errors import UnknownServerError, UnsupportedVersionByBroker
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.errors import BrokerError
from streamlet.kafka.future import failed_future
from streamlet.kafka.metadata.cluster import Broker as KafkaBroker
from streamlet.spouts.kafka import broker_connections
from streamlet.spouts.kafka.activity import Activity
from streamlet.spouts.kafka.broker_connections import DynamicPartitionConnections
from streamlet.spouts.kafka.partition import Broker, Partition

BROKERS = [Broker("a"), Broker("b"), Broker("c")]


class Client:
    def __init__(self) -> None:
        self.closed: list[str] = []

    def disconnect(self, broker: KafkaBroker) -> None:
        self.closed.append(broker.host)


def connections() -> tuple[DynamicPartitionConnections, Client]:
    client = Client()
    return DynamicPartitionConnections(cast(KafkaClient, client)), client


def test_k2_the_partitions_of_a_broker_share_a_connection() -> None:
    mine, client = connections()
    for number in range(12):
        mine.register(Partition("t", number), BROKERS[number % 3])
    assert [len(one.partitions) for one in mine.connections()] == [4, 4, 4]
    assert mine.get_connection(Partition("t", 0)) is mine.get_connection(Partition("t", 3))
    for number in (0, 3, 6):
        mine.unregister(Partition("t", number))
    assert client.closed == []
    mine.unregister(Partition("t", 9))
    assert client.closed == ["a"]
    for number in range(12):
        mine.unregister(Partition("t", number))
    assert client.closed == ["a", "b", "c"]


def test_k2_a_moved_partition_gives_its_old_broker_back() -> None:
    mine, client = connections()
    p = Partition("t", 0)
    first = mine.register(p, BROKERS[0])
    assert mine.register(p, BROKERS[0]) is first
    assert mine.register(p, BROKERS[1]) is not first
    assert client.closed == ["a"]


@pytest.mark.parametrize(("error", "passes"), [(UnknownServerError, True), (UnsupportedVersionByBroker, False)])
def test_whether_a_log_was_cut_is_asked_again_where_the_leader_met_an_error_it_did_not_expect(
    error: type[BrokerError], passes: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer that stays so is told, and reading goes on as it would without the question."""
    failed = failed_future(error("Asking for the end of an epoch"))
    monkeypatch.setattr(broker_connections, "offsets_for_leader_epoch", lambda *_: failed)
    p = Partition("t", 0)
    asking = Activity(connections()[0].register(p, BROKERS[0]).epoch_end(p, 5))
    assert asking.poll()
    if passes:
        with pytest.raises(error):
            asking.take()
    else:
        assert asking.take() is None and "whether its log was truncated cannot be asked" in caplog.text


def test_k2_an_unknown_partition_has_no_connection() -> None:
    mine, client = connections()
    mine.unregister(Partition("t", 1))
    assert mine.get_connection(Partition("t", 1)) is None
    assert client.closed == []


STEPS = st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.none() | st.integers(0, 2)), max_size=40)


@given(STEPS)
def test_k2_a_broker_is_connected_exactly_while_a_partition_needs_it(steps: list[tuple[int, bool, Any]]) -> None:
    """Led there, or read from there: a partition whose leader changes, or is gone, is read from the leader again."""
    mine, client = connections()
    leaders: dict[Partition, Broker] = {}
    nearer: dict[Partition, Broker] = {}
    for number, to_read, broker in steps:
        partition, at = Partition("t", number), None if broker is None else BROKERS[broker]
        closed, before = len(client.closed), {*leaders.values(), *nearer.values()}
        if to_read:
            if at is None:
                mine.read_from_leader(partition)
                nearer.pop(partition, None)
            elif partition in leaders:
                mine.read_from(partition, at)
                nearer[partition] = at
        elif at is None:
            mine.unregister(partition)
            leaders.pop(partition, None)
            nearer.pop(partition, None)
        else:
            mine.register(partition, at)
            if leaders.get(partition) != at:
                nearer.pop(partition, None)
            leaders[partition] = at
        used = {*leaders.values(), *nearer.values()}
        assert {one.broker for one in mine.connections()} == used
        assert set(client.closed[closed:]) == {one.host for one in before - used}
        for one in mine.connections():
            assert one.partitions == {each for each, where in leaders.items() if where == one.broker}
        for each, where in leaders.items():
            read = mine.read_connection(each)
            assert read is not None and read.broker == nearer.get(each, where)
