"""A spout's stored offsets, read and written from outside of a run: in ZooKeeper, or in a consumer group.

Nothing is written while tasks of a run are there. A run that starts meanwhile is not overwritten: each node is written
under the version that was read, and the coordinator of a group with members refuses an outsider. Writing counts the
owner epoch up, so a run that slept through it, and wakes, commits nothing.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self

from streamlet.base.clock import Clock, SystemClock
from streamlet.base.errors import INTERRUPTED, BadInput, StreamletError
from streamlet.coordination.node_store import (
    NodeExists,
    NodeMissing,
    NodeStore,
    NodeStoreError,
    NodeStoreUnavailable,
    VersionConflict,
)
from streamlet.kafka import Admin
from streamlet.kafka.admin.errors import NewerGroupProtocol
from streamlet.kafka.broker_errors import (
    GroupIdNotFound,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from streamlet.kafka.client.group_requests import OffsetAndMetadata
from streamlet.kafka.errors import BootstrapFailed, ForeignProtocol, HungUp, KafkaError
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.spouts.kafka.errors import NoSuchTopic, PartitionsMissing, UnusableOffset
from streamlet.spouts.kafka.hosts import StaticHosts
from streamlet.spouts.kafka.offset_tools.offset_changes import Change, LogPlace, StoredEntry, Wish
from streamlet.spouts.kafka.ownership.owner_nodes import announced
from streamlet.spouts.kafka.partition import OffsetRange, Partition
from streamlet.spouts.kafka.spout_config import GroupOffsets, SpoutConfig, ZkOffsets
from streamlet.spouts.kafka.startup import Held, find_brokers, refuse_foreign
from streamlet.spouts.kafka.stores.offset_store import CommitPosition, NotAnOffset, OffsetNode, Owner, decode, encode
from streamlet.spouts.kafka.stores.zookeeper_offsets import left_by_one_topic, path_of


class StillRunning(BadInput):
    """Tasks of a run read the topic under this id."""

    def __init__(self, where: str, tasks: Sequence[str]) -> None:
        super().__init__(
            f"The offsets in {where} are in use: {in_words(tasks)}. Nothing was changed: a run that reads would "
            "not notice, or would stop. Stop it first (Ctrl-C drains it). A run that was killed counts as running "
            "until its session is over, 10 s later unless session_timeout_ms says otherwise."
        )


class WhichTopic(BadInput):
    """A spout reads several topics, or others than the one named."""


class OffsetsMoved(StreamletError):
    """Somebody else wrote offsets between the look and the write."""

    def __init__(self, where: str, written: Sequence[int], left: Sequence[int]) -> None:
        done = f"Partitions {_listed(written)} were written, {_listed(left)} were not." if written else "Nothing was."
        super().__init__(
            f"The offsets in {where} were written by somebody else since they were read, probably by a run that has "
            f"started, and what it wrote stays. {done} Look again with `streamlet offsets show`, see that nothing "
            "runs, and repeat the command."
        )


class ChangeBrokenOff(StreamletError):
    """A change ended before its last partition.

    ``known``: the others were surely not written; else the partition at hand may be.
    """

    def __init__(self, where: str, why: str, changed: Sequence[Change], written: Sequence[int], *, known: bool) -> None:
        left = _listed([row.partition for row in changed if row.partition not in written])
        others = f"{left} were not" if known else f"of {left} it is not known"
        super().__init__(
            f"{why} Of the offsets in {where} those of partitions {_listed(written)} were written; {others}. Look with "
            "`streamlet offsets show`, and repeat the command."
        )


class OffsetPlace(Protocol):
    """One store's offsets of one topic under one id."""

    @property
    def where(self) -> str:
        """The place, for people."""

    def read(self, partitions: Sequence[int]) -> dict[int, StoredEntry]:
        """Return the entries there are. Blocks. Raises UnusableOffset and errors of the store."""

    def running(self) -> list[str]:
        """Return who reads under this id now, each as one phrase. Blocks."""

    def write(self, changed: Sequence[Change], topic_id: str | None) -> None:
        """Write the changes, unless somebody else wrote since they were read. Blocks. Raises OffsetsMoved."""


class ZooKeeperOffsetPlace:
    """The nodes of a topic: ``root/partition_N``, or ``root/TOPIC/partition_N`` of one of several."""

    def __init__(
        self, nodes: NodeStore, servers: str, root: str, topic: str, topology: str, *, several: bool = False
    ) -> None:
        self._nodes = nodes
        self._root = root
        self._topic = topic
        self._several = several
        self._owner = _outsider(topology)
        self.where = f"ZooKeeper {servers}, {root}/{topic}" if several else f"ZooKeeper {servers}, {root}"

    def read(self, partitions: Sequence[int]) -> dict[int, StoredEntry]:
        entries: dict[int, StoredEntry] = {}
        for number in partitions:
            found = self._nodes.get(self._path(number))
            if found is not None:
                partition = Partition(self._topic, number)
                try:
                    node = decode(found[0], partition)
                except NotAnOffset as why:
                    raise UnusableOffset(partition, f"{self.where}/partition_{number}", str(why), found[0]) from None
                entries[number] = _entry(node, found[0].decode("utf-8", "replace"), found[1])
            elif self._several:
                left = left_by_one_topic(self._nodes, self._root, Partition(self._topic, number))
                if left is not None:  # a run takes it over, so it counts; a write makes the topic's own node
                    entries[number] = _entry(left, "", -1)
        return entries

    def running(self) -> list[str]:
        return announced(self._nodes, self._root)

    def write(self, changed: Sequence[Change], topic_id: str | None) -> None:
        written: list[int] = []
        for change in changed:
            path, data = self._path(change.partition), _encoded(self._owner, self._topic, change, topic_id)
            try:
                if change.before is None or change.before.version < 0:
                    self._nodes.create(path, data)
                else:
                    self._nodes.set(path, data, change.before.version)
            except (VersionConflict, NodeExists, NodeMissing):
                left = [row.partition for row in changed if row.partition not in written]
                raise OffsetsMoved(self.where, written, left) from None
            # Rule: whatever breaks a change off, it says how far it came. One node is written after the other, and
            # half of them are at another place than the rest until somebody looks.
            except NodeStoreUnavailable as error:
                raise ChangeBrokenOff(self.where, error.message, changed, written, known=False) from error
            except NodeStoreError as error:
                raise ChangeBrokenOff(self.where, error.message, changed, written, known=True) from error
            except KeyboardInterrupt as interrupt:
                broken_off = ChangeBrokenOff(self.where, "Interrupted.", changed, written, known=False)
                broken_off.exit_status = INTERRUPTED
                raise broken_off from interrupt
            written.append(change.partition)

    def _path(self, number: int) -> str:
        return path_of(self._root, Partition(self._topic, number), several=self._several)


class GroupOffsetPlace:
    """The offsets of a consumer group."""

    def __init__(self, admin: Admin, group: str, topic: str, topology: str) -> None:
        self._admin = admin
        self._group = group
        self._topic = topic
        self._owner = _outsider(topology)
        self.where = f"consumer group {group!r}"

    def read(self, partitions: Sequence[int]) -> dict[int, StoredEntry]:
        if not partitions:
            return {}
        try:
            rows = self._admin.list_group_offsets(
                self._group, [TopicPartition(self._topic, number) for number in partitions]
            )
        except GroupIdNotFound:
            return {}
        return {tp.partition: self._read_row(tp.partition, row) for tp, row in sorted(rows.items())}

    def _read_row(self, number: int, row: OffsetAndMetadata) -> StoredEntry:
        try:
            node = decode(row.metadata, Partition(self._topic, number))
        except NotAnOffset:  # set by another tool: it counts
            return StoredEntry(row.offset, row.leader_epoch, metadata=row.metadata)
        if node.stored.offset != row.offset:
            why = f"its metadata speaks of offset {node.stored.offset}, the group's offset is {row.offset}"
            raise UnusableOffset(Partition(self._topic, number), self.where, why, row.metadata)
        return _entry(node, row.metadata, -1)

    def running(self) -> list[str]:
        try:
            (group,) = self._admin.describe_groups(self._group).values()
        except GroupIdNotFound:
            return []
        except NewerGroupProtocol:
            # Ordinary consumers under KIP-848; their names are not told.
            state = self._admin.list_groups()[self._group].state
            return [] if state == "Empty" else [f"ordinary consumers (the group is {state})"]
        return [f"member {row.group_instance_id or row.member_id} from {row.client_host}" for row in group.members]

    def write(self, changed: Sequence[Change], topic_id: str | None) -> None:
        numbers = [change.partition for change in changed]
        # Rule: read again right before. The coordinator refuses an outsider while a group has members, but knows no
        # versions: a run that came and went since the first look would be overwritten.
        now = self.read(numbers)
        if any(now.get(change.partition) != change.before for change in changed):
            raise OffsetsMoved(self.where, (), numbers)
        rows = {
            TopicPartition(self._topic, change.partition): OffsetAndMetadata(
                change.after.offset,
                change.after.leader_epoch,
                _encoded(self._owner, self._topic, change, topic_id).decode(),
            )
            for change in changed
        }
        try:
            self._admin.alter_group_offsets(self._group, rows)
        except (UnknownMemberId, IllegalGeneration, RebalanceInProgress):
            raise OffsetsMoved(self.where, (), numbers) from None


class SpoutOffsets:
    """A KafkaSpout's topics, and the stored offsets of one of them. One thread; ``close`` it.

    ``topic``: may be left out where there is but one. Raises NoZooKeeper, NoSuchTopic, BootstrapFailed and other errors
    of a start when made; WhichTopic for one that the spout does not read, or where there are several. Blocks.
    """

    def __init__(
        self, topology: str, component: str, config: SpoutConfig, say: Callable[[str], None], topic: str | None = None
    ) -> None:
        self.component, self.config = component, config
        self._topology = topology
        self._held = Held(lambda: None, say)
        self._admin: Admin | None = None
        self._timeout_s = config.start_timeout_ms / 1e3
        try:
            self._admin = connect_admin(config, self._held, SystemClock())
            self.topics = self._topics()
            """The topics that the spout would read now."""
            # Rule: an empty name is a name, of no topic: `--topic "$TOPIC"` of a shell without that variable. Taken for
            # none given, it would change the first topic.
            self._choose(self.topics[0] if topic is None else topic)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        if self._admin is not None:
            self._admin.close()
        self._held.close()

    def of(self, topic: str) -> SpoutOffsets:
        """Return those of another topic, over the same connections: close only this one. Blocks."""
        chosen = copy.copy(self)
        chosen._choose(topic)
        return chosen

    def _choose(self, topic: str) -> None:
        if topic not in self.topics:
            raise WhichTopic(
                f"The spout {self.component!r} reads {self.config.choice()}, and topic {topic!r} is none of "
                f"{', '.join(self.topics)}. Correct --topic."
            )
        self.topic = topic
        self.place = self.place_of(self.config.offsets(), self.config.zk_root, self.config.id)
        self.topic_id, self.partitions = self._describe()

    def _topics(self) -> list[str]:
        """Return the topics that there are of those chosen. Raises NoSuchTopic for none."""
        assert self._admin is not None
        choice = self.config.choice()
        if not choice.several:
            return [self.config.topic]
        found = sorted(name for name in self._admin.list_topics() if choice.takes(name))
        if not found:
            raise NoSuchTopic(
                choice.pattern or choice.names[0],
                "no topic of the cluster matches" if choice.pattern else "nor does any other of the list",
                "topics_pattern" if choice.pattern else "topics",
            )
        return found

    def place_of(self, store: ZkOffsets | GroupOffsets, zk_root: str, spout_id: str) -> OffsetPlace:
        """Return this topic's offsets in a store. Blocks. Raises NoZooKeeper."""
        if isinstance(store, GroupOffsets):
            assert self._admin is not None
            return GroupOffsetPlace(self._admin, store.group or spout_id, self.topic, self._topology)
        assert store.servers is not None
        nodes = self._held.nodes(store.servers, store.digest, self._timeout_s, self.config.session_timeout_ms / 1e3)
        about, several = (self.topic, self._topology), self.config.choice().several
        return ZooKeeperOffsetPlace(nodes, store.servers, f"{zk_root}/{spout_id}", *about, several=several)

    def logs(self) -> dict[int, OffsetRange]:
        """Return the first offset and the end of each partition's log. Blocks."""
        assert self._admin is not None
        tps = [TopicPartition(self.topic, number) for number in self.partitions]
        first = self._admin.list_offsets(dict.fromkeys(tps, "earliest"))
        end = self._admin.list_offsets(dict.fromkeys(tps, "latest"))
        return {tp.partition: OffsetRange(first[tp].offset, end[tp].offset) for tp in tps}

    def find(self, place: LogPlace, numbers: Sequence[int], logs: Mapping[int, OffsetRange]) -> dict[int, Wish]:
        """Return where each partition goes on; a time after the last record is the end. Blocks."""
        assert self._admin is not None
        if place == "earliest":
            return {number: Wish(logs[number].first) for number in numbers}
        if place == "latest":
            return {number: Wish(logs[number].end) for number in numbers}
        if isinstance(place, int):
            return {number: Wish(place) for number in numbers}
        found = self._admin.list_offsets({TopicPartition(self.topic, number): place for number in numbers})
        at = {tp.partition: row.offset for tp, row in found.items()}
        return {number: Wish(at[number] if at[number] >= 0 else logs[number].end) for number in numbers}

    def _describe(self) -> tuple[str | None, list[int]]:
        assert self._admin is not None
        try:
            row = self._admin.describe_topics(self.topic)[self.topic]
        except UnknownTopicOrPartition:
            raise NoSuchTopic(self.topic, "no broker of the cluster knows it") from None
        return row.topic_id, self._read_by_the_spout([part.partition for part in row.partitions])

    def _read_by_the_spout(self, there: list[int]) -> list[int]:
        # Rule: a list written by hand names the partitions that are read. The others have no stored offset, and a sum
        # over them would never be known.
        if not isinstance(self.config.hosts, StaticHosts):
            return there
        for number in sorted(self.config.hosts.leaders.keys() - set(there)):
            raise PartitionsMissing(number, self.topic, len(there))
        return sorted(self.config.hosts.leaders)


def connect_admin(config: SpoutConfig, held: Held, clock: Clock) -> Admin:
    """Return an admin of the spout's cluster. Blocks. Raises errors of a start."""
    timeout_s = config.start_timeout_ms / 1e3
    _, brokers = find_brokers(config, held, timeout_s, clock.monotonic() + timeout_s, clock)
    admin = Admin(
        bootstrap_servers=[str(broker) for broker in brokers],
        client_id=config.client_id,
        request_timeout_ms=config.request_timeout_ms,
        default_api_timeout_ms=config.start_timeout_ms,
        **config.security(),
    )
    try:
        admin.describe_cluster()
    except KafkaError as error:
        admin.close()
        if isinstance(error, (BootstrapFailed, HungUp, ForeignProtocol)):
            refuse_foreign(brokers)
        raise
    return admin


def in_words(tasks: Sequence[str]) -> str:
    """Name the first of those who read, and count the others."""
    return ", ".join(tasks[:3]) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")


def refuse_running(place: OffsetPlace) -> None:
    """Raise StillRunning while anybody reads under this id. Blocks."""
    tasks = place.running()
    if tasks:
        raise StillRunning(place.where, tasks)


def _outsider(topology: str) -> Owner:
    return Owner(uuid.uuid4().hex, topology)


def _entry(node: OffsetNode, metadata: str, version: int) -> StoredEntry:
    topology = node.fields.get("topology")
    name = topology.get("name") if isinstance(topology, Mapping) else None
    stored = node.stored
    return StoredEntry(
        stored.offset,
        stored.leader_epoch,
        stored.topic_id,
        node.owner_epoch,
        str(name or ""),
        metadata,
        version,
        stored.stop,
    )


def _encoded(owner: Owner, topic: str, change: Change, topic_id: str | None) -> bytes:
    # Rule: above the epoch that was read. An owner that slept through the change would commit under its own.
    epoch = 1 if change.before is None else change.before.owner_epoch + 1
    position = CommitPosition(change.after.offset, change.after.leader_epoch, stop=change.after.stop)
    return encode(owner, Partition(topic, change.partition), position, epoch, topic_id)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
