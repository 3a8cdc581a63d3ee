"""Show a run, and pass its lines to a log file or to the handlers of a ``[logging]`` section."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence

from streamlet.backends.contract import RunRequest, RunResult, RunStatus
from streamlet.backends.log_file import Keeper
from streamlet.base.errors import StreamletError
from streamlet.base.log_line import LogLine
from streamlet.cli.errors import explain
from streamlet.cli.show import View, ending, gone_lines, heading, is_event, killed, tick_lines


class KeptView:
    """Pass everything on to another view, and every line to keepers.

    Lines that stand on a standard stream already are kept, and not shown once more.
    """

    def __init__(self, keepers: Sequence[Keeper], view: View, as_json: bool = False) -> None:
        self._keepers = keepers
        self._as_json = as_json
        self._view = view
        self._status: RunStatus | None = None
        self.close = view.close

    def start(self, request: RunRequest, backend: str) -> None:
        for keeper in self._keepers:
            keeper.begin(_line("info", heading(request, backend)))
        self._view.start(request, backend)

    def on_status(self, status: RunStatus) -> None:
        self._status = status
        for keeper in self._keepers:
            keeper.write_due()
        self._view.on_status(status)

    def on_event(self, line: LogLine) -> None:
        self._keep(line)
        # With JSON it is an event on standard output, beside the log.
        if not line.printed and (self._as_json or not self._shown):
            self._view.on_event(line)

    def log(self, line: LogLine) -> None:
        self._keep(line, recorded=True)
        if not self._shown or (self._as_json and is_event(line)):  # as in `on_event`
            self._view.log(line)

    def notice(self, text: str) -> None:
        self._keep(_line("info", text))
        self._view.notice(text)

    def killed(self, exit_status: int, last: RunStatus | None) -> None:
        self._view.killed(exit_status, last)
        for keeper in self._keepers:
            keeper.last_words(_line("error", killed(last or self._status)))

    def finish(self, result: RunResult, exit_status: int = 0) -> None:
        self._end(
            *(
                _line("info", text)
                for text in (
                    *gone_lines(result.status),
                    *tick_lines(result.status),
                    ending(result, exit_status).rsplit("\n", 1)[-1],
                )
            )
        )
        self._view.finish(result, exit_status)

    def failed(self, error: BaseException, exit_status: int) -> None:
        trace: str = getattr(error, "trace", "")  # of the worker in which it happened
        if not trace and not isinstance(error, StreamletError):
            trace = "".join(traceback.format_exception(error))
        self._end(_line("error", explain(error)[0])._replace(trace=trace.rstrip()))
        self._view.failed(error, exit_status)

    @property
    def stuck(self) -> bool:
        """Whether the process should leave without waiting for a keeper."""
        return any(keeper.stuck for keeper in self._keepers)

    @property
    def _shown(self) -> bool:
        """Whether a keeper shows the lines in the terminal."""
        return any(keeper.on_terminal for keeper in self._keepers)

    def _keep(self, line: LogLine, recorded: bool = False) -> None:
        for keeper in self._keepers:
            keeper.keep(line, recorded)

    def _end(self, *lines: LogLine) -> None:
        for keeper in self._keepers:
            keeper.end(lines)


def _line(level: str, text: str) -> LogLine:
    return LogLine(level, text, time.time())
