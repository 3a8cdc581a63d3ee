"""A broker that names a nearer replica (KIP-392)."""

from __future__ import annotations

import time

import pytest

from streamlet.kafka import Consumer, TopicPartition
from streamlet.kafka.errors import CorruptRecord
from streamlet.kafka.protocol.messages.fetch import (
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import CLOSE, FakeBroker
from tests.scripted.fake_cluster import FakeCluster, batch
from tests.scripted.kafka.consumer.scripted import fetched

ZERO = TopicPartition("t", 0)


def read(leader: FakeBroker, count: int) -> list[int]:
    """Read as a member of the rack "here"; return the offsets."""
    found: list[int] = []
    with Consumer(
        bootstrap_servers=leader.address, auto_offset_reset="earliest", client_rack="here", fetch_max_wait_ms=50
    ) as consumer:
        consumer.assign([ZERO])
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count:
            assert time.monotonic() < deadline
            found += [row.offset for rows in consumer.poll(50).values() for row in rows]
    return found


def naming(replica: int) -> FetchResponse:
    """Return what a leader answers to a rack: a replica there, and no records."""
    row = FetchPartitionResponse(
        partition_index=0, error_code=0, high_watermark=20, preferred_read_replica=replica, records=memoryview(b"")
    )
    return FetchResponse(session_id=0, topics=(FetchTopicResponse(topic="t", partitions=(row,)),))


def test_c4_records_come_from_the_replica_the_leader_names_until_it_fails() -> None:
    """The leader is asked first and says where; a replica that lags behind sends us back, without a reset."""
    with FakeCluster({"t": 1}, brokers=2) as cluster:
        leader, near = cluster.brokers

        def ask_the_near_one(request: FetchRequest) -> FetchResponse:
            assert request.rack_id == "here"
            return naming(2)

        leader.on(ApiKey.FETCH, ask_the_near_one, fetched({0: (0, batch(10, 10))}), fetched({}))
        near.on(ApiKey.FETCH, fetched({0: (0, batch(0, 10))}), fetched({0: (1, b"")}))
        assert read(leader, 20) == list(range(20))
        assert len(near.seen(ApiKey.FETCH)) == 2


@pytest.mark.parametrize("replica", [2, 7], ids=["is not reached", "is not in the metadata"])
def test_a_replica_that_cannot_be_read_from_does_not_stop_the_reading(replica: int) -> None:
    """A leader names it whenever it hears the rack: so it does not, and sends records."""
    with FakeCluster({"t": 1}, brokers=2) as cluster:
        leader, near = cluster.brokers
        records = [{0: (0, batch(0, 10))}]

        def fetch(request: FetchRequest) -> FetchResponse:
            return naming(replica) if request.rack_id else fetched(records.pop() if records else {})

        leader.on(ApiKey.FETCH, fetch)
        near.on(ApiKey.FETCH, CLOSE)
        assert read(leader, 10) == list(range(10))
        assert len(near.seen(ApiKey.FETCH)) == (replica == 2)


@pytest.mark.parametrize("by_whom", ["us", "the replica"])
def test_what_a_nearer_replica_has_damaged_is_read_from_the_leader(by_whom: str) -> None:
    """Nothing is raised: the records before the damage come from the replica, the others from the leader."""
    damaged = bytearray(batch(5, 5))
    damaged[-1] ^= 1
    bad = fetched({0: (0, batch(0, 5) + bytes(damaged))}) if by_whom == "us" else fetched({0: (2, b"")})
    with FakeCluster({"t": 1}, brokers=2) as cluster:
        leader, near = cluster.brokers
        near.on(ApiKey.FETCH, bad)

        def fetch(request: FetchRequest) -> FetchResponse:
            if request.rack_id:
                return naming(2)
            offset = request.topics[0].partitions[0].fetch_offset if request.topics else 10
            return fetched({0: (0, batch(offset, 10 - offset))} if offset < 10 else {})

        leader.on(ApiKey.FETCH, fetch)
        assert read(leader, 10) == list(range(10))


def test_what_the_leader_has_damaged_is_raised() -> None:
    damaged = bytearray(batch(0, 5))
    damaged[-1] ^= 1
    with FakeCluster({"t": 1}, brokers=1) as cluster:
        cluster.brokers[0].on(ApiKey.FETCH, fetched({0: (0, bytes(damaged))}))
        with pytest.raises(CorruptRecord):
            read(cluster.brokers[0], 1)
