"""What a scripted broker answers to a consumer, and how its records are polled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from streamlet.devcluster.fake_broker import FakeBroker
from streamlet.kafka import Consumer, TopicPartition
from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.messages.fetch import (
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from streamlet.kafka.protocol.messages.groups import FindCoordinatorResponse
from streamlet.kafka.protocol.messages.offsets import (
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
)
from streamlet.kafka.records.writing import BatchFields, NewRecord, encode_batch
from tests.patience import PATIENCE_S

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
Rows = dict[int, tuple[int, bytes]]
"""Partition -> error code and records."""


def fetched(rows: Rows) -> FetchResponse:
    return FetchResponse(
        session_id=0,
        topics=(
            FetchTopicResponse(
                topic="t",
                partitions=tuple(
                    FetchPartitionResponse(
                        partition_index=number,
                        error_code=code,
                        high_watermark=1000,
                        log_start_offset=0,
                        records=memoryview(records),
                    )
                    for number, (code, records) in rows.items()
                ),
            ),
        ),
    )


def batch(base: int, count: int, epoch: int = 0) -> bytes:
    rows = [NewRecord(b"%d" % (base + index)) for index in range(count)]
    return encode_batch(rows, BatchFields(base_offset=base, partition_leader_epoch=epoch))


class Log:
    """Answers fetches from a log of so many records a partition, ten a batch; waits a little when there is none."""

    def __init__(self, **ends: int) -> None:
        self.ends = {int(name[1:]): end for name, end in ends.items()}
        self.at_once = 0
        self.most_at_once = 0
        self.lock = threading.Lock()
        self.asked: list[dict[int, int]] = []

    def __call__(self, request: FetchRequest) -> FetchResponse:
        with self.lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        wanted = {row.partition: row.fetch_offset for topic in request.topics for row in topic.partitions}
        self.asked.append(wanted)
        found: Rows = {}
        for number, offset in wanted.items():
            if offset < self.ends.get(number, 0):
                found[number] = (0, batch(offset, min(10, self.ends[number] - offset)))
        if not found:
            time.sleep(request.max_wait_ms / 1000)
        with self.lock:
            self.at_once -= 1
        return fetched(found)


def first_offsets(request: Request[Any]) -> ListOffsetsResponse:
    topics = request.topics  # type: ignore[attr-defined]
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(partition_index=row.partition_index, error_code=0, offset=0)
                    for row in topic.partitions
                ),
            )
            for topic in topics
        )
    )


def take_commits(broker: FakeBroker) -> list[dict[int, int]]:
    """Let the broker keep any group, and take its commits: each, by partition."""
    taken: list[dict[int, int]] = []

    def commit(request: OffsetCommitRequest) -> OffsetCommitResponse:
        taken.append({row.partition_index: row.committed_offset for row in request.topics[0].partitions})
        rows = tuple(OffsetCommitPartitionResponse(partition_index=number, error_code=0) for number in taken[-1])
        return OffsetCommitResponse(topics=(OffsetCommitTopicResponse(name="t", partitions=rows),))

    here = FindCoordinatorResponse(error_code=0, node_id=1, host="127.0.0.1", port=broker.port)
    broker.on(ApiKey.FIND_COORDINATOR, here).on(ApiKey.OFFSET_COMMIT, commit)
    return taken


def poll_until(consumer: Consumer, reached: Callable[[], bool]) -> list[int]:
    """Offsets of all records until it is so."""
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline
        for rows in consumer.poll(50).values():
            found += [row.offset for row in rows]
    return found
