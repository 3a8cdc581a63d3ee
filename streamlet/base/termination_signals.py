"""Signals that end a run, kept back from a process that cannot hear them yet."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_back() -> Iterator[None]:
    """Start processes with their termination signals blocked, until their ``let_in``."""
    # A program inherits the mask of the thread that starts it. It is the one thing of a new process that is there
    # before its first line is.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATION_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_in() -> None:
    """Let the termination signals come that ``held_back`` keeps waiting."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINATION_SIGNALS)
