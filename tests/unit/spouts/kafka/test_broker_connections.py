"""One connection a broker, counted by partition, closed with the last."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.metadata.cluster import Broker as KafkaBroker
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
    mine.close()
    assert client.closed == ["a", "b", "c"]


def test_k2_a_moved_partition_gives_its_old_broker_back() -> None:
    mine, client = connections()
    p = Partition("t", 0)
    first = mine.register(p, BROKERS[0])
    assert mine.register(p, BROKERS[0]) is first
    assert mine.register(p, BROKERS[1]) is not first
    assert client.closed == ["a"]


def test_k2_an_unknown_partition_has_no_connection() -> None:
    mine, client = connections()
    mine.unregister(Partition("t", 1))
    assert mine.get_connection(Partition("t", 1)) is None
    assert client.closed == []


STEPS = st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 2)), max_size=40)


@given(STEPS)
def test_k2_a_broker_is_connected_exactly_while_a_partition_needs_it(steps: list[tuple[int, Any]]) -> None:
    mine, _ = connections()
    want: dict[int, int] = {}
    for number, broker in steps:
        if broker is None:
            mine.unregister(Partition("t", number))
            want.pop(number, None)
        else:
            mine.register(Partition("t", number), BROKERS[broker])
            want[number] = broker
        assert {one.broker for one in mine.connections()} == {BROKERS[broker] for broker in want.values()}
        for one in mine.connections():
            assert {p.number for p in one.partitions} == {n for n, b in want.items() if BROKERS[b] == one.broker}
