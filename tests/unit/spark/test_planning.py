"""Offsets of a batch, its ranges and what counts as lost data."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest

from streamlet.base.errors import BadInput
from streamlet.spark import planning
from streamlet.spark.options import EARLIEST, LATEST, PlaceInLogs
from streamlet.spark.planning import TaskRange

A, B, C = ("t", 0), ("t", 1), ("u", 0)


def test_offsets_come_back_from_the_text_of_a_checkpoint() -> None:
    offsets = {("t", 10): 7, ("t", 2): 1 << 40, ("a.b-c_d", 0): 0}
    assert planning.from_json(json.loads(json.dumps(planning.to_json(offsets)))) == offsets


def test_equal_offsets_have_equal_texts_whatever_their_order() -> None:
    one, other = {A: 1, B: 2, C: 3}, {C: 3, B: 2, A: 1}
    assert json.dumps(planning.to_json(one)) == json.dumps(planning.to_json(other))


def test_the_first_batch_keeps_its_start_though_the_initial_offset_is_asked_again() -> None:
    """A stop in the middle of the first batch: by then "latest" is another place."""
    start = planning.initial({A: 5})
    end = planning.batch_end(start, {A: 9})
    later = planning.initial({A: 30})
    assert planning.batch_start(later, end) == {A: 5}
    second = planning.batch_end(end, {A: 12})
    assert planning.batch_start(end, second) == {A: 9}
    assert second == planning.to_json({A: 12})


def test_a_first_batch_without_news_is_empty_though_latest_has_moved_when_it_is_asked_again() -> None:
    """A busy topic: Spark asks for the initial offset, for the end, and then for the initial offset again."""
    start = planning.initial({A: 5})
    end = planning.batch_end(start, {A: 5})
    begun = planning.batch_start(planning.initial({A: 30}), end)
    assert begun == {A: 5}
    told: list[str] = []
    assert planning.batch_ranges(begun, planning.from_json(end), told.append) == []
    assert told == []
    second = planning.batch_end(end, {A: 30})
    assert planning.batch_start(end, second) == {A: 5}


def test_a_batch_without_news_is_its_start_to_the_letter() -> None:
    for start in (
        planning.initial({A: 5}),
        planning.to_json({A: 5}),
        planning.batch_end(planning.initial({A: 1}), {A: 5}),
    ):
        assert json.dumps(planning.batch_end(start, {A: 5})) == json.dumps(start)


def test_a_partition_that_appears_is_news_and_is_read_from_its_beginning() -> None:
    start = planning.to_json({A: 5})
    end = planning.batch_end(start, {A: 5, B: 3})
    told: list[str] = []
    ranges = planning.batch_ranges(planning.batch_start(start, end), planning.from_json(end), told.append)
    assert ranges == [TaskRange("t", 1, 0, 3)]
    assert told == []


def test_a_partition_that_is_gone_and_a_log_that_shrank_are_told_and_the_rest_is_read() -> None:
    told: list[str] = []
    ranges = planning.batch_ranges({A: 5, B: 9, C: 1}, {B: 2, C: 4}, told.append)
    assert ranges == [TaskRange("u", 0, 1, 4)]
    assert "t-0" in told[0]
    assert "ends at offset 2" in told[1]


def test_the_limit_is_shared_out_by_size_and_starves_nobody() -> None:
    end = planning.limited({A: 0, B: 0, C: 0}, {A: 900, B: 99, C: 1}, 100)
    assert end == {A: 90, B: 9, C: 1}
    assert planning.limited({A: 0}, {A: 5}, 100) == {A: 5}


@pytest.mark.parametrize("seed", range(50))
def test_batches_under_a_limit_cover_everything_once(seed: int) -> None:
    chance = random.Random(seed)
    target = {("t", number): chance.choice([0, 1, 7, 1000]) for number in range(5)}
    at = dict.fromkeys(target, 0)
    for _ in range(5000):
        step = planning.limited(at, target, chance.choice([1, 3, 500]))
        assert all(at[tp] <= step[tp] <= target[tp] for tp in target)
        if step == at:
            break
        at = step
    assert at == target


def test_too_few_counts_what_is_new_over_all_partitions() -> None:
    assert planning.too_few({A: 5, B: 5}, {A: 8, B: 6}, 5)
    assert not planning.too_few({A: 5, B: 5}, {A: 8, B: 7}, 5)


@pytest.mark.parametrize("seed", range(50))
def test_a_split_covers_its_ranges_in_order_and_is_the_same_each_time(seed: int) -> None:
    chance = random.Random(seed)
    ranges = [TaskRange("t", number, 10, 10 + chance.randint(1, 10_000)) for number in range(chance.randint(1, 6))]
    wanted, most = chance.choice([None, 1, 3, 40]), chance.choice([None, 1000, 77])
    pieces = planning.split(ranges, wanted, most)
    assert pieces == planning.split(ranges, wanted, most)
    for whole in ranges:
        own = [piece for piece in pieces if piece.partition == whole.partition]
        assert own[0].start == whole.start
        assert own[-1].end == whole.end
        assert all(low.end == high.start for low, high in pairwise(own))
    assert most is None or all(len(piece) <= most for piece in pieces)


def test_min_partitions_cuts_the_large_ranges_and_leaves_the_small() -> None:
    """The example of Spark's own test of its connector: sizes 1, 10 and 90 in 6 tasks."""
    ranges = [TaskRange("t", 0, 0, 1), TaskRange("t", 1, 0, 90)]
    pieces = planning.split(ranges, 4, None)
    assert pieces == [
        TaskRange("t", 0, 0, 1),
        TaskRange("t", 1, 0, 30),
        TaskRange("t", 1, 30, 60),
        TaskRange("t", 1, 60, 90),
    ]


def test_offsets_by_partition_must_name_each_and_no_other() -> None:
    place = PlaceInLogs(partitions={A: 3}, option="startingOffsets")
    with pytest.raises(BadInput, match=r"startingOffsets does not name t-1.*-2 for earliest, and in a stream also -1"):
        planning.look_up(place, [A, B])
    with pytest.raises(BadInput, match="names t-0, which is not read"):
        planning.look_up(place, [])


def test_a_batch_that_begins_behind_its_end_is_refused_with_both_places() -> None:
    begin, until = PlaceInLogs(option="startingOffsets"), PlaceInLogs(option="endingTimestamp")
    planning.refuse_backwards({A: 5, B: 0}, {A: 5, B: 9}, begin, until)
    with pytest.raises(
        BadInput, match=r"partition 1: the batch begins at offset 9 \(startingOffsets\), behind its end at 5 "
    ):
        planning.refuse_backwards({A: 5, B: 9}, {A: 5, B: 5}, begin, until)


def test_special_offsets_are_asked_and_others_are_taken() -> None:
    place = PlaceInLogs(partitions={A: EARLIEST, B: LATEST, C: 7}, option="startingOffsets")
    wanted = planning.look_up(place, [A, B, C])
    assert wanted.fixed == {C: 7}
    assert wanted.ask == {A: "earliest", B: "latest"}


def test_times_are_asked_as_they_are() -> None:
    assert planning.look_up(PlaceInLogs(everywhere=17, by_time=True), [A, B]).ask == {A: 17, B: 17}
