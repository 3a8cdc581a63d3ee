"""Counters of tasks and their sums."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet import Bolt, Grouping, Spout, Stream, Topology, Tuple
from streamlet.components.batch import Batch
from streamlet.runtime.tasks.task_stats import TaskStats, component_rows, merged
from streamlet.testing import TopologyTester


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
    heard = type("Heard", (Spout,), {"outputs": ["line"], "fail": lambda self, tup_id: None}).spec()


def test_what_failed_last_counts_as_given_up_while_its_task_lives() -> None:
    """A task's own count, or what failed and nobody sent again: whichever is more, task by task."""
    counting, plain = TaskStats(), TaskStats()
    counting.given_up, counting.unreplayed = 3, 2
    plain.unreplayed = 4
    row, _ = component_rows(Lines.__topology__, [("lines", stats.snapshot()) for stats in (counting, plain)])
    assert (row["given_up"], row["unreplayed"]) == (7, 6)


@pytest.mark.parametrize(
    ("name", "caught_up", "given_up", "still"),
    [("lines", False, 2, 3), ("lines", True, 2, 3), ("heard", False, 0, 5), ("heard", True, 2, 3)],
)
def test_a_failure_is_open_or_given_up_and_never_both(name: str, caught_up: bool, given_up: int, still: int) -> None:
    """The last lines said of the same trees that nobody sends them again, and that the next run replays them."""
    stats = TaskStats()  # three open trees, and two that failed, as a task counts them
    stats.unreplayed, stats.given_up, stats.open = (2, 0, 5) if name == "heard" else (2, 2, 3)
    rows = {row["name"]: row for row in component_rows(Lines.__topology__, [(name, stats.snapshot())], caught_up)}
    assert (rows[name]["given_up"], rows[name]["open"]) == (given_up, still)


class Rows(Spout):
    """Emits six tuples as three messages: one alone, three of one message, two of a message each; and an empty one."""

    outputs = ["n"]
    emitted = False

    def next_tuple(self) -> None:
        if not self.emitted:
            self.emitted = True
            self.emit([1], "alone")
            self.emit_many([[2], [3], [4]], "three")
            self.emit_each([[5], [6]], ["five", "six"])
            self.emit_many([], "empty")


class Relay(Bolt):
    """Emits each number, by the one or the other call, and the last one on a stream of its own."""

    outputs = [Stream(["n"]), Stream(["n"], name="last"), Stream(["n"], name="direct", direct=True)]

    def process(self, tup: Tuple) -> None:
        number = tup.values[0]
        self.emit([number]) if number % 2 else self.emit_many([[number]])
        if number == 6:
            self.emit([number], stream="last")
            tasks = self.context.component_tasks("named") if "named" in self.context.tasks.values() else [99]
            self.emit([number], stream="direct", direct_task=tasks[0])


class RelayBatches(Bolt):
    """Emits what it gets, in one stream. A batch of several fails, and is given again tuple by tuple."""

    outputs = ["n"]
    on_batch_error = "split"

    def process_batch(self, batch: Batch) -> None:
        self.emit_many(batch.rows)
        if len(batch) > 1:
            raise ValueError("not together")


class Reads(Bolt):
    def process(self, tup: Tuple) -> None: ...


class Unread(Topology):
    rows = Rows.spec()
    relay = Relay.spec(inputs=[rows])


class ReadOnce(Unread):
    reads = Reads.spec(inputs=[Unread.relay])


class ReadOften(Unread):
    """Twice, by all tasks of a third, and on the other streams."""

    one = Reads.spec(inputs=[Unread.relay, Unread.relay["last"]])
    two = Reads.spec(inputs=[Unread.relay])
    all_of_it = Reads.spec(inputs={Unread.relay: Grouping.ALL}, par=3)
    named = Reads.spec(inputs={Unread.relay["direct"]: Grouping.DIRECT})


@pytest.mark.parametrize("topology", [Unread, ReadOnce, ReadOften])
def test_a_tuple_counts_as_emitted_once_whatever_its_readers(topology: Any) -> None:
    with TopologyTester(topology) as tester:
        tester.run()
        rows, relay = tester.status("rows"), tester.status("relay")
        assert (rows.emitted, rows.acked, relay.executed, relay.emitted) == (6, 5, 6, 8)
        assert [len(tester.emitted("rows")), len(tester.log)] == [6, 6 + 8]


class SplitUnread(Topology):
    rows = Rows.spec()
    relay = RelayBatches.spec(inputs=[rows])


class SplitReadTwice(SplitUnread):
    one = Reads.spec(inputs=[SplitUnread.relay])
    two = Reads.spec(inputs=[SplitUnread.relay])


@pytest.mark.parametrize("topology", [SplitUnread, SplitReadTwice])
def test_a_tuple_that_was_withdrawn_does_not_count_as_emitted(topology: Any) -> None:
    with TopologyTester(topology) as tester:
        tester.run()
        assert tester.status("relay").emitted == len(tester.emitted("relay")) == 6


@pytest.mark.parametrize(
    ("value", "kind"), [({"a": 1}, TypeError), (None, TypeError), ("x", ValueError), (10**400, ValueError)]
)
def test_a_metric_that_is_no_number_is_refused_by_its_name(value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"report_metric\('own'\) takes one number, and was given"):
        TaskStats().report_metric("own", value)
