"""Adding up what tasks report: from task snapshots to component rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streamlet.model.topology import TopologySpec
from streamlet.runtime.tasks.task_stats import percentile_ms

COUNTERS = ("emitted", "executed", "acked", "failed", "timed_out", "errors", "unreplayed")


def component_rows(topology: TopologySpec, snapshots: Iterable[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """One row a component, in declaration order, from (component, task snapshot) pairs."""
    rows: dict[str, dict[str, Any]] = {
        component.name: {
            "name": component.name,
            "kind": component.kind,
            "tasks": component.par,
            **dict.fromkeys(COUNTERS, 0),
            "latency": [],
            "metrics": {},
        }
        for component in topology.components
    }
    for name, snapshot in snapshots:
        row = rows[name]
        for counter in COUNTERS:
            row[counter] += snapshot[counter]
        row["latency"] = _added(row["latency"], snapshot["latency"])
        row["metrics"].update(snapshot["metrics"])
    for row in rows.values():
        counts = row.pop("latency")
        row["p50_ms"], row["p99_ms"] = percentile_ms(counts, 0.5), percentile_ms(counts, 0.99)
    return list(rows.values())


def _added(left: list[int], right: list[int]) -> list[int]:
    return [a + b for a, b in zip(left, right, strict=True)] if left else list(right)
