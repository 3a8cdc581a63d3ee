"""Positions that a scripted broker's log no longer holds, or holds otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from streamlet.kafka import Consumer
from streamlet.kafka.consumer.errors import LogTruncated, PositionOutOfRange
from streamlet.kafka.protocol.api import ApiKey
from streamlet.kafka.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from streamlet.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
)
from streamlet.kafka.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffsetPartition,
    EpochEndOffsetTopic,
    OffsetForLeaderEpochResponse,
)
from streamlet.testing.fake_broker import FakeBroker

from .scripted import PATIENCE_S, ZERO, Log, fetched, poll_until


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
    log = Log(p0=50)
    broker.on(ApiKey.FETCH, log)
    strict = consumer_of(auto_offset_reset="none")
    strict.assign([ZERO])
    strict.partitions_for_topic("t")
    strict.seek(ZERO, 45, leader_epoch=5)
    with pytest.raises(LogTruncated, match="from offset 40 to 44 were read and are no longer in the log") as info:
        poll_until(strict, lambda: False)
    assert info.value.divergent_offsets == {ZERO: 40}
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
            return log(request)
        parted = EpochEndOffset(epoch=epoch, end_offset=end)
        row = FetchPartitionResponse(
            partition_index=0, error_code=0, high_watermark=20, diverging_epoch=parted, records=memoryview(b"")
        )
        return FetchResponse(topics=(FetchTopicResponse(topic="t", partitions=(row,)),))

    log = Log(p0=20)
    broker.on(ApiKey.FETCH, fetch)
    consumer = consumer_of()
    consumer.assign([ZERO])
    consumer.seek(ZERO, 5)
    assert poll_until(consumer, lambda: consumer.position(ZERO) == 20) == list(range(5, 20))


@pytest.mark.parametrize(("policy", "found"), [("earliest", list(range(12))), ("none", [])])
def test_c2_a_topic_made_anew_is_read_by_policy_and_told(
    policy: str,
    found: list[int],
    broker: FakeBroker,
    consumer_of: Callable[..., Consumer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A position in the old topic says nothing about the new one, though its log may be long enough."""
    ids = ["AAAAAAAAAAAAAAAAAAAAAQ"]

    def metadata(request: MetadataRequest) -> MetadataResponse:
        answer = broker.metadata(request)
        return replace(answer, topics=tuple(replace(row, topic_id=ids[0]) for row in answer.topics))

    broker.ranges[ApiKey.METADATA] = (9, 12)
    broker.on(ApiKey.METADATA, metadata).on(ApiKey.FETCH, Log(p0=12))
    consumer = consumer_of(auto_offset_reset=policy)
    consumer.assign([ZERO])
    consumer.seek(ZERO, 10)
    assert poll_until(consumer, lambda: consumer.position(ZERO) == 12) == [10, 11]
    ids[0] = "AAAAAAAAAAAAAAAAAAAAAg"
    consumer._client.request_update()
    if policy == "none":
        with pytest.raises(PositionOutOfRange, match="Topic 't' was deleted and made anew"):
            poll_until(consumer, lambda: False)
        return
    seen: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < 12 and time.monotonic() < deadline:
        seen += [row.offset for rows in consumer.poll(50).values() for row in rows]
    assert seen == found
    assert "was deleted and made anew" in caplog.text


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
