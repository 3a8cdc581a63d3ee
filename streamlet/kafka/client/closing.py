"""Limits of a close: short after Ctrl-C, and a warning when it takes long."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from streamlet.base.notices import told_if_slow

HASTE_S = 4.0
"""Seconds that a close may take after Ctrl-C or exit(); threads get a second more to end."""
TOLD_AFTER_S = 2.0
"""Seconds before a close warns that it waits."""


def in_haste(kind: type[BaseException] | None) -> bool:
    """Return whether a ``with`` block is left because the program ends."""
    return kind is not None and issubclass(kind, (KeyboardInterrupt, SystemExit))


def telling(log: logging.Logger, limit_s: float, what: Callable[[], str]) -> AbstractContextManager[None]:
    """Warn once when the block takes long; ``what`` says why it waits."""
    if limit_s <= TOLD_AFTER_S:
        return nullcontext()
    left_s = limit_s - TOLD_AFTER_S
    return told_if_slow(TOLD_AFTER_S, lambda: log.warning("close() waits, at most %.0f s more: %s", left_s, what()))
