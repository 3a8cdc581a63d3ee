"""What is offered to the producer again, in which order, and when a batch is over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamlet.bolts.kafka.errors import RecordNotTaken
from streamlet.bolts.kafka.outbound import MOST_WAITING, OFFER_AGAIN_S, Delivery, Outbound, Wait
from streamlet.bolts.kafka.record_maker import Records
from streamlet.components.batch import Batch
from streamlet.kafka.broker_errors import TopicAuthorizationFailed
from streamlet.kafka.errors import ClientTimeout
from streamlet.kafka.producer.errors import BufferExhausted, RecordTooLarge


class Producer:
    """Takes records while it has room, of topics that it knows; ``errors`` are raised at a value."""

    def __init__(self, room: int = 1000, known: Sequence[str] = ("t",)) -> None:
        self.room = room
        self.known = {*known}
        self.errors: dict[Any, Exception] = {}
        self.took: list[tuple[Any, ...]] = []

    def send(self, topic: str, value: Any = None, *more: Any) -> Any:
        if topic not in self.known:
            raise ClientTimeout(f"Topic {topic!r} is not in the metadata.")
        if not self.room:
            raise BufferExhausted("full")
        if value in self.errors:
            raise self.errors[value]
        self.room -= 1
        self.took.append((topic, value, *more))
        return len(self.took)

    def offer(self, topic: str, values: Any, keys: Any = None) -> Any:
        taken: list[Any] = []
        try:
            for at, value in enumerate(values):
                taken.append(self.send(topic, value, *([] if keys is None else [keys[at]])))
        except Exception as error:
            return taken, error
        return taken, None


class Rig:
    """An Outbound around such a producer, with what it was told to watch and what is over."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.watched: list[tuple[list[Any], Delivery, Sequence[int]]] = []
        self.over: list[Delivery] = []
        self.some: list[list[int]] = []
        """Places of parted deliveries that are over."""
        self.out = Outbound(
            lambda: producer,
            60.0,
            lambda *row: self.watched.append(row),
            self.over.append,
            lambda _delivery, places: self.some.append([*places]),
        )

    def add(self, *values: Any, topic: Any = "t", now: float = 0.0, **columns: Any) -> None:
        records = Records(len(values), topic, list(values), **columns)
        self.out.add(Batch([[value] for value in values], fields=["value"]), records, now)

    def part_over(self, failed: Sequence[tuple[int, Any]] = ()) -> None:
        _futures, delivery, places = self.watched.pop(0)
        self.out.part_over(delivery, places, failed)


def test_a_batch_is_over_when_all_that_was_taken_of_it_is() -> None:
    rig = Rig(Producer())
    rig.add(b"a", b"b", keys=[b"k", None])
    assert rig.producer.took == [("t", b"a", b"k"), ("t", b"b", None)]
    assert rig.over == []
    rig.part_over()
    assert [delivery.failed for delivery in rig.over] == [{}]
    assert (len(rig.out.open), rig.out.waiting_records) == (0, 0)


def test_what_finds_no_memory_is_offered_again_in_order_and_no_more_is_wanted_meanwhile() -> None:
    rig = Rig(Producer(room=3))
    rig.add(b"a", b"b")
    rig.add(b"c", b"d")
    assert rig.out.wait is Wait.MEMORY
    assert rig.out.wants_no_more
    rig.add(b"e")
    rig.part_over()
    assert len(rig.over) == 1
    rig.producer.room = 9
    rig.out.offer(0.1)
    assert [value for _, value in rig.producer.took] == [b"a", b"b", b"c", b"d", b"e"]
    assert not rig.out.wants_no_more
    rig.part_over()
    assert len(rig.over) == 1, "one part of the second batch is still under way"
    rig.part_over()
    assert len(rig.over) == 2


def test_a_topic_that_is_not_known_holds_up_its_own_records_only() -> None:
    rig = Rig(Producer())
    rig.add(b"a", b"b", b"c", topic=["new", "t", "new"])
    rig.add(b"d", topic="new", now=OFFER_AGAIN_S)
    assert [value for _, value in rig.producer.took] == [b"b"]
    assert rig.out.wait is Wait.TOPIC
    assert not rig.out.wants_no_more
    rig.producer.known.add("new")
    rig.out.offer(3 * OFFER_AGAIN_S)
    assert [value for _, value in rig.producer.took] == [b"b", b"a", b"c", b"d"]


def test_that_a_record_waits_for_its_topic_is_said_between_two_offers_too() -> None:
    """Each batch looks at what waits: forgotten in between, a long wait would never be told."""
    rig = Rig(Producer())
    rig.add(b"a", topic="new", now=10.0)
    rig.add(b"b", now=10.0 + OFFER_AGAIN_S / 2)
    assert rig.out.wait is Wait.TOPIC and [taken[1] for taken in rig.producer.took] == [b"b"]


def test_too_many_records_that_wait_for_a_topic_end_the_wish_for_more() -> None:
    rig = Rig(Producer())
    rig.add(*[b"x"] * (MOST_WAITING + 1), topic="new")
    assert rig.out.wants_no_more


def test_a_topic_that_stays_unknown_fails_its_records_after_max_block_ms() -> None:
    rig = Rig(Producer())
    rig.add(b"a", b"b", topic="new")
    rig.out.offer(59.0)
    assert rig.over == []
    rig.out.offer(61.0)
    (delivery,) = rig.over
    assert [*delivery.failed] == [0, 1]
    assert isinstance(delivery.failed[0], RecordNotTaken)
    assert str(delivery.failed[0]) == (
        "A record found no way to topic 'new' for 60 s (max_block_ms). Topic 'new' is not in the metadata."
    )


def test_a_record_that_can_never_be_taken_fails_alone() -> None:
    rig = Rig(Producer())
    rig.producer.errors = {b"b": RecordTooLarge("too large"), b"c": TopicAuthorizationFailed()}
    rig.add(b"a", b"b", b"c", b"d")
    rig.part_over()
    rig.part_over()
    (delivery,) = rig.over
    assert {at: type(error) for at, error in delivery.failed.items()} == {
        1: RecordTooLarge,
        2: TopicAuthorizationFailed,
    }


def test_errors_of_taken_records_belong_to_their_places_in_the_batch() -> None:
    rig = Rig(Producer())
    rig.add(b"a", b"b", b"c", topic=["t", None, "t"], failed={})
    error = ClientTimeout("late")
    rig.part_over([(1, error)])
    assert rig.over[0].failed == {2: error}


def test_a_batch_without_a_record_is_over_at_once() -> None:
    rig = Rig(Producer())
    rig.add(b"a", topic=[None])
    rig.add(b"a", failed={0: ValueError("not made")})
    assert [len(delivery.failed) for delivery in rig.over] == [0, 1]


def test_records_with_more_than_key_and_value_go_one_by_one() -> None:
    rig = Rig(Producer(room=1))
    rig.add(b"a", b"b", keys=[b"k", b"l"], headers=[[("h", b"1")], []], partitions=[2, 2], timestamps=[5, None])
    assert rig.producer.took == [("t", b"a", b"k", [("h", b"1")], 2, 5)]
    rig.producer.room = 1
    rig.out.offer(0.0)
    assert rig.producer.took[1:] == [("t", b"b", b"l", [], 2, None)]


def test_a_later_record_of_a_topic_waits_behind_an_earlier_one_though_the_topic_is_known_by_now() -> None:
    rig = Rig(Producer())
    rig.add(b"a", topic="new")
    rig.producer.known.add("new")
    rig.add(b"b", topic="new", now=OFFER_AGAIN_S / 2)
    assert rig.producer.took == []
    rig.out.offer(2 * OFFER_AGAIN_S)
    assert [value for _, value in rig.producer.took] == [b"a", b"b"]


def test_what_was_dropped_is_not_offered_again_and_is_over_when_the_producer_says_so() -> None:
    rig = Rig(Producer(room=1))
    rig.add(b"a", b"b")
    rig.add(b"c")
    dropped = rig.out.drop()
    assert [len(delivery.batch) for delivery in dropped] == [2, 1]
    assert [len(delivery.batch) for delivery in rig.over] == [1], "nothing of it was taken"
    rig.producer.room = 9
    rig.out.offer(0.0)
    assert [value for _, value in rig.producer.took] == [b"a"]
    rig.part_over()
    assert len(rig.over) == 2
    assert rig.out.drop() == []


def test_a_topic_that_is_not_known_keeps_no_other_tuple_of_its_batch_open() -> None:
    """Whether its records were over before the lot was offered again or come to be over later."""
    rig = Rig(Producer())
    rig.add(b"a", b"b", b"c", topic=["t", "unknown", "t"])
    assert rig.some == []
    rig.part_over([(1, RecordTooLarge("c"))])
    assert (rig.some, rig.over) == ([[0, 2]], [])
    assert next(iter(rig.out.open)).failed.keys() == {2}
    rig.producer.known.add("unknown")
    rig.out.offer(2 * OFFER_AGAIN_S)
    rig.part_over()
    assert rig.some == [[0, 2], [1]] and len(rig.over) == 1 and not rig.out.open


def test_a_tuple_without_a_record_does_not_wait_for_a_topic_that_is_not_known() -> None:
    """Skipped, not to be made into a record, or refused by the producer before and after the topic was missed."""
    rig = Rig(Producer())
    rig.producer.errors = {b"before": RecordTooLarge("b"), b"after": RecordTooLarge("a")}
    values = [b"", b"odd", b"before", b"unknown", b"after"]
    failed: dict[int, Exception] = {1: ValueError("odd")}
    rig.add(*values, topic=[None, "t", "t", "unknown", "t2"], failed=failed)
    assert rig.some == [[0, 1, 2]] and rig.over == []
    rig.producer.known.add("t2")
    rig.out.offer(2 * OFFER_AGAIN_S)
    assert rig.some == [[0, 1, 2], [4]] and rig.over == []


def test_of_a_batch_that_waits_for_memory_and_then_for_a_topic_what_is_over_is_told_once() -> None:
    rig = Rig(Producer(room=1))
    rig.add(b"a", b"b", topic=["t", "unknown"])
    rig.producer.room = 0
    rig.add(b"c", b"d", topic=["t", "unknown"])
    rig.part_over()
    assert rig.some == [[0]]
    rig.producer.room = 9
    rig.out.offer(1.0)
    rig.part_over()
    assert rig.some == [[0], [0]] and rig.over == []
    rig.out.offer(100.0)
    rig.out.offer(200.0)
    assert [delivery.failed.keys() for delivery in rig.over] == [{1}, {1}]


def test_without_a_call_for_parts_a_batch_stays_whole() -> None:
    rig = Rig(Producer())
    rig.out.some_over = None
    rig.add(b"a", b"b", topic=["t", "unknown"])
    rig.part_over()
    assert rig.over == [] and len(rig.out.open) == 1
    rig.out.offer(61.0)
    assert [delivery.failed.keys() for delivery in rig.over] == [{1}]


def test_lots_of_a_topic_that_is_not_there_are_over_together_and_not_one_after_the_other() -> None:
    rig = Rig(Producer())
    rig.add(b"a", topic="unknown", now=0.0)
    rig.add(b"b", topic="unknown", now=1.0)
    rig.out.offer(62.0)
    assert len(rig.over) == 2 and rig.out.waiting_records == 0
