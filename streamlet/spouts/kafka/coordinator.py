"""Which partitions this task reads at the moment, and everything that changes that (SEEDMAP K4, K11).

One class does the work of storm-kafka's coordinators; they differ in the reader they are given and in how often it is
asked. A look never blocks: it runs as an activity, and the managers change when its answer is there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from streamlet.base.backoff import Backoff
from streamlet.base.clock import Clock
from streamlet.base.errors import StreamletError
from streamlet.kafka.broker_errors import OffsetOutOfRange, UnknownTopicId, UnknownTopicOrPartition
from streamlet.spouts.kafka.assignment import (
    calculate_partitions_for_task,
    describe_assignment,
    idle_tasks_warning,
)
from streamlet.spouts.kafka.connections import DynamicPartitionConnections
from streamlet.spouts.kafka.diff import partition_changes
from streamlet.spouts.kafka.errors import NoSuchTopic
from streamlet.spouts.kafka.fetcher import FailedFetch
from streamlet.spouts.kafka.manager import PartitionManager
from streamlet.spouts.kafka.opening import PartitionOpener
from streamlet.spouts.kafka.partition import Broker, GlobalPartitionInformation, Partition
from streamlet.spouts.kafka.readers import BrokerReader
from streamlet.spouts.kafka.steps import Activity, NextPoll, Pause, Steps

log = logging.getLogger(__name__)

RETRY = Backoff(initial=0.1, maximum=2.0)
TOPIC_YOUNG_S = 1.5
TOPIC_GONE_GRACE_S = 15.0
"""A topic that is not there while the spout runs may be a broker that has just started and knows nothing yet."""


@dataclass(frozen=True, slots=True)
class Task:
    """This task among those of its spout."""

    index: int
    count: int


class PartitionCoordinator:
    """The partitions of this task and their managers. Used from the worker's loop only.

    ``poll`` moves everything on; it raises what must stop the spout. ``version`` grows whenever the list of managers
    changes.
    """

    def __init__(
        self,
        task: Task,
        reader: BrokerReader,
        connections: DynamicPartitionConnections,
        opener: PartitionOpener,
        clock: Clock,
        on_close: Callable[[PartitionManager], None],
        refresh_interval_s: float | None = None,
    ) -> None:
        self.refresh_interval_s = refresh_interval_s
        """A look is due when the last is so old; None: never on age."""
        self._task = task
        self._reader = reader
        self._connections = connections
        self._opener = opener
        self._clock = clock
        self._on_close = on_close
        self.version = 0
        self.info: GlobalPartitionInformation | None = None
        self._managers: dict[Partition, PartitionManager] = {}
        self._list: list[PartitionManager] = []
        self._leaders: dict[Partition, Broker | None] = {}
        self._opening: dict[Partition, Activity[PartitionManager]] = {}
        self._resetting: dict[Partition, Activity[PartitionManager | None]] = {}
        self._looking: Activity[GlobalPartitionInformation] | None = None
        self._last_look_s = clock.monotonic()
        self._look_not_before_s = 0.0
        self._failed_looks = 0
        self._asked_for_look = False
        self._gone_since_s: float | None = None

    # -- what the spout asks --------------------------------------------------------------------------------

    def get_my_managed_partitions(self) -> list[PartitionManager]:
        """The managers of this task, by partition number. The list is replaced, never changed in place."""
        return self._list

    def get_manager(self, partition: Partition) -> PartitionManager | None:
        """The manager of a partition, if this task has it."""
        return self._managers.get(partition)

    def leader(self, partition: Partition) -> Broker | None:
        """The leader as of the last look."""
        return self._leaders.get(partition)

    @property
    def complete(self) -> bool:
        """Every partition of this task is open."""
        return self.info is not None and not self._opening and self._managers.keys() == self._leaders.keys()

    def waiting_for(self) -> str:
        """What a start still waits for, in words."""
        if self.info is None:
            return "its partitions and their leaders could not be looked up"
        if leaderless := [str(p.number) for p, leader in self._leaders.items() if leader is None]:
            return f"partitions {', '.join(leaderless)} have no leader"
        return f"partitions {', '.join(str(p.number) for p in sorted(self._opening))} could not be opened"

    def refresh(self) -> None:
        """A look is wanted, as soon as the pause after the last one allows."""
        self._asked_for_look = True

    # -- the start ------------------------------------------------------------------------------------------

    def start(self) -> Steps[None]:
        """The first look and the opening of everything it gives. Retriable failures are tried again until the caller's
        patience ends; others are raised.
        """
        attempt = 0
        began_s = self._clock.monotonic()
        while self.info is None:
            try:
                info = yield from self._first_look()
            except StreamletError as error:
                # A topic made a moment ago may not be known to every broker yet.
                young = isinstance(error, NoSuchTopic) and self._clock.monotonic() - began_s < TOPIC_YOUNG_S
                if not error.retriable and not young:
                    raise
                attempt += 1
                self._opener.note(error)
                yield Pause(self._clock, RETRY.delay(attempt))
                continue
            self._opener.last_error = None  # whatever it was, it is over
            self._describe(info)
            self._apply(info, first=True)
        while not self.complete:
            yield NextPoll()
            self._poll_openings()

    def _first_look(self) -> Steps[GlobalPartitionInformation]:
        return (yield from self._reader.get_current_brokers())

    def _describe(self, info: GlobalPartitionInformation) -> None:
        mine = calculate_partitions_for_task(info, self._task.count, self._task.index)
        log.info("topic %s: %s", info.topic, describe_assignment(self._task.count, self._task.index, mine))
        warning = idle_tasks_warning(info, self._task.count)
        if warning and self._task.index == 0:
            log.warning(warning)

    # -- while it runs --------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Look when a look is due, take in what came, go on with what is being opened."""
        now = self._clock.monotonic()
        self._look(now)
        self._poll_openings()
        for partition, activity in list(self._resetting.items()):
            if activity.poll():
                del self._resetting[partition]
                if partition in self._managers:
                    self._managers[partition].validating = False
                fresh = activity.take()
                if fresh is not None:
                    self._replace(partition, fresh)

    def fetch_failed(self, failed: Iterable[FailedFetch]) -> None:
        """What a fetch could not read. Raises what time does not mend."""
        for one in failed:
            error = one.error
            if one.first and not isinstance(error, OffsetOutOfRange):
                log.warning("%s cannot be read at the moment, trying again. %s", one.partition, error.message)
            if isinstance(error, OffsetOutOfRange):
                self._reset(one.partition)
            elif isinstance(error, (UnknownTopicOrPartition, UnknownTopicId)) or error.stale_metadata:
                self.refresh()
            elif not error.retriable:
                raise error

    def _look(self, now: float) -> None:
        if self._looking is not None:
            if self._looking.poll():
                self._looked(self._looking, now)
            return
        aged = self.refresh_interval_s is not None and now - self._last_look_s >= self.refresh_interval_s
        if (aged or self._asked_for_look) and now >= self._look_not_before_s:
            self._asked_for_look = False
            self._looking = Activity(self._reader.get_current_brokers())
            if self._looking.poll():
                self._looked(self._looking, now)

    def _looked(self, looking: Activity[GlobalPartitionInformation], now: float) -> None:
        self._looking = None
        self._last_look_s = now
        try:
            info = looking.take()
        except NoSuchTopic:
            self._gone_since_s = now if self._gone_since_s is None else self._gone_since_s
            if now - self._gone_since_s > TOPIC_GONE_GRACE_S:
                raise
            self._look_again_after_pause(now)
            return
        except StreamletError as error:
            if not error.retriable:
                raise
            log.warning("Partitions and leaders could not be looked up, going on with what is known. %s", error.message)
            self._look_again_after_pause(now)
            return
        self._gone_since_s = None
        self._failed_looks = 0
        # After a failed fetch the old leader may still be named for a while: not more than a few looks a second.
        self._look_not_before_s = now + RETRY.initial
        self._apply(info, first=False)

    def _look_again_after_pause(self, now: float) -> None:
        self._failed_looks += 1
        self._look_not_before_s = now + RETRY.delay(self._failed_looks)
        self._asked_for_look = True

    def _apply(self, info: GlobalPartitionInformation, *, first: bool) -> None:
        old, self.info = self.info, info
        mine = calculate_partitions_for_task(info, self._task.count, self._task.index)
        want = {partition: info.get_broker_for(partition.number) for partition in mine}
        changes = partition_changes(self._leaders, want)
        for partition in changes.closed:
            self._close(partition)
        for move in changes.moved:
            log.info("%s is led by %s now (before: %s)", move.partition, move.new, move.old)
            self._leaders[move.partition] = move.new
            if move.new is not None:
                self._connections.register(move.partition, move.new)
        for partition in changes.opened:
            self._leaders[partition] = want[partition]
            leader = partial(self._leaders.get, partition)
            self._opening[partition] = Activity(self._opener.open(partition, leader, self._topic_id, not first))
        for manager in self._list:
            self._led_in(manager, info.get_leader_epoch(manager.partition.number))
        if old is not None and old.topic_id and info.topic_id and old.topic_id != info.topic_id:
            for partition in list(self._managers):
                self._reset(partition)
        if any(leader is None for leader in self._leaders.values()):
            self.refresh()
            self._look_not_before_s = max(self._look_not_before_s, self._clock.monotonic() + RETRY.delay(3))

    def _topic_id(self) -> str | None:
        return None if self.info is None else self.info.topic_id

    def _poll_openings(self) -> None:
        for partition, activity in list(self._opening.items()):
            if activity.poll():
                del self._opening[partition]
                self._replace(partition, activity.take())

    def _reset(self, partition: Partition) -> None:
        """The read position is not in the log (any more): find out what was lost, then go on or stop."""
        manager = self._managers.get(partition)
        if manager is not None and partition not in self._resetting:
            self._resetting[partition] = Activity(
                self._opener.reset(manager, partial(self._leaders.get, partition), self._topic_id)
            )

    def _led_in(self, manager: PartitionManager, leader_epoch: int) -> None:
        """After each election it is asked whether the new leader's log still holds what was read (KIP-320)."""
        elected = 0 <= manager.current_leader_epoch < leader_epoch
        manager.current_leader_epoch = leader_epoch
        if elected and manager.buffer.leader_epoch >= 0 and manager.partition not in self._resetting:
            manager.validating = True
            self._reset(manager.partition)

    def _replace(self, partition: Partition, manager: PartitionManager) -> None:
        old = self._managers.get(partition)
        if old is not None:
            old.closed = True
        if self.info is not None:
            manager.current_leader_epoch = self.info.get_leader_epoch(partition.number)
        self._managers[partition] = manager
        self._changed()

    def _close(self, partition: Partition) -> None:
        log.warning("%s is not there any more: its reading ends", partition)
        self._leaders.pop(partition, None)
        for activities in (self._opening, self._resetting):
            activity = activities.pop(partition, None)
            if activity is not None:
                activity.cancel()
        manager = self._managers.pop(partition, None)
        if manager is not None:
            manager.closed = True
            self._on_close(manager)
        self._connections.unregister(partition)
        self._changed()

    def _changed(self) -> None:
        self._list = [self._managers[partition] for partition in sorted(self._managers)]
        self.version += 1


class ZkCoordinator(PartitionCoordinator):
    """For ZkHosts: looks at ZooKeeper every ``refresh_freq_secs`` and after a failed fetch."""


class KafkaCoordinator(PartitionCoordinator):
    """For KafkaHosts: asks a broker for metadata every ``refresh_freq_secs`` and after a failed fetch."""
