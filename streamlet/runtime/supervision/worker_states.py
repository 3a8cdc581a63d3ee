"""The state of each worker of a run, and the notice about a run that stands still. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from streamlet.runtime.links.dialing import LinkAddress
from streamlet.runtime.links.links import Traffic
from streamlet.runtime.supervision.link_watch import LinkWatch
from streamlet.runtime.tasks.in_hand import Holding

UNWHOLE_S = 10.0
"""Seconds without a tuple before the user learns why the run waits."""


RETOLD_S = 30.0
"""Seconds before a changed reason is told while workers still do not start."""


class WorkerState(Enum):
    """The stages of a worker's life."""

    STARTING = "starting"
    READY = "ready"
    UP = "up"
    GONE = "gone"


@dataclass
class WorkerRecord:
    """Everything known of one worker of one epoch.

    Written by the supervisor alone. A replacement gets a new record, which takes over ``deaths`` and the counts of
    starts.
    """

    state: WorkerState = WorkerState.GONE
    epoch: int = 0
    address: LinkAddress | None = None
    heard_s: float = 0.0
    initialized: bool = False
    initializing: str = ""
    """The component that it was initialising when it was last heard."""
    linked: int = 0
    """The last version of the book whose links it all had."""
    drained: bool = False
    idle: bool = False
    """Its queues were empty when it was last heard, though trees may be open."""
    processed: int = 0
    """Tuples that its bolts have processed."""
    trees_done: int = 0
    """Trees of its spouts that are done."""
    wait_s: float = 0.0
    """Estimated seconds to work off its queues."""
    call_s: float = 0.0
    """Estimated seconds of a call of its slowest bolt."""
    traffic: Traffic = ({}, {})
    caught_up: bool = False
    done: bool = True
    stopped: bool = False
    restart_at: float | None = None
    used_s: float | None = None
    """Processor time that it had used at the last look, which was at ``looked_s``."""
    looked_s: float = -math.inf
    looks: list[tuple[float, float]] = field(default_factory=list)
    """The last looks of this silence: when, and the processor time used until then."""
    worked_s: float = -math.inf
    """When it was last seen to use its processor although it was silent."""
    halted: bool = False
    """A signal had stopped its process (SIGSTOP) at the last look of this silence."""
    halts: deque[float] = field(default_factory=deque)
    """When it was replaced because a signal had stopped it."""
    busy: bool = False
    """It is silent and works, and the user has read that."""
    holding: Holding | None = None
    """What it had in hand when somebody looked last."""
    has_plan: bool = False
    """It had read its plan by then; then it imports."""
    deaths: deque[tuple[float, float]] = field(default_factory=deque)
    """When it died, and how much that counts."""
    quick_deaths: int = 0
    """Deaths in a row, each soon after the one before: the pause before a start grows with them."""
    failed_starts: int = 0
    """Starts in a row that never came up. They may be so far apart that few of them fall into a window."""
    fruitless_starts: int = 0
    """Deaths in a row in an import, or in a component's own start: the next one would end there, too."""

    @property
    def lacks(self) -> str:
        """The reason why it cannot be linked, for a sentence; empty without one."""
        if self.state is WorkerState.GONE:
            return "is to be started again"
        if self.state is WorkerState.STARTING:
            return "does not listen yet"
        last = f" (last begun: {self.initializing})" if self.initializing else ""
        return "" if self.initialized else f"is still initialising its components{last}"


@dataclass(frozen=True, slots=True)
class HeldUp:
    """Workers that were started and cannot begin, and why."""

    workers: frozenset[tuple[int, int]] = frozenset()
    """Worker and epoch."""
    lacks: str = ""
    """What each of them lacks, for a sentence that begins with the worker."""
    why: str = ""
    """Why, and what to do, in sentences; empty where nobody knows."""


class WaitNotice:
    """A notice about a run that waits.

    It comes once for each time of waiting, and again with another reason.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._told_s: float | None = None
        self.told = ""
        """The reason why workers do not start, as it was told last."""

    def text(
        self,
        whole: bool,
        version: int,
        workers: Mapping[int, WorkerRecord],
        links: LinkWatch,
        name_of: Callable[[int], str],
        now: float,
        held: HeldUp = HeldUp(),
        began: bool = False,
    ) -> str:
        """Return a sentence if it is time for one.

        ``held``: what the launcher knows; ``began``: tuples have flowed in this run.
        """
        if whole or self._since is None:
            self._since, self._told_s, self.told = None if whole else now, None, ""
            return ""
        waits_s = now - self._since
        # A replacement has not been asked about yet, so an answer about an earlier epoch says nothing of it.
        stuck = {index for index, worker in workers.items() if (index, worker.epoch) in held.workers}
        stuck = {index for index in stuck if workers[index].state is WorkerState.STARTING}
        why = held.why if stuck else ""
        if waits_s < UNWHOLE_S or not self._is_news(why, now):
            return ""
        self._told_s, self.told = now, why
        lacks = {index: held.lacks if index in stuck else worker.lacks for index, worker in workers.items()}
        lacking = [f"{name_of(index)} {lack}" for index, lack in lacks.items() if lack]
        # A worker that initialises links to nobody. So a link that no failed dial explains is worth a word only when
        # all workers are through with that.
        unlinked = {index for index, w in workers.items() if w.initialized and w.linked != version}
        said = "; ".join([*lacking, *links.unlinked(unlinked, include_unexplained=not lacking)])
        if why:
            kept = "Nothing that was acked is lost; what was open is replayed, by this run once they have begun or by"
            why = f" {why}{f' {kept} the next one.' if began else ''}"
        return f"No tuple has flowed for {math.floor(waits_s)} s: {said}.{why}" if said else ""

    def _is_news(self, why: str, now: float) -> bool:
        # Told once for each time of waiting: the reason rarely changes, and a line each second would hide the others.
        if self._told_s is None:
            return True
        return why not in ("", self.told) and (not self.told or now - self._told_s >= RETOLD_S)
