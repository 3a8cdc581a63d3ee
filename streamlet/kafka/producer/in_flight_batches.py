"""Batches on their way to brokers. Pure; whoever holds the producer's lock calls."""

from __future__ import annotations

from collections.abc import Iterator

from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.producer.batch import ProducerBatch


class InFlightBatches:
    """Batches on their way, by partition, as they were sent (E2). A batch leaves on its answer, or when it expires."""

    __slots__ = ("_by_partition", "_delivery_timeout_s")

    def __init__(self, delivery_timeout_s: float) -> None:
        self._delivery_timeout_s = delivery_timeout_s
        self._by_partition: dict[TopicPartition, list[ProducerBatch]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_partition.values()))

    def __iter__(self) -> Iterator[ProducerBatch]:
        return (batch for rows in list(self._by_partition.values()) for batch in list(rows))

    def add(self, batch: ProducerBatch) -> None:
        """It goes out now."""
        self._by_partition.setdefault(batch.topic_partition, []).append(batch)

    def remove(self, batch: ProducerBatch) -> bool:
        """Its answer came; False when it had expired here."""
        rows = self._by_partition.get(batch.topic_partition)
        if not rows or batch not in rows:
            return False
        rows.remove(batch)
        if not rows:
            del self._by_partition[batch.topic_partition]
        return True

    def has(self, tp: TopicPartition) -> bool:
        """Something of this partition is on its way."""
        return tp in self._by_partition

    def expired(self, now_s: float) -> list[ProducerBatch]:
        """Those whose time is up, taken off; one that has its final state already would be a mistake of ours."""
        found: list[ProducerBatch] = []
        for tp, rows in list(self._by_partition.items()):
            late = [batch for batch in rows if now_s - batch.created_s >= self._delivery_timeout_s]
            for batch in late:
                if batch.final_state is not None:
                    raise RuntimeError(f"{batch!r} is in flight and over at once")
                rows.remove(batch)
            found += late
            if not rows:
                del self._by_partition[tp]
        return found

    def next_expiry_s(self, now_s: float) -> float:
        """Seconds until one expires."""
        first = min((batch.created_s for batch in self), default=float("inf"))
        return first + self._delivery_timeout_s - now_s
