"""Who leads what: the value types storm-kafka users know (SEEDMAP K1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from streamlet.base.errors import SettingError

DEFAULT_PORT = 9092


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One partition of one topic. The leader is *not* part of its identity: a leader move keeps the ledger."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


@dataclass(frozen=True, slots=True, order=True)
class Broker:
    """Where a broker listens."""

    host: str
    port: int = DEFAULT_PORT

    @classmethod
    def parse(cls, text: str) -> Broker:
        """``host:port``, ``host`` (port 9092) or ``[v6]:port``. Raises SettingError."""
        host, colon, port = text.strip().rpartition(":")
        if not colon or (":" in host and not host.startswith("[")) or port.endswith("]"):
            host, port = text.strip(), str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
        if not host or not 0 < number < 65536:
            raise SettingError(
                f"{text!r} is no broker address. Write host:port (the port may be left out: {DEFAULT_PORT}), "
                "for example kafka1.example.org:9092."
            )
        return cls(host, number)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class GlobalPartitionInformation:
    """One look at a topic: partition number -> leader, None where there is none at the moment.

    ``by_position``: the list was written by hand and may be partial, so tasks share out its *positions*;
    discovered lists are shared out by partition number, so that a hole moves nothing (trap T9).
    ``leader_epochs`` are of the same look; sent with a fetch they keep a former leader, which may still serve as a
    follower, from answering.
    ``topic_id`` is the topic's UUID as text where the source tells it: it changes when a topic is re-created.
    """

    topic: str
    leaders: Mapping[int, Broker | None] = field(default_factory=dict)
    by_position: bool = False
    topic_id: str | None = None
    leader_epochs: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "leaders", MappingProxyType(dict(sorted(self.leaders.items()))))

    def get_ordered_partitions(self) -> list[Partition]:
        """All partitions, by number."""
        return [Partition(self.topic, number) for number in self.leaders]

    def get_broker_for(self, number: int) -> Broker | None:
        """The leader of a partition; None when unknown or when there is none."""
        return self.leaders.get(number)

    def get_leader_epoch(self, number: int) -> int:
        """The epoch of that leadership; -1 unknown."""
        return self.leader_epochs.get(number, -1)
