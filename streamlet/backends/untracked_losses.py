"""How many untracked tuples a dead worker took along, or nobody read at the end. Pure.

Nobody sends an untracked tuple again, so each one counts. Of the worker that died there are its own counts, which
outlive it (``runtime.tasks.untracked_counts``), or those of its last heartbeat; each other worker says what went each
way between the two, once it has read the dead one's last words. So with W dead and X living,

    lost on the way to W, or in it  =  sent to W by each X + emitted by W to itself - done by W
    lost on the way from W          =  emitted by W to X - read by X

where a count since the beginning of an epoch is less what went to, and came from, workers that have died since. Each
number is an upper bound: a slice at work counts as lost, though some of it was done.

A worker that closes says the same of all others, exactly. So of two that have closed,

    lost on the way from X to Y     =  sent to Y by X - read of X by Y
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from streamlet.model.plan import Plan
from streamlet.runtime.tasks.untracked_counts import Counted

_NO_COUNTS = Counted({}, {}, {})


class TupleLoss(NamedTuple):
    """One death, with the tuples that it took along, by bolt.

    Those that waited for the loop, from other threads, stand under the component that emitted them.
    """

    worker: int
    epoch: int
    ends: bool
    """Whether the run was ending: nobody takes the dead one's place."""
    tuples: Counter[str]


@dataclass
class _Known:
    """All counts of one epoch of a worker."""

    counts: Counted = _NO_COUNTS
    sent: Mapping[int, int] = field(default_factory=dict)
    read_of_dead: Counter[int] = field(default_factory=Counter)
    """What it had read of workers that died since, by its task."""
    sent_to_dead: Counter[int] = field(default_factory=Counter)
    """What it had sent to workers that died since, by their task."""


class _LastWords(NamedTuple):
    """What a worker had sent and read when it closed."""

    sent: Mapping[int, int]
    """By task elsewhere."""
    read: Mapping[int, Mapping[int, int]]
    """By worker, and task of its own."""


@dataclass
class _Death:
    worker: int
    epoch: int
    ends: bool
    known: _Known
    awaited: set[int]
    """The workers that have not told their part yet."""
    unasked: set[int] = field(default_factory=set)
    """Workers that will not tell it: what went to them is counted at their own deaths, or has arrived."""
    sent: Counter[int] = field(default_factory=Counter)
    read: Counter[int] = field(default_factory=Counter)


class UntrackedLosses:
    """All deaths of a run. Each is settled when every other worker has told its part, or never will."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._known: dict[int, _Known] = {}
        self._deaths: dict[tuple[int, int], _Death] = {}
        self._noted: set[tuple[int, int]] = set()
        self._closed: dict[int, _LastWords] = {}

    def heard(self, worker: int, counts: Counted, sent: Mapping[int, int]) -> None:
        """Take the counts of a worker's heartbeat."""
        known = self._of(worker)
        known.counts, known.sent = counts, sent

    def with_counts(self, counts: Mapping[int, Counted]) -> UntrackedLosses:
        """Return these with newer counts of living workers, for ``waiting``. Any thread."""
        seen = UntrackedLosses(self._plan)
        seen._known = dict(self._known)
        for worker, counted in counts.items():
            seen._known[worker] = replace(seen._of(worker), counts=counted)
        return seen

    def _of(self, worker: int) -> _Known:
        return self._known.setdefault(worker, _Known())

    def died(
        self, worker: int, epoch: int, counts: Counted | None, living: Collection[int], ends: bool
    ) -> list[TupleLoss]:
        """Note a death, once; return the losses known by it.

        ``counts``: those that have outlived it; ``living``: workers that will tell their part.
        """
        if (worker, epoch) in self._noted:
            return []
        self._noted = {(worker, epoch), *(each for each in self._noted if each[0] != worker)}
        known = self._known.pop(worker, _Known())
        known.counts = counts or known.counts
        death = _Death(worker, epoch, ends, known, {*living} - {worker})
        for other in self._deaths.values():
            if worker in other.awaited:
                other.awaited.discard(worker)
                self._part(other, death)
                self._part(death, other)
        self._deaths[worker, epoch] = death
        return self._settled()

    def _part(self, one: _Death, other: _Death) -> None:
        """Count what one of two dead workers was sent by the other."""
        one.unasked.add(other.worker)
        for task in self._tasks_on(one.worker):
            one.sent[task] += other.known.counts.emitted.get(task, 0) - other.known.sent_to_dead[task]

    def exchanged(
        self, worker: int, gone: int, epoch: int, sent: Mapping[int, int], read: Mapping[int, int]
    ) -> list[TupleLoss]:
        """Take a living worker's part of a death; return losses known by it."""
        known = self._of(worker)
        known.sent_to_dead.update(sent)
        known.read_of_dead.update(read)
        death = self._deaths.get((gone, epoch))
        if death is None or worker not in death.awaited:
            return []
        death.awaited.discard(worker)
        death.sent.update(sent)
        death.read.update(read)
        return self._settled()

    def closed(self, worker: int, sent: Mapping[int, int], read: Mapping[int, Mapping[int, int]]) -> list[TupleLoss]:
        """Take the last words of a worker that closes; return losses known by them."""
        self._closed[worker] = _LastWords(sent, read)
        for death in self._deaths.values():
            if worker in death.awaited:
                death.awaited.discard(worker)
                self._told_at_close(death, worker)
        return self._settled()

    def _told_at_close(self, death: _Death, worker: int) -> None:
        """Count a closed worker's part of a death."""
        sent, read = self._closed[worker]
        death.sent.update({task: sent.get(task, 0) for task in self._tasks_on(death.worker)})
        death.read.update(read.get(death.worker, {}))

    def on_the_way(self) -> Counter[str]:
        """Count by bolt what closed workers sent each other, and nobody read."""
        # Rule: the end of a run counts what lies between two workers, and trusts no order of their closing. One whose
        # call outlasts the drain sends what it emitted there to others that have closed, over links that are none.
        lost: Counter[str] = Counter()
        for task in self._plan.tasks:
            if task.worker in self._closed:
                read = self._closed[task.worker].read
                lost[task.component] += sum(
                    max(0, words.sent.get(task.task_id, 0) - read.get(worker, {}).get(task.task_id, 0))
                    for worker, words in self._closed.items()
                    if worker != task.worker
                )
        return +lost

    def waiting(self) -> Counter[str]:
        """Count untracked tuples that wait in living workers, by bolt."""
        # With those at work. By heartbeats, each of another moment: about, and never less than none.
        waits: Counter[str] = Counter()
        for task in self._plan.tasks:
            own, of = self._known.get(task.worker, _Known()), task.task_id
            went = sum(known.counts.emitted.get(of, 0) - known.sent_to_dead[of] for known in self._known.values())
            waits[task.component] += max(0, went + own.read_of_dead[of] - own.counts.done.get(of, 0))
            waits[task.component] += own.counts.handed.get(of, 0)
        return +waits

    def settle(self) -> list[TupleLoss]:
        """Settle all deaths at the end of a run: nobody tells more."""
        for death in self._deaths.values():
            for worker in death.awaited:
                if worker in self._closed:
                    self._told_at_close(death, worker)
                    continue
                # It never told: what was on the way to it is counted there.
                sent = self._of(worker).sent
                death.sent.update({task: sent.get(task, 0) for task in self._tasks_on(death.worker)})
                death.unasked.add(worker)
            death.awaited.clear()
        return self._settled()

    def _settled(self) -> list[TupleLoss]:
        over = [death for death in self._deaths.values() if not death.awaited]
        for death in over:
            del self._deaths[death.worker, death.epoch]
        losses = [TupleLoss(death.worker, death.epoch, death.ends, self._lost(death)) for death in over]
        return [loss for loss in losses if loss.tuples]

    def _lost(self, death: _Death) -> Counter[str]:
        done, emitted, handed = death.known.counts
        lost: Counter[str] = Counter()
        for task in self._plan.tasks:
            of = task.task_id
            if task.worker == death.worker:
                given = death.sent[of] + emitted.get(of, 0) + death.known.read_of_dead[of]
                lost[task.component] += max(0, given - done.get(of, 0)) + handed.get(of, 0)
            elif task.worker not in death.unasked:
                went = emitted.get(of, 0) - death.known.sent_to_dead[of]
                lost[task.component] += max(0, went - death.read[of])
        return +lost

    def _tasks_on(self, worker: int) -> list[int]:
        return [task.task_id for task in self._plan.tasks_on(worker)]
