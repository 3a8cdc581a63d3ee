"""Which topics a spout reads, and which task reads a partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.spouts.kafka.chosen_topics import ChosenTopics, share, shift_of
from streamlet.spouts.kafka.coordinator import calculate_partitions_for_task, idle_among_several
from streamlet.spouts.kafka.partition import Broker, GlobalPartitionInformation

names = st.text("abcdefgh-._0123456789", min_size=1, max_size=20)


def info(topic: str, partitions: int) -> GlobalPartitionInformation:
    return GlobalPartitionInformation(topic, dict.fromkeys(range(partitions), Broker("a")))


@given(st.dictionaries(names, st.integers(0, 20), max_size=6), st.integers(1, 9))
def test_the_tasks_shares_of_several_topics_are_disjoint_and_complete_and_fair_by_topic(
    topics: dict[str, int], tasks: int
) -> None:
    for topic, count in topics.items():
        shares = [
            calculate_partitions_for_task(info(topic, count), tasks, task, shift_of(topic)) for task in range(tasks)
        ]
        assert sorted(one.number for mine in shares for one in mine) == list(range(count))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(st.sets(names, min_size=1, max_size=6), names, st.integers(1, 9), st.integers(0, 8))
def test_a_topic_that_appears_moves_no_partition_of_another(before: set[str], new: str, tasks: int, task: int) -> None:
    def shares(topics: set[str]) -> dict[str, list[int]]:
        return {topic: share(range(7), tasks, task % tasks, shift_of(topic)) for topic in topics}

    assert shares(before).items() <= shares(before | {new}).items()


def test_many_topics_of_one_partition_go_round_the_tasks() -> None:
    busy = [sum(bool(share([0], 4, task, shift_of(f"orders-{n}"))) for n in range(400)) for task in range(4)]
    assert sum(busy) == 400 and min(busy) > 70


def test_one_topic_is_shared_out_as_ever_by_its_numbers_alone() -> None:
    assert [one.number for one in calculate_partitions_for_task(info("t", 5), 2, 1)] == [1, 3]


@pytest.mark.parametrize(
    ("choice", "taken", "left"),
    [
        (ChosenTopics(("a",)), ["a"], ["b", "aa"]),
        (ChosenTopics(("a", "b"), several=True), ["a", "b"], ["c"]),
        (ChosenTopics((), "orders-.*", True), ["orders-", "orders-eu"], ["my-orders-eu", "orders", "ORDERS-eu"]),
        (ChosenTopics((), "a|b", True), ["a", "b"], ["ab", "a|b"]),
        (ChosenTopics((), ".*", True), ["a", "__mine"], ["__consumer_offsets", "__transaction_state"]),
    ],
)
def test_a_pattern_matches_whole_names_and_no_topic_of_kafkas_own(
    choice: ChosenTopics, taken: list[str], left: list[str]
) -> None:
    assert [name for name in taken + left if choice.takes(name)] == taken


def test_a_choice_in_words() -> None:
    assert str(ChosenTopics(("a",))) == "topic 'a'"
    assert str(ChosenTopics(("a", "b"), several=True)) == "topics 'a', 'b'"
    assert str(ChosenTopics(tuple("abcdef"), several=True)) == "topics 'a', 'b', 'c', 'd' and 2 more"
    assert str(ChosenTopics((), "o.*", True)) == "the topics that match 'o.*'"


def test_idle_tasks_are_told_where_several_topics_leave_some() -> None:
    assert idle_among_several([info("a", 4)], 4) is None
    assert idle_among_several([], 4) is None
    said = idle_among_several([info("a", 1), info("b", 2)], 8)
    assert said is not None and "tasks have no partition of topics 'a', 'b' and are idle" in said
