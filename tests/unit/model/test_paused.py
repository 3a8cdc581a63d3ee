"""What is paused after pauses and resumes of parts that lie in each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamlet.model.paused import PausedPart, around, paused_with, resumed

SPOUT, TOPIC = PausedPart("lines"), PausedPart("lines", "clicks")
THIRD, FOURTH = PausedPart("lines", "clicks", 3), PausedPart("lines", "clicks", 4)

parts = st.builds(PausedPart, st.sampled_from("ab"), st.sampled_from(["t", "u"]), st.sampled_from([-1, 0, 1]))
any_parts = parts | st.builds(PausedPart, st.sampled_from("ab"))


def test_a_part_is_written_as_people_name_it() -> None:
    assert [str(part) for part in (SPOUT, TOPIC, THIRD)] == ["lines", "lines clicks", "lines clicks/3"]


def test_a_part_holds_its_partitions_and_no_others() -> None:
    assert SPOUT.holds("any", 9) and TOPIC.holds("clicks", 9) and THIRD.holds("clicks", 3)
    assert not TOPIC.holds("any", 9) and not THIRD.holds("clicks", 4) and not THIRD.holds("any", 3)


def test_a_larger_part_takes_the_place_of_smaller_ones() -> None:
    assert paused_with([THIRD, FOURTH], TOPIC) == [TOPIC]
    assert paused_with([SPOUT], THIRD) == [SPOUT]
    assert paused_with([THIRD], THIRD) == [THIRD]


def test_a_resumed_part_takes_along_all_that_lies_in_it() -> None:
    other = PausedPart("words", "clicks", 3)
    assert resumed([THIRD, other, FOURTH], SPOUT) == [other]
    assert around([SPOUT], THIRD) == SPOUT and around([THIRD], THIRD) is None


@given(st.lists(any_parts, max_size=8), any_parts)
def test_after_a_pause_everything_in_the_part_is_paused_and_nothing_else_changed(
    before: list[PausedPart], part: PausedPart
) -> None:
    kept: list[PausedPart] = []
    for one in before:
        kept = paused_with(kept, one)
    after = paused_with(kept, part)
    assert len(after) == len(set(after))
    for spout in "ab":
        for topic in "tu":
            for number in (0, 1):
                was, now = (
                    any(one.spout == spout and one.holds(topic, number) for one in these) for these in (kept, after)
                )
                assert now == (was or (part.spout == spout and part.holds(topic, number)))
