"""Limits of a close: short after Ctrl-C, and a warning when it takes long."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

HASTE_S = 4.0
"""Seconds that a close may take after Ctrl-C or exit(); threads get a second more to end."""
TOLD_AFTER_S = 2.0
"""Seconds before a close warns that it waits."""


def in_haste(kind: type[BaseException] | None) -> bool:
    """Return whether a ``with`` block is left because the program ends."""
    return kind is not None and issubclass(kind, (KeyboardInterrupt, SystemExit))


@contextlib.contextmanager
def telling(log: logging.Logger, limit_s: float, what: Callable[[], str]) -> Iterator[None]:
    """Warn once when the block takes long; ``what`` says why it waits."""
    # The warning comes from a timer's thread: the closing thread may be blocked in the very wait that it is about.
    if limit_s <= TOLD_AFTER_S:
        yield
        return

    def tell() -> None:
        log.warning("close() waits, at most %.0f s more: %s", limit_s - TOLD_AFTER_S, what())

    timer = threading.Timer(TOLD_AFTER_S, tell)
    timer.daemon = True
    try:
        with contextlib.suppress(RuntimeError):  # while the interpreter ends it starts no more threads
            timer.start()
        yield
    finally:
        timer.cancel()
