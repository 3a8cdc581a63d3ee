"""One spout task with ``topology.delivery: exactly-once``: attempts, and the epochs in them. Pure.

An attempt reads from the committed offsets on. It says BEGIN to the bolt that commits, and only then asks for the
offsets: an earlier transaction may have been about to change them, and is over now. Its tuples form epochs; when all
trees of one are done, END and COMMIT go out (``components.epoch_tuples``). Any failure ends the attempt, and the next
one reads the same records again.

    OFF --may emit--> BEGINNING --acked--> OPENING --opened--> RUNNING --time is over--> CLOSING --all done--> ENDING
     ^                                                           ^                                               |
     |                                                           +------------------- END acked -----------------+
     +-- a failure, from anywhere: of a record by way of ASKING, so that its own failures are counted

An epoch that follows a failure has fewer records, down to one: a record that always fails is found, and those before it
are committed.

A record that a bolt sent to the dead letters is *spoilt*: nothing has to be found out, and the attempt goes on for a
moment, to hear of others. It ends when all its trees are over, without END, and the next one passes over all of them.
Times in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from streamlet.base.backoff import Backoff
from streamlet.components.epoch_tuples import ASK, BEGIN, COMMIT, END
from streamlet.components.spout import FailureCause
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.retry import NextTry

AGAIN = Backoff(initial=0.02, maximum=1.0)
"""Pauses between attempts that fail one after the other, by no record of this task."""

LOOK_FURTHER_S = 0.1
"""Seconds that an attempt emits on, at most, after a bolt sent a record of it to the dead letters."""

MANY = 1 << 20
"""Records of an epoch above which they are not bounded."""


class AttemptPhase(Enum):
    """The states of a task's attempt."""

    OFF = "between two attempts"
    BEGINNING = "waiting for earlier transactions"
    OPENING = "reading the committed offsets"
    RUNNING = "emitting"
    CLOSING = "waiting for trees"
    ENDING = "waiting for the others' trees"
    ASKING = "asking why a record failed"


class AttemptWork(Protocol):
    """The partitions of the task."""

    def may_emit(self) -> bool:
        """Return whether the task has its topic now."""

    def hold(self) -> None:
        """Read nothing more: nothing of the present epoch counts."""

    def reopen(self) -> None:
        """Begin to read from the committed offsets on."""

    def is_open(self) -> bool:
        """Return whether all partitions are."""

    def begins(self) -> None:
        """Note that all partitions stand at their committed offsets."""

    def has_moved(self) -> bool:
        """Return whether a position is beyond the last END."""

    def is_done(self) -> bool:
        """Return whether no tree is open."""

    def is_settled(self) -> bool:
        """Return whether no tree is open but of records that failed."""

    def has_read_all(self) -> bool:
        """Return whether there is nothing more to emit, ever."""

    def end(self) -> Any | None:
        """Return the offsets to commit, as they travel; None: not now."""

    def committed(self) -> None:
        """Note that these are committed."""

    def count_failure(self, partition: Partition) -> None:
        """Count a try of a record that failed."""

    def comes_again(self, partition: Partition, offset: int, cause: FailureCause, coming: NextTry) -> None:
        """Say that a record failed and is tried again."""

    def give_up(self, partition: Partition, offset: int, cause: FailureCause, tries: int) -> None:
        """Pass over a record from now on, or stop: its tries are used up."""

    def tell(self, kind: str, told: Any) -> int:
        """Emit a tuple for the bolt that commits; return its number."""


@dataclass(slots=True)
class Attempt:
    """The present attempt of a task, and failures of earlier ones."""

    work: AttemptWork
    interval_s: float
    retry: Backoff
    retry_limit: int
    """Failures of a record after which it is given up; 0: never."""
    uniform: Callable[[], float]
    phase: AttemptPhase = AttemptPhase.OFF
    draining: bool = False
    """The run ends: nothing more will be emitted."""
    tries: dict[tuple[Partition, int], int] = field(default_factory=dict)
    """Failures of records that are not committed."""
    not_before_s: float = 0.0
    records: int = 0
    """Emitted in the present epoch."""
    most: int = MANY
    """Records that the epoch may have."""
    closes_s: float | None = None
    """When the epoch ends; None: it has not begun."""
    attempts: int = 0
    _told: dict[int, str] = field(default_factory=dict)
    _suspect: tuple[Partition, int, FailureCause] | None = None
    _spoilt: bool = False
    """A record of the present epoch is to be passed over."""
    _committing: bool = False
    _in_a_row: int = 0
    _begun: bool = False
    """The bolt that commits may have tuples of this task in a transaction."""

    @property
    def may_emit(self) -> bool:
        """Whether records may be emitted."""
        return self.phase is AttemptPhase.RUNNING and self.records < self.most

    @property
    def left(self) -> int:
        """Records that the epoch may still have."""
        return self.most - self.records

    @property
    def is_idle(self) -> bool:
        """Whether all that was emitted is committed."""
        return self.phase is AttemptPhase.RUNNING and self.closes_s is None and not self._committing

    def poll(self, now_s: float) -> None:
        """Go on, as far as it goes."""
        if self.phase is AttemptPhase.OFF and self._may_begin(now_s):
            self.attempts += 1
            self._begun = not self.draining
            self._tell(BEGIN, None)
            self.phase = AttemptPhase.BEGINNING
        elif self.phase is AttemptPhase.OPENING and self.work.is_open():
            self.work.begins()
            self.phase = AttemptPhase.RUNNING
        if self.phase is AttemptPhase.RUNNING:
            self._close_if_due(now_s)
        if self.phase is AttemptPhase.CLOSING and self._spoilt:
            if self.work.is_settled():
                self._over(now_s)
        elif self.phase is AttemptPhase.CLOSING and not self._committing and self.work.is_done():
            self._end()

    def _may_begin(self, now_s: float) -> bool:
        # Rule: in a drain a task whose attempt is over says BEGIN once more, at once. The bolt aborts a transaction
        # that has tuples of it; without that the other tasks would wait for its END until the drain is cut short.
        due = self._begun if self.draining else now_s >= self.not_before_s
        return due and self.work.may_emit()

    def _close_if_due(self, now_s: float) -> None:
        if self.closes_s is None:
            if not self.work.has_moved():
                return
            # Tasks of one machine close at the same moments of its monotonic clock: a transaction waits for the last
            # one that has tuples in it.
            boundary = (now_s // self.interval_s + 1) * self.interval_s
            self.closes_s = boundary if boundary - now_s >= self.interval_s / 2 else boundary + self.interval_s
        if now_s >= self.closes_s or self.draining or self.records >= self.most or self.work.has_read_all():
            self.phase = AttemptPhase.CLOSING

    def _end(self) -> None:
        told = self.work.end()
        if told is None:
            return
        self._committing = True
        self._tell(END, told)
        self._tell(COMMIT, None)
        self.phase = AttemptPhase.ENDING

    def acked(self, number: int, now_s: float) -> None:
        """Take in that a tuple for the bolt that commits was acked."""
        kind = self._told.pop(number, None)
        if kind == BEGIN and self.draining:
            self.phase, self._begun = AttemptPhase.OFF, False
        elif kind == BEGIN:
            self.work.reopen()
            self.phase = AttemptPhase.OPENING
        elif kind == END:
            self._next_epoch()
        elif kind == COMMIT:
            self._committed()
        elif kind == ASK:
            self._count(now_s)
        if kind is not None:
            self.poll(now_s)

    def _next_epoch(self) -> None:
        if self.phase is AttemptPhase.ENDING:
            self.phase, self.closes_s, self.records = AttemptPhase.RUNNING, None, 0

    def _committed(self) -> None:
        # END is acked, too. Where its ack is still on the way it is not to be taken for that of the next one.
        self._next_epoch()
        self._told = {number: kind for number, kind in self._told.items() if kind != END}
        self._committing = False
        self._in_a_row = 0
        self.work.committed()
        self.most = min(2 * self.most, MANY)

    def failed(self, number: int, now_s: float) -> None:
        """Take in that such a tuple failed, or was lost: the attempt is over."""
        kind = self._told.pop(number, None)
        if kind == ASK or (kind is not None and self.phase is not AttemptPhase.ASKING):
            # An epoch that takes longer than a transaction may would fail for ever.
            self._shrink()
            self._over(now_s)

    def record_failed(
        self, partition: Partition, offset: int, cause: FailureCause, now_s: float, *, timed_out: bool = False
    ) -> None:
        """Take in that a tree failed, perhaps because the attempt is over."""
        # Rule: a tree that times out while the epoch waits for it counts no try. Nothing more is emitted meanwhile, and
        # a bolt that collects tuples waits for more of them: each record that it holds would be given up.
        if timed_out and self.phase is AttemptPhase.CLOSING:
            self._shrink()
            self._over(now_s)
        elif self.phase in (AttemptPhase.RUNNING, AttemptPhase.CLOSING, AttemptPhase.ENDING):
            self._suspect = partition, offset, cause
            self._tell(ASK, None)
            self.phase = AttemptPhase.ASKING

    def lost(self, now_s: float) -> None:
        """Take in that trees were lost with a worker or a link: by no record's fault."""
        if self.phase is not AttemptPhase.OFF:
            self._over(now_s)

    def parted(self, now_s: float) -> None:
        """Take in that offsets may mean other records now: failures of the old ones count no more."""
        self.tries.clear()
        self.lost(now_s)

    def spoil(self, now_s: float) -> None:
        """Take in that a record is to be passed over; others may follow."""
        # Rule: not over at once. Each attempt would find one record, or one batch of them, and all before it is done
        # again each time: where one record in fifty is sent to the dead letters, an epoch of thousands has dozens.
        if self.phase in (AttemptPhase.RUNNING, AttemptPhase.CLOSING):
            self._spoilt = True
            latest = now_s + LOOK_FURTHER_S
            self.closes_s = latest if self.closes_s is None else min(self.closes_s, latest)
            self.poll(now_s)

    def given_up(self, now_s: float) -> None:
        """Take in that a record is passed over from now on."""
        self.lost(now_s)

    def _count(self, now_s: float) -> None:
        assert self._suspect is not None
        partition, offset, cause = self._suspect
        tries = self.tries[partition, offset] = self.tries.get((partition, offset), 0) + 1
        self.work.count_failure(partition)
        self._shrink()
        if 0 < self.retry_limit < tries:
            self.work.give_up(partition, offset, cause, tries)
            self._over(now_s)  # it is tried no more, so nothing is to be waited for
            return
        delay_s = self.retry.delay(tries, self.uniform)
        most = self.retry_limit + 1 if self.retry_limit > 0 else 0
        self.work.comes_again(partition, offset, cause, NextTry(tries, most, now_s + delay_s))
        self._over(now_s, delay_s)

    def _over(self, now_s: float, delay_s: float | None = None) -> None:
        self._in_a_row += 1
        delay = AGAIN.delay(self._in_a_row, self.uniform) if delay_s is None else delay_s
        self.phase, self.not_before_s = AttemptPhase.OFF, now_s + delay
        self.closes_s, self.records, self._committing, self._suspect, self._spoilt = None, 0, False, None, False
        self._told.clear()
        self.work.hold()
        if self.draining:
            self.poll(now_s)

    def letter_failed(self, now_s: float) -> None:
        """Take in that a dead letter was not written: the attempt is over."""
        # No record's fault: what the brokers refuse for good ends the run where it is written.
        # Rule: while ASK is under way its answer alone says what the failure was. The abort that it brings fails the
        # letters, which mostly come home first: taken for the end, they would keep a try from being counted, each time.
        if self.phase not in (AttemptPhase.OFF, AttemptPhase.ASKING):
            self._shrink()
            self._over(now_s)

    def _shrink(self) -> None:
        if self.records:
            self.most = max(1, min(self.records, self.most) // 2)

    def tried(self, partition: Partition, offset: int) -> int:
        """Return the number of a record's present try."""
        return self.tries.get((partition, offset), 0) + 1

    def forget_below(self, partition: Partition, offset: int) -> None:
        """Forget the tries of committed records."""
        for known in [known for known in self.tries if known[0] == partition and known[1] < offset]:
            del self.tries[known]

    def _tell(self, kind: str, told: Any) -> None:
        self._told[self.work.tell(kind, told)] = kind
