"""The failover switch in a whole producer: what moves is counted and told, and what must not move stays."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from streamlet.kafka.producer.partitioners import murmur2_partition
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.kafka.producer.scripted import scripted, take_leader, until


def key_of(partition: int) -> bytes:
    """A key that goes to this one of two partitions."""
    return next(key for key in (b"%d" % n for n in range(99)) if murmur2_partition(key, 2) == partition)


def test_p8_keys_that_go_elsewhere_are_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    """With "all": those that wait when their partition dies, and those that are sent afterwards."""
    caplog.set_level(logging.WARNING, "streamlet.kafka.producer")
    with scripted({"t": 2}, partition_failover="all", linger_ms=10_000) as (broker, log, producer):
        before = [producer.send("t", b"%d" % n, key=key_of(0)) for n in range(3)]
        take_leader(producer, broker, 0)
        until(lambda: producer.metrics()["records_moved"] == 3)
        after = [producer.send("t", b"%d" % n, key=key_of(0)) for n in range(3, 7)]
        assert producer.metrics()["records_moved"] == 7
        producer.send("t", b"named", partition=0)
        home = producer.send("t", b"7", key=key_of(1))
        assert producer.metrics()["records_moved"] == 7
        producer.close(1)
        assert {future.get(0).partition for future in (*before, *after, home)} == {1}
        assert log.values == {("t", 1): [b"%d" % n for n in range(8)]}
        told = [row.args for row in caplog.records if "every replica of" in row.msg]
        assert sum(row[1] for row in told) == 7 and {(str(row[0]), row[3]) for row in told} == {("t-0", 1)}  # type: ignore[index,misc]


@pytest.mark.parametrize(
    ("settings", "replicas"),
    [({}, (9,)), ({"partition_failover": "keyless"}, (9, 1)), ({"partition_failover": "all"}, (9, 1))],
    ids=["by default", "while a replica lives", "while a replica lives, with all"],
)
def test_p8_records_stay_by_default_and_while_a_replica_lives(
    settings: dict[str, Any], replicas: tuple[int, ...]
) -> None:
    """They wait for the election, and are written when there is a leader again."""
    with scripted({"t": 2}, linger_ms=10_000, **settings) as (broker, log, producer):
        producer._appender.topics._uniform = lambda: 0.0
        futures = [producer.send("t", b"keyless")]
        take_leader(producer, broker, 0, replicas)
        asked = len(broker.seen(ApiKey.METADATA))
        until(lambda: len(broker.seen(ApiKey.METADATA)) >= asked + 3)
        assert producer.metrics()["records_moved"] == 0
        futures.append(producer.send("t", b"keyed", key=key_of(0)))
        assert producer.metrics()["records_moved"] == 0
        broker.on(ApiKey.METADATA, broker.cluster.metadata)
        producer.flush(PATIENCE_S)
        assert [future.get(0).partition for future in futures] == [0, 0]
        assert log.values == {("t", 0): [b"keyless", b"keyed"]}
        assert producer.metrics()["records_moved"] == 0


def test_p8_a_key_stays_unless_all_is_said() -> None:
    """Without a key it moves, with one it waits."""
    with scripted({"t": 2}, partition_failover="keyless", linger_ms=10_000) as (broker, _log, producer):
        producer._appender.topics._uniform = lambda: 0.0
        keyless = producer.send("t", b"keyless")
        take_leader(producer, broker, 0)
        until(lambda: producer.metrics()["records_moved"] == 1)
        keyed = producer.send("t", b"keyed", key=key_of(0))
        apart = producer.send("t", b"by a key that is not written", partition_key=key_of(0))
        asked = len(broker.seen(ApiKey.METADATA))
        until(lambda: len(broker.seen(ApiKey.METADATA)) >= asked + 3)
        assert producer.metrics()["records_moved"] == 1
        broker.on(ApiKey.METADATA, broker.cluster.metadata)
        producer.flush(PATIENCE_S)
        assert [future.get(0).partition for future in (keyless, keyed, apart)] == [1, 0, 0]


def test_p8_a_record_without_a_written_key_stays_with_its_partition_key() -> None:
    """It opens a batch of its own, which does not move, and one without any key moves past it."""
    with scripted({"t": 2}, partition_failover="keyless", linger_ms=10_000) as (broker, _log, producer):
        producer._appender.topics._uniform = lambda: 0.0
        apart = producer.send("t", b"apart", partition_key=key_of(0))
        keyless = producer.send("t", b"keyless")
        take_leader(producer, broker, 0)
        until(lambda: producer.metrics()["records_moved"] == 1)
        broker.on(ApiKey.METADATA, broker.cluster.metadata)
        producer.flush(PATIENCE_S)
        assert [future.get(0).partition for future in (apart, keyless)] == [0, 1]
        assert producer.metrics()["records_moved"] == 1
