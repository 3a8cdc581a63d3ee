"""A coordinator of the newer group protocol, as members of one group notice it: epochs, and who may read what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from streamlet.kafka.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    MemberAssignment,
    MemberTopicPartitions,
)

UNKNOWN_MEMBER, FENCED_EPOCH = 25, 110
TOPIC = "dHR0dHR0dHR0dHR0dHR0dA"
"""Id of the topic."""

Numbers = frozenset[int]


@dataclass
class Known:
    """A member as the coordinator knows it."""

    epoch: int = 0
    before: int = 0
    given: Numbers = frozenset()
    leaving: Numbers = frozenset()
    """To be given back; nobody gets them before the member says that it is done."""
    target: Numbers = frozenset()
    unreleased: bool = False
    """Whether others still hold something of the target."""

    @property
    def held(self) -> Numbers:
        return self.given | self.leaving


@dataclass
class PlayedCoordinator:
    """One group that reads one topic."""

    count: int
    interval_ms: int = 5_000
    epoch: int = 1
    members: dict[str, Known] = field(default_factory=dict)
    asks: bool = False
    """Whether it asks back also what a member's heartbeat does not name. Kafka gives that to others at once."""
    patience: int | None = None
    """Heartbeats of a member that does not give back, until the rebalance time-out is over; None: no time-out."""
    waited: Counter[str] = field(default_factory=Counter)

    def answer(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """Take one heartbeat."""
        name = request.member_id
        if request.member_epoch < 0:
            self.remove(name)
            return ConsumerGroupHeartbeatResponse(member_id=name, member_epoch=request.member_epoch)
        said = None if request.topic_partitions is None else _numbers(request.topic_partitions)
        if request.member_epoch == 0:
            # As Kafka does: a join says all there is to say, and nothing is read yet.
            assert request.rebalance_timeout_ms > 0 and request.subscribed_topic_names is not None and said == set()
            self.remove(name)
            self.members[name] = Known()
            self._share_out()
        member = self.members.get(name)
        if member is None:
            return ConsumerGroupHeartbeatResponse(error_code=UNKNOWN_MEMBER)
        if not self._epoch_fits(member, request.member_epoch, said):
            return ConsumerGroupHeartbeatResponse(error_code=FENCED_EPOCH)
        before = member.given
        self._reconcile(member, said)
        self.waited[name] = self.waited[name] + 1 if member.leaving else 0
        if self.patience is not None and self.waited[name] > self.patience:
            self.remove(name)
            return ConsumerGroupHeartbeatResponse(error_code=UNKNOWN_MEMBER)
        full = request.member_epoch == 0 or (said is not None and request.subscribed_topic_names is not None)
        told = MemberAssignment(topic_partitions=_rows(member.given)) if full or member.given != before else None
        return ConsumerGroupHeartbeatResponse(
            member_id=name, member_epoch=member.epoch, heartbeat_interval_ms=self.interval_ms, assignment=told
        )

    def remove(self, name: str) -> None:
        """Go on without a member."""
        if self.members.pop(name, None) is not None:
            self._share_out()

    def _epoch_fits(self, member: Known, epoch: int, said: Numbers | None) -> bool:
        if epoch in (0, member.epoch):
            return True
        return epoch == member.before and said is not None and said <= member.given

    def _reconcile(self, member: Known, said: Numbers | None) -> None:
        """Do as Kafka's ``CurrentAssignmentBuilder``."""
        epoch = member.epoch
        if member.leaving:
            if said is None or said & member.leaving:
                return
            epoch += 1
            member.leaving = frozenset()
        elif not member.unreleased and epoch == self.epoch:
            return
        kept, surplus = member.given & member.target, member.given - member.target
        if surplus and (self.asks or said is None or said & surplus):
            member.before, member.epoch = member.epoch, epoch
            member.given, member.leaving = kept, surplus
            return
        member.before, member.epoch = member.epoch, self.epoch
        member.given, member.leaving = kept, frozenset()
        others = frozenset().union(*(one.held for one in self.members.values() if one is not member))
        member.given = kept | (member.target - others)
        member.unreleased = bool(member.target & others)

    def _share_out(self) -> None:
        self.epoch += 1
        names = sorted(self.members)
        for index, name in enumerate(names):
            self.members[name].target = frozenset(range(index, self.count, len(names)))


def _numbers(rows: Iterable[MemberTopicPartitions]) -> Numbers:
    return frozenset(number for row in rows for number in row.partitions)


def _rows(numbers: Numbers) -> tuple[MemberTopicPartitions, ...]:
    return (MemberTopicPartitions(topic_id=TOPIC, partitions=tuple(sorted(numbers))),) if numbers else ()
