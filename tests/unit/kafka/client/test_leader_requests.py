"""Requests to leaders: what is asked, and what of an answer is believed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.kafka.broker_errors import FencedLeaderEpoch, InvalidFetchSessionEpoch, NotLeaderOrFollower
from streamlet.kafka.client.leader_requests import (
    FetchPosition,
    FetchSettings,
    SessionPart,
    by_topic,
    fetch,
    fetch_in_session,
    list_offsets,
    offsets_for_leader_epoch,
)
from streamlet.kafka.errors import CorruptRecord
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import Broker, Cluster, TopicInfo, TopicPartition
from streamlet.kafka.protocol.messages import fetch as wire
from tests.whole_batches import BatchFields, NewRecord, encode_batch

BROKER = Broker(1, "b", 9092)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Client:
    """Takes one request down; the test answers it."""

    def __init__(self, **ids: str) -> None:
        self.cluster = Cluster.of([BROKER], [TopicInfo(name, topic_id) for name, topic_id in ids.items()])
        self.config = SimpleNamespace(request_timeout_ms=30_000)
        self.updates = 0
        self.metadata = SimpleNamespace(request_update=self.update)
        self.answer: RequestFuture[Any] = RequestFuture()
        self.request: Any = None
        self.timeout_s: float | None = None

    def update(self, reset_equivalent: bool) -> None:
        assert not reset_equivalent, "the back-off of equal answers must go on"
        self.updates += 1

    def send(self, request: Any, to: Broker, timeout_s: float | None = None) -> RequestFuture[Any]:
        assert to is BROKER
        self.request, self.timeout_s = request, timeout_s
        return self.answer


def row(partition: int, error: int = 0, records: bytes = b"", **more: Any) -> wire.FetchPartitionResponse:
    return wire.FetchPartitionResponse(
        partition_index=partition, error_code=error, high_watermark=9, records=memoryview(records), **more
    )


def answer(*topics: wire.FetchTopicResponse, error: int = 0) -> wire.FetchResponse:
    return wire.FetchResponse(error_code=error, session_id=5, topics=topics)


def test_partitions_are_grouped_by_topic_and_keep_their_order() -> None:
    """A broker fills an answer in the order of the request: what was asked first gets the room."""
    found = by_topic({A1: "x", B0: "y", A0: "z"}, lambda n, v: (n, v), lambda name, rows: (name, rows))
    assert found == (("a", ((1, "x"), (0, "z"))), ("b", ((0, "y"),)))


def test_a_fetch_asks_each_position_with_the_epochs_that_check_it() -> None:
    client: Any = Client(a="id")
    fetch(client, BROKER, {A0: FetchPosition(7, 3, 2)}, FetchSettings(fetch_max_wait_ms=400, read_committed=False))
    (topic,) = client.request.topics
    (asked,) = topic.partitions
    assert (topic.topic, topic.topic_id, asked.fetch_offset) == ("a", "id", 7)
    assert (asked.current_leader_epoch, asked.last_fetched_epoch) == (3, 2)
    assert client.request.isolation_level == wire.READ_UNCOMMITTED
    assert client.timeout_s == 30.4, "the broker's own waiting comes on top"


def test_rows_that_were_not_asked_for_are_left_out() -> None:
    """Nor is a topic believed whose id no name is known for."""
    client: Any = Client(a="id-a")
    future = fetch(client, BROKER, {A0: FetchPosition(0)})
    client.answer.complete(
        answer(
            wire.FetchTopicResponse(topic_id="id-a", partitions=(row(0), row(1))),
            wire.FetchTopicResponse(topic_id="somebody's", partitions=(row(0),)),
        )
    )
    assert list(future.value) == [A0]


@pytest.mark.parametrize("answered", ["old", "new"])
def test_a_topic_that_was_made_again_is_known_by_its_old_and_its_new_id(answered: str) -> None:
    """The session still has the old one, the metadata the new one."""
    client: Any = Client(a="new")
    part = SessionPart({A0: FetchPosition(0)}, {}, {"a": "old"}, 5, 1)
    future = fetch_in_session(client, BROKER, part, FetchSettings())
    client.answer.complete(answer(wire.FetchTopicResponse(topic_id=answered, partitions=(row(0),))))
    assert list(future.value.partitions) == [A0]


def test_an_error_of_one_partition_is_in_its_row_and_asks_for_metadata() -> None:
    client: Any = Client()
    future = fetch(client, BROKER, {A0: FetchPosition(0), A1: FetchPosition(0)})
    client.answer.complete(answer(wire.FetchTopicResponse(topic="a", partitions=(row(0, error=6), row(1)))))
    assert {tp: found.error for tp, found in future.value.items()} == {A0: NotLeaderOrFollower, A1: None}
    assert client.updates == 1
    with pytest.raises(NotLeaderOrFollower, match="Fetching topic 'a', partition 0, from offset 0"):
        list(future.value[A0].batches())


def test_an_error_of_the_session_is_in_the_answer_and_without_one_it_is_raised() -> None:
    """Who has a session begins a new one; a plain fetch has nobody who would."""
    client: Any = Client()
    future = fetch_in_session(client, BROKER, SessionPart({}, {}, {}, 5, 1), FetchSettings())
    client.answer.complete(answer(error=71))
    assert future.value.error is InvalidFetchSessionEpoch and future.value.session_id == 5
    plain: Any = Client()
    failed = fetch(plain, BROKER, {A0: FetchPosition(0)})
    plain.answer.complete(answer(error=71))
    assert isinstance(failed.exception, InvalidFetchSessionEpoch)


def test_what_a_broker_leaves_out_is_none_and_what_it_says_is_kept() -> None:
    client: Any = Client()
    future = fetch(client, BROKER, {A0: FetchPosition(4), A1: FetchPosition(4)})
    told = row(
        1,
        diverging_epoch=wire.EpochEndOffset(epoch=2, end_offset=3),
        current_leader=wire.LeaderIdAndEpoch(leader_id=8, leader_epoch=6),
        aborted_transactions=(wire.AbortedTransaction(producer_id=77, first_offset=5),),
    )
    client.answer.complete(answer(wire.FetchTopicResponse(topic="a", partitions=(row(0), told))))
    quiet, said = future.value[A0], future.value[A1]
    assert (quiet.diverging_epoch, quiet.new_leader, quiet.aborted) == (None, None, ())
    assert (said.diverging_epoch, said.new_leader, said.aborted) == ((2, 3), (8, 6), ((77, 5),))


def test_batches_are_read_from_the_position_on() -> None:
    client: Any = Client()
    future = fetch(client, BROKER, {A0: FetchPosition(1)})
    raw = encode_batch([NewRecord(b"before"), NewRecord(b"after")])
    client.answer.complete(answer(wire.FetchTopicResponse(topic="a", partitions=(row(0, records=raw),))))
    assert [value for batch in future.value[A0].batches() for value in batch.values] == [b"after"]


def test_a_batch_that_was_given_is_kept_by_nobody_else() -> None:
    """Unpacked it may take megabytes, and a partition that waits does not ask for the next one."""
    client: Any = Client()
    future = fetch(client, BROKER, {A0: FetchPosition(0)})
    raw = b"".join(encode_batch([NewRecord(b"v")], BatchFields(base_offset=offset)) for offset in range(3))
    client.answer.complete(answer(wire.FetchTopicResponse(topic="a", partitions=(row(0, records=raw),))))
    batches, offsets = future.value[A0].batches(), list[int]()
    while (batch := next(batches, None)) is not None:
        assert sys.getrefcount(batch) == 2, "this one, and that of the question"
        offsets += batch.offsets()
    assert offsets == [0, 1, 2]


def test_bytes_without_one_whole_batch_are_damage_and_no_empty_answer() -> None:
    """Asked for again, the same bytes would come for ever."""
    client: Any = Client()
    future = fetch(client, BROKER, {A0: FetchPosition(12)})
    cut = encode_batch([NewRecord(b"v")])[:-1]
    client.answer.complete(answer(wire.FetchTopicResponse(topic="a", partitions=(row(0, records=cut),))))
    with pytest.raises(CorruptRecord, match=f"sent {len(cut)} bytes from offset 12 on, which hold not one whole batch"):
        list(future.value[A0].batches())


def test_partitions_leave_a_session_by_name_and_id() -> None:
    client: Any = Client()
    part = SessionPart({B0: FetchPosition(0)}, {}, {"a": "id-a"}, 5, 2, forget=(A0, A1))
    fetch_in_session(client, BROKER, part, FetchSettings())
    (gone,) = client.request.forgotten_topics_data
    assert (gone.topic, gone.topic_id, gone.partitions) == ("a", "id-a", (0, 1))
    assert (client.request.session_id, client.request.session_epoch, client.request.topics) == (5, 2, ())


@pytest.mark.parametrize(("read_committed", "level"), [(True, 1), (False, 0)])
def test_the_latest_offset_is_that_of_the_isolation(read_committed: bool, level: int) -> None:
    client: Any = Client()
    future = list_offsets(client, BROKER, {A0: wire.LATEST_TIMESTAMP, A1: 5}, read_committed=read_committed)
    assert client.request.isolation_level == level
    rows = (
        wire.ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=9, timestamp=-1, leader_epoch=2),
        wire.ListOffsetsPartitionResponse(partition_index=1, error_code=74),
    )
    client.answer.complete(wire.ListOffsetsResponse(topics=(wire.ListOffsetsTopicResponse(name="a", partitions=rows),)))
    assert (future.value[A0].offset, future.value[A0].leader_epoch, future.value[A0].error) == (9, 2, None)
    assert future.value[A1].offset == -1 and future.value[A1].error is FencedLeaderEpoch


def test_the_end_of_an_epoch_is_asked_under_the_epoch_of_the_metadata() -> None:
    """An old leader would name the end in its own log, and records would be read twice or not at all."""
    client: Any = Client()
    future = offsets_for_leader_epoch(client, BROKER, {A0: (2, 4)})
    (asked,) = client.request.topics[0].partitions
    assert (asked.leader_epoch, asked.current_leader_epoch) == (2, 4)
    found = wire.EpochEndOffsetPartition(error_code=0, partition=0, leader_epoch=1, end_offset=33)
    client.answer.complete(
        wire.OffsetForLeaderEpochResponse(topics=(wire.EpochEndOffsetTopic(topic="a", partitions=(found,)),))
    )
    assert (future.value[A0].leader_epoch, future.value[A0].end_offset) == (1, 33)
