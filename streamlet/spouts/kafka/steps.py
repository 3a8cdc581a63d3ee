"""Work with waits in it, done a step at a time from the loop: nothing here blocks.

A generator yields what it waits for; :class:`Activity` resumes it when that is there. So that opening a partition
reads as one piece, although three answers are awaited in it and the loop runs on meanwhile.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from streamlet.base.clock import Clock
from streamlet.base.errors import StreamletError

T = TypeVar("T")


class Waiting(Protocol):
    """Something that will be there."""

    def done(self) -> bool:
        """Whether it is."""
        ...


Steps = Generator[Waiting, None, T]


class Pause:
    """Until a moment of the clock."""

    __slots__ = ("_clock", "_until_s")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._until_s = clock.monotonic() + seconds

    def done(self) -> bool:
        return self._clock.monotonic() >= self._until_s


class NextPoll:
    """Until the activity is polled the next time."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen = False

    def done(self) -> bool:
        seen, self._seen = self._seen, True
        return seen


class Activity(Generic[T]):
    """A generator under way. ``poll`` until it returns True, then ``take`` its value or its StreamletError."""

    __slots__ = ("_error", "_finished", "_steps", "_value", "_waiting")

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._waiting: Waiting | None = None
        self._finished = False
        self._value: T | None = None
        self._error: StreamletError | None = None

    def poll(self) -> bool:
        """Go on as far as possible; whether it has ended."""
        while not self._finished and (self._waiting is None or self._waiting.done()):
            try:
                self._waiting = next(self._steps)
            except StopIteration as end:
                self._finished, self._value = True, end.value
            except StreamletError as error:
                self._finished, self._error = True, error
        return self._finished

    def take(self) -> T:
        """What it came to."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # None only where T allows it

    def cancel(self) -> None:
        """It is not wanted any more."""
        self._steps.close()
        self._finished = True


class Background:
    """One daemon thread for the few calls that block (reads of ZooKeeper), in order. ``wake`` is called after each.

    A daemon, and never joined for long: a ZooKeeper that does not answer must not hold up the end of the worker.
    """

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Do it on the thread; the future is the caller's to look at."""
        future: Future[T] = Future()
        self._calls.put((future, call))
        return future

    def close(self, timeout_s: float = 1.0) -> None:
        """End after what is under way; waits at most ``timeout_s``."""
        self._calls.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001 - it belongs to whoever asked, whatever it is
                future.set_exception(error)
            self._wake()
