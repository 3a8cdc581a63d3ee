"""The threads that show a run: a terminal or a pipe that nobody reads holds up nothing else."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from streamlet.backends.contract import RunRequest, RunResult, RunStatus
from streamlet.base.hand_over import HandOver
from streamlet.base.log_line import LogLine
from streamlet.base.printable import many
from streamlet.cli.show import LastingView, begin_to_say, say_error

BEGIN_S = 1.0
"""Seconds that the first line may take before the run begins without it."""

HURRIED_S = 3.0
"""Seconds that the last lines may take once somebody has asked the run to end."""

TOLD_S = 1.0
"""Seconds that the last lines of a stream may take at least, however long the other one has taken."""

WAIT_TOLD_S = 5.0
"""Seconds after which standard error tells that a run which is over waits for the reader of standard output."""

STEP_S = 0.05
"""Seconds between two looks at whether the end of the run was asked for."""


WAITS = "The run is over, and waits for the reader of its standard output. Ctrl-C or SIGTERM leaves out what is left."


class ViewThread:
    """Show a run on a thread, or on two: one for each file.

    Methods return at once, but for the first and the last lines. ``hurried`` tells whether somebody wants the end:
    before that, the last lines wait for their reader as long as he takes. ``killed`` tells whether the run is killed:
    nothing is shown then but the last line. ``apart``: standard output and standard error are two files.
    """

    def __init__(
        self,
        view: LastingView,
        hurried: Callable[[], bool],
        killed: Callable[[], bool] = lambda: False,
        apart: bool = False,
    ) -> None:
        self._view = view
        self._hurried = hurried
        self._killed = killed
        self._out = self._errors = HandOver("view", self._tell_left_out, view.broke)
        # Rule: a stream that nobody reads holds up no other. Standard error has the first traceback, what a signal
        # brought about, and how many lines standard output lacks, which must not wait for the reader of that one. Where
        # both are one file there is one thread: their lines keep their order.
        if apart:
            self._errors = HandOver("view-errors", self._tell_errors_left_out, view.broke)
        self._stuck: set[HandOver] = set()
        self._deadline = math.inf
        self._left_out = 0
        """Lines that standard output lacks, and says so in their place."""
        self._told = 0
        """How many missing lines of standard output stand on standard error."""
        self._told_wait = False

    @property
    def stuck(self) -> bool:
        """Whether last lines were given up: the process should then leave without touching its streams."""
        return bool(self._stuck)

    def start(self, request: RunRequest, backend: str) -> None:
        """Show that the run begins. Raises what the view raises: nothing runs yet."""
        raised: list[Exception] = []

        def start() -> None:
            try:
                self._view.start(request, backend)
            except Exception as error:  # noqa: BLE001 - raised on the thread that waits
                raised.append(error)

        self._out.give(start)
        self._out.finish(lambda done: done.wait(BEGIN_S))
        if raised:
            raise raised[0]

    def on_status(self, status: RunStatus) -> None:
        """Show a status, unless a newer one comes before its turn."""
        self._give(self._stream_of(None), lambda: self._view.show_due(over=False), replaces="due")
        self._give(self._out, lambda: self._view.on_status(status), replaces="status")

    def on_event(self, line: LogLine) -> None:
        """Show a line, or count it."""
        self._give(self._stream_of(line, event=True), lambda: self._view.on_event(line), line=line)

    def log(self, line: LogLine) -> None:
        """Show a log line, or count it. Any thread."""
        self._give(self._stream_of(line), lambda: self._view.log(line), line=line)

    def notice(self, text: str) -> None:
        """Show a line soon. Any thread."""
        self._give(self._stream_of(None), lambda: self._view.notice(text))

    def killed(self, exit_status: int, last: RunStatus | None) -> None:
        """Show the last line of a run that is killed. On the thread of signals."""
        lacking = self._lacking() if self._errors is not self._out else 0
        telling = begin_to_say(_lacks(lacking, more=True)) if lacking else None
        self._view.killed(exit_status, last)
        if telling is not None:
            telling.join()

    def finish(self, result: RunResult, exit_status: int = 0) -> None:
        """Show the result, once everything before it is shown."""
        self._give(self._stream_of(None), lambda: self._view.show_due(over=True))
        self._give(self._out, lambda: self._view.finish(result, exit_status))
        self._wait()

    def failed(self, error: BaseException, exit_status: int) -> None:
        """Show that the run failed, once everything before it is shown."""
        self._give(self._stream_of(None), lambda: self._view.show_due(over=True))
        self._give(self._out, lambda: self._view.failed(error, exit_status))
        self._wait()

    def close(self) -> None:
        """Let the view close."""
        self._give(self._out, self._view.close)
        self._wait()

    def _stream_of(self, line: LogLine | None, event: bool = False) -> HandOver:
        apart = self._errors is not self._out
        return self._errors if apart and self._view.on_errors(line, event) else self._out

    def _give(
        self, stream: HandOver, show: Callable[[], None], replaces: str | None = None, line: LogLine | None = None
    ) -> None:
        # Asked when its turn comes: the deaths of the workers that a kill ends would stand behind its last line.
        line_bytes, lines = (0, 1) if line is None else (line.size, line.lines)
        stream.give(lambda: None if self._killed() else show(), replaces, line_bytes, lines)

    def _wait(self) -> None:
        """Wait for both streams, and tell one what the other lacks."""
        self._deadline = math.inf
        self._await(self._out)
        if self._errors is not self._out:
            self._tell_lacking()
            self._deadline = max(self._deadline, time.monotonic() + TOLD_S)
            self._await(self._errors)

    def _await(self, stream: HandOver) -> None:
        if stream not in self._stuck and not stream.finish(lambda done: self._patiently(stream, done)):
            self._stuck.add(stream)

    def _patiently(self, stream: HandOver, done: threading.Event) -> None:
        since = time.monotonic()
        while not done.wait(STEP_S):
            if self._deadline == math.inf and self._hurried():
                self._deadline = time.monotonic() + HURRIED_S
            now = time.monotonic()
            if now >= self._deadline:
                return
            if now - since >= WAIT_TOLD_S and stream is self._out is not self._errors:
                self._tell_wait()

    def _tell_wait(self) -> None:
        """Tell once on standard error what the end waits for."""
        # Rule: a command that has nothing left to do says why it does not end. Nobody looks at the reader of a pipe.
        if not self._told_wait:
            self._told_wait = True
            line = LogLine("warning", WAITS, time.time())
            self._give(self._errors, lambda: say_error(line))

    def _tell_left_out(self, count: int) -> None:
        self._view.on_event(_left_out(count))
        self._left_out += count

    def _tell_errors_left_out(self, count: int) -> None:
        say_error(_left_out(count))

    def _lacking(self) -> int:
        """Count the lines that standard output lacks so far."""
        return self._left_out + self._out.lines_unmade

    def _tell_lacking(self) -> None:
        """Tell on standard error how many lines standard output lacks."""
        # Rule: tell the other stream, at the end, what this one lacks: in its place only its own reader sees it. The
        # result of a run is a line, too, and a reader who stands still does not get it.
        more = self._out in self._stuck
        lacking = self._lacking() + more
        if lacking > self._told:
            self._told = lacking
            line = LogLine("warning", _lacks(lacking, more), time.time())
            self._give(self._errors, lambda: say_error(line))


def _left_out(count: int) -> LogLine:
    return LogLine("warning", f"{count:,} lines were left out here: nobody read them in time.", time.time())


def _lacks(count: int, more: bool) -> str:
    lines = f"{many(count, 'line')} or more" if more else many(count, "line")
    return f"Standard output lacks {lines}: nobody read it in time."
