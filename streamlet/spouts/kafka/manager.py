"""One partition in one task: fetched, emitted, done, committed.

A partition's offsets pass through these states; each offset is in one of them:

    to be asked for --> fetched --> waiting --> open (ledger) --> done --> committed
                        ReadBuffer  one batch,   in flight or      below the
                        whole       rows or      waiting for       lowest open
                        answers     Records      a retry           offset

The ledger is in ``offset_ledger.py``, the buffer in ``read_buffer.py``; here they change together.

- ``buffer.position`` is the first offset to ask for, ``ledger.position`` the first one not emitted or passed over,
  ``ledger.committed`` the one in the offset store: committed <= position <= buffer.position.
- Rows are emitted as they are; Records go through the scheme one by one at the emit.
- An open record's values stay in memory until its ack: a retry never asks the broker again.
- A record that gives no tuple moves the position on and is done at once.

Deliberately absent: clock, sockets, and the decision where to begin. All calls come from the worker's loop.
"""

from __future__ import annotations

import enum
import logging
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from typing import Any, NamedTuple, overload

from streamlet.base.errors import StreamletError, ValueCannotTravel, hurts_one_tuple, text_of
from streamlet.base.printable import one_line
from streamlet.components.columns import Columns
from streamlet.components.spout import FailureCause, MessageIds, Spout
from streamlet.components.tuples import value_bytes
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.records.record_batch import RecordBatch
from streamlet.spouts.kafka.dead_letters.dead_letter import MISFIT, Fault, GivenUp, LastTry
from streamlet.spouts.kafka.dead_letters.original_records import NotEmitted, Original, OriginalRecords
from streamlet.spouts.kafka.errors import DEAD_LETTER, STOP, PoisonRecord, SchemeNotReady
from streamlet.spouts.kafka.offset_ledger import OffsetLedger
from streamlet.spouts.kafka.offset_marks import OffsetMarks
from streamlet.spouts.kafka.open_transactions import HeldBack, held_back
from streamlet.spouts.kafka.partition import OffsetRange, Partition
from streamlet.spouts.kafka.read_buffer import ReadBuffer
from streamlet.spouts.kafka.retry import FailedMsgRetryManager, NextTry
from streamlet.spouts.kafka.schemes.scheme import Record, Scheme, columns_of, misfit, name_of
from streamlet.spouts.kafka.schemes.scheme_hold import SchemeHold
from streamlet.spouts.kafka.stores.offset_store import StopOffset

log = logging.getLogger(__name__)

OPEN_BYTES = 300
"""What an open record takes beside its value: row, offset, message id, and their places."""

ROWS = frozenset({list, tuple})
"""Types of rows that many are emitted of in one call."""


LEAST_RUN, MOST_RUN = 8, 1 << 20
"""Records that are looked at together, at least and at most."""

HELD_S = 1.0
"""Seconds of waiting for its bounds or scheme before a partition may drop its unpacked records again."""

DROP_AGAIN_S = 10.0
"""Seconds since it last did after which it may do so without waiting."""


class OffsetIds(MessageIds):
    """Message ids ``(slot, offset)`` of records that were emitted together."""

    __slots__ = ("offsets", "slot")

    def __init__(self, slot: int, offsets: Sequence[int]) -> None:
        self.slot = slot
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, at: int) -> tuple[int, int]: ...

    @overload
    def __getitem__(self, at: slice) -> OffsetIds: ...

    def __getitem__(self, at: int | slice) -> tuple[int, int] | OffsetIds:
        return OffsetIds(self.slot, self.offsets[at]) if isinstance(at, slice) else (self.slot, self.offsets[at])

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(repeat(self.slot), self.offsets)


class EmitState(enum.Enum):
    """The result of one ``next``. Names and meanings are storm-kafka's, but that several records may be emitted."""

    NO_EMITTED = "nothing was emitted"
    EMITTED_MORE_LEFT = "records were emitted, more are at hand"
    EMITTED_END = "records were emitted, nothing is left of what was fetched"


NO_EMITTED = EmitState.NO_EMITTED
EMITTED_MORE_LEFT = EmitState.EMITTED_MORE_LEFT
EMITTED_END = EmitState.EMITTED_END


class ReadState(enum.Enum):
    """The state of a partition in one manager; a pause is beside it."""

    READING = "it is fetched, emitted and committed"
    VALIDATING = "nothing is fetched until a new leader has confirmed the read position"
    ENDING = "its log is gone: open records are finished, nothing is fetched or stored"
    CLOSED = "the task reads it no more; later answers for it are ignored"


class PartitionAges(NamedTuple):
    """How far a partition is behind in time."""

    behind_s: float | None
    """Seconds since the time of the next record to be done; 0: there is none. None: not known."""
    oldest_open: int | None
    """The lowest offset that was emitted and is not done."""
    open_s: float | None
    """Seconds since that was emitted first."""


SILENT_S = 10.0
"""Seconds without an answer after which nobody knows whether more has come; one comes each half second."""

UNKNOWN = FailureCause("")
"""Of a failure that nobody said anything of."""


def tries_used_up(tries: int, cause: FailureCause) -> str:
    """Say that a record failed too often, and the bolt's last words."""
    said = f"{cause.error}: {cause.text.partition(chr(10))[0]}".strip(": ") or "nothing"
    last = f"{cause.component} said of the last time: {said}" if cause.component else "the log may say why"
    return f"failed {tries} times, which is more than retry_limit={tries - 1} allows; {last.rstrip('.')}."


@dataclass(frozen=True, slots=True)
class EmitLimits:
    """Bounds on open records, and the policy for poison records (``SpoutConfig``)."""

    max_unacked_bytes: int = 64 << 20
    max_uncommitted_offsets: int = 1_000_000
    on_poison: str = STOP
    in_attempts: bool = False
    """Whether what fails is read again (``exactly_once``)."""


class PartitionManager:
    """Joins buffer, ledger, retries and scheme for one partition; storm-kafka's name.

    Message ids are ``(slot, offset)``. ``slot`` is fresh for each opening of a partition, so an ack or fail for an
    earlier opening (another owner's time, a topic made again) touches nothing.
    """

    # Long: it is the only place where buffer, ledger and retries change together. Each of the three is a pure class of
    # its own.

    def __init__(
        self,
        partition: Partition,
        slot: int,
        ledger: OffsetLedger[Any],
        retries: FailedMsgRetryManager,
        scheme: Scheme,
        limits: EmitLimits,
        end: int | None = None,
        stream: str | None = None,
        *,
        topic_id: str | None = None,
        stop: StopOffset | None = None,
        log_end: int | None = None,
    ) -> None:
        self.partition = partition
        self.slot = slot
        self._stream = stream
        self.ledger = ledger
        self.topic_id = topic_id
        """The id of the topic that the offsets belong to; None unknown."""
        self.current_leader_epoch = -1
        """The leader epoch of the coordinator's last look; fences former leaders."""
        self.end = end
        """The offset to stop at (``stop_offset``, ``--until-caught-up``); None: no end."""
        self.stop = stop
        """The stop of a bounded read, stored with each commit."""
        self.log_end = ledger.position if log_end is None else log_end
        """The last stable offset as of the last fetch."""
        self.answered_s: float | None = None
        """When a broker last answered a fetch of it."""
        self.held_back: HeldBack | None = None
        """What an open transaction keeps from readers, by the last answer."""
        self._state = ReadState.READING
        self._fetched_to = 0
        """Where the fetches ended when it was."""
        self._may_unpack = True
        self.paused = False
        """True while somebody asked for it: nothing is emitted or fetched; acks and commits go on. See ``pause``."""
        self.poisoned: StreamletError | None = None
        """Set when a record was given up and the policy is to stop; raised by the spout's next upkeep."""
        self.damage: KafkaError | None = None
        """Why an answer could not be unpacked; the spout has it fetched again once, and clears this."""
        self.passed: Mapping[int, LastTry] = {}
        """Offsets of records that are passed over: they failed too often (``exactly_once``)."""
        kept = NotEmitted(ledger) if limits.in_attempts else ledger
        self.originals = OriginalRecords(partition, kept) if limits.on_poison == DEAD_LETTER else None
        """The records as they were read, for dead letters; None: there are none."""
        self.given_up: list[GivenUp] = []
        """Records for the dead-letter topic, which the spout takes. They stay open until they are written."""
        self.buffer = ReadBuffer(partition, ledger, columns_of(scheme), end, self.originals)
        self._retries = retries
        self._scheme = scheme
        self._limits = limits
        self._has_columns = columns_of(scheme) is not None
        self._together = self._has_columns and stream is None
        """Whether many records may leave in one call."""
        self._run_length = MOST_RUN
        """Records that are taken to leave in one call, at most: about twice the last run without an odd one."""
        self._next_is_odd = False
        """Whether the next record was found to leave alone."""
        self.count = 0
        """Records that the last ``next`` emitted."""
        self._waiting = self.buffer.waiting
        self._heavy = self.buffer.heavy
        self._due: deque[int] = deque()
        self._held = False
        self._held_since_s: float | None = None
        """Since when its own bounds, or its scheme, keep it from emitting; None: they do not."""
        self._dropped_s = -math.inf
        """When unpacked records were last dropped."""
        self._hold = SchemeHold()
        # Bytes of large records count from their emit, not while they wait: only emitted records can be acked, so one
        # batch above the bound would hold itself back for ever.
        self._weighed: dict[int, int] = {}
        """Offset -> bytes of open records that count by their own size: the large ones, and those that have failed."""
        self._weighed_bytes = 0
        self._emitted_s = OffsetMarks()
        """When the turn began that emitted an offset first."""
        # Whether an ack has more to do than tell the ledger: false on the fast path of small records without failures.
        # Always true while a record is weighed.
        self._troubled = False

    # -- its state ------------------------------------------------------------------------------------------

    @property
    def validating(self) -> bool:
        """Whether a new leader has yet to confirm the read position."""
        return self._state is ReadState.VALIDATING

    @property
    def ending(self) -> bool:
        """Whether the log is gone: open records are finished, nothing is fetched or stored."""
        return self._state is ReadState.ENDING

    @property
    def closed(self) -> bool:
        """Whether the task reads this partition no more; later answers for it are ignored."""
        return self._state is ReadState.CLOSED

    def validate(self) -> None:
        """Fetch nothing until ``validated``: another leader was elected."""
        if self._state is ReadState.READING:
            self._state = ReadState.VALIDATING

    def validated(self) -> None:
        """Go on: the leader has confirmed the position, or another one is set."""
        if self._state is ReadState.VALIDATING:
            self._state = ReadState.READING

    def end_reading(self) -> None:
        """Fetch and store nothing more: the log is gone."""
        self._state, self._fetched_to = ReadState.ENDING, self.buffer.position

    def close(self) -> None:
        """Read the partition no more."""
        self._state = ReadState.CLOSED

    def pause(self, paused: bool) -> None:
        """Begin or end a pause."""
        # Rule: what is fetched and not emitted is dropped, and fetched again afterwards. Kept for hours, it would take
        # the bytes that the task's other partitions are to be read with. Of a topic that is gone it is kept: nothing
        # could be fetched again.
        if paused and not self.paused and not self.ending:
            self.buffer.refetch()
        self.paused = paused

    # -- emitting -------------------------------------------------------------------------------------------

    def next(self, collector: Spout, most: int = 1) -> EmitState:
        """Emit the tuples of one record, or of up to ``most``.

        Several where each gives one tuple and needs no look of its own; ``count`` says how many. Records that give
        none are passed over. Raises PoisonRecord. An answer that cannot be unpacked is left in ``damage``.
        """
        self.count = 1
        if self._due:
            return self._retry(collector)
        if self._held:
            return NO_EMITTED
        waiting = self._waiting
        while waiting or self._load():
            if most > 1 and self._together and self._emit_each(collector, most):
                return self._after_emit()
            offset, values = waiting.next()
            if offset in self.passed:
                if self.originals is not None:
                    self._give_up_again(offset, values, self.originals)
                self._pass_over(offset)
                continue
            if values is None or values.__class__ is Record:
                values = self._deserialize(offset, values)
                if self._hold.waits:  # the record was put back
                    return NO_EMITTED
                if values is None:
                    self._pass_over(offset)
                    continue
            self.ledger.emitted(offset, values)
            if self._heavy:
                self._weigh_large(offset)
            if not self._emit(collector, offset, values):
                # After a skipped record go on in the same call: a turn that emits nothing lets the worker's loop sleep.
                if self.poisoned is not None:
                    return NO_EMITTED
                if not waiting:
                    self.buffer.batch_done()
                continue
            return self._after_emit()
        return NO_EMITTED

    def _after_emit(self) -> EmitState:
        if self._waiting:
            return EMITTED_MORE_LEFT
        self.buffer.batch_done()
        # Load now, not in the next turn: records after this one that give no tuple are then passed already.
        return EMITTED_MORE_LEFT if self._load() else EMITTED_END

    def _emit_each(self, collector: Spout, most: int) -> bool:
        """Emit records that wait in one call, up to an odd one.

        False: nothing was emitted, for the next one needs a look of its own.
        """
        if self._next_is_odd:
            self._next_is_odd = False
            return False
        waiting, ledger = self._waiting, self.ledger
        offsets, rows = waiting.take(most if most < self._run_length else self._run_length)
        if not ((isinstance(rows, Columns) or set(map(type, rows)) <= ROWS) and self._leave_together(offsets)):
            fit = self._fit(offsets, rows)
            # Rule: an odd record does nothing but part the others. The next look is about as long as the run before it:
            # else all that waits would be looked through again for each of them, and a compacted topic has many.
            self._run_length = max(LEAST_RUN, 2 * fit or len(offsets) // 2)
            waiting.put_back(len(offsets) - fit)
            if not fit:
                return False
            self._next_is_odd = True
            offsets, rows = offsets[:fit], rows[:fit]
        elif self._run_length <= most:
            self._run_length *= 2
        before = ledger.position
        ledger.all_emitted(offsets, rows)
        try:
            as_one = collector.emit_each(rows, OffsetIds(self.slot, offsets))
        except (ValueCannotTravel, TypeError, ValueError):
            # One by one, the record that cannot be emitted is named.
            ledger.not_emitted(offsets, before)
            waiting.put_back(len(offsets))
            self._next_is_odd = False
            return False
        if not as_one:
            ledger.stand_alone(offsets)
        self.count = len(offsets)
        return True

    def _leave_together(self, offsets: Sequence[int]) -> bool:
        """Tell whether no record is large, or to be passed over."""
        large, passed = self._heavy, self.passed
        return (not large or large.keys().isdisjoint(offsets)) and (not passed or passed.keys().isdisjoint(offsets))

    def _fit(self, offsets: Sequence[int], rows: Iterable[Any]) -> int:
        """Count the records before the first that leaves alone."""
        for at, (offset, row) in enumerate(zip(offsets, rows, strict=True)):
            if type(row) not in ROWS or offset in self._heavy or offset in self.passed:
                return at
        return len(offsets)

    def _deserialize(self, offset: int, record: Record | None) -> Any:
        """Put one record through the scheme; None: nothing to emit."""
        if record is None:
            return None
        try:
            rows = list(self._scheme.deserialize(record) or ())
        except SchemeNotReady as error:
            self._wait_for_scheme(offset, error)
            return None
        except BaseException as error:
            if not hurts_one_tuple(error):
                raise
            if self._hold.waits:
                self._scheme_is_ready(offset)
            kind, said = type(error).__name__, text_of(error)
            what = f"cannot be decoded by {name_of(self._scheme)}: {kind}: {said}."
            self._undecodable(offset, record, what, Fault(None, kind, said), error)
            return None
        if self._hold.waits:
            self._scheme_is_ready(offset)
        if not self._has_columns:
            return rows or None
        if len(rows) > 1:
            name = name_of(self._scheme)
            what = f"gave {len(rows)} tuples; {name} has deserialize_columns, which makes one of each record at most."
            self._undecodable(offset, record, what, Fault(None, MISFIT, what))
            return None
        return rows[0] if rows else None

    def _wait_for_scheme(self, offset: int, error: SchemeNotReady) -> None:
        """Put a record back that its scheme cannot decode yet; the partition rests."""
        # Not the record's fault: as poison, every record would be given up while a schema registry is away.
        self._waiting.put_back(1)
        self._held = True
        if self._hold.not_ready():
            name = name_of(self._scheme)
            log.warning("%s waits at offset %d, for %s is not ready: %s", self.partition, offset, name, error.message)

    def _scheme_is_ready(self, offset: int) -> None:
        self._hold.ready()
        log.warning("%s goes on at offset %d: %s is ready", self.partition, offset, name_of(self._scheme))

    def _undecodable(
        self, offset: int, record: Record, what: str, fault: Fault, raised: BaseException | None = None
    ) -> None:
        if self._limits.on_poison == STOP:
            # Put back: the record stays the next one, so nothing past it is emitted or committed.
            self._waiting.put_back(1)
            raise PoisonRecord(self.partition, offset, what) from raised
        if self.originals is not None:
            # Open, as one that failed and waits: it is done when its letter is written.
            self.ledger.emitted(offset, record)
            self._has_failed(offset)
            self._give_up(offset, what, fault, 1)
            return
        log.error("%s offset %d passed over (on_poison=skip): it %s", self.partition, offset, one_line(what))
        self.ledger.passed_poison(offset)

    def _give_up_again(self, offset: int, values: Any, originals: OriginalRecords) -> None:
        """Give a record up that failed in an earlier attempt: its bytes are at hand now, for its letter."""
        # Open like any record, so the epoch ends when the letter is written.
        self.ledger.awaits_letter(offset, values if values is not None else ())
        self._weigh_large(offset)
        fault, tries = self.passed[offset]
        self.given_up.append(GivenUp(*originals.of(offset), tries, fault))

    def _pass_over(self, offset: int) -> None:
        self._heavy.pop(offset, None)
        self.ledger.pass_to(offset + 1)
        if not self._waiting:
            self.buffer.batch_done()

    def begin_turn(self, now_s: float, records: int, *, holds_back: bool = False, may_unpack: bool = True) -> None:
        """Take due retries into this turn; check whether new records may come.

        Retries fill half of the turn at most. ``holds_back``: nothing new may come in any case. Without ``may_unpack``
        it may come from the batch alone that is unpacked already.
        """
        # Half of the turn: neither retries nor new records starve. The bounds are checked once a turn and not at each
        # record, so they hold to within one turn.
        # Again in each turn, also of an idle partition: nothing was emitted from here on yet.
        self._emitted_s.note(self.ledger.position, now_s)
        self._may_unpack = may_unpack
        held = not self.may_emit() or self._hold.holds(now_s)
        self._held = holds_back or held
        if not (held or self._hold.waits):
            self._held_since_s = None
        elif self._held_since_s is None:
            self._held_since_s = now_s
        if self.originals is not None:
            self.originals.drop_done()
        if not self.ledger.waiting_count or self._due:
            return
        for _ in range(max(1, records // 2)):
            offset = self._retries.next_failed_message_to_retry(now_s)
            if offset is None:
                return
            self._retries.retry_started(offset)
            self._due.append(offset)

    def drop_unpacked(self, now_s: float) -> None:
        """Drop unpacked records that may not leave; they are fetched again."""
        # Rule: drop them at once, but not again and again. Many bounds are free again after some acks, and a partition
        # that is at its bound now and then would be fetched twice.
        since_s = self._held_since_s
        if since_s is not None and (now_s - since_s >= HELD_S or now_s - self._dropped_s >= DROP_AGAIN_S):
            self._dropped_s = now_s
            self.buffer.refetch()

    def may_emit(self) -> bool:
        """Return whether the bounds allow new records; retries are always allowed."""
        # Counted until they are acked. A failed record that waits for its retry is no open tree, so no other bound
        # holds it, and a source of records that always fail would fill the memory.
        if self.unacked_bytes >= self._limits.max_unacked_bytes:
            return False
        return self.ending or self.ledger.position - self.ledger.committed < self._limits.max_uncommitted_offsets

    @property
    def unacked_bytes(self) -> int:
        """About the bytes of open records, waiting for retries or not."""
        # The smaller ones by their number: an entry for each would cost every record, and so many are alike.
        usual = (self.ledger.open_count - len(self._weighed)) * self.buffer.usual_bytes
        return self._weighed_bytes + int(usual)

    @property
    def kept_bytes(self) -> int:
        """About the memory that the open records take."""
        originals = 0 if self.originals is None else self.originals.size_bytes
        return self.unacked_bytes + self.ledger.open_count * OPEN_BYTES + originals

    @property
    def commit_is_pressing(self) -> bool:
        """Whether half of ``max_uncommitted_offsets`` is used up, and a commit helps: commit before the timer."""
        # Rule: nothing presses where a commit would change nothing. While one record is stuck the others of its
        # partition use the bound up, and commits of all partitions would follow each other without a pause.
        ledger = self.ledger
        half = (ledger.position - ledger.committed) * 2 >= self._limits.max_uncommitted_offsets
        return half and ledger.next_committable() > ledger.committed

    def _retry(self, collector: Spout) -> EmitState:
        offset = self._due.popleft()
        values = self.ledger.retried(offset)
        emit = partial(self._emit, collector, offset, values)
        if self._retries.is_last(offset):
            collector.as_last_try(emit)
        else:
            emit()
        return EMITTED_MORE_LEFT if self._due or self._waiting or self.buffer else EMITTED_END

    def _emit(self, collector: Spout, offset: int, values: Any) -> bool:
        """Emit a record's tuples; False: it cannot be emitted, and is given up."""
        try:
            if self._has_columns:
                collector.emit(values, (self.slot, offset), self._stream)
            elif len(values) == 1:
                collector.emit(values[0], (self.slot, offset), self._stream)
            else:
                collector.emit_many(values, (self.slot, offset), self._stream)
        except ValueCannotTravel as error:
            kind, what = type(error).__name__, f"gave a tuple that cannot be sent on. {error.message}"
        except (TypeError, ValueError):
            # The task's emit checks rows already; they are checked here only after it refused one. Left to the task,
            # the error would end the run at each restart, with on_poison="skip" too, and name no record.
            wrong = misfit(self._scheme, [values] if self._has_columns else values)
            if wrong is None:
                raise
            kind, what = MISFIT, f"gave a tuple that cannot be emitted. {wrong}"
        else:
            return True
        self.ledger.failed(offset)
        self._give_up(offset, what, Fault(None, kind, what), 1)
        return False

    # -- answers --------------------------------------------------------------------------------------------

    def ack(self, offset: int) -> None:
        """Note that all tuples of the record were processed."""
        # Acked offsets of small records end in the ledger; only trouble costs the look-ups of _forget.
        if self.ledger.acked(offset) and self._troubled:
            self._forget(offset)

    def ack_many(self, offsets: Iterable[int]) -> None:
        """Note that all tuples of these records were processed."""
        # A record in its first try has no retries to forget. So failures elsewhere in the partition cost the others a
        # look into a table; only weighed ones are acked one by one.
        if self._weighed:
            offsets = list(offsets)
            weighed = self._weighed.keys() & offsets
            if weighed:
                offsets = [offset for offset in offsets if offset not in weighed]
            for offset in weighed:
                self.ack(offset)
        for offset in self.ledger.first_acked(offsets):
            self.ack(offset)

    def ack_set(self, ids: OffsetIds) -> None:
        """Note that all tuples of records that were emitted together were processed."""
        if not self.ledger.all_acked(ids.offsets):
            self.ack_many(ids.offsets)

    def fail(self, offset: int, now_s: float, *, lost: bool = False, cause: FailureCause = UNKNOWN) -> NextTry | None:
        """Retry the record after a pause, or give it up: one of its tuples failed or timed out.

        ``lost``: the tuple was lost with a worker or a link. That is not the record's fault: it does not count
        towards ``retry_limit``. ``cause``: what the bolt said. Returns the retry of a failure that counts.
        """
        if not self._has_failed(offset):
            return None
        if lost:
            self._retries.lost(offset, now_s)
            return None
        if not self._retries.failed(offset, now_s):
            tries = self._retries.tries(offset)
            fault = Fault(cause.component, cause.error, cause.text)
            self._give_up(offset, tries_used_up(tries, cause), fault, tries)
            return None
        return self._retries.next_try(offset)

    def crashed(self, offset: int, cause: FailureCause, deaths: int) -> None:
        """Give the record up: workers have died at work on it too often."""
        if self._has_failed(offset):
            what = f"was under work when its worker died, once too often: {cause.text}."
            # Tries before a death are forgotten where the spout died with the bolt; the deaths themselves are not.
            tries = max(self._retries.tries(offset) + 1, deaths)
            self._give_up(offset, what, Fault(cause.component, cause.error, cause.text), tries)

    def dead_letter(self, offset: int, cause: FailureCause) -> None:
        """Give the record up: a bolt sent it to the dead letters."""
        if self._has_failed(offset):
            what = f"was sent to the dead letters by {cause.component}: {cause.text}"
            self._give_up(
                offset, what, Fault(cause.component, cause.error, cause.text), self._retries.tries(offset) + 1
            )

    def dead_letter_written(self, offset: int) -> None:
        """Note that the record's dead letter was acknowledged: only now it is done."""
        self.ledger.given_up(offset)
        self._forget(offset)

    def letter_written(self, offset: int) -> None:
        """Note that the record's dead letter is in the transaction."""
        self.ledger.letter_written(offset)
        self._forget(offset)

    def _has_failed(self, offset: int) -> bool:
        """Have a record wait, and count it by its own size; False: it is not in flight."""
        # Rule: count a failed record by its own size, however small. It may wait for hours, and often the larger
        # records fail: counted by the mean of all, a hundred of 15 KiB take many times more than they seem to.
        if not self.ledger.failed(offset):
            return False
        values = self.ledger.values_of(offset)
        is_flat = self._has_columns or values.__class__ is Record
        # By the values: rows may be of any type that has a length, as named tuples.
        self._weigh(offset, sum(map(value_bytes, values if is_flat else chain.from_iterable(values))))
        return True

    def _weigh_large(self, offset: int) -> None:
        """Count a large record, open from now on, by its size."""
        size = self._heavy.pop(offset, None)
        if size is not None:
            self._weigh(offset, size)

    def _weigh(self, offset: int, size: int) -> None:
        self._weighed_bytes += size - self._weighed.get(offset, 0)
        self._weighed[offset] = size
        self._troubled = True

    def _give_up(self, offset: int, what: str, fault: Fault, tries: int) -> None:
        if self.originals is not None:
            original: Original = self.originals.of(offset)
            self.given_up.append(GivenUp(*original, tries, fault))
            return
        error = PoisonRecord(self.partition, offset, what)
        if self._limits.on_poison == STOP:
            # The offset stays open, which holds the commit back. The spout raises it at its next upkeep: this may be
            # inside an emit, or inside the ledgers of the worker.
            self.poisoned = self.poisoned or error
            return
        self.ledger.given_up(offset)
        self._forget(offset)
        log.error("%s offset %d given up (on_poison=skip): it %s", self.partition, offset, one_line(what))

    def _forget(self, offset: int) -> None:
        self._retries.acked(offset)
        self._weighed_bytes -= self._weighed.pop(offset, 0)
        self._troubled = bool(self._weighed) or self._retries.has_failures()

    # -- progress -------------------------------------------------------------------------------------------

    def last_completed_offset(self) -> int:
        """Return the offset to read on at after a restart: everything below is done.

        storm-kafka's name, although this offset is the first that is *not* completed.
        """
        return self.ledger.next_committable()

    @property
    def at_hand(self) -> bool:
        """Whether something can be emitted without another fetch."""
        return bool(self._waiting or self._due or self.buffer)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is at hand, and nothing open."""
        return not self.at_hand and not self.ledger.open_count

    @property
    def at_end(self) -> bool:
        """Whether everything below the fixed end was emitted or passed over."""
        return self.end is not None and self.ledger.position >= self.end

    @property
    def _read_end(self) -> int:
        """The end of the log, or the fixed end before it."""
        return self.log_end if self.end is None else min(self.log_end, self.end)

    @property
    def lag(self) -> int:
        """Offsets from the committed one to the end of the read."""
        return max(0, self._read_end - self.ledger.committed)

    def ages(self, now_s: float, wall_ms: int) -> PartitionAges:
        """Return the ages of the next and the oldest open record."""
        ledger, nxt = self.ledger, self.ledger.next_committable()
        self.buffer.times_ms.forget_below(nxt)
        self._emitted_s.forget_below(nxt)
        behind_s: float | None = 0.0
        if nxt < self._read_end:
            time_ms = self.buffer.time_ms_at(nxt)
            behind_s = None if time_ms is None else max(0.0, (wall_ms - time_ms) / 1e3)
        # Rule: no answer is no sign that nothing has come. Where brokers are away, the last one says that all is done.
        elif not self.fetched_all and self.answered_s is not None and now_s - self.answered_s > SILENT_S:
            behind_s = None
        if not ledger.open_count:
            return PartitionAges(behind_s, None, None)
        emitted_s = self._emitted_s.at(nxt)
        return PartitionAges(behind_s, nxt, None if emitted_s is None else max(0.0, now_s - emitted_s))

    # -- fetching -------------------------------------------------------------------------------------------

    @property
    def fetched_all(self) -> bool:
        """Whether nothing more is to be fetched.

        It was, up to the fixed end; or the topic is gone.
        """
        return self.ending or (self.end is not None and self.buffer.position >= self.end)

    @property
    def unread(self) -> OffsetRange | None:
        """The offsets that the log had and no fetch has brought; None: none."""
        first, end = self.buffer.position, self._read_end
        return OffsetRange(first, end) if first < end else None

    @property
    def spoiled(self) -> OffsetRange | None:
        """Offsets of a topic that is gone, fetched before that, and damaged; None: none."""
        # Damage moves the buffer back, for another fetch. Here none follows.
        first, end = self.buffer.position, self._fetched_to
        return OffsetRange(first, end) if self.ending and first < end else None

    def wants_fetch(self) -> bool:
        """Return whether the broker should be asked for more."""
        return not self.validating and self.buffer.has_room and not self.fetched_all and self.may_emit()

    def answered(self, last_stable: int, log_end: int, now_s: float) -> None:
        """Note what an answer without an error says of the log."""
        self.answered_s = now_s
        self.held_back = held_back(self.held_back, last_stable, log_end, now_s)

    def add(
        self,
        batches: Iterator[RecordBatch],
        size_bytes: int,
        next_offset: int,
        log_end: int,
        *,
        leader_epoch: int = -1,
        time_ms: int = -1,
    ) -> None:
        """Take in an answer for ``buffer.position``.

        ``leader_epoch``: the last batch's, -1 for no batch; ``time_ms``: the first batch's, -1 for none.
        """
        self.log_end = max(log_end, self.log_end)
        self.buffer.add(batches, size_bytes, next_offset, leader_epoch, time_ms)

    def _load(self) -> bool:
        """Unpack the next batch; False when none is at hand, or nothing may be emitted."""
        if not self.buffer or not self._may_unpack or not self.may_emit():
            return False
        try:
            return self.buffer.load()
        except KafkaError as error:
            self.damage = error
            return False
