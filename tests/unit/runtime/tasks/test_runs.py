"""Outboxes: what becomes one run, in which order, and what may be taken back."""

from __future__ import annotations

from streamlet.components.columns import Columns
from streamlet.runtime.tasks.runs import Outbox, Run


def test_rows_to_one_task_keep_their_order_across_streams_and_kinds() -> None:
    box = Outbox(1, 2, "default")
    box.extend((1, 11, ["a"]))
    box.extend((2, 12, ["b"]))
    box.switch("errors")((3, 13, ["c"]))
    box.put_block("default", 4, 14, Columns([["d", "e"]]))
    box.switch("default", multi=True)(([5, 6], [15, 16], ["f"]))
    taken = [(run.stream, run.multi, run.roots, run.edges, [*run.values]) for run in box.take()]
    assert taken == [
        ("default", False, [1, 2], [11, 12], [["a"], ["b"]]),
        ("errors", False, [3], [13], [["c"]]),
        ("default", False, [4, 4], [0, 14], [["d"], ["e"]]),
        ("default", True, [[5, 6]], [[15, 16]], [["f"]]),
    ]
    assert not box and box.take() == []


def test_what_was_put_in_since_a_mark_is_taken_back_and_no_more() -> None:
    box = Outbox(1, 2, "default")
    box.extend((1, 11, ["a"]))
    mark = box.mark()
    box.extend((2, 12, ["b"]))
    box.put_run("default", [3], [13], Columns([["c"]]))
    box.extend((4, 14, ["d"]))
    box.withdraw(mark)
    assert [run.values for run in box.take()] == [[["a"]]]


def test_a_run_gives_a_part_of_itself_and_what_belongs_to_no_tree() -> None:
    run = Run(2, 1, "default", False, [7, 0, 8], [1, 0, 2], [["a"], ["b"], ["c"]])
    assert run.part(1, 3) == run._replace(roots=[0, 8], edges=[0, 2], values=[["b"], ["c"]])
    assert run.untracked() == run._replace(roots=[0], edges=[0], values=[["b"]])
    assert not run._replace(multi=True).untracked().roots
