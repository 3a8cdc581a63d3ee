"""A scripted broker that takes records: what arrived, in order, and errors where a test wants them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from streamlet.devcluster.fake_broker import FakeBroker
from streamlet.kafka.producer import Producer
from streamlet.kafka.protocol.api import ApiKey
from streamlet.kafka.protocol.messages.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from streamlet.kafka.protocol.messages.transactions import InitProducerIdResponse
from streamlet.kafka.records.batch import HEADER
from streamlet.kafka.records.reading import ReadOptions, read_batches

Answer = int | Callable[[], Any]
"""An error code (0: written), or what to do instead of answering."""


class Log:
    """One partition's worth of records, and each batch's (producer id, epoch, first sequence, count)."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, int], list[bytes | None]] = {}
        self.batches: list[tuple[int, int, int, int]] = []
        self.answers: list[Any] = []
        """Used up one a partition of a request; then 0."""
        self.requests: list[ProduceRequest] = []
        self.arrived = threading.Event()

    def __call__(self, request: ProduceRequest) -> Any:
        self.requests.append(request)
        topics = []
        silent = None
        for topic in request.topic_data:
            rows = []
            for part in topic.partition_data:
                raw = bytes(part.records or b"")
                header = HEADER.unpack_from(raw)
                answer = self.answers.pop(0) if self.answers else 0
                code = answer if isinstance(answer, int) else 0
                log = self.values.setdefault((topic.name, part.index), [])
                offset = -1
                if code == 0 and (isinstance(answer, int) or answer[1]):
                    self.batches.append((header[9], header[10], header[11], header[12]))
                    offset = len(log)
                    options = ReadOptions(topic.name, part.index, 0, False, True, 1 << 26)
                    (batch,) = read_batches(memoryview(raw), options, ())
                    log += batch.values
                if not isinstance(answer, int):
                    silent = answer[0]
                lost = 1000 if code == 59 else -1  # retention took what the broker knew the producer by
                rows.append(
                    ProducePartitionResponse(
                        index=part.index, error_code=code, base_offset=offset, log_start_offset=lost
                    )
                )
            topics.append(ProduceTopicResponse(name=topic.name, partition_responses=tuple(rows)))
        self.arrived.set()
        return silent if silent is not None else ProduceResponse(responses=tuple(topics))


@contextmanager
def scripted(topics: dict[str, int] | None = None, **settings: Any) -> Iterator[tuple[FakeBroker, Log, Producer]]:
    """A broker with ids to give, its log, and a producer on it."""
    log = Log()
    with FakeBroker(topics=topics or {"t": 1}) as broker:
        broker.on(ApiKey.PRODUCE, log)
        numbers = iter(range(7, 1000))
        broker.on(
            ApiKey.INIT_PRODUCER_ID,
            lambda request: InitProducerIdResponse(error_code=0, producer_id=next(numbers), producer_epoch=0),
        )
        producer = Producer(bootstrap_servers=broker.address, retry_backoff_ms=10, retry_backoff_max_ms=20, **settings)
        try:
            yield broker, log, producer
        finally:
            producer.close(1)


def until(done: Any, within_s: float = 10) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)
