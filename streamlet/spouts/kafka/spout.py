"""KafkaSpout: the partitions of one Kafka topic as tracked tuples.

All methods run on the worker's loop, and none of them waits (but ``initialize``, for ``start_timeout_ms`` at most, and
the last commit). ``next_tuple`` walks from partition to partition. Between two turns, and on a timer while nobody asks
for tuples, ``_serve`` does the upkeep in a fixed order: answers in, failures to the coordinator, looks and openings,
fetches out, commits, queued requests out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from streamlet.base import chance
from streamlet.base.errors import SettingError
from streamlet.components.context import TopologyContext
from streamlet.components.spout import FailReason, Spout
from streamlet.kafka.errors import KafkaError
from streamlet.model.spec import SPOUT, ComponentSpec
from streamlet.spouts.kafka.group_owner import GroupOwner
from streamlet.spouts.kafka.manager import EMITTED_MORE_LEFT, NO_EMITTED, OffsetIds, PartitionManager
from streamlet.spouts.kafka.partition import Broker, Partition
from streamlet.spouts.kafka.scheme import as_scheme
from streamlet.spouts.kafka.spout_config import SpoutConfig, override_names
from streamlet.spouts.kafka.startup import Parts, wire

FINAL_COMMIT_S = 3.0
"""Seconds a stop waits for the last commit."""


class KafkaSpout(Spout):
    """Reads its share of a topic's partitions; the message id of a tuple is ``(slot, offset)``.

    ``next_tuple`` emits the tuples of at most one record and does no I/O that waits. Partitions take turns of at most
    ``records_per_turn`` records. Use :meth:`spec` in a topology::

        lines = KafkaSpout.spec(config=SpoutConfig(ZkHosts("zk:2181"), "lines", "/streamlet", "demo"))
    """

    # Long: the methods that the runtime calls, most of them short, over one list of managers and one set of parts.

    timer_interval_s: ClassVar[float | None] = 0.1
    answers_for_failures = True  # replayed, or given up by ``on_poison``

    def __init__(self, spout_config: SpoutConfig, output_fields: Sequence[str] | None = None) -> None:
        self.spout_config = spout_config
        self._fields = output_fields
        self._parts: Parts | None = None
        self._last_commit_by_s: float | None = None
        self._managers: list[PartitionManager] = []
        self._slots: dict[int, PartitionManager] = {}
        self._version = -1
        self._current: PartitionManager | None = None
        self._curr_partition_index = 0
        self._turn_left = 0
        self._owner: GroupOwner | None = None
        self._leader: Callable[[Partition], Broker | None] = lambda partition: None
        self._damaged: dict[Partition, int] = {}
        self._until_caught_up = False

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
        fields = list(as_scheme(config.scheme, outputs).outputs)
        kwargs = {"spout_config": config, "output_fields": fields}
        tasks = cls.par if par is None else par
        return ComponentSpec(cls, SPOUT, name=name, par=tasks, config=cls.config, outputs=fields, kwargs=kwargs)

    @classmethod
    def override_keys(cls) -> frozenset[str]:
        return override_names()

    @classmethod
    def with_overrides(cls, kwargs: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
        config = kwargs["spout_config"]
        return {**kwargs, "spout_config": config.with_text(overrides) if overrides else config}

    # -- life -----------------------------------------------------------------------------------------------

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Find brokers and partitions and take over the stored offsets."""
        config = self.spout_config
        self._clock = context.clock
        self._until_caught_up = bool(conf.get("streamlet.until.caught.up"))
        scheme = as_scheme(config.scheme, self._fields)
        uniform = context.uniform or chance.uniform
        self._parts = wire(
            config,
            scheme,
            context,
            uniform,
            self._release,
            until_caught_up=self._until_caught_up,
            run_s=conf.get("streamlet.run.secs"),
        )
        self._owner = self._parts.owner
        if self._owner is not None:
            self._owner.flush = partial(self._parts.commits.flush, lambda: self._managers)
        self._adopt()

    def activate(self) -> None:
        """Do nothing: the first fetches go out with the first ``next_tuple``."""

    def deactivate(self) -> None:
        """Commit the offsets of finished records, within a bound."""
        self._commit_finally()

    def close(self) -> None:
        """Commit, within a bound, and close every connection."""
        parts = self._parts
        if parts is None:
            return
        try:
            self._commit_finally()
        finally:
            self._parts = None
            parts.close()

    # -- emitting -------------------------------------------------------------------------------------------

    def next_tuple(self) -> None:
        """Emit the tuples of records that are at hand."""
        if self._turn_left > 0:
            assert self._current is not None
            state = self._current.next(self, min(self._turn_left, self.room()))
            self._turn_left -= self._current.count
            if state is EMITTED_MORE_LEFT and self._turn_left:
                return
            self._end_turn()
            if state is not NO_EMITTED:
                self._rest_if_dry()
                return
        if self.rests:  # else the upkeep would be done a second time for one answer
            return
        self._walk()

    def _rest_if_dry(self) -> None:
        """Rest where nothing is left and the next answer wakes the loop."""
        # A run that ends by itself does not rest: its last commit waits for nothing.
        assert self._parts is not None
        at_hand = any(manager.at_hand for manager in self._managers)
        self.rests = not (at_hand or self._until_caught_up) and self._parts.fetcher.all_asked

    def _walk(self) -> None:
        """Do the upkeep, then walk from partition to partition until one emits."""
        self._serve()
        now = self._clock.monotonic()
        if self._owner is not None and not self._owner.may_emit(now):
            return
        records = self.spout_config.records_per_turn
        managers = self._managers
        for _ in range(len(managers)):
            self._curr_partition_index %= len(managers)
            manager = self._current = managers[self._curr_partition_index]
            if manager.damage is not None:
                self._fetch_once_more(manager, manager.damage)
            manager.begin_turn(now, records, holds_back=self.holds_back)
            state = manager.next(self, min(records, self.room()))
            if state is EMITTED_MORE_LEFT:
                self._turn_left = records - manager.count
                if not self._turn_left:
                    self._end_turn()
                return
            self._end_turn()
            if state is not NO_EMITTED:
                self._rest_if_dry()
                return

    def may_send(self) -> bool:
        return self._owner is None or self._owner.may_emit(self._clock.monotonic())

    def _end_turn(self) -> None:
        self._turn_left = 0
        self._curr_partition_index += 1

    def _fetch_once_more(self, manager: PartitionManager, error: KafkaError) -> None:
        """Fetch damaged bytes a second time; the same damage again stops the spout."""
        # Damage on the way from the broker goes away with another fetch, damage in the log stays.
        position = manager.ledger.position
        if self._damaged.get(manager.partition) == position:
            raise error
        self._damaged[manager.partition] = position
        manager.damage = None
        self.log(f"{manager.partition}: fetched once more from offset {position}. {error.message}", "warning")

    # -- answers --------------------------------------------------------------------------------------------

    def ack(self, tup_id: Any) -> None:
        # Not by way of ack_many: a subclass may override that in terms of this.
        slot, offset = tup_id
        manager = self._slots.get(slot)
        if manager is not None:
            manager.ack(offset)

    def ack_many(self, tup_ids: Sequence[Any]) -> None:
        if isinstance(tup_ids, OffsetIds):
            manager = self._slots.get(tup_ids.slot)
            if manager is not None:
                manager.ack_set(tup_ids)
            return
        offsets_of: dict[int, list[int]] = defaultdict(list)
        for slot, offset in tup_ids:
            offsets_of[slot].append(offset)
        for slot, offsets in offsets_of.items():
            manager = self._slots.get(slot)
            if manager is not None:
                manager.ack_many(offsets)

    def fail(self, tup_id: Any) -> None:
        slot, offset = tup_id
        manager = self._slots.get(slot)
        if manager is not None:
            if self.fail_final:
                manager.crashed(offset, self.fail_detail)
                return
            # A tuple lost with a worker or a link is not the record's fault: it does not count towards retry_limit.
            lost = self.fail_reason is FailReason.LOST
            manager.fail(offset, self._clock.monotonic(), lost=lost)

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

    def _serve(self) -> None:
        """Do the upkeep: take answers in, send fetches, move looks and commits on. Never waits."""
        parts = self._parts
        assert parts is not None
        parts.client.poll(0)
        now = self._clock.monotonic()
        if self._owner is not None:
            self._owner.poll(now)
            if not self._owner.may_emit(now):
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
        parts.fetcher.send(managers, parts.client.cluster.topic_id(self.spout_config.topic), now)
        parts.commits.poll(managers, at_once=self._commit_presses())
        # Send only, never poll: a poll may take the answer of a quick broker off the descriptor on which the worker's
        # loop is about to sleep, and its records would wait for the next timer.
        parts.client.send_queued()

    def _commit_presses(self) -> bool:
        for manager in self._managers:
            if manager.commit_is_pressing:
                return True
        # A run that ends by itself need not wait for the timer: it is over when the last offset is committed.
        return self._until_caught_up and self._all_done() and not self._all_committed()

    def _adopt(self) -> None:
        """Take over the coordinator's new list of managers; the walk begins again."""
        assert self._parts is not None
        coordinator = self._parts.coordinator
        self._leader = coordinator.leader
        self._version = coordinator.version
        self._managers = coordinator.get_my_managed_partitions()
        self._slots = {manager.slot: manager for manager in self._managers}
        # The turn under way may be of a manager that was replaced: it ends here.
        self._current, self._turn_left = None, 0
        self._parts.fetcher.forget_unused()

    def _release(self, manager: PartitionManager) -> None:
        if self._parts is not None:
            self._parts.store.release(manager.partition)

    def _commit_finally(self) -> None:
        parts = self._parts
        if parts is None:
            return
        if self._last_commit_by_s is None:  # one bound for deactivate and close together: a worker's stop has one too
            self._last_commit_by_s = self._clock.monotonic() + FINAL_COMMIT_S
        parts.commits.poll(self._managers, at_once=True)
        while not self._all_committed() and self._clock.monotonic() < self._last_commit_by_s:
            parts.client.poll(0.02)
            if self._owner is not None:
                self._owner.poll(self._clock.monotonic())
            parts.commits.poll(self._managers, at_once=True)

    # -- progress -------------------------------------------------------------------------------------------

    def _all_done(self) -> bool:
        return all(manager.at_end and not manager.ledger.open_count for manager in self._managers)

    def _all_committed(self) -> bool:
        return all(m.closed or m.ledger.committed >= m.last_completed_offset() for m in self._managers)

    def caught_up(self) -> bool:
        """Return whether everything below the fixed ends is done *and committed*."""
        return self._until_caught_up and self._all_done() and self._all_committed()

    def unfinished_count(self) -> int | None:
        """Count the records emitted and neither acked nor given up."""
        return sum(manager.ledger.open_count for manager in self._managers)

    def given_up_count(self) -> int:
        return sum(manager.ledger.given_up_count for manager in self._managers)

    def lost_count(self) -> int:
        """Count the records that were gone before they were read; named by ``fail_on_data_loss=False``."""
        return sum(manager.ledger.lost_count for manager in self._managers)

    def kept_bytes(self) -> int:
        """Return about the memory that the open records take."""
        return sum(manager.kept_bytes for manager in self._managers)

    def partition_status(self) -> list[dict[str, Any]]:
        """Return one entry a partition, without I/O; after ``close`` the last ones."""
        return [
            {
                "topic": manager.partition.topic,
                "partition": manager.partition.number,
                "position": manager.ledger.position,
                "committed": manager.ledger.committed,
                "end": manager.log_end,
                "lag": manager.lag,
                "leader": str(self._leader(manager.partition) or "none"),
                "failed": manager.ledger.failed_count,
                "given_up": manager.ledger.given_up_count,
                "lost": manager.ledger.lost_count,
            }
            for manager in self._managers
        ]
