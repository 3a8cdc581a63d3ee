"""Errors of a KafkaSpout: each names the place, the cause and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized

from streamlet.base.errors import BadInput, StreamletError
from streamlet.model.validate import nearest
from streamlet.spouts.kafka.partition import Broker, OffsetRange, Partition

# The policies for poison records (``on_poison``).
STOP = "stop"
SKIP = "skip"
DEAD_LETTER = "dead-letter"

MOST_NAMED = 10
"""Topics that an error names of those there are."""


class NoSuchTopic(BadInput):
    """The topic does not exist."""

    def __init__(self, topic: str, where: str, setting: str = "topic", others: Iterable[str] = ()) -> None:
        super().__init__(
            f"The topic {topic!r} does not exist ({where}). {_instead(topic, others)}Create it (`streamlet dev topic "
            f"{topic}`, or Admin.create_topics), or correct `{setting}` in the SpoutConfig. A spout creates no topic."
        )


class NoTopicMatches(BadInput):
    """No topic matches the pattern, and the run is to end."""

    def __init__(self, pattern: str) -> None:
        super().__init__(
            f"No topic of the cluster matches topics_pattern={pattern!r}, and the run would end with nothing read. "
            "Correct the pattern in the SpoutConfig: it has to match whole names. Or create a topic for it (`streamlet "
            "dev topic NAME`, or Admin.create_topics). A run without an end waits for topics that match."
        )


class TopicsDeleted(StreamletError):
    """All topics that a spout reads were deleted during its run.

    ``unread``: by partition the offsets that were never read, as far as the last fetch knew of them.
    """

    def __init__(self, topics: Iterable[str], unread: Mapping[Partition, OffsetRange]) -> None:
        names = [repr(topic) for topic in topics]
        one = len(names) == 1
        which, it = ("The topic", "it") if one else ("All topics", "them")
        ranges = [f"{partition} {offsets}" for partition, offsets in sorted(unread.items())]
        lost = (
            f"Of {it} these offsets, at least, were never read, and nobody can read them any more: "
            f"{', '.join(ranges[:MOST_NAMED])}{_more(ranges)}."
            if ranges
            else f"All that was known of {it} had been read."
        )
        super().__init__(
            f"{which} that the spout reads {'was' if one else 'were'} deleted during the run "
            f"({', '.join(names[:MOST_NAMED])}{_more(names)}). {lost} Find out who "
            "deletes topics that are read. Made again, a topic of that name is another one: the next run reads its "
            "records, and knows nothing of these."
        )


def _more(named: Sized) -> str:
    return f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""


def _instead(topic: str, others: Iterable[str]) -> str:
    """Name the nearest topic, or those that there are, in a sentence."""
    there = sorted(name for name in others if not name.startswith("__"))
    if not there:
        return ""
    return nearest(topic, there, f"There are {', '.join(there[:MOST_NAMED])}{_more(there)}.") + " "


class TopicInTheWay(BadInput):
    """A topic has the name of a node that the spout needs."""

    def __init__(self, topic: str, root: str) -> None:
        super().__init__(
            f"The pattern of the spout takes the topic {topic!r}, and with offsets in ZooKeeper the node "
            f"{root}/{topic} names the tasks that read. Give a pattern that leaves this topic out, or keep the offsets "
            "in a consumer group: offset_store=GroupOffsets()."
        )


class StopInTheFuture(BadInput):
    """A bounded read is to stop at a future time."""

    def __init__(self, topics: str, ahead_s: float) -> None:
        super().__init__(
            f"The spout on {topics} is to stop at a time that is {ahead_s:.0f} s ahead (stop_offset). A time is looked "
            "up in the log once, when the run starts, and no record is so late yet. Give a time that has passed, or "
            "let `-t` end the run."
        )


class PlaceOfNoPartition(BadInput):
    """``start_offset`` or ``stop_offset`` names a partition that its topic does not have."""

    def __init__(self, setting: str, partition: Partition, there: Iterable[int]) -> None:
        numbers = ", ".join(map(str, sorted(there))) or "none"
        super().__init__(
            f"{setting} names partition {partition.number} of topic {partition.topic!r}, which has {numbers}: what is "
            f"meant for it would hold for no partition. Correct {setting}."
        )


class NoZooKeeper(BadInput):
    """No ZooKeeper answers where the settings name one."""


class PartitionsMissing(BadInput):
    """StaticHosts names partitions that the topic does not have."""

    def __init__(self, number: int, topic: str, count: int) -> None:
        super().__init__(
            f"StaticHosts names partition {number} of topic {topic!r}, but the topic has only {count}, numbered from "
            "0. Correct the list."
        )


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
    """A start took longer than ``start_timeout_ms`` and the session time-out."""

    retriable = True


class OffsetsLost(StreamletError):
    """Unread records are gone, and ``fail_on_data_loss`` is on. ``lost``: the exact range, if known."""

    def __init__(self, partition: Partition, lost: OffsetRange | None, message: str) -> None:
        self.partition, self.lost = partition, lost
        super().__init__(message)


class LeadersBehind(StreamletError):
    """The leader that is named is older than records that were read: its log is not asked yet."""

    retriable = True


class PoisonRecord(StreamletError):
    """A record cannot be processed, and ``on_poison`` is "stop"."""

    def __init__(self, partition: Partition, offset: int, what: str) -> None:
        self.partition, self.offset = partition, offset
        super().__init__(
            f"The record of topic {partition.topic!r}, partition {partition.number}, offset {offset} {what} Nothing "
            'past it is committed. Fix the scheme or the bolt and start again, or set on_poison="skip" to have such '
            'records logged, counted and passed over, or on_poison="dead-letter" to have them kept in a topic.'
        )


class SchemeNotReady(StreamletError):
    """A scheme cannot decode a record yet.

    The record is not to blame. Any scheme may raise it where it lacks something that comes with time (a schema
    registry that is away). The partition rests with the record in front, and nothing counts as failed. ``message``
    says what the scheme lacks.
    """

    retriable = True


class UnreadableData(StreamletError):
    """A key or a value has not the form of its scheme."""


class FieldMissing(StreamletError):
    """A key or a value lacks a field that its scheme names."""


class UnknownSchema(StreamletError):
    """The schema registry does not have a record's schema."""


class NoDeadLetterTopic(BadInput):
    """The topic for dead letters does not exist."""

    def __init__(self, topic: str, spout: str, connections: str) -> None:
        super().__init__(
            f"The spout {spout!r} is to write records that it gives up to the topic {topic!r} (dead_letter_topic), "
            f"and this topic does not exist. {connections} Create it (`streamlet dev topic {topic}`, or "
            "Admin.create_topics; with a retention that is long enough for you to look, and without compaction), or "
            "correct dead_letter_topic. A spout creates no topic."
        )


class CompactedDeadLetterTopic(BadInput):
    """The topic for dead letters drops letters with equal keys."""

    def __init__(self, topic: str, spout: str, policy: str) -> None:
        super().__init__(
            f"The spout {spout!r} is to write records that it gives up to the topic {topic!r} (dead_letter_topic), "
            f"and this topic has cleanup.policy={policy}. A letter has the key of its record: a compacted topic keeps "
            "only the last letter of each key, and takes none of a record without a key. Nothing was read. Set "
            "cleanup.policy=delete for this topic (kafka-configs, or Admin.alter_configs), with a retention that is "
            "long enough for you to look, or name another topic in dead_letter_topic."
        )


class DeadLettersCannotStart(StreamletError):
    """No broker told in time whether the topic for dead letters exists."""

    retriable = True

    def __init__(self, topic: str, spout: str, connections: str) -> None:
        super().__init__(
            f"The spout {spout!r} cannot start: no broker has said within start_timeout_ms which partitions the topic "
            f"{topic!r} (dead_letter_topic) has. {connections} See whether the brokers run."
        )


class DeadLetterRefused(StreamletError):
    """The brokers refuse a dead letter, and will not take it later."""

    def __init__(self, partition: Partition, offset: int, topic: str, why: str, *, is_invalid: bool = False) -> None:
        self.partition, self.offset = partition, offset
        remedy = (
            f"A topic that is compacted takes no letter of a record without a key: set cleanup.policy=delete for "
            f"{topic!r}, if it has another one, or name another topic in dead_letter_topic,"
            if is_invalid
            else "Correct what the error names (the rights of the user, max.message.bytes of the topic: a dead letter "
            "is a little larger than its record)"
        )
        super().__init__(
            f"The dead letter of topic {partition.topic!r}, partition {partition.number}, offset {offset}, was refused "
            f"by topic {topic!r}: {why} Nothing past this record is committed, and it comes again at the next start. "
            f"{remedy} and start again."
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
    """Another owner took the partition over: this one stops reading it and writes no more offsets.

    ``mine``: the owner epoch of this spout, of run ``run``; ``other``: the fields that the other owner stored.
    """

    def __init__(self, partition: Partition, where: str, run: str, mine: int, other: Mapping[str, object]) -> None:
        self.partition = partition
        stored = other.get("topology")
        topology = stored if isinstance(stored, Mapping) else {}
        owner = topology.get("id")
        if owner == run:
            who, advice = "Another worker of the same run", "If this worker stood still, look for the reason."
        else:
            who = _run_in_words((str(owner), str(topology.get("name"))) if owner else None)
            advice = _ONE_ID_EACH
        super().__init__(
            f"{who} took over topic {partition.topic!r}, partition {partition.number}: {where} has owner epoch "
            f"{other.get('owner_epoch')}, and this spout, of run {run[:8]}, had {mine}. What it had not committed will "
            f"be read again by the new owner. {advice}"
        )


class RunDeposed(StreamletError):
    """Another run has the topics now, in words; ``other``: its id and topology."""

    def __init__(self, topics: str, where: str, run: str, other: tuple[str, str] | None) -> None:
        super().__init__(
            f"{_run_in_words(other)} took over {topics} in {where}: it came after this run ({run[:8]}), and one "
            "run at a time reads a topic under one `id`. This run stopped emitting before the other one began; what "
            f"it had not committed is read again there. {_ONE_ID_EACH}"
        )


_ONE_ID_EACH = (
    "If two topologies are meant to read the topic, give each its own `id`; if not, see to it that only one is started."
)


def _run_in_words(run: tuple[str, str] | None) -> str:
    """Name a run by id and topology, as a sentence begins."""
    return "Another run" if run is None else f"Run {run[0][:8]} of topology {run[1]!r}"


class TaskReplaced(StreamletError):
    """Another worker of the run has this task's place."""

    def __init__(self, topics: str, where: str, place: str) -> None:
        super().__init__(
            f"Another process reads {topics} as {place!r} in {where}: this worker was taken for dead and "
            "replaced. It emits and commits nothing more. If it stood still for a while, look for the reason (a paused "
            "machine, a full memory, a call that keeps the interpreter)."
        )


class ForeignMembers(StreamletError):
    """The group has ordinary consumers among its members."""

    def __init__(self, topics: str, group: str) -> None:
        super().__init__(
            f"The spout on {topics} cannot join consumer group {group!r}: the group has ordinary consumers "
            "among its members, and they would share the partitions out in another way. "
            "Stop them, or give the spout an `id` (or GroupOffsets a group) of its own."
        )


class SessionRefused(StreamletError):
    """The broker does not take this session time-out."""

    def __init__(self, topics: str, group: str, session_timeout_ms: int) -> None:
        super().__init__(
            f"The spout on {topics} cannot join consumer group {group!r}: the broker refuses "
            f"session_timeout_ms={session_timeout_ms}. Choose one between its group.min.session.timeout.ms (6000 "
            "unless set) and its group.max.session.timeout.ms."
        )


class NotAMember(StreamletError):
    """The group rebalances: offsets are committed again once this task is a member."""

    retriable = True


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
