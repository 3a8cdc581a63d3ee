"""Positions that a scripted broker's log no longer holds, or holds otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from streamlet.kafka import Consumer
from streamlet.kafka.broker_errors import UnknownServerError
from streamlet.kafka.consumer import positions
from streamlet.kafka.consumer.errors import LogTruncated, PositionOutOfRange
from streamlet.kafka.protocol.messages.fetch import (
    EpochEndOffset,
    EpochEndOffsetPartition,
    EpochEndOffsetTopic,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochResponse,
)
from streamlet.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
)
from streamlet.kafka.protocol.schema import ApiKey
from tests.scripted.fake_broker import FakeBroker
from tests.scripted.kafka.consumer.scripted import PATIENCE_S, ZERO, fetched, poll_until


def at_epoch(broker: FakeBroker, epoch: Callable[[], int]) -> Callable[[MetadataRequest], MetadataResponse]:
    """Metadata in which all leaders are of this epoch."""

    def metadata(request: MetadataRequest) -> MetadataResponse:
        for log in broker.cluster.topics["t"]:
            log.epochs = [(epoch(), 0)]
        found: MetadataResponse = broker.cluster.metadata(request)
        return found

    return metadata


def epoch_end(epoch: int, offset: int, error_code: int = 0) -> OffsetForLeaderEpochResponse:
    row = EpochEndOffsetPartition(error_code=error_code, partition=0, leader_epoch=epoch, end_offset=offset)
    return OffsetForLeaderEpochResponse(topics=(EpochEndOffsetTopic(topic="t", partitions=(row,)),))


def test_c2_an_epoch_that_metadata_does_not_know_yet_is_no_cut_log(
    broker: FakeBroker, consumer_of: Callable[..., Consumer], caplog: pytest.LogCaptureFixture
) -> None:
    """Committed under a leader we have not heard of. One that was cut off knows nothing of it, and is not asked."""

    def epoch() -> int:
        return 5 if len(broker.seen(ApiKey.METADATA)) < 4 else 7

    broker.cluster.fill("t", 1210)
    broker.on(ApiKey.METADATA, at_epoch(broker, epoch))
    broker.on(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, lambda _request: epoch_end(-1, -1) if epoch() == 5 else epoch_end(7, 1300)
    )
    consumer = consumer_of(auto_offset_reset="earliest")
    consumer.assign([ZERO])
    consumer.partitions_for_topic("t")
    consumer.seek(ZERO, 1200, leader_epoch=7)
    assert poll_until(consumer, lambda: consumer.position(ZERO) == 1210) == list(range(1200, 1210))
    assert caplog.text == ""


def test_c2_an_epoch_that_no_leader_ever_reaches_is_waited_for_only_so_long(
    broker: FakeBroker,
    consumer_of: Callable[..., Consumer],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The topic was made again, and counts its epochs from 0: the policy decides, and it is told."""
    monkeypatch.setattr(positions, "BEHIND_S", 0.5)
    broker.cluster.fill("t", 20)
    broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, epoch_end(-1, -1))
    consumer = consumer_of(auto_offset_reset="earliest")
    consumer.assign([ZERO])
    consumer.partitions_for_topic("t")
    consumer.seek(ZERO, 1200, leader_epoch=7)
    assert poll_until(consumer, lambda: consumer.position(ZERO) == 20) == list(range(20))
    assert "of leader epoch 7" in caplog.text and "no longer in the log" in caplog.text


def listed(error_code: int) -> ListOffsetsResponse:
    row = ListOffsetsPartitionResponse(partition_index=0, error_code=error_code, timestamp=-1, offset=0, leader_epoch=0)
    return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(row,)),))


@pytest.mark.parametrize("api", [ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH])
@pytest.mark.parametrize("lasts", [False, True])
def test_c2_an_error_that_a_leader_did_not_expect_is_told_once_and_raised_when_it_lasts(
    api: ApiKey,
    lasts: bool,
    broker: FakeBroker,
    consumer_of: Callable[..., Consumer],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Asked where to begin, and whether its log is the one that was read."""
    asks_for_end = api is ApiKey.LIST_OFFSETS
    fails, whole = (listed(-1), listed(0)) if asks_for_end else (epoch_end(-1, -1, error_code=-1), epoch_end(5, 30))
    if lasts:
        monkeypatch.setattr(positions, "UNKNOWN_ERROR_S", 0.3)
    broker.on(api, lambda _request: whole if not lasts and len(broker.seen(api)) > 3 else fails)
    broker.cluster.fill("t", 10)
    broker.on(ApiKey.METADATA, at_epoch(broker, lambda: 6))
    consumer = consumer_of(auto_offset_reset="earliest", retry_backoff_ms=20)
    consumer.assign([ZERO])
    consumer.partitions_for_topic("t")
    if not asks_for_end:
        consumer.seek(ZERO, 0, leader_epoch=5)
    if lasts:
        with pytest.raises(UnknownServerError, match=r"(Asking for the earliest offset|Checking the position) of t-0"):
            poll_until(consumer, lambda: False)
    else:
        assert poll_until(consumer, lambda: consumer.position(ZERO) == 10) == list(range(10))
    assert caplog.text.count("t-0 has no position at the moment") == 1


def test_c2_a_cut_log_is_noticed_by_its_leader_epoch_and_told(
    broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """A committed or stored position of epoch 5: the leader says that epoch 4 ended at 40 (KIP-320)."""
    broker.on(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        OffsetForLeaderEpochResponse(
            topics=(
                EpochEndOffsetTopic(
                    topic="t",
                    partitions=(EpochEndOffsetPartition(error_code=0, partition=0, leader_epoch=4, end_offset=40),),
                ),
            )
        ),
    )
    broker.cluster.fill("t", 50)
    broker.on(ApiKey.METADATA, at_epoch(broker, lambda: 6))
    strict = consumer_of(auto_offset_reset="none")
    strict.assign([ZERO])
    strict.partitions_for_topic("t")
    strict.seek(ZERO, 45, leader_epoch=5)
    with pytest.raises(LogTruncated, match="from offset 40 to 44 were read and are no longer in the log") as info:
        poll_until(strict, lambda: False)
    assert info.value.divergent_offsets == {ZERO: 40} and info.value.topic_partition == ZERO
    lenient = consumer_of()
    lenient.assign([ZERO])
    lenient.partitions_for_topic("t")
    lenient.seek(ZERO, 45, leader_epoch=5)
    assert poll_until(lenient, lambda: lenient.position(ZERO) == 50) == list(range(40, 50))


def test_c2_a_log_that_parted_from_ours_behind_the_position_skips_no_record(
    broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """A leader that never had epoch 5 (all of it compacted away, perhaps) names an end of epoch 4 that lies ahead."""
    answers = iter([(4, 9)])

    def fetch(request: FetchRequest) -> FetchResponse:
        epoch, end = next(answers, (-1, -1))
        if end < 0:
            return log.fetch(request)
        parted = EpochEndOffset(epoch=epoch, end_offset=end)
        row = FetchPartitionResponse(
            partition_index=0, error_code=0, high_watermark=20, diverging_epoch=parted, records=memoryview(b"")
        )
        return FetchResponse(topics=(FetchTopicResponse(topic="t", partitions=(row,)),))

    log = broker.cluster.fill("t", 20)
    broker.on(ApiKey.FETCH, fetch)
    consumer = consumer_of()
    consumer.assign([ZERO])
    consumer.seek(ZERO, 5)
    assert poll_until(consumer, lambda: consumer.position(ZERO) == 20) == list(range(5, 20))


@pytest.mark.parametrize(("policy", "found"), [("earliest", list(range(12))), ("none", [])])
def test_c2_a_topic_made_again_is_read_by_policy_and_told(
    policy: str,
    found: list[int],
    broker: FakeBroker,
    consumer_of: Callable[..., Consumer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A position in the old topic says nothing about the new one, though its log may be long enough."""
    ids = broker.cluster.fill("t", 12).topic_ids
    ids["t"] = "AAAAAAAAAAAAAAAAAAAAAQ"
    consumer = consumer_of(auto_offset_reset=policy)
    consumer.assign([ZERO])
    consumer.seek(ZERO, 10)
    assert poll_until(consumer, lambda: consumer.position(ZERO) == 12) == [10, 11]
    ids["t"] = "AAAAAAAAAAAAAAAAAAAAAg"
    consumer._client.request_update()
    if policy == "none":
        with pytest.raises(PositionOutOfRange, match="Topic 't' was deleted and created again"):
            poll_until(consumer, lambda: False)
        return
    seen: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < 12 and time.monotonic() < deadline:
        seen += [row.offset for rows in consumer.poll(50).values() for row in rows]
    assert seen == found
    assert "was deleted and created again" in caplog.text


def test_c2_out_of_range_without_a_policy_names_both_ends(
    broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """The position, and where the log begins and ends."""
    broker.on(ApiKey.FETCH, fetched({0: (1, b"")}))
    consumer = consumer_of(auto_offset_reset="none")
    consumer.assign([ZERO])
    consumer.seek(ZERO, 5000)
    with pytest.raises(PositionOutOfRange, match="Offset 5000 is not in the log of topic 't', partition 0"):
        poll_until(consumer, lambda: False)
