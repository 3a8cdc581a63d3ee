"""Log records as lines for a person, alike from the coordinating process and every worker."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable, Iterator

from streamlet.components.component import COMPONENT_LOGGER


def log_text(record: logging.LogRecord) -> str:
    """Return the line of a record.

    ``count: message`` for a component's, the bare message for streamlet's own, ``logger: message`` for others'.
    """
    text = record.getMessage()
    if record.name.startswith(f"{COMPONENT_LOGGER}."):
        text = f"{record.name.removeprefix(COMPONENT_LOGGER + '.')}: {text}"
    elif record.name.partition(".")[0] != "streamlet":
        text = f"{record.name}: {text}"
    if record.exc_info and record.exc_info[1] is not None:
        text += "\n" + "".join(traceback.format_exception(record.exc_info[1])).rstrip()
    return text


_shown: list[logging.Handler] = []
"""The handlers in use: one of each ``logs_shown`` that is entered."""


class _Shown(logging.Handler):
    def __init__(self, show: Callable[[str, str], None]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._show(record.levelname.lower(), log_text(record))
        except Exception:  # noqa: BLE001 - logging's own rule: a line that cannot be shown stops nobody's work
            self.handleError(record)


def keep_shown() -> None:
    """Undo a topology's own ``dictConfig`` for the run's log, for nothing else.

    Called after each piece of user code that may configure logging: an import, ``initialize``.
    """
    # By its default it disables all loggers that are there, ours among them, and takes the root's handlers away: the
    # run would be silent about its errors, too.
    root = logging.getLogger()
    for handler in _shown:
        if handler not in root.handlers:
            root.addHandler(handler)
    for name in list(root.manager.loggerDict):
        if name.partition(".")[0] == "streamlet":
            logging.getLogger(name).disabled = False


@contextlib.contextmanager
def logs_shown(show: Callable[[str, str], None], debug: bool) -> Iterator[None]:
    """Pass every logged line of this process to ``show`` while entered.

    ``show`` gets (level, line), on the thread that logs it.
    """
    root, ours = logging.getLogger(), logging.getLogger("streamlet")
    handler, level, our_level = _Shown(show), root.level, ours.level
    root.addHandler(handler)
    _shown.append(handler)
    # Ours has a level of its own: a topology may set the root's.
    for logger in (root, ours):
        logger.setLevel(logging.DEBUG if debug else logging.INFO)
    for noisy in ("kazoo", "py4j"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.removeHandler(handler)
        _shown.remove(handler)
        root.setLevel(level)
        ours.setLevel(our_level)
