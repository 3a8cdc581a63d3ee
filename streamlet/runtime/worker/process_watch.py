"""Puts back what user code changed of its process and a run needs: the log, the handlers of signals."""

from __future__ import annotations

from streamlet.base.termination_signals import put_back
from streamlet.runtime.worker.held_watch import TellOfTask
from streamlet.runtime.worker.log_lines import keep_shown

LOOK_S = 1.0
"""Seconds between two looks."""


class ProcessWatch:
    """Looks after each call that may configure a process, and each second. On the loop's thread."""

    def __init__(self, tell: TellOfTask) -> None:
        self._tell = tell
        self._told: set[str] = set()
        """Signals that a line was about."""

    def look(self, whose: str, component: str = "", task: int = 0) -> None:
        """Put back the run's own; a line begins with ``whose`` code took it."""
        keep_shown()
        # Rule: in a worker the handlers are the run's. A library may set the system's own, or one that exits: the
        # worker then died first of a SIGTERM to the group, in the middle of the drain.
        new = [name for name in put_back() if name not in self._told]
        if new:
            self._told.update(new)
            self._tell(
                "warning",
                f"{whose} changed what {' and '.join(new)} does here, which was put back: the signal asks the run to "
                "drain, and a process that ended of it would leave tuples undone. What is to happen at the end of a "
                "run belongs in cleanup.",
                component,
                task,
            )
