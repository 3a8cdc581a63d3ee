"""What ``send`` and its kin cannot take is refused at once, by one paragraph, whether the topic is known or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamlet.base.errors import BadInput
from streamlet.kafka import Producer, TopicPartition
from streamlet.kafka.broker_errors import InvalidTopic, MessageTooLarge
from streamlet.kafka.producer.errors import PartitionerFailed, RecordTooLarge, SerializationFailed
from tests.scripted.fake_cluster import FakeCluster
from tests.scripted.kafka.producer.scripted import scripted

NO_TOPICS: list[Any] = [5, None, b"t", "", "a b", ".", ["t"], {}, "x" * 250]
NO_PARTITIONS: list[Any] = ["0", -1, 0.0, True, False, [0]]
NO_HEADERS: list[Any] = [5, True, "ab", b"ab", [("a",)], [("a", "b")], [(b"a", b"b")], {"a": "b"}, {5: b"x"}, ["ab"],
                         [None], ("a", b"b"), [("a", b"b", "c")], object]  # fmt: skip


def kind(value: object) -> str:
    """A name for a case where ``repr`` would be another in each process."""
    return type(value).__name__


@pytest.fixture(params=["unknown", "known"])
def written(request: pytest.FixtureRequest) -> Iterator[tuple[FakeCluster, Producer]]:
    """A producer that has never heard of its topic, and one with a batch in it; each would wait 20 s for metadata."""
    with scripted(max_block_ms=20_000, linger_ms=20_000) as (_broker, log, producer):
        if request.param == "known":
            producer.send("t", b"first", partition=0)
        yield log, producer


@pytest.mark.parametrize("topic", NO_TOPICS, ids=repr)
def test_a_record_for_a_wrong_topic_name_is_refused(written: tuple[FakeCluster, Producer], topic: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: written[1].send(topic, b"x"),
        lambda: written[1].send(topic, b"x", partition=0),
        lambda: written[1].send(topic, b"x", key=b"k", headers={"a": b"b"}),
        lambda: written[1].send_many(topic, [b"x"]),
        lambda: written[1].partitions_for(topic),
    ]
    for call in calls:
        with pytest.raises(InvalidTopic, match=r"topic = .*Give a str of 1 to 249 letters"):
            call()


@pytest.mark.parametrize("partition", NO_PARTITIONS, ids=repr)
def test_a_record_for_a_wrong_partition_number_is_refused(
    written: tuple[FakeCluster, Producer], partition: Any
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: written[1].send("t", b"x", partition=partition),
        lambda: written[1].send("t", b"x", key=b"k", headers={"a": b"b"}, partition=partition),
        lambda: written[1].send_many("t", [b"x"], partition=partition),
        lambda: written[1].send_many("t", [b"x"], keys=[b"k"], partition=partition),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"partition = .* of a record for topic 't': give a number from 0"):
            call()


@pytest.mark.parametrize("headers", NO_HEADERS, ids=repr)
def test_headers_of_another_shape_are_refused(written: tuple[FakeCluster, Producer], headers: Any) -> None:
    for call in (written[1].send, lambda topic, value, **rest: written[1].send_many(topic, [value], **rest)):
        with pytest.raises(
            SerializationFailed,
            match=r"headers = .* is not a pair of a name and bytes.*(not|0 of 1 records were) taken",
        ):
            call("t", b"x", headers=headers)


@pytest.mark.parametrize("given", ["abc", b"abc", 5, None, {b"a": b"b"}, memoryview(b"ab")], ids=kind)
def test_send_many_takes_lists(written: tuple[FakeCluster, Producer], given: Any) -> None:
    """One value by itself would else be its letters, and a dict its keys."""
    with pytest.raises(TypeError, match=r"send_many takes values in a list, and was given .*\[value, \.\.\.\]"):
        written[1].send_many("t", given)
    if given is not None:
        with pytest.raises(TypeError, match="send_many takes keys in a list"):
            written[1].send_many("t", [b"x"], keys=given)


@pytest.mark.parametrize("timeout", ["1", True, float("nan"), [1]], ids=repr)
def test_a_wait_for_records_that_is_not_a_number_is_refused(
    written: tuple[FakeCluster, Producer], timeout: Any
) -> None:
    """A producer that such a close was asked of is still open."""
    future = written[1].send("t", b"x")
    for call in (written[1].flush, written[1].close, future.get):
        with pytest.raises(TypeError, match=r"timeout = .* must be a number of seconds"):
            call(timeout)
    written[1].flush(20)
    assert b"x" in written[0].values["t", 0]


def test_a_callback_that_is_not_a_function_is_refused(written: tuple[FakeCluster, Producer]) -> None:
    """Told where it is given, and not in the log later."""
    future = written[1].send("t", b"x")
    for add in (future.add_callback, future.add_errback, future.add_both):
        with pytest.raises(TypeError, match="5 is not a callback"):
            add(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("group", [5, None, "", object()], ids=kind)
def test_a_value_that_is_not_a_group_is_refused(group: Any) -> None:
    with scripted(transactional_id="x") as (_broker, _log, producer):
        with pytest.raises(TypeError, match=r"is not a group: give consumer.group_metadata\(\)"):
            producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, group)
        for offsets in (None, []):
            with pytest.raises(TypeError, match="are not offsets"):
                producer.send_offsets_to_transaction(offsets, "g")  # type: ignore[arg-type]


def test_a_wrong_partition_key_is_refused() -> None:
    said = r"partition key 5 .*Give bytes or a str\. The record was not taken"
    with scripted() as (_broker, _log, producer), pytest.raises(PartitionerFailed, match=said):
        producer.send("t", b"x", partition_key=5)


def test_a_record_that_is_too_large_says_how_large_and_what_to_raise() -> None:
    """Refused by the producer: by which setting; by the broker: the size as it was sent, and whose limits there are."""
    with scripted(max_request_size=2000, buffer_memory=20_000, linger_ms=0) as (_broker, log, producer):
        with pytest.raises(RecordTooLarge, match=r"max_request_size is 2000: .*raise max_req.*max\.message\.bytes"):
            producer.send("t", b"x" * 2000)
        log.answers = [10]
        said = r"record, 1[0-9]{3} bytes .*max\.message\.bytes of topic 't' \(message\.max\.bytes of.*max_request_size"
        with pytest.raises(MessageTooLarge, match=said):
            producer.send("t", b"x" * 1000).get(20)
    with scripted(buffer_memory=20_000) as (_broker, _log, producer):
        with pytest.raises(RecordTooLarge, match=r"buffer_memory is 20000: .*raise buffer_memory\. The") as caught:
            producer.send("t", b"x" * 30_000)
        assert isinstance(caught.value, BadInput)


def test_a_record_that_is_too_large_is_refused_whatever_room_an_open_batch_has() -> None:
    """max_request_size below batch_size bounds the batch, too: no record passes it by joining one."""
    with scripted(max_request_size=1000, linger_ms=60_000) as (_broker, _log, producer):
        futures = [producer.send("t", b"small", key=b"k")]
        for _ in range(2):
            with pytest.raises(RecordTooLarge, match="max_request_size is 1000"):
                producer.send("t", b"x" * 1100, key=b"k")
            futures += [producer.send("t", b"y" * 300, key=b"k") for _ in range(3)]
        producer.flush(20)
        assert [future.get(0).offset for future in futures] == list(range(7))
