"""Which tuples belong to the open transaction, and when it is committed or aborted. Pure.

With ``topology.delivery: exactly-once`` one task writes all records. Spouts tell it what ``components.epoch_tuples``
says. It is in one of these phases:

    CLOSED --begin--> OPENING --> READY --a tuple, or an end--> OPEN --all ends are here--> COMMITTING --> READY
       ^                                                       |  |                             |
       |                                 a record cannot be written                             | refused
       |                                                       v  v                             v
       +---- the producer is lost: from anywhere         DOOMED --ask, begin--> ABORTING <------+
                                                                                   +--> READY

- A spout task's *floor* is the root of its last BEGIN. Roots of a task grow with time, so a root tells whether its
  tuple is of the present attempt: all others are failed, and never written.
- A transaction is committed when every task of whose tuples it has some has sent its END. Nothing of theirs is under
  way then. Tuples that come while it is committed belong to the next one.
- After an abort every task must begin again: what it had sent is gone.
- In DOOMED a record has failed, and its spout has not asked why. Nothing else fails before: so that spout hears that
  its attempt stands, and counts a try against the record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from streamlet.components.epoch_tuples import ASK, BEGIN, COMMIT, END, EndOfEpoch
from streamlet.tracking.roots import NUMBER_BITS, owner_task
from streamlet.tracking.shared_roots import each_root

ATTEMPT_ROOTS = 1 << NUMBER_BITS + 2
"""Roots above its floor that an attempt may have."""


class CommitPhase(Enum):
    """The states of the task that commits."""

    CLOSED = "without a producer"
    OPENING = "taking over from earlier producers"
    READY = "without a transaction"
    OPEN = "in a transaction"
    DOOMED = "in a transaction of which a record failed"
    COMMITTING = "committing"
    ABORTING = "aborting"


BUSY = frozenset({CommitPhase.OPENING, CommitPhase.COMMITTING, CommitPhase.ABORTING})
"""Phases that an answer of Kafka's ends; everything waits for it."""


@dataclass(frozen=True, slots=True)
class Told:
    """A tuple of a spout's about its epochs; ``token`` acks or fails it."""

    kind: str
    task: int
    root: int
    token: Hashable
    told: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Tuples:
    """Tuples to write: the roots of each, and the batch they are."""

    roots: Sequence[Any]
    batch: Any


class Port(Protocol):
    """Gives orders to the producer, and answers to spouts."""

    def open_session(self) -> None:
        """Take over from earlier producers; ``ended`` is called then."""

    def begin(self) -> None:
        """Begin a transaction, at once."""

    def commit(self, ends: Sequence[EndOfEpoch]) -> None:
        """Store these offsets and commit; ``ended`` is called then."""

    def abort(self) -> None:
        """Fail all tuples under way and abort; ``ended`` is called then."""

    def close_session(self) -> None:
        """Fail all tuples under way and drop the producer."""

    def write(self, tuples: Tuples, refused: Sequence[int]) -> None:
        """Write a batch but for some places of it, which fail."""

    def untracked(self, tuples: Tuples) -> None:
        """Refuse a batch that has tuples without a root."""

    def ack(self, token: Hashable) -> None:
        """Ack a tuple of a spout's."""

    def fail(self, token: Hashable) -> None:
        """Fail a tuple of a spout's: its attempt is over."""


@dataclass(slots=True)
class Epochs:
    """The transactions of one task. On the worker's loop."""

    port: Port
    phase: CommitPhase = CommitPhase.CLOSED
    floors: dict[int, int] = field(default_factory=dict)
    """Spout task -> root of its BEGIN."""
    contributors: set[int] = field(default_factory=set)
    """Spout tasks of whose tuples the transaction has some."""
    ends: dict[int, Told] = field(default_factory=dict)
    """The END of each task that has sent one for this transaction."""
    commits: list[Told] = field(default_factory=list)
    """COMMIT of these."""
    held: deque[Told | Tuples] = field(default_factory=deque)
    """What waits for an answer of Kafka's, in order."""
    committed: int = 0
    """Transactions so far."""
    aborted: int = 0

    # -- what comes

    def take(self, item: Told | Tuples) -> None:
        """Take in what spouts and bolts sent."""
        if self.phase in BUSY or (self.phase is CommitPhase.DOOMED and not _is_answer_to_failure(item)):
            self.held.append(item)
        elif isinstance(item, Tuples):
            self._write(item)
        elif item.kind == BEGIN:
            self._begun(item)
        elif item.kind == END:
            self._end(item)
        elif item.kind == COMMIT:
            self._wait_for_commit(item)
        else:
            assert item.kind == ASK
            self._asked(item)

    def record_failed(self) -> None:
        """Note that a record of the transaction cannot be written; its tuple has failed."""
        if self.phase is CommitPhase.OPEN:
            self.phase = CommitPhase.DOOMED

    def give_up(self) -> None:
        """Abort the transaction, by no record's fault."""
        if self.phase in (CommitPhase.OPEN, CommitPhase.DOOMED):
            self._abort()

    def ended(self, failed: bool = False) -> None:
        """Note that Kafka has answered; the producer lives on."""
        was, self.phase = self.phase, CommitPhase.READY
        if was is CommitPhase.COMMITTING:
            if failed:
                self._abort()
                return
            self._committed()
        self._take_held()

    def lost(self) -> None:
        """Note that the producer can be used no more: another one took over, or it failed for good."""
        was, self.phase = self.phase, CommitPhase.CLOSED
        self._forget()
        self.port.close_session()
        if was is CommitPhase.OPENING:
            # Failed, not asked again at once: their spouts pause before they try.
            held, self.held = self.held, deque()
            for item in held:
                if isinstance(item, Told) and item.kind == BEGIN:
                    self.port.fail(item.token)
                else:
                    self.held.append(item)
        self._take_held()

    # -- one by one

    def _begun(self, told: Told) -> None:
        if self.phase is CommitPhase.CLOSED:
            # Rule: only a BEGIN opens a session. A run whose spouts do not own the topic any more sends none, so it
            # never fences the producer of the run that does.
            self.phase = CommitPhase.OPENING
            self.held.append(told)
            self.port.open_session()
            return
        if self.phase is CommitPhase.DOOMED or told.task in self.contributors:
            self.held.append(told)
            self._abort()
            return
        self._leave(told.task)
        self.floors[told.task] = told.root
        self.port.ack(told.token)
        self._commit_if_complete()

    def _asked(self, told: Told) -> None:
        if not self._is_current(told):
            self.port.fail(told.token)
            return
        self.port.ack(told.token)
        # Who asks has heard of a failure, and will begin again: what is there of its attempt counts no more.
        if self.phase is CommitPhase.DOOMED or told.task in self.contributors:
            self._abort()
        else:
            self._leave(told.task)

    def _leave(self, task: int) -> None:
        """Forget a task of whose tuples the transaction has none."""
        self.floors.pop(task, None)
        left = [self.ends.pop(task)] if task in self.ends else []
        left += [one for one in self.commits if one.task == task]
        self.commits = [one for one in self.commits if one.task != task]
        for old in left:
            self.port.fail(old.token)

    def _write(self, tuples: Tuples) -> None:
        tasks, refused = self._judge(tuples.roots)
        if 0 in tasks:
            self.port.untracked(tuples)
            return
        if len(refused) < len(tuples.roots) and self.phase is CommitPhase.READY:
            self.phase = CommitPhase.OPEN
            self.port.begin()
        self.contributors |= tasks
        self.port.write(tuples, refused)

    def _end(self, told: Told) -> None:
        if not self._is_current(told):
            self.port.fail(told.token)
            return
        self.ends[told.task] = told
        self._commit_if_complete()

    def _wait_for_commit(self, told: Told) -> None:
        if told.task in self.ends:
            self.commits.append(told)
        else:
            # Its END came first, on the same way: the transaction of that is over, and after an abort no floor is left.
            (self.port.ack if self._is_current(told) else self.port.fail)(told.token)

    def _commit_if_complete(self) -> None:
        if not self.ends or not self.contributors <= self.ends.keys():
            return
        ends = [*self.ends.values()]
        if self.phase is CommitPhase.READY:  # offsets alone: all that was read was filtered out
            self.port.begin()
        self.phase = CommitPhase.COMMITTING
        for end in ends:
            self.port.ack(end.token)
        self.port.commit([EndOfEpoch.of(end.told) for end in ends])

    def _committed(self) -> None:
        self.committed += 1
        self.ends.clear()
        self.contributors.clear()
        commits, self.commits = self.commits, []
        for told in commits:
            self.port.ack(told.token)

    def _abort(self) -> None:
        self.phase = CommitPhase.ABORTING
        self.aborted += 1
        self._forget()
        self.port.abort()

    def _forget(self) -> None:
        # Rule: no floor outlives an abort, not that of a task without a tuple in the transaction either: who asks later
        # must hear that the attempt is over, and not that its record failed by itself.
        self.floors.clear()
        self.contributors.clear()
        waiting = [*self.ends.values(), *self.commits]
        self.ends.clear()
        self.commits.clear()
        for told in waiting:
            self.port.fail(told.token)

    def _take_held(self) -> None:
        """Take in held items, in order; some may be held again."""
        held, self.held = self.held, deque()
        try:
            while held:
                self.take(held.popleft())
        finally:
            # Rule: an error in one leaves the others where they were: what is dropped here is never acked or failed.
            self.held.extend(held)

    # -- roots

    def _is_current(self, told: Told) -> bool:
        return self._of_attempt(told.task, told.root)

    def _of_attempt(self, task: int, root: int) -> bool:
        floor = self.floors.get(task)
        return floor is not None and 0 <= root - floor < ATTEMPT_ROOTS

    def _judge(self, roots: Sequence[Any]) -> tuple[set[int], Sequence[int]]:
        """Return a batch's spout tasks, and the places of stale tuples.

        Stale: no present attempt sent it. Task 0: a tuple has no root.
        """
        try:
            low, high = min(roots), max(roots)
            task = owner_task(low)
        except TypeError:  # some have several trees
            return self._judge_each(roots)
        # The last roots of a task stand just below the first ones of the next task: the distance alone is not enough.
        if owner_task(high) == task and self._of_attempt(task, low) and self._of_attempt(task, high):
            return {task}, ()
        return self._judge_each(roots)

    def _judge_each(self, roots: Sequence[Any]) -> tuple[set[int], Sequence[int]]:
        tasks: set[int] = set()
        refused: list[int] = []
        last: object = None
        good = True
        half: set[int] = set()
        for at, root in enumerate(roots):
            if root is not last:  # neighbours mostly share one
                last = root
                trees = [*each_root(root if isinstance(root, list) else [root])]
                own = {owner_task(tree) for tree in trees}
                good = 0 not in trees and all(self._of_attempt(owner_task(tree), tree) for tree in trees)
                if good:
                    tasks |= own
                elif 0 in trees:
                    tasks.add(0)
                else:
                    half |= {owner_task(tree) for tree in trees if self._of_attempt(owner_task(tree), tree)}
            if not good:
                refused.append(at)
        # Rule: a tuple of a stale tree and a present one fails both, and the present record is not to blame: with its
        # floor gone its task hears that the attempt is over.
        for task in half:
            self.floors.pop(task, None)
        return tasks, refused


def _is_answer_to_failure(item: Told | Tuples) -> bool:
    return isinstance(item, Told) and item.kind in (ASK, BEGIN)
