"""Progress as a consumer group's offsets, where every lag tool sees it, committed as a member of the group.

The coordinator refuses the commit of a member that others have replaced. The owner epoch in the commit's metadata tells
what membership cannot: whether another run had the partition while this one was away, and is gone again. So the group's
offsets are read back before each commit, and before emitting begins again; an owner that finds a higher epoch stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from streamlet.components.epoch_tuples import StoredRow
from streamlet.kafka.broker_errors import (
    BrokerRequestTimedOut,
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMemberId,
)
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, GroupOffsetCalls, OffsetAndMetadata
from streamlet.kafka.errors import BrokerError, KafkaError
from streamlet.spouts.kafka.activity import Steps, answer_to
from streamlet.spouts.kafka.errors import Deposed, NotAMember, UnusableOffset
from streamlet.spouts.kafka.partition import Broker, Partition
from streamlet.spouts.kafka.stores.offset_store import (
    CommitOutcome,
    CommitPosition,
    Decide,
    NotAnOffset,
    OffsetNode,
    Owner,
    StartDecision,
    StoredOffset,
    decode,
    encode,
    first_position,
)

RECOMMIT_INTERVAL_S = 3600.0
"""Seconds before an unchanged offset is written again, so that the broker does not expire it."""


_NO_MEMBER = (FencedInstanceId, IllegalGeneration, RebalanceInProgress, UnknownMemberId)
"""Refusals of a member whose generation is over: its heartbeats decide about it."""


class GroupPlace(Protocol):
    """The place of a task in its group."""

    @property
    def member(self) -> ConsumerGroupMetadata | None:
        """The membership to commit under; None while the group rebalances."""

    def granted(self) -> Steps[ConsumerGroupMetadata]:
        """Wait until our run has the topic, and return the membership."""

    def fenced(self) -> None:
        """Note that another process has our place."""


@dataclass(slots=True)
class _Owned:
    """A partition of ours: our owner epoch and the topic's id."""

    owner_epoch: int
    topic_id: str | None


class KafkaGroupOffsets:
    """Offsets of one group. The commit's metadata holds the JSON that ZooKeeper mode keeps in its node."""

    recommit_interval_s: float | None = RECOMMIT_INTERVAL_S

    def __init__(
        self, client: KafkaClient, group: str, owner: Owner, place: GroupPlace, *, require_stable: bool = False
    ) -> None:
        self._stable = require_stable
        """Whether offsets are read only when no open transaction is about to change them (KIP-447)."""
        self._group = GroupOffsetCalls(client, group)
        self._owner = owner
        self._place = place
        self._owned: dict[Partition, _Owned] = {}

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster that the group is of; None: its brokers name none."""
        return self._group.cluster_id

    def where(self, partition: Partition) -> str:
        return f"consumer group {self._group.group_id!r}"

    def open(
        self, partition: Partition, broker: Broker | None, topic_id: str | None, decide: Decide
    ) -> Steps[StartDecision]:
        # Not before: the offset is what the former owner left, so it is read once that one has stopped.
        member = yield from self._place.granted()
        node = (yield from self._fetch([partition]))[partition]
        mine = self._owned.get(partition)
        if mine is not None and node is not None and self._is_foreign(node, mine):
            # A partition that begins again takes nothing back from an owner that took over meanwhile.
            raise self._deposed(partition, mine, node)
        decision = yield from decide(None if node is None else node.stored)
        claim = self._owned[partition] = _Owned(1 if node is None else node.owner_epoch + 1, topic_id)
        first = {partition: first_position(decision, node, broker)}
        try:
            error = (yield from self._write(first, {partition: claim}, member))[partition]
        except KafkaError as unanswered:
            error = unanswered
        if error is None:
            return decision
        # A refused claim changes nothing: what was ours before stays ours.
        if mine is None:
            self._owned.pop(partition, None)
        elif isinstance(error, BrokerError) and not isinstance(error, BrokerRequestTimedOut):
            self._owned[partition] = mine
        # Otherwise the claim may have been carried out: the epoch that was tried is then ours.
        raise error

    def commit(self, positions: Mapping[Partition, CommitPosition]) -> Steps[dict[Partition, CommitOutcome]]:
        # The claims of now: while answers are awaited a partition may be released, or claimed again under a new epoch.
        # Judged by the new claim, the answer to our older write would look like another owner's.
        claims = {partition: self._owned[partition] for partition in positions}
        member = self._place.member
        if member is None:
            return {partition: self._outcome(partition, RebalanceInProgress) for partition in positions}
        try:
            nodes = yield from self._fetch(positions)
        except KafkaError as error:
            return dict.fromkeys(positions, error)
        outcomes: dict[Partition, CommitOutcome] = {}
        mine: dict[Partition, CommitPosition] = {}
        for partition, position in positions.items():
            node, owned = nodes[partition], claims[partition]
            if node is not None and self._is_foreign(node, owned):
                outcomes[partition] = self._deposed(partition, owned, node)
            else:
                mine[partition] = position
        if mine:
            try:
                outcomes |= yield from self._write(mine, claims, member)
            except KafkaError as error:
                outcomes |= dict.fromkeys(mine, error)
        return outcomes

    def check(self) -> Steps[None]:
        """Find out that nobody else had our partitions meanwhile. Raises Deposed."""
        claims = dict(self._owned)
        if not claims:
            return
        nodes = yield from self._fetch(claims)
        for partition, owned in claims.items():
            node = nodes[partition]
            if node is not None and self._is_foreign(node, owned):
                raise self._deposed(partition, owned, node)

    @property
    def member(self) -> ConsumerGroupMetadata | None:
        """The membership under which offsets are stored; None while the group rebalances."""
        return self._place.member

    def row(self, partition: Partition, position: CommitPosition) -> StoredRow:
        """Return what a transaction is to store for a partition of ours."""
        row = self._row(partition, position, self._owned[partition])
        return partition.topic, partition.number, row.offset, row.leader_epoch, row.metadata

    def release(self, partition: Partition) -> None:
        self._owned.pop(partition, None)

    def _is_foreign(self, node: OffsetNode, owned: _Owned) -> bool:
        # Two owners that claimed at the same moment have the same epoch: the last writer goes on.
        same_run = node.stored.topology_id == self._owner.topology_id
        return node.owner_epoch > owned.owner_epoch or (node.owner_epoch == owned.owner_epoch and not same_run)

    def _deposed(self, partition: Partition, owned: _Owned, node: OffsetNode) -> Deposed:
        return Deposed(partition, self.where(partition), self._owner.topology_id, owned.owner_epoch, node.fields)

    def _fetch(self, partitions: Iterable[Partition]) -> Steps[dict[Partition, OffsetNode | None]]:
        wanted = list(partitions)
        try:
            found = yield from answer_to(self._group.fetch((each.tp for each in wanted), require_stable=self._stable))
        except GroupIdNotFound:
            found = {}
        return {partition: self._node(partition, found.get(partition.tp)) for partition in wanted}

    def _node(self, partition: Partition, row: OffsetAndMetadata | None) -> OffsetNode | None:
        if row is None:
            return None
        try:
            node = decode(row.metadata, partition)
        except NotAnOffset:
            # Another tool set the offset (kafka-consumer-groups --reset-offsets): it counts, and has no owner.
            return OffsetNode(StoredOffset(row.offset, leader_epoch=row.leader_epoch), 0, {})
        if node.stored.offset != row.offset:
            why = f"its metadata speaks of offset {node.stored.offset}, the group's offset is {row.offset}"
            raise UnusableOffset(partition, self.where(partition), why, row.metadata)
        return node

    def _write(
        self,
        positions: Mapping[Partition, CommitPosition],
        claims: Mapping[Partition, _Owned],
        member: ConsumerGroupMetadata,
    ) -> Steps[dict[Partition, CommitOutcome]]:
        rows = {each.tp: self._row(each, position, claims[each]) for each, position in positions.items()}
        said = yield from answer_to(self._group.commit(rows, member))
        # An answer counts for the membership that asked. A member that was forgotten and has joined again has another
        # id: its own older commit is refused as fenced, by itself.
        if FencedInstanceId in said.values() and self._place.member == member:
            self._place.fenced()
        return {partition: self._outcome(partition, said[partition.tp]) for partition in positions}

    def _row(self, partition: Partition, position: CommitPosition, owned: _Owned) -> OffsetAndMetadata:
        data = encode(self._owner, partition, position, owned.owner_epoch, owned.topic_id)
        return OffsetAndMetadata(position.offset, position.leader_epoch, data.decode())

    def _outcome(self, partition: Partition, kind: type[BrokerError] | None) -> CommitOutcome:
        if kind is None:
            return None
        said = f"The offset of {partition} could not be committed to group {self._group.group_id!r}"
        if kind in _NO_MEMBER:
            return NotAMember(f"{said}: the group rebalances")
        return kind(said)
