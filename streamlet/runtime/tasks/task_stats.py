"""Counters of tasks, and their sums by component.

The loop's thread writes them, the control thread reads copies. Plain numbers need no lock: a copy may be one tuple
behind, never wrong by more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from streamlet.base.printable import cut
from streamlet.components.spout import hears_failures
from streamlet.model.spec import SPOUT
from streamlet.model.topology import TopologySpec

COUNTERS = (
    "emitted",
    "executed",
    "acked",
    "failed",
    "timed_out",
    "errors",
    "tick_errors",
    "unreplayed",
    "given_up",
    "kept",
    "lost",
    "open",
)
"""The counters of a task, in the order of the wire."""

GAUGES = ("window", "wait_ms", "tick_failed")
"""Numbers of a task's present state, whole.

Of spouts: trees that may be open, and how long tuples wait. Of bolts: 1 where the latest tick raised.
"""

BUCKETS_PER_DOUBLING = 4
SLOTS = 30 * BUCKETS_PER_DOUBLING


class Latencies:
    """A histogram of durations: 1 us to 1000 s, steps of 19 %."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = [0] * SLOTS

    def add(self, seconds: float, weight: int = 1) -> None:
        """Count a duration ``weight`` times."""
        slot = int(math.log2(max(seconds * 1e6, 1.0)) * BUCKETS_PER_DOUBLING)
        self.counts[min(slot, SLOTS - 1)] += weight


def percentile_ms(counts: list[int], share: float) -> float | None:
    """Return the duration in ms below which ``share`` of the counted lie; None if empty."""
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

    __slots__ = (*COUNTERS, *GAUGES, "busy_s", "latency", "metrics", "of_epochs")

    def __init__(self) -> None:
        self.emitted = self.executed = self.acked = self.failed = self.timed_out = self.errors = 0
        self.tick_errors = 0
        """Errors of ticks, of the ``errors``: those of a batch that failed by itself are not among them."""
        self.window = self.wait_ms = self.tick_failed = 0
        self.busy_s = 0.0
        """Seconds spent on ``executed``."""
        self.unreplayed = 0
        """Failed, and nobody has sent it again: messages at spouts, untracked tuples at bolts."""
        self.given_up = 0
        """Messages that a spout has given up, and untracked tuples that a bolt failed: nobody sends them again."""
        self.kept = 0
        """Of the messages given up, those that the spout keeps elsewhere: dead letters."""
        self.lost = 0
        """Untracked tuples that reached nobody, and records that a source has no more: nobody sends them again."""
        self.open = 0
        """Messages of a spout that are neither acked nor given up, when the numbers were last looked at."""
        self.latency = Latencies()
        self.metrics: dict[str, float] = {}
        self.of_epochs: dict[str, int] = {}
        """How much of a counter is tuples about epochs, which nobody is shown."""

    def set_apart(self, counter: str, count: int) -> None:
        """Leave tuples about epochs out of a counter that ``snapshot`` shows."""
        # Rule: a user compares these counters with the records of a topic. The counters themselves keep them: the
        # window and the census of trees go by all that is under way.
        if count:
            self.of_epochs[counter] = self.of_epochs.get(counter, 0) + count

    def give_up_untracked(self, count: int) -> None:
        """Count untracked tuples that failed: nobody sends them again."""
        self.unreplayed += count
        self.given_up += count

    def ran(self, count: int, seconds: float, ended: bool = True) -> None:
        """Count a run of ``count`` tuples that took ``seconds`` in all.

        Not ``ended``: they are worked on elsewhere, and each adds its own latency.
        """
        if count:
            self.executed += count
            self.busy_s += seconds
            if ended:
                self.latency.add(seconds / count, count)

    def report_metric(self, name: str, value: float) -> None:
        """Set a user's own metric. Raises TypeError or ValueError unless it is a number."""
        # Made a number here: a heartbeat that cannot be packed would end the worker, again and again.
        try:
            self.metrics[str(name)] = float(value)
        except (TypeError, ValueError, OverflowError) as error:
            kind = type(error) if isinstance(error, TypeError) else ValueError
            raise kind(f"report_metric({str(name)!r}) takes one number, and was given {cut(repr(value))}") from None

    def snapshot(self) -> Mapping[str, Any]:
        """Return all as plain data, for the heartbeat."""
        # On the loop's thread, as all that counts: between its calls both numbers belong together.
        apart = self.of_epochs.copy()
        return {
            **{name: getattr(self, name) - apart.get(name, 0) for name in (*COUNTERS, *GAUGES)},
            "latency": list(self.latency.counts),
            "metrics": dict(self.metrics),
        }


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add up two snapshots; of waits take the longer."""
    metrics = dict(first["metrics"])
    for name, value in second["metrics"].items():
        metrics[name] = metrics.get(name, 0.0) + value
    return {
        **{counter: first[counter] + second[counter] for counter in COUNTERS},
        "window": first["window"] + second["window"],
        "tick_failed": first["tick_failed"] + second["tick_failed"],
        "wait_ms": max(first["wait_ms"], second["wait_ms"]),
        "latency": [a + b for a, b in zip(first["latency"], second["latency"], strict=True)],
        "metrics": metrics,
    }


def component_rows(
    topology: TopologySpec, snapshots: Iterable[tuple[str, Mapping[str, Any]]], caught_up: bool = False
) -> list[dict[str, Any]]:
    """Add up (component, task snapshot) pairs: one row a component, in declaration order.

    A row has the fields of ``backends.contract.ComponentStatus``. ``caught_up``: the spouts have nothing more to send.
    """
    sums = {component.name: TaskStats().snapshot() for component in topology.components}
    # Rule: a failure is open or given up, never both. One that its spout hears of may be sent again, by the next run
    # too: it is open until the spout says that it has caught up. Of a spout that hears of none, each is given up.
    final = {one.name for one in topology.components if one.kind != SPOUT or caught_up or not hears_failures(one.cls)}
    for name, snapshot in snapshots:
        if name in final:
            given_up = max(snapshot["unreplayed"], snapshot["given_up"])
            still = max(0, snapshot["open"] - (given_up - snapshot["given_up"]))
            snapshot = {**snapshot, "given_up": given_up, "open": still}
        sums[name] = merged(sums[name], snapshot)
    return [
        {
            "name": component.name,
            "kind": component.kind,
            "tasks": component.par,
            **{name: sums[component.name][name] for name in (*COUNTERS, *GAUGES)},
            "metrics": dict(sums[component.name]["metrics"]),
            "p50_ms": percentile_ms(sums[component.name]["latency"], 0.5),
            "p99_ms": percentile_ms(sums[component.name]["latency"], 0.99),
        }
        for component in topology.components
    ]
