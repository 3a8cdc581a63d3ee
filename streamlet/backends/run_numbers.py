"""Keeps the numbers of a run, of its living workers and of its dead. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from streamlet.backends.partition_rows import PartitionRows
from streamlet.backends.trees_owed import TreesOwed
from streamlet.backends.untracked_losses import UntrackedLosses
from streamlet.components.spout import Spout, hears_failures
from streamlet.model.plan import Plan
from streamlet.model.spec import SPOUT
from streamlet.runtime.tasks.task_stats import GAUGES, TaskStats, component_rows, merged
from streamlet.runtime.tasks.untracked_counts import Counted, FinalCounts, UntrackedCounts
from streamlet.runtime.worker.messages import Beat

IDLE_BEATS = 5
"""Heartbeats after which a spout that is asked, and emits nothing, has nothing to send again."""


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
        """Bolt -> untracked tuples for it that lost links of workers which died took along."""
        self.taken: Counter[str] = Counter()
        """Component -> tuples or trees that workers which died took along, at most."""
        self.losses = UntrackedLosses(plan)
        self._ended: dict[str, Mapping[str, Any]] = {}
        """Component -> sum of the last counters of its tasks whose worker was replaced."""
        self._owed = TreesOwed()
        self._asked: Counter[int] = Counter()
        """Worker -> heartbeats of its present epoch while its spouts were asked for tuples."""
        self._ends: str | None = None
        """Why the run has ended."""

    def heard(self, worker: int, beat: Beat, asked: bool = True) -> None:
        """Take a worker's heartbeat; ``asked``: its spouts were asked for tuples."""
        self.beats[worker] = beat
        self._asked[worker] += asked
        self.losses.heard(worker, Counted(*map(dict, (beat.done, beat.emitted, beat.handed))), beat.sent)
        self.partitions.heard(worker, beat.partitions)

    def ended_with(
        self, worker: int, final: FinalCounts, done: Mapping[int, int], unfinished: Mapping[int, int] | None = None
    ) -> None:
        """Take what a worker's page says beyond its last heartbeat.

        What its tasks gave up, kept and lost; ``done``: how many untracked tuples each is done with; ``unfinished``:
        each spout's messages that are neither acked nor given up, unless somebody replaces the worker.
        """
        # Rule: all three, as they stood together. With those that are kept from an earlier heartbeat, dead letters
        # written since would be told as records that nobody sends again.
        beat = self.beats.get(worker, Beat({}, [], 0, 0))
        # What waits, or was lost, is counted by the page, so what was done must be, too: each tuple is in one of them.
        since = Counter(done) - Counter(dict(beat.done))
        tasks = {**beat.tasks, **{task: self._with_executed(beat.tasks.get(task), since[task]) for task in since}}
        for name, counts in final._asdict().items():
            for task_id, count in counts.items():
                known = tasks.get(task_id) or TaskStats().snapshot()
                tasks[task_id] = {**known, name: max(count, known[name])}
        self.beats[worker] = dataclasses.replace(beat, tasks=tasks)
        if unfinished is not None:
            self._take_unfinished(worker, unfinished)

    def _take_unfinished(self, worker: int, unfinished: Mapping[int, int]) -> None:
        # Rule: the page, and no heartbeat: it is newer. Of a worker that hung for seconds before its end, or in its
        # first one, the run's last words told the count of its last heartbeat, or none.
        beat = self.beats[worker]
        tasks = {task_id: {**known, "open": unfinished.get(task_id, 0)} for task_id, known in beat.tasks.items()}
        for task_id in unfinished.keys() - tasks.keys():
            tasks[task_id] = {**TaskStats().snapshot(), "open": unfinished[task_id]}
        self.beats[worker] = dataclasses.replace(beat, tasks=tasks, unfinished=sum(unfinished.values()))

    def with_pages(self, pages: Mapping[int, UntrackedCounts]) -> RunNumbers:
        """Return these numbers with those on the pages of living workers. Any thread."""
        seen = copy(self)
        seen.beats, counts = dict(self.beats), {worker: page.look() for worker, page in pages.items()}
        seen.losses = self.losses.with_counts(counts)
        for worker, page in pages.items():
            seen.ended_with(worker, page.look_at_final(), counts[worker].done, page.look_at_open())
        return seen

    @staticmethod
    def _with_executed(snapshot: Mapping[str, Any] | None, more: int) -> Mapping[str, Any]:
        known = snapshot or TaskStats().snapshot()
        return {**known, "executed": known["executed"] + more}

    def are_known_of(self, worker: int) -> bool:
        """Tell whether a heartbeat of the worker had numbers."""
        return worker in self.beats and bool(self.beats[worker].tasks)

    def replaced(self, worker: int, pending: Mapping[int, int] | None = None) -> Counter[str]:
        """Keep the counters of a worker that died: a run's totals do not shrink.

        ``pending``: the messages that each of its spouts had open, where they have outlived it. Returns, by spout,
        those that nobody sends again: of a spout that hears of no failures.
        """
        beat = self.beats.pop(worker, None)
        self.lost.update(beat.lost if beat is not None else {})
        self.partitions.gone(worker)
        gone_for_good = self._note_open_at_death(worker, beat, pending)
        # The spouts of a replacement start over: what the old ones had still to send again is counted no more.
        for task_id, snapshot in beat.tasks.items() if beat else ():
            # What its components reported may be of a state that is gone with it.
            gone = dict.fromkeys(("unreplayed", "open", *GAUGES), 0)
            name, last = self._component_of(task_id), {**snapshot, **gone, "metrics": {}}
            if self._is_deaf(name):  # its failures are final, and its replacement sends none of them again
                last["given_up"] = max(snapshot["given_up"], snapshot["unreplayed"])
            # One sum and no list: a worker may be replaced any number of times.
            self._ended[name] = merged(self._ended[name], last) if name in self._ended else last
        return gone_for_good

    def _note_open_at_death(self, worker: int, beat: Beat | None, pending: Mapping[int, int] | None) -> Counter[str]:
        # Rule: a tree that was open when the worker of its spout died is not done. A spout that hears of failures owes
        # it until its replacement is asked for tuples; of any other it is lost.
        final: Counter[str] = Counter()
        for task in self._plan.tasks_on(worker):
            snapshot = beat.tasks.get(task.task_id) if beat is not None else None
            known = snapshot["open"] if snapshot is not None else 0
            if self._is_deaf(task.component):
                final[task.component] += known if pending is None else pending.get(task.task_id, 0)
            elif self._plan.topology.component(task.component).kind == SPOUT:
                # Rule: by the page where it has outlived the worker. What the last heartbeat told as open may be acked
                # since, and a replacement that has nothing to send would owe it for good.
                owed = known if pending is None else pending.get(task.task_id, 0)
                if self._had_nothing(worker, task.component):
                    self._owed.settle(task.task_id)
                self._owed.died(task.task_id, owed, snapshot["emitted"] if snapshot is not None else 0)
        self._asked.pop(worker, None)
        self.taken.update(+final)
        return +final

    def end(self, reason: str | None) -> None:
        """Note that the run has ended, and why."""
        self._ends = reason

    def rows(self, ended: bool = False) -> list[dict[str, Any]]:
        """Return a row for each component, with all that was counted.

        ``ended``: what waited is done, or counted as lost.
        """
        pairs = list(self._ended.items())
        for beat in self.beats.values():
            pairs += [(self._component_of(task_id), snapshot) for task_id, snapshot in beat.tasks.items()]
        rows = component_rows(self._plan.topology, pairs, self._ends == "caught_up")
        lost = self.lost + self.left + self.taken
        for beat in self.beats.values():
            lost.update(beat.lost)
        owed, waiting = self._owed_by_spout(), Counter() if ended else self.losses.waiting()
        doubt = self._in_doubt_by_spout()
        for row in rows:
            row["untracked"] = waiting[row["name"]]
            row["lost"] += lost[row["name"]]
            row["taken"] = self.taken[row["name"]]
            row["open"] += owed[row["name"]]
            row["owed"] = owed[row["name"]]
            row["in_doubt"] = doubt[row["name"]]
        return rows

    def owes(self) -> bool:
        """Tell whether trees of a dead worker have not come again."""
        return bool(self._owed_by_spout())

    def _owed_by_spout(self) -> Counter[str]:
        return self._by_spout(self._owed.owed)

    def _in_doubt_by_spout(self) -> Counter[str]:
        # One that answers for failures begins again with what was open: that is its promise.
        doubt = self._by_spout(self._owed.in_doubt)
        return Counter({name: count for name, count in doubt.items() if not self._answers(name)})

    def _by_spout(self, count: Callable[[int, int], int]) -> Counter[str]:
        found: Counter[str] = Counter()
        # A spout that says that it has caught up has sent all again.
        for task in self._plan.tasks if self._ends != "caught_up" else ():
            if self._had_nothing(task.worker, task.component):
                continue
            beat = self.beats.get(task.worker)
            snapshot = beat.tasks.get(task.task_id) if beat is not None else None
            found[task.component] += count(task.task_id, snapshot["emitted"] if snapshot is not None else 0)
        return +found

    def _had_nothing(self, worker: int, component: str) -> bool:
        """Tell whether a spout that was asked had nothing to send again."""
        # Rule: one that answers for failures begins with what was open. The page of a dead worker is older by a turn
        # than its death: what was acked in that would be owed for good.
        return self._asked[worker] >= IDLE_BEATS and self._answers(component)

    def _answers(self, component: str) -> bool:
        return bool(getattr(self._plan.topology.component(component).cls, "answers_for_failures", False))

    def _is_deaf(self, component: str) -> bool:
        cls = self._plan.topology.component(component).cls
        return issubclass(cls, Spout) and not hears_failures(cls)

    def unfinished(self) -> int:
        """Count messages neither acked nor given up."""
        # Rule: count failures that wait to be sent again as open, while the run goes on too. Where everything fails no
        # tree is open for most of the time, and the run would seem to have nothing to do.
        if self._ends == "caught_up":  # then what failed is given up
            return sum(row["open"] for row in self.rows(ended=True))
        return sum(beat.unfinished for beat in self.beats.values()) + self._owed_by_spout().total()

    def hanging(self) -> tuple[dict[str, Any], ...]:
        """Return the calls that hang, with worker and component."""
        return tuple(
            {"worker": index, "component": self._component_of(row["task"]), **row}
            for index, beat in self.beats.items()
            for row in beat.hanging
        )

    def _component_of(self, task_id: int) -> str:
        return self._plan.tasks[task_id - 1].component
