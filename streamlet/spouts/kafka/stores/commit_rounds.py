"""When progress is written: on a timer, at once when pressing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from streamlet.base.clock import Clock
from streamlet.base.errors import StreamletError
from streamlet.spouts.kafka.activity import Activity, NextPoll, Steps
from streamlet.spouts.kafka.errors import Deposed, NotAMember, UnusableOffset
from streamlet.spouts.kafka.manager import PartitionManager
from streamlet.spouts.kafka.partition import Broker, Partition
from streamlet.spouts.kafka.stores.offset_store import CommitOutcome, CommitPosition, OffsetStore

log = logging.getLogger(__name__)


class CommitRounds:
    """Commits in rounds over all partitions, one round at a time.

    A failed write is made again by the next round; offsets only grow, so nothing is lost but time.
    """

    def __init__(
        self, store: OffsetStore, clock: Clock, interval_s: float, leader: Callable[[Partition], Broker | None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._interval_s = interval_s
        self._leader = leader
        self._next_s = clock.monotonic() + interval_s
        self._round: Activity[dict[Partition, CommitOutcome]] | None = None
        self._writing: dict[Partition, tuple[PartitionManager, int]] = {}
        self._written_s: dict[Partition, float] = {}
        self._complained: set[Partition] = set()

    def poll(self, managers: Iterable[PartitionManager], *, at_once: bool = False) -> None:
        """Continue the round under way, or begin one when it is due. Raises Deposed and UnusableOffset."""
        # A round never starts before the last one has ended: of two writes of one partition under way at once the older
        # could arrive last.
        if self._round is not None:
            if not self._round.poll():
                return
            self._ended()
        now = self._clock.monotonic()
        if at_once or now >= self._next_s:
            self._next_s = now + self._interval_s
            self._begin(managers, now)

    def flush(self, managers: Callable[[], Iterable[PartitionManager]]) -> Steps[None]:
        """Write finished records in a round of its own; ``poll`` moves it on."""
        yield from self._until_idle()
        self._begin(managers(), self._clock.monotonic())
        yield from self._until_idle()

    def _until_idle(self) -> Steps[None]:
        again = NextPoll()
        while self._round is not None:
            yield again

    def _begin(self, managers: Iterable[PartitionManager], now: float) -> None:
        again_after = self._store.recommit_interval_s
        positions: dict[Partition, CommitPosition] = {}
        for manager in managers:
            partition, offset = manager.partition, manager.last_completed_offset()
            # A broker expires the offsets of a group without members, also those of a quiet partition.
            written = self._written_s.setdefault(partition, now)
            expiring = again_after is not None and now - written >= again_after
            if manager.closed or manager.ending or (offset == manager.ledger.committed and not expiring):
                continue
            positions[partition] = CommitPosition(
                offset, manager.buffer.leader_epoch_at(offset), self._leader(partition), manager.stop
            )
            self._writing[partition] = (manager, offset)
        if positions:
            self._round = Activity(self._store.commit(positions))
            if self._round.poll():
                self._ended()

    def _ended(self) -> None:
        assert self._round is not None
        ended, self._round = self._round, None
        writing, self._writing = self._writing, {}
        outcomes = ended.take()
        now = self._clock.monotonic()
        fatal: StreamletError | None = None
        for partition, (manager, offset) in writing.items():
            error = outcomes.get(partition)
            # An answer counts for the manager that asked. A closed one was opened again or given back meanwhile: its
            # write met our own newer claim, which would look like another owner's here.
            if manager.closed or manager.ending:
                continue
            if error is None:
                manager.ledger.committed_to(offset)
                self._written_s[partition] = now
                self._complained.discard(partition)
            elif isinstance(error, (Deposed, UnusableOffset)):
                manager.close()
                fatal = fatal or error
            elif not error.retriable:
                fatal = fatal or error
            elif partition not in self._complained and not isinstance(error, NotAMember):
                self._complained.add(partition)
                log.warning("%s: progress was not stored, trying again. %s", partition, error.message)
        # Raised last: the outcomes of the other partitions are taken in first.
        if fatal is not None:
            raise fatal
