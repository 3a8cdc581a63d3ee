"""Answers of a scripted broker to a consumer, and how its records are polled."""

from __future__ import annotations

import time
from collections.abc import Callable

from streamlet.kafka import Consumer, TopicPartition
from streamlet.kafka.protocol.messages.fetch import FetchPartitionResponse, FetchResponse, FetchTopicResponse
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


def poll_until(consumer: Consumer, reached: Callable[[], bool]) -> list[int]:
    """Offsets of all records until it is so."""
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline
        for rows in consumer.poll(50).values():
            found += [row.offset for row in rows]
    return found
