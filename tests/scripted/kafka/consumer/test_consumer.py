"""A scripted broker: what the consumer asks, when, and what it makes of bad answers."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from streamlet.base.errors import SettingError
from streamlet.kafka import Consumer, KafkaError, OffsetAndMetadata
from streamlet.kafka.broker_errors import TopicAuthorizationFailed
from streamlet.kafka.consumer.errors import CommitFailed, GroupThreadDied
from streamlet.kafka.consumer.membership import Membership
from streamlet.kafka.errors import CorruptRecord, ForeignProtocol
from streamlet.kafka.protocol.messages.groups import FindCoordinatorResponse, JoinGroupResponse
from streamlet.kafka.protocol.messages.metadata import (
    MetadataBroker,
    MetadataResponse,
    MetadataTopic,
)
from streamlet.kafka.protocol.schema import ApiKey
from tests.scripted.fake_broker import SILENCE, FakeBroker
from tests.scripted.fake_cluster import batch
from tests.scripted.kafka.consumer.scripted import ONE, PATIENCE_S, ZERO, fetched, poll_until


def test_c3_nothing_is_asked_before_the_first_poll_and_a_poll_ends_at_its_time_out(
    broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """Making and subscribing connect to nothing; 0 comes back at once, though nobody answers."""
    broker.on(ApiKey.FIND_COORDINATOR, SILENCE)
    consumer = consumer_of(group_id="g")
    consumer.subscribe(["t"])
    assert broker.connections == 0
    for timeout_ms in (0, 200):
        begun = time.monotonic()
        assert consumer.poll(timeout_ms) == {}
        assert timeout_ms / 1000 <= time.monotonic() - begun < timeout_ms / 1000 + 5


def test_c4_one_fetch_a_broker_at_a_time_and_none_for_what_waits(
    broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """Both partitions in one request; a partition with records not handed out is left out until they are."""
    log = broker.cluster.fill("t", 300, 300)
    consumer = consumer_of(max_poll_records=4, enable_fetch_sessions=False)
    consumer.assign([ZERO, ONE])
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < 600:
        assert time.monotonic() < deadline
        for tp, rows in consumer.poll(100).items():
            assert len(rows) <= 4
            found += [(tp.partition, row.offset) for row in rows]
    assert sorted(found) == [(number, offset) for number in (0, 1) for offset in range(300)]
    assert log.most_fetching == 1
    assert {0: 0, 1: 0} in log.asked
    # Ten records a batch: nothing was asked for twice, nor from the middle of what waited.
    for number in (0, 1):
        offsets = [row[number] for row in log.asked if number in row and row[number] < 300]
        assert offsets == list(range(0, 300, 10))


def test_c4_records_of_a_paused_partition_wait_and_are_not_asked_again(
    broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """They are handed out after resume."""
    log = broker.cluster.fill("t", 10, 10)
    consumer = consumer_of(max_poll_records=10, enable_fetch_sessions=False)
    consumer.assign([ZERO, ONE])
    (first,) = next(rows for rows in iter(lambda: consumer.poll(100), None) if rows)
    (other,) = {ZERO, ONE} - {first}
    consumer.pause(other)
    for _ in range(3):
        assert consumer.poll(20) == {}
    consumer.resume(other)
    assert [row.offset for row in consumer.poll(1000)[other]] == list(range(10))
    assert sum(row.get(other.partition) == 0 for row in log.asked) == 1


def test_c4_an_answer_to_an_old_position_is_dropped(broker: FakeBroker, consumer_of: Callable[..., Consumer]) -> None:
    """Sought elsewhere while the fetch was under way."""
    broker.cluster.fill("t", 100)
    consumer = consumer_of()
    consumer.assign([ZERO])
    poll_until(consumer, lambda: consumer.position(ZERO) == 10)
    consumer.seek(ZERO, 50)
    assert poll_until(consumer, lambda: consumer.position(ZERO) >= 100) == list(range(50, 100))


@pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78])
def test_c4_errors_that_pass_are_tried_again_without_a_storm(
    code: int, broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """No leader, no storage, old epoch ...: after a pause, with fresh metadata, and nothing is lost."""
    log, errors = broker.cluster.fill("t", 10), iter([code] * 3)
    broker.on(
        ApiKey.FETCH, lambda request: fetched({0: (bad, b"")}) if (bad := next(errors, 0)) else log.fetch(request)
    )
    consumer = consumer_of(retry_backoff_ms=30)
    consumer.assign([ZERO])
    begun = time.monotonic()
    assert poll_until(consumer, lambda: consumer.position(ZERO) == 10) == list(range(10))
    assert time.monotonic() - begun >= 0.09


def test_c4_an_error_that_stays_is_raised_by_name(broker: FakeBroker, consumer_of: Callable[..., Consumer]) -> None:
    """Not allowed to read."""
    broker.on(ApiKey.FETCH, fetched({0: (29, b"")}))
    consumer = consumer_of()
    consumer.assign([ZERO])
    with pytest.raises(TopicAuthorizationFailed, match=r"Fetching t-0 from offset 0.*READ on the topic"):
        poll_until(consumer, lambda: False)


def test_c4_a_damaged_batch_is_told_after_what_stands_before_it(
    broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """And the position stays at it: nothing is passed over."""
    bad = bytearray(batch(10, 10))
    bad[-3] ^= 0xFF
    broker.on(ApiKey.FETCH, lambda request: fetched({0: (0, batch(0, 10) + bytes(bad))}))
    consumer = consumer_of()
    consumer.assign([ZERO])
    found: list[int] = []
    with pytest.raises(CorruptRecord, match="checksum"):
        while True:
            found += [row.offset for rows in consumer.poll(100).values() for row in rows]
    assert found == list(range(10))
    assert consumer.position(ZERO) == 10


@pytest.mark.parametrize("deaf", [ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.FETCH, ApiKey.METADATA])
def test_close_ends_whatever_is_never_answered(
    deaf: ApiKey, broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """Whatever is never answered, and when it is called twice."""
    broker.on(deaf, SILENCE)
    consumer = consumer_of(group_id="g")
    consumer.subscribe(["t"])
    deadline = time.monotonic() + PATIENCE_S
    while not broker.seen(deaf) and not (deaf is ApiKey.FETCH and broker.seen(ApiKey.JOIN_GROUP)):
        assert time.monotonic() < deadline
        consumer.poll(20)
    begun = time.monotonic()
    consumer.close(1)
    assert time.monotonic() - begun < 5
    consumer.close(1)


def test_a_failed_join_that_stays_is_raised(broker: FakeBroker, consumer_of: Callable[..., Consumer]) -> None:
    """No right to use the group."""
    broker.on(ApiKey.FIND_COORDINATOR, FindCoordinatorResponse(error_code=30, node_id=-1, host="", port=-1))
    consumer = consumer_of(group_id="g")
    consumer.subscribe(["t"])
    with pytest.raises(KafkaError, match="GroupAuthorizationFailed"):
        poll_until(consumer, lambda: False)


@pytest.mark.parametrize("step", ["coordinator_found", "join_failed"], ids=["at once", "later"])
def test_c6_a_mistake_of_ours_in_an_answer_ends_the_membership_and_is_told(
    step: str, broker: FakeBroker, consumer_of: Callable[..., Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A future logs what its listener raises; the membership must not wait for ever for what the listener had to do."""

    def mistaken(*_: object) -> None:
        raise ValueError("a slip")

    monkeypatch.setattr(Membership, step, mistaken)
    broker.on(ApiKey.JOIN_GROUP, JoinGroupResponse(error_code=15))
    consumer = consumer_of(group_id="g")
    consumer.subscribe(["t"])
    with pytest.raises(GroupThreadDied, match=r"'g' ended with ValueError: a slip\. Close this consumer"):
        poll_until(consumer, lambda: False)


def test_a_topic_that_may_not_be_read_is_told(broker: FakeBroker, consumer_of: Callable[..., Consumer]) -> None:
    """Metadata says so; nothing would ever come of it."""
    refused = MetadataResponse(
        brokers=(MetadataBroker(node_id=1, host="127.0.0.1", port=broker.port),),
        topics=(MetadataTopic(error_code=29, name="t"),),
    )
    broker.on(ApiKey.METADATA, refused)
    consumer = consumer_of()
    consumer.assign([ZERO])
    with pytest.raises(TopicAuthorizationFailed, match="Topic 't' cannot be read"):
        poll_until(consumer, lambda: False)


def test_each_poll_raises_an_error_of_its_own(broker: FakeBroker, consumer_of: Callable[..., Consumer]) -> None:
    """A loop that logs and polls on would else keep the frames of all its polls in one traceback."""
    broker.greeting = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    consumer = consumer_of()
    consumer.assign([ZERO])
    raised = []
    for _again in range(3):
        with pytest.raises(ForeignProtocol) as info:
            poll_until(consumer, lambda: False)
        raised.append(info)
    assert len({id(info.value) for info in raised}) == 3
    assert len({len(info.traceback) for info in raised}) == 1


def test_c7_a_commit_before_the_first_poll_says_what_is_missing(
    broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """A member that has not joined owns nothing."""
    consumer = consumer_of(group_id="g")
    consumer.subscribe(["t"])
    with pytest.raises(CommitFailed, match="is not in group 'g' yet"):
        consumer.commit({ZERO: OffsetAndMetadata(1)}, timeout=5)


def test_unknown_settings_are_refused_with_the_nearest(broker: FakeBroker) -> None:
    """And contradictory ones with what to change."""
    for settings, words in (
        ({"auto_offset_rest": "latest"}, "auto_offset_reset"),
        ({"auto_offset_reset": "first"}, "earliest, latest, none"),
        ({"session_timeout_ms": 3000, "heartbeat_interval_ms": 3000}, "must be below session_timeout_ms"),
        ({"partition_assignment_strategy": ["rnage"]}, "rnage"),
        ({"group_instance_id": "a"}, "needs a group_id"),
        ({"value_deserializer": "utf-8"}, "bytes.decode"),
    ):
        with pytest.raises(SettingError, match=words):
            Consumer(bootstrap_servers=broker.address, **settings)
