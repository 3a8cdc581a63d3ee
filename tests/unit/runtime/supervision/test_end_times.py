"""How long an end may take: by what waits, by what a user has set, and after Ctrl-C."""

from __future__ import annotations

import pytest

from streamlet.runtime.supervision.end_times import CLOSE_S, DRAIN_S, IDLE_DRAIN_S, INTERRUPT_S, EndTimes


def times(drain_s: float | None = None, stop_s: float | None = None) -> EndTimes:
    return EndTimes(drain_s, stop_s, timeout_s=30.0)


@pytest.mark.parametrize(
    ("work_s", "told", "deadline"),
    [(0.0, "", DRAIN_S), (10.0, "Draining, for about 16 s", 16.0), (1000.0, "Draining, for about 30 s", 30.0)],
)
def test_a_drain_takes_as_long_as_the_work_that_waits_up_to_the_time_out(
    work_s: float, told: str, deadline: float
) -> None:
    end = times()
    assert end.begin("time", 100.0, work_s, 0).startswith(told) and end.deadline == 100.0 + deadline
    assert not end.is_over(99.9 + deadline) and end.is_over(100.0 + deadline)
    assert end.drained_s() == deadline


def test_what_a_user_has_set_is_the_length_and_nothing_makes_it_longer() -> None:
    end = times(drain_s=2.0)
    assert end.begin("time", 0.0, 50.0, 0) == "" and end.deadline == 2.0
    assert end.found_work(1.0, 50.0, 9) == "" and end.deadline == 2.0


def test_work_that_is_found_makes_a_drain_longer_while_tuples_are_processed_and_is_told_once() -> None:
    end = times()
    end.begin("time", 0.0, 0.0, 7)
    assert end.found_work(1.0, 10.0, 7) == "" and end.deadline == DRAIN_S, "nothing was processed since"
    assert end.found_work(1.0, 10.0, 8).startswith("Draining for longer, for about 17 s in all") and end.deadline == 17
    assert end.found_work(2.0, 10.0, 9) == "" and end.deadline == 18
    end.found_work(20.0, 100.0, 10)
    assert end.deadline == 30, "the time-out of messages bounds it"


def test_the_deadline_of_a_caught_up_run_moves_with_each_processed_tuple() -> None:
    end = times()
    end.begin("caught_up", 0.0, 0.0, 0)
    assert end.deadline == IDLE_DRAIN_S
    end.progressed(20.0)
    assert end.deadline == 20 + IDLE_DRAIN_S
    end.close(25.0)
    end.progressed(26.0)
    assert end.closing and end.deadline == 25 + CLOSE_S and end.closing_s(27.0) == 2


def test_ctrl_c_has_five_seconds_for_both_and_more_only_where_the_drain_took_them() -> None:
    end = times()
    end.begin("interrupted", 0.0, 0.0, 0)
    end.close(1.0)
    assert end.deadline == INTERRUPT_S
    late = times()
    late.begin("interrupted", 0.0, 10.0, 0)
    late.close(15.0)
    assert late.deadline == 15 + INTERRUPT_S


def test_ctrl_c_shortens_an_end_that_the_run_has_begun_itself() -> None:
    end = times()
    end.begin("caught_up", 0.0, 0.0, 0)
    end.interrupt(3.0, 0.0)
    assert (end.reason, end.deadline) == ("interrupted", 3.0 + DRAIN_S)
    closing = times(stop_s=20.0)
    closing.begin("time", 0.0, 0.0, 0)
    closing.close(4.0)
    closing.interrupt(5.0, 0.0)
    assert closing.deadline == 24.0, "what a user has set holds"


def test_after_ctrl_c_only_a_call_under_way_that_is_longer_makes_the_drain_longer() -> None:
    end = EndTimes(None, None, 60.0)
    end.begin("interrupted", 0.0, 1.0, 7)
    assert end.found_call(1.5) == "" and end.deadline == DRAIN_S
    assert end.found_call(6.0).startswith("Draining for longer, for 10 s at most") and end.deadline == 10.0
    assert end.found_call(6.0) == "" and end.found_call(1000.0) and end.deadline == 60.0, "not past the time-out"
    by_time, is_set = EndTimes(None, None, 60.0), EndTimes(2.0, None, 60.0)
    by_time.begin("time", 0.0, 1.0, 7)
    is_set.begin("interrupted", 0.0, 1.0, 7)
    assert by_time.found_call(50.0) == is_set.found_call(50.0) == ""


def test_after_ctrl_c_untracked_tuples_that_are_worked_off_make_the_drain_longer() -> None:
    """Nobody sends them again. What is tracked the next run reads; closing keeps its own five seconds."""
    end, is_set = times(), times(drain_s=2.0)
    for one in (end, is_set):
        one.begin("interrupted", 0.0, 0.0, 0)
    assert end.found_work(1.0, 10.0, 8) == "" and end.deadline == DRAIN_S, "the time that was told is kept"
    assert is_set.found_work(1.0, 10.0, 8, untracked=True) == "" and is_set.deadline == 2.0
    told = end.found_work(1.0, 10.0, 9, untracked=True)
    assert told.startswith("Draining for longer, for about 17 s in all") and end.deadline == 17
    end.close(12.0)
    assert end.deadline == 12.0 + INTERRUPT_S
