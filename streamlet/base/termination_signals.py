"""Signals that end a run: kept back from a process that cannot hear them yet, and their handlers from user code."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Handler = Callable[[int, FrameType | None], Any]

_kept: dict[signal.Signals, Handler] = {}
"""Signal -> the handler that this process needs for it."""

_kept_wakeup: list[int] = []
"""The descriptor that this process reads signals from, if any."""


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


def keep(handler: Handler, numbers: Iterable[signal.Signals], wakeup: int | None = None) -> Callable[[], None]:
    """Install a handler for ``put_back`` to restore; return what undoes it.

    The number of a signal is also written to ``wakeup``, a descriptor, if given. Main thread only.
    """
    undo = contextlib.ExitStack()
    if wakeup is not None:  # first: a signal between the two would be written nowhere
        undo.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False))
        undo.callback(_kept_wakeup.remove, wakeup)
        _kept_wakeup.append(wakeup)
    for number in numbers:
        undo.callback(signal.signal, number, _install(number, handler))
        undo.callback(_kept.pop, number)
        _kept[number] = handler
    return undo.close


def put_back() -> list[str]:
    """Install the kept handlers that were replaced again; return their signals' names.

    Any thread: only the main one may change handlers, so only there something happens.
    """
    if threading.current_thread() is not threading.main_thread():
        return []
    # An asyncio loop with handlers of its own takes the descriptor, too, and leaves none.
    for descriptor in _kept_wakeup:
        signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    replaced = [number for number, handler in _kept.items() if signal.getsignal(number) is not handler]
    for number in replaced:
        _install(number, _kept[number])
    return [number.name for number in replaced]


def _install(number: signal.Signals, handler: Handler) -> Any:
    """Return the former handler."""
    former = signal.signal(number, handler)
    signal.siginterrupt(number, False)  # a C library of the user's need not know of interrupted calls
    return former
