"""Dead letters on their way to the topic, against a scripted producer: held, offered again, refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from streamlet.kafka.broker_errors import (
    InvalidRecord,
    NotEnoughReplicas,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from streamlet.kafka.errors import ClientTimeout
from streamlet.kafka.producer import topic_wait
from streamlet.spouts.kafka.dead_letters import dead_letter_writer
from streamlet.spouts.kafka.dead_letters.dead_letter import Fault, GivenUp, RunStamp
from streamlet.spouts.kafka.dead_letters.dead_letter_writer import HOLD_S, OFFER_AGAIN_S, DeadLetterWriter
from streamlet.spouts.kafka.errors import DeadLetterRefused, DeadLettersCannotStart, NoDeadLetterTopic
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.schemes.scheme import Record


class Manager:
    """A partition's records that were given up."""

    def __init__(self) -> None:
        self.partition = Partition("lines", 3)
        self.given_up: list[GivenUp] = []
        self.written: list[int] = []

    def dead_letter_written(self, offset: int) -> None:
        self.written.append(offset)

    def give_up(self, *offsets: int) -> None:
        for offset in offsets:
            record = Record("lines", 3, offset, 5, b"k", b"%d" % offset, ())
            self.given_up.append(GivenUp(record, 0, 3, Fault("count", "ValueError", "no")))


class Scripted:
    """A producer whose records are over when the test says so."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.refuses: Exception | None = None
        self.over: list[Callable[[list[tuple[int, Exception]]], None]] = []

    def send(self, topic: str, value: bytes, key: bytes, headers: Sequence[Any]) -> object:
        if self.refuses is not None:
            raise self.refuses
        self.sent.append(value)
        return object()

    def partitions_for(self, topic: str) -> None:
        if self.refuses is not None:
            raise self.refuses

    def connections(self) -> str:
        return "No connection."

    def close(self, limit_s: float) -> None:
        """Nothing is open."""


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> tuple[Scripted, DeadLetterWriter, Manager]:
    producer, manager = Scripted(), Manager()
    monkeypatch.setattr(dead_letter_writer, "call_when_over", lambda futures, call: producer.over.append(call))
    monkeypatch.setattr(topic_wait, "UNKNOWN_S", 0.1)
    stamp = RunStamp("Counts", "run-1", "lines", "0.1.0", None)
    writer = DeadLetterWriter(producer, "dead", stamp, logging.getLogger("streamlet.component.lines"))  # type: ignore[arg-type]
    return producer, writer, manager


Rig = tuple[Scripted, DeadLetterWriter, Manager]


def test_a_record_is_done_when_its_letter_is_acknowledged(rig: Rig) -> None:
    producer, writer, manager = rig
    manager.give_up(7, 9)
    writer.serve([manager], 0.0)  # type: ignore[list-item]
    assert producer.sent == [b"7", b"9"] and manager.given_up == []
    assert (manager.written, writer.waiting) == ([], 2)
    producer.over[0]([])
    writer.serve([manager], 0.1)  # type: ignore[list-item]
    assert (manager.written, writer.waiting, writer.written) == ([7, 9], 0, 2)


def test_what_passes_is_tried_again_and_the_spout_is_held_and_told_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    producer, writer, manager = rig
    caplog.set_level(logging.INFO)
    manager.give_up(7)
    producer.refuses = ClientTimeout("the topic is not known")
    for step in range(40):
        writer.serve([manager], step * OFFER_AGAIN_S)  # type: ignore[list-item]
        assert writer.holds == (step * OFFER_AGAIN_S >= HOLD_S)
    assert producer.sent == [] and manager.written == []
    said = "1 dead letter waits for topic 'dead', which does not take them (the topic is not known): No connection."
    assert caplog.text.count(said) == 1, "a connection that is ready says nothing of a topic that is gone"
    producer.refuses = None
    writer.serve([manager], 5.0)  # type: ignore[list-item]
    producer.over[0]([(0, NotEnoughReplicas("two are gone"))])
    writer.serve([manager], 5.1)  # type: ignore[list-item]
    assert producer.sent == [b"7", b"7"] and writer.holds, "a failure that passes is offered again"
    producer.over[1]([])
    writer.serve([manager], 5.2)  # type: ignore[list-item]
    assert manager.written == [7] and not writer.holds
    assert "goes on: the dead letters are written" in caplog.text


@pytest.mark.parametrize("late", [False, True])
def test_what_the_brokers_refuse_for_good_stops_the_spout_and_names_the_record(rig: Rig, late: bool) -> None:
    producer, writer, manager = rig
    error = TopicAuthorizationFailed("no right to write to 'dead'.")
    manager.give_up(7)
    producer.refuses = None if late else error
    with pytest.raises(DeadLetterRefused, match=r"partition 3, offset 7, was refused by topic 'dead': .*no right"):
        writer.serve([manager], 0.0)  # type: ignore[list-item]
        producer.over[0]([(0, error)])
        writer.serve([manager], 0.1)  # type: ignore[list-item]
    assert manager.written == []


def test_after_a_letter_was_refused_the_others_are_settled_and_nobody_waits_for_it(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of the run comes back for what is under way, with no word of going on."""
    producer, writer, manager = rig
    manager.give_up(7, 8, 9)
    writer.serve([manager], 0.0)  # type: ignore[list-item]
    manager.give_up(10)
    writer.serve([manager], 0.1)  # type: ignore[list-item]
    caplog.clear()
    refusal = InvalidRecord("Compacted topic cannot accept message without key.")
    producer.over[0]([(0, refusal), (2, refusal)])
    with pytest.raises(
        DeadLetterRefused, match=r"offset 7, .*compacted .*cleanup\.policy=delete for 'dead'"
    ) as refused:
        writer.serve([manager], 0.2)  # type: ignore[list-item]
    assert "max.message.bytes" not in refused.value.message and refused.value.__cause__ is refusal
    assert (manager.written, writer.waiting) == ([8], 1)
    for now_s in (1.0, 3.0, 5.0):
        writer.serve([manager], now_s)  # type: ignore[list-item]
    producer.over[1]([])
    writer.serve([manager], 6.0)  # type: ignore[list-item]
    assert (manager.written, writer.waiting, caplog.messages) == ([8, 10], 0, [])


def test_one_letter_that_is_not_taken_leaves_those_before_it_under_way(rig: Rig) -> None:
    producer, writer, manager = rig
    send, error = producer.send, TopicAuthorizationFailed("no right to write to 'dead'.")

    def second_is_refused(*given: Any) -> object:
        producer.refuses = error if producer.sent else None
        return send(*given)

    producer.send = second_is_refused  # type: ignore[method-assign]
    manager.give_up(7, 8)
    with pytest.raises(DeadLetterRefused, match="offset 8"):
        writer.serve([manager], 0.0)  # type: ignore[list-item]
    producer.over[0]([])
    writer.serve([manager], 0.1)  # type: ignore[list-item]
    assert (manager.written, writer.waiting) == ([7], 0)


def test_a_reason_with_line_ends_stays_in_one_line_of_the_log(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    _, writer, manager = rig
    manager.give_up(7)
    manager.given_up[0] = manager.given_up[0]._replace(fault=Fault("bill", "", "no customer\x1b[31m \n\tred\r"))
    writer.serve([manager], 0.0)  # type: ignore[list-item]
    assert caplog.messages == [
        r"lines-3 offset 7 goes to the dead letters at try 3: bill: no customer\x1b[31m \n\tred\r"
    ]


def test_the_log_names_a_letter_of_each_kind_and_counts_the_others(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    _, writer, manager = rig
    manager.give_up(*range(100))
    writer.serve([manager], 0.0)  # type: ignore[list-item]
    assert caplog.text.count("goes to the dead letters") == 1
    assert "lines-3 offset 0 goes to the dead letters at try 3: count: ValueError: no" in caplog.text
    manager.give_up(100)
    writer.serve([manager], 61.0)  # type: ignore[list-item]
    assert "(99 more for such errors since the last report)" in caplog.text
    manager.give_up(150, 151, 152)
    for now_s in (70.0, 120.0, 122.0, 124.0):
        writer.serve([manager], now_s)  # type: ignore[list-item]
    assert caplog.text.count("3 more go to the dead letters (count: ValueError)") == 1, "a minute after the last line"
    manager.give_up(200, 201)
    writer.serve([manager], 131.0)  # type: ignore[list-item]
    writer.close(1.0)
    assert caplog.messages[-1] == "2 more go to the dead letters (count: ValueError)"


def test_a_start_says_whether_the_topic_or_the_brokers_are_missing(rig: Rig) -> None:
    producer, writer, _ = rig
    writer.await_topic(0.1)
    producer.refuses = UnknownTopicOrPartition("there is none")
    with pytest.raises(NoDeadLetterTopic, match=r"'dead' .dead_letter_topic., and this topic does not exist"):
        writer.await_topic(5.0)
    producer.refuses = ClientTimeout("no broker answers")
    with pytest.raises(DeadLettersCannotStart, match="No connection"):
        writer.await_topic(0.1)
