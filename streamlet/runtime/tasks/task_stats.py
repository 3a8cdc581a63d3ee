"""What one task has done. Written by the loop, read by the control thread: plain numbers, no lock needed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

BUCKETS_PER_DOUBLING = 4
SLOTS = 30 * BUCKETS_PER_DOUBLING


class Latencies:
    """A histogram of durations from 1 us to 1000 s in steps of 19 %; adding is one log and one increment."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = [0] * SLOTS

    def add(self, seconds: float, weight: int = 1) -> None:
        """Count a duration ``weight`` times."""
        slot = int(math.log2(max(seconds * 1e6, 1.0)) * BUCKETS_PER_DOUBLING)
        self.counts[min(slot, SLOTS - 1)] += weight


def percentile_ms(counts: list[int], share: float) -> float | None:
    """The duration in ms below which ``share`` of the counted lie; None of an empty histogram."""
    total = sum(counts)
    if not total:
        return None
    seen = 0
    for slot, count in enumerate(counts):
        seen += count
        if seen >= share * total:
            return float(2 ** ((slot + 0.5) / BUCKETS_PER_DOUBLING) / 1000)
    return None


class TaskStats:
    """Counters since the task started. ``latency`` is tree latency at spouts, process time at bolts."""

    __slots__ = ("acked", "emitted", "errors", "executed", "failed", "latency", "metrics", "timed_out", "unreplayed")

    def __init__(self) -> None:
        self.emitted = self.executed = self.acked = self.failed = self.timed_out = self.errors = 0
        self.unreplayed = 0
        """Failed, and nobody has sent it again: messages at spouts, untracked tuples at bolts."""
        self.latency = Latencies()
        self.metrics: dict[str, float] = {}

    def ran(self, count: int, seconds: float) -> None:
        """A run of ``count`` tuples took so long in all."""
        if count:
            self.executed += count
            self.latency.add(seconds / count, count)

    def report_metric(self, name: str, value: float) -> None:
        """A user's own metric; the latest value stands. Raises TypeError or ValueError for what is no number: only
        plain ones travel with a heartbeat.
        """
        self.metrics[str(name)] = float(value)

    def snapshot(self) -> Mapping[str, Any]:
        """As plain data, for the heartbeat."""
        return {
            "emitted": self.emitted,
            "executed": self.executed,
            "acked": self.acked,
            "failed": self.failed,
            "timed_out": self.timed_out,
            "errors": self.errors,
            "unreplayed": self.unreplayed,
            "latency": list(self.latency.counts),
            "metrics": dict(self.metrics),
        }
