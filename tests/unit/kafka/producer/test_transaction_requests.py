"""The requests of a transaction, and what an error in each answer means."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet.kafka import broker_errors as e
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, OffsetAndMetadata
from streamlet.kafka.errors import BrokerError, Disconnected
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.producer.batch_ledger import produce_request
from streamlet.kafka.producer.producer_batch import Sequences
from streamlet.kafka.producer.transaction_requests import (
    Reaction,
    RequestKind,
    add_offsets,
    add_partitions,
    commit_offsets,
    end,
    fenced,
    find_group_coordinator,
    find_transaction_coordinator,
    init_producer_id,
    is_fencing,
    needs_new_epoch,
    reaction_to,
    worst,
)

COORDINATOR = Broker(3, "c", 9092)
SEQUENCES = Sequences(True)
SEQUENCES.producer_id, SEQUENCES.producer_epoch = 77, 4
GROUP = ConsumerGroupMetadata("g", 8, "member", "instance")


def test_coordinators_are_asked_for_at_any_broker_and_by_their_type() -> None:
    asked: Any = find_transaction_coordinator("x")
    assert (asked.to, asked.request.key, asked.request.key_type) == (None, "x", 1)
    asked = find_group_coordinator("g")
    assert (asked.to, asked.request.key, asked.request.key_type) == (None, "g", 0)


@pytest.mark.parametrize(("fresh", "held"), [(True, (-1, -1)), (False, (77, 4))])
def test_an_id_is_asked_for_anew_or_for_the_next_epoch_of_the_one_there_is(fresh: bool, held: tuple[int, int]) -> None:
    """With the wrong id the broker would fence us; without one it would not fence the producer before us."""
    request: Any = init_producer_id("x", 60_000, COORDINATOR, SEQUENCES, fresh=fresh).request
    assert (request.producer_id, request.producer_epoch) == held
    assert (request.transactional_id, request.transaction_timeout_ms) == ("x", 60_000)


def test_without_a_transactional_id_the_time_out_is_the_greatest_there_is() -> None:
    """As Java sends it: the broker does not look at it, and a small one must not look like a wish."""
    request: Any = init_producer_id(None, 60_000, None, SEQUENCES, fresh=True).request
    assert request.transaction_timeout_ms == (1 << 31) - 1


@pytest.mark.parametrize("version_2", [False, True])
def test_every_request_of_a_transaction_carries_its_id_and_epoch(version_2: bool) -> None:
    """A broker compares them: an old producer of the same name is refused by its epoch."""
    requests: list[Any] = [
        add_offsets("x", COORDINATOR, SEQUENCES, "g").request,
        commit_offsets("x", COORDINATOR, SEQUENCES, GROUP, {}, version_2=version_2).request,
        end("x", COORDINATOR, SEQUENCES, commit=True, version_2=version_2).request,
    ]
    assert {(row.transactional_id, row.producer_id, row.producer_epoch) for row in requests} == {("x", 77, 4)}
    added: Any = add_partitions("x", COORDINATOR, SEQUENCES, [TopicPartition("t", 0)]).request
    assert added.v3_and_below_transactional_id == "x"
    assert (added.v3_and_below_producer_id, added.v3_and_below_producer_epoch) == (77, 4)


def test_partitions_are_announced_once_and_by_topic() -> None:
    partitions = [TopicPartition("u", 1), TopicPartition("t", 2), TopicPartition("t", 0), TopicPartition("t", 2)]
    request: Any = add_partitions("x", COORDINATOR, SEQUENCES, partitions).request
    assert [(row.name, row.partitions) for row in request.v3_and_below_topics] == [("t", (0, 2)), ("u", (1,))]


def test_offsets_are_stored_under_the_members_own_generation() -> None:
    """The group's coordinator refuses them from a member that has been thrown out (KIP-447)."""
    offsets = {TopicPartition("t", 1): OffsetAndMetadata(9, 2, "note"), TopicPartition("t", 0): OffsetAndMetadata(5)}
    request: Any = commit_offsets("x", COORDINATOR, SEQUENCES, GROUP, offsets, version_2=False).request
    assert (request.group_id, request.generation_id, request.member_id) == ("g", 8, "member")
    assert request.group_instance_id == "instance"
    (topic,) = request.topics
    assert [(row.partition_index, row.committed_offset, row.committed_metadata) for row in topic.partitions] == [
        (0, 5, ""), (1, 9, "note")
    ]  # fmt: skip
    assert topic.partitions[1].committed_leader_epoch == 2


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_says_which_it_is(commit: bool) -> None:
    request: Any = end("x", COORDINATOR, SEQUENCES, commit, version_2=False).request
    assert request.committed is commit


def test_the_version_of_a_request_says_which_version_its_transaction_has() -> None:
    """A broker knows no other sign: it adds partitions and takes the next epoch by the request's version alone."""
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(5)}
    for version_2, versions in ((False, {(2, 3), (1, 3), (7, 8, 10)}), (True, {(5,), (12,)})):
        requests: list[Any] = [
            commit_offsets("x", COORDINATOR, SEQUENCES, GROUP, offsets, version_2=version_2).request,
            end("x", COORDINATOR, SEQUENCES, commit=True, version_2=version_2).request,
            produce_request({TopicPartition("t", 0): b""}, -1, 1000, "x", version_2=version_2),
        ]
        assert {row.usable_versions() for row in requests} == versions
        assert {row.least_broker() for row in requests} == {"4.0" if version_2 else "2.1"}


def test_one_error_means_different_things_to_different_requests() -> None:
    """A group that rebalances ends the transaction; elsewhere the same code would only be asked again."""
    assert reaction_to(RequestKind.COMMIT_OFFSETS, e.RebalanceInProgress) is Reaction.ABORTABLE
    assert reaction_to(RequestKind.END, e.RebalanceInProgress) is not Reaction.ABORTABLE
    assert reaction_to(RequestKind.ADD_PARTITIONS, e.TopicAuthorizationFailed) is Reaction.ABORTABLE
    assert reaction_to(RequestKind.INIT_PRODUCER_ID, e.TopicAuthorizationFailed) is Reaction.FATAL


@pytest.mark.parametrize("kind", list(RequestKind))
def test_a_coordinator_that_moved_is_looked_for_whatever_was_asked(kind: RequestKind) -> None:
    for fault in (e.NotCoordinator, e.CoordinatorNotAvailable):
        assert reaction_to(kind, fault) is Reaction.FIND_COORDINATOR


@pytest.mark.parametrize("kind", list(RequestKind))
def test_no_error_is_without_a_consequence(kind: RequestKind) -> None:
    """One that time may fix is asked again; every other ends the transaction or the producer, and none is lost."""
    for fault in BrokerError.__subclasses__():
        reaction = reaction_to(kind, fault)
        assert reaction is not Reaction.RETRY or fault.retriable, fault
        if is_fencing(fault):
            assert reaction is Reaction.FENCED


def test_only_an_answer_of_a_broker_fences() -> None:
    assert is_fencing(e.InvalidProducerEpoch) and is_fencing(e.ProducerFenced)
    assert not is_fencing(Disconnected) and not is_fencing(e.NotCoordinator)


def test_a_fenced_producers_error_names_act_id_and_the_brokers_answer() -> None:
    text = fenced(e.InvalidProducerEpoch, "commit_transaction()", "x").message
    assert "commit_transaction(), transactional id 'x'" in text
    assert text.endswith("The broker's answer was code 47, InvalidProducerEpoch.")
    assert "The broker's answer" not in fenced(e.ProducerFenced, "send()", "x").message, "it would say the same twice"


def test_an_epoch_is_new_where_the_broker_has_forgotten_the_producer() -> None:
    assert needs_new_epoch(e.UnknownProducerId) and needs_new_epoch(e.InvalidProducerIdMapping)
    assert not needs_new_epoch(e.NotCoordinator)


def test_of_several_refusals_the_one_that_stays_is_named() -> None:
    """A retry of the others would be in order; this one would come again."""
    a, b, c = (TopicPartition("t", n) for n in range(3))
    refused = {a: e.NotLeaderOrFollower, c: e.TopicAuthorizationFailed, b: e.TopicAuthorizationFailed}
    assert worst(refused) == (b, e.TopicAuthorizationFailed)
    assert worst({b: e.NotLeaderOrFollower, a: e.NotLeaderOrFollower})[0] == a
