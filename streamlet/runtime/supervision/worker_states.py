"""Where each worker of a run stands, and what a run that has stood still for long waits for. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from streamlet.runtime.links.dialing import Address
from streamlet.runtime.links.links import Traffic
from streamlet.runtime.supervision.link_watch import LinkWatch

UNWHOLE_S = 10.0
"""When no tuple has flowed for so long, it is said who is waited for."""


class WorkerState(Enum):
    """Where a worker stands in its life."""

    STARTING = "starting"
    READY = "ready"
    UP = "up"
    GONE = "gone"


@dataclass
class WorkerRecord:
    """What is known of one worker of one epoch; ``begun`` is the component that it was initialising of late."""

    state: WorkerState = WorkerState.GONE
    epoch: int = 0
    address: Address | None = None
    heard_s: float = 0.0
    initialized: bool = False
    begun: str = ""
    linked: int = 0
    drained: bool = False
    traffic: Traffic = ({}, {})
    caught_up: bool = False
    done: bool = True
    stopped: bool = False
    restart_at: float | None = None
    deaths: deque[float] = field(default_factory=deque)
    barren: int = 0
    """Starts in a row that brought up nothing. They may be so far apart that few of them fall into a window."""

    @property
    def lacks(self) -> str:
        """What keeps it from being linked, for a sentence about it; empty when nothing does."""
        if self.state is WorkerState.GONE:
            return "is to be started again"
        if self.state is WorkerState.STARTING:
            return "does not listen yet"
        last = f" (last begun: {self.begun})" if self.begun else ""
        return "" if self.initialized else f"is still initialising its components{last}"


class WaitNotice:
    """Says once of each time that no tuple may flow, when it has become long, what is waited for."""

    def __init__(self) -> None:
        self._since: float | None = None

    def waits_for(
        self,
        whole: bool,
        version: int,
        workers: Mapping[int, WorkerRecord],
        links: LinkWatch,
        called: Callable[[int], str],
        now: float,
    ) -> str:
        """A sentence if it is time for it, else nothing."""
        if whole or self._since is None:
            self._since = None if whole else now
            return ""
        if now - self._since < UNWHOLE_S:
            return ""
        self._since = math.inf
        lacking = [f"{called(index)} {worker.lacks}" for index, worker in workers.items() if worker.lacks]
        # Who initialises links to nobody: only when all are done is a link that no dial failed for a riddle.
        unlinked = {index for index, w in workers.items() if w.initialized and w.linked != version}
        said = "; ".join([*lacking, *links.unlinked(unlinked, riddles=not lacking)])
        return f"No tuple has flowed for {UNWHOLE_S:.0f} s: {said}." if said else ""
