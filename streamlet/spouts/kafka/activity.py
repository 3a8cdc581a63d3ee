"""Work with waits in it, done step by step from the worker's loop.

Opening a partition awaits several answers, but the loop that emits tuples must never block. So such work is a
generator (:data:`Steps`): it yields each thing it waits for, and :class:`Activity` resumes it once that thing is
there. The code reads from top to bottom, and the loop runs on between the steps.

Everything here belongs to the worker's loop, except the thread of :class:`Background`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from streamlet.base.clock import Clock
from streamlet.base.errors import StreamletError
from streamlet.kafka.future import RequestFuture

T = TypeVar("T")


class Waiting(Protocol):
    """Something an activity can wait for."""

    def done(self) -> bool:
        """Return whether the wait is over."""


Steps = Generator[Waiting, None, T]
"""A generator that yields what it waits for and returns a T."""


class WaitUntil:
    """A wait until a moment of the clock."""

    __slots__ = ("_clock", "_until_s")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._until_s = clock.monotonic() + seconds

    def done(self) -> bool:
        return self._clock.monotonic() >= self._until_s


class NextPoll:
    """A wait until the activity is polled the next time; may be yielded again."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen = False

    def done(self) -> bool:
        seen, self._seen = self._seen, not self._seen
        return seen


def answer_to(request: RequestFuture[T]) -> Steps[T]:
    """Wait for the answer to a request and return it. Raises the KafkaError it failed with."""
    again = NextPoll()
    while not request.done:
        yield again
    return request.value


class Activity(Generic[T]):
    """A generator under way. Call ``poll`` until it returns True, then ``take``."""

    __slots__ = ("_error", "_finished", "_steps", "_value", "_waiting")

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._waiting: Waiting | None = None
        self._finished = False
        self._value: T | None = None
        self._error: StreamletError | None = None

    def poll(self) -> bool:
        """Run as far as possible without blocking; return whether the work has ended."""
        while not self._finished and (self._waiting is None or self._waiting.done()):
            try:
                self._waiting = next(self._steps)
            except StopIteration as end:
                self._finished, self._value = True, end.value
            # Kept for take(): the loop polls activities of several partitions, and their owner decides what an error
            # means. Anything but a StreamletError is a bug and goes up at once.
            except StreamletError as error:
                self._finished, self._error = True, error
        return self._finished

    def take(self) -> T:
        """Return the result of the ended work. Raises the StreamletError it ended with."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # None only where T allows it

    def cancel(self) -> None:
        """Stop the work where it stands; its ``finally`` blocks run now."""
        self._steps.close()
        self._finished = True


CLOSE_S = 1.0
"""Seconds that the end of a ``Background`` waits for the call under way."""


class Background:
    """One daemon thread for blocking calls (reads of ZooKeeper), in order.

    ``wake`` runs on that thread after each call, so that the worker's loop looks at the result.
    """

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        # A daemon, joined for a bounded time only: a ZooKeeper that does not answer must not hold up the worker's end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._ends_by_s: float | None = None

    def run(self, call: Callable[[], T]) -> Steps[T]:
        """Run ``call`` on the thread and return its result. Raises the exception it raised."""
        future: Future[T] = Future()
        self._calls.put((future, call))
        yield future
        return future.result()

    def begin_close(self) -> None:
        """Let the thread end after the calls so far; returns at once."""
        if self._ends_by_s is None:
            self._ends_by_s = time.monotonic() + CLOSE_S
            self._calls.put(None)

    def close(self) -> None:
        """End after the calls so far; wait for them, ``CLOSE_S`` from the begin."""
        self.begin_close()
        if self._ends_by_s is not None:
            self._thread.join(max(0.0, self._ends_by_s - time.monotonic()))

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001 - raised again in the activity that asked
                future.set_exception(error)
            self._wake()
