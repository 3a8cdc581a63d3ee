"""Ctrl-C and SIGTERM: the first asks the run to drain, the second kills."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streamlet.backends.contract import Stop


@contextmanager
def interrupts_to(came: Callable[[int, Mapping[int, Any]], None]) -> Iterator[None]:
    """Give SIGINT and SIGTERM to ``came``, with the handlers they had. Main thread only."""
    before: dict[int, Any] = {}
    # SIGTERM as well: a service manager or container that stops a run wants its offsets committed, too.
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, lambda received, _frame: came(received, before))
    try:
        yield
    finally:
        for taken, handler in before.items():
            signal.signal(taken, handler)


# Two signals, two meanings. The first only notes the wish: a handler runs between any two lines of the main thread, so
# the run itself drains, commits and closes where its loop stands. The second kills by process id and leaves by
# `os._exit`, because what it interrupted may hold locks and half-written buffers.
class Interrupts:
    """The interrupts of one run. ``exit_status`` is 130 or 143 once one came."""

    def __init__(
        self, stop: Stop, notice: Callable[[str], None], killed: Callable[[int], None], drain_s: float
    ) -> None:
        self._stop = stop
        self._notice = notice
        self._killed = killed
        self._drain_s = drain_s
        self.exit_status: int | None = None

    def came(self, number: int, _before: Mapping[int, Any]) -> None:
        """Drain, or kill if it is not the first. Runs in the signal's handler."""
        if self.exit_status is None:
            self.exit_status = 128 + number
            self._stop.ask()
            self._notice(f"Draining, for {self._drain_s:g} s at most. Once more kills: what is open is then replayed.")
            return
        # Kill the processes first: printing may hang on a terminal that nobody reads.
        self._stop.kill()
        try:
            self._killed(128 + number)
        finally:
            # No clean-up, no flush: a second Ctrl-C must not wait for anything that hangs.
            os._exit(128 + number)
