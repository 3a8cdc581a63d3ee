"""Keeps the numbers of a run, of its living workers and of its dead. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

from streamlet.backends.partition_rows import PartitionRows
from streamlet.model.plan import Plan
from streamlet.runtime.tasks.in_hand import CALLS, Holding
from streamlet.runtime.tasks.task_stats import GAUGES, component_rows, merged
from streamlet.runtime.worker.messages import Beat

GAP_S = 1.0
"""Seconds, beside two heartbeats, after which a worker that dies had said nothing for long."""


class RunNumbers:
    """What the workers of one run have counted."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.beats: dict[int, Beat] = {}
        """Worker -> its last heartbeat, or the numbers that it was closed with."""
        self.partitions = PartitionRows()
        self.left: Counter[str] = Counter()
        """Bolt -> untracked tuples for it that the drain left."""
        self.lost: Counter[str] = Counter()
        """Bolt -> untracked tuples that waited for it in workers that died, or that links of these took along."""
        self.unknown: dict[int, str] = {}
        """Worker that died -> why nobody knows how many untracked tuples it held."""
        self._ended: dict[str, Mapping[str, Any]] = {}
        """Component -> sum of the last counters of its tasks whose worker was replaced."""

    def heard(self, worker: int, beat: Beat) -> None:
        """Take a worker's heartbeat."""
        self.beats[worker] = beat
        self.partitions.heard(worker, beat.partitions)

    def are_known_of(self, worker: int) -> bool:
        """Tell whether a heartbeat of the worker had numbers."""
        return worker in self.beats and bool(self.beats[worker].tasks)

    def held_untracked(self, worker: int) -> Counter[str]:
        """Count untracked tuples at, and on their way to, a dead worker."""
        # Rule: count what was sent and not read, too. A worker that hangs reads nothing: most that waits for it is in
        # sockets, and in no queue of its own.
        beat = self.beats.get(worker)
        held = Counter(beat.queued if beat is not None else {})
        for task in self._plan.tasks_on(worker):
            sent = sum(other.sent.get(task.task_id, 0) for at, other in self.beats.items() if at != worker)
            read = beat.received.get(task.task_id, 0) if beat is not None else 0
            held[task.component] += max(0, sent - read)
        return +held

    def note_uncounted(self, worker: int, held: Holding | None, silent_s: float, heartbeat_s: float) -> bool:
        """Note a worker that dies at work without a number of tuples; tell whether it does.

        ``held``: what its page says of it; ``silent_s``: seconds since it last said something.
        """
        # Rule: of a worker that holds the interpreter's lock nobody counts what waits in it. So say that, and fail the
        # run, where the tuples that it was at work on belong to no tree: nobody sends them, or those behind, again.
        late = silent_s > 2 * heartbeat_s + GAP_S
        if held is None or held.call != CALLS[0] or not held.untracked:
            return False
        if not 0 < held.task <= len(self._plan.tasks):  # a page may hold anything
            return False
        if not late and self.are_known_of(worker):
            return False
        said = f"had said nothing for {silent_s:.0f} s" if late else "had told no numbers yet"
        self.unknown[worker] = (
            f"How many tuples waited in worker {worker} when it was killed is not known: it was at work in "
            f"{self._component_of(held.task)} (task {held.task}), and {said}."
        )
        return True

    def replaced(self, worker: int) -> None:
        """Keep the counters of a worker that died: a run's totals do not shrink."""
        beat = self.beats.pop(worker, None)
        mine = {task.task_id for task in self._plan.tasks_on(worker)}
        for at, other in self.beats.items():  # counted once: the next death of this worker may come before their next
            sent = {task: count for task, count in other.sent.items() if task not in mine}
            self.beats[at] = dataclasses.replace(other, sent=sent)
        self.lost.update(beat.lost if beat is not None else {})
        self.partitions.gone(worker)
        # The spouts of a replacement start over: what the old ones had still to send again is counted no more.
        for task_id, snapshot in beat.tasks.items() if beat else ():
            # What its components reported may be of a state that is gone with it.
            gone = dict.fromkeys(("unreplayed", "open", *GAUGES), 0)
            name, last = self._component_of(task_id), {**snapshot, **gone, "metrics": {}}
            # One sum and no list: a worker may be replaced any number of times.
            self._ended[name] = merged(self._ended[name], last) if name in self._ended else last

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each component, with all that was counted."""
        pairs = list(self._ended.items())
        for beat in self.beats.values():
            pairs += [(self._component_of(task_id), snapshot) for task_id, snapshot in beat.tasks.items()]
        rows = component_rows(self._plan.topology, pairs)
        lost = self.lost + self.left
        for beat in self.beats.values():
            lost.update(beat.lost)
        for row in rows:
            row["lost"] += lost[row["name"]]
        return rows

    def open_trees(self, ended: bool) -> int:
        """Count open trees; ``ended``: those that the run leaves."""
        return sum(beat.unfinished if ended else beat.pending for beat in self.beats.values())

    def hanging(self) -> tuple[dict[str, Any], ...]:
        """Return the calls that hang, with worker and component."""
        return tuple(
            {"worker": index, "component": self._component_of(row["task"]), **row}
            for index, beat in self.beats.items()
            for row in beat.hanging
        )

    def _component_of(self, task_id: int) -> str:
        return self._plan.tasks[task_id - 1].component
