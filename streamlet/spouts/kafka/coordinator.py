"""Which partitions this task reads at the moment, and everything that changes that.

Each task computes its share from the list of partitions, by arithmetic and without a word to the other tasks. (Where
offsets are kept in a consumer group the tasks are its members, and share by the same arithmetic: ``newest_run``.)
storm-kafka's coordinators differ here in the reader that they are given; StaticCoordinator also refuses another list. A
partition of this task is in one of these states:

    looked up --> opening --> read by a manager <--> resetting
                     |               |                   |
                     +---------------+-------> closed <--+      (no refresh lists it)

- A refresh is an activity: it never blocks, and managers change only when its answer is there.
- A refresh is due by age (``refresh_freq_secs``) or after a failed fetch, never more than a few times a second.
- A leader move keeps the manager: only its connection changes.
- The list of managers is replaced, never changed in place; ``version`` tells the spout to take the new one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from streamlet.base.backoff import Backoff
from streamlet.base.clock import Clock
from streamlet.base.errors import StreamletError
from streamlet.base.notices import Notices
from streamlet.kafka.broker_errors import (
    CorruptMessage,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    may_pass,
)
from streamlet.kafka.errors import Disconnected, KafkaError, with_sentence
from streamlet.kafka.fetch.unknown_errors import UNKNOWN_ERROR_S, UnknownErrors
from streamlet.kafka.metadata.topic_ids import TopicIds
from streamlet.spouts.kafka.activity import Activity, NextPoll, Steps, WaitUntil
from streamlet.spouts.kafka.broker_connections import DynamicPartitionConnections
from streamlet.spouts.kafka.chosen_topics import named, share, shift_of
from streamlet.spouts.kafka.epoch_ends import LastLook
from streamlet.spouts.kafka.errors import (
    NoSuchTopic,
    PartitionsMissing,
    StaticLeaderMoved,
    TaskIndexOutOfRange,
    TopicsDeleted,
)
from streamlet.spouts.kafka.hosts import BrokerReader
from streamlet.spouts.kafka.manager import PartitionManager
from streamlet.spouts.kafka.partition import Broker, FoundTopics, GlobalPartitionInformation, Partition
from streamlet.spouts.kafka.partition_opening import PartitionOpener
from streamlet.spouts.kafka.spout_fetcher import FailedFetch

log = logging.getLogger(__name__)

RETRY = Backoff(initial=0.1, maximum=2.0)

FAILURES_AGAIN_S = 60.0
"""Seconds before the same failure of a look-up is told again."""

LASTED_S = 5.0
"""Seconds of failures whose end is told."""

TOPIC_YOUNG_S = 1.5
"""Seconds a start waits for a missing topic: one made a moment ago is not known to every broker yet."""

TOPIC_GONE_GRACE_S = 15.0
"""Seconds a topic may be missing while the spout runs: a broker that has just started may know nothing yet."""

UNREACHABLE_S = 5.0
"""Seconds a broker of StaticHosts may be unreachable before Kafka is asked who leads now."""

UNREACHABLE_GAP_S = 30.0
"""Seconds without a failure after which the next one counts as a new outage."""

LOOK_AGAIN = (UnknownTopicOrPartition, UnknownTopicId, UnknownLeaderEpoch)
"""Failures of a fetch, beside those by stale metadata, after which the next look is due at once."""

DAMAGED = (
    "Its log is damaged there: mend it from another replica, or set the stored offset behind the damage with "
    "`streamlet offsets reset`."
)
"""The remedy where a leader finds its own log damaged."""

Leaders = Mapping[Partition, Broker | None]
InfoByTopic = Mapping[str, GlobalPartitionInformation]


def calculate_partitions_for_task(
    info: GlobalPartitionInformation, total_tasks: int, task_index: int, shift: int = 0
) -> list[Partition]:
    """Return the partitions of task ``task_index`` (from 0), ordered by number. Raises TaskIndexOutOfRange.

    The tasks' shares are disjoint and complete, and differ in size by at most one while the numbers have no hole.
    ``shift``: of a topic that may be one of several.
    """
    if not 0 <= task_index < total_tasks:
        raise TaskIndexOutOfRange(
            f"Task index {task_index} of {total_tasks} tasks of the spout on topic {info.topic!r}: the index counts "
            "from 0 and must be less than the number of tasks. The fault is in the code that started it."
        )
    partitions = info.get_ordered_partitions()
    # Discovered partitions go by number: one that a refresh does not list moves no other. A list written by hand goes
    # by position, because it may name any few numbers.
    if info.by_position:
        return partitions[task_index::total_tasks]
    return [Partition(info.topic, number) for number in share(info.leaders, total_tasks, task_index, shift)]


def describe_assignment(total_tasks: int, task_index: int, mine: list[Partition], *, several: bool = False) -> str:
    """Return the line that each task logs about its share."""
    numbers = ", ".join(str(partition if several else partition.number) for partition in mine) or "none"
    return f"task {task_index + 1} of {total_tasks} owns partitions: {numbers}"


def idle_tasks_warning(info: GlobalPartitionInformation, total_tasks: int) -> str | None:
    """Return a warning when tasks outnumber partitions, else None."""
    count = len(info.leaders)
    if total_tasks <= count:
        return None
    return (
        f"There are more tasks ({total_tasks}) than partitions of topic {info.topic!r} ({count}): "
        f"{total_tasks - count} of them will be idle. Lower par, or add partitions."
    )


def idle_among_several(topics: Iterable[GlobalPartitionInformation], total_tasks: int) -> str | None:
    """Return a warning when several topics leave tasks idle, else None."""
    looked = list(topics)
    busy = {(number + shift_of(info.topic)) % total_tasks for info in looked for number in info.leaders}
    if not looked or len(busy) == total_tasks:
        return None
    return (
        f"{total_tasks - len(busy)} of {total_tasks} tasks have no partition of {named(info.topic for info in looked)} "
        "and are idle: each topic's partitions go round the tasks, from a task that its name decides. Lower par, or "
        "add partitions."
    )


@dataclass(frozen=True, slots=True)
class LeaderMove:
    """A partition whose leader changed; None: no leader for a while."""

    partition: Partition
    old: Broker | None
    new: Broker | None


@dataclass(frozen=True, slots=True)
class PartitionChanges:
    """The difference between two refreshes, each part in partition order."""

    opened: tuple[Partition, ...] = ()
    closed: tuple[Partition, ...] = ()
    moved: tuple[LeaderMove, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.opened or self.closed or self.moved)


def partition_changes(have: Leaders, want: Leaders) -> PartitionChanges:
    """Compare a task's partitions and leaders with the last refresh (``want``)."""
    return PartitionChanges(
        opened=tuple(sorted(want.keys() - have.keys())),
        closed=tuple(sorted(have.keys() - want.keys())),
        moved=tuple(
            LeaderMove(partition, have[partition], want[partition])
            for partition in sorted(have.keys() & want.keys())
            if have[partition] != want[partition]
        ),
    )


@dataclass(frozen=True, slots=True)
class Task:
    """A task's place among the tasks of its spout."""

    index: int
    count: int


@dataclass(eq=False, repr=False)
class PartitionCoordinator:
    """The partitions of this task and their managers. Used from the worker's loop only.

    ``poll`` moves everything on; errors that it raises must stop the spout.
    """

    # Long: one machine, whose edges are understood only together. What a refresh changes, and which partitions are
    # this task's, is decided by the functions above.

    _task: Task
    _reader: BrokerReader
    _connections: DynamicPartitionConnections
    _opener: PartitionOpener
    _clock: Clock
    _on_close: Callable[[PartitionManager], None]
    refresh_interval_s: float | None = None
    """Age of the last refresh, in seconds, at which the next is due; None: none by age."""
    opens_later: bool = field(default=False, kw_only=True)
    """Whether partitions are opened by ``reopen`` alone."""
    run_began: bool = field(default=False, kw_only=True)
    """Whether this task takes the place of one that was up when the run began."""
    several: bool = field(default=False, kw_only=True)
    """Whether the topics were given as a list or a pattern: the log names the topic of each partition then."""
    on_topics: Callable[[Iterable[str]], None] | None = field(default=None, kw_only=True)
    """Hears the topics' names whenever they change."""

    def __post_init__(self) -> None:
        self.version = 0
        """Grows whenever the list of managers changes; the spout compares it."""
        self.topics: InfoByTopic | None = None
        """The last look, by topic; None before the first. Replaced, never changed."""
        self._ids = TopicIds()
        self._missing_since_s: dict[str, float] = {}
        """Topics that the last look did not list, for a time."""
        self._managers: dict[Partition, PartitionManager] = {}
        self._ending: list[PartitionManager] = []
        """Those of deleted topics whose records are not all done."""
        self._list: list[PartitionManager] = []
        self._leaders: dict[Partition, Broker | None] = {}
        self._opening: dict[Partition, Activity[PartitionManager]] = {}
        self._resetting: dict[Partition, Activity[PartitionManager | None]] = {}
        self._reset_again: set[Partition] = set()
        """Those whose leader has changed during their reset."""
        self._refreshing: Activity[FoundTopics] | None = None
        self._last_refresh_s = self._clock.monotonic()
        self._refresh_not_before_s = 0.0
        self._failed_refreshes = 0
        self._failing_since_s = 0.0
        self._failures_told: Notices[str] = Notices(FAILURES_AGAIN_S)
        self._looks = 0
        """Refreshes that have begun; their numbers count from 1."""
        self._found_by: dict[str, int] = {}
        """Topic -> the last refresh that found it."""
        self._unknown_errors: UnknownErrors[Partition] = UnknownErrors()
        self._asked_for_refresh = False
        self._at_start: frozenset[Partition] = frozenset()
        """Partitions that the first refresh listed."""
        self._on_parted: Callable[[], None] | None = None
        self._holds = self.opens_later
        """Partitions are opened by ``reopen`` alone."""

    # -- questions of the spout -----------------------------------------------------------------------------

    def get_my_managed_partitions(self) -> list[PartitionManager]:
        """Return the managers of this task, by topic and partition number; at last those of deleted topics."""
        return self._list

    def get_manager(self, partition: Partition) -> PartitionManager | None:
        """Return the manager of a partition, if this task has it."""
        return self._managers.get(partition)

    def leader(self, partition: Partition) -> Broker | None:
        """Return the leader as of the last refresh."""
        return self._leaders.get(partition)

    @property
    def complete(self) -> bool:
        """Whether every partition of this task is open."""
        return self.topics is not None and not self._opening and self._leaders.keys() <= self._managers.keys()

    def waiting_for(self) -> str:
        """Return what a start still waits for, in words."""
        if self.topics is None:
            return "its partitions and their leaders could not be looked up"
        if leaderless := [p for p, leader in self._leaders.items() if leader is None]:
            return f"partitions {self._in_words(leaderless)} have no leader"
        return f"partitions {self._in_words(sorted(self._opening))} could not be opened"

    def _in_words(self, partitions: Iterable[Partition]) -> str:
        return ", ".join(str(partition if self.several else partition.number) for partition in partitions)

    def refresh(self) -> None:
        """Ask for a refresh, after the pause since the last one."""
        self._asked_for_refresh = True

    # -- the start ------------------------------------------------------------------------------------------

    def start(self) -> Steps[None]:
        """Refresh for the first time and open every partition of this task.

        Retriable failures are tried again until the caller cancels; others are raised.
        """
        attempt = 0
        began_s = self._clock.monotonic()
        while self.topics is None:
            try:
                topics = yield from self._first_refresh()
            except StreamletError as error:
                young = isinstance(error, NoSuchTopic) and self._clock.monotonic() - began_s < TOPIC_YOUNG_S
                if not may_pass(error) and not young:
                    raise
                attempt += 1
                self._opener.last_error = error
                yield WaitUntil(self._clock, RETRY.delay(attempt))
                continue
            self._opener.last_error = None
            self._opener.refuse_strangers(topics.values())
            self._describe(list(topics.values()))
            self._apply(topics, first=True)
        while not self.complete and not self._holds:
            yield NextPoll()
            self._refresh_if_due(self._clock.monotonic())
            self._poll_openings()

    # -- attempts, where each begins at the committed offsets -------------------------------------------------

    def hold(self) -> None:
        """Fetch nothing more until ``reopen``."""
        self._holds = True
        for activities in (self._opening, self._resetting):
            for activity in activities.values():
                activity.cancel()
            activities.clear()
        self._reset_again.clear()
        # They stay in the list until others take their place: what they had open is not done.
        for manager in self._list:
            manager.close()

    def reopen(self) -> None:
        """Open every partition again, at its stored offset."""
        self._holds = False
        for partition in self._leaders:
            # Rule: what came after the start is read from its start, whichever attempt opens it. Until its first commit
            # nothing is stored, and start_offset="latest" would pass over what was written before it was noticed.
            self._open(partition, appeared=self._appears(partition))

    def on_parted(self, call: Callable[[], None]) -> None:
        """Have ``call`` called where the attempt cannot go on.

        A log parted from ours, or a partition with a manager was closed.
        """
        self._on_parted = call

    def _open(self, partition: Partition, *, appeared: bool) -> None:
        self._opening[partition] = Activity(self._opener.open(partition, self._last_look(partition), appeared))

    def _last_look(self, partition: Partition) -> LastLook:
        # Functions: the leader may move while the partition is being opened, or reset.
        return LastLook(
            partial(self._leaders.get, partition),
            partial(self._topic_id, partition.topic),
            partial(self._leader_epoch, partition),
            self.refresh,
        )

    def _appears(self, partition: Partition) -> bool:
        """Return whether a partition without stored offset came during the run."""
        # Rule: where a partition begins is decided once a run. A task stores it before the run begins, for each
        # partition that is there. So one without a stored offset has come since, also where a replacement sees it
        # first. Before the run begins nothing was emitted by any task, and start_offset counts from then on.
        # With attempts nothing is stored until the first one opens, which is after the run began: a replacement may
        # find nothing though all partitions were there, and the whole topic would be read against start_offset.
        return partition not in self._at_start or (self.run_began and not self.opens_later)

    def _first_refresh(self) -> Steps[InfoByTopic]:
        return (yield from self._reader.get_current_brokers()).whole()

    def _describe(self, topics: list[GlobalPartitionInformation]) -> None:
        count, index = self._task.count, self._task.index
        mine = [partition for info in topics for partition in self._share_of(info)]
        names = ", ".join(sorted(info.topic for info in topics)) or "none"
        heading = f"topics {names}" if self.several else f"topic {names}"
        log.info("%s: %s", heading, describe_assignment(count, index, mine, several=self.several))
        if index == 0:
            warning = idle_among_several(topics, count) if self.several else idle_tasks_warning(topics[0], count)
            if warning:
                log.warning(warning)
            if not topics:
                log.warning("There is no topic yet that matches the pattern: the spout waits for the first one.")

    def _share_of(self, info: GlobalPartitionInformation) -> list[Partition]:
        shift = shift_of(info.topic) if self.several else 0
        return calculate_partitions_for_task(info, self._task.count, self._task.index, shift)

    # -- while it runs --------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Refresh when it is due; move refreshes, openings and resets on."""
        now = self._clock.monotonic()
        self._refresh_if_due(now)
        self._poll_openings()
        for manager in [one for one in self._ending if one.is_finished]:
            self._ending.remove(manager)
            self._count_spoiled(manager)
            manager.close()
            self._changed()
        for partition, activity in list(self._resetting.items()):
            # What one of them leads to may cancel the others.
            if self._resetting.get(partition) is activity and activity.poll():
                del self._resetting[partition]
                self._was_reset(partition, activity.take())

    def _was_reset(self, partition: Partition, fresh: PartitionManager | None) -> None:
        manager = self._managers[partition]
        if partition in self._reset_again and fresh is None and not manager.closed:
            self._reset(partition)
        else:
            manager.validated()
        self._reset_again.discard(partition)
        if fresh is not None:
            self._replace(partition, fresh)
        # Here and not in the reset's own steps: the attempt that ends cancels them, and they cannot while they run.
        elif manager.closed and self._on_parted is not None:
            self._on_parted()
        self._reset_if_made_again(partition)

    def fetch_failed(self, failed: Iterable[FailedFetch]) -> None:
        """Handle partitions that could not be fetched. Raises errors that time does not fix."""
        for one in failed:
            error = one.error
            if not isinstance(error, UnknownServerError):
                self._unknown_errors.ended(one.partition)
            if one.first and not isinstance(error, OffsetOutOfRange):
                log.warning("%s cannot be read at the moment, trying again. %s", one.partition, error.message)
            # Not a warning yet: the reset finds out whether something was lost, and says so.
            if isinstance(error, OffsetOutOfRange):
                self._reset(one.partition, look_first=True)
            # A broker of an older epoch than ours catches up in a moment, or holds another log: a look tells.
            elif isinstance(error, LOOK_AGAIN) or error.stale_metadata:
                self.refresh()
            elif isinstance(error, CorruptMessage):
                self._damaged_at_the_leader(one.partition, error)
            elif isinstance(error, UnknownServerError):
                self._met_unknown_error(one, error)
            elif not error.retriable:
                raise error

    def _damaged_at_the_leader(self, partition: Partition, error: KafkaError) -> None:
        # Rule: damage that the broker itself has found counts as damage that came, once nothing stands before it: the
        # second time at one position it stops the spout. Asked again and again, the partition would stand for ever.
        manager = self._managers.get(partition)
        if manager is not None and not manager.at_hand:
            manager.damage = with_sentence(error, DAMAGED)

    def _met_unknown_error(self, one: FailedFetch, error: KafkaError) -> None:
        if one.first:
            self._unknown_errors.ended(one.partition)
        lasts_s = self._unknown_errors.failed(one.partition, self._clock.monotonic())
        if lasts_s >= UNKNOWN_ERROR_S:
            raise with_sentence(error, f"Each fetch of the last {lasts_s:.0f} s ended so.")

    def _refresh_if_due(self, now: float) -> None:
        if self._refreshing is None:
            aged = self.refresh_interval_s is not None and now - self._last_refresh_s >= self.refresh_interval_s
            if not (aged or self._asked_for_refresh) or now < self._refresh_not_before_s:
                return
            self._asked_for_refresh = False
            self._looks += 1
            self._refreshing = Activity(self._reader.get_current_brokers())
        if self._refreshing.poll():
            self._refreshed(self._refreshing, now)

    def _refreshed(self, refreshing: Activity[FoundTopics], now: float) -> None:
        self._refreshing = None
        self._last_refresh_s = now
        try:
            look = refreshing.take()
            topics = self._settled(look)
        except StreamletError as error:
            if not may_pass(error):
                raise
            if not self._failed_refreshes:
                self._failing_since_s = now
            self._failed_refreshes += 1
            # Rule: say once a minute what lasts, and say when it is over. A broker that was away for 25 s gave the same
            # line 22 times, and none when it was read again.
            if (left_out := self._failures_told.due(error.message, now)) is not None:
                more = f" ({left_out:,} like this were left out.)" if left_out else ""
                log.warning(
                    "Partitions and leaders could not be looked up, going on with what is known. %s%s",
                    error.message,
                    more,
                )
            self._refresh_not_before_s = now + RETRY.delay(self._failed_refreshes)
            self._asked_for_refresh = True
            return
        if self._failed_refreshes and now - self._failing_since_s >= LASTED_S:
            log.info("Partitions and leaders are looked up again, after %.0f s.", now - self._failing_since_s)
        self._failed_refreshes = 0
        self._found_by.update(dict.fromkeys(look.found.keys() - self._late(look), self._looks))
        # Not more than a few refreshes a second: after a failed fetch the old leader may still be named for a while.
        self._refresh_not_before_s = now + RETRY.initial
        self._apply(topics, first=False)

    def _apply(self, topics: InfoByTopic, *, first: bool) -> None:
        old, self.topics = self.topics or {}, topics
        for name, info in topics.items():
            self._ids.note(name, info.topic_id)
        if first or topics.keys() != old.keys():
            self._tell_topics(old, topics, first=first)
        mine = [partition for info in topics.values() for partition in self._share_of(info)]
        want = {partition: topics[partition.topic].get_broker_for(partition.number) for partition in mine}
        if first:
            self._at_start = frozenset(want)
        changes = partition_changes(self._leaders, want)
        # A topic that is made again is another one: what it has then came during the run.
        again = {name for name, info in topics.items() if name in old and info.is_another(old[name].topic_id)}
        self._at_start = frozenset(each for each in self._at_start if each.topic in topics.keys() - again)
        for partition in changes.closed:
            if self.opens_later or not self._is_gone(partition):
                self._close(partition)
            else:
                self._finish(partition)
        for move in changes.moved:
            log.info("%s is led by %s now (before: %s)", move.partition, move.new, move.old)
            self._leaders[move.partition] = move.new
            if move.new is not None:
                self._connections.register(move.partition, move.new)
        for partition in changes.opened:
            self._leaders[partition] = want[partition]
            if not self._holds:
                self._open(partition, appeared=not first or self._appears(partition))
        for manager in list(self._managers.values()):
            if manager.partition.topic in topics:
                self._led_in(manager, topics[manager.partition.topic].get_leader_epoch(manager.partition.number))
        for partition in list(self._managers):
            self._reset_if_made_again(partition)
        # A partition without a leader, or a topic that is missing, is looked for again soon, not only at the next
        # regular refresh.
        if self._missing_since_s or any(leader is None for leader in self._leaders.values()):
            self.refresh()
            self._refresh_not_before_s = max(self._refresh_not_before_s, self._clock.monotonic() + RETRY.delay(3))

    def _settled(self, look: FoundTopics) -> dict[str, GlobalPartitionInformation]:
        """Return the topics to read: those found, and those that are missing only for a moment."""
        now = self._clock.monotonic()
        # One that is unclear holds up no other; where nothing else is found, the look has failed.
        for error in sorted(look.unclear.values(), key=may_pass):
            if not may_pass(error) or not look.found:
                raise error
        late = self._late(look)
        topics = {name: info for name, info in look.found.items() if name not in late}
        for name in late:
            log.info("topic %r is known to a broker as it was before it was made again: another look follows", name)
            self.refresh()
        unsure = {*look.unclear, *late}
        for name, info in (self.topics or {}).items():
            if name in topics:
                self._missing_since_s.pop(name, None)
            elif name in unsure or now - self._missing_since_s.setdefault(name, now) <= TOPIC_GONE_GRACE_S:
                topics[name] = info
            else:
                del self._missing_since_s[name]
        if look.missing and not topics:
            raise self._all_deleted() if self.topics else look.missing[min(look.missing)]
        return topics

    def _all_deleted(self) -> TopicsDeleted:
        """Count the offsets never read of topics that are all gone."""
        # Rule: a topic that is deleted while it is read is no wrong setting. Told to create it, a user did so, and the
        # records that nobody had read were in no line and in no number.
        unread = {}
        for partition, manager in self._managers.items():
            if manager.unread is not None:
                unread[partition] = manager.unread
                manager.ledger.counts.cut(manager.unread)
        return TopicsDeleted(sorted(self.topics or {}), unread)

    def _late(self, look: FoundTopics) -> list[str]:
        """Return the topics that are named by an earlier id."""
        return [name for name, info in look.found.items() if self._ids.is_replaced(name, info.topic_id)]

    def _tell_topics(self, old: InfoByTopic, topics: InfoByTopic, *, first: bool) -> None:
        for name in sorted(topics.keys() - old.keys()) if not first else ():
            mine = self._in_words(self._share_of(topics[name])) or "none"
            log.info("topic %r has appeared, and is read from its start. Of it this task owns: %s", name, mine)
        for name in sorted(old.keys() - topics.keys()):
            log.warning(
                "topic %r is not there any more: what is open of it is finished, and its partitions are closed", name
            )
        if self.on_topics is not None:
            self.on_topics(sorted(topics))

    def _topic_id(self, topic: str) -> str | None:
        info = (self.topics or {}).get(topic)
        return None if info is None else info.topic_id

    def _leader_epoch(self, partition: Partition) -> int:
        info = (self.topics or {}).get(partition.topic)
        return -1 if info is None else info.get_leader_epoch(partition.number)

    def _poll_openings(self) -> None:
        for partition, activity in list(self._opening.items()):
            if activity.poll():
                del self._opening[partition]
                self._replace(partition, activity.take())
                self._reset_if_made_again(partition)

    def _reset(self, partition: Partition, *, look_first: bool = False) -> None:
        """Find out which records were lost, then go on or stop."""
        manager = self._managers.get(partition)
        if manager is not None and partition not in self._resetting and not self._holds:
            self._resetting[partition] = Activity(self._reset_steps(manager, look_first=look_first))

    def _reset_if_made_again(self, partition: Partition) -> None:
        """Reset a partition whose topic was deleted and created again: offsets mean other records."""
        # Rule: by the topic that the manager reads, at each look and whenever an opening or a reset has ended. The two
        # looks that differ may lie within one of these, and no fetch would be answered for the old topic any more.
        manager, info = self._managers.get(partition), (self.topics or {}).get(partition.topic)
        if manager is None or info is None or partition in self._opening:
            return
        if info.is_another(manager.topic_id):
            self._reset(partition)

    def _is_gone(self, partition: Partition) -> bool:
        """Return whether the topic is gone that a partition's manager reads."""
        manager, info = self._managers.get(partition), (self.topics or {}).get(partition.topic)
        return info is None or (manager is not None and info.is_another(manager.topic_id))

    def _reset_steps(self, manager: PartitionManager, *, look_first: bool) -> Steps[PartitionManager | None]:
        partition = manager.partition
        # Rule: an offset out of range is judged by a look that is newer. The log of a topic that was made again is
        # shorter, too, and taken for one that was cut it would take the records of the old one along.
        # One that is under way may have read the old metadata. One that fails, or does not find the topic, says
        # nothing, and nobody else may ask again.
        if look_first and manager.topic_id is not None:
            begun, again = self._looks, NextPoll()
            while self._found_by.get(partition.topic, 0) <= begun:
                if self._refreshing is None:
                    self.refresh()
                yield again
        return (yield from self._opener.reset(manager, self._last_look(partition)))

    def _led_in(self, manager: PartitionManager, leader_epoch: int) -> None:
        """Note the leader epoch; where it is another one, check the read position with the leader."""
        # Also where it falls: that is a look at a former leader, or another log in place of the one that was read.
        before, manager.current_leader_epoch = manager.current_leader_epoch, leader_epoch
        another = before >= 0 and leader_epoch not in (-1, before)
        if another and manager.buffer.leader_epoch >= 0:
            # Nothing is fetched until the leader has answered (KIP-320): a log truncated by an unclean election may
            # have grown past our position again, and nothing would look out of range.
            # Rule: also during a reset. That one may have asked the leader of before, or would ask with the epoch of a
            # batch which the new leader has sent meanwhile, and which fits its log in any case.
            manager.validate()
            if manager.partition in self._resetting:
                self._reset_again.add(manager.partition)
            self._reset(manager.partition)

    def _replace(self, partition: Partition, manager: PartitionManager) -> None:
        # The old manager may still be in a fetch or a commit under way: closed, their answers pass it by.
        old = self._managers.get(partition)
        if old is not None and old.ending:
            self._ending.append(old)
        elif old is not None:
            old.close()
        manager.current_leader_epoch = self._leader_epoch(partition)
        self._managers[partition] = manager
        self._changed()

    def _finish(self, partition: Partition) -> None:
        """Fetch nothing more of a partition; close it once nothing is open."""
        # What was read is in memory: it needs no topic to be emitted, retried and done. Only its offset has no place
        # any more, so it is not committed.
        # Rule: beside the managers of the partitions, not among them. A topic that is made again opens its partition
        # under a manager of its own, and what is open of the old one would have nobody to send it again.
        manager = self._managers.pop(partition, None)
        if manager is None:
            self._close(partition)
            return
        self._count_unread(manager)
        manager.end_reading()
        self._ending.append(manager)
        self._let_go(partition)
        self._on_close(manager)
        self._changed()

    def _count_unread(self, manager: PartitionManager) -> None:
        if manager.unread is not None:
            log.error("%s: its topic was deleted; at least offsets %s are lost", manager.partition, manager.unread)
        self._opener.topic_gone(manager.partition, manager.unread)

    def _count_spoiled(self, manager: PartitionManager) -> None:
        gone = manager.spoiled
        if gone is not None:
            manager.ledger.counts.cut(gone)
            log.error("%s: offsets %s came damaged, and their topic is gone: they are lost", manager.partition, gone)

    def _let_go(self, partition: Partition) -> None:
        self._leaders.pop(partition, None)
        for activities in (self._opening, self._resetting):
            activity = activities.pop(partition, None)
            if activity is not None:
                activity.cancel()
        self._reset_again.discard(partition)
        self._connections.unregister(partition)

    def _close(self, partition: Partition) -> None:
        if partition in self._leaders:
            log.warning("%s is not there any more: its reading ends", partition)
        is_gone = self._is_gone(partition)
        self._let_go(partition)
        manager = self._managers.pop(partition, None)
        if manager is not None:
            if is_gone:
                self._count_unread(manager)
            manager.close()
            self._on_close(manager)
        self._changed()
        # Rule: an attempt ends with any partition of it. A refresh may leave one out for a moment, and END would commit
        # its records without their offset: they would be written again.
        if manager is not None and self._on_parted is not None:
            self._on_parted()

    def _changed(self) -> None:
        self._list = [*(self._managers[partition] for partition in sorted(self._managers)), *self._ending]
        self.version += 1


ZkCoordinator = PartitionCoordinator
"""storm-kafka's name, for ZkHosts: the reader looks at ZooKeeper."""

KafkaCoordinator = PartitionCoordinator
"""For KafkaHosts: the reader asks a broker for metadata."""


@dataclass(eq=False, repr=False)
class StaticCoordinator(PartitionCoordinator):
    """For StaticHosts: leaders are taken at their word and never replaced.

    Kafka is asked at the start for leader epochs, since an in-sync follower serves fetches too: without epochs a broker
    that leads no more would go unnoticed. After a failed fetch it is asked who leads now, only to name it and stop.
    """

    asked_after_failure: BrokerReader = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._known_as: dict[int, Broker | None] = {}
        self._unreachable: dict[Partition, tuple[float, float]] = {}
        self._denied = False
        """Whether a broker of the list has said, while a partition was opened, that it does not lead."""

    def _first_refresh(self) -> Steps[InfoByTopic]:
        ((topic, written),) = (yield from self._reader.get_current_brokers()).whole().items()
        known = (yield from self.asked_after_failure.get_current_brokers()).whole()[topic]
        self._check_numbers(written, known)
        self._reader = self.asked_after_failure
        self._known_as = dict(known.leaders)
        return {topic: replace(written, topic_id=known.topic_id, leader_epochs=known.leader_epochs)}

    def _check_numbers(self, written: GlobalPartitionInformation, known: GlobalPartitionInformation) -> None:
        for partition in written.get_ordered_partitions():
            if partition.number not in known.leaders:
                raise PartitionsMissing(partition.number, partition.topic, len(known.leaders))

    def _settled(self, look: FoundTopics) -> dict[str, GlobalPartitionInformation]:
        assert self.topics is not None
        written = {topic: self._as_written(self.topics[topic], info) for topic, info in look.found.items()}
        return super()._settled(look) | written

    def _as_written(
        self, written: GlobalPartitionInformation, info: GlobalPartitionInformation
    ) -> GlobalPartitionInformation:
        self._check_numbers(written, info)
        for partition, mine in self._leaders.items():
            leader = info.get_broker_for(partition.number)
            # The cluster may spell the broker's address otherwise. Unless the broker of the list denies that it leads,
            # the spelling of the first refresh names the same broker.
            unsure = self._denied and partition in self._opening
            alias = None if unsure else self._known_as.get(partition.number)
            if leader is None:
                self.refresh()
            elif mine is not None and leader not in (mine, alias):
                raise StaticLeaderMoved(partition, mine, leader)
        # The same broker may lead under the next epoch, after an election that it won: take the epochs, keep the list.
        self._denied = False
        return replace(written, topic_id=info.topic_id, leader_epochs=info.leader_epochs)

    def _poll_openings(self) -> None:
        super()._poll_openings()
        if self._opening and isinstance(self._opener.last_error, NotLeaderOrFollower):
            self._opener.last_error = None
            self._denied = True
            self.refresh()
        if self._opening:
            self._refresh_if_due(self._clock.monotonic())

    def fetch_failed(self, failed: Iterable[FailedFetch]) -> None:
        lost = [one for one in failed if isinstance(one.error, Disconnected)]
        super().fetch_failed([one for one in failed if not isinstance(one.error, Disconnected)])
        now = self._clock.monotonic()
        for one in lost:
            # Ask only when the broker stays away: one that restarts is still the leader, and the other brokers may
            # spell its address otherwise.
            began, latest = self._unreachable.get(one.partition, (now, now))
            began = now if now - latest > UNREACHABLE_GAP_S else began
            self._unreachable[one.partition] = (began, now)
            if now - began > UNREACHABLE_S:
                self.refresh()
