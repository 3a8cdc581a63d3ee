"""A KafkaSpout's part in ``topology.delivery: exactly-once``: what ``attempt`` decides, done with its partitions.

Offsets are committed by the bolt that writes, never by the spout: so nothing of an open epoch is stored without its
records. On the worker's loop.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable
from typing import Any

from streamlet.base.printable import one_line
from streamlet.components.epoch_tuples import EPOCHS, LETTERS, EndOfEpoch, LetterRow
from streamlet.components.spout import FailReason, FailureCause
from streamlet.spouts.kafka.attempt import Attempt, AttemptPhase
from streamlet.spouts.kafka.coordinator import PartitionCoordinator
from streamlet.spouts.kafka.dead_letters.dead_letter import Fault, LastTry, RunStamp
from streamlet.spouts.kafka.dead_letters.epoch_letters import EpochLetters
from streamlet.spouts.kafka.dead_letters.letter_lines import LetterLines
from streamlet.spouts.kafka.errors import DEAD_LETTER, SKIP, STOP, PoisonRecord
from streamlet.spouts.kafka.failure_lines import FailureLines
from streamlet.spouts.kafka.manager import UNKNOWN, PartitionManager, tries_used_up
from streamlet.spouts.kafka.ownership.emit_gate import EmitGate
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.retry import NextTry
from streamlet.spouts.kafka.spout_config import SpoutConfig
from streamlet.spouts.kafka.stores.group_offsets import KafkaGroupOffsets
from streamlet.spouts.kafka.stores.offset_store import CommitPosition

log = logging.getLogger(__name__)

TOLD = -1
"""In place of a slot, in the message id of a tuple for the bolt that commits: about an epoch, or a dead letter."""


class ExactlyOnce:
    """One task's attempts. ``emit`` is the spout's, ``now`` the monotonic clock."""

    def __init__(
        self,
        config: SpoutConfig,
        interval_s: float,
        coordinator: PartitionCoordinator,
        store: KafkaGroupOffsets,
        gate: EmitGate[Any],
        emit: Callable[..., Any],
        now: Callable[[], float],
        uniform: Callable[[], float],
        stamp: RunStamp,
        logger: logging.Logger,
    ) -> None:
        self.attempt = Attempt(self, interval_s, config.retry_backoff(), config.retry_limit, uniform)
        self.poisoned: PoisonRecord | None = None
        self._config = config
        self._coordinator = coordinator
        self._store = store
        self._gate = gate
        self._emit = emit
        self._now = now
        self._numbers = itertools.count()
        self._failure_lines = FailureLines(logger)
        self.letters: EpochLetters | None = None
        """Dead letters; None: records that are given up are not kept."""
        if config.on_poison == DEAD_LETTER:
            self.letters = EpochLetters(config.dead_letter_topic, stamp, LetterLines(logger), self._emit_letter)
        self._positions: dict[PartitionManager, int] = {}
        """What the END under way commits."""
        coordinator.on_parted(self._parted)

    @property
    def managers(self) -> Iterable[PartitionManager]:
        """The partitions of the task."""
        return self._coordinator.get_my_managed_partitions()

    def poll(self) -> None:
        """Go on. Raises PoisonRecord."""
        if self.poisoned is not None:
            raise self.poisoned
        self.attempt.poll(self._now())

    def drain(self) -> None:
        """Commit the present epoch: the run ends."""
        self.attempt.draining = True
        self.attempt.poll(self._now())

    def acked(self, number: int, now_s: float) -> None:
        """Take in that a tuple for the bolt that commits was acked."""
        if self.letters is None or not self.letters.acked(number):
            self.attempt.acked(number, now_s)

    def not_taken(self, number: int) -> None:
        """Take in that such a tuple failed, or was lost."""
        if self.letters is not None and self.letters.failed(number):
            self.attempt.letter_failed(self._now())
        else:
            self.attempt.failed(number, self._now())

    def failed(
        self,
        manager: PartitionManager,
        offset: int,
        reason: FailReason,
        *,
        final: bool,
        cause: FailureCause = UNKNOWN,
        deaths: int = 0,
    ) -> None:
        """Take in that a record's tree failed; ``cause``: what the bolt said, ``deaths``: of workers at work on it."""
        now = self._now()
        if reason is FailReason.DEAD_LETTER:
            # Also where the attempt is over: the bolt's judgement stands, and is not asked for again.
            if manager.ledger.failed(offset):
                what = f"was sent to the dead letters by {cause.component}: {cause.text}"
                self._pass_over(manager, offset, what, _fault(cause), self.attempt.tried(manager.partition, offset))
                self.attempt.spoil(now)
        elif final:
            manager.ledger.counts.fail()
            what = f"was under work when its worker died, once too often: {cause.text}."
            tries = max(self.attempt.tried(manager.partition, offset), deaths)
            self._pass_over(manager, offset, what, _fault(cause), tries)
            self.attempt.given_up(now)
        elif reason is FailReason.LOST:
            self.attempt.lost(now)
        else:
            timed_out = reason is FailReason.TIMED_OUT
            if timed_out and self.attempt.phase is AttemptPhase.CLOSING:
                log.warning(
                    "%s offset %d timed out while its epoch waited for it, and the epoch is read again. Does a bolt "
                    "keep tuples until it has enough of them? It must let go by time, too: no more come before the "
                    "commit.",
                    *(manager.partition, offset),
                )
            self.attempt.record_failed(manager.partition, offset, cause, now, timed_out=timed_out)

    def adopted(self) -> None:
        """Note that the list of managers has changed."""
        for manager in self.managers:
            # Not by partition: in a topic that was made again the offset would be another record's.
            manager.passed = manager.ledger.counts.too_often

    def _parted(self) -> None:
        self.attempt.parted(self._now())

    def _pass_over(self, manager: PartitionManager, offset: int, what: str, fault: Fault, tries: int) -> None:
        error = PoisonRecord(manager.partition, offset, what)
        if self._config.on_poison == STOP:
            self.poisoned = self.poisoned or error
            return
        counts = manager.ledger.counts
        if offset in counts.too_often:
            return
        counts.too_often[offset] = LastTry(fault, tries)
        if self._config.on_poison == SKIP:  # a dead letter counts when it is committed, and has a line of its own
            counts.give_up(offset)
            log.error("%s offset %d given up (on_poison=skip): it %s", manager.partition, offset, one_line(what))

    # -- the work of Attempt --------------------------------------------------------------------------------

    def may_emit(self) -> bool:
        return self._gate.may_emit(self._now())

    def hold(self) -> None:
        self._positions.clear()
        self._coordinator.hold()
        if self.letters is not None:
            self.letters.hold(self.managers)

    def reopen(self) -> None:
        self._coordinator.reopen()

    def is_open(self) -> bool:
        return self._coordinator.complete and not any(manager.closed for manager in self.managers)

    def begins(self) -> None:
        if self.letters is not None:
            for manager in self.managers:
                self.letters.opened(manager)

    def has_moved(self) -> bool:
        return any(
            manager.ledger.position > self._positions.get(manager, manager.ledger.committed)
            for manager in self.managers
        )

    def is_done(self) -> bool:
        return not any(manager.ledger.open_count for manager in self.managers)

    def is_settled(self) -> bool:
        ledgers = [manager.ledger for manager in self.managers]
        return all(ledger.open_count == ledger.waiting_count for ledger in ledgers)

    def has_read_all(self) -> bool:
        return all(manager.at_end for manager in self.managers)

    def end(self) -> Any | None:
        member = self._store.member
        if member is None or not self.may_emit():
            return None
        self._positions = {manager: manager.last_completed_offset() for manager in self.managers}
        rows = [
            self._store.row(manager.partition, self._position(manager, offset))
            for manager, offset in self._positions.items()
            if offset != manager.ledger.committed
        ]
        ids = (member.group_id, member.generation_id, member.member_id, member.group_instance_id)
        return EndOfEpoch(*ids, rows, self._store.cluster_id).told()

    def _position(self, manager: PartitionManager, offset: int) -> CommitPosition:
        leader = self._coordinator.leader(manager.partition)
        return CommitPosition(offset, manager.buffer.leader_epoch_at(offset), leader, manager.stop)

    def committed(self) -> None:
        for manager, offset in self._positions.items():
            if self.letters is not None:
                self.letters.committed(manager, offset)
            manager.ledger.committed_to(offset)
            self.attempt.forget_below(manager.partition, offset)
        self._positions = {}

    def count_failure(self, partition: Partition) -> None:
        self._manager(partition).ledger.counts.fail()

    def comes_again(self, partition: Partition, offset: int, cause: FailureCause, coming: NextTry) -> None:
        self._failure_lines.tell(partition, offset, cause, coming, self._now())

    def give_up(self, partition: Partition, offset: int, cause: FailureCause, tries: int) -> None:
        what = tries_used_up(tries, cause)
        self._pass_over(self._manager(partition), offset, what, _fault(cause), tries)

    def _manager(self, partition: Partition) -> PartitionManager:
        manager = self._coordinator.get_manager(partition)
        assert manager is not None, "an attempt ends with a partition of it"
        return manager

    def tell(self, kind: str, told: Any) -> int:
        number = next(self._numbers)
        self._emit([kind, told], (TOLD, number), EPOCHS)
        return number

    def _emit_letter(self, row: LetterRow) -> int:
        number = next(self._numbers)
        self._emit([*row], (TOLD, number), LETTERS)
        return number


def _fault(cause: FailureCause) -> Fault:
    return Fault(cause.component, cause.error, cause.text)
