"""A thread that makes calls for others: those who hand a call over wait for nothing."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Hashable

from streamlet.base.backlog import Backlog

Act = Callable[[], None]


class HandOver:
    """Make calls that may block, in order, on a thread.

    They write to a terminal, a pipe or a disk, which may hang. ``left_out`` is called with the number of lines that
    found no room in the backlog. ``failed`` gets what a call raises. Both run on the thread.
    """

    def __init__(self, name: str, left_out: Callable[[int], None], failed: Callable[[Exception], None]) -> None:
        self._backlog: Backlog[Act] = Backlog()
        # Reentrant, and never held while a call is made: a finalizer that logs may hand over something in the middle of
        # another hand-over of its own thread.
        self._lock = threading.RLock()
        self._given: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._finishing: list[threading.Event] = []
        """Set once nothing waits."""
        self._left_out = left_out
        self._untold = 0
        """Lines left out whose number is on its way, and not told."""
        self._failed = failed
        self._ends = False
        # A daemon: a call that never returns must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def give(self, act: Act, replaces: Hashable = None, line_bytes: int = 0, lines: int = 1) -> None:
        """Have a call made soon. Any thread. See ``Backlog.put``."""
        with self._lock:
            if self._ends:
                return
            # Rule: lines that are missing are told in their place. Nothing may follow the result of a run.
            is_news = not line_bytes and replaces is None
            if is_news and (count := self._backlog.take_left_out(now=True)):
                self._untold += count
                self._backlog.put(lambda: self._tell(count))
            self._backlog.put(act, replaces, line_bytes, lines)
        # One token wakes the thread for everything that stands there by then.
        if self._given.empty():
            self._given.put(None)

    @property
    def lines_unmade(self) -> int:
        """How many lines wait, or were left out without a word. Any thread."""
        with self._lock:
            return self._backlog.lines + self._untold

    def finish(self, wait: Callable[[threading.Event], object]) -> bool:
        """Wait until every call was made and left-out lines were reported; return whether that is so.

        ``wait`` gets an event that is set then, and waits for it as long as it likes.
        """
        done = threading.Event()
        with self._lock:
            self._finishing.append(done)
        self._given.put(None)
        wait(done)
        return done.is_set()

    def end(self, last: Act) -> None:
        """Have a last call made, and the thread end. Later ones are dropped."""
        with self._lock:  # at once: a call that came in between would be made after the last one
            self.give(last)
            self._ends = True
        self._given.put(None)

    def _run(self) -> None:
        # Signals are for the main thread: one that came here would not end a sleep or a read there.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            self._given.get()
            while (act := self._next()) is not None:
                try:
                    act()
                except Exception as error:  # noqa: BLE001 - the thread lives as long as anybody hands over
                    self._failed(error)
            with self._lock:
                # What came in between has a token of its own, and so have they.
                finished = [] if self._backlog else self._finishing[:]
                del self._finishing[: len(finished)]
                ended = self._ends and not self._backlog
            for done in finished:
                done.set()
            if ended:
                return

    def _next(self) -> Act | None:
        with self._lock:
            act = self._backlog.take()
            count = 0 if act is not None else self._backlog.take_left_out()
            self._untold += count
        return (lambda: self._tell(count)) if count else act

    def _tell(self, count: int) -> None:
        try:
            self._left_out(count)
        finally:
            with self._lock:
                self._untold -= count
