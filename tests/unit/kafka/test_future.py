"""RequestFuture: resolved once, heard by every listener."""

from __future__ import annotations

import pytest

from streamlet.kafka import RequestFuture
from streamlet.kafka.errors import ClientTimeout, Disconnected, KafkaError


def test_c8_each_listener_is_called_also_behind_one_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    """Also those behind one that raises, and those that come late."""
    future: RequestFuture[int] = RequestFuture()
    heard: list[KafkaError | None] = []
    future.add_listener(lambda done: heard.append(done.exception))
    future.add_listener(lambda _done: 1 // 0)
    future.add_listener(lambda done: heard.append(done.exception))
    error = Disconnected("gone")
    future.fail(error)
    future.add_listener(lambda done: heard.append(done.exception))
    assert heard == [error] * 3 and "ZeroDivisionError" in caplog.text
    assert future.done and future.failed and not future.succeeded
    with pytest.raises(Disconnected):
        _ = future.value


def test_it_is_resolved_once() -> None:
    """A second answer is a bug of the caller."""
    future: RequestFuture[int] = RequestFuture()
    with pytest.raises(RuntimeError, match="not answered yet"):
        _ = future.value
    future.complete(1)
    with pytest.raises(RuntimeError, match="once"):
        future.complete(2)
    with pytest.raises(RuntimeError, match="once"):
        future.fail(Disconnected("late"))
    assert future.value == 1


def test_c8_then_changes_the_value_and_passes_errors_on() -> None:
    """What the change raises as a KafkaError becomes the error."""

    def refuse(_value: int) -> int:
        raise ClientTimeout("no")

    first: RequestFuture[int] = RequestFuture()
    text, refused = first.then(str), first.then(refuse)
    chained: RequestFuture[str] = RequestFuture()
    text.chain(chained)
    first.complete(7)
    assert text.value == "7" == chained.value and isinstance(refused.exception, ClientTimeout)
    second: RequestFuture[int] = RequestFuture()
    after = second.then(str)
    second.fail(Disconnected("gone"))
    assert isinstance(after.exception, Disconnected)


def test_a_change_with_a_bug_does_not_leave_the_future_open() -> None:
    """An error that is none of ours fails it too: nobody waits for ever."""
    first: RequestFuture[bytes] = RequestFuture()
    after = first.then(lambda raw: raw[99])
    first.complete(b"")
    assert after.done and isinstance(after.exception, KafkaError) and "IndexError" in str(after.exception)


def test_c8_a_step_with_a_bug_fails_what_it_should_have_resolved_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who waits for the derived future hears of it at once; the bug is logged; other listeners hear the value."""
    first: RequestFuture[int] = RequestFuture()
    derived: RequestFuture[str] = RequestFuture()
    heard: list[int] = []
    first.settle(derived, lambda done: derived.complete(str(1 // done.value)))
    first.add_listener(lambda done: heard.append(done.value))
    first.complete(0)
    assert heard == [0] and first.succeeded
    assert isinstance(derived.exception, KafkaError) and "ZeroDivisionError" in str(derived.exception)
    assert "ZeroDivisionError" in caplog.text


def test_c8_a_step_that_raises_after_it_resolved_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    """What stands, stands."""
    first: RequestFuture[int] = RequestFuture()
    derived: RequestFuture[int] = RequestFuture()

    def step(done: RequestFuture[int]) -> None:
        derived.complete(done.value)
        raise OSError("no disk")

    first.settle(derived, step)
    first.complete(3)
    assert derived.value == 3 and "no disk" in caplog.text


def test_c8_an_interrupt_in_a_listener_reaches_who_polls_and_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """Ctrl-C may come while any line runs: the listeners behind it are called before it goes on. It is no bug."""
    first: RequestFuture[int] = RequestFuture()
    heard: list[int] = []

    def interrupted(_value: int) -> int:
        raise KeyboardInterrupt

    derived = first.then(interrupted)
    first.add_listener(lambda done: heard.append(done.value))
    with pytest.raises(KeyboardInterrupt):
        first.complete(5)
    assert heard == [5] and derived.failed and not caplog.records
