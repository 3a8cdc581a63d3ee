"""Rounds of a census: which answers count, and what they say together."""

from __future__ import annotations

from typing import Any

from streamlet.tracking.census import Answer, Census


def answer(number: int, **of: Any) -> Answer:
    return Answer(number, 0, 0.0, 0, {}, {}, {}, [], 0.0)._replace(**of)


def test_a_round_is_complete_when_every_worker_has_answered() -> None:
    census = Census([0, 1], first=0)
    number = census.begin()
    assert census.take(0, answer(number, queued=3, wait_s=1.0, slowest=4, waiting={1: 4})) is None
    whole = census.take(1, answer(number, queued=2, wait_s=5.0, slowest=9, waiting={1: 4, 2: 9}, held=[[7, 9, 2.0]]))
    assert whole is not None and not census.asking
    assert (whole.queued, whole.wait_s, whole.slowest) == (5, 5.0, 9)
    assert whole.waiting == {1: 4, 2: 9} and whole.held == {7: (9, 2.0)}


def test_an_answer_of_another_round_counts_for_nothing() -> None:
    census = Census([0], first=0)
    number = census.begin()
    census.reset()
    assert census.take(0, answer(number)) is None
    late, census_number = number, census.begin()
    assert census.take(0, answer(late)) is None and census.asking
    assert census.take(0, answer(census_number)) is not None


def test_of_two_tasks_that_hold_a_tree_the_longer_one_counts() -> None:
    census = Census([0, 1], first=0)
    number = census.begin()
    census.take(0, answer(number, held=[[7, 2, 9.0]]))
    whole = census.take(1, answer(number, held=[[7, 3, 4.0]]))
    assert whole is not None and whole.held == {7: (2, 9.0)}


def test_a_round_is_settled_when_all_that_was_sent_before_has_arrived() -> None:
    census = Census([0, 1], first=0)
    settled = []
    for sent, received in ((5, 0), (9, 4), (9, 9)):
        number = census.begin()
        census.take(0, answer(number, sent={1: sent}))
        whole = census.take(1, answer(number, received={0: received}))
        assert whole is not None
        settled.append(whole.settled)
    assert settled == [False, False, True]
