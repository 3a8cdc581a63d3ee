"""Dead letters in a KafkaBolt: written as they are, and the end of the run where they never can be."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.bolts.kafka import KafkaBolt
from streamlet.bolts.kafka.errors import LetterRefused, LetterTopicGone, RecordNotTaken, StaleTuple
from streamlet.bolts.kafka.letters import GONE_S, OFFERED_S, LetterTopics, records_of, refused
from streamlet.bolts.kafka.outbound import Delivery
from streamlet.components.batch import Batch
from streamlet.components.epoch_tuples import LETTERS, LetterRow
from streamlet.kafka.broker_errors import InvalidRecord, MessageTooLarge, UnknownTopicOrPartition
from streamlet.kafka.errors import ClientTimeout

RECORD = "topic 'orders', partition 1, offset 7"


def letters(*topics: str) -> Batch:
    rows = [[*LetterRow(topic, None, b"v", [["own", None], ["why", b"\xff"]], RECORD)] for topic in topics]
    return Batch(rows, "orders", LETTERS, 1, LetterRow._fields, roots=[2] * len(rows))


def test_a_letter_is_written_with_the_bytes_it_came_with() -> None:
    (record,) = records_of(letters("dead")).each()
    assert (record.topic, record.key, record.value) == ("dead", None, b"v")
    assert record.headers == [("own", None), ("why", b"\xff")]


class Transactions(SimpleNamespace):
    """What the bolt tells its transactions."""

    def refuse(self, error: Exception) -> None:
        self.refusal = error


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (MessageTooLarge("Writing"), True),
        (RecordNotTaken("No way to it for 60 s."), False),
        (StaleTuple("Its attempt is over."), False),
    ],
)
def test_a_letter_that_the_brokers_never_take_ends_the_run_and_names_its_record(error: Exception, ends: bool) -> None:
    spec = KafkaBolt.spec(inputs=[], hosts="kafka://127.0.0.1:1", topic="out")
    bolt: Any = KafkaBolt(**spec.kwargs)
    failed: list[Any] = []
    vars(bolt).update(ack=lambda batch: None, _fail_told=lambda tup, why: failed.append(tup))
    bolt._transactions = Transactions(refusal=None)
    batch = letters("dead")
    bolt._settle(Delivery(batch, records_of(batch), failed={0: error}))
    refusal = bolt._transactions.refusal
    assert isinstance(refusal, LetterRefused) is ends
    if ends:
        for part in (RECORD, "refused by topic 'dead'", "max_request_size", "comes again at the next start"):
            assert part in refusal.message
    assert len(failed) == isinstance(error, StaleTuple)


def test_a_letter_without_a_key_for_a_topic_that_is_compacted_is_refused_with_what_to_do() -> None:
    row = letters("dead").rows[0]
    said = refused(row, InvalidRecord("Compacted topic cannot accept message without key.")).message
    assert "set cleanup.policy=delete for 'dead'" in said and "max_request_size" not in said


def ask(error: Exception | None, known: Sequence[int] = (0,)) -> Any:
    def asked(topic: str) -> Sequence[int]:
        if error is not None:
            raise error
        return known

    return asked


def test_a_topic_that_was_known_and_has_no_partitions_any_more_is_gone() -> None:
    """As one that was deleted after its first letters."""
    topics = LetterTopics()
    topics.wait(letters("dead"), 5.0)
    with pytest.raises(LetterTopicGone):
        topics.check(5.0 + GONE_S, ask(None, ()), lambda: "")


def test_letters_that_wait_for_a_topic_which_is_gone_end_the_run_and_an_outage_does_not() -> None:
    topics, gone = LetterTopics(), UnknownTopicOrPartition("there is no topic 'dead'")
    topics.wait(letters("dead", "other"), 5.0)
    topics.check(5.0 + GONE_S - 0.1, ask(gone), lambda: "")
    topics.check(5.0 + GONE_S, ask(ClientTimeout("no answer")), lambda: "")
    topics.wait(letters("dead"), 14.0)  # the next attempt: the wait goes on
    with pytest.raises(LetterTopicGone, match=r"wait for topic 'dead' .* for 10 s .*One connection\."):
        topics.check(5.0 + GONE_S, ask(gone), lambda: "One connection.")


def test_a_letter_that_is_written_ends_the_wait_for_its_topic() -> None:
    topics, gone = LetterTopics(), UnknownTopicOrPartition("there is no topic 'dead'")
    topics.wait(letters("dead"), 5.0)
    topics.written(letters("dead"))
    topics.wait(letters("dead"), 14.0)
    topics.check(20.0, ask(gone), lambda: "")
    topics.check(14.0 + GONE_S, ask(None), lambda: "")
    topics.check(14.0 + GONE_S + 0.1, ask(gone), lambda: "")


def test_a_topic_that_no_letter_is_offered_for_any_more_may_go() -> None:
    """The attempt after an abort may have no letter: an hour later the run ended for one that did not wait."""

    def gone(topic: str) -> list[int]:
        raise UnknownTopicOrPartition("dead")

    topics = LetterTopics()
    topics.wait(letters("dead"), 0.0)
    topics.check(OFFERED_S, gone, lambda: "")
    topics.check(OFFERED_S + GONE_S, gone, lambda: "")
    topics.wait(letters("dead"), OFFERED_S + 100)
    with pytest.raises(LetterTopicGone):
        topics.check(OFFERED_S + 100 + GONE_S, gone, lambda: "")
