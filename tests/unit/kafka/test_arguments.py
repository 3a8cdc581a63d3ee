"""Arguments of the clients' calls: returned in one shape, or refused with a right one."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet.base.errors import BadInput, WrongArgument
from streamlet.kafka import arguments
from streamlet.kafka.broker_errors import InvalidTopic
from streamlet.kafka.metadata.cluster import TopicPartition

TP = TopicPartition("t", 0)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, -1, 1 << 63])
def test_a_whole_number_is_an_int_in_its_range(value: Any) -> None:
    assert not arguments.is_whole(value, 0)
    assert arguments.is_whole(0, 0) and arguments.is_whole((1 << 63) - 1, 0)


@pytest.mark.parametrize("timeout", [True, "1", None, float("nan")])
def test_a_time_out_that_is_not_a_number_of_seconds_is_refused(timeout: Any) -> None:
    with pytest.raises(WrongArgument, match="must be a number of seconds"):
        arguments.seconds(timeout)
    assert arguments.seconds(-1) == -1, "it has passed already"


@pytest.mark.parametrize("one", ["lines", b"lines", TP, 5])
def test_a_single_item_is_not_taken_for_a_list_of_its_parts(one: Any) -> None:
    with pytest.raises(WrongArgument, match=r"is not a list of topics: write \['lines'\]"):
        arguments.several(one, "topics", "['lines']")


def test_one_item_or_several_become_a_list() -> None:
    assert arguments.one_or_several(3, int, "[1]") == [3]
    assert arguments.one_or_several(iter([1, 2]), int, "[1]") == [1, 2]
    with pytest.raises(BadInput, match="'x' is not a int: write"):
        arguments.one_or_several([1, "x"], int, "[1]")  # type: ignore[list-item]


def test_names_are_taken_once_each_in_order() -> None:
    assert arguments.names_of(["b", "a", "b"]) == ["b", "a"] and arguments.names_of("a") == ["a"]
    with pytest.raises(BadInput, match="'' is not a name of a group"):
        arguments.names_of(["a", ""], "group")


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "ü", "x" * 250, 5, None, b"t"])
def test_a_topic_that_no_broker_accepts_is_refused(topic: Any) -> None:
    with pytest.raises(InvalidTopic, match="Give a str of 1 to 249 letters"):
        arguments.check_topic(topic)
    arguments.check_topic("A.b-c_9")


@pytest.mark.parametrize(
    ("timeout_ms", "most", "error"),
    [
        ("1", None, TypeError),
        (True, None, TypeError),
        (float("nan"), None, ValueError),
        (-1, None, ValueError),
        (0, "1", TypeError),
        (0, True, TypeError),
        (0, 0, ValueError),
    ],
)
def test_limits_of_a_poll_that_cannot_be_are_refused(timeout_ms: Any, most: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="must be"):
        arguments.poll_limits(timeout_ms, most)
    assert arguments.poll_limits(0.56, 3) == 3 and arguments.poll_limits(0, None) is None


@pytest.mark.parametrize("seconds", [0.5, 1.0, 5.0])
def test_a_time_out_that_was_meant_as_seconds_is_warned_of(seconds: float) -> None:
    with pytest.warns(RuntimeWarning, match=rf"write timeout_ms={seconds * 1000:.0f};"):
        assert arguments.poll_limits(seconds, 3) == 3


def test_milliseconds_and_what_is_left_of_a_deadline_are_not(recwarn: pytest.WarningsRecorder) -> None:
    for limit_ms in (1, 100, 1000.0, 3.2718, 0.0):
        arguments.poll_limits(limit_ms, None)
    assert not recwarn.list


@pytest.mark.parametrize(("offset", "epoch"), [(-1, -1), (1 << 63, -1), (0, -2), (0, 1 << 31)])
def test_a_seek_out_of_range_is_refused(offset: int, epoch: int) -> None:
    with pytest.raises(ValueError, match=r"seek\(\) in t-0: .* from"):
        arguments.check_offset(TP, offset, epoch)
    arguments.check_offset(TP, 0, -1)


@pytest.mark.parametrize("given", ["abc", b"abc", {"a": 1}, 5])
def test_a_single_value_is_not_taken_for_a_list_of_values(given: Any) -> None:
    with pytest.raises(WrongArgument, match=r"send_many takes values in a list, .* No record was taken"):
        arguments.listed("values", given)
    assert arguments.listed("values", ["a"]) == ["a"]


def test_a_long_value_is_shown_shortened() -> None:
    assert arguments.shortened("x" * 100) == "'" + "x" * 56 + "..."
    assert arguments.shortened("x") == "'x'"
