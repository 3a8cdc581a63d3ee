"""Opening a partition, and finding the way back after its offset went out of range. One piece each, never blocking."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

from streamlet.base.backoff import Backoff
from streamlet.base.clock import Clock
from streamlet.base.errors import StreamletError
from streamlet.spouts.kafka.connections import Connection, DynamicPartitionConnections, epoch_end, log_bounds
from streamlet.spouts.kafka.errors import OffsetsLost, describe_loss
from streamlet.spouts.kafka.manager import EmitLimits, PartitionManager
from streamlet.spouts.kafka.offset_ledger import OffsetLedger, OffsetRange
from streamlet.spouts.kafka.offset_store import Decide, OffsetStore, Owner
from streamlet.spouts.kafka.partition import Broker, Partition
from streamlet.spouts.kafka.retry import ExponentialBackoffMsgRetryManager
from streamlet.spouts.kafka.scheme import Scheme
from streamlet.spouts.kafka.spout_config import SpoutConfig
from streamlet.spouts.kafka.start import LogBounds, Reason, StartDecision, StoredOffset, decide_start
from streamlet.spouts.kafka.steps import Pause, Steps

log = logging.getLogger(__name__)

RETRY = Backoff(initial=0.1, maximum=1.0)

Leader = Callable[[], Broker | None]
TopicId = Callable[[], str | None]


class PartitionOpener:
    """Makes partition managers: looks at the log, takes the stored offset over, decides where to begin."""

    def __init__(
        self,
        config: SpoutConfig,
        scheme: Scheme,
        owner: Owner,
        connections: DynamicPartitionConnections,
        store: OffsetStore,
        clock: Clock,
        uniform: Callable[[], float],
        *,
        until_caught_up: bool,
    ) -> None:
        self._config = config
        self._scheme = scheme
        self._owner = owner
        self._connections = connections
        self._store = store
        self._clock = clock
        self._uniform = uniform
        self._until_caught_up = until_caught_up
        self._slots = itertools.count()
        self._limits = EmitLimits(config.max_unacked_bytes, config.max_uncommitted_offsets, config.on_poison)
        self.last_error: StreamletError | None = None
        self.lost_offsets = 0

    def note(self, error: StreamletError) -> None:
        """Remember why it takes so long, for the error that says so in the end."""
        self.last_error = error

    def open(self, partition: Partition, leader: Leader, topic_id: TopicId, appeared: bool) -> Steps[PartitionManager]:
        """Try until it is open; only what is not retriable is raised."""
        for attempt in itertools.count(1):
            broker = leader()
            if broker is not None:
                connection = self._connections.register(partition, broker)
                try:
                    return (yield from self._open_once(partition, connection, topic_id(), appeared))
                except StreamletError as error:
                    if not error.retriable:
                        raise
                    self.note(error)
                    # The start says what it waits for when it takes long, and fails by name when it takes too long.
                    log.debug("%s could not be opened yet: %s", partition, error.message)
            yield Pause(self._clock, RETRY.delay(attempt))
        raise AssertionError("unreachable")

    def reset(self, manager: PartitionManager, leader: Leader, topic_id: TopicId) -> Steps[PartitionManager | None]:
        """The log has not the offset that ``manager`` reads on at, or another leader wrote it, or the topic is another.

        Ends with None when the manager itself reads on, or with the manager that replaces it. Raises OffsetsLost.
        """
        for attempt in itertools.count(1):
            broker = leader()
            if broker is not None:
                connection = self._connections.register(manager.partition, broker)
                try:
                    return (yield from self._reset_once(manager, connection, topic_id()))
                except StreamletError as error:
                    if not error.retriable:
                        raise
                    self.note(error)
                    log.info("%s: what its log holds could not be asked yet: %s", manager.partition, error.message)
            yield Pause(self._clock, RETRY.delay(attempt))
        raise AssertionError("unreachable")

    def _open_once(
        self, partition: Partition, connection: Connection, topic_id: str | None, appeared: bool
    ) -> Steps[PartitionManager]:
        bounds = yield from log_bounds(connection, partition, self._config.start_timestamp_ms())
        found: list[StoredOffset | None] = []
        decide = self._decider(partition, connection, bounds, topic_id, appeared, found)
        decision = yield from self._store.open(partition, connection.broker, topic_id, decide)
        if decision.is_loss:
            self._report_loss(partition, decision)
        log.info("%s: begins at offset %d (%s)", partition, decision.offset, decision.reason.value)
        manager = self._manager(partition, decision.offset, bounds, topic_id)
        stored = found[-1]
        if stored is not None and decision.reason is Reason.STORED:
            manager.buffer.starts_in(stored.leader_epoch)
        return manager

    def _reset_once(
        self, manager: PartitionManager, connection: Connection, topic_id: str | None
    ) -> Steps[PartitionManager | None]:
        partition, position = manager.partition, manager.fetch_position
        bounds = yield from log_bounds(connection, partition)
        same_topic = topic_id is None or manager.topic_id is None or topic_id == manager.topic_id
        parted: int | None = None
        if same_topic and bounds.start <= position <= bounds.end:
            asked = None
            while asked != manager.current_leader_epoch:  # another election meanwhile: its leader has another log
                asked = manager.current_leader_epoch
                parted = yield from epoch_end(connection, partition, manager.buffer.leader_epoch, asked)
            if parted is None or parted >= position:
                if not manager.validating:
                    manager.refetch()
                return None
        if same_topic and position < bounds.start:
            # What is open has its values here: neither lost nor fetched again. What was fetched goes out first.
            lost = OffsetRange(position, bounds.start)
            decision = StartDecision(bounds.start, Reason.BELOW_START, lost)
            self._refuse_loss(partition, position, decision)
            self._report_loss(partition, decision)
            manager.skip_to(bounds.start)
            return None
        reason = Reason.DIVERGED if parted is not None else Reason.AHEAD_OF_END
        reason = reason if same_topic else Reason.TOPIC_RECREATED
        return (yield from self._begin_anew(manager, connection, bounds, reason, topic_id, parted))

    def _begin_anew(
        self,
        manager: PartitionManager,
        connection: Connection,
        bounds: LogBounds,
        reason: Reason,
        topic_id: str | None,
        parted: int | None,
    ) -> Steps[PartitionManager]:
        """The offsets themselves mean something else now: another slot, another ledger, nothing of the old."""
        partition, position = manager.partition, manager.fetch_position
        if reason is Reason.TOPIC_RECREATED:
            decision = StartDecision(bounds.start, reason)
        else:
            end = bounds.end if parted is None else parted
            offset = max(bounds.start, min(end, manager.last_completed_offset()))
            decision = StartDecision(offset, reason, OffsetRange(end, position))
        self._refuse_loss(partition, position, decision)
        self._report_loss(partition, decision)
        manager.closed = True

        def as_decided(_stored: StoredOffset | None) -> Steps[StartDecision]:
            yield from ()
            return decision

        yield from self._store.open(partition, connection.broker, topic_id, as_decided)
        return self._manager(partition, decision.offset, bounds, topic_id)

    def _decider(
        self,
        partition: Partition,
        connection: Connection,
        bounds: LogBounds,
        topic_id: str | None,
        appeared: bool,
        found: list[StoredOffset | None],
    ) -> Decide:
        def decide(stored: StoredOffset | None) -> Steps[StartDecision]:
            found.append(stored)
            end: int | None = None
            if stored is not None and bounds.start <= stored.offset <= bounds.end:
                end = yield from epoch_end(connection, partition, stored.leader_epoch)
            decision = decide_start(
                stored,
                bounds,
                self._config.start_policy(),
                topology_id=self._owner.topology_id,
                topic_id=topic_id,
                appeared_while_running=appeared,
                epoch_end=end,
            )
            if stored is not None:
                self._refuse_loss(partition, stored.offset, decision)
            return decision

        return decide

    def _refuse_loss(self, partition: Partition, offset: int, decision: StartDecision) -> None:
        if decision.is_loss and self._config.fail_on_data_loss:
            raise OffsetsLost(partition, offset, decision, self._store.where(partition))

    def _report_loss(self, partition: Partition, decision: StartDecision) -> None:
        lost = decision.lost
        self.lost_offsets += 0 if lost is None else lost.end - lost.first
        log.error(describe_loss(partition, decision, lost))

    def _manager(self, partition: Partition, offset: int, bounds: LogBounds, topic_id: str | None) -> PartitionManager:
        ledger: OffsetLedger[Any] = OffsetLedger(offset)
        retries = ExponentialBackoffMsgRetryManager(
            self._config.retry_backoff(), self._config.retry_limit, self._uniform
        )
        end = bounds.end if self._until_caught_up else None
        manager = PartitionManager(partition, next(self._slots), ledger, retries, self._scheme, self._limits, end)
        manager.log_end = bounds.end
        manager.topic_id = topic_id
        return manager
