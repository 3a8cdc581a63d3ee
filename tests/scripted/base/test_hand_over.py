"""Calls that may hang are made on a thread of their own, in order, and nobody waits for them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from streamlet.base.backlog import LINE_BYTES
from streamlet.base.hand_over import HandOver
from tests.patience import PATIENCE_S


class Calls:
    """A hand-over, and what came of it."""

    def __init__(self) -> None:
        self.made: list[object] = []
        self.go_on = threading.Event()
        self.hand_over = HandOver("calls", lambda count: self.made.append(f"{count} left out"), self.made.append)

    def call(self, what: object) -> Callable[[], None]:
        return lambda: self.made.append(what)

    def hang(self) -> None:
        """Give a call that returns only when told to."""
        self.hand_over.give(lambda: self.go_on.wait(PATIENCE_S) and None)

    def wait(self) -> list[object]:
        self.go_on.set()
        assert self.hand_over.finish(lambda done: done.wait(PATIENCE_S))
        return self.made


def test_calls_are_made_in_order_and_the_newest_of_a_name() -> None:
    calls = Calls()
    calls.hang()
    for number in range(100):
        calls.hand_over.give(calls.call(f"status {number}"), replaces="status")
    for number in range(3):
        calls.hand_over.give(calls.call(number))
    assert calls.wait() == ["status 99", 0, 1, 2]


def test_nobody_waits_for_a_call_that_hangs_and_lines_that_find_no_room_are_counted() -> None:
    calls = Calls()
    calls.hang()
    for _ in range(10):
        calls.hand_over.give(calls.call("line"), line_bytes=LINE_BYTES // 4)
    assert not calls.hand_over.finish(lambda done: done.wait(0.05)) and calls.made == []
    made = calls.wait()
    assert made == [*["line"] * 4, "6 left out"]


def test_a_call_that_raises_is_told_and_the_next_is_made() -> None:
    calls = Calls()
    error = ValueError("no")

    def fail() -> None:
        raise error

    calls.hand_over.give(fail)
    calls.hand_over.give(calls.call(1))
    assert calls.wait() == [error, 1]


@pytest.mark.parametrize("threads", [8])
def test_calls_of_many_threads_are_all_made(threads: int) -> None:
    """A thread that hands over in the moment in which the other one falls asleep wakes it."""
    calls = Calls()

    def give() -> None:
        for number in range(2000):
            calls.hand_over.give(calls.call(number))

    givers = [threading.Thread(target=give) for _ in range(threads)]
    for giver in givers:
        giver.start()
    for giver in givers:
        giver.join()
    assert len(calls.wait()) == 2000 * threads


def test_an_end_makes_a_last_call_and_ends_the_thread_and_takes_no_more() -> None:
    made: list[str] = []
    hand_over = HandOver("ends", lambda count: None, lambda error: None)
    hand_over.give(lambda: made.append("one"))
    hand_over.end(lambda: made.append("last"))
    hand_over.give(lambda: made.append("too late"))
    hand_over._thread.join(PATIENCE_S)
    assert not hand_over._thread.is_alive() and made == ["one", "last"]


def test_lines_that_found_no_room_are_told_before_what_comes_after_them() -> None:
    """The count stood behind the result of a run, which is its last line."""
    told: list[str] = []
    may_go = threading.Event()
    hand_over = HandOver("in-order", lambda count: told.append(f"{count} left out"), lambda error: None)
    hand_over.give(lambda: bool(may_go.wait(PATIENCE_S)))
    hand_over.give(lambda: told.append("line"), line_bytes=LINE_BYTES)
    for _ in range(3):
        hand_over.give(lambda: told.append("no room"), line_bytes=1)
    hand_over.give(lambda: told.append("result"))
    may_go.set()
    assert hand_over.finish(lambda done: done.wait(PATIENCE_S))
    assert told == ["line", "3 left out", "result"]
