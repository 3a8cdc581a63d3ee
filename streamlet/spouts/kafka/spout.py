"""KafkaSpout: the partitions of Kafka topics as tracked tuples.

All methods run on the worker's loop, and none of them waits (but ``initialize``, for as long as ``startup`` says, and
the last commit). ``next_tuple`` walks from partition to partition. Between two turns, and on a timer while nobody asks
for tuples, ``_serve`` does the upkeep in a fixed order: answers in, failures to the coordinator, looks and openings,
fetches out, commits, queued requests out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from streamlet.base import chance
from streamlet.base.clock import through_suspend
from streamlet.base.errors import SettingError
from streamlet.base.printable import many
from streamlet.components.context import TopologyContext
from streamlet.components.spout import FailReason, FailureCause, Spout, TriesInTests
from streamlet.kafka.errors import KafkaError
from streamlet.model.delivery import is_exactly_once
from streamlet.model.paused import PausedPart
from streamlet.model.spec import SPOUT, ComponentSpec
from streamlet.spouts.kafka.attempt import AttemptPhase
from streamlet.spouts.kafka.dead_letters.dead_letter import TIMED_OUT
from streamlet.spouts.kafka.dead_letters.epoch_letters import EpochLetters
from streamlet.spouts.kafka.errors import DEAD_LETTER, STOP, NoTopicMatches, PoisonRecord
from streamlet.spouts.kafka.exactly_once import TOLD, ExactlyOnce
from streamlet.spouts.kafka.failure_lines import FailureLines
from streamlet.spouts.kafka.last_commits import LastCommits, last_commits_of
from streamlet.spouts.kafka.manager import (
    EMITTED_MORE_LEFT,
    NO_EMITTED,
    UNKNOWN,
    OffsetIds,
    PartitionAges,
    PartitionManager,
    tries_used_up,
)
from streamlet.spouts.kafka.open_transactions import OpenTransactionLines
from streamlet.spouts.kafka.ownership.emit_gate import EmitGate
from streamlet.spouts.kafka.partition import Broker, Partition
from streamlet.spouts.kafka.partition_counters import PartitionCounters
from streamlet.spouts.kafka.spout_config import GroupOffsets, SpoutConfig, override_names, topology_names
from streamlet.spouts.kafka.startup import Parts, wire
from streamlet.spouts.kafka.stores.group_offsets import KafkaGroupOffsets

if TYPE_CHECKING:  # see `startup`
    from streamlet.spouts.kafka.dead_letters.dead_letter_writer import DeadLetterWriter

MOST_TOLD = 5
"""Most partitions that a line names."""

LIVE_PART = 8
"""A partition is live that has fetched less than one in so many parts of its share of ``buffer_size_bytes``."""

LIVE_MOST = 4
"""Times ``buffer_size_bytes`` that may be unpacked before live partitions wait, too."""

TOOK_TOO_LONG = FailureCause("", TIMED_OUT, "a bolt held a tuple longer than topology.message.timeout.secs")


EPOCH_TRIES = 5
"""Tries after which an epoch of a failing record has come down to that record alone."""


class KafkaSpout(Spout):
    """Reads its share of the topics' partitions; the message id of a tuple is ``(slot, offset)``.

    ``next_tuple`` emits records of one partition, several where each gives one tuple and the worker has room, and does
    no I/O that waits. Partitions take turns of at most ``records_per_turn`` records. Use :meth:`spec` in a topology::

        lines = KafkaSpout.spec(config=SpoutConfig(ZkHosts("zk:2181"), "lines", "/streamlet", "demo"))
    """

    # Long: the methods that the runtime calls, most of them short, over one list of managers and one set of parts.

    timer_interval_s: ClassVar[float | None] = 0.1
    answers_for_failures = True  # replayed, or given up by ``on_poison``
    tells_epochs = True

    def __init__(self, spout_config: SpoutConfig, output_fields: Any = None) -> None:
        self.spout_config = spout_config
        self._fields = output_fields
        self._parts: Parts | None = None
        self._last_commits = LastCommits()
        self._last_commit_by_s: float | None = None
        self._commits_answered = True
        """Whether the last commits were taken; once they were not, that was told."""
        self._managers: list[PartitionManager] = []
        self._counts: Mapping[Partition, PartitionCounters] = {}
        """Of all partitions that the task has read, also of those that it reads no more."""
        self._slots: dict[int, PartitionManager] = {}
        self._version = -1
        self._current: PartitionManager | None = None
        self._curr_partition_index = 0
        self._turn_left = 0
        self._gate: EmitGate[Any] | None = None
        self._dead_letters: DeadLetterWriter | EpochLetters | None = None
        self._exactly_once: ExactlyOnce | None = None
        self._leader: Callable[[Partition], Broker | None] = lambda partition: None
        self._nearer: Callable[[Partition], Broker | None] = lambda partition: None
        self._damaged: dict[Partition, int] = {}
        self._until_caught_up = False
        self._paused_parts: Sequence[PausedPart] = ()
        self._failure_lines = FailureLines(self.logger)
        self._open_transactions = OpenTransactionLines(self.logger)

    @classmethod
    def spec(
        cls, name: str | None = None, par: int | None = None, config: Any = None, outputs: Any = None
    ) -> ComponentSpec:
        """Return this spout as a line of a topology. Raises SettingError.

        ``config``: a SpoutConfig. ``outputs``: the fields of a scheme that is a plain function; other schemes name
        their own.
        """
        if not isinstance(config, SpoutConfig):
            raise SettingError(
                f"{cls.__name__}.spec: config is {config!r}. It is a SpoutConfig: "
                'SpoutConfig(hosts=ZkHosts("zk1:2181"), topic="lines", zk_root="/streamlet", id="demo").'
            )
        fields = config.outputs(outputs)
        kwargs = {"spout_config": config, "output_fields": fields}
        tasks = cls.par if par is None else par
        return ComponentSpec(cls, SPOUT, name=name, par=tasks, config=cls.config, outputs=fields, kwargs=kwargs)

    @classmethod
    def override_keys(cls) -> frozenset[str]:
        return override_names()

    @classmethod
    def topology_keys(cls) -> frozenset[str]:
        return topology_names()

    @classmethod
    def with_overrides(cls, kwargs: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
        config = kwargs["spout_config"]
        return {**kwargs, "spout_config": config.with_text(overrides) if overrides else config}

    @classmethod
    def is_bounded(cls, kwargs: Mapping[str, Any]) -> bool:
        return kwargs["spout_config"].stop_offset is not None

    @classmethod
    def gives_up_by(cls, kwargs: Mapping[str, Any], exactly_once: bool) -> str:
        # An epoch that fails is read again with fewer records, down to one: that takes some tries.
        config = kwargs["spout_config"]
        if not exactly_once or config.on_poison == STOP or not 0 < config.retry_limit < EPOCH_TRIES:
            return ""
        return f'on_poison = "{config.on_poison}", retry_limit = {config.retry_limit}'

    @classmethod
    def exactly_once_problems(cls, kwargs: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield what no transaction of Kafka's can hold: offsets in ZooKeeper."""
        if not isinstance(kwargs["spout_config"].offsets(), GroupOffsets):
            yield (
                "topology.delivery is exactly-once, and this spout keeps its offsets in ZooKeeper: a transaction of "
                "Kafka's can store them only in a consumer group.",
                "Give the SpoutConfig offset_store=GroupOffsets(); `streamlet offsets copy` moves the offsets there.",
            )

    # -- life -----------------------------------------------------------------------------------------------

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Find brokers and partitions and take over the stored offsets."""
        config = self.spout_config
        context = replace(context, clock=through_suspend(context.clock))  # the lease of its place is counted by it
        self._clock, self._component = context.clock, context.component_name
        self._last_commits = last_commits_of(context.topology_id, config.store_servers())
        self._failure_lines = FailureLines(self.logger)
        self._open_transactions = OpenTransactionLines(self.logger)
        self._until_caught_up = bool(conf.get("streamlet.until.caught.up"))
        schemes = config.schemes(self._fields)
        uniform = context.uniform or chance.uniform
        exactly_once = is_exactly_once(conf)
        self._parts = wire(
            config,
            schemes,
            context,
            uniform,
            self._release,
            until_caught_up=self._until_caught_up,
            run_s=conf.get("streamlet.run.secs"),
            code_version=conf.get("topology.version"),
            exactly_once=exactly_once,
        )
        self._gate = self._parts.gate
        self._counts = self._parts.counts
        self._dead_letters = self._parts.dead_letters
        # Nothing to read is nothing to be done: a run that ends by itself would end at once, and well.
        if self._until_caught_up and not self._parts.coordinator.topics:
            self.close()
            raise NoTopicMatches(config.topics_pattern)
        if exactly_once:
            self._join_epochs(conf["topology.commit.interval.ms"] / 1e3, context, uniform)
        else:
            self._gate.flush = partial(self._parts.commits.flush, lambda: self._managers)
        self._adopt()

    def _join_epochs(self, interval_s: float, context: TopologyContext, uniform: Callable[[], float]) -> None:
        parts = self._parts
        assert parts is not None and isinstance(parts.store, KafkaGroupOffsets)

        def emit(row: list[Any], tup_id: Any, stream: str) -> None:
            self.emit(row, tup_id, stream)
            context.wake()  # the loop may have asked its spouts before, in the turn of the ack that led here

        monotonic = self._clock.monotonic
        self._exactly_once = ExactlyOnce(
            *(self.spout_config, interval_s, parts.coordinator, parts.store, parts.gate, emit, monotonic, uniform),
            *(parts.stamp, self.logger),
        )
        self._dead_letters = self._exactly_once.letters
        # An epoch ends by the timer while nothing else wakes the loop.
        self.timer_interval_s = min(0.1, max(0.01, interval_s / 4))  # type: ignore[misc]  # of this task

    def activate(self) -> None:
        """Do nothing: the first fetches go out with the first ``next_tuple``."""

    def deactivate(self) -> None:
        """Commit finished records, without waiting; keep the partitions."""
        if self._parts is not None and self._exactly_once is None:
            self._parts.commits.poll(self._managers, at_once=True)

    def pause_parts(self, parts: Sequence[PausedPart]) -> None:
        """Neither emit nor fetch records of these parts; their partitions stay with this run."""
        self._paused_parts = parts
        self._turn_left = 0  # a turn of a partition lasts for many calls
        self._pause_managers()

    def _pause_managers(self) -> None:
        for manager in self._managers:
            where = manager.partition
            manager.pause(any(part.holds(where.topic, where.number) for part in self._paused_parts))

    def begin_close(self) -> None:
        """Commit finished records, within a bound; begin to leave."""
        self._commit_finally()
        # Here and not in `close`, which waits for it: so the tasks of a worker leave side by side.
        if self._parts is not None:
            self._parts.leave()

    def close(self) -> None:
        """Commit, within a bound, and close every connection."""
        parts = self._parts
        if parts is None:
            return
        try:
            self._commit_finally()
        finally:
            self._parts = None
            self._last_commits = LastCommits()  # who opens after this end has a time of its own
            if isinstance(self._dead_letters, EpochLetters):  # the other one closes with the parts
                self._dead_letters.close()
            parts.close(answered=self._commits_answered)

    # -- emitting -------------------------------------------------------------------------------------------

    def next_tuple(self) -> None:
        """Emit the tuples of records that are at hand."""
        if self._turn_left > 0:
            assert self._current is not None
            if self._emit_from(self._current):
                return
        if self.rests:  # else the upkeep would be done a second time for one answer
            return
        self._walk()

    def _emit_from(self, manager: PartitionManager) -> bool:
        """Emit what the partition's turn allows; False: nothing was emitted. Its turn may end."""
        state = manager.next(self, min(self._turn_left, self.room()))
        if state is NO_EMITTED:
            self._end_turn()
            return False
        self._turn_left -= manager.count
        if self._exactly_once is not None:
            attempt = self._exactly_once.attempt
            attempt.records += manager.count
            self._turn_left = min(self._turn_left, attempt.left)
        if state is not EMITTED_MORE_LEFT:
            self._end_turn()
            self._rest_if_dry()
        elif self._turn_left <= 0:
            self._end_turn()
        return True

    def _rest_if_dry(self) -> None:
        """Rest where nothing is left and the next answer wakes the loop."""
        # A run that ends by itself does not rest: its last commit waits for nothing.
        assert self._parts is not None
        at_hand = any(manager.at_hand and not manager.paused for manager in self._managers)
        self.rests = not (at_hand or self._until_caught_up) and self._parts.fetcher.all_asked

    def _walk(self) -> None:
        """Do the upkeep, then walk from partition to partition until one emits."""
        self._serve()
        now = self._clock.monotonic()
        assert self._gate is not None
        if not self._gate.may_emit(now):
            return
        records = self.spout_config.records_per_turn
        holds_back = self.holds_back or (self._dead_letters is not None and self._dead_letters.holds)
        if self._exactly_once is not None:
            if not self._exactly_once.attempt.may_emit:
                return
            records = min(records, self._exactly_once.attempt.left)
        managers = self._managers
        # Rule: no turn is longer than the window. With a slow bolt that is a few records: a turn of hundreds would
        # last for minutes, and the other partitions would stand still meanwhile.
        records = min(records, max(1, self.room() + sum(manager.ledger.open_count for manager in managers)))
        # Rule: emit the batches that are unpacked before another one is. They are fetched within ``buffer_size_bytes``,
        # but unpacked they may take many times that, and each partition would hold one.
        most = self.spout_config.buffer_size_bytes
        unpacked = self._walk_round(now, records, holds_back=holds_back, bound=most)
        if unpacked is None or unpacked < most:
            return
        # Unpacked records may belong to partitions that may emit nothing now: they hold up no other.
        if unpacked < LIVE_MOST * most or not self._make_room(now):
            self._walk_round(now, records, holds_back=holds_back, bound=max(LIVE_MOST * most, unpacked + 1))

    def _make_room(self, now: float) -> bool:
        """Drop unpacked records that may not leave now; False: all must be kept."""
        # Rule: drop what is unpacked and may not leave once it takes the room of others, and fetch it again later. Each
        # of a task's partitions would keep a batch for as long as a record of it is stuck, or a registry is away. Of a
        # topic that is gone nothing could be fetched again.
        holders = [each for each in self._managers if each.buffer.unpacked_bytes and not each.ending]
        for manager in holders:
            manager.drop_unpacked(now)
        return bool(holders)

    def _walk_round(self, now: float, records: int, *, holds_back: bool, bound: int) -> int | None:
        """Walk from partition to partition until one emits; None: one did.

        Else returns the bytes that are unpacked. Up to ``bound`` of these another batch may be.
        """
        managers, most = self._managers, self.spout_config.buffer_size_bytes
        # Rule: count what is unpacked from partition to partition. Where a registry is away none emits, and in one walk
        # each would unpack a batch, and keep it.
        unpacked = sum(manager.buffer.unpacked_bytes for manager in managers)
        # The few records of a live partition do not wait for those that catch up. But few bytes on the wire may be many
        # as well.
        few = most // (LIVE_PART * max(1, len(managers)))
        for _ in range(len(managers)):
            self._curr_partition_index %= len(managers)
            manager = self._current = managers[self._curr_partition_index]
            if manager.paused:
                self._end_turn()
                continue
            if manager.damage is not None:
                self._fetch_once_more(manager, manager.damage)
            is_live = manager.buffer.size_bytes <= few and unpacked < LIVE_MOST * most
            manager.begin_turn(now, records, holds_back=holds_back, may_unpack=is_live or unpacked < bound)
            self._turn_left = records
            before = manager.buffer.unpacked_bytes
            if self._emit_from(manager):
                return None
            unpacked += manager.buffer.unpacked_bytes - before
        return unpacked

    def may_send(self) -> bool:
        return self._gate is not None and self._gate.may_emit(self._clock.monotonic())

    def _end_turn(self) -> None:
        self._turn_left = 0
        self._curr_partition_index += 1

    def _fetch_once_more(self, manager: PartitionManager, error: KafkaError) -> None:
        """Fetch damaged bytes a second time; the same damage again stops the spout."""
        # Damage on the way from the broker goes away with another fetch, damage in the log stays.
        position = manager.ledger.position
        if manager.ending:  # nothing is fetched of a topic that is gone; the coordinator counts it as lost
            manager.damage = None
            return
        if self._damaged.get(manager.partition) == position:
            raise error
        self._damaged[manager.partition] = position
        manager.damage = None
        # Rule: fetch it from the leader. A nearer replica may have a damaged copy of bytes that the leader has whole.
        assert self._parts is not None
        self._parts.fetcher.sources.avoid_nearer(manager.partition, error, self._clock.monotonic())
        self.log(f"{manager.partition}: fetched once more from offset {position}. {error.message}", "warning")

    # -- answers --------------------------------------------------------------------------------------------

    def ack(self, tup_id: Any) -> None:
        # Not by way of ack_many: a subclass may override that in terms of this.
        slot, offset = tup_id
        manager = self._slots.get(slot)
        if manager is not None:
            manager.ack(offset)
        if self._exactly_once is not None:
            self._after_acks([offset] if slot == TOLD else ())

    def ack_many(self, tup_ids: Sequence[Any]) -> None:
        if isinstance(tup_ids, OffsetIds):
            manager = self._slots.get(tup_ids.slot)
            if manager is not None:
                manager.ack_set(tup_ids)
            if self._exactly_once is not None:
                self._after_acks(())
            return
        offsets_of: dict[int, list[int]] = defaultdict(list)
        for slot, offset in tup_ids:
            offsets_of[slot].append(offset)
        for slot, offsets in offsets_of.items():
            manager = self._slots.get(slot)
            if manager is not None:
                manager.ack_many(offsets)
        if self._exactly_once is not None:
            self._after_acks(offsets_of.get(TOLD, ()))

    def _after_acks(self, told: Iterable[int]) -> None:
        """Take in acks of tuples about epochs; end one that is done."""
        assert self._exactly_once is not None
        attempt = self._exactly_once.attempt
        now = self._clock.monotonic()
        for number in told:
            self._exactly_once.acked(number, now)
        if attempt.phase is AttemptPhase.CLOSING:
            attempt.poll(now)
        # Rule: a turn ends with its epoch. One lasts for many calls, and what it emitted after END would be in a
        # transaction whose offsets stop before it.
        if not attempt.may_emit:
            self._turn_left = 0

    def fail(self, tup_id: Any) -> None:
        slot, offset = tup_id
        if slot == TOLD:
            assert self._exactly_once is not None
            self._exactly_once.not_taken(offset)
            self._turn_left = 0
            return
        manager = self._slots.get(slot)
        if manager is not None:
            cause = self.fail_cause or (TOOK_TOO_LONG if self.fail_reason is FailReason.TIMED_OUT else UNKNOWN)
            if self._exactly_once is not None:
                self._exactly_once.failed(
                    *(manager, offset, self.fail_reason), final=self.fail_final, cause=cause, deaths=self.fail_deaths
                )
                self._turn_left = 0
                return
            if self.fail_final:
                self._give_up(manager, offset)
                return
            # A tuple lost with a worker or a link is not the record's fault: it does not count towards retry_limit.
            lost = self.fail_reason is FailReason.LOST
            now_s = self._clock.monotonic()
            coming = manager.fail(offset, now_s, lost=lost, cause=cause)
            if coming is not None:
                self._failure_lines.tell(manager.partition, offset, cause, coming, now_s)

    def _give_up(self, manager: PartitionManager, offset: int) -> None:
        if self.fail_reason is FailReason.DEAD_LETTER:
            manager.dead_letter(offset, self.fail_cause or UNKNOWN)
        else:
            manager.crashed(offset, self.fail_cause or UNKNOWN, self.fail_deaths)

    @classmethod
    def takes_dead_letters(cls, kwargs: Mapping[str, Any]) -> bool:
        return bool(kwargs["spout_config"].on_poison == DEAD_LETTER)

    @classmethod
    def tries_in_tests(cls, kwargs: Mapping[str, Any]) -> TriesInTests | None:
        """Return the config's own limit, pauses and policy: a test shows what a run would do."""
        config: SpoutConfig = kwargs["spout_config"]
        topic = config.topic or ", ".join(config.topics) or config.topics_pattern

        def stops(place: int, tries: int, cause: FailureCause | None) -> PoisonRecord:
            return PoisonRecord(Partition(topic, 0), place, tries_used_up(tries, cause or TOOK_TOO_LONG))

        policy = config.on_poison
        return TriesInTests(
            max_fails=config.retry_limit or None,
            backoff=config.retry_backoff(),
            keeps_letters=policy == DEAD_LETTER,
            stops=stops if policy == STOP else None,
        )

    def lasting_id(self, tup_id: Any) -> Any:
        """Return topic, partition and offset: each opening gives new slots."""
        slot, offset = tup_id
        manager = self._slots.get(slot)
        return (manager.partition.topic, manager.partition.number, offset) if manager is not None else tup_id

    # -- upkeep ---------------------------------------------------------------------------------------------

    def fileno(self) -> int | None:
        return None if self._parts is None else self._parts.client.fileno()

    def on_timer(self) -> None:
        """Do the upkeep while nobody asks for tuples: progress is committed then too."""
        if self._parts is not None:
            self._serve()

    def on_drain(self) -> None:
        if self._exactly_once is not None and self._parts is not None:
            self._exactly_once.drain()

    def _serve(self) -> None:
        """Do the upkeep: take answers in, send fetches, move looks and commits on. Never waits."""
        parts = self._parts
        assert parts is not None
        parts.client.poll(0)
        now = self._clock.monotonic()
        parts.gate.poll(now)
        if not parts.gate.may_emit(now):
            self._turn_left = 0  # a partition's turn lasts for many calls: it ends here
        # Failures first: the look or reset that they cause begins in the same turn.
        parts.coordinator.fetch_failed(parts.fetcher.collect(now))
        parts.coordinator.poll()
        if parts.coordinator.version != self._version:
            self._adopt()
        managers = self._managers
        for manager in managers:
            if manager.poisoned is not None:
                raise manager.poisoned
        self._open_transactions.poll(managers, now)
        if self._dead_letters is not None:
            self._serve_letters(self._dead_letters, now)
        parts.fetcher.send(managers, parts.client.cluster.topic_id, now)
        if self._exactly_once is None:
            parts.commits.poll(managers, at_once=self._commit_presses())
        else:
            self._exactly_once.poll()
            if not self._exactly_once.attempt.may_emit:
                self._turn_left = 0
        # Send only, never poll: a poll may take the answer of a quick broker off the descriptor on which the worker's
        # loop is about to sleep, and its records would wait for the next timer.
        parts.client.send_queued()

    def _commit_presses(self) -> bool:
        for manager in self._managers:
            if manager.commit_is_pressing and not manager.ending:
                return True
        # A run that ends by itself need not wait for the timer: it is over when the last offset is committed.
        return self._until_caught_up and self._all_done() and not self._all_committed()

    def _adopt(self) -> None:
        """Take over the coordinator's new list of managers; the walk begins again."""
        assert self._parts is not None
        coordinator = self._parts.coordinator
        self._leader, self._nearer = coordinator.leader, self._parts.fetcher.sources.nearer
        self._version = coordinator.version
        self._managers = coordinator.get_my_managed_partitions()
        self._slots = {manager.slot: manager for manager in self._managers}
        self._pause_managers()
        # The turn under way may be of a manager that was replaced: it ends here.
        self._current, self._turn_left = None, 0
        self._parts.fetcher.forget_unused()
        if self._exactly_once is not None:
            self._exactly_once.adopted()

    def _release(self, manager: PartitionManager) -> None:
        if self._parts is not None:
            self._parts.store.release(manager.partition)

    def _commit_finally(self) -> None:
        parts = self._parts
        if parts is None or self._exactly_once is not None:  # the drain has waited for the last transaction
            return
        if self._last_commit_by_s is None:  # one bound for begin_close and close: a worker's stop has one too
            self._last_commit_by_s = self._last_commits.by_s(self._clock.monotonic())
        letters = self._dead_letters
        if letters is not None:
            self._serve_letters(letters, self._clock.monotonic())
        parts.commits.poll(self._managers, at_once=True)
        while not self._all_written() and self._clock.monotonic() < self._last_commit_by_s:
            parts.client.poll(0.02)
            parts.gate.poll(self._clock.monotonic())
            if letters is not None:
                self._serve_letters(letters, self._clock.monotonic())
            parts.commits.poll(self._managers, at_once=True)
        if self._commits_answered and not self._all_committed():
            self._commits_answered = False
            self.logger.warning("%s", self._uncommitted_text(parts))

    def _uncommitted_text(self, parts: Parts) -> str:
        """Say which records are done and not committed, and why."""
        # Rule: an end that could not store its progress says so by name. All was done, and without a word the next run
        # would read thousands of records again that a store had been asked to note.
        left = [(m, m.last_completed_offset()) for m in self._managers if not self._is_committed(m)]
        records = sum(done - m.ledger.committed for m, done in left)
        of = ", ".join(f"{m.partition} from {m.ledger.committed:,} to {done:,}" for m, done in left[:MOST_TOLD])
        more = f" and {many(len(left) - MOST_TOLD, 'more partition')}" if len(left) > MOST_TOLD else ""
        return (
            f"{many(records, 'offset')} {'is' if records == 1 else 'are'} done and could not be committed: {of}{more}. "
            f"They were for {parts.store.where(left[0][0].partition)}, which did not take them in time at the end. The "
            "next run reads these records again; `streamlet offsets show` tells what is committed."
        )

    def _serve_letters(self, letters: DeadLetterWriter | EpochLetters, now: float) -> None:
        letters.serve(self._managers, now)
        self.report_metric("dead_letters_waiting", letters.waiting)

    def _all_written(self) -> bool:
        """Tell whether no dead letter waits, and all is committed."""
        letters = self._dead_letters
        return (letters is None or not letters.waiting) and self._all_committed()

    # -- progress -------------------------------------------------------------------------------------------

    def _all_done(self) -> bool:
        return all(manager.at_end and not manager.ledger.open_count for manager in self._managers)

    def _all_committed(self) -> bool:
        return all(map(self._is_committed, self._managers))

    @staticmethod
    def _is_committed(manager: PartitionManager) -> bool:
        return manager.closed or manager.ending or manager.ledger.committed >= manager.last_completed_offset()

    def caught_up(self) -> bool:
        """Return whether everything below the fixed ends is done *and committed*."""
        if self._exactly_once is not None and not self._exactly_once.attempt.is_idle:
            return False
        return self._until_caught_up and self._all_done() and self._all_committed()

    def unfinished_count(self) -> int | None:
        """Count the records emitted and neither acked nor given up."""
        return sum(manager.ledger.open_count for manager in self._managers)

    def given_up_count(self) -> int:
        return sum(counts.given_up for counts in self._counts.values())

    def kept_count(self) -> int:
        """Count the dead letters that were written."""
        return 0 if self._dead_letters is None else self._dead_letters.written

    def lost_count(self) -> int:
        """Count the offsets that are gone from the log; named by ``fail_on_data_loss=False``."""
        return sum(counts.lost for counts in self._counts.values())

    def kept_bytes(self) -> int:
        """Return about the memory that the open records take."""
        return sum(manager.kept_bytes for manager in self._managers)

    def partition_status(self) -> list[dict[str, Any]]:
        """Return one entry a partition, without I/O; after ``close`` the last ones."""
        if not self._managers:
            return []
        now_s, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        # One row a partition: beside the one that reads a topic made again, what is left of the old topic has none.
        rows = {manager.partition: manager for manager in reversed(self._managers)}
        return [self._status_of(rows[each], rows[each].ages(now_s, wall_ms), now_s) for each in sorted(rows)]

    def _status_of(self, manager: PartitionManager, ages: PartitionAges, now_s: float) -> dict[str, Any]:
        answered_s = manager.answered_s
        leader = self._leader(manager.partition)
        return {
            "topic": manager.partition.topic,
            "partition": manager.partition.number,
            "position": manager.ledger.position,
            "committed": manager.ledger.committed,
            "uncommitted": 0
            if self._is_committed(manager)
            else manager.last_completed_offset() - manager.ledger.committed,
            "end": manager.log_end,
            "lag": manager.lag,
            "held_back": 0 if manager.held_back is None else manager.held_back.size,
            "leader": str(leader or "none"),
            "read_from": str(self._nearer(manager.partition) or leader or "none"),
            "failed": manager.ledger.counts.failed,
            "given_up": manager.ledger.counts.given_up,
            "lost": manager.ledger.counts.lost,
            "behind_s": ages.behind_s,
            "answered_s": None if answered_s is None else max(0.0, now_s - answered_s),
            "open": manager.ledger.open_count,
            "oldest_open": ages.oldest_open,
            "open_s": ages.open_s,
            "paused": manager.paused,
            # Where it is with a bolt only the runtime knows, and says it instead.
            "waits_at": self._component if manager.ledger.waits(ages.oldest_open) else None,
        }
