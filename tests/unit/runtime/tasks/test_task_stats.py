"""Counters of tasks and their sums."""

from __future__ import annotations

from streamlet import Spout, Topology
from streamlet.runtime.tasks.task_stats import TaskStats, component_rows, merged


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


class Lines(Topology):
    lines = type("Lines", (Spout,), {"outputs": ["line"]}).spec()


def test_what_failed_last_counts_as_given_up_while_its_task_lives() -> None:
    """A task's own count, or what failed and nobody sent again: whichever is more, task by task."""
    counting, plain = TaskStats(), TaskStats()
    counting.given_up, counting.unreplayed = 3, 2
    plain.unreplayed = 4
    (row,) = component_rows(Lines.__topology__, [("lines", stats.snapshot()) for stats in (counting, plain)])
    assert (row["given_up"], row["unreplayed"]) == (7, 6)
