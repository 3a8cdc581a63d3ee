"""A scripted broker: what is fetched and when, answers that no longer fit, and errors in their order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from streamlet.kafka import Consumer
from streamlet.kafka.broker_errors import CorruptMessage, TopicAuthorizationFailed, UnknownServerError
from streamlet.kafka.consumer import fetcher
from streamlet.kafka.consumer.fetcher import CompletedFetch
from streamlet.kafka.consumer.records import Chunk
from streamlet.kafka.errors import CorruptRecord
from streamlet.kafka.protocol.messages.fetch import FetchRequest, FetchResponse
from streamlet.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
)
from streamlet.kafka.protocol.schema import ApiKey
from tests.scripted.fake_broker import SILENCE, FakeBroker
from tests.scripted.fake_cluster import FakeCluster, batch
from tests.scripted.kafka.consumer.scripted import ONE, PATIENCE_S, ZERO, fetched, poll_until


def test_c3_the_next_fetch_is_sent_before_an_answer_is_unpacked(
    broker: FakeBroker, consumer_of: Callable[..., Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the broker works on it while this process unpacks."""
    broker.cluster.fill("t", 10)
    consumer = consumer_of()
    sent: list[int] = []
    take = CompletedFetch.take

    def noted(done: CompletedFetch, limit: int) -> list[Chunk]:
        sent.append(consumer._fetcher.requests_sent)
        return take(done, limit)

    monkeypatch.setattr(CompletedFetch, "take", noted)
    consumer.assign([ZERO])
    assert poll_until(consumer, lambda: consumer.position(ZERO) == 10) == list(range(10))
    assert sent[0] == 2, "the one that brought the records, and the next"


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


@pytest.mark.parametrize(
    ("code", "doubts_the_leader"),
    [(3, True), (5, True), (6, True), (9, True), (56, True), (74, True), (75, False), (78, False), (-1, False)],
)
def test_c4_m4_errors_that_pass_are_tried_again_without_a_storm(
    code: int, doubts_the_leader: bool, broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """No leader, no storage, old epoch ...: after a pause, and nothing is lost.

    Metadata is asked for where another broker may lead now; three errors pass at the same broker.
    """
    log, errors = broker.cluster.fill("t", 10), iter([code] * 3)
    asked: list[int] = []
    broker.on(
        ApiKey.FETCH,
        lambda request: (
            asked.append(len(broker.seen(ApiKey.METADATA)))
            or (fetched({0: (bad, b"")}) if (bad := next(errors, 0)) else log.fetch(request))
        ),
    )
    consumer = consumer_of(retry_backoff_ms=30)
    consumer.assign([ZERO])
    begun = time.monotonic()
    assert poll_until(consumer, lambda: consumer.position(ZERO) == 10) == list(range(10))
    assert time.monotonic() - begun >= 0.09
    assert (asked[3] > asked[0]) is doubts_the_leader


def test_c4_an_error_that_stays_is_raised_by_name(broker: FakeBroker, consumer_of: Callable[..., Consumer]) -> None:
    """Not allowed to read."""
    broker.on(ApiKey.FETCH, fetched({0: (29, b"")}))
    consumer = consumer_of()
    consumer.assign([ZERO])
    with pytest.raises(TopicAuthorizationFailed, match=r"Fetching t-0 from offset 0.*READ on the topic"):
        poll_until(consumer, lambda: False)


@pytest.mark.parametrize("of_all", [False, True])
def test_c4_an_error_that_the_broker_did_not_expect_is_told_once_and_raised_when_it_lasts(
    of_all: bool,
    broker: FakeBroker,
    consumer_of: Callable[..., Consumer],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of a partition, and of a whole answer: a broker's own handler gives the code alone."""
    monkeypatch.setattr(fetcher, "UNKNOWN_ERROR_S", 0.2)
    broker.on(ApiKey.FETCH, FetchResponse(error_code=-1, topics=()) if of_all else fetched({0: (-1, b"")}))
    consumer = consumer_of(retry_backoff_ms=20)
    consumer.assign([ZERO])
    with pytest.raises(UnknownServerError, match="Fetching t-0"):
        poll_until(consumer, lambda: False)
    assert caplog.text.count("t-0 cannot be read at the moment") == 1


def test_c4_damage_that_the_broker_finds_is_raised_by_each_poll(
    broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    broker.on(ApiKey.FETCH, fetched({0: (2, b"")}))
    consumer = consumer_of()
    consumer.assign([ZERO])
    for _ in range(2):
        with pytest.raises(CorruptMessage, match="Fetching t-0 from offset 0"):
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


def test_c2_the_end_of_the_log_and_the_first_open_transaction_are_told_apart(
    broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    broker.cluster.fill("t", 10)
    broker.cluster.log("t", 0).open_from = 4
    consumer = consumer_of()
    consumer.assign([ZERO])
    poll_until(consumer, lambda: consumer.position(ZERO) == 10)
    assert (consumer.highwater(ZERO), consumer.last_stable_offset(ZERO)) == (10, 4)


def test_c4_a_broker_that_refuses_a_fetch_is_paused_and_the_other_is_not() -> None:
    """A whole answer with an error: nothing of it counts, its session begins again, and the rest goes on."""
    with FakeCluster({"t": 2}, brokers=2) as cluster:
        first, second = cluster.brokers
        cluster.fill("t", 10, 10)
        metadata = cluster.metadata

        def each_leads_one(request: MetadataRequest) -> MetadataResponse:
            answer = metadata(request)
            (topic,) = answer.topics
            rows = tuple(replace(row, leader_id=row.partition_index + 1) for row in topic.partitions)
            return replace(answer, topics=(replace(topic, partitions=rows),))

        for broker in (first, second):
            broker.on(ApiKey.METADATA, each_leads_one)
        order: list[int] = []
        asked = threading.Event()
        refused = FetchResponse(error_code=71, topics=())

        def refuse_at_first(request: FetchRequest) -> FetchResponse:
            asked.set()
            return cluster.fetch(request) if len(order) == 10 else refused

        def answer_after(request: FetchRequest) -> FetchResponse:
            assert asked.wait(PATIENCE_S)
            return cluster.fetch(request)

        first.on(ApiKey.FETCH, refuse_at_first)
        second.on(ApiKey.FETCH, answer_after)
        with Consumer(
            bootstrap_servers=second.address, auto_offset_reset="earliest", fetch_max_wait_ms=20, retry_backoff_ms=50
        ) as consumer:
            consumer.assign([ZERO, ONE])
            deadline = time.monotonic() + PATIENCE_S
            while len(order) < 20:
                assert time.monotonic() < deadline
                order += [tp.partition for tp, rows in consumer.poll(50).items() for _ in rows]
        assert order == [1] * 10 + [0] * 10
        assert len(first.seen(ApiKey.FETCH)) >= 2


@pytest.mark.parametrize("partition_first", [True, False])
def test_c4_records_before_an_error_are_handed_out_before_it_is_raised(
    partition_first: bool, broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """Of another partition, too: what one answer brought is not lost with another's error."""
    good, bad = (0, 1) if partition_first else (1, 0)
    rows = {good: (0, batch(0, 10)), bad: (29, b"")}
    broker.on(ApiKey.FETCH, fetched(dict(sorted(rows.items()))), fetched({}))
    consumer = consumer_of()
    consumer.assign([ZERO, ONE])
    found: list[int] = []
    with pytest.raises(TopicAuthorizationFailed, match=f"Fetching t-{bad}"):
        while True:
            found += [row.offset for rows in consumer.poll(50).values() for row in rows]
    found += [row.offset for rows in consumer.poll(50).values() for row in rows]
    assert found == list(range(10))


def test_m4_a_fetch_of_an_unauthorised_partition_forces_an_update(
    broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """The poll fails by the topic's name, and metadata is asked for at once."""
    broker.cluster.fill("t", 10)
    consumer = consumer_of(metadata_max_age_ms=600_000, enable_fetch_sessions=False)
    consumer.assign([ZERO])
    assert len(poll_until(consumer, lambda: consumer.position(ZERO) == 10)) == 10
    assert consumer.poll(300) == {}
    asked = len(broker.seen(ApiKey.METADATA))
    broker.on(ApiKey.FETCH, fetched({0: (29, b"")}))
    with pytest.raises(TopicAuthorizationFailed, match="grant READ"):
        poll_until(consumer, lambda: False)
    broker.on(ApiKey.FETCH, SILENCE)
    poll_until(consumer, lambda: len(broker.seen(ApiKey.METADATA)) > asked)


def test_m4_a_partition_read_without_a_leader_forces_updates_until_there_is_one(
    broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """Of a partition that has its position, and after its last leader is gone."""
    log = broker.cluster.fill("t", 10)
    consumer = consumer_of(metadata_max_age_ms=600_000)
    consumer.assign([ZERO])
    assert len(poll_until(consumer, lambda: consumer.position(ZERO) == 10)) == 10

    def leaderless(request: MetadataRequest) -> MetadataResponse:
        answer = broker.cluster.metadata(request)
        (topic,) = answer.topics
        rows = tuple(replace(row, leader_id=-1, leader_epoch=7) for row in topic.partitions)
        return replace(answer, topics=(replace(topic, partitions=rows),))

    broker.on(ApiKey.METADATA, leaderless)
    consumer._client.request_update()
    asked = len(broker.seen(ApiKey.METADATA))
    poll_until(consumer, lambda: len(broker.seen(ApiKey.METADATA)) >= asked + 3)
    broker.on(ApiKey.METADATA, broker.cluster.metadata)
    log.topics["t"][0].elect(keeps=10)
    log.topics["t"][0].epochs[-1] = (8, 10)
    log.fill("t", 5)
    assert len(poll_until(consumer, lambda: consumer.position(ZERO) == 15)) == 5
