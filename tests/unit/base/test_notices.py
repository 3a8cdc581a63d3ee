"""Which of many like notices are given, and when a long wait is."""

from __future__ import annotations

import threading

from streamlet.base.notices import Notices, told_if_slow
from tests.patience import PATIENCE_S


def test_the_first_is_given_then_one_in_each_interval_with_the_number_left_out() -> None:
    notices: Notices[str] = Notices(10.0)
    assert [notices.due("a", now_s) for now_s in (5.0, 6.0, 14.9, 15.0, 15.1, 40.0, 60.0)] == [
        0,
        None,
        None,
        2,
        None,
        1,
        0,
    ]


def test_each_key_is_counted_for_itself() -> None:
    notices: Notices[tuple[str, str]] = Notices(10.0)
    assert notices.due(("bolt", "KeyError"), 0.0) == 0 and notices.due(("bolt", "ValueError"), 1.0) == 0
    assert ("bolt", "KeyError") in notices and ("spout", "KeyError") not in notices


def test_what_was_left_out_is_taken_once_and_the_keys_are_new_afterwards() -> None:
    notices: Notices[str] = Notices(10.0)
    for key in ("a", "a", "a", "b"):
        notices.due(key, 0.0)
    assert notices.take_left_out() == {"a": 2} and notices.take_left_out() == {}
    assert notices.due("a", 1.0) == 0


def test_what_was_left_out_is_taken_when_its_interval_is_over_and_begins_another() -> None:
    notices: Notices[str] = Notices(10.0)
    for key, now_s in (("a", 0.0), ("a", 1.0), ("b", 5.0)):
        notices.due(key, now_s)
    assert notices.take_overdue(9.9) == {}
    assert notices.take_overdue(10.0) == {"a": 1} and notices.take_overdue(30.0) == {}
    assert notices.due("a", 19.9) is None and notices.due("a", 20.0) == 1


def test_without_an_end_only_the_first_is_given() -> None:
    notices: Notices[None] = Notices(float("inf"))
    assert notices.due(None, 0.0) == 0 and notices.due(None, 1e9) is None


def test_a_block_is_told_of_once_and_only_when_it_takes_long() -> None:
    told: list[str] = []
    with told_if_slow(PATIENCE_S, lambda: told.append("soon over")):
        pass
    waited = threading.Event()

    def tell() -> None:
        told.append("long")
        waited.set()

    with told_if_slow(0.01, tell):
        assert waited.wait(PATIENCE_S)
    assert told == ["long"]
