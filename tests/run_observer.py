"""An observer of runs that keeps everything, for the tests of all backends."""

from __future__ import annotations

from streamlet.backends.contract import RunStatus
from streamlet.base.log_line import LogLine
from streamlet.runtime.worker.log_lines import shown_text


class Watcher:
    """Statuses and events, in the order in which they came."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.lines: list[LogLine] = []
        self.statuses: list[RunStatus] = []

    @property
    def texts(self) -> list[str]:
        return [text for _level, text in self.events]

    def on_status(self, status: RunStatus) -> None:
        self.statuses.append(status)

    def on_event(self, line: LogLine) -> None:
        self.lines.append(line)
        self.events.append((line.level, shown_text(line)))
