"""Requests for topics and places in them, and how their answers are read. Pure."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest

from streamlet.base.errors import BadInput
from streamlet.kafka import TopicPartition
from streamlet.kafka import broker_errors as e
from streamlet.kafka.admin import (
    NewTopic,
    topics,
)
from streamlet.kafka.admin.errors import TopicBeingDeleted
from streamlet.kafka.protocol.messages import topics as wire_create
from streamlet.kafka.protocol.messages.metadata import MetadataPartition, MetadataResponse, MetadataTopic

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_creation_says_numbers_or_an_assignment() -> None:
    """An assignment leaves both numbers at -1; the broker's defaults need a version that has them."""
    request = topics.create_request([NewTopic("t", 2, 1, configs={"a": "b"})], 500, True)
    assert request.usable_versions() == (3, 7)
    assert (request.topics[0].num_partitions, request.timeout_ms, request.validate_only) == (2, 500, True)
    assert request.topics[0].configs == (wire_create.CreatableTopicConfig(name="a", value="b"),)
    assigned = topics.create_request([NewTopic("t", assignment={1: [2, 1], 0: [1, 2]})], 500, False)
    assert assigned.usable_versions() == (3, 7)
    assert [(row.partition_index, row.broker_ids) for row in assigned.topics[0].assignments] == [
        (0, (1, 2)),
        (1, (2, 1)),
    ]
    assert topics.create_request([NewTopic("t", 2)], 500, False).usable_versions() == (7,)


def test_an_answer_to_a_creation_has_results_and_errors() -> None:
    """Each topic in one of them; what an old broker leaves out is None."""
    row = wire_create.CreatableTopicResult
    response = wire_create.CreateTopicsResponse(
        topics=(
            row(name="new", error_code=0, num_partitions=2, replication_factor=1),
            row(name="old", error_code=0),
            row(name="many", error_code=38, error_message="Replication factor: 3 larger than available brokers: 2."),
            row(name="gone", error_code=36, error_message="Topic 'gone' is marked for deletion."),
            row(name="mine", error_code=29),
            row(name="odd", error_code=44, error_message="names begin with x"),
        )
    )
    answers = topics.read_created(response, 2)
    assert {name: found.num_partitions for name, found in answers.results.items()} == {"new": 2, "old": None}
    assert "'many'" in answers.errors["many"].message and "2 brokers, so there can be 1 to 2" in str(
        answers.errors["many"]
    )
    assert isinstance(answers.errors["gone"], TopicBeingDeleted) and answers.errors["gone"].retriable
    assert "ACL operation CREATE on the topic or on the cluster" in answers.errors["mine"].message
    assert "names begin with x" in answers.errors["odd"].message


def test_descriptions_and_listings_are_read_from_metadata() -> None:
    """Partitions by number, errors by topic; a topic that is being deleted is not listed."""
    part = MetadataPartition(error_code=0, partition_index=1, leader_id=1, replica_nodes=(1, 2), isr_nodes=(1,))
    zero = dataclasses.replace(part, partition_index=0, leader_id=-1, error_code=5)
    response = MetadataResponse(
        brokers=(),
        topics=(
            MetadataTopic(error_code=0, name="t", topic_id="AAAAAAAAAAAAAAAAAAAAAQ", partitions=(part, zero)),
            MetadataTopic(error_code=3, name="gone"),
        ),
    )
    answers = topics.read_descriptions(response)
    found = answers.results["t"].partitions
    assert [(row.partition, row.leader, row.isr) for row in found] == [(0, -1, (1,)), (1, 1, (1,))]
    assert found[0].error is e.LeaderNotAvailable
    assert isinstance(answers.errors["gone"], e.UnknownTopicOrPartition)
    assert list(topics.read_listing(response)) == ["t"]


def test_a_place_in_a_partition_is_a_word_a_time_or_milliseconds() -> None:
    """Words, aware times, milliseconds; nothing else."""
    assert [topics.timestamp_of(spec) for spec in ("earliest", "latest", 5)] == [-2, -1, 5]  # type: ignore[arg-type]
    assert topics.timestamp_of(datetime.fromtimestamp(1.5, UTC)) == 1500
    assert topics.timestamp_of(datetime.fromtimestamp(-0.001, UTC)) == 0, "-1 would be the end of the log"
    for spec in ("first", -3, True, None, datetime(2020, 1, 1)):
        with pytest.raises(BadInput):
            topics.timestamp_of(spec)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="read_uncommitted"):
        topics.offsets_request({A0: -1}, "dirty")
