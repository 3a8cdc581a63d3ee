"""The ``[logging]`` section of a settings file: the standard library's own configuration, for the lines of a run.

Its handlers run on a thread of their own: a disk that hangs under one costs its lines and nothing else.
Lines of workers are logged once more here, by the logger that said them, with ``component``, ``task``, ``worker`` and
``epoch`` as attributes of the record.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import logging.config
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamlet.backends.log_file import AGAIN_S, ANSWER_S
from streamlet.base.errors import SettingError
from streamlet.base.hand_over import HandOver
from streamlet.base.log_line import LogLine, Origin, Repeats, kind_of, together
from streamlet.cli.output import is_standard_output
from streamlet.runtime.worker.log_lines import SHOWN, attached, keep_shown, message_of, origin_here

log = logging.getLogger(__name__)


class BadLoggingSection(SettingError):
    """The section cannot be used."""


class LoggingSection:
    """The handlers and loggers of a settings file keep a run's lines."""

    def __init__(self, content: Mapping[str, Any], path: Path, repeats_s: float, as_json: bool = False) -> None:
        """Take a section; ``as_json``: standard output has JSON objects alone."""
        # The version is always 1, and to silence the loggers of a topology is in nobody's interest here.
        self._content = {"version": 1, "disable_existing_loggers": False, **content}
        self._path = path
        self._repeats: Repeats[LogLine] = Repeats(repeats_s, together)
        self._as_json = as_json
        self._undo = contextlib.ExitStack()
        self.stuck = False
        self._refused = False
        self._complained_s = float("-inf")
        self._began_s: float | None = None
        """When the call of a handler began that has not returned."""
        self.on_terminal = False
        """A handler writes to a standard stream: it shows the lines in place of the terminal's own."""
        self._thread = 0
        self._calls = HandOver("logging", self._left_out, self._failed)

    # -- the keeper ----------------------------------------------------------------------------------------------------

    def begin(self, line: LogLine) -> None:
        """Apply the section, and log the first line. Raises BadLoggingSection: nothing runs yet."""
        raised: list[Exception] = []

        def apply() -> None:
            try:
                self._thread = threading.get_ident()
                self._apply(line)
            except Exception as error:  # noqa: BLE001 - whatever the user's classes and functions raise
                raised.append(error)

        self._calls.give(apply)
        answered = self._calls.finish(lambda done: done.wait(ANSWER_S))
        if answered and not raised:
            self._relog_soon(line)
            return
        self._refused = True
        why = _words(raised[0]) if raised else f"one of its files does not answer within {ANSWER_S:g} s"
        raise BadLoggingSection(
            f"[logging] in {self._path} cannot be used: {why}. It is what Python's logging.config.dictConfig takes "
            "(formatters, handlers, loggers, root), and `streamlet docs logs` has an example. Nothing was started."
        ) from (raised[0] if raised else None)

    def keep(self, line: LogLine, recorded: bool = False) -> None:
        """Log a line again, unless a record of this process said it. Any thread."""
        if not recorded and not self._refused:
            self._calls.give(lambda: self._keep(line), line_bytes=line.size, lines=line.lines)

    def write_due(self) -> None:
        """Log repeats whose time has come; tell of a handler that hangs."""
        self._calls.give(lambda: self._relog(self._repeats.over(time.monotonic())), replaces="repeats")
        began_s = self._began_s
        if began_s is not None and time.monotonic() - began_s >= ANSWER_S:
            self._complain(f"one of its handlers has not returned for {time.monotonic() - began_s:.0f} s")

    def end(self, lines: Sequence[LogLine]) -> None:
        """Log the last lines, and give the handlers back."""
        if self._refused:
            return
        last = [*lines]
        self._calls.give(lambda: self._relog([*self._repeats.flush(), *((line, 0) for line in last)]))
        began_s = self._began_s
        waited_s = time.monotonic() - began_s if began_s is not None else 0.0
        if not self._calls.finish(lambda done: done.wait(max(0.1, ANSWER_S - waited_s))):
            self.stuck = True
            self._complain("one of its handlers does not return")
        self._undo.close()

    def last_words(self, line: LogLine) -> None:
        """Log the last line of a process that is killed; give it half a second."""
        self._relog_soon(line)
        self._calls.finish(lambda done: done.wait(0.5))

    # -- on the thread of the handlers ---------------------------------------------------------------------------------

    def _apply(self, line: LogLine) -> None:
        before = {id(handler) for logger in _loggers() for handler in logger.handlers}
        logging.config.dictConfig(self._content)
        if "streamlet" not in self._content.get("loggers", {}):
            logging.getLogger("streamlet").setLevel(logging.NOTSET)  # the level of the section's root, as all others
        deferred: dict[int, _Deferred] = {}
        pairs: list[tuple[logging.Logger, logging.Handler]] = []
        for logger in _loggers():
            for handler in [each for each in logger.handlers if id(each) not in before]:
                self._check(handler, line)
                logger.removeHandler(handler)
                pairs.append((logger, deferred.setdefault(id(handler), _Deferred(handler, self))))
        self._undo.enter_context(attached(pairs))
        self._undo.enter_context(_fields_filled())
        keep_shown()

    def _check(self, handler: logging.Handler, line: LogLine) -> None:
        """Format a line: a wrong formatter is refused before anything runs."""
        try:
            handler.format(_record(line))
        except Exception as error:
            raise ValueError(f"the formatter of handler {handler.name!r} fails with {_words(error)}") from error
        standard = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
        for each in _with_targets(handler):
            if self._as_json:
                _leave_standard_output(each)
            self.on_terminal |= getattr(each, "stream", self) in standard
        # Logging's own way prints a traceback for each line that a full disk does not take.
        handler.handleError = lambda record: self._failed(sys.exception())  # type: ignore[method-assign]  # of one object

    def _keep(self, line: LogLine) -> None:
        self._relog(self._repeats.pass_on(kind_of(line), line, line.size, time.monotonic()))

    def _relog(self, told: Sequence[tuple[LogLine, int]]) -> None:
        for line, count in told:
            often = "once" if count == 1 else f"{count:,} times"
            record = _record(line._replace(text=f"{line.text} (repeated {often})", trace="") if count else line)
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)

    def _left_out(self, count: int) -> None:
        text = f"{count:,} lines were left out here: a handler of [logging] did not take them in time."
        self._relog([(LogLine("warning", text, time.time()), 0)])

    def _failed(self, error: BaseException | None) -> None:
        self._complain(f"a handler failed with {_words(error)}" if error is not None else "a handler failed")

    # -- on any thread -------------------------------------------------------------------------------------------------

    def _relog_soon(self, line: LogLine) -> None:
        self._calls.give(lambda: self._relog([(line, 0)]))

    def handle(self, handler: logging.Handler, record: logging.LogRecord) -> None:
        """Have a handler take a record: at once on the thread of the handlers, else soon."""
        if threading.get_ident() == self._thread:
            self._handle(handler, record)
            return
        # Formatted here, as for any queue: what it is made of may change until the handler looks at it.
        kept = copy.copy(record)
        kept.msg, kept.args = message_of(record), None
        _fill(kept, origin_here(record.name))
        self._calls.give(lambda: self._handle(handler, kept), line_bytes=len(kept.msg) + 100)

    def _handle(self, handler: logging.Handler, record: logging.LogRecord) -> None:
        self._began_s = time.monotonic()
        try:
            handler.handle(record)
        finally:
            self._began_s = None

    def _complain(self, why: str) -> None:
        now_s = time.monotonic()
        if now_s - self._complained_s >= AGAIN_S:
            self._complained_s = now_s
            log.warning("[logging] in %s lacks lines: %s. The run goes on.", self._path, why)


class _Deferred(logging.Handler):
    """Stands at a logger for a handler that runs on another thread."""

    def __init__(self, handler: logging.Handler, section: LoggingSection) -> None:
        super().__init__(handler.level)
        self._handler = handler
        self._section = section

    def handle(self, record: logging.LogRecord) -> bool:
        """Hand the record over, without the lock that every other handler takes."""
        # The thread of the handlers comes through here, too, and may stand in a write for ever: with the lock it would
        # hold up the next thread that logs.
        self._section.handle(self._handler, record)
        return True


def _leave_standard_output(handler: logging.Handler) -> None:
    """Have a handler on standard output write to standard error.

    Raises ValueError for one that opens it by name.
    """
    # Rule: one section serves a run with --json and one without. What a component prints goes to standard error then,
    # and so does this. ``ext://sys.stdout`` is standard error already: `run` has redirected it.
    stream = getattr(handler, "stream", None)
    if stream is not None and stream is sys.__stdout__:
        handler.stream = sys.stderr  # type: ignore[attr-defined]  # any handler's that has one
    elif stream not in (sys.stderr, sys.__stderr__) and _is_standard_output(stream, handler):
        raise ValueError(
            f"handler {handler.name!r} writes to the file of standard output, where --json has its objects"
        )


def _with_targets(handler: object) -> Iterator[logging.Handler]:
    """Yield a handler, and those that it passes records to."""
    while isinstance(handler, logging.Handler):
        yield handler
        handler = getattr(handler, "target", None)


def _is_standard_output(stream: Any, handler: logging.Handler) -> bool:
    """Tell whether a handler's file or pipe is standard output."""
    name = getattr(handler, "baseFilename", "")  # of one that opens its file at its first line
    try:
        return is_standard_output(Path(name).stat() if stream is None and name else os.fstat(stream.fileno()))
    except (OSError, AttributeError, ValueError):
        return False


def _loggers() -> list[logging.Logger]:
    root = logging.getLogger()
    return [root, *(each for each in list(root.manager.loggerDict.values()) if isinstance(each, logging.Logger))]


def _record(line: LogLine) -> logging.LogRecord:
    """Return a line as a record of the logger that said it."""
    level = logging.getLevelNamesMapping().get(line.level.upper(), logging.INFO)
    worker = line.origin.worker
    record = logging.makeLogRecord(
        {
            "name": line.origin.logger,
            "msg": line.text,
            "levelno": level,
            "levelname": logging.getLevelName(level),
            "created": line.time_s,
            "msecs": int(line.time_s * 1000) % 1000,
            "exc_text": line.trace or None,
            "processName": "run" if worker is None else f"worker-{worker}",
            SHOWN: True,
        }
    )
    _fill(record, line.origin, again=True)
    return record


def _fill(record: logging.LogRecord, origin: Origin, again: bool = False) -> None:
    """Set where a record comes from; ``-`` where nobody knows."""
    if again or not hasattr(record, "component"):
        record.component = origin.component or "-"
        record.task = origin.task or "-"
        record.worker = "-" if origin.worker is None else origin.worker
        record.epoch = origin.epoch or "-"


@contextlib.contextmanager
def _fields_filled() -> Any:
    """Give each record the attributes of a line while entered."""
    # Filters of loggers ask for them, too, and an error of such a filter would be raised where something is logged.
    before = logging.getLogRecordFactory()

    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = before(*args, **kwargs)
        _fill(record, origin_here(record.name or ""))
        return record

    logging.setLogRecordFactory(make)
    try:
        yield
    finally:
        logging.setLogRecordFactory(before)


def _words(error: BaseException) -> str:
    """Return an error and what caused it, in a line."""
    text = f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error)
    cause = error.__cause__
    return f"{text} ({_words(cause)})" if cause is not None and str(cause) not in text else text
