"""The coordinator for hosts that are taken at their word (K4, trap T13)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from streamlet.base.clock import Clock
from streamlet.kafka.broker_errors import NotLeaderOrFollower
from streamlet.kafka.errors import Disconnected
from streamlet.spouts.kafka.connections import DynamicPartitionConnections
from streamlet.spouts.kafka.coordinator import PartitionCoordinator, Task
from streamlet.spouts.kafka.errors import PartitionsMissing, StaticLeaderMoved
from streamlet.spouts.kafka.fetcher import FailedFetch
from streamlet.spouts.kafka.manager import PartitionManager
from streamlet.spouts.kafka.opening import PartitionOpener
from streamlet.spouts.kafka.partition import Broker, GlobalPartitionInformation, Partition
from streamlet.spouts.kafka.readers import BrokerReader
from streamlet.spouts.kafka.steps import Steps

UNREACHABLE_S = 5.0
UNREACHABLE_GAP_S = 30.0


class StaticCoordinator(PartitionCoordinator):
    """For StaticHosts: its leaders are never looked up again.

    Kafka is asked once at the start for leader epochs: an in-sync follower serves fetches too, so without them a
    broker that leads no more would go unnoticed. A failed fetch makes it ask who leads now, only to say so and stop.
    """

    def __init__(
        self,
        task: Task,
        reader: BrokerReader,
        connections: DynamicPartitionConnections,
        opener: PartitionOpener,
        clock: Clock,
        on_close: Callable[[PartitionManager], None],
        *,
        asked_after_failure: BrokerReader,
    ) -> None:
        super().__init__(task, reader, connections, opener, clock, on_close)
        self._asked_after_failure = asked_after_failure
        self._known_as: dict[int, Broker | None] = {}
        self._unreachable: dict[Partition, tuple[float, float]] = {}

    def _first_look(self) -> Steps[GlobalPartitionInformation]:
        written = yield from self._reader.get_current_brokers()
        known = yield from self._asked_after_failure.get_current_brokers()
        self._check_numbers(written, known)
        self._reader = self._asked_after_failure
        self._known_as = dict(known.leaders)
        return replace(written, topic_id=known.topic_id, leader_epochs=known.leader_epochs)

    def _check_numbers(self, written: GlobalPartitionInformation, known: GlobalPartitionInformation) -> None:
        for partition in written.get_ordered_partitions():
            if partition.number not in known.leaders:
                raise PartitionsMissing(
                    f"StaticHosts names partition {partition.number} of topic {partition.topic!r}, but the topic has "
                    f"only {len(known.leaders)}, numbered from 0. Correct the list."
                )

    def _apply(self, info: GlobalPartitionInformation, *, first: bool) -> None:
        if first or self.info is None:
            super()._apply(info, first=first)
            return
        self._check_numbers(self.info, info)
        for partition, mine in self._leaders.items():
            leader = info.get_broker_for(partition.number)
            # The cluster may spell the address of the broker otherwise. Once that broker has answered as the leader,
            # its name of the first look is as good as ours.
            alias = None if partition in self._opening else self._known_as.get(partition.number)
            if leader is None:
                self.refresh()
            elif mine is not None and leader not in (mine, alias):
                raise StaticLeaderMoved(partition, mine, leader)
        # Leads again after an election of its own: same broker, next epoch.
        super()._apply(replace(self.info, topic_id=info.topic_id, leader_epochs=info.leader_epochs), first=False)

    def _poll_openings(self) -> None:
        super()._poll_openings()
        if self._opening and isinstance(self._opener.last_error, NotLeaderOrFollower):
            self._opener.last_error = None
            self.refresh()
        if self._opening:
            self._look(self._clock.monotonic())

    def fetch_failed(self, failed: Iterable[FailedFetch]) -> None:
        lost = [one for one in failed if isinstance(one.error, Disconnected)]
        super().fetch_failed([one for one in failed if not isinstance(one.error, Disconnected)])
        now = self._clock.monotonic()
        for one in lost:
            # A broker that restarts is still the leader, perhaps known to the others under another spelling of its
            # address: ask only when it stays away.
            began, latest = self._unreachable.get(one.partition, (now, now))
            began = now if now - latest > UNREACHABLE_GAP_S else began
            self._unreachable[one.partition] = (began, now)
            if now - began > UNREACHABLE_S:
                self.refresh()
