"""The log file of a run: every line with its origin, on a thread of its own.

A server of files that is away, a disk that is full or hangs, a pipe whose reader stands still: each costs lines of the
file, which are counted, and nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from streamlet.base.errors import BadInput
from streamlet.base.hand_over import HandOver
from streamlet.base.log_line import LogLine, Repeats, as_json, as_text, kind_of, together
from streamlet.base.rotated_file import RotatedFile

ANSWER_S = 5.0
"""Seconds that a disk may take over a write before it counts as one that hangs."""

AGAIN_S = 600.0
"""Seconds between two warnings that lines are missing."""

TEXT, JSON = "text", "json"

_FORMS: Mapping[str, Callable[[LogLine], str]] = {TEXT: as_text, JSON: as_json}

log = logging.getLogger(__name__)


class LogUnavailable(BadInput):
    """The log file cannot be written."""


class Keeper(Protocol):
    """Keeps the lines of a run somewhere. All methods but ``begin`` and ``end`` return at once."""

    on_terminal: bool
    """Whether it shows them in the terminal, too, in place of the view."""
    stuck: bool
    """Whether something that the interpreter's own end would wait for has not returned."""

    def begin(self, line: LogLine) -> None:
        """Keep the first line. Raises BadInput when it cannot be kept."""

    def keep(self, line: LogLine, recorded: bool = False) -> None:
        """Keep a line. Any thread. ``recorded``: a log record of this process said it."""

    def write_due(self) -> None:
        """Do what time brings; called about once a second."""

    def end(self, lines: Sequence[LogLine]) -> None:
        """Keep the last lines; wait a while until everything is kept."""

    def last_words(self, line: LogLine) -> None:
        """Keep the last line of a process that is killed. On the thread of signals."""


class LogFile:
    """The file of a run's log, with repeats folded and counted."""

    def __init__(self, path: Path, form: str, max_bytes: int, backups: int, repeats_s: float) -> None:
        self._path = path
        self._form = _FORMS[form]
        self._file = RotatedFile(path, max_bytes, backups)
        self._repeats: Repeats[LogLine] = Repeats(repeats_s, together)
        self._missing = 0
        """Lines that could not be written since the last that could."""
        self._in_hand = 0
        """Lines of the write that has not returned."""
        self._last = 0
        """The last lines, until their write begins."""
        self._why = ""
        self._complained_s = float("-inf")
        self._complained_size = False
        self.on_terminal = self.stuck = False
        self._refused = False
        """Nothing runs: lines are only for the person who tried to start it."""
        self._ended = False
        """The last lines are written, or were given up."""
        self._began_s: float | None = None
        """When the write began that has not returned; None between two."""
        self._writer = HandOver("log-file", self._left_out, self._failed)

    def begin(self, line: LogLine) -> None:
        """Write the first line. Raises LogUnavailable: nothing runs yet."""
        raised: list[OSError] = []

        def write() -> None:
            try:
                self._append([line])
            except OSError as error:
                raised.append(error)

        self._writer.give(write)
        if not self._answered():
            raise self._unavailable(
                f"what is there does not answer within {ANSWER_S:g} s (a disk that hangs, or a pipe without a reader)"
            )
        if raised:
            raise self._unavailable(raised[0].strerror or str(raised[0])) from raised[0]

    def _unavailable(self, why: str) -> LogUnavailable:
        self._refused = True
        self._writer.end(self._file.close)
        return LogUnavailable(
            f"The log file {self._path} cannot be written: {why}. Name a file in a folder that exists and that you may "
            "write to (--log-file, or the setting streamlet.log.file). Nothing was started."
        )

    def keep(self, line: LogLine, recorded: bool = False) -> None:
        """Write a line soon, or count it. Any thread."""
        if not (self._refused or self._ended):
            self._writer.give(lambda: self._keep(line), line_bytes=line.size, lines=line.lines)

    def write_due(self) -> None:
        """Write repeats whose time has come; tell of a write that hangs."""
        self._writer.give(self._write_repeats, replaces="repeats")
        began_s = self._began_s
        if began_s is not None and (since_s := time.monotonic() - began_s) >= ANSWER_S:
            self._complain(f"its disk, or the reader of its pipe, has not answered for {since_s:.0f} s")

    def end(self, lines: Sequence[LogLine]) -> None:
        """Write the last lines, for a while; tell how many are missing."""
        if self._refused:
            return
        self._last = len(lines)
        self._writer.give(lambda: self._write_last(lines))
        answered = self._answered()
        # Rule: nothing is written once a warning says what the file lacks. It is a line, too, and came back here:
        # the process ended in the middle of its write, and a part of a line stayed in a file without room.
        self._ended = True
        if not answered:
            # Rule: tell at the end how many lines are missing, whether the file answers or hangs. Nobody writes it in
            # their place any more, and a warning of before said only that there are some.
            log.warning(
                "The log file %s may lack %s: its disk, or the reader of its pipe, does not answer.",
                self._path,
                _lines(self._unwritten()),
            )
        elif self._missing:
            log.warning("The log file %s lacks its last %s: %s.", self._path, _lines(self._missing), self._why)
        # Rule: a program may make a thousand runs: each gives its thread and its descriptor back.
        self._writer.end(self._file.close)

    def last_words(self, line: LogLine) -> None:
        """Write the last line at once, on this thread."""
        # The process ends right afterwards, so nobody else writes again.
        with contextlib.suppress(OSError, ValueError):
            self._append([*self._folded(self._repeats.flush()), line])

    # -- on the thread that writes -------------------------------------------------------------------------------------

    def _keep(self, line: LogLine) -> None:
        self._write(self._folded(self._repeats.pass_on(kind_of(line), line, line.size, time.monotonic())))

    def _write_repeats(self) -> None:
        self._write(self._folded(self._repeats.over(time.monotonic())))

    def _folded(self, told: list[tuple[LogLine, int]]) -> list[LogLine]:
        return [line._replace(repeated=count, trace="") if count else line for line, count in told]

    def _write_last(self, lines: Sequence[LogLine]) -> None:
        self._last = 0
        self._write([*self._folded(self._repeats.flush()), *lines])

    def _left_out(self, count: int) -> None:
        text = f"{count:,} lines were left out here: the log file did not take them in time."
        self._write([_about(text)._replace(left_out=count)])

    def _write(self, lines: list[LogLine]) -> None:
        if not lines and not self._missing:
            return
        told = [_about(f"Missing here: {_lines(self._missing)}. {self._why}.")] if self._missing else []
        self._in_hand = count = sum(line.lines for line in lines)
        try:
            self._append([*told, *lines])
        except OSError as error:  # a full disk must not end a run that works
            self._missing += count
            self._failed(error)
        else:
            self._missing = 0
        self._in_hand = 0
        too_long = self._file.too_long
        if too_long is not None and not self._complained_size:
            self._complained_size = True
            log.warning(
                "The log file %s grows beyond streamlet.log.max.bytes: it cannot be put aside as %s.1: %s.",
                self._path, self._path.name, too_long.strerror
            )  # fmt: skip

    def _append(self, lines: list[LogLine]) -> None:
        data = "".join(self._form(line) + "\n" for line in lines).encode("utf-8", "backslashreplace")
        self._began_s = time.monotonic()
        try:
            self._file.append(data)
        finally:
            self._began_s = None

    def _failed(self, error: Exception) -> None:
        self._why = (error.strerror if isinstance(error, OSError) else None) or repr(error)
        self._complain(self._why)

    # -- on any thread -------------------------------------------------------------------------------------------------

    def _complain(self, why: str) -> None:
        # A disk that is nearly full takes a short line now and then: that is no news each time.
        now_s = time.monotonic()
        if now_s - self._complained_s >= AGAIN_S:
            self._complained_s = now_s
            log.warning("The log file %s lacks lines: %s. The run goes on.", self._path, why)

    def _unwritten(self) -> int:
        """Count the lines that the file may lack, while its write hangs."""
        return self._missing + self._in_hand + self._writer.lines_unmade + self._last

    def _answered(self) -> bool:
        """Wait for the file; tell whether everything is written."""
        # A write that hangs has used up its time already, so a run that ends waits no second time.
        began_s = self._began_s
        waited_s = time.monotonic() - began_s if began_s is not None else 0.0
        return self._writer.finish(lambda done: done.wait(max(0.1, ANSWER_S - waited_s)))


def _about(text: str) -> LogLine:
    return LogLine("warning", text, time.time())


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count:,} lines"


def log_file(conf: Mapping[str, Any]) -> LogFile | None:
    """Return the log file that the settings name, if any."""
    path = conf["streamlet.log.file"]
    if path is None:
        return None
    return LogFile(
        Path(path),
        conf["streamlet.log.format"],
        conf["streamlet.log.max.bytes"],
        conf["streamlet.log.backups"],
        conf["streamlet.log.repeats.secs"],
    )
