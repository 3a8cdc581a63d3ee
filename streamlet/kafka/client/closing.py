"""How long a close may take: less when Ctrl-C asks for the end; and a long one says what it waits for."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

HASTE_S = 4.0
"""Who left a ``with`` block by Ctrl-C or exit() waits for so long; threads that are told to end get a second more."""
TOLD_AFTER_S = 2.0


def in_haste(kind: type[BaseException] | None) -> bool:
    """Whether a ``with`` block is left because the program is to end now."""
    return kind is not None and issubclass(kind, (KeyboardInterrupt, SystemExit))


@contextlib.contextmanager
def telling(log: logging.Logger, limit_s: float, what: Callable[[], str]) -> Iterator[None]:
    """Warn once when the block takes long, from a thread of its own; ``what`` is waited for, and how things stand."""
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
