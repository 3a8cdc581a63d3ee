"""Ctrl-C and SIGTERM: the first asks the run to drain, the second kills."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from streamlet.backends.contract import Stop


# Two signals, two meanings. The first only notes the wish: a handler runs between any two lines of the main thread, so
# the run itself drains, commits and closes where its loop stands. The second kills by process id and leaves by
# `os._exit`, because what it interrupted may hold locks and half-written buffers.
class Interrupts:
    """While entered, owns SIGINT and SIGTERM. Main thread only. ``exit_status`` is 130 or 143 once one came."""

    def __init__(
        self, stop: Stop, notice: Callable[[str], None], killed: Callable[[int], None], drain_s: float
    ) -> None:
        self._stop = stop
        self._notice = notice
        self._killed = killed
        self._drain_s = drain_s
        self._before: dict[int, Any] = {}
        self.exit_status: int | None = None

    def __enter__(self) -> Interrupts:
        # SIGTERM as well: a service manager or container that stops a run wants its offsets committed, too.
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._came)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _came(self, number: int, frame: FrameType | None) -> None:
        if self.exit_status is None:
            self.exit_status = 128 + number
            self._stop.ask()
            self._notice(f"Draining, for {self._drain_s:g} s at most. Once more kills: what is open is then replayed.")
            return
        # Processes first: what is shown below may hang on a terminal that nobody reads.
        self._stop.kill()
        try:
            self._killed(128 + number)
        finally:
            # No clean-up, no flush: whoever asks twice does not want to wait for whatever hangs.
            os._exit(128 + number)
