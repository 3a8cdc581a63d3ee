"""What a run has counted, of workers that live and of those that died."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet import Bolt, ReliableSpout, Spout, Topology
from streamlet.backends.run_numbers import IDLE_BEATS, RunNumbers
from streamlet.model.plan import make_plan
from streamlet.runtime.tasks.task_stats import TaskStats
from streamlet.runtime.tasks.untracked_counts import FinalCounts, UntrackedCounts
from streamlet.runtime.worker.messages import Beat


class Numbers(ReliableSpout):
    outputs = ["n"]


class Keep(Bolt):
    pass


class Kept(Topology):
    numbers = Numbers.spec()
    keep = Keep.spec(inputs=[numbers], par=2)


def snapshot(**counts: int) -> dict[str, Any]:
    return {**TaskStats().snapshot(), **counts}


@pytest.fixture
def numbers() -> RunNumbers:
    """Two workers: tasks 1 (the spout) and 3 on the first, task 2 on the second."""
    found = RunNumbers(make_plan(Kept.__topology__, 2))
    assert [task.task_id for task in found._plan.tasks_on(1)] == [2]
    return found


def row(numbers: RunNumbers, name: str) -> dict[str, Any]:
    (found,) = [one for one in numbers.rows() if one["name"] == name]
    return found


def test_what_a_replaced_worker_counted_stays_and_what_was_open_until_its_replacement_sends(
    numbers: RunNumbers,
) -> None:
    numbers.heard(0, Beat({1: snapshot(emitted=20, open=4, unreplayed=2), 3: snapshot(executed=9)}, [], 4, 4))
    assert (row(numbers, "numbers")["emitted"], numbers.unfinished()) == (20, 4)
    for pending in (None, {}):
        assert not numbers.replaced(0, pending)
        assert not numbers.are_known_of(0) and numbers.unfinished() == 4
        found = row(numbers, "numbers")
        assert (found["emitted"], found["open"], found["given_up"]) == (20, 4, 0)
    numbers.heard(0, Beat({1: snapshot(emitted=3, open=3)}, [], 3, 3))
    found = row(numbers, "numbers")
    assert (found["open"], found["owed"], found["in_doubt"], numbers.unfinished()) == (3, 0, 4, 3)
    numbers.heard(0, Beat({1: snapshot(emitted=5, open=2)}, [], 1, 2))
    assert row(numbers, "numbers")["emitted"] == 25
    assert numbers.unfinished() == 2, "of two messages one waits to be sent again"


@pytest.mark.parametrize(
    ("ends", "sent", "owed", "doubt"),
    [(None, 0, 4, 0), ("time", 0, 4, 0), ("interrupted", 19, 0, 4), ("time", 20, 0, 0), ("caught_up", 0, 0, 0)],
)
def test_trees_of_a_dead_worker_are_owed_until_its_spout_emits_and_in_doubt_until_it_has_emitted_as_many_as_before(
    numbers: RunNumbers, ends: str | None, sent: int, owed: int, doubt: int
) -> None:
    numbers.heard(0, Beat({1: snapshot(emitted=20, open=4)}, [], 4, 4))
    numbers.replaced(0, {1: 4})
    numbers.heard(0, Beat({1: snapshot(emitted=sent)}, [], 0, 0))
    numbers.end(ends)
    found = row(numbers, "numbers")
    assert (found["owed"], found["in_doubt"], numbers.owes()) == (owed, doubt, owed > 0)


def test_what_was_acked_since_the_last_heartbeat_is_not_owed(numbers: RunNumbers) -> None:
    """Its replacement has nothing to send: it would be open for days."""
    numbers.heard(0, Beat({1: snapshot(emitted=20, open=4)}, [], 4, 4))
    numbers.replaced(0, {})
    assert not numbers.owes() and numbers.unfinished() == 0


def test_a_spout_that_answers_for_failures_leaves_no_doubt(
    numbers: RunNumbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Numbers, "answers_for_failures", True)
    numbers.heard(0, Beat({1: snapshot(emitted=20, open=4, unreplayed=3)}, [], 4, 4))
    numbers.replaced(0, {1: 4})
    assert row(numbers, "numbers")["owed"] == 4, "it may be paused"
    numbers.heard(0, Beat({1: snapshot(emitted=1)}, [], 0, 0))
    assert (row(numbers, "numbers")["owed"], row(numbers, "numbers")["in_doubt"]) == (0, 0)


def test_a_look_at_the_pages_is_newer_than_the_heartbeats_and_changes_nothing(numbers: RunNumbers) -> None:
    numbers.heard(0, Beat({1: snapshot(emitted=20), 3: snapshot(executed=9)}, [], 4, 4, done={3: 9}, emitted={3: 12}))
    pages = {0: UntrackedCounts(3), 1: UntrackedCounts(3)}
    pages[0].emitted[1], pages[0].emitted[2], pages[0].done[2], pages[0].open[0] = 7, 30, 11, 6
    pages[0].note_final(1, given_up=2, kept=0, lost=1)
    pages[1].done[1] = 3
    seen = numbers.with_pages(pages)
    spout, bolt = (row(seen, name) for name in ("numbers", "keep"))
    assert (spout["emitted"], spout["given_up"], spout["lost"]) == (20, 2, 1)
    assert (bolt["executed"], bolt["untracked"]) == (9 + 2 + 3, 30 - 11 + 7 - 3)
    assert seen.unfinished() == 6
    bolt = row(numbers, "keep")
    assert (bolt["executed"], bolt["untracked"], numbers.unfinished()) == (9, 3, 4)


def test_what_was_lost_or_left_stands_in_the_row_of_its_bolt(numbers: RunNumbers) -> None:
    numbers.taken.update(keep=3)
    numbers.left.update(keep=2)
    assert (row(numbers, "keep")["lost"], row(numbers, "keep")["taken"]) == (5, 3)


def test_what_lost_links_took_along_stands_in_the_row_of_its_bolt_also_when_its_sender_is_replaced(
    numbers: RunNumbers,
) -> None:
    numbers.heard(0, Beat({}, [], 0, 0, lost={"keep": 4}))
    numbers.heard(1, Beat({}, [], 0, 0, lost={"keep": 1}))
    assert row(numbers, "keep")["lost"] == 5
    numbers.replaced(0)
    numbers.heard(0, Beat({}, [], 0, 0, lost={"keep": 2}))
    assert row(numbers, "keep")["lost"] == 7


def test_a_hanging_call_is_named_with_its_worker_and_component(numbers: RunNumbers) -> None:
    numbers.heard(1, Beat({}, [], 0, 0, hanging=[{"task": 2, "call": "process", "seconds": 4.0, "tuple": "[1]"}]))
    (found,) = numbers.hanging()
    assert (found["worker"], found["component"], found["call"]) == (1, "keep", "process")


def test_what_outlived_a_dead_worker_stands_in_its_rows_and_is_counted_once(numbers: RunNumbers) -> None:
    numbers.heard(0, Beat({1: snapshot(emitted=20, given_up=2), 3: snapshot(executed=9)}, [], 0, 0, done={3: 5}))
    numbers.ended_with(0, FinalCounts({1: 3, 3: 4}, {1: 1}, {3: 1}), {3: 7})
    numbers.ended_with(1, FinalCounts({}, {}, {2: 2}), {2: 6})  # before its first heartbeat
    for _ in range(2):
        assert [row(numbers, name)["given_up"] for name in ("numbers", "keep")] == [3, 4]
        assert (row(numbers, "numbers")["kept"], row(numbers, "keep")["lost"]) == (1, 3)
        assert row(numbers, "keep")["executed"] == 9 + 2 + 6
        numbers.replaced(0)
        numbers.replaced(1)


class Unhearing(Spout):
    outputs = ["n"]


class Final(Topology):
    numbers = Unhearing.spec()


def test_failures_that_nobody_hears_of_are_final_when_their_worker_dies() -> None:
    made = RunNumbers(make_plan(Final.__topology__, 1))
    made.heard(0, Beat({1: snapshot(unreplayed=2, given_up=2)}, [], 0, 0))
    made.replaced(0)
    found = row(made, "numbers")
    assert (found["given_up"], found["lost"]) == (2, 0)


@pytest.mark.parametrize(("pending", "lost"), [(None, 3), ({}, 0), ({1: 9}, 9)])
def test_open_trees_of_a_spout_that_hears_of_no_failures_are_lost_when_its_worker_dies(
    pending: dict[int, int] | None, lost: int
) -> None:
    """By its last heartbeat, or by what outlived it, which is newer."""
    made = RunNumbers(make_plan(Final.__topology__, 1))
    made.heard(0, Beat({1: snapshot(unreplayed=2, given_up=2, open=3)}, [], 0, 0))
    assert made.replaced(0, pending) == ({"numbers": lost} if lost else {})
    assert made.replaced(0, pending if pending is None else {}) == {}
    found = row(made, "numbers")
    assert (found["lost"], found["open"], found["given_up"]) == (lost, 0, 2)


def test_trees_that_were_open_before_the_first_heartbeat_are_owed(numbers: RunNumbers) -> None:
    numbers.replaced(0, {1: 7})
    assert numbers.unfinished() == row(numbers, "numbers")["open"] == 7


def test_open_trees_of_a_worker_that_nobody_replaces_are_told_though_no_heartbeat_told_them(
    numbers: RunNumbers,
) -> None:
    """It hung in its first second, and the end of the run said that nothing was open."""
    numbers.ended_with(0, FinalCounts({}, {}, {}), {}, {1: 40})
    numbers.end("time")
    assert (row(numbers, "numbers")["open"], numbers.unfinished()) == (40, 40)


@pytest.mark.parametrize(("answers", "asked", "owed"), [(True, True, 0), (True, False, 4), (False, True, 4)])
def test_a_spout_that_answers_for_failures_and_has_nothing_to_send_owes_nothing(
    numbers: RunNumbers, monkeypatch: pytest.MonkeyPatch, answers: bool, asked: bool, owed: int
) -> None:
    """A page is older by a turn than its worker's death: what was acked in that was owed for good."""
    monkeypatch.setattr(Numbers, "answers_for_failures", answers)
    numbers.replaced(0, {1: 4})
    for beats in range(IDLE_BEATS):
        assert row(numbers, "numbers")["owed"] == 4, beats
        numbers.heard(0, Beat({1: snapshot()}, [], 0, 0), asked)
    assert row(numbers, "numbers")["owed"] == owed
    numbers.replaced(0, {1: 1})
    found = row(numbers, "numbers")
    assert found["owed"] == 1, "those of the last death: that life had emitted"
    assert found["in_doubt"] == (0 if answers else owed), "those of the one before"
