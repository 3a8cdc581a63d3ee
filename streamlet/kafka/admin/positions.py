"""What a partition's leader is asked: where its log begins and ends, and to drop its beginning. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeGuard

from streamlet.base.errors import BadInput
from streamlet.kafka.admin.errors import Answers, item_error
from streamlet.kafka.admin.model import OffsetSpec
from streamlet.kafka.client.leader_requests import ListedOffset, by_topic, list_offsets_request
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.protocol.messages import fetch as wire_offsets
from streamlet.kafka.protocol.messages import topics as wire_records

_WORDS = {"earliest": wire_offsets.EARLIEST_TIMESTAMP, "latest": wire_offsets.LATEST_TIMESTAMP}
_ISOLATION = ("read_uncommitted", "read_committed")


def is_place(spec: object) -> TypeGuard[OffsetSpec]:
    """Whether a leader must be asked what offset it is: a word or a time."""
    return isinstance(spec, datetime) or (isinstance(spec, str) and spec in _WORDS)


def timestamp_of(spec: OffsetSpec) -> int:
    """As the protocol says it. Raises BadInput for what is no place in a log."""
    if isinstance(spec, str) and spec in _WORDS:
        return _WORDS[spec]
    if isinstance(spec, datetime):
        if spec.tzinfo is None:
            raise BadInput(f"The time {spec} has no time zone: give an aware datetime, as datetime.now(timezone.utc).")
        return int(spec.timestamp() * 1000)
    if isinstance(spec, int) and not isinstance(spec, bool) and 0 <= spec < 1 << 63:
        return spec
    raise BadInput(
        f'{spec!r} is no place in a partition: write "earliest", "latest", an aware datetime, or milliseconds '
        "since 1970."
    )


def offsets_request(timestamps: Mapping[TopicPartition, int], isolation_level: str) -> wire_offsets.ListOffsetsRequest:
    """Of one leader's partitions. Raises BadInput for an unknown level."""
    if isolation_level not in _ISOLATION:
        raise BadInput(f'isolation_level = {isolation_level!r}: write "read_uncommitted" or "read_committed".')
    return list_offsets_request(timestamps, read_committed=isolation_level == "read_committed")


def read_listed(response: wire_offsets.ListOffsetsResponse) -> Answers[TopicPartition, ListedOffset]:
    """One offset a partition; -1 where no record is so late."""
    answers: Answers[TopicPartition, ListedOffset] = Answers()
    for topic in response.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            fault = item_error(row.error_code, f"Looking for offsets of {tp}", None, "DESCRIBE on the topic")
            if fault is None:
                answers.results[tp] = ListedOffset(row.offset, row.timestamp, row.leader_epoch, None)
            else:
                answers.errors[tp] = fault
    return answers


def records_request(before: Mapping[TopicPartition, int], timeout_ms: int) -> wire_records.DeleteRecordsRequest:
    """Drop what lies below each offset; -1: everything."""
    return wire_records.DeleteRecordsRequest(
        topics=tuple(
            wire_records.DeleteRecordsTopic(
                name=topic,
                partitions=tuple(
                    wire_records.DeleteRecordsPartition(partition_index=number, offset=offset)
                    for number, offset in rows.items()
                ),
            )
            for topic, rows in by_topic(before).items()
        ),
        timeout_ms=timeout_ms,
    )


def read_records_deleted(response: wire_records.DeleteRecordsResponse) -> Answers[TopicPartition, int]:
    """The first offset that each partition still has."""
    answers: Answers[TopicPartition, int] = Answers()
    for topic in response.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            fault = item_error(row.error_code, f"Deleting records of {tp}", None, "DELETE on the topic")
            if fault is None:
                answers.results[tp] = row.low_watermark
            else:
                answers.errors[tp] = fault
    return answers
