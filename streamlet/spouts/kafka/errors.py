"""Errors of a KafkaSpout: each names the place, the cause and the remedy."""

from __future__ import annotations

from collections.abc import Mapping

from streamlet.base.errors import BadInput, StreamletError
from streamlet.spouts.kafka.partition import Broker, OffsetRange, Partition

# The two policies for poison records (``on_poison``).
STOP = "stop"
SKIP = "skip"


class NoSuchTopic(BadInput):
    """The topic does not exist."""

    def __init__(self, topic: str, where: str) -> None:
        super().__init__(
            f"The topic {topic!r} does not exist ({where}). Create it, or correct `topic` in the SpoutConfig. A spout "
            "creates no topic."
        )


class NoZooKeeper(BadInput):
    """No ZooKeeper answers where the settings name one."""


class PartitionsMissing(BadInput):
    """StaticHosts names partitions that the topic does not have."""


class TaskIndexOutOfRange(BadInput):
    """A task's index is not below the number of tasks: partitions cannot be shared out."""


class NoUsableListener(StreamletError):
    """A broker offers no listener of the security protocol that was set."""


class UnreadableNode(StreamletError):
    """A node in ZooKeeper holds something that Kafka does not write."""


class NoBrokers(StreamletError):
    """ZooKeeper knows no living broker."""

    retriable = True


class SpoutCannotStart(StreamletError):
    """A start took longer than ``start_timeout_ms``."""

    retriable = True


class OffsetsLost(StreamletError):
    """Unread records are gone, and ``fail_on_data_loss`` is on. ``lost``: the exact range, if known."""

    def __init__(self, partition: Partition, lost: OffsetRange | None, message: str) -> None:
        self.partition, self.lost = partition, lost
        super().__init__(message)


class PoisonRecord(StreamletError):
    """A record cannot be processed, and ``on_poison`` is "stop"."""

    def __init__(self, partition: Partition, offset: int, what: str) -> None:
        self.partition, self.offset = partition, offset
        super().__init__(
            f"The record of topic {partition.topic!r}, partition {partition.number}, offset {offset} {what} Nothing "
            'past it is committed. Fix the scheme or the bolt and start again, or set on_poison="skip" to have such '
            "records logged, counted and passed over."
        )


class StaticLeaderMoved(StreamletError):
    """A broker named by StaticHosts does not lead its partition any more."""

    def __init__(self, partition: Partition, old: Broker, new: Broker | None) -> None:
        self.partition, self.new = partition, new
        leader = f"{new} leads it now" if new else "it has no leader at the moment"
        super().__init__(
            f"StaticHosts says that {old} leads topic {partition.topic!r}, partition {partition.number}, but it does "
            f"not any more: {leader}. StaticHosts is taken at its word and never looked up again. Either correct the "
            "list, or let the spout find leaders itself with KafkaHosts(...) or ZkHosts(...)."
        )


class Deposed(StreamletError):
    """Another owner took the partition over: this one stops reading it and writes no more offsets."""

    def __init__(self, partition: Partition, where: str, mine: int, other: Mapping[str, object]) -> None:
        self.partition = partition
        topology = other.get("topology")
        name = topology.get("name") if isinstance(topology, Mapping) else None
        super().__init__(
            f"Another spout took over topic {partition.topic!r}, partition {partition.number}: {where} has owner epoch "
            f"{other.get('owner_epoch')} (topology {name!r}), this spout had {mine}. What it had not committed will be "
            "read again by the new owner. If two topologies are meant to read the topic, give each its own `id`."
        )


class UnusableOffset(StreamletError):
    """The place of the offset holds something else: refused, never overwritten."""

    def __init__(self, partition: Partition, where: str, why: str, found: bytes | str) -> None:
        excerpt = found if isinstance(found, str) else found.decode("utf-8", "backslashreplace")
        excerpt = excerpt[:120] + ("..." if len(excerpt) > 120 else "")
        super().__init__(
            f"The offset of topic {partition.topic!r}, partition {partition.number}, is kept in {where}, but {why}. "
            f"It holds: {excerpt!r}. Nothing was read or changed. Correct or delete it, or give the spout "
            "an `id` of its own."
        )
