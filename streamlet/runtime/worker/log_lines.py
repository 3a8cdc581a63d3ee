"""Log records as lines with their origin, alike from the coordinating process and every worker."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from streamlet.base.errors import text_of
from streamlet.base.log_line import LogLine, Origin
from streamlet.base.printable import cut
from streamlet.components.component import COMPONENT_LOGGER
from streamlet.runtime.tasks.in_hand import TASK

SHOWN = "streamlet_shown"
"""Attribute of a record that was made of a line, and has been shown."""

ABOUT = "streamlet_about"
"""Attribute of a record that is about a task: its component and number. Another thread may log it than the task's."""


# -- where a line comes from -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """A thread's loop: its tasks, and the page that says which one works."""

    words: Sequence[int]
    components: Mapping[int, str]
    """Task -> component, of the tasks that live here."""
    worker: int
    epoch: int


_places: dict[int, Place] = {}
"""Thread -> the loop that it runs."""


@contextlib.contextmanager
def at_work(place: Place) -> Iterator[None]:
    """Name the tasks of this thread's loop in every line while entered."""
    thread = threading.get_ident()
    _places[thread] = place
    try:
        yield
    finally:
        del _places[thread]


def runs_a_loop() -> bool:
    """Tell whether the calling thread runs the loop of a worker."""
    return threading.get_ident() in _places


def prints_of(thread: int) -> bool:
    """Tell whether this print is a component's, in that thread's loop."""
    return threading.get_ident() == thread and runs_a_loop() and not getattr(_passed_on, "here", False)


def origin_here(logger: str) -> Origin:
    """Return where a line of this thread comes from."""
    place = _places.get(threading.get_ident())
    origin = Origin(logger)
    if place is not None:
        task = int(place.words[TASK])
        component = place.components.get(task, "")
        origin = Origin(logger, component, task if component else 0, place.worker, place.epoch)
    # No task is at work, or the thread is the user's own: a component's logger still says whose it is.
    if not origin.component and logger.startswith(f"{COMPONENT_LOGGER}."):
        origin = _of_component(origin._replace(component=logger.removeprefix(f"{COMPONENT_LOGGER}.")))
    return origin


def _of_component(origin: Origin) -> Origin:
    """Add the worker and the task where only one is possible."""
    here = [(task, each) for each in list(_places.values()) for task, name in each.components.items()
            if name == origin.component]  # fmt: skip
    if len({each.worker for _, each in here}) == 1:
        origin = origin._replace(worker=here[0][1].worker, epoch=here[0][1].epoch)
    return origin._replace(task=here[0][0]) if len(here) == 1 else origin


# -- records as lines --------------------------------------------------------------------------------------------------


def line_of(record: logging.LogRecord) -> LogLine:
    """Return a record as a line. On the thread that logs it."""
    trace = ""
    if record.exc_info and record.exc_info[1] is not None:
        trace = "".join(traceback.format_exception(record.exc_info[1])).rstrip()
    elif record.exc_text:
        trace = record.exc_text
    if record.stack_info:
        trace = f"{trace}\n{record.stack_info}" if trace else record.stack_info
    origin = origin_here(record.name)
    about: tuple[str, int] | None = getattr(record, ABOUT, None)
    if about is not None:
        origin = _of_component(origin._replace(component=about[0]))._replace(task=about[1])
    return LogLine(record.levelname.lower(), message_of(record), record.created, origin, trace)


def message_of(record: logging.LogRecord) -> str:
    """Return a record's message; of a wrong log call, its parts and place."""
    # Rule: a log call that is wrong costs its own line. Left to logging, each is forty lines on standard error, most of
    # them ours, and none in the log.
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - a user's __str__ or format may raise anything
        parts = f"{_shortened(record.msg)} with {_shortened(record.args)}"
        why = f"{type(error).__name__}: {text_of(error)}"
        return f"The log call at {record.pathname}:{record.lineno} is wrong and says {parts} ({why})."


def _shortened(value: object) -> str:
    try:
        return cut(repr(value))
    except Exception:  # noqa: BLE001 - as above
        return f"a {type(value).__name__}"


def line_now(level: str, text: str, logger: str = "streamlet", component: str = "", task: int = 0) -> LogLine:
    """Return a line of this thread and moment; about a component, if one is named."""
    origin = origin_here(logger)
    if component:
        origin = origin._replace(component=component, task=task)
    return LogLine(level, text, time.time(), origin)


def is_own(line: LogLine) -> bool:
    """Tell whether streamlet itself logged this, not a component or a library."""
    logger = line.origin.logger
    return logger.partition(".")[0] == "streamlet" and not logger.startswith(f"{COMPONENT_LOGGER}.")


def shown_text(line: LogLine) -> str:
    """Return a line for a person who watches.

    ``count: message`` for a component's, the bare message for streamlet's own, ``logger: message`` for others'.
    """
    text, logger = line.text, line.origin.logger
    if logger.startswith(f"{COMPONENT_LOGGER}."):
        text = f"{logger.removeprefix(COMPONENT_LOGGER + '.')}: {text}"
    elif not is_own(line):
        text = f"{logger}: {text}"
    return f"{text}\n{line.trace}" if line.trace else text


_attached: list[tuple[logging.Logger, logging.Handler]] = []
"""The loggers and handlers of the run's log, which a topology must not part."""


class _Shown(logging.Handler):
    def __init__(self, show: Callable[[LogLine], None]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, SHOWN):
            return
        try:
            self._show(line_of(record))
        except Exception:  # noqa: BLE001 - logging's own rule: a line that cannot be shown stops nobody's work
            self.handleError(record)


_passed_on = threading.local()
"""``here`` is true on a thread that writes a record to standard error which is a line of the log already."""


_run_threads: list[int] = []
"""Threads of this program that have called a run which keeps its lines."""

_levels: list[int] = []
"""The level of the components' loggers before each run that keeps its lines; the first is the program's."""

_runs_change = threading.Lock()


class _OfThisRun(logging.Handler):
    """Keeps those records of a program that are its run's."""

    def __init__(self, keep: Callable[[LogLine], None]) -> None:
        super().__init__()
        self._keep = keep
        self._thread = threading.get_ident()

    def _is_ours(self, record: logging.LogRecord) -> bool:
        # Rule: what the thread of another run says is that run's. Of a thread that belongs to none nobody knows.
        here = threading.get_ident()
        if hasattr(record, SHOWN) or (here != self._thread and here in _run_threads):
            return False
        return runs_a_loop() or record.name.partition(".")[0] == "streamlet"

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._is_ours(record):
                self._keep(line_of(record))
        except Exception:  # noqa: BLE001 - as in _Shown.emit
            self.handleError(record)
        # A program without any handler sees its warnings by this one, which logging asks only if there is none at all.
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and self._is_alone(record.name):
            _passed_on.here = True
            try:
                last.handle(record)
            finally:
                _passed_on.here = False

    def _is_alone(self, name: str) -> bool:
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return True


@contextlib.contextmanager
def run_kept(keep: Callable[[LogLine], None]) -> Iterator[None]:
    """Pass a run's lines, out of a program's, to ``keep`` while entered."""
    # Levels are the program's own, but for components: what they say at INFO belongs into a file of theirs.
    components, thread = logging.getLogger(COMPONENT_LOGGER), threading.get_ident()
    with attached([(logging.getLogger(), _OfThisRun(keep))]):
        with _runs_change:
            _run_threads.append(thread)
            _levels.append(_levels[0] if _levels else components.level)
            components.setLevel(_levels[0] or logging.INFO)
        try:
            yield
        finally:
            with _runs_change:  # runs end in any order: the last one puts the level back
                _run_threads.remove(thread)
                level = _levels.pop()
                if not _levels:
                    components.setLevel(level)


def keep_shown() -> None:
    """Undo a topology's own ``dictConfig`` for the run's log, for nothing else.

    Called after each piece of user code that may configure logging: an import, ``initialize``.
    """
    # By its default it disables all loggers that are there, ours among them, and takes the root's handlers away: the
    # run would be silent about its errors, too.
    for logger, handler in _attached:
        if handler not in logger.handlers:
            logger.addHandler(handler)
    for name in list(logging.getLogger().manager.loggerDict):
        if name.partition(".")[0] == "streamlet":
            logging.getLogger(name).disabled = False


@contextlib.contextmanager
def attached(pairs: Sequence[tuple[logging.Logger, logging.Handler]]) -> Iterator[None]:
    """Keep handlers at their loggers while entered, whatever a topology configures."""
    for logger, handler in pairs:
        logger.addHandler(handler)
    _attached.extend(pairs)
    try:
        yield
    finally:
        for pair in pairs:
            pair[0].removeHandler(pair[1])
            _attached.remove(pair)


@contextlib.contextmanager
def logs_shown(show: Callable[[LogLine], None], debug: bool) -> Iterator[None]:
    """Pass every logged line to ``show`` while entered, on its thread."""
    root, ours = logging.getLogger(), logging.getLogger("streamlet")
    level, our_level = root.level, ours.level
    with attached([(root, _Shown(show))]):
        # Ours has a level of its own: a topology may set the root's.
        for logger in (root, ours):
            logger.setLevel(logging.DEBUG if debug else logging.INFO)
        for noisy in ("kazoo", "py4j"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        try:
            yield
        finally:
            root.setLevel(level)
            ours.setLevel(our_level)
