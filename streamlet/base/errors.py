"""The root of every error a user can meet, and the shape of its message.

A message is one paragraph that says what happened, where, why, and what to do. Each class carries the
process exit status it leads to, so that the edge decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

BAD_INPUT = 2
"""Exit status: refused before anything ran."""

EXIT_FAILED = 1
"""Exit status: something failed after the run had begun."""

INTERRUPTED = 130
"""Exit status: Ctrl-C, as shells expect it (128 + SIGINT)."""


def text_of(error: BaseException) -> str:
    """Return ``str(error)``, also where the user's ``__str__`` raises."""
    # Every message about somebody's code comes through here: telling of one error must not raise another.
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - the user's code
        return f"(its text could not be had: __str__ raised {type(broken).__name__})"


def hurts_one_tuple(error: BaseException) -> bool:
    """Tell whether user code's exception concerns its call alone, not the process."""
    # Rule: only these three are a wish to end something. What else is no Exception (a cancelled coroutine, a panic in
    # Rust, a time-out of gevent's) is raised by work on one tuple: a record that brings it about would end the run at
    # each start, whatever the poison policy says.
    return not isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit))


class StreamletError(Exception):
    """Base of all errors streamlet raises on purpose.

    ``message`` is the whole paragraph; ``exit_status`` is what ``streamlet`` ends with when the error
    reaches the command line. ``retriable`` says that the same act may succeed later without a change. ``trace`` is the
    traceback where it happened in another process. ``result`` is, of a run that failed, the RunResult that it had.
    """

    exit_status = EXIT_FAILED
    retriable = False
    trace = ""
    result: Any = None

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class BadInput(StreamletError):
    """The user's input cannot be used: nothing was started, nothing was changed."""

    exit_status = BAD_INPUT


class WrongArgument(BadInput, TypeError):
    """A call was given what it cannot take: another type than it says, or one where it wants several."""


class SettingError(BadInput):
    """An unknown setting, or a value that it cannot have."""


def refuse_all(problems: Iterable[str]) -> None:
    """Raise SettingError with every problem, a line each; nothing where there is none."""
    # All of them at once: who mends settings wants one list and not one error a start.
    if found := list(problems):
        raise SettingError("\n".join(found))


class ValueCannotTravel(StreamletError):
    """A tuple holds a value the wire cannot carry; raised by the ``emit`` that was given it."""


class BadEmit(ValueError):
    """An ``emit``, ``ack`` or ``fail`` that is refused where it is called.

    ``run_ends``: it came too late, and nothing else is wrong with it. ``called_at``: ``FILE:LINE``, where another
    thread made the call than the one that refused it.
    """

    def __init__(self, message: str, *, run_ends: bool = False) -> None:
        super().__init__(message)
        self.run_ends = run_ends
        self.called_at = ""


class NoRoom(BadEmit):
    """Too many calls of other threads wait: this emit was not taken, and may be tried again later."""
