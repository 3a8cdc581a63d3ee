"""Commits while the coordinator is being looked for."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet.base.errors import WrongArgument
from streamlet.kafka.broker_errors import CoordinatorNotAvailable
from streamlet.kafka.client.group_requests import GroupOffsetCalls, OffsetAndMetadata, offset_rows
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from streamlet.kafka.protocol.messages.offsets import (
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
)

TP = TopicPartition("t", 0)


class Client:
    """Takes requests down; the test answers them."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, RequestFuture[Any]]] = []

    def send(self, request: Any, to: Any = None, timeout_s: float | None = None) -> RequestFuture[Any]:
        self.sent.append((request, RequestFuture()))
        return self.sent[-1][1]

    def requests(self, kind: type) -> list[Any]:
        return [request for request, _future in self.sent if isinstance(request, kind)]


def test_commits_that_wait_for_the_coordinator_keep_their_order() -> None:
    """One search for all: the answers of two might come the other way round, and the older commit would win."""
    client: Any = Client()
    offsets = GroupOffsetCalls(client, "g")
    for offset in (1, 2):
        offsets.commit({TP: OffsetAndMetadata(offset)})
    searches = [future for request, future in client.sent if isinstance(request, FindCoordinatorRequest)]
    for search in reversed(searches):
        search.complete(FindCoordinatorResponse(error_code=0, node_id=1, host="h", port=1))
    commits = client.requests(OffsetCommitRequest)
    assert [row.topics[0].partitions[0].committed_offset for row in commits] == [1, 2]


@pytest.mark.parametrize(
    ("error_code", "node_id", "port"), [(15, -1, -1), (0, -1, -1), (0, 1, -1), (0, 1, 0), (0, 1, 1 << 16)]
)
def test_a_search_that_failed_fails_those_who_waited_and_the_next_commit_searches_again(
    error_code: int, node_id: int, port: int
) -> None:
    """So does one whose answer has no error, but no address where anybody could listen."""
    client: Any = Client()
    offsets = GroupOffsetCalls(client, "g")
    futures = [offsets.commit({TP: OffsetAndMetadata(offset)}) for offset in (1, 2)]
    client.sent[0][1].complete(FindCoordinatorResponse(error_code=error_code, node_id=node_id, host="", port=port))
    assert all(isinstance(future.exception, CoordinatorNotAvailable) for future in futures)
    offsets.commit({TP: OffsetAndMetadata(3)})
    client.sent[-1][1].complete(FindCoordinatorResponse(error_code=0, node_id=1, host="h", port=1))
    assert len(client.requests(OffsetCommitRequest)) == 1


def test_an_offset_that_the_answer_to_a_commit_leaves_out_is_not_stored() -> None:
    client: Any = Client()
    offsets = GroupOffsetCalls(client, "g")
    other = TopicPartition("t", 1)
    future = offsets.commit({TP: OffsetAndMetadata(1), other: OffsetAndMetadata(2)})
    client.sent[0][1].complete(FindCoordinatorResponse(error_code=0, node_id=1, host="h", port=1))
    row = OffsetCommitPartitionResponse(partition_index=0, error_code=0)
    topic = OffsetCommitTopicResponse(name="t", partitions=(row,))
    client.sent[1][1].complete(OffsetCommitResponse(topics=(topic,)))
    kind = future.value[other]
    assert future.value[TP] is None and kind is not None and kind.retriable
    assert kind("Committing t-1").message == "Committing t-1: the coordinator's answer does not speak of it."


def test_a_commit_that_cannot_be_asked_once_the_coordinator_is_found_fails_and_the_others_go() -> None:
    """What asks runs in a listener then: its bug must not leave the commit open until somebody's time-out."""
    client: Any = Client()
    offsets = GroupOffsetCalls(client, "g")
    broken: Any = object()
    futures = [offsets.commit({TP: row}) for row in (broken, OffsetAndMetadata(2))]
    client.sent[0][1].complete(FindCoordinatorResponse(error_code=0, node_id=1, host="h", port=1))
    assert isinstance(futures[0].exception, KafkaError) and "AttributeError" in str(futures[0].exception)
    assert not futures[1].done and len(client.requests(OffsetCommitRequest)) == 1


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (OffsetAndMetadata(1, -1, "x" * 40_000), "has 40000 bytes; Kafka's protocol takes 32767"),
        (OffsetAndMetadata(1, -1, "\u00e9" * 20_000), "has 40000 bytes"),
        (OffsetAndMetadata(1, -1, "\ud800"), "not text that can be sent"),
        (OffsetAndMetadata(1, 1 << 31), "is not an offset to store"),
    ],
)
def test_an_offset_that_the_protocol_has_no_room_for_is_refused_at_once(row: OffsetAndMetadata, words: str) -> None:
    with pytest.raises(WrongArgument, match=words):
        offset_rows({TP: row})


def test_metadata_in_the_place_of_the_epoch_is_refused_when_it_is_made() -> None:
    """kafka-python's order is (offset, metadata, leader_epoch)."""
    with pytest.raises(WrongArgument, match=r"OffsetAndMetadata\(3, metadata='meta'\).*kafka-python"):
        OffsetAndMetadata(3, "meta")  # type: ignore[arg-type]
    with pytest.raises(WrongArgument, match="leader_epoch"):
        OffsetAndMetadata(3, None)  # type: ignore[arg-type]
    assert OffsetAndMetadata(3, metadata="meta").leader_epoch == -1
