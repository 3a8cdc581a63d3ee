"""The port of the offset stores, and the JSON that both of them write.

A store keeps one entry a partition: the next offset to read, and who wrote it. Opening a partition is one act:
read the entry, let ``decide`` choose where to begin, write the choice under the next owner epoch. From then on a
former owner's writes are refused (ZooKeeper) or noticed (consumer group).
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from streamlet.base.errors import StreamletError
from streamlet.spouts.kafka.activity import Steps
from streamlet.spouts.kafka.partition import Broker, OffsetRange, Partition


@dataclass(frozen=True, slots=True)
class Owner:
    """Who writes progress: the run (``topology_id`` is fresh for each run) and its name."""

    topology_id: str
    topology_name: str


@dataclass(frozen=True, slots=True)
class CommitPosition:
    """The next offset to read, with its leader epoch and leader."""

    offset: int
    leader_epoch: int = -1
    """The leader epoch of the record before ``offset``; -1 unknown."""
    broker: Broker | None = None
    stop: StopOffset | None = None
    """Where reading stops; kept with the offset."""


@dataclass(frozen=True, slots=True)
class StopOffset:
    """The offset at which a bounded read stops. ``asked``: the setting, in words."""

    offset: int
    asked: str


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """The next offset to read, as an offset store held it."""

    offset: int
    topology_id: str = ""
    topic_id: str | None = None
    leader_epoch: int = -1
    stop: StopOffset | None = None


class Reason(enum.Enum):
    """Why a partition begins where it begins; the text is for logs."""

    STORED = "the stored offset"
    FIRST_EARLIEST = "nothing was stored: earliest"
    FIRST_LATEST = "nothing was stored: latest"
    FIRST_TIMESTAMP = "nothing was stored: by time"
    FIRST_OFFSET = "nothing was stored: by offset"
    FORCED = "the stored offset of another run was set aside (ignore_stored_offset)"
    NEW_PARTITION = "a partition that appeared while running: earliest"
    BELOW_START = "the next offset is below the start of the log: retention or DeleteRecords removed it"
    AHEAD_OF_END = "the next offset is ahead of the end of the log: it was truncated"
    DIVERGED = "the next offset is in the log, but below it the log was truncated and written again"
    NO_COMMON_EPOCH = "the next offset is in the log, but that is another one: its leader epochs are older ones"
    TOPIC_RECREATED = "the topic was deleted and created again: the next offset belongs to the old one"


OTHER_LOG = frozenset({Reason.NO_COMMON_EPOCH, Reason.TOPIC_RECREATED})
"""Reasons that mean another log than the one that was read: all of it is to be read."""

LOSSES = OTHER_LOG | {Reason.BELOW_START, Reason.AHEAD_OF_END, Reason.DIVERGED}
"""Reasons that mean records were lost, or may have been: refused unless ``fail_on_data_loss=False``."""


@dataclass(frozen=True, slots=True)
class StartDecision:
    """Where a partition begins. ``lost`` is the exact range that cannot be read any more, where known."""

    offset: int
    reason: Reason
    lost: OffsetRange | None = None
    stop: StopOffset | None = None

    @property
    def is_loss(self) -> bool:
        """Whether going on needs ``fail_on_data_loss=False``."""
        return self.reason in LOSSES


Decide = Callable[[StoredOffset | None], Steps[StartDecision]]
"""Chooses where to begin from the stored offset; may ask the broker meanwhile."""

CommitOutcome = StreamletError | None
"""The result of one partition's commit: None when it was written."""


class OffsetStore(Protocol):
    """Progress of partitions, each owned by one spout task at a time."""

    @property
    def recommit_interval_s(self) -> float | None:
        """Seconds after which an unchanged offset is written again, before it expires; None: never."""

    def where(self, partition: Partition) -> str:
        """Return the place of a partition's offset, for messages."""

    def open(
        self, partition: Partition, broker: Broker | None, topic_id: str | None, decide: Decide
    ) -> Steps[StartDecision]:
        """Take the partition over: read, decide, store the decision under the next owner epoch.

        The decision is stored before this returns, so before the first emit. Raises UnusableOffset, Deposed (a
        partition of this spout that begins again has another owner by now), errors of ``decide`` and of the store.
        """

    def commit(self, positions: Mapping[Partition, CommitPosition]) -> Steps[dict[Partition, CommitOutcome]]:
        """Write progress; return for each partition None or why it was not written.

        Deposed among the outcomes: another owner took the partition over, stop reading it.
        """

    def release(self, partition: Partition) -> None:
        """Forget the claim on a partition that is read no more."""


@dataclass(frozen=True, slots=True)
class OffsetNode:
    """One partition's progress as it is written; ``fields`` is the whole JSON."""

    stored: StoredOffset
    owner_epoch: int
    fields: Mapping[str, Any]


def first_position(decision: StartDecision, node: OffsetNode | None, broker: Broker | None) -> CommitPosition:
    """Return the position that a claim stores."""
    # The leader epoch belongs to the record before the stored offset, so it is kept with that offset only; and of this
    # log: in another one that begins at the same offset it would be missed at each start.
    if node is not None and decision.reason not in OTHER_LOG and node.stored.offset == decision.offset:
        return CommitPosition(decision.offset, node.stored.leader_epoch, broker, decision.stop)
    return CommitPosition(decision.offset, broker=broker, stop=decision.stop)


def encode(
    owner: Owner, partition: Partition, position: CommitPosition, owner_epoch: int, topic_id: str | None
) -> bytes:
    """Write storm-kafka's JSON, plus leader_epoch, topic_id and owner_epoch."""
    broker = position.broker
    fields: dict[str, Any] = {
        "topology": {"id": owner.topology_id, "name": owner.topology_name},
        "offset": position.offset,
        "partition": partition.number,
        "broker": {"host": broker.host if broker else "", "port": broker.port if broker else 0},
        "topic": partition.topic,
        "leader_epoch": position.leader_epoch,
        "topic_id": topic_id,
        "owner_epoch": owner_epoch,
    }
    if position.stop is not None:
        fields["stop"] = stop_fields(position.stop)
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


class NotAnOffset(ValueError):
    """Why some bytes are not the progress of this partition."""


def decode(data: bytes | str, partition: Partition) -> OffsetNode:
    """Read JSON of ``encode`` or of storm-kafka. Raises NotAnOffset, whatever the bytes are."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise NotAnOffset("that is not the JSON of an offset") from None
    if not isinstance(fields, dict):
        raise NotAnOffset("that is not the JSON of an offset")
    offset = whole_number(fields, "offset")
    if offset is None or offset < 0:
        raise NotAnOffset('it has no usable "offset"')
    if fields.get("topic") != partition.topic:
        raise NotAnOffset(f"it belongs to topic {fields.get('topic')!r}: another spout uses the same zk_root and id")
    if whole_number(fields, "partition") != partition.number:
        raise NotAnOffset(f"it belongs to partition {fields.get('partition')!r}")
    owner_epoch = whole_number(fields, "owner_epoch")
    if owner_epoch is None:
        if "owner_epoch" in fields:
            raise NotAnOffset('its "owner_epoch" is not a whole number')
        owner_epoch = 0  # storm-kafka writes none
    leader_epoch = whole_number(fields, "leader_epoch")
    topology, topic_id = fields.get("topology"), fields.get("topic_id")
    stored = StoredOffset(
        offset=offset,
        topology_id=str(topology.get("id", "")) if isinstance(topology, dict) else "",
        topic_id=topic_id if isinstance(topic_id, str) else None,
        leader_epoch=-1 if leader_epoch is None else leader_epoch,
        stop=read_stop(fields.get("stop")),
    )
    return OffsetNode(stored, owner_epoch, fields)


def stop_fields(stop: StopOffset) -> dict[str, Any]:
    """Return the stop of a bounded read for JSON."""
    return {"offset": stop.offset, "asked": stop.asked}


def read_stop(found: Any) -> StopOffset | None:
    """Read what ``stop_fields`` gave; None for anything else."""
    offset = whole_number(found, "offset") if isinstance(found, dict) else None
    return None if offset is None or not isinstance(found.get("asked"), str) else StopOffset(offset, found["asked"])


def whole_number(fields: Mapping[str, Any], key: str) -> int | None:
    """Return a 64-bit whole number of the JSON; None for anything else."""
    value = fields.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None
