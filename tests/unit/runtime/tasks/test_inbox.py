"""Whose turn is next among the runs that wait, and who is above its mark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streamlet.components.columns import Columns
from streamlet.runtime.tasks.emitter import FAIR, SAMPLED, Inbox, Run, Work
from streamlet.tracking.shared_roots import SharedRoots

SHARED = SharedRoots([4, 10])


def run(target: int, count: int, size: int = 0) -> Run:
    return Run(target, 9, f"of {size}", False, [1] * count, [1] * count, [["x" * size] for _ in range(count)])


def work_off(inbox: Inbox, slice_size: int = 1) -> list[int]:
    """Run everything that may run, slice by slice; return the tasks in their order."""
    order = []
    while (work := inbox.next()) is not None:
        before = work.left
        work.left -= slice_size
        inbox.ran(work, before)
        order.append(work.run.target)
    return order


@pytest.mark.parametrize(
    ("roots", "size", "batches"),
    [
        ([4, 8, 12], 8, [3]),
        ([4, 8, 12], 2, [2, 1]),
        ([4, 10, 12, 16], 8, [1, 1, 2]),
        ([6, 10], 8, [1, 1]),
        ([SHARED, SHARED, 0, 10, SHARED], 8, [3, 1, 1]),
        ([0, 10, 0], 8, [1, 1, 1]),
        ([4, 10, 4], 8, [1, 1, 1]),
        ([SHARED, SHARED, 0], 8, [3]),
        ([0, 0, 5, 9], 8, [4]),
    ],
)
def test_what_is_tried_for_the_last_time_makes_a_batch_of_one(roots: list[Any], size: int, batches: list[int]) -> None:
    """Not a root that trees share, nor rows that a bolt has joined by itself."""
    work = Work(Run(1, 9, "default", False, roots, [1] * len(roots), [["x"]] * len(roots)))
    found = []
    while work.left > 0:
        found.append(min(work.batch_of(size), work.left))
        work.left -= found[-1]
    assert found == batches
    joined = Work(Run(1, 9, "default", True, [[6, 10]] * 3, [[1, 1]] * 3, [["x"]] * 3))
    assert joined.batch_of(8) == 8


def test_runs_are_worked_off_as_they_came_while_little_is_held() -> None:
    inbox = Inbox([3, 2, 1], 100, 1 << 20)
    for task in (1, 3, 2, 1):
        inbox.add(run(task, 1))
    assert work_off(inbox) == [1, 3, 2, 1] and not inbox and inbox.bytes == 0


def test_the_deepest_come_first_while_too_much_is_held_and_nobody_starves() -> None:
    """It makes room; a bolt before it would only add. But a cycle may feed the deepest for ever."""
    inbox = Inbox([3, 2, 1], 30, 1 << 20)
    inbox.add(run(1, 20))
    inbox.add(run(3, 20))
    assert inbox.grown and inbox.weigh() == ({1, 3}, True)
    inbox.order(())
    order = work_off(inbox)
    assert order[: FAIR - 1] == [3] * (FAIR - 1) and order[FAIR - 1] == 1
    assert sorted(order) == [1] * 20 + [3] * 20


def test_a_mark_stands_until_half_of_it_is_worked_off() -> None:
    """Otherwise a word would go round at every tuple."""
    inbox = Inbox([1], 10, 1 << 20)
    inbox.add(run(1, 11))
    assert inbox.weigh() == ({1}, True)
    work = inbox.next()
    assert work is not None
    for left, full in ((10, True), (6, True), (5, False), (6, False), (10, False)):
        before, work.left = work.left, left
        inbox.ran(work, before)
        assert inbox.weigh() == ({1} if full else set(), full), left


def test_bytes_count_as_tuples_do() -> None:
    inbox = Inbox([2, 1], 1000, 1 << 20)
    inbox.add(run(1, 4, size=100_000))
    assert not inbox.grown
    inbox.add(run(1, 2, size=100_000))
    assert inbox.grown and inbox.weigh() == ({1}, False)
    inbox.add(run(2, 6, size=100_000))
    assert inbox.weigh() == ({1, 2}, True)


def test_an_inbox_of_many_tasks_is_noticed_above_its_mark_though_none_is_above_its_share() -> None:
    """Tasks beyond the eighth have no share of their own: all of them below it may hold four times the mark."""
    inbox = Inbox(range(1, 33), 800, 1 << 40)
    for task in range(1, 9):
        inbox.add(run(task, 100))
    assert not inbox.grown and inbox.weigh() == (set(), False)
    inbox.add(run(9, 1))
    assert inbox.grown and inbox.weigh() == (set(), True)


def of_one_kind(count: int, size: int) -> Run:
    return Run(1, 9, "default", False, [1] * count, [1] * count, [["x" * size] for _ in range(count)])


def test_rows_that_are_merged_are_measured_too() -> None:
    """Counted as the first of them, 400 MB behind a short row were held as 0.9."""
    inbox = Inbox([1], 1 << 20, 1 << 20, merged=[1])
    inbox.add(of_one_kind(1, 1))
    added = 0
    while not inbox.grown and added < 4000:
        inbox.add(of_one_kind(10, 100_000))
        added += 10
    assert added <= SAMPLED + 2 * 10, "one row in so many is measured, and each of the others is known by it"


def test_runs_of_one_kind_are_merged_while_their_rows_are_alike() -> None:
    inbox = Inbox([1], 1 << 20, 1 << 40, merged=[1])
    for size in (100, 150, 100):
        inbox.add(of_one_kind(2 * SAMPLED, size))
    inbox.add(of_one_kind(2 * SAMPLED, 10_000))
    for _ in range(40):  # the estimate comes down slowly
        inbox.add(of_one_kind(2 * SAMPLED, 100))
    works = [(len(work.run.roots), work.row_bytes) for work in inbox]
    assert works[0][0] == 3 * 2 * SAMPLED and works[1][1] > 5000
    assert works[-1][1] < 1000, "small rows are not counted as the large one for long"
    assert work_off(inbox, 1) and (inbox.bytes, inbox.tuples) == (0, 0)


def mixed(first: int, count: int, every: int, offset: int, large: int, as_columns: bool) -> Run:
    """Rows of which one in so many is large, and of another letter each: they share nothing."""
    texts = ["x" * (large if number % every == offset else 1) for number in range(first, first + count)]
    values = Columns([texts]) if as_columns else [[text] for text in texts]
    return Run(1, 9, "default", False, [1] * count, [1] * count, values)


@pytest.mark.parametrize("as_columns", [False, True])
@pytest.mark.parametrize(("every", "large"), [(64, 200_000), (100, 300_000), (1000, 4_000_000)])
@pytest.mark.parametrize("merged", [(), (1,)])
def test_a_recount_knows_what_a_sample_does_not(
    every: int, large: int, as_columns: bool, merged: Sequence[int]
) -> None:
    """And each row of that kind is measured from then on: what waits later is within the mark without another."""
    mark, batch, unseen = 4_000_000, 32, 0
    for offset in range(0, every, every // 50):
        inbox, number = Inbox([1], 1 << 20, mark, merged), 0
        for _ in range(40_000_000 // (large // every * batch)):
            inbox.add(mixed(number, batch, every, offset, large, as_columns))
            number += batch
            if inbox.grown:
                break
        unseen += not inbox.grown
        inbox.recount()
        rows = sum(work.left for work in inbox)
        true = rows / every * large + rows * 250
        assert abs(inbox.bytes - true) < true * 0.25 + 2 * large, offset
        work_off(inbox, slice_size=64)
        assert (inbox.bytes, inbox.tuples) == (0, 0)
        inbox.grown = False
        while not inbox.grown:
            inbox.add(mixed(number, batch, every, offset, large, as_columns))
            number += batch
        held = sum(len(row[0]) for work in inbox for row in work.run.values)
        assert held < mark + 2 * large, offset
    assert unseen, "or this test shows nothing"


def test_a_recount_changes_nothing_where_rows_are_alike() -> None:
    """They are measured one in so many as before, which is what a tuple can pay."""
    inbox = Inbox([1], 1 << 20, 1 << 40)
    for number in range(200):
        inbox.add(of_one_kind(100, 20 + number % 7))
    before = inbox.bytes
    inbox.recount()
    assert abs(inbox.bytes - before) < before * 0.1 and not inbox.sizes.mixed
    work = inbox.next()
    assert work is not None
    work.left -= 60
    inbox.ran(work, work.left + 60)
    inbox.recount()
    assert inbox.tuples == 200 * 100 - 60 and abs(inbox.bytes - before) < before * 0.1
    work_off(inbox)
    assert (inbox.bytes, inbox.tuples) == (0, 0)


def test_a_task_that_waits_is_passed_over_and_keeps_its_order() -> None:
    inbox = Inbox([2, 1], 100, 1 << 20)
    for task in (1, 2, 1, 2):
        inbox.add(run(task, 2))
    inbox.order({2})
    assert work_off(inbox) == [1] * 4 and inbox.tuples == 4 and not inbox.ready
    inbox.order(())
    inbox.add(run(1, 1))
    assert inbox.ready and work_off(inbox) == [2, 2, 2, 2, 1]


def test_what_a_slow_bolt_has_done_goes_on_before_its_next_tuple() -> None:
    """In the order in which they came the sixty that waited for it were first, and a bolt behind it starved."""
    inbox = Inbox([2, 1], 1000, 1 << 20)
    inbox.add(run(1, 5))
    order = []
    while (work := inbox.next()) is not None:
        before = work.left
        work.left -= 1
        inbox.ran(work, before)
        order.append(work.run.target)
        if work.run.target == 1:
            inbox.add(run(2, 1))
            inbox.note_pace(1, slow=True)
    assert order == [1, 2] * 5
    for task in (1, 2, 1):
        inbox.add(run(task, 1))
    assert work_off(inbox) == [1, 2, 1], "once it is worked off they come as before"
    inbox.note_pace(1, slow=True)
    for task in (1, 2, 1):
        inbox.add(run(task, 1))
    inbox.note_pace(1, slow=False)
    assert work_off(inbox) == [1, 2, 1], "and as soon as it is quick"


def test_beside_a_slow_bolt_each_has_its_turn_however_deep_it_lies() -> None:
    """The deepest first, a bolt of another stream got one turn in eight."""
    inbox = Inbox([3, 2, 1], 1000, 1 << 20)
    for task in (3, 1, 2):
        inbox.add(run(task, 4))
    inbox.note_pace(3, slow=True)
    order = work_off(inbox)
    assert all(sorted(order[at : at + 3]) == [1, 2, 3] for at in range(0, 12, 3)), order
    assert not inbox.deepest_first
