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


class _Shown(logging.Handler):
    def __init__(self, show: Callable[[str, str], None]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._show(record.levelname.lower(), log_text(record))
        except Exception:  # noqa: BLE001 - logging's own rule: a line that cannot be shown stops nobody's work
            self.handleError(record)


@contextlib.contextmanager
def logs_shown(show: Callable[[str, str], None], debug: bool) -> Iterator[None]:
    """Pass every logged line of this process to ``show`` while entered.

    ``show`` gets (level, line), on the thread that logs it.
    """
    root = logging.getLogger()
    handler, level = _Shown(show), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    for noisy in ("kazoo", "py4j"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
