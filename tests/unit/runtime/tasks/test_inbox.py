"""Whose turn is next among the runs that wait, and who is above its mark."""

from __future__ import annotations

from streamlet.runtime.tasks.emitter import FAIR, Inbox, Run


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


def test_a_task_that_waits_is_passed_over_and_keeps_its_order() -> None:
    inbox = Inbox([2, 1], 100, 1 << 20)
    for task in (1, 2, 1, 2):
        inbox.add(run(task, 2))
    inbox.order({2})
    assert work_off(inbox) == [1] * 4 and inbox.tuples == 4 and not inbox.ready
    inbox.order(())
    inbox.add(run(1, 1))
    assert inbox.ready and work_off(inbox) == [2, 2, 2, 2, 1]
