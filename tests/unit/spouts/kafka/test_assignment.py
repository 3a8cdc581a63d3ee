"""The shares of a spout's tasks are disjoint, complete and even."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.spouts.kafka.coordinator import (
    calculate_partitions_for_task,
    describe_assignment,
    idle_tasks_warning,
)
from streamlet.spouts.kafka.errors import TaskIndexOutOfRange
from streamlet.spouts.kafka.partition import Broker, GlobalPartitionInformation, Partition

BROKER = Broker("kafka", 9092)


def info(numbers: set[int] | range, by_position: bool = False) -> GlobalPartitionInformation:
    return GlobalPartitionInformation("lines", dict.fromkeys(numbers, BROKER), by_position)


@given(st.sets(st.integers(0, 60)), st.integers(1, 9), st.booleans())
def test_k3_shares_are_disjoint_and_complete(numbers: set[int], tasks: int, by_position: bool) -> None:
    shares = [calculate_partitions_for_task(info(numbers, by_position), tasks, index) for index in range(tasks)]
    together = [partition.number for share in shares for partition in share]
    assert sorted(together) == sorted(numbers)
    assert all(share == sorted(share) for share in shares)


@given(st.sets(st.integers(0, 60), min_size=1), st.integers(1, 9), st.booleans())
def test_k9_2_no_two_tasks_share_a_partition(numbers: set[int], tasks: int, by_position: bool) -> None:
    """Neither by even and odd offsets nor in turns: each partition has one reader, however many tasks there are."""
    for number in numbers:
        wanted = Partition("lines", number)
        shares = [calculate_partitions_for_task(info(numbers, by_position), tasks, index) for index in range(tasks)]
        assert sum(share.count(wanted) for share in shares) == 1


@given(st.integers(0, 60), st.integers(1, 9))
def test_k3_without_holes_sizes_differ_by_at_most_one(count: int, tasks: int) -> None:
    sizes = [len(calculate_partitions_for_task(info(range(count)), tasks, index)) for index in range(tasks)]
    assert max(sizes) - min(sizes) <= 1


@given(st.sets(st.integers(0, 60)), st.integers(1, 9))
def test_k3_a_partial_list_by_hand_is_shared_evenly(numbers: set[int], tasks: int) -> None:
    sizes = [len(calculate_partitions_for_task(info(numbers, True), tasks, index)) for index in range(tasks)]
    assert max(sizes) - min(sizes) <= 1


@given(st.sets(st.integers(0, 60), min_size=1), st.integers(1, 9), st.data())
def test_t09_k3_a_hole_in_the_look_moves_no_other_partition(numbers: set[int], tasks: int, data: st.DataObject) -> None:
    """A partition whose leader's node is missing for a moment must not shift the ones after it."""
    missing = data.draw(st.sampled_from(sorted(numbers)))
    for index in range(tasks):
        whole = calculate_partitions_for_task(info(numbers), tasks, index)
        holed = calculate_partitions_for_task(info(numbers - {missing}), tasks, index)
        assert holed == [partition for partition in whole if partition.number != missing]


@pytest.mark.parametrize(("index", "tasks"), [(2, 2), (-1, 2), (0, 0), (5, 3)])
def test_k11_an_index_not_below_the_total_is_refused(index: int, tasks: int) -> None:
    with pytest.raises(TaskIndexOutOfRange, match="must be less than the number of tasks"):
        calculate_partitions_for_task(info({0, 1}), tasks, index)


def test_k3_more_tasks_than_partitions_is_said() -> None:
    assert idle_tasks_warning(info({0, 1}), 2) is None
    warning = idle_tasks_warning(info({0, 1}), 5)
    assert warning is not None
    assert "3 of them will be idle" in warning


def test_k11_the_mapping_is_one_line() -> None:
    mine = [Partition("lines", 1), Partition("lines", 4)]
    assert describe_assignment(3, 1, mine) == "task 2 of 3 owns partitions: 1, 4"
    assert describe_assignment(3, 1, []) == "task 2 of 3 owns partitions: none"
