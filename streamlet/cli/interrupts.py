"""Ctrl-C, SIGTERM and SIGHUP: the first asks the run to drain, a second kills."""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streamlet.backends.contract import RunStatus, Stop
from streamlet.base.termination_signals import keep
from streamlet.cli.output import leave
from streamlet.cli.show import say_past_streams

SAME_S = 0.25
"""Seconds within which a second signal is the first one once more."""

STAMPS = 35
"""Linux's SO_TIMESTAMPNS: with each datagram comes when the kernel got it."""

TIMESPEC = struct.Struct("ll")
"""Such a time: seconds since 1970, and nanoseconds."""


@contextmanager
def interrupts_to(came: Callable[[int, Mapping[int, Any]], None]) -> Iterator[None]:
    """Give SIGINT and SIGTERM to ``came``, with the handlers they had. Main thread only."""
    before: dict[int, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, lambda received, _frame: came(received, before))
    try:
        yield
    finally:
        for taken, handler in before.items():
            signal.signal(taken, handler)


class EndAsked:
    """The first signal that asks a command to end in order; a later one ends it at once."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._since_s = 0.0

    def came(self, number: int, before: Mapping[int, Any]) -> None:
        """Note a signal. Runs in its handler, for ``interrupts_to``."""
        if self.number is None:
            self.number, self._since_s = number, time.monotonic()
        # A launcher passes on what the terminal has sent us, too. Only a later Ctrl-C ends a call that hangs, and the
        # loop that would look at `number` with it.
        elif time.monotonic() - self._since_s >= SAME_S:
            signal.signal(number, before[number])
            signal.raise_signal(number)


@contextmanager
def signals_to(came: Callable[[int, float], None]) -> Iterator[None]:
    """Give SIGINT, SIGTERM and SIGHUP to ``came``, with their times.

    On a thread, in seconds of the monotonic clock. Called on the main thread.
    """
    # Not in a handler: Python runs it on the main thread, between two lines of its own. Where that thread sleeps in a
    # user's code, or stands in a C library, the second Ctrl-C would wait; and a handler interrupts whatever it may. The
    # interpreter itself writes the number of a signal to this socket at the moment when it comes.
    # Rule: a signal has the time at which it came, which the kernel notes. While a bolt of this very process keeps the
    # interpreter's lock no thread can look: two Ctrl-C of one such call were found at once, and taken for one.
    read, write = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.suppress(OSError):  # without it each came when it is read
        read.setsockopt(socket.SOL_SOCKET, STAMPS, 1)
    write.setblocking(False)
    numbers = {signal.SIGINT, signal.SIGTERM}
    # A program that was started with `nohup` outlives its terminal.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.add(signal.SIGHUP)

    def watch() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            taken, notes, _, _ = read.recvmsg(1, socket.CMSG_SPACE(TIMESPEC.size))
            if not taken:
                return
            if taken[0] in numbers:
                came(taken[0], _came_at(notes))

    watching = threading.Thread(target=watch, name="signals", daemon=True)
    watching.start()
    undo = keep(lambda *_: None, numbers, write.fileno())
    try:
        yield
    finally:
        undo()
        write.close()
        watching.join()
        read.close()


def _came_at(notes: Iterable[tuple[int, int, bytes]]) -> float:
    """Return when a signal came, in seconds of the monotonic clock."""
    now = time.monotonic()
    for level, kind, data in notes:
        if (level, kind, len(data)) == (socket.SOL_SOCKET, STAMPS, TIMESPEC.size):
            seconds, nanoseconds = TIMESPEC.unpack(data)
            now -= max(0.0, time.time() - seconds - nanoseconds / 1e9)
    return now


OVER = "The run is over. What nobody reads of its output is left out."


class Interrupts:
    """The signals of one run. ``exit_status`` is 130, 143 or 129 once one came."""

    def __init__(
        self, stop: Stop, notice: Callable[[str], None], killed: Callable[[int, RunStatus | None], None]
    ) -> None:
        self._stop = stop
        self._notice = notice
        self._killed = killed
        self._first_s = 0.0
        self.exit_status: int | None = None
        self._over: int | None = None
        """The exit status of a run that has come to its end, and is only shown yet."""
        self._last_words = ""
        self._hung_up = threading.Event()

    def has_hung_up(self) -> bool:
        """Tell whether SIGHUP came, or comes in a moment."""
        # A write to a terminal that is closed may fail before the signal is there.
        return self._hung_up.wait(SAME_S)

    def end(self, exit_status: int, last_words: str) -> None:
        """Note the end of the run; ``last_words`` are said if a signal cuts its output."""
        self._last_words = last_words
        self._over = exit_status

    def settle(self) -> None:
        """Wait until no signal can be the first one once more."""
        # A run may be drained in a few milliseconds. The rest of the same wish would then end the process by the
        # system's own way, with another status.
        if self.exit_status is not None:
            time.sleep(max(0.0, self._first_s + SAME_S - time.monotonic()))

    def give_way(self) -> None:
        """Wait for the end of the process after a second signal."""
        # Rule: who kills says the last line and chooses the status. The run ends of the kill as well, and would be
        # first now and then, with the status and the words of a failed one.
        while self._stop.killed:
            time.sleep(SAME_S)

    def came(self, number: int, at_s: float) -> None:
        """Drain, or kill if it is not the first. On the thread of ``signals_to``."""
        first = self.exit_status is None
        if first:
            self.exit_status, self._first_s = 128 + number, at_s
        if number == signal.SIGHUP:
            self._hung_up.set()
        if first:
            self._stop.ask()
            self._notice(self._draining() if self._over is None else OVER)
            return
        # One wish may come as several signals: a launcher passes on the Ctrl-C that the whole group got, a service
        # manager sends SIGHUP after SIGTERM, and a terminal that goes sends it twice.
        if number == signal.SIGHUP or at_s - self._first_s < SAME_S:
            return
        # Rule: a run that is over has nothing to be killed. Its end waits for the reader of its output alone, so its
        # own status and error stand.
        if self._over is not None:
            words = self._last_words
            leave(self._over, lambda: say_past_streams(words.rstrip("\n")) if words else None)
        last = self._stop.last_look()
        try:
            # Kill the processes first: printing may hang on a terminal that nobody reads.
            self._stop.kill()
        finally:
            # No clean-up, no flush: a second Ctrl-C must not wait for anything that hangs.
            leave(128 + number, lambda: self._killed(128 + number, last))

    def _draining(self) -> str:
        # One process is bounded by nothing: a call that hangs is not left before it returns.
        at_most = "" if self._stop.drain_s is None else f", for {self._stop.drain_s:g} s at most"
        return f"Draining{at_most}. Once more kills: what is open is then replayed, untracked tuples are lost."
