"""Wrong partitions, offsets and times are refused at once, by name, before anything is asked of a broker."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from streamlet.base.errors import BadInput
from streamlet.kafka import Consumer, OffsetAndMetadata, Producer, TopicPartition
from streamlet.kafka.broker_errors import InvalidTopic
from streamlet.kafka.consumer.errors import IllegalSubscription
from tests.scripted.fake_broker import FakeBroker
from tests.scripted.kafka.consumer.scripted import ZERO

NO_PARTITIONS: list[Any] = ["t", ("t",), ("t", "0"), ("t", -1), ("t", True), (0, "t"), ("", 0), 7, None]
CALLS: dict[str, Callable[[Consumer, Any], object]] = {
    "assign": lambda consumer, wrong: consumer.assign([wrong]),
    "seek": lambda consumer, wrong: consumer.seek(wrong, 0),
    "seek_to_end": lambda consumer, wrong: consumer.seek_to_end(wrong),
    "position": lambda consumer, wrong: consumer.position(wrong),
    "pause": lambda consumer, wrong: consumer.pause(wrong),
    "resume": lambda consumer, wrong: consumer.resume(wrong),
    "lag": lambda consumer, wrong: consumer.lag(wrong),
    "beginning_offsets": lambda consumer, wrong: consumer.beginning_offsets([wrong]),
    "end_offsets": lambda consumer, wrong: consumer.end_offsets([wrong]),
    "offsets_for_times": lambda consumer, wrong: consumer.offsets_for_times({wrong: 0}),
    "committed": lambda consumer, wrong: consumer.committed(wrong),
    "commit": lambda consumer, wrong: consumer.commit({wrong: OffsetAndMetadata(1)}),
}


@pytest.fixture
def consumer(broker: FakeBroker, consumer_of: Callable[..., Consumer]) -> Consumer:
    """Of a group, with one partition. Its broker must not be asked."""
    made = consumer_of(group_id="g")
    made.assign([ZERO])
    return made


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("wrong", NO_PARTITIONS, ids=repr)
def test_a_value_that_is_not_a_partition_is_refused(
    broker: FakeBroker, consumer: Consumer, call: Callable[[Consumer, Any], object], wrong: Any
) -> None:
    refusal = f"{wrong!r} is not a partition: write TopicPartition(topic, number)"
    with pytest.raises(TypeError, match=re.escape(refusal)):
        call(consumer, wrong)
    assert broker.connections == 0


@pytest.mark.parametrize("row", ["5", -1, 1.5, True, None, OffsetAndMetadata(-2), (5, "")], ids=repr)
def test_a_value_that_is_not_an_offset_to_store_is_refused(broker: FakeBroker, consumer: Consumer, row: Any) -> None:
    """By a consumer or, in a transaction, by a producer; neither waits for anything first."""
    for store in (consumer.commit, consumer.commit_async):
        with pytest.raises(TypeError, match=r"is not an offset to store for .*t.*: write a number from 0"):
            store({ZERO: row})
    assert broker.connections == 0
    producer = Producer(bootstrap_servers=broker.address, transactional_id="x")
    with producer, pytest.raises(TypeError, match="is not an offset to store"):
        producer.send_offsets_to_transaction({ZERO: row}, "g")


@pytest.mark.parametrize("offsets", [[ZERO], 5, "t"], ids=repr)
def test_offsets_that_are_not_a_mapping_are_refused(consumer: Consumer, offsets: Any) -> None:
    for store in (consumer.commit, consumer.commit_async):
        with pytest.raises(TypeError, match=r"are not offsets: write \{TopicPartition\(topic, number\): offset\}"):
            store(offsets)


@pytest.mark.parametrize("when", [-1, "now", 1.5, True, 1 << 63], ids=repr)
def test_a_value_that_is_not_a_time_to_look_up_is_refused(broker: FakeBroker, consumer: Consumer, when: Any) -> None:
    kind = ValueError if type(when) is int else TypeError
    with pytest.raises(kind, match=f"{when!r} is not a time to look for in t-0: write whole milliseconds"):
        consumer.offsets_for_times({TopicPartition("t", 0): when})
    assert broker.connections == 0


@pytest.mark.parametrize("given", [5, "t", ZERO], ids=repr)
def test_partitions_that_are_not_a_list_are_refused(broker: FakeBroker, consumer: Consumer, given: Any) -> None:
    """A partition is a tuple, and a str its letters: neither is taken apart."""
    for call in (consumer.assign, consumer.beginning_offsets, consumer.end_offsets):
        with pytest.raises(BadInput, match=r"is not a list of partitions: write \[TopicPartition\(topic, number\)"):
            call(given)
    with pytest.raises(TypeError, match=r"is not a mapping: write \{TopicPartition\(topic, number\): milliseconds"):
        consumer.offsets_for_times(given)
    assert broker.connections == 0 and consumer.assignment() == {ZERO}


NO_TOPICS: list[Any] = [5, None, b"t", "", "a b", "..", 1.5]


@pytest.mark.parametrize("topic", NO_TOPICS, ids=repr)
def test_a_wrong_topic_name_is_not_subscribed(
    broker: FakeBroker, consumer_of: Callable[..., Consumer], topic: Any
) -> None:
    """By the constructor, by subscribe, and by a question about it."""
    with pytest.raises(InvalidTopic, match=r"topic = .*Give a str of 1 to 249 letters"):
        Consumer(topic, bootstrap_servers=broker.address, group_id="g")
    consumer = consumer_of(group_id="g")
    for call in (lambda: consumer.subscribe(["t", topic]), lambda: consumer.partitions_for_topic(topic)):
        with pytest.raises(InvalidTopic, match="topic = "):
            call()
    assert broker.connections == 0 and consumer.subscription() == frozenset()


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({}, TypeError, "was given nothing"),
        ({"topics": 5}, TypeError, r"5 is not a list of topics: write subscribe\(\['lines', \.\.\.\]\)"),
        ({"topics": re.compile("a")}, TypeError, r"subscribe\(pattern='a'\)"),
        ({"topics": ["t"], "pattern": "t"}, IllegalSubscription, "not both"),
        ({"pattern": "("}, IllegalSubscription, r"pattern = '\(' is not a regular expression \(missing \)"),
        ({"pattern": 5}, IllegalSubscription, "pattern = 5 is not a regular expression"),
        ({"pattern": ""}, IllegalSubscription, "pattern = '' matches no topic"),
        ({"pattern": re.compile(b"a")}, IllegalSubscription, "matches no topic"),
        ({"topics": ["t"], "listener": 5}, TypeError, "listener = 5 has no on_partitions_revoked"),
    ],
)
def test_what_cannot_be_subscribed_to(
    consumer_of: Callable[..., Consumer], arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    consumer = consumer_of(group_id="g")
    with pytest.raises(error, match=said) as caught:
        consumer.subscribe(**arguments)
    assert isinstance(caught.value, BadInput) and consumer.subscription() == frozenset()


def test_one_topic_may_be_named_without_a_list_and_an_empty_list_unsubscribes(
    consumer_of: Callable[..., Consumer],
) -> None:
    consumer = consumer_of(group_id="g")
    consumer.subscribe("lines")
    assert consumer.subscription() == {"lines"}
    consumer.subscribe([])
    assert consumer.subscription() == frozenset()
    with pytest.raises(TypeError, match=r"topics one by one: write Consumer\(\*\['t'\], \.\.\.\)"):
        Consumer(["t"], bootstrap_servers="127.0.0.1:1", group_id="g")  # type: ignore[arg-type]


@pytest.mark.parametrize(("offset", "epoch"), [("5", -1), (1.5, -1), (None, -1), (True, -1), (0, "1"), (0, None)])
def test_a_seek_to_a_value_that_is_not_an_offset_is_refused(consumer: Consumer, offset: Any, epoch: Any) -> None:
    with pytest.raises(TypeError, match=r"seek\(\) in t-0: (offset|leader_epoch) = .* must be a whole number"):
        consumer.seek(ZERO, offset, epoch)
    for beyond in (-1, 1 << 63):
        with pytest.raises(ValueError, match=r"offset = .* must be a whole number from 0"):
            consumer.seek(ZERO, beyond)


@pytest.mark.parametrize("poll", ["poll", "poll_columns"])
@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (("1",), TypeError, "timeout_ms = '1' must be a number of milliseconds"),
        ((None,), TypeError, "timeout_ms = None must be"),
        ((-1,), ValueError, "timeout_ms = -1 must be a number of milliseconds, and not negative"),
        ((0, "1"), TypeError, "max_records = '1' must be a whole number"),
        ((0, 0), ValueError, "max_records = 0 must be at least 1"),
    ],
)
def test_a_limit_that_a_poll_cannot_take_is_refused(
    consumer: Consumer, poll: str, arguments: tuple[Any, ...], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        getattr(consumer, poll)(*arguments)


def test_a_wait_that_is_not_a_number_is_refused(consumer: Consumer) -> None:
    """Nor a callback; whatever is asked, the consumer stays as it was."""
    calls: tuple[Callable[[Any], object], ...] = (
        lambda wrong: consumer.position(ZERO, wrong),
        lambda wrong: consumer.end_offsets([ZERO], wrong),
        lambda wrong: consumer.committed(ZERO, timeout=wrong),
        lambda wrong: consumer.commit({ZERO: 1}, wrong),
        consumer.close,
    )
    for wrong in ("1", True, float("nan")):
        for call in calls:
            with pytest.raises(TypeError, match=r"timeout = .* must be a number of seconds"):
                call(wrong)
    with pytest.raises(TypeError, match="callback = 5 must be a function"):
        consumer.commit_async({ZERO: 1}, 5)  # type: ignore[arg-type]
    assert consumer.assignment() == {ZERO}
