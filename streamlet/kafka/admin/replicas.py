"""Copies of partitions: elections, reassignments, log directories; requests, and how answers are read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from streamlet.base.errors import BadInput
from streamlet.kafka.admin.errors import Answers, item_error
from streamlet.kafka.arguments import by_partition, is_whole, several
from streamlet.kafka.broker_errors import ElectionNotNeeded, error_class
from streamlet.kafka.client.leader_requests import by_topic, partition_rows
from streamlet.kafka.errors import BrokerError, KafkaError
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.protocol.messages import replicas as wire

# -- data


class ElectionType(IntEnum):
    """Which replica may become leader; Kafka's numbers.

    PREFERRED: the first of the partition's replicas, when it is in sync. UNCLEAN: any living one, also where none is
    in sync; what it has not got is lost.
    """

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """One partition on its way to other brokers; ``replicas``: all that have or get it."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One copy in a directory, in bytes; ``offset_lag``: records behind the leader.

    ``is_future``: it is being moved here from another directory of the broker.
    """

    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One directory of a broker; bytes are None before Kafka 3.3.

    ``error`` is KafkaStorageError when its disk has failed, and the rest then says nothing.
    """

    error: type[BrokerError] | None
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None


# -- elections

_CLUSTER_ALTER = "ALTER on the cluster"


def election_type_of(given: object) -> ElectionType:
    """Return which election is meant. Raises BadInput."""
    if isinstance(given, ElectionType):
        return given
    raise BadInput(f"{given!r} is not an election: write ElectionType.PREFERRED or ElectionType.UNCLEAN.")


def election_request(
    kind: ElectionType, partitions: Iterable[TopicPartition] | None, timeout_ms: int
) -> wire.ElectLeadersRequest:
    """Return a request to elect leaders; ``partitions`` None: of all partitions."""
    topics = None
    if partitions is not None:
        topics = by_topic(
            dict.fromkeys(partitions),
            lambda number, _: number,
            lambda topic, rows: wire.ElectionTopicPartitions(topic=topic, partitions=rows),
        )
    return wire.ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=timeout_ms)


def read_elected(response: wire.ElectLeadersResponse) -> tuple[Answers[TopicPartition, bool], KafkaError | None]:
    """Return each partition's outcome, and the error of all.

    True: it got a leader; False: it had the right one already.
    """
    answers: Answers[TopicPartition, bool] = Answers()
    for topic in response.replica_election_results:
        for row in topic.partition_result:
            tp = TopicPartition(topic.topic, row.partition_id)
            fault = item_error(row.error_code, f"Electing a leader for {tp}", row.error_message, _CLUSTER_ALTER)
            if isinstance(fault, ElectionNotNeeded):
                answers.put(tp, False, None)
            else:
                answers.put(tp, True, fault)
    return answers, item_error(response.error_code, "Electing leaders", None, _CLUSTER_ALTER)


# -- reassignments


def reassignments_of(
    given: Mapping[TopicPartition, Sequence[int] | None],
) -> dict[TopicPartition, tuple[int, ...] | None]:
    """Return the brokers of each partition, None to cancel. Raises BadInput."""
    found: dict[TopicPartition, tuple[int, ...] | None] = {}
    for tp, brokers in by_partition(given, "[1, 2]").items():
        ids = None if brokers is None else tuple(several(brokers, "broker ids", "[1, 2]", str(tp)))
        if ids is not None and (not ids or len(set(ids)) < len(ids) or not all(is_whole(one, 0) for one in ids)):
            raise BadInput(
                f"{tp}: {brokers!r} are not the brokers of a partition: write their ids, each once, the preferred "
                "leader first, as [1, 2]; None cancels a reassignment."
            )
        found[tp] = ids
    return found


def reassign_request(
    wanted: Mapping[TopicPartition, tuple[int, ...] | None], timeout_ms: int
) -> wire.AlterPartitionReassignmentsRequest:
    """Return one request for all of these partitions."""
    return wire.AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        topics=by_topic(
            wanted,
            lambda number, brokers: wire.ReassignablePartition(partition_index=number, replicas=brokers),
            lambda topic, rows: wire.ReassignableTopic(name=topic, partitions=rows),
        ),
    )


def read_reassigned(
    response: wire.AlterPartitionReassignmentsResponse,
) -> tuple[Answers[TopicPartition, None], KafkaError | None]:
    """Return each partition's outcome, and the error of all.

    None: its copying has begun, or was cancelled.
    """
    answers: Answers[TopicPartition, None] = Answers()
    for tp, row in partition_rows(response.responses):
        answers.put(tp, None, item_error(row.error_code, f"Reassigning {tp}", row.error_message, _CLUSTER_ALTER))
    return answers, item_error(response.error_code, "Reassigning partitions", response.error_message, _CLUSTER_ALTER)


def list_request(
    partitions: Iterable[TopicPartition] | None, timeout_ms: int
) -> wire.ListPartitionReassignmentsRequest:
    """Return a request for reassignments under way; ``partitions`` None: all."""
    topics = None
    if partitions is not None:
        topics = by_topic(
            dict.fromkeys(partitions),
            lambda number, _: number,
            lambda topic, rows: wire.ListPartitionReassignmentsTopics(name=topic, partition_indexes=rows),
        )
    return wire.ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics)


def read_reassignments(
    response: wire.ListPartitionReassignmentsResponse,
) -> tuple[dict[TopicPartition, PartitionReassignment], KafkaError | None]:
    """Return the reassignments under way, and the error of all."""
    found = {
        tp: PartitionReassignment(row.replicas, row.adding_replicas, row.removing_replicas)
        for tp, row in partition_rows(response.topics)
    }
    needs = "DESCRIBE on the cluster"
    return found, item_error(response.error_code, "Listing reassignments", response.error_message, needs)


# -- log directories


def broker_ids(given: int | Iterable[int]) -> list[int]:
    """Return ids of brokers, each once. Raises BadInput."""
    ids = [given] if isinstance(given, int) else list(several(given, "broker ids", "[0, 1]"))
    for one in ids:
        if not is_whole(one, 0):
            raise BadInput(f"{one!r} is not a broker: broker ids are numbers, as describe_cluster shows them.")
    return list(dict.fromkeys(ids))


def log_dirs_request(partitions: Iterable[TopicPartition] | None) -> wire.DescribeLogDirsRequest:
    """Return a request for one broker's directories; ``partitions`` None: all copies in them."""
    if partitions is None:
        return wire.DescribeLogDirsRequest(topics=None)
    return wire.DescribeLogDirsRequest(
        topics=by_topic(
            dict.fromkeys(partitions),
            lambda number, _: number,
            lambda topic, rows: wire.DescribableLogDirTopic(topic=topic, partitions=rows),
        )
    )


def read_log_dirs(node_id: int, response: wire.DescribeLogDirsResponse) -> Answers[int, dict[str, LogDirDescription]]:
    """Return the directories of one broker, by path."""
    answers: Answers[int, dict[str, LogDirDescription]] = Answers()
    what = f"Describing the log directories of broker {node_id}"
    found = {
        row.log_dir: LogDirDescription(
            error_class(row.error_code),
            {
                tp: ReplicaInfo(copy.partition_size, copy.offset_lag, copy.is_future_key)
                for tp, copy in partition_rows(row.topics)
            },
            None if row.total_bytes < 0 else row.total_bytes,
            None if row.usable_bytes < 0 else row.usable_bytes,
        )
        for row in sorted(response.results, key=lambda row: row.log_dir)
    }
    answers.put(node_id, found, item_error(response.error_code, what, None, "DESCRIBE on the cluster"))
    return answers
