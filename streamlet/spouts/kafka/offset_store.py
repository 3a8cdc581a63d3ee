"""Where progress is kept: the port, and the JSON that both stores write (storm-kafka's keys and some of ours)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from streamlet.base.errors import StreamletError
from streamlet.spouts.kafka.partition import Broker, Partition
from streamlet.spouts.kafka.start import StartDecision, StoredOffset
from streamlet.spouts.kafka.steps import Steps


@dataclass(frozen=True, slots=True)
class Owner:
    """Who keeps progress: the run (``topology_id`` is fresh for each) and its name."""

    topology_id: str
    topology_name: str


@dataclass(frozen=True, slots=True)
class CommitPosition:
    """The next offset to read, the leader epoch of the record before it, and the partition's present leader."""

    offset: int
    leader_epoch: int = -1
    broker: Broker | None = None


Decide = Callable[[StoredOffset | None], Steps[StartDecision]]
"""Where to begin, from what is stored; it may have to ask the broker."""
Outcome = StreamletError | None


class OffsetStore(Protocol):
    """Progress of partitions, each owned by one spout task at a time."""

    @property
    def recommit_interval_s(self) -> float | None:
        """Unchanged offsets are written again after so long, for they would expire; None: they keep."""
        ...

    def where(self, partition: Partition) -> str:
        """The place, for messages."""
        ...

    def open(
        self, partition: Partition, broker: Broker | None, topic_id: str | None, decide: Decide
    ) -> Steps[StartDecision]:
        """Take the partition over: read, decide, and store the decision under the next owner epoch.

        It is stored before this returns, and so before the first emit. Raises UnusableOffset, Deposed (a partition
        of ours that begins anew has another owner by now), what ``decide`` raises, and errors of the store.
        """
        ...

    def commit(self, positions: Mapping[Partition, CommitPosition]) -> Steps[dict[Partition, Outcome]]:
        """Write progress; for each partition None or why it was not written (Deposed: stop reading it)."""
        ...

    def release(self, partition: Partition) -> None:
        """The partition is not read any more."""
        ...


@dataclass(frozen=True, slots=True)
class OffsetNode:
    """One partition's progress as it is written."""

    stored: StoredOffset
    owner_epoch: int
    fields: Mapping[str, Any]


def encode(
    owner: Owner,
    partition: Partition,
    position: CommitPosition,
    owner_epoch: int,
    topic_id: str | None,
) -> bytes:
    """storm-kafka's JSON (topology, offset, partition, broker, topic), and leader_epoch, topic_id, owner_epoch."""
    broker = position.broker
    fields = {
        "topology": {"id": owner.topology_id, "name": owner.topology_name},
        "offset": position.offset,
        "partition": partition.number,
        "broker": {"host": broker.host if broker else "", "port": broker.port if broker else 0},
        "topic": partition.topic,
        "leader_epoch": position.leader_epoch,
        "topic_id": topic_id,
        "owner_epoch": owner_epoch,
    }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


class NotAnOffset(ValueError):
    """Why some bytes are no progress of this partition."""


def decode(data: bytes | str, partition: Partition) -> OffsetNode:
    """Read what ``encode`` or storm-kafka wrote. Raises NotAnOffset, whatever the bytes are."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise NotAnOffset("that is not the JSON of an offset") from None
    if not isinstance(fields, dict):
        raise NotAnOffset("that is not the JSON of an offset")
    offset = _whole(fields, "offset")
    if offset is None or offset < 0:
        raise NotAnOffset('it has no usable "offset"')
    if fields.get("topic") != partition.topic:
        raise NotAnOffset(f"it belongs to topic {fields.get('topic')!r}: another spout uses the same zk_root and id")
    if _whole(fields, "partition") != partition.number:
        raise NotAnOffset(f"it belongs to partition {fields.get('partition')!r}")
    owner_epoch = _whole(fields, "owner_epoch")
    if owner_epoch is None:
        if "owner_epoch" in fields:
            raise NotAnOffset('its "owner_epoch" is not a whole number')
        owner_epoch = 0  # storm-kafka has none
    leader_epoch = _whole(fields, "leader_epoch")
    topology, topic_id = fields.get("topology"), fields.get("topic_id")
    stored = StoredOffset(
        offset=offset,
        topology_id=str(topology.get("id", "")) if isinstance(topology, dict) else "",
        topic_id=topic_id if isinstance(topic_id, str) else None,
        leader_epoch=-1 if leader_epoch is None else leader_epoch,
    )
    return OffsetNode(stored, owner_epoch, fields)


def _whole(fields: Mapping[str, Any], key: str) -> int | None:
    value = fields.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None
