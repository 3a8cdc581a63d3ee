"""Pauses after failures, one for each key."""

from __future__ import annotations

from streamlet.base.backoff import Backoff
from streamlet.kafka.fetch.pauses import Pauses


def test_each_failure_in_a_row_pauses_longer_and_one_success_ends_it() -> None:
    pauses: Pauses[int] = Pauses(Backoff(0.1, 1.0))
    assert [pauses.failed(1, 0.0), pauses.failed(1, 0.0)] == [1, 2]
    assert pauses.active(0.19) == {1}
    assert pauses.active(0.2) == set()
    pauses.ended(1)
    assert pauses.active(0.0) == set()
    assert pauses.failed(1, 0.0) == 1


def test_a_hold_counts_no_failure() -> None:
    pauses: Pauses[str] = Pauses(Backoff(0.1, 1.0))
    pauses.hold("a", 0.0)
    assert pauses.active(0.05) == {"a"}
    assert pauses.failed("a", 0.0) == 1


def test_the_next_end_is_the_earliest_that_is_still_to_come() -> None:
    pauses: Pauses[str] = Pauses(Backoff(0.1, 1.0))
    assert pauses.next_end_s(0.0) is None
    pauses.failed("a", 0.0)
    pauses.failed("b", 1.0)
    assert pauses.next_end_s(0.0) == 0.1
    assert pauses.next_end_s(0.5) == 1.1
    assert pauses.next_end_s(2.0) is None
    pauses.ended("never failed")
