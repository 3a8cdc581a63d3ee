"""Counters of tasks and their sums."""

from __future__ import annotations

from streamlet.runtime.tasks.task_stats import TaskStats, merged


def test_snapshots_add_up_with_their_metrics() -> None:
    """However often a worker is replaced, what its tasks had counted is one snapshot."""
    first, second = TaskStats(), TaskStats()
    for stats, count in ((first, 2), (second, 3)):
        stats.emitted = stats.acked = count
        stats.ran(count, 0.001)
        stats.report_metric("last", count)
    second.report_metric("own", 1)
    both = merged(first.snapshot(), second.snapshot())
    assert (both["emitted"], both["executed"], both["acked"], both["failed"]) == (5, 5, 5, 0)
    assert sum(both["latency"]) == 5 and both["metrics"] == {"last": 5.0, "own": 1.0}
    assert merged(both, TaskStats().snapshot()) == both
