"""Progress in ZooKeeper, where storm-kafka keeps it: ``zk_root/id/partition_N`` (SEEDMAP K7, K8).

Every write is conditional on the version of the write before it. At open the owner epoch becomes the stored one
plus 1; from then on a former owner's writes meet another version and fail. Nothing is ever overwritten blindly.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from streamlet.base.errors import StreamletError
from streamlet.coordination import (
    NodeExists,
    NodeMissing,
    NodeStore,
    NodeStoreError,
    NodeStoreUnavailable,
    VersionConflict,
)
from streamlet.spouts.kafka.errors import Deposed, UnusableOffset
from streamlet.spouts.kafka.offset_store import (
    CommitPosition,
    Decide,
    NotAnOffset,
    OffsetNode,
    Outcome,
    Owner,
    decode,
    encode,
)
from streamlet.spouts.kafka.partition import Broker, Partition
from streamlet.spouts.kafka.start import Reason, StartDecision
from streamlet.spouts.kafka.steps import Background, Steps

CLAIM_TRIES = 10


@dataclass(slots=True)
class _Owned:
    """A partition of ours: our epoch, the version of the last write known of, the topic's id."""

    owner_epoch: int
    version: int
    topic_id: str | None
    uncertain: bool = False


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claim whose answer was lost: it may have been carried out."""

    data: bytes
    owner_epoch: int
    topic_id: str | None
    decision: StartDecision


class ZooKeeperOffsets:
    """One node for each partition. Blocking calls go through ``background``; commits never block."""

    recommit_interval_s: float | None = None

    def __init__(self, nodes: NodeStore, background: Background, root: str, owner: Owner, servers: str) -> None:
        self._nodes = nodes
        self._background = background
        self._root = root
        self._owner = owner
        self._servers = servers
        self._owned: dict[Partition, _Owned] = {}
        self._unanswered: dict[Partition, _Claim] = {}

    def path(self, partition: Partition) -> str:
        """storm-kafka's path."""
        return f"{self._root}/partition_{partition.number}"

    def where(self, partition: Partition) -> str:
        return f"ZooKeeper {self._servers}, node {self.path(partition)}"

    def open(
        self, partition: Partition, broker: Broker | None, topic_id: str | None, decide: Decide
    ) -> Steps[StartDecision]:
        path = self.path(partition)
        for _ in range(CLAIM_TRIES):
            read = self._background.submit(lambda: self._nodes.get(path))
            yield read
            found = read.result()
            node = None if found is None else self._decode(partition, found[0])
            carried_out = self._carried_out(partition, found)
            mine = self._owned.get(partition)
            if mine is not None and node is not None and node.owner_epoch != mine.owner_epoch:
                # Beginning anew takes nothing back from somebody who took over meanwhile.
                raise Deposed(partition, self.where(partition), mine.owner_epoch, node.fields)
            decision = yield from decide(None if node is None else node.stored)
            if carried_out is not None and carried_out.topic_id == topic_id:
                first = carried_out.decision
                if first.offset == decision.offset:
                    self._unanswered.pop(partition)
                    # What is stored by now is our own decision; what it says of a loss is still to be told.
                    return first if decision.reason is Reason.STORED else decision
            epoch = 1 if node is None else node.owner_epoch + 1
            # Where reading goes on as stored, the record before the offset is as it was stored.
            kept = node is not None and node.stored.offset == decision.offset
            leader_epoch = node.stored.leader_epoch if kept and node is not None else -1
            position = CommitPosition(decision.offset, leader_epoch, broker)
            data = encode(self._owner, partition, position, epoch, topic_id)
            write = self._background.submit(lambda f=found, d=data: self._claim(path, f, d))  # type: ignore[misc]
            yield write
            try:
                version = write.result()
            except (VersionConflict, NodeExists, NodeMissing):
                continue  # somebody wrote in between: look again, and claim above that
            except NodeStoreUnavailable as error:
                if error.outcome_unknown:
                    self._unanswered[partition] = _Claim(data, epoch, topic_id, decision)
                    continue
                raise
            self._owned[partition] = _Owned(epoch, version, topic_id)
            self._unanswered.pop(partition, None)
            return decision
        raise UnusableOffset(
            partition, self.where(partition), f"somebody else wrote it each of {CLAIM_TRIES} times it was claimed", ""
        )

    def commit(self, positions: Mapping[Partition, CommitPosition]) -> Steps[dict[Partition, Outcome]]:
        outcomes: dict[Partition, Outcome] = {}
        writes: dict[Partition, Future[int]] = {}
        # Those of now: while answers are awaited a partition may be released, or claimed anew under another epoch.
        mine = {partition: self._owned[partition] for partition in positions}
        for partition, position in positions.items():
            owned = mine[partition]
            if owned.uncertain:
                outcomes[partition] = yield from self._look_again(partition, owned)
                if outcomes[partition] is not None:
                    continue
            data = encode(self._owner, partition, position, owned.owner_epoch, owned.topic_id)
            writes[partition] = self._nodes.set_async(self.path(partition), data, owned.version)
        for partition, write in writes.items():
            yield write
            outcomes[partition] = yield from self._written(partition, mine[partition], write)
        return outcomes

    def release(self, partition: Partition) -> None:
        self._owned.pop(partition, None)
        self._unanswered.pop(partition, None)

    def _carried_out(self, partition: Partition, found: tuple[bytes, int] | None) -> _Claim | None:
        """The claim whose answer was lost, if the node holds it: it is ours then, and nobody took over."""
        claim = self._unanswered.get(partition)
        if claim is None or found is None or found[0] != claim.data:
            return None
        self._owned[partition] = _Owned(claim.owner_epoch, found[1], claim.topic_id)
        return claim

    def _claim(self, path: str, found: tuple[bytes, int] | None, data: bytes) -> int:
        return self._nodes.create(path, data) if found is None else self._nodes.set(path, data, found[1])

    def _written(self, partition: Partition, owned: _Owned, write: Future[int]) -> Steps[Outcome]:
        try:
            owned.version = write.result()
        except VersionConflict as conflict:
            # Perhaps a write of ours whose answer was lost: the epoch in the node tells.
            verdict = yield from self._look_again(partition, owned)
            return verdict or NodeStoreUnavailable(conflict.message)
        except NodeStoreUnavailable as error:
            owned.uncertain = owned.uncertain or error.outcome_unknown
            return error
        except NodeStoreError as error:
            return error
        return None

    def _look_again(self, partition: Partition, owned: _Owned) -> Steps[Outcome]:
        """Read the node back after an uncertain write: still ours (None; the version is known again), or not."""
        read = self._background.submit(lambda: self._nodes.get(self.path(partition)))
        yield read
        try:
            found = read.result()
            if found is None:
                return UnusableOffset(partition, self.where(partition), "the node was deleted under us", "")
            node = self._decode(partition, found[0])
        except StreamletError as error:
            return error
        if node.owner_epoch != owned.owner_epoch or node.stored.topology_id != self._owner.topology_id:
            return Deposed(partition, self.where(partition), owned.owner_epoch, node.fields)
        owned.version, owned.uncertain = found[1], False
        return None

    def _decode(self, partition: Partition, data: bytes) -> OffsetNode:
        try:
            return decode(data, partition)
        except NotAnOffset as why:
            raise UnusableOffset(partition, self.where(partition), str(why), data) from None
