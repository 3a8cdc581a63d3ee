"""Progress in ZooKeeper, where storm-kafka keeps it: ``zk_root/id/partition_N``; of several topics by topic.

Rules:

- Every write is conditional on the version of the write before it; nothing is ever overwritten blindly.
- Opening writes the stored owner epoch plus 1 (the *claim*). From then on a former owner's writes meet another version.
- A write whose answer was lost may have been carried out. Then the node is read back: a claim is recognised by its
  exact bytes, a commit by the owner epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from streamlet.base.errors import StreamletError
from streamlet.coordination.node_store import (
    NodeExists,
    NodeMissing,
    NodeStore,
    NodeStoreError,
    NodeStoreUnavailable,
    VersionConflict,
)
from streamlet.spouts.kafka.activity import Background, Steps
from streamlet.spouts.kafka.chosen_topics import OWNERS
from streamlet.spouts.kafka.errors import Deposed, TopicInTheWay, UnusableOffset
from streamlet.spouts.kafka.partition import Broker, Partition
from streamlet.spouts.kafka.stores.offset_store import (
    CommitOutcome,
    CommitPosition,
    Decide,
    NotAnOffset,
    OffsetNode,
    Owner,
    Reason,
    StartDecision,
    decode,
    encode,
    first_position,
)

CLAIM_TRIES = 10
"""Claims tried while other writers come in between; more than a few are two spouts with one `id`."""


_WENT_BACK = (
    "it is older than this spout's own claim, as after a restore of the ensemble from a backup. A new start goes on at "
    "this offset: what was done since comes again"
)


@dataclass(slots=True)
class _Owned:
    """A partition of ours: owner epoch, version of the last known write, the topic's id."""

    owner_epoch: int
    version: int
    topic_id: str | None
    grant: object
    """The right to emit under which it is known to be ours."""
    uncertain: bool = False
    """The answer to a write was lost: read the node back before the next write."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claim whose answer was lost: it may have been carried out."""

    data: bytes
    owner_epoch: int
    topic_id: str | None
    decision: StartDecision


def path_of(root: str, partition: Partition, *, several: bool) -> str:
    """Return storm-kafka's path of a partition's node; the topic is in it where there may be several."""
    below = f"{root}/{partition.topic}" if several else root
    return f"{below}/partition_{partition.number}"


def left_by_one_topic(nodes: NodeStore, root: str, partition: Partition) -> OffsetNode | None:
    """Return the progress that a spout with ``topic=`` has left; None: nothing. Blocks."""
    # Else a spout that is given a second topic would read the first one again, or pass over what is not read.
    found = nodes.get(path_of(root, partition, several=False))
    try:
        return None if found is None else decode(found[0], partition)
    except NotAnOffset:
        return None  # of another topic


class TopicPlace(Protocol):
    """The right to read the topic; its gate."""

    @property
    def grant(self) -> object | None:
        """The right to emit; None while it is waited for."""

    def granted(self) -> Steps[object]:
        """Wait until our run has the topic."""


class ZooKeeperOffsets:
    """One node for each partition. Blocking reads go through ``background``; commits never block."""

    recommit_interval_s: float | None = None

    def __init__(
        self,
        nodes: NodeStore,
        background: Background,
        root: str,
        owner: Owner,
        servers: str,
        place: TopicPlace,
        *,
        several: bool = False,
    ) -> None:
        self._several = several
        self._nodes = nodes
        self._background = background
        self._root = root
        self._owner = owner
        self._servers = servers
        self._place = place
        self._owned: dict[Partition, _Owned] = {}
        self._unanswered: dict[Partition, _Claim] = {}

    def path(self, partition: Partition) -> str:
        """Return storm-kafka's path of a partition's node."""
        return path_of(self._root, partition, several=self._several)

    def where(self, partition: Partition) -> str:
        return f"ZooKeeper {self._servers}, node {self.path(partition)}"

    def open(
        self, partition: Partition, broker: Broker | None, topic_id: str | None, decide: Decide
    ) -> Steps[StartDecision]:
        path = self.path(partition)
        if self._several and partition.topic == OWNERS:
            raise TopicInTheWay(partition.topic, self._root)
        # Not before: the offset is what the former owner left, so it is read once that one has stopped.
        grant = yield from self._place.granted()
        fresh = False
        for _ in range(CLAIM_TRIES):
            found = yield from self._background.run(partial(self._nodes.get, path, fresh=fresh))
            try:
                node, decision, is_claimed = yield from self._judge(partition, found, topic_id, decide, grant)
            except StreamletError as error:
                # Rule: blame nobody, and tell no loss, by a read that may be old. A server answers what it has
                # heard so far; a claim by such a read is refused by its leader, but what is said here ends the spout.
                if fresh or error.retriable:
                    raise
                fresh = True
                continue
            if is_claimed:
                self._unanswered.pop(partition)
                return decision
            epoch = 1 if node is None else node.owner_epoch + 1
            data = encode(self._owner, partition, first_position(decision, node, broker), epoch, topic_id)
            try:
                version = yield from self._background.run(partial(self._claim, path, found, data))
            except (VersionConflict, NodeExists, NodeMissing):
                continue  # another writer came in between: look again, and claim above its epoch
            except NodeStoreUnavailable as error:
                if error.outcome_unknown:
                    self._unanswered[partition] = _Claim(data, epoch, topic_id, decision)
                    continue
                raise
            self._owned[partition] = _Owned(epoch, version, topic_id, grant)
            self._unanswered.pop(partition, None)
            return decision
        raise UnusableOffset(
            partition, self.where(partition), f"somebody else wrote it each of {CLAIM_TRIES} times it was claimed", ""
        )

    def _judge(
        self,
        partition: Partition,
        found: tuple[bytes, int] | None,
        topic_id: str | None,
        decide: Decide,
        grant: object,
    ) -> Steps[tuple[OffsetNode | None, StartDecision, bool]]:
        """Return the node, where to begin, and whether our claim stands. Raises StreamletError."""
        node = None if found is None else self._decode(partition, found[0])
        if found is None and self._several:
            node = yield from self._background.run(partial(left_by_one_topic, self._nodes, self._root, partition))
        carried_out = self._carried_out(partition, found, grant)
        mine = self._owned.get(partition)
        if mine is not None and node is not None and node.owner_epoch != mine.owner_epoch:
            # A partition that begins again takes nothing back from an owner that took over meanwhile.
            raise Deposed(partition, self.where(partition), self._owner.topology_id, mine.owner_epoch, node.fields)
        decision = yield from decide(None if node is None else node.stored)
        if carried_out is None or carried_out.topic_id != topic_id or carried_out.decision.offset != decision.offset:
            return node, decision, False
        # The stored offset is our own first decision; if that one was a loss, it is not reported yet.
        return node, carried_out.decision if decision.reason is Reason.STORED else decision, True

    def commit(self, positions: Mapping[Partition, CommitPosition]) -> Steps[dict[Partition, CommitOutcome]]:
        outcomes: dict[Partition, CommitOutcome] = {}
        writes: dict[Partition, Future[int]] = {}
        # The claims of now: while answers are awaited a partition may be released, or claimed again under a new epoch.
        # Judged by the new claim, the answer to our older write would look like another owner's.
        mine = {partition: self._owned[partition] for partition in positions}
        for partition, position in positions.items():
            owned = mine[partition]
            if owned.uncertain:
                outcomes[partition] = yield from self._look_again(partition, owned)
                if outcomes[partition] is not None:
                    continue
            data = encode(self._owner, partition, position, owned.owner_epoch, owned.topic_id)
            # All writes leave before the first answer is awaited: a round takes one round trip, not one a partition.
            writes[partition] = self._nodes.set_async(self.path(partition), data, owned.version)
        for partition, write in writes.items():
            yield write
            outcomes[partition] = yield from self._written(partition, mine[partition], write)
        return outcomes

    def check(self) -> Steps[None]:
        """Find out that nobody else had our partitions meanwhile. Raises Deposed."""
        grant = self._place.grant
        for partition, owned in list(self._owned.items()):
            if owned.grant is not grant:
                error = yield from self._look_again(partition, owned)
                if error is not None:
                    raise error
                owned.grant = grant

    def release(self, partition: Partition) -> None:
        self._owned.pop(partition, None)
        self._unanswered.pop(partition, None)

    def _carried_out(self, partition: Partition, found: tuple[bytes, int] | None, grant: object) -> _Claim | None:
        """Return our claim whose answer was lost, if the node holds it; the partition is ours then."""
        claim = self._unanswered.get(partition)
        # By the exact bytes: the node's epoch is above the one we know of, so our own claim would look like another
        # owner's, and the spout would depose itself.
        if claim is None or found is None or found[0] != claim.data:
            return None
        self._owned[partition] = _Owned(claim.owner_epoch, found[1], claim.topic_id, grant)
        return claim

    def _claim(self, path: str, found: tuple[bytes, int] | None, data: bytes) -> int:
        return self._nodes.create(path, data) if found is None else self._nodes.set(path, data, found[1])

    def _written(self, partition: Partition, owned: _Owned, write: Future[int]) -> Steps[CommitOutcome]:
        try:
            owned.version = write.result()
        except VersionConflict as conflict:
            # Perhaps the version of an own write whose answer was lost: the epoch in the node tells.
            verdict = yield from self._look_again(partition, owned)
            return verdict or NodeStoreUnavailable(conflict.message)
        except NodeStoreUnavailable as error:
            owned.uncertain = owned.uncertain or error.outcome_unknown
            return error
        except NodeStoreError as error:
            return error
        return None

    def _look_again(self, partition: Partition, owned: _Owned) -> Steps[CommitOutcome]:
        """Read the node back after an uncertain write; None: it is still ours, and its version is known."""
        try:
            # Fresh: what a server has not heard of yet would look as if the tree had gone back.
            found = yield from self._background.run(lambda: self._nodes.get(self.path(partition), fresh=True))
            if found is None:
                return UnusableOffset(partition, self.where(partition), "the node was deleted under us", "")
            node = self._decode(partition, found[0])
        except StreamletError as error:
            return error
        if 0 < node.owner_epoch < owned.owner_epoch:
            # Owners only count up (storm-kafka's writes no count): nobody took over, the tree went back.
            return UnusableOffset(partition, self.where(partition), _WENT_BACK, found[0])
        if node.owner_epoch != owned.owner_epoch or node.stored.topology_id != self._owner.topology_id:
            return Deposed(partition, self.where(partition), self._owner.topology_id, owned.owner_epoch, node.fields)
        owned.version, owned.uncertain = found[1], False
        return None

    def _decode(self, partition: Partition, data: bytes) -> OffsetNode:
        try:
            return decode(data, partition)
        except NotAnOffset as why:
            raise UnusableOffset(partition, self.where(partition), str(why), data) from None
