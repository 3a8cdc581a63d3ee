"""Where reading of a partition begins, and the way back when the log is not as it was left.

Two questions, each a pure decision behind some requests that never block:

- *Open*: the offset store is read, the log's bounds are looked up, and :func:`decide_start` chooses. The choice is
  stored under the next owner epoch before the first record is fetched.
- *Reset*, of a partition that is being read, after "offset out of range", after an election, or when the topic was made
  again. The position is still good, or the log begins after it (read on at its start), or the log parted from ours
  below it (KIP-320): then the offsets themselves mean other records now, and a new manager replaces the old one.

Why leader epochs: after an unclean election the log may grow past the old position again before anybody looks. Nothing
is out of range then, and only the epoch of the record before the position tells that the log is another one. So each
offset is stored with that epoch, and the leader is asked where the epoch ends: at each start, after each election.

A loss is never passed over in silence: it stops the spout (OffsetsLost), or is logged and counted
(``fail_on_data_loss=False``).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from streamlet.base.backoff import Backoff
from streamlet.base.clock import Clock
from streamlet.base.errors import StreamletError
from streamlet.base.printable import many
from streamlet.kafka.broker_errors import UnknownServerError
from streamlet.kafka.errors import BrokerError, with_sentence
from streamlet.kafka.fetch.truncation import judge_position
from streamlet.kafka.fetch.unknown_errors import UNKNOWN_ERROR_S, UnknownErrors
from streamlet.spouts.kafka.activity import Steps, WaitUntil
from streamlet.spouts.kafka.broker_connections import Connection, DynamicPartitionConnections, LogBounds
from streamlet.spouts.kafka.epoch_ends import EpochEnds, LastLook
from streamlet.spouts.kafka.errors import LeadersBehind, OffsetsLost, PlaceOfNoPartition
from streamlet.spouts.kafka.manager import EmitLimits, PartitionManager
from streamlet.spouts.kafka.offset_ledger import OffsetLedger
from streamlet.spouts.kafka.partition import GlobalPartitionInformation, OffsetRange, Partition
from streamlet.spouts.kafka.partition_counters import PartitionCounters
from streamlet.spouts.kafka.read_range import OFFSET, ReadPlace, partitions_in
from streamlet.spouts.kafka.retry import ExponentialBackoffMsgRetryManager
from streamlet.spouts.kafka.schemes.scheme import Scheme
from streamlet.spouts.kafka.spout_config import GroupOffsets, SpoutConfig, StartPolicy
from streamlet.spouts.kafka.stores.offset_store import (
    OTHER_LOG,
    OffsetStore,
    Owner,
    Reason,
    StartDecision,
    StopOffset,
    StoredOffset,
)

log = logging.getLogger(__name__)

RETRY = Backoff(initial=0.1, maximum=1.0)

_SAME_READ = frozenset({Reason.STORED, Reason.BELOW_START, Reason.AHEAD_OF_END, Reason.DIVERGED})
"""Reasons under which a read goes on as begun."""

_CUT = frozenset({Reason.AHEAD_OF_END, Reason.DIVERGED, Reason.NO_COMMON_EPOCH})
"""Reasons that mean a log whose end may lie before one that was seen."""

_ASK_EPOCH = frozenset({Reason.STORED, Reason.AHEAD_OF_END})
"""Findings by bounds alone; the leader epoch before the position may tell more."""

T = TypeVar("T")


def decide_start(
    stored: StoredOffset | None,
    log: LogBounds,
    policy: StartPolicy,
    *,
    topology_id: str = "",
    topic_id: str | None = None,
    appeared_while_running: bool = False,
    epoch_end: int | None = None,
) -> StartDecision:
    """Choose where a partition begins, from the stored offset and the log.

    A stored offset that the log does not have is one of four different losses, never a quiet jump. ``epoch_end``:
    where the leader epoch of the record before the stored offset ends in the leader's log; None unknown.
    """
    # ignore_stored_offset holds once a run: an offset stored by this run is used, so a restarted worker goes on.
    ignored = stored is not None and policy.ignore_stored_offset and stored.topology_id != topology_id
    # A partition that appears while running begins at its start whatever the policy: records written before it was
    # noticed count too.
    if appeared_while_running and (stored is None or ignored):
        return StartDecision(log.start, Reason.NEW_PARTITION)
    if stored is None:
        return _first(log, policy)
    if ignored:
        first = _first(log, policy)
        return first if first.is_loss else StartDecision(first.offset, Reason.FORCED)
    return judge(stored.offset, log, same_topic=_same(topic_id, stored.topic_id), epoch_end=epoch_end)


def judge(offset: int, log: LogBounds, *, same_topic: bool, epoch_end: int | None = None) -> StartDecision:
    """Choose where to read on after ``offset`` was the next; Reason.STORED: there, nothing was lost."""
    # Rule: by the end of the whole log. The last stable offset lies before what is open, and an offset behind it is no
    # loss: `offsets reset`, a group that another consumer has used, and start_offset may all name one.
    verdict = judge_position(
        offset, log_start=log.start, log_end=log.whole_end, epoch_end=epoch_end, same_topic=same_topic
    )
    # A finding of a loss has the same name as its reason.
    reason = Reason.STORED if verdict.holds else Reason[verdict.finding.name]
    # Of a log that parted from ours at an unknown place nobody has read anything.
    resume_at = log.start if verdict.resume_at is None else verdict.resume_at
    return StartDecision(resume_at, reason, None if verdict.lost is None else OffsetRange(*verdict.lost))


def _same(one: str | None, other: str | None) -> bool:
    """Return whether two topic ids may be of one topic; None unknown."""
    return one is None or other is None or one == other


def _first(log: LogBounds, policy: StartPolicy) -> StartDecision:
    if policy.where == "latest":
        return StartDecision(log.end, Reason.FIRST_LATEST)
    if policy.where == OFFSET:
        found = judge(policy.offset, log, same_topic=True)
        if found.reason is Reason.AHEAD_OF_END:  # what was never there is not lost
            return replace(found, lost=None)
        return found if found.is_loss else StartDecision(policy.offset, Reason.FIRST_OFFSET)
    if policy.where == "timestamp":
        return StartDecision(log.end if log.at_time is None else log.at_time, Reason.FIRST_TIMESTAMP)
    return StartDecision(log.start, Reason.FIRST_EARLIEST)


def decide_stop(
    place: ReadPlace, log: LogBounds, stored: StoredOffset | None, decision: StartDecision, topology_id: str = ""
) -> StopOffset:
    """Choose where a bounded read stops.

    A stop that was chosen before is kept by the run that chose it, and by a later one as long as it is not reached:
    "latest" means the end when the backfill began, also to its second half.
    """
    asked = str(place)
    # Another topic, or another beginning: the stop of the old one means nothing.
    if stored is not None and stored.stop is not None and decision.reason in _SAME_READ:
        same_read = stored.topology_id == topology_id or stored.offset < stored.stop.offset
        if stored.stop.asked == asked and same_read:
            return kept_stop(stored.stop, log, decision)
    if place.where == OFFSET:
        return StopOffset(place.number, asked)
    return StopOffset(log.end if log.at_stop is None else log.at_stop, asked)


def refuse_strangers(config: SpoutConfig, topics: Iterable[GlobalPartitionInformation]) -> None:
    """Raise PlaceOfNoPartition where the settings name a partition that a topic lacks."""
    # Rule: at the start, also one that may come later. A typo would read a whole log in place of a part.
    numbers = {info.topic: info.leaders for info in topics}
    for setting in ("start_offset", "stop_offset"):
        for partition in partitions_in(getattr(config, setting), config.choice()):
            there = numbers.get(partition.topic)
            if there is not None and partition.number not in there:
                raise PlaceOfNoPartition(setting, partition, there)


def kept_stop(stop: StopOffset, log: LogBounds, decision: StartDecision) -> StopOffset:
    """Return a stop that was chosen before, fitted to the log."""
    # Rule: a stop is chosen once. After a loss the end of the log is another one, and a read to "latest" would go on
    # and on. But a log that was cut below the stop may never get there again.
    return _lowered(stop, log.end) if decision.reason in _CUT else stop


def _lowered(stop: StopOffset, log_end: int) -> StopOffset:
    """Return a stop no further than a log that was cut; one that was written as an offset stays."""
    return stop if stop.asked.startswith(OFFSET) else replace(stop, offset=min(stop.offset, log_end))


def _from(first: int, lost: OffsetRange | None) -> OffsetRange | None:
    """Return the part of a range from ``first`` on; None: nothing of it is known."""
    return None if lost is None or lost.end <= first else OffsetRange(max(lost.first, first), lost.end)


def _tell_begin(partition: Partition, decision: StartDecision, id_: str) -> None:
    log.info("%s: begins at offset %d (%s)", partition, decision.offset, decision.reason.value)
    if decision.stop is None:
        return
    log.info("%s: stops at offset %d (%s)", partition, decision.stop.offset, decision.stop.asked)
    if decision.reason is Reason.STORED and decision.offset > decision.stop.offset:
        log.warning(
            "%s: nothing is read, for it begins behind its stop: %r has read further before. Give this read an id of "
            "its own, or set ignore_stored_offset.",
            *(partition, id_),
        )


def _loss_in_words(partition: Partition, offset: int, decision: StartDecision) -> str:
    where = f"Topic {partition.topic!r}, partition {partition.number}:"
    if decision.reason is Reason.TOPIC_RECREATED:
        return (
            f"{where} the topic was deleted and created again; the offset {offset} belongs to the old one. What of the "
            "old one was not read is gone."
        )
    what = {
        Reason.BELOW_START: f"the log begins at {decision.offset} now. Offsets {decision.lost} were removed by "
        "retention or DeleteRecords before they were read.",
        Reason.AHEAD_OF_END: f"the log ends at {decision.offset}. Its end {decision.lost} was truncated (an unclean "
        "leader election, or a cluster restored from a backup).",
        Reason.DIVERGED: f"what the log holds from offset {decision.offset} on is not what was read there. Its end "
        f"{decision.lost} was truncated (an unclean leader election) and is written again by another leader.",
        Reason.NO_COMMON_EPOCH: "the record before it was written under a newer leader epoch than the log knows, "
        "and no newer leader was found. It is another log (a cluster restored from a backup, or a topic created "
        "again), whose old one is gone with what was not read of it; or that of a broker which is cut off from the "
        "others: then start again once it is not.",
    }[decision.reason]
    return f"{where} reading should go on at offset {offset}, but {what}"


def _tell_of_open_transaction(partition: Partition, bounds: LogBounds) -> None:
    # Rule: a run that ends by itself says what it leaves unread behind an open transaction. One that hangs keeps all
    # that is written after it from every reader, and the run would be over, caught up, with no lag.
    if bounds.end < bounds.whole_end:
        log.warning(
            "%s: a transaction is open at offset %d, and this run reads up to there. The %s from there on can "
            "be read when it has ended: by a run that is started then.",
            *(partition, bounds.end, many(bounds.whole_end - bounds.end, "offset")),
        )


def _stored_lost(partition: Partition, offset: int, decision: StartDecision, where: str) -> OffsetsLost:
    return OffsetsLost(
        partition,
        decision.lost,
        f"{_loss_in_words(partition, offset, decision)} The offset is kept in {where}. "
        f"Set fail_on_data_loss=False to go on at offset {decision.offset} and have the loss logged and "
        "counted, or set ignore_stored_offset=True to begin at start_offset.",
    )


def _position_lost(
    partition: Partition, offset: int, decision: StartDecision, where: str, config: SpoutConfig
) -> OffsetsLost:
    # Rule: no remedy for an offset that is gone. Brokers delete a group's offsets with their topic, so the next run
    # finds none, and needs no setting to begin.
    if decision.reason is not Reason.TOPIC_RECREATED or not isinstance(config.offsets(), GroupOffsets):
        return _stored_lost(partition, offset, decision, where)
    return OffsetsLost(
        partition,
        decision.lost,
        f"{_loss_in_words(partition, offset, decision)} Kafka has forgotten the offset in {where} with the old topic: "
        "started again, the spout reads the new one from its start_offset on. To have a run go on by itself, with the "
        "loss logged and counted, set fail_on_data_loss=False.",
    )


def _start_lost(partition: Partition, offset: int, decision: StartDecision, bounds: LogBounds) -> OffsetsLost:
    return OffsetsLost(
        partition,
        decision.lost,
        f"Topic {partition.topic!r}, partition {partition.number}: start_offset says {offset}, and a read can "
        f"begin from {bounds.start} (the first record there is) to {bounds.whole_end} (the end of the log). Correct "
        f"it, or set fail_on_data_loss=False to begin at {decision.offset}.",
    )


def raise_if_final(
    partition: Partition, error: StreamletError, unknown_errors: UnknownErrors[Partition], now_s: float
) -> None:
    """Raise an error that asking again does not mend; warn of the first unexpected one."""
    # Rule: an answer that the broker did not expect itself ends no look at a log before a minute has brought nothing
    # else, as with fetches. An attempt begins with what is stored, so also its writes may be made twice.
    if not isinstance(error, UnknownServerError):
        unknown_errors.ended(partition)
        if not error.retriable:
            raise error
        return
    lasts_s = unknown_errors.failed(partition, now_s)
    if not lasts_s:
        log.warning("%s: its offsets cannot be looked up at the moment, trying again. %s", partition, error.message)
    if lasts_s >= UNKNOWN_ERROR_S:
        raise with_sentence(error, f"Each answer of the last {lasts_s:.0f} s was so.")


class PartitionOpener:
    """Makes partition managers, and resets those whose log changed."""

    def __init__(
        self,
        config: SpoutConfig,
        schemes: Mapping[str, Scheme] | Scheme,
        owner: Owner,
        connections: DynamicPartitionConnections,
        store: OffsetStore,
        clock: Clock,
        uniform: Callable[[], float],
        *,
        until_caught_up: bool,
        opens_later: bool = False,
    ) -> None:
        self.opens_later = opens_later
        """Whether each attempt opens partitions again (``topology.delivery: exactly-once``)."""
        self.refuse_strangers = partial(refuse_strangers, config)
        self._ends: dict[tuple[Partition, str | None], int] = {}
        """Partition and topic id -> where its log ended when the run began."""
        self._cuts: dict[tuple[Partition, str | None], int] = {}
        """The same -> where it ended after it was cut."""
        self._epoch_ends = EpochEnds(clock)
        self._unknown_errors: UnknownErrors[Partition] = UnknownErrors()
        self._config = config
        self._schemes = schemes
        self._owner = owner
        self._connections = connections
        self._store = store
        self._clock = clock
        self._uniform = uniform
        self._until_caught_up = until_caught_up
        self._slots = itertools.count()
        self._limits = EmitLimits(
            config.max_unacked_bytes, config.max_uncommitted_offsets, config.on_poison, in_attempts=opens_later
        )
        self.last_error: StreamletError | None = None
        """Why opening takes so long; read by the start, for the error that gives up."""
        self.counts: dict[Partition, PartitionCounters] = {}
        """Of every partition that was ever opened."""

    def open(self, partition: Partition, look: LastLook, appeared: bool) -> Steps[PartitionManager]:
        """Open a partition; try again after retriable errors, raise the others."""
        return self._until_answered(
            partition,
            look,
            lambda connection: self._open_once(partition, connection, look, appeared),
            # Not a warning: the start itself says what it waits for when it takes long.
            lambda error: log.debug("%s could not be opened yet: %s", partition, error.message),
        )

    def reset(self, manager: PartitionManager, look: LastLook) -> Steps[PartitionManager | None]:
        """Find where to read on: the log lacks the position, or another leader wrote it, or the topic is another.

        Returns the manager that replaces it; None when it reads on, or is closed because an attempt follows. Raises
        OffsetsLost.
        """
        partition = manager.partition
        return self._until_answered(
            partition,
            look,
            lambda connection: self._reset_once(manager, connection, look),
            lambda error: log.info("%s: what its log holds could not be asked yet: %s", partition, error.message),
        )

    def _until_answered(
        self,
        partition: Partition,
        look: LastLook,
        attempt_at: Callable[[Connection], Steps[T]],
        not_yet: Callable[[StreamletError], None],
    ) -> Steps[T]:
        try:
            for attempt in itertools.count(1):
                broker = look.leader()
                if broker is not None:
                    try:
                        return (yield from attempt_at(self._connections.register(partition, broker)))
                    except StreamletError as error:
                        raise_if_final(partition, error, self._unknown_errors, self._clock.monotonic())
                        self.last_error = error
                        not_yet(error)
                        # Not where a broker is away: one that restarts leads as before.
                        if isinstance(error, LeadersBehind) or (
                            isinstance(error, BrokerError) and error.stale_metadata
                        ):
                            look.again()
                yield WaitUntil(self._clock, RETRY.delay(attempt))
        finally:
            self._epoch_ends.forget(partition)
            self._unknown_errors.ended(partition)
        raise AssertionError("unreachable")

    def _open_once(
        self, partition: Partition, connection: Connection, look: LastLook, appeared: bool
    ) -> Steps[PartitionManager]:
        topic_id = look.topic_id()
        found: list[tuple[StoredOffset | None, LogBounds]] = []

        def decide(stored: StoredOffset | None) -> Steps[StartDecision]:
            bounds = yield from self._bounds(partition, connection)
            found.append((stored, bounds))
            chosen = partial(
                decide_start,
                *(stored, bounds, self._config.start_policy(partition)),
                topology_id=self._owner.topology_id,
                topic_id=topic_id,
                appeared_while_running=appeared,
            )
            decision = chosen()
            # Asked only of a log that may be the stored one: of another topic, or where the stored offset does not
            # count, no newer leader can be hoped for.
            if stored is not None and decision.reason in _ASK_EPOCH:
                end = yield from self._epoch_ends.ask(partition, connection, look, stored.leader_epoch)
                decision = chosen(epoch_end=end)
            return self._allowed(partition, stored, bounds, topic_id, decision)

        decision = yield from self._store.open(partition, connection.broker, topic_id, decide)
        if decision.is_loss:
            self._report_loss(partition, decision, topic_id)
        _tell_begin(partition, decision, self._config.id)
        stored, bounds = found[-1]
        manager = self._manager(partition, decision, bounds, topic_id)
        if stored is not None and decision.reason is Reason.STORED:
            manager.buffer.starts_in(stored.leader_epoch)
        return manager

    def _bounds(self, partition: Partition, connection: Connection) -> Steps[LogBounds]:
        # Rule: the log is asked after the store. A former owner goes on writing and committing until it hands over:
        # against older bounds, what it has stored since would look as if the log were cut.
        stop = self._config.stop_place(partition)
        start_ms = self._config.start_place(partition).timestamp_ms
        return (yield from connection.log_bounds(partition, start_ms, None if stop is None else stop.timestamp_ms))

    def _allowed(
        self,
        partition: Partition,
        stored: StoredOffset | None,
        bounds: LogBounds,
        topic_id: str | None,
        decision: StartDecision,
    ) -> StartDecision:
        """Return a decision with its stop. Raises OffsetsLost."""
        config, mine = self._config, self._owner.topology_id
        begins_elsewhere = stored is None or (config.ignore_stored_offset and stored.topology_id != mine)
        start, stop = config.start_place(partition), config.stop_place(partition)
        if decision.is_loss and config.fail_on_data_loss:
            if stored is not None and not begins_elsewhere:
                raise _stored_lost(partition, stored.offset, decision, self._store.where(partition))
            if start.where == OFFSET:
                raise _start_lost(partition, start.number, decision, bounds)
        self._note_cut(partition, decision, bounds, topic_id)
        if stop is None:
            return decision
        decided = decide_stop(stop, bounds, stored, decision, mine)
        cut = self._cuts.get((partition, topic_id))
        return replace(decision, stop=decided if cut is None else _lowered(decided, cut))

    def _note_cut(self, partition: Partition, decision: StartDecision, bounds: LogBounds, topic_id: str | None) -> None:
        # Rule: keep the cut for all later attempts. The stored offset may lie below it; the next attempt would then see
        # no loss, and wait for an end that the log may never have again.
        if decision.reason in _CUT:
            self._cuts[partition, topic_id] = min(bounds.end, self._cuts.get((partition, topic_id), bounds.end))

    def _reset_once(
        self, manager: PartitionManager, connection: Connection, look: LastLook
    ) -> Steps[PartitionManager | None]:
        partition, position, topic_id = manager.partition, manager.buffer.position, look.topic_id()
        bounds = yield from self._bounds(partition, connection)
        decision = judge(position, bounds, same_topic=_same(topic_id, manager.topic_id))
        if decision.reason in _ASK_EPOCH:
            end = yield from self._epoch_ends.ask(partition, connection, look, manager.buffer.leader_epoch)
            decision = judge(position, bounds, same_topic=True, epoch_end=end)
        if decision.reason is Reason.STORED:
            # After a failed fetch, not an election: fetch again from the last emitted record on.
            if not manager.validating:
                manager.buffer.refetch()
            return None
        if decision.reason in OTHER_LOG:
            decision = replace(decision, lost=manager.unread)
        elif decision.reason is not Reason.BELOW_START:
            # Open records are read again under the new slot as far as the log still has them; those after the cut are
            # gone.
            again = max(bounds.start, min(decision.offset, manager.last_completed_offset()))
            decision = replace(decision, offset=again)
        if decision.is_loss and self._config.fail_on_data_loss:
            raise _position_lost(partition, position, decision, self._store.where(partition), self._config)
        if decision.reason is Reason.BELOW_START:
            # Open records are neither lost nor fetched again: their values are in memory. Answers at hand go out first.
            self._report_loss(partition, decision, topic_id)
            manager.buffer.skip_to(bounds.start)
            return None
        if self.opens_later:
            # Nothing is stored here: what is open is not committed. The next attempt finds by itself what is lost below
            # the committed offset.
            known = replace(decision, lost=_from(manager.ledger.committed, decision.lost))
            self._report_loss(partition, known, topic_id)
            self._note_cut(partition, decision, bounds, topic_id)
            manager.close()
            return None
        return (yield from self._begun_again(manager, look, topic_id, decision, bounds))

    def _begun_again(
        self,
        manager: PartitionManager,
        look: LastLook,
        topic_id: str | None,
        decision: StartDecision,
        bounds: LogBounds,
    ) -> Steps[PartitionManager]:
        """Replace a manager whose offsets mean other records now."""
        # Rule: what was read of a log that is gone is in memory, and is finished there: it has no other place. What
        # was cut off a log is read again as far as the log has it, so the old slot counts no more.
        if decision.reason in OTHER_LOG:
            manager.end_reading()
        else:
            manager.close()
        partition, stop = manager.partition, manager.stop
        place = self._config.stop_place(partition)
        if stop is not None and decision.reason not in OTHER_LOG:
            decision = replace(decision, stop=kept_stop(stop, bounds, decision))
        elif place is not None:
            decision = replace(decision, stop=decide_stop(place, bounds, None, decision))

        def as_decided(_stored: StoredOffset | None) -> Steps[StartDecision]:
            yield from ()
            return decision

        # Rule: from here on only the store is asked again, for the same decision. The manager reads no more: judged
        # again, with another answer of the log, it would be told to go on.
        yield from self._until_answered(
            partition,
            look,
            lambda connection: self._store.open(partition, connection.broker, topic_id, as_decided),
            lambda error: log.info("%s: where to go on could not be stored yet: %s", partition, error.message),
        )
        self._report_loss(partition, decision, topic_id)
        return self._manager(partition, decision, bounds, topic_id)

    def topic_gone(self, partition: Partition, unread: OffsetRange | None) -> None:
        """Count the unread offsets of a topic that is gone; forget the others."""
        counts = self.counts[partition] = PartitionCounters(None, self.counts.get(partition))
        counts.cut(unread)

    def _report_loss(self, partition: Partition, decision: StartDecision, topic_id: str | None) -> None:
        # Rule: a loss is counted where it is found, at an opening as in a reset.
        lost, counts = decision.lost, self._counts_of(partition, topic_id)
        if decision.reason is not Reason.BELOW_START:
            counts.cut(lost)
            # Rule: fresh counters behind a cut. The manager of the old log may hear of its records late, and what it
            # notes of an offset must not count for the record that stands there now.
            self.counts[partition] = PartitionCounters(topic_id, counts)
        elif lost is not None:
            counts.retired(lost)
        # Of a log that is gone only what a fetch has seen is known.
        least = "at least " if decision.reason in OTHER_LOG else ""
        gone = f"{least}offsets {lost} are lost" if lost else "what was not read is lost"
        log.error("%s: %s; %s, going on at %d", partition, decision.reason.value, gone, decision.offset)

    def _counts_of(self, partition: Partition, topic_id: str | None) -> PartitionCounters:
        counts = self.counts.get(partition)
        if counts is None or not _same(counts.topic_id, topic_id):
            counts = self.counts[partition] = PartitionCounters(topic_id, counts)
        counts.topic_id = counts.topic_id or topic_id
        return counts

    def _end(
        self, partition: Partition, decision: StartDecision, bounds: LogBounds, topic_id: str | None
    ) -> int | None:
        """Return the offset at which a manager stops to read; None: no end."""
        if decision.stop is not None:
            return decision.stop.offset
        if not self._until_caught_up:
            return None
        if not self.opens_later:
            _tell_of_open_transaction(partition, bounds)
            return bounds.end
        # That of the run's start, whichever attempt this is.
        if (partition, topic_id) not in self._ends:
            _tell_of_open_transaction(partition, bounds)
        end = self._ends.setdefault((partition, topic_id), bounds.end)
        return min(end, self._cuts.get((partition, topic_id), end))

    def _manager(
        self, partition: Partition, decision: StartDecision, bounds: LogBounds, topic_id: str | None
    ) -> PartitionManager:
        ledger: OffsetLedger[Any] = OffsetLedger(decision.offset, self._counts_of(partition, topic_id))
        retries = ExponentialBackoffMsgRetryManager(
            self._config.retry_backoff(), self._config.retry_limit, self._uniform
        )
        end, stream = self._end(partition, decision, bounds, topic_id), self._config.streams.get(partition.topic)
        schemes = self._schemes
        scheme = schemes[partition.topic] if isinstance(schemes, Mapping) else schemes
        return PartitionManager(
            *(partition, next(self._slots), ledger, retries, scheme, self._limits, end, stream),
            topic_id=topic_id,
            stop=decision.stop,
            log_end=bounds.end,
        )
