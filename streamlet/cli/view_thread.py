"""The thread that shows a run: a terminal or a pipe that nobody reads holds up nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from streamlet.backends.contract import RunRequest, RunResult, RunStatus
from streamlet.base.hand_over import HandOver
from streamlet.base.log_line import LogLine
from streamlet.cli.show import LastingView

BEGIN_S = 1.0
"""Seconds that the first line may take before the run begins without it."""

HURRIED_S = 3.0
"""Seconds that the last lines may take once somebody has asked the run to end."""

STEP_S = 0.05
"""Seconds between two looks at whether the end of the run was asked for."""


class ViewThread:
    """Show a run on a thread.

    Methods return at once, but for the first and the last lines. ``hurried`` tells whether somebody wants the end:
    before that, the last lines wait for their reader as long as he takes. ``stuck`` is true once they were given
    up; the process should then leave without touching its streams. ``killed`` tells whether the run is killed: nothing
    is shown then but the last line.
    """

    def __init__(
        self, view: LastingView, hurried: Callable[[], bool], killed: Callable[[], bool] = lambda: False
    ) -> None:
        self._view = view
        self._hurried = hurried
        self._killed = killed
        self._calls = HandOver("view", self._tell_left_out, view.broke)
        self.stuck = False

    def start(self, request: RunRequest, backend: str) -> None:
        """Show that the run begins. Raises what the view raises: nothing runs yet."""
        raised: list[Exception] = []

        def start() -> None:
            try:
                self._view.start(request, backend)
            except Exception as error:  # noqa: BLE001 - raised on the thread that waits
                raised.append(error)

        self._calls.give(start)
        self._calls.finish(lambda done: done.wait(BEGIN_S))
        if raised:
            raise raised[0]

    def on_status(self, status: RunStatus) -> None:
        """Show a status, unless a newer one comes before its turn."""
        self._give(lambda: self._view.on_status(status), replaces="status")

    def on_event(self, line: LogLine) -> None:
        """Show a line, or count it."""
        self._give(lambda: self._view.on_event(line), line_bytes=line.size)

    def log(self, line: LogLine) -> None:
        """Show a log line, or count it. Any thread."""
        self._give(lambda: self._view.log(line), line_bytes=line.size)

    def notice(self, text: str) -> None:
        """Show a line soon. Any thread."""
        self._give(lambda: self._view.notice(text))

    def killed(self, exit_status: int, last: RunStatus | None) -> None:
        """Show the last line of a run that is killed. On the thread of signals."""
        self._view.killed(exit_status, last)

    def finish(self, result: RunResult, exit_status: int = 0) -> None:
        """Show the result, once everything before it is shown."""
        self._give(lambda: self._view.finish(result, exit_status))
        self._wait()

    def failed(self, error: BaseException, exit_status: int) -> None:
        """Show that the run failed, once everything before it is shown."""
        self._give(lambda: self._view.failed(error, exit_status))
        self._wait()

    def close(self) -> None:
        """Let the view close."""
        self._give(self._view.close)
        self._wait()

    def _give(self, show: Callable[[], None], replaces: str | None = None, line_bytes: int = 0) -> None:
        # Asked when its turn comes: the deaths of the workers that a kill ends would stand behind its last line.
        self._calls.give(lambda: None if self._killed() else show(), replaces, line_bytes)

    def _wait(self) -> None:
        if not self.stuck:
            self.stuck = not self._calls.finish(self._patiently)

    def _patiently(self, done: threading.Event) -> None:
        deadline: float | None = None
        while not done.wait(STEP_S):
            if deadline is None and self._hurried():
                deadline = time.monotonic() + HURRIED_S
            if deadline is not None and time.monotonic() >= deadline:
                return

    def _tell_left_out(self, count: int) -> None:
        text = f"{count:,} lines were left out here: nobody read them in time."
        self._view.on_event(LogLine("warning", text, time.time()))
