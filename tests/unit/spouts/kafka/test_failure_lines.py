"""The log names a record that failed, its try and the next one: once for a kind of error, then a count."""

from __future__ import annotations

import logging

import pytest

from streamlet.base.backoff import Backoff
from streamlet.components.spout import FailureCause
from streamlet.spouts.kafka.failure_lines import FailureLines
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.retry import ExponentialBackoffMsgRetryManager, NextTry

ORDERS = Partition("orders", 1)
BAD = FailureCause("enrich", "ValueError", "no 700\nand a second line")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> FailureLines:
    caplog.set_level(logging.INFO, "orders")
    return FailureLines(logging.getLogger("orders"))


def test_a_failure_names_the_record_its_try_and_the_next(lines: FailureLines, caplog: pytest.LogCaptureFixture) -> None:
    lines.tell(ORDERS, 233, BAD, NextTry(8, 21, 110.0), 100.0)
    assert caplog.messages == [
        "topic orders, partition 1, offset 233 failed in enrich (ValueError: no 700): try 8 of 21, the next one in 10 s"
    ]


def test_without_a_bolt_or_a_limit_neither_is_named(lines: FailureLines, caplog: pytest.LogCaptureFixture) -> None:
    lines.tell(ORDERS, 5, FailureCause(""), NextTry(3, 0, 0.4), 0.0)
    assert caplog.messages == ["topic orders, partition 1, offset 5 failed: try 3, the next one in 0.4 s"]


def test_a_storm_of_failures_is_a_line_in_ten_seconds(lines: FailureLines, caplog: pytest.LogCaptureFixture) -> None:
    for offset in range(1_000):
        lines.tell(ORDERS, offset, BAD, NextTry(1, 21, offset / 100 + 0.1), offset / 100)
    assert len(caplog.messages) == 1
    lines.tell(ORDERS, 7, FailureCause("enrich", "KeyError"), NextTry(1, 21, 10.1), 10.0)
    lines.tell(ORDERS, 8, BAD, NextTry(2, 21, 10.2), 10.0)
    assert len(caplog.messages) == 3 and caplog.messages[2].endswith("(999 more such failures since the last report)")


def test_a_retry_is_known_until_it_starts_and_none_after_the_last() -> None:
    retries = ExponentialBackoffMsgRetryManager(Backoff(0.1, 1.0, 2.0), 1)
    assert retries.next_try(7) is None
    retries.failed(7, 5.0)
    assert retries.next_try(7) == NextTry(1, 2, 5.1)
    retries.retry_started(7)
    assert retries.next_try(7) is None
    retries.failed(7, 6.0)
    assert retries.next_try(7) is None
