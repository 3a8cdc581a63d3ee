"""Errors of users' bolts, told once and then counted: a bolt that fails each tuple must not flood a log."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

from streamlet.base.clock import Clock
from streamlet.base.errors import StreamletError, said
from streamlet.components.tuples import ACKED, FAILED
from streamlet.runtime.worker.user_errors import Defined, place, remedy

AGAIN_S = 10.0
"""The same error of the same component is told again after so long, with the number in between."""

logger = logging.getLogger("streamlet")


class Complaints:
    """Rate-limited reports. ``tell`` gets (level, one paragraph); the traceback goes to the log at DEBUG.

    ``first`` gets the paragraph of the first error of each kind of each component: what the end of a run may name.
    """

    def __init__(self, tell: Callable[[str, str], None], clock: Clock, first: Callable[[str], None]) -> None:
        self._tell = tell
        self._first = first
        self._clock = clock
        self._told: dict[tuple[str, str], tuple[float, int]] = {}

    def report(self, component: str, task_id: int, error: BaseException, tup: Any, defined: Defined = None) -> None:
        """An error of a component's own code, in a call of ``defined``."""
        kind = type(error).__name__
        now = self._clock.monotonic()
        last, unsaid = self._told.get((component, kind), (None, 0))
        if last is not None and now - last < AGAIN_S:
            self._told[component, kind] = (last, unsaid + 1)
            return
        self._told[component, kind] = (now, 0)
        text = _paragraph(component, task_id, error, tup, unsaid, defined)
        self._tell("error", text)
        if last is None:
            self._first(text)
        logger.debug("%s", "".join(traceback.format_exception(error)))

    def flush(self) -> None:
        """Tell how many were left untold."""
        for (component, kind), (_, unsaid) in self._told.items():
            if unsaid:
                self._tell("error", f"{component} raised {kind} {unsaid} more time(s).")
        self._told.clear()


def _paragraph(component: str, task_id: int, error: BaseException, tup: Any, unsaid: int, defined: Defined) -> str:
    again = f" ({unsaid} more since the last report)" if unsaid else ""
    if isinstance(error, StreamletError):
        return f"{said(error)}{again}"
    where = place(error, defined)
    at = f" at {where}" if where else ""
    what = f"on a tuple from {tup.component}" if tup is not None else "in process_tick"
    return (
        f"{component} (task {task_id}) raised {type(error).__name__}{at} {what}: {said(error)}{again}. "
        f"{remedy(error)}{_consequence(tup)}"
    )


def _consequence(tup: Any) -> str:
    """What the error means for the tuple; None is a tick."""
    if tup is None:
        return "No tuple has failed by it; the bolt goes on."
    on = "the bolt goes on with the next tuple."
    if not tup.root:
        return f"The tuple is not tracked, so no spout hears of it and nobody sends it again; {on}"
    if tup.state == FAILED:
        return f"The tuple's tree has failed and its spout has been told; {on}"
    if tup.state == ACKED:
        return f"The tuple had been acked before, so nothing has failed by it; {on}"
    return (
        "The bolt has auto_fail = False, so the tuple is neither acked nor failed: its tree fails when "
        f"topology.message.timeout.secs are over, unless the bolt acks or fails it; {on}"
    )
