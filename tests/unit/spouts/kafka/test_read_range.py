"""Places in a log, as users give them: for all partitions, or by partition."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from streamlet.spouts.kafka.chosen_topics import ChosenTopics
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.read_range import ReadPlace, place_in, place_of, wrong_place

ONE, TWO = ChosenTopics(("a",)), ChosenTopics(("a", "b"), several=True)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_a_time_before_1970_is_the_first_record_and_not_the_end() -> None:
    """On the wire -1 ms is the end of the log, and everything would be passed over."""
    assert place_of(datetime.fromtimestamp(-0.001, UTC)) == ReadPlace("timestamp", 0)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("earliest", ReadPlace("earliest")),
        ("latest", ReadPlace("latest")),
        (5000, ReadPlace("timestamp", 5000)),
        (NOON, ReadPlace("timestamp", 1_767_268_800_000)),
    ],
)
def test_a_place_for_all_partitions(given: Any, place: ReadPlace) -> None:
    assert place_of(given) == place == place_in(given, Partition("a", 3), "latest")
    assert place.timestamp_ms == (place.number or None)


@pytest.mark.parametrize("given", ["", "now", True, -1, 1 << 63, 1.5, None, datetime(2026, 1, 1), {}])
def test_what_is_no_place(given: Any) -> None:
    assert place_of(given) is None


def test_in_a_dict_a_number_is_an_offset_and_partitions_without_one_have_the_usual_place() -> None:
    by_partition = {0: 7, ("b", 0): NOON, ("b", 1): "latest"}
    found = [place_in(by_partition, Partition(topic, number), "earliest") for topic in "ab" for number in (0, 1)]
    assert list(map(str, found)) == ["offset 7", "earliest", "timestamp 1767268800000", "latest"]


@pytest.mark.parametrize(
    ("chosen", "given", "why"),
    [
        (ONE, "earliest", None),
        (ONE, {0: 1, ("a", 2): NOON}, None),
        (ONE, {}, None),
        (TWO, {("a", 0): 0, ("b", 1): "latest"}, None),
        (ONE, "soon", "or a dict by partition are understood"),
        (TWO, {0: 1}, "a partition without its topic"),
        (TWO, {("c", 0): 1}, "a topic that the spout does not read"),
        (ONE, {("a", 0, 1): 1}, "names no partition"),
        (ONE, {0: None}, "of 0 it is None"),
    ],
)
def test_a_place_that_is_none_is_named(chosen: ChosenTopics, given: Any, why: str | None) -> None:
    said = wrong_place(given, ("earliest", "latest"), chosen)
    assert said is None if why is None else said is not None and why in said
