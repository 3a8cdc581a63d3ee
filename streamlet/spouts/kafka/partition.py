"""Partitions and who leads them: the value types storm-kafka users know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from streamlet.base.errors import SettingError, StreamletError
from streamlet.base.host_names import can_be_host
from streamlet.base.printable import many
from streamlet.kafka.metadata.cluster import TopicPartition

DEFAULT_PORT = 9092


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One partition of one topic."""

    # The leader is no part of the identity: ledger, retries and owner epoch stay as they are when a leader moves.

    topic: str
    number: int

    @property
    def tp(self) -> TopicPartition:
        """The same partition as the Kafka client names it."""
        return TopicPartition(self.topic, self.number)

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``first`` to ``end - 1``."""

    first: int
    end: int

    def __str__(self) -> str:
        return f"[{self.first}, {self.end - 1}] ({many(self.end - self.first, 'offset')})"


@dataclass(frozen=True, slots=True, order=True)
class Broker:
    """The address of a broker."""

    host: str
    port: int = DEFAULT_PORT

    @classmethod
    def parse(cls, text: str) -> Broker:
        """Parse ``host:port``, ``host`` (port 9092) or ``[v6]:port``. Raises SettingError."""
        host, colon, port = text.strip().rpartition(":")
        if not colon or (":" in host and not host.startswith("[")) or port.endswith("]"):
            host, port = text.strip(), str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
        if not can_be_host(host) or not 0 < number < 65536:
            raise SettingError(
                f"{text!r} is not a broker address. Write host:port (the port may be left out: {DEFAULT_PORT}), "
                "for example kafka1.example.org:9092."
            )
        return cls(host, number)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class GlobalPartitionInformation:
    """One topic as a look found it: partition number -> leader, None for no leader."""

    topic: str
    leaders: Mapping[int, Broker | None] = field(default_factory=dict)
    by_position: bool = False
    """True for a list written by hand, which may be partial: tasks share out its positions, not its numbers."""
    topic_id: str | None = None
    """The topic's UUID as text where the source has it; a topic made again has another one."""
    leader_epochs: Mapping[int, int] = field(default_factory=dict)
    """Of the same look. Sent with a fetch they keep a former leader, now a follower, from answering."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "leaders", MappingProxyType(dict(sorted(self.leaders.items()))))

    def get_ordered_partitions(self) -> list[Partition]:
        """Return all partitions by number."""
        return [Partition(self.topic, number) for number in self.leaders]

    def get_broker_for(self, number: int) -> Broker | None:
        """Return the leader of a partition; None when it is unknown or has none."""
        return self.leaders.get(number)

    def get_leader_epoch(self, number: int) -> int:
        """Return the epoch of that leadership; -1 unknown."""
        return self.leader_epochs.get(number, -1)

    def is_another(self, topic_id: str | None) -> bool:
        """Return whether an id is surely that of another topic."""
        return bool(topic_id and self.topic_id) and topic_id != self.topic_id


@dataclass(frozen=True, slots=True)
class FoundTopics:
    """One look at the topics of a spout, by name."""

    found: Mapping[str, GlobalPartitionInformation] = field(default_factory=dict)
    missing: Mapping[str, StreamletError] = field(default_factory=dict)
    """Topics that were asked for by name and are not there, and the error where they must be."""
    unclear: Mapping[str, StreamletError] = field(default_factory=dict)
    """Topics whose partitions cannot be told at the moment, and why."""

    def whole(self) -> Mapping[str, GlobalPartitionInformation]:
        """Return the found topics. Raises the error of one that is missing or unclear."""
        for error in (*self.missing.values(), *self.unclear.values()):
            raise error
        return self.found
