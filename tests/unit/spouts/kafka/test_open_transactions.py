"""What an open transaction keeps from readers is counted, and told once it is open for long."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from streamlet.spouts.kafka.open_transactions import HeldBack, OpenTransactionLines, held_back
from streamlet.spouts.kafka.partition import Partition


@dataclass
class ReaderOf:
    """A partition's reader; its broker answers by hand."""

    partition: Partition
    held_back: HeldBack | None = None

    def answer(self, last_stable: int, log_end: int, now_s: float) -> None:
        self.held_back = held_back(self.held_back, last_stable, log_end, now_s)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> OpenTransactionLines:
    caplog.set_level(logging.INFO, "orders")
    return OpenTransactionLines(logging.getLogger("orders"))


def test_what_is_held_back_is_counted_since_the_first_answer_that_says_so() -> None:
    first = held_back(None, 40, 45, 10.0)
    assert first == HeldBack(40, 5, 10.0, 10.0)
    later = held_back(first, 40, 60, 90.0)
    assert later == HeldBack(40, 20, 10.0, 90.0) and later.open_s == 80
    assert held_back(later, 60, 61, 91.0) == HeldBack(60, 1, 91.0, 91.0), "another transaction"
    assert held_back(later, 61, 61, 92.0) is None
    assert held_back(later, -1, 61, 92.0) is None, "an answer that does not say"


def test_a_transaction_open_for_a_minute_is_told_and_its_end_too(
    lines: OpenTransactionLines, caplog: pytest.LogCaptureFixture
) -> None:
    reader = ReaderOf(Partition("orders", 1))
    for now_s in range(100, 160):
        reader.answer(40, 1031, now_s)
        lines.poll([reader], now_s)
    assert not caplog.messages, "59 s: most transactions end before"
    for now_s in range(160, 759):
        reader.answer(40, 1031, now_s)
        lines.poll([reader], now_s)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(
        "orders-1: a transaction has been open at offset 40 for 60 s at least. The 991 offsets from there to the end"
    )
    assert "kafka-transactions.sh find-hanging" in caplog.messages[0]
    reader.answer(40, 1032, 760)
    lines.poll([reader], 760)
    assert "for 660 s at least. The 992 offsets" in caplog.messages[1], "again after ten minutes"
    reader.answer(1033, 1033, 761)
    lines.poll([reader], 761)
    lines.poll([reader], 762)
    assert caplog.messages[2:] == ["orders-1: the transaction at offset 40 has ended; reading goes on"]


def test_one_offset_behind_an_open_transaction_is_told_as_one(
    lines: OpenTransactionLines, caplog: pytest.LogCaptureFixture
) -> None:
    reader = ReaderOf(Partition("orders", 1))
    for now_s in range(100, 161):
        reader.answer(40, 41, now_s)
        lines.poll([reader], now_s)
    (told,) = caplog.messages
    assert "The 1 offset from there to the end of the log can be read when it has ended; it counts neither" in told


def test_all_partitions_of_a_topic_have_one_line(lines: OpenTransactionLines, caplog: pytest.LogCaptureFixture) -> None:
    readers = [ReaderOf(Partition(topic, number)) for topic in ("orders", "sales") for number in range(40)]
    for now_s in range(0, 120, 2):
        for each in readers:
            each.answer(7, 10, now_s)
        lines.poll(readers, now_s)
    assert [line.partition("The ")[0] for line in caplog.messages] == [
        f"{topic}-0: a transaction has been open at offset 7 for 60 s at least, and 39 more of its partitions so. "
        for topic in ("orders", "sales")
    ]
    assert "The 120 offsets from there" in caplog.messages[0]


def test_the_end_of_all_of_a_topics_is_one_line_too(
    lines: OpenTransactionLines, caplog: pytest.LogCaptureFixture
) -> None:
    readers = [ReaderOf(Partition("orders", number)) for number in range(30)]
    for end, now_s in (10, 0), (10, 60), (11, 61):
        for each in readers:
            each.answer(7 if end == 10 else end, end, now_s)
        lines.poll(readers, now_s)
    assert caplog.messages[1:] == [
        "orders-0: the transaction at offset 7 has ended, and those of 29 more partitions; reading goes on"
    ]


def test_another_transaction_of_the_topic_is_told_though_the_first_was(
    lines: OpenTransactionLines, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = ReaderOf(Partition("orders", 0)), ReaderOf(Partition("orders", 1))
    for now_s in range(0, 400, 2):
        first.answer(5 if now_s < 140 else 90, 90, now_s)
        second.answer(7 if 70 <= now_s < 380 else 50, 50, now_s)
        lines.poll([first, second], now_s)
    assert [line.partition(" for ")[0].partition(";")[0] for line in caplog.messages] == [
        "orders-0: a transaction has been open at offset 5",
        "orders-0: a transaction has been open at offset 5",
        "orders-0: the transaction at offset 5 has ended",
        "orders-1: the transaction at offset 7 has ended",
    ]
    assert ", and 1 more of its partitions so" in caplog.messages[1]
    assert caplog.messages[2].endswith("In 1 of its partitions one is open for long")


def test_a_broker_that_answers_no_more_ages_no_transaction(
    lines: OpenTransactionLines, caplog: pytest.LogCaptureFixture
) -> None:
    reader = ReaderOf(Partition("orders", 1))
    reader.answer(40, 1031, 100.0)
    lines.poll([reader], 1000.0)
    assert not caplog.messages


def test_a_partition_that_went_to_another_task_is_forgotten(
    lines: OpenTransactionLines, caplog: pytest.LogCaptureFixture
) -> None:
    reader = ReaderOf(Partition("orders", 1))
    for now_s in (0.0, 60.0):
        reader.answer(40, 1031, now_s)
        lines.poll([reader], now_s)
    caplog.clear()
    lines.poll([], 61.0)
    lines.poll([], 62.0)
    assert not caplog.messages
