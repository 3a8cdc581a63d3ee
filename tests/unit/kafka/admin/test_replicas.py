"""Elections, reassignments, log directories: requests, and how answers are read. Pure."""

from __future__ import annotations

import pytest

from streamlet.base.errors import BadInput
from streamlet.kafka import TopicPartition
from streamlet.kafka import broker_errors as e
from streamlet.kafka.admin import ElectionType, PartitionReassignment, ReplicaInfo, replicas, topics
from streamlet.kafka.admin.errors import for_each
from streamlet.kafka.protocol.messages import replicas as wire

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_an_election_says_where_a_leader_was_needed() -> None:
    request = replicas.election_request(ElectionType.UNCLEAN, [A0, B0, A1], 500)
    assert request.topic_partitions == (
        wire.ElectionTopicPartitions(topic="a", partitions=(0, 1)),
        wire.ElectionTopicPartitions(topic="b", partitions=(0,)),
    )
    assert replicas.election_request(ElectionType.PREFERRED, None, 500).topic_partitions is None
    rows = tuple(wire.ElectionPartitionResult(partition_id=n, error_code=code) for n, code in enumerate((0, 84, 80)))
    response = wire.ElectLeadersResponse(
        replica_election_results=(wire.ReplicaElectionResult(topic="a", partition_result=rows),)
    )
    found, fault = replicas.read_elected(response)
    assert fault is None and found.results == {A0: True, A1: False}
    assert "Electing a leader for a-2" in found.errors[TopicPartition("a", 2)].message
    assert "describe_topics shows" in found.errors[TopicPartition("a", 2)].message
    refused = replicas.read_elected(wire.ElectLeadersResponse(error_code=31))
    assert set(for_each([A0, A1], *refused).errors) == {A0, A1}
    for wrong in (0, "preferred", None):
        with pytest.raises(BadInput, match=r"ElectionType\.PREFERRED or ElectionType\.UNCLEAN"):
            replicas.election_type_of(wrong)


@pytest.mark.parametrize("brokers", [[], [1, 1], ["1"], [True], [-1]])
def test_brokers_of_a_partition_are_ids_each_once(brokers: list[object]) -> None:
    with pytest.raises(BadInput, match=r"a-0: .*each once.*None cancels"):
        replicas.reassignments_of({A0: brokers})  # type: ignore[dict-item]


def test_a_reassignment_is_asked_for_cancelled_and_listed() -> None:
    wanted = replicas.reassignments_of({A0: [2, 1], A1: None})
    (topic,) = replicas.reassign_request(wanted, 500).topics
    assert [(row.partition_index, row.replicas) for row in topic.partitions] == [(0, (2, 1)), (1, None)]
    parts = (
        wire.ReassignablePartitionResponse(partition_index=0, error_code=0),
        wire.ReassignablePartitionResponse(partition_index=1, error_code=85),
    )
    response = wire.AlterPartitionReassignmentsResponse(
        responses=(wire.ReassignableTopicResponse(name="a", partitions=parts),)
    )
    found, fault = replicas.read_reassigned(response)
    assert fault is None and list(found.results) == [A0]
    assert isinstance(found.errors[A1], e.NoReassignmentInProgress) and "done already" in found.errors[A1].message
    row = wire.OngoingPartitionReassignment(
        partition_index=0, replicas=(2, 1), adding_replicas=(2,), removing_replicas=(1,)
    )
    listed = wire.ListPartitionReassignmentsResponse(
        topics=(wire.OngoingTopicReassignment(name="a", partitions=(row,)),)
    )
    assert replicas.read_reassignments(listed) == ({A0: PartitionReassignment((2, 1), (2,), (1,))}, None)
    assert replicas.list_request(None, 5).topics is None


def test_directories_are_by_path_with_what_is_known_of_them() -> None:
    copy = wire.DescribeLogDirsPartition(partition_index=1, partition_size=77, offset_lag=3, is_future_key=True)
    one = wire.DescribeLogDirsResult(
        error_code=0, log_dir="/b", topics=(wire.DescribeLogDirsTopic(name="a", partitions=(copy,)),)
    )
    lost = wire.DescribeLogDirsResult(error_code=56, log_dir="/a", total_bytes=9, usable_bytes=0)
    told = replicas.read_log_dirs(4, wire.DescribeLogDirsResponse(results=(one, lost)))
    found = told.results[4]
    assert list(found) == ["/a", "/b"] and found["/b"].replicas == {A1: ReplicaInfo(77, 3, True)}
    assert (found["/a"].error, found["/a"].total_bytes, found["/a"].usable_bytes) == (e.KafkaStorageError, 9, 0)
    assert (found["/b"].error, found["/b"].total_bytes, found["/b"].usable_bytes) == (None, None, None)
    refused = replicas.read_log_dirs(4, wire.DescribeLogDirsResponse(error_code=31))
    assert "broker 4" in refused.errors[4].message
    assert replicas.log_dirs_request(None).topics is None
    assert replicas.broker_ids(3) == [3] and replicas.broker_ids([3, 1, 3]) == [3, 1]
    for wrong in ("1", ["1"], -1, True):
        with pytest.raises(BadInput, match="broker ids"):
            replicas.broker_ids(wrong)  # type: ignore[arg-type]


def test_a_place_that_needs_a_newer_broker_is_asked_for_in_a_version_that_has_it() -> None:
    """An older version would take the number for a time."""
    for spec, versions, release in (
        ("latest", (4, 7, 9), "2.1"),
        ("max_timestamp", (7, 9), "3.0"),
        ("earliest_local", (9,), "3.9"),
        ("latest_tiered", (9,), "3.9"),
    ):
        request = topics.offsets_request({A0: topics.timestamp_of(spec), B0: -1}, "read_uncommitted")  # type: ignore[arg-type]
        assert (request.usable_versions(), request.least_broker()) == (versions, release)
