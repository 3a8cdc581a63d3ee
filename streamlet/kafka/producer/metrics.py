"""The producer's counts. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

_WINDOW_S = 60.0
"""Seconds over which a rate is measured."""


class Rate:
    """Events a second, over the last minute."""

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, int]] = deque()

    def add(self, count: int, now_s: float) -> None:
        """Count events that happened now."""
        second = int(now_s)
        if self._seconds and self._seconds[-1][0] == second:
            count += self._seconds.pop()[1]
        self._seconds.append((second, count))
        self._drop(now_s)

    def per_second(self, now_s: float) -> float:
        """Return the mean of the last minute."""
        self._drop(now_s)
        return sum(count for _second, count in self._seconds) / _WINDOW_S

    def _drop(self, now_s: float) -> None:
        while self._seconds and self._seconds[0][0] <= now_s - _WINDOW_S:
            self._seconds.popleft()


@dataclass(slots=True)
class ProducerMetrics:
    """Counts since the start. Written under the producer's lock."""

    records_sent: int = 0
    """Acknowledged."""
    records_failed: int = 0
    batches_sent: int = 0
    requests: int = 0
    retries: int = 0
    splits: int = 0
    late_successes: int = 0
    """Batches that had expired (outcome unknown), and were written after all."""
    records_moved: int = 0
    """By the failover switch."""
    callback_errors: int = 0
    metadata_failures: int = 0
    """Refreshes of metadata that brought nothing: swallowed, and tried again."""
    epoch_bumps: int = 0
    failed_by_topic: dict[str, int] = field(default_factory=dict)
    failures: Rate = field(default_factory=Rate)

    def failed(self, topic: str, records: int, now_s: float) -> None:
        """Count a batch that was given up."""
        self.records_failed += records
        self.failed_by_topic[topic] = self.failed_by_topic.get(topic, 0) + records
        self.failures.add(records, now_s)

    def snapshot(self, now_s: float) -> dict[str, object]:
        """Return all of it by name, as ``Producer.metrics()`` gives it."""
        names = [name for name in self.__slots__ if name not in ("failures", "failed_by_topic")]
        found: dict[str, object] = {name: getattr(self, name) for name in names}
        found["failed_by_topic"] = dict(self.failed_by_topic)
        found["failed_per_second"] = self.failures.per_second(now_s)
        return found
