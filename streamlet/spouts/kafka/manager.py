"""One partition in one task: what was fetched, what was emitted, what became of it (SEEDMAP K5, K6, K12)."""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from streamlet.base.errors import StreamletError, ValueCannotTravel, said
from streamlet.kafka.errors import KafkaError
from streamlet.spouts.kafka.errors import PoisonRecord
from streamlet.spouts.kafka.offset_ledger import OffsetLedger
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.read_buffer import Fetched, ReadBuffer
from streamlet.spouts.kafka.retry import FailedMsgRetryManager
from streamlet.spouts.kafka.scheme import Record, Scheme, columns_of, misfit, name_of
from streamlet.spouts.kafka.spout_config import STOP

log = logging.getLogger(__name__)


class EmitState(enum.Enum):
    """What one ``next`` did. The names and meanings are storm-kafka's."""

    NO_EMITTED = "nothing was emitted"
    EMITTED_MORE_LEFT = "one record was emitted, more are at hand"
    EMITTED_END = "one record was emitted, nothing is left of what was fetched"


NO_EMITTED = EmitState.NO_EMITTED
EMITTED_MORE_LEFT = EmitState.EMITTED_MORE_LEFT
EMITTED_END = EmitState.EMITTED_END


class Collector(Protocol):
    """Where tuples go: the spout itself."""

    @property
    def emit(self) -> Callable[..., Any]:
        """One tuple of a tree."""
        ...

    @property
    def emit_many(self) -> Callable[..., Any]:
        """Several tuples of one tree."""
        ...


@dataclass(frozen=True, slots=True)
class EmitLimits:
    """How much may be open, and what to do with records that cannot be processed (``SpoutConfig``)."""

    max_unacked_bytes: int = 64 << 20
    max_uncommitted_offsets: int = 1_000_000
    on_poison: str = STOP


class PartitionManager:
    """Joins ledger, retries and scheme for one partition. Does no I/O; all calls come from the worker's loop.

    Message ids are ``(slot, offset)``. ``slot`` is fresh for each opening of a partition, so an answer for an
    earlier opening (another owner's time, a topic since re-created) touches nothing.
    """

    def __init__(
        self,
        partition: Partition,
        slot: int,
        ledger: OffsetLedger[Any],
        retries: FailedMsgRetryManager,
        scheme: Scheme,
        limits: EmitLimits,
        end: int | None = None,
    ) -> None:
        self.partition = partition
        self.slot = slot
        self.ledger = ledger
        self.topic_id: str | None = None
        self.current_leader_epoch = -1
        """Of the last look at the leaders."""
        self.end = end
        """Nothing from this offset on is emitted (``--until-caught-up``); None: no end."""
        self.log_end = ledger.position
        """The last stable offset as of the last fetch."""
        self.closed = False
        """The task reads this partition no more; answers that still come for it are ignored."""
        self.poisoned: StreamletError | None = None
        """Set when a record was given up and the policy is to stop; raised by the next ``next``."""
        self.validating = False
        """It is being asked whether the log still holds what was read: until then nothing more is fetched."""
        self.buffer = ReadBuffer(partition, ledger, columns_of(scheme), end)
        self._retries = retries
        self._scheme = scheme
        self._limits = limits
        self._has_columns = columns_of(scheme) is not None
        self._waiting = self.buffer.waiting
        self._heavy = self.buffer.heavy
        self._due: deque[int] = deque()
        self._held = False
        self._heavy_bytes = 0  # of those in flight: what only waits must not hold itself back
        self._troubled = False  # whether an ack has more to do than tell the ledger

    # -- emitting -------------------------------------------------------------------------------------------

    def next(self, collector: Collector) -> EmitState:
        """Emit the tuples of at most one record; records that give none are passed over (K12).

        Raises PoisonRecord. Bytes that cannot be read are left in ``damage``.
        """
        if self._due:
            return self._retry(collector)
        if self._held:
            return NO_EMITTED
        waiting = self._waiting
        while waiting or self._load():
            offset, values = waiting.popleft()
            if values is None or values.__class__ is Record:
                values = self._deserialize(offset, values)
                if values is None:
                    self._pass_over(offset)
                    continue
            self.ledger.emitted(offset, values)
            if self._heavy:
                self._heavy_bytes += self._heavy.get(offset, 0)
                self._troubled = True
            if not self._emit(collector, offset, values):
                if self.poisoned is not None:
                    return NO_EMITTED
                if not waiting:
                    self.buffer.batch_done()
                continue
            if waiting:
                return EMITTED_MORE_LEFT
            self.buffer.batch_done()
            # Loading now, not in the next turn: what gives no tuple behind this record is then passed already.
            return EMITTED_MORE_LEFT if self._load() else EMITTED_END
        return NO_EMITTED

    def _deserialize(self, offset: int, record: Record | None) -> Any:
        """What to emit of a record that has not been through the scheme yet; None for nothing."""
        if record is None:
            return None
        try:
            rows = list(self._scheme.deserialize(record) or ())
        except Exception as error:  # noqa: BLE001 - a scheme is the user's code and may raise anything
            what = f"cannot be decoded by {name_of(self._scheme)}: {type(error).__name__}: {said(error)}."
            self._undecodable(offset, record, what, error)
            return None
        if not self._has_columns:
            return rows or None
        if len(rows) > 1:
            name = name_of(self._scheme)
            what = f"gave {len(rows)} tuples; {name} has deserialize_columns, which makes one of each record at most."
            self._undecodable(offset, record, what)
            return None
        return rows[0] if rows else None

    def _undecodable(self, offset: int, record: Record, what: str, cause: Exception | None = None) -> None:
        if self._limits.on_poison == STOP:
            self._waiting.appendleft((offset, record))
            raise PoisonRecord(self.partition, offset, what) from cause
        log.error("%s offset %d passed over (on_poison=skip): it %s", self.partition, offset, what)
        self.ledger.passed_poison(offset)

    def _pass_over(self, offset: int) -> None:
        self._heavy.pop(offset, None)
        self.ledger.pass_to(offset + 1)
        if not self._waiting:
            self.buffer.batch_done()

    def begin_turn(self, now_s: float, records: int) -> None:
        """Take the retries that are due into this turn: at most half of it, so that neither starves the other (T6).

        Whether new records may be emitted at all is looked at here, once a turn: the bounds hold to within one.
        """
        self._held = not self.may_emit()
        if not self.ledger.waiting_count or self._due:
            return
        for _ in range(max(1, records // 2)):
            offset = self._retries.next_failed_message_to_retry(now_s)
            if offset is None:
                return
            self._retries.retry_started(offset)
            self._due.append(offset)

    def may_emit(self) -> bool:
        """Whether new records may be emitted: the bounds on what is open are not reached. Retries always may."""
        if self._heavy_bytes >= self._limits.max_unacked_bytes:
            return False
        return self.ledger.position - self.ledger.committed < self._limits.max_uncommitted_offsets

    @property
    def commit_is_pressing(self) -> bool:
        """Half of what may be uncommitted is: do not wait for the timer."""
        return (self.ledger.position - self.ledger.committed) * 2 >= self._limits.max_uncommitted_offsets

    @property
    def has_due(self) -> bool:
        """Whether retries were taken into this turn and are not out yet."""
        return bool(self._due)

    def _retry(self, collector: Collector) -> EmitState:
        offset = self._due.popleft()
        values = self.ledger.retried(offset)
        self._emit(collector, offset, values)
        return EMITTED_MORE_LEFT if self._due or self._waiting or self.buffer else EMITTED_END

    def _emit(self, collector: Collector, offset: int, values: Any) -> bool:
        """False where the record gives no tuple that could be emitted: it is given up, for it never will."""
        try:
            if self._has_columns:
                collector.emit(values, (self.slot, offset))
            elif len(values) == 1:
                collector.emit(values[0], (self.slot, offset))
            else:
                collector.emit_many(values, (self.slot, offset))
        except ValueCannotTravel as error:
            what = f"gave a tuple that cannot be sent on. {error.message}"
        except (TypeError, ValueError):
            # The task's emit looks at rows already, so nobody else does unless it has refused one.
            wrong = misfit(self._scheme, [values] if self._has_columns else values)
            if wrong is None:
                raise
            what = f"gave a tuple that cannot be emitted. {wrong}"
        else:
            return True
        self.ledger.failed(offset)
        self._give_up(offset, what)
        return False

    # -- answers --------------------------------------------------------------------------------------------

    def ack(self, offset: int) -> None:
        """All tuples of the record were processed."""
        if self.ledger.acked(offset) and self._troubled:
            self._forget(offset)

    def fail(self, offset: int, now_s: float, *, lost: bool = False) -> None:
        """A tuple of the record failed or timed out: try again after a pause, or give it up.

        ``lost``: with a worker or a link. That is not the record's fault, and does not count towards the limit.
        """
        if not self.ledger.failed(offset):
            return
        self._troubled = True
        if lost:
            self._retries.lost(offset, now_s)
        elif not self._retries.failed(offset, now_s):
            tries = self._retries.tries(offset)
            self._give_up(offset, f"failed {tries} times, which is more than retry_limit={tries - 1} allows.")

    def _give_up(self, offset: int, what: str) -> None:
        error = PoisonRecord(self.partition, offset, what)
        if self._limits.on_poison == STOP:
            self.poisoned = self.poisoned or error
            return
        self.ledger.given_up(offset)
        self._forget(offset)
        log.error("%s offset %d given up (on_poison=skip): it %s", self.partition, offset, what)

    def _forget(self, offset: int) -> None:
        self._retries.acked(offset)
        self._heavy_bytes -= self._heavy.pop(offset, 0)
        self._troubled = bool(self._heavy) or self._retries.has_failures()

    # -- progress -------------------------------------------------------------------------------------------

    def last_completed_offset(self) -> int:
        """The next offset to read after a restart: everything below is done."""
        return self.ledger.next_committable()

    @property
    def at_end(self) -> bool:
        """Everything below the fixed end was emitted or passed over."""
        return self.end is not None and self.ledger.position >= self.end

    @property
    def lag(self) -> int:
        """Offsets between the committed one and the end of the log."""
        return max(0, self.log_end - self.ledger.committed)

    # -- what is fetched ------------------------------------------------------------------------------------

    @property
    def fetched_all(self) -> bool:
        """Everything below the fixed end was fetched."""
        return self.end is not None and self.buffer.position >= self.end

    def wants_fetch(self) -> bool:
        """Whether to ask for more: at most one whole answer waits behind the one being emitted (T14)."""
        return not self.validating and self.buffer.has_room and not self.fetched_all and self.may_emit()

    def add(self, fetched: Fetched, log_end: int) -> None:
        """An answer for ``fetch_position`` came."""
        self.log_end = max(log_end, self.log_end)
        self.buffer.add(fetched)

    def _load(self) -> bool:
        """Make the next batch with records the waiting one. False when nothing is at hand, or nothing may go."""
        return bool(self.buffer) and self.may_emit() and self.buffer.load()

    @property
    def fetch_position(self) -> int:
        """The next offset to ask a broker for."""
        return self.buffer.position

    @property
    def buffered_bytes(self) -> int:
        """Fetched and not yet emitted; whole answers count until their last record is out."""
        return self.buffer.size_bytes

    @property
    def damage(self) -> KafkaError | None:
        """What was fetched cannot be read; it is then fetched again from ``ledger.position``."""
        return self.buffer.damage

    @damage.setter
    def damage(self, error: KafkaError | None) -> None:
        self.buffer.damage = error

    def skip_to(self, log_start: int) -> None:
        """The log begins at ``log_start`` now: read on there, once what was fetched before is out."""
        self.buffer.skip_to(log_start)

    def refetch(self) -> None:
        """Forget what was fetched and not emitted; read on from the ledger's position."""
        self.buffer.refetch()

    def leader_epoch_at(self, offset: int) -> int:
        """The leader epoch the record before ``offset`` was written in; -1 unknown."""
        return self.buffer.leader_epoch_at(offset)
