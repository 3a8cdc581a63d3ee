"""Work with waits in it: it runs as far as it can, and keeps its result or error for who asks."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from streamlet.base.clock import ManualClock
from streamlet.kafka.errors import Disconnected
from streamlet.kafka.future import RequestFuture
from streamlet.spouts.kafka import activity as activity_module
from streamlet.spouts.kafka.activity import Activity, Background, NextPoll, Steps, WaitUntil, answer_to
from tests.patience import PATIENCE_S


def test_a_poll_runs_to_the_first_wait_that_is_not_over() -> None:
    clock, ran = ManualClock(), []

    def steps() -> Steps[str]:
        ran.append("begun")
        yield WaitUntil(clock, 0.0)
        ran.append("no wait")
        yield WaitUntil(clock, 1.0)
        ran.append("waited")
        return "done"

    activity = Activity(steps())
    assert not ran, "nothing runs before it is polled"
    assert not activity.poll() and ran == ["begun", "no wait"]
    clock.advance(0.9)
    assert not activity.poll() and len(ran) == 2
    clock.advance(0.1)
    assert activity.poll() and activity.take() == "done"
    assert activity.poll(), "the end stays the end"


def test_an_error_of_ours_waits_for_who_takes_the_result() -> None:
    """The loop polls work of several partitions; one that fails must not stop the others."""

    def steps() -> Steps[None]:
        yield NextPoll()
        raise Disconnected("gone")

    activity = Activity(steps())
    activity.poll()
    assert activity.poll()
    with pytest.raises(Disconnected, match="gone"):
        activity.take()


def test_a_bug_goes_up_at_once() -> None:
    def steps() -> Steps[None]:
        raise ZeroDivisionError
        yield NextPoll()

    with pytest.raises(ZeroDivisionError):
        Activity(steps()).poll()


def test_a_wait_for_the_next_poll_lasts_exactly_one_and_may_be_used_again() -> None:
    turns: list[int] = []

    def steps() -> Steps[None]:
        again = NextPoll()
        for turn in range(3):
            turns.append(turn)
            yield again

    activity = Activity(steps())
    for polls in (1, 2, 3):
        assert not activity.poll() and len(turns) == polls
    assert activity.poll()


def test_work_that_is_cancelled_puts_its_things_away_and_is_over() -> None:
    put_away: list[bool] = []

    def steps() -> Steps[None]:
        try:
            yield WaitUntil(ManualClock(), 1.0)
        finally:
            put_away.append(True)

    activity = Activity(steps())
    activity.poll()
    activity.cancel()
    assert put_away == [True] and activity.poll()


@pytest.mark.parametrize("failed", [False, True])
def test_an_answer_is_returned_or_raised_once_it_is_there(failed: bool) -> None:
    request: RequestFuture[int] = RequestFuture()
    activity = Activity(answer_to(request))
    assert not activity.poll() and not activity.poll()
    if failed:
        request.fail(Disconnected("gone"))
        assert activity.poll()
        with pytest.raises(Disconnected):
            activity.take()
    else:
        request.complete(5)
        assert activity.poll() and activity.take() == 5


class Woken:
    """Counts wake-ups, and lets a test wait for them."""

    def __init__(self) -> None:
        self.calls = threading.Semaphore(0)

    def __call__(self) -> None:
        self.calls.release()

    def wait(self) -> None:
        assert self.calls.acquire(timeout=PATIENCE_S)


def test_blocking_calls_run_in_order_on_one_thread_and_wake_the_loop() -> None:
    woken, seen = Woken(), []
    background = Background("reads", woken)

    def call(n: int) -> int:
        seen.append((n, threading.current_thread().name))
        return n * 10

    activities = [Activity(background.run(lambda n=n: call(n))) for n in range(3)]  # type: ignore[misc]
    for activity in activities:
        activity.poll()
    for _ in activities:
        woken.wait()
    assert all(activity.poll() for activity in activities)
    assert [activity.take() for activity in activities] == [0, 10, 20]
    assert seen == [(n, "reads") for n in range(3)]
    background.close()


def test_what_a_blocking_call_raised_is_raised_in_the_work_that_asked() -> None:
    woken = Woken()
    background = Background("reads", woken)

    def broken() -> Any:
        raise KeyError("no node")

    def steps() -> Steps[str]:
        try:
            yield from background.run(broken)
        except KeyError as error:
            return f"read on without: {error}"
        return ""

    activity = Activity(steps())
    activity.poll()
    woken.wait()
    assert activity.poll() and activity.take() == "read on without: 'no node'"
    after = Activity(background.run(lambda: "alive"))
    after.poll()
    woken.wait()
    assert after.poll() and after.take() == "alive"
    background.close()


def test_closing_does_not_wait_for_a_call_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity_module, "CLOSE_S", 0.01)
    hanging, background = threading.Event(), Background("reads", lambda: None)
    Activity(background.run(hanging.wait)).poll()
    background.close()
    hanging.set()
