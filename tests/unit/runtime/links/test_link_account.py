"""What a lost link took along, as both of its ends find out."""

from __future__ import annotations

from streamlet.runtime.links.link_account import LinkAccount
from streamlet.runtime.tasks.emitter import Run

HERE, THERE = 0, 1
"""Workers: tasks 1 and 2 are here, 4 and 5 there."""


def account() -> LinkAccount:
    return LinkAccount({HERE: [1, 2], THERE: [4, 5]})


def run(target: int, root: int, count: int) -> Run:
    return Run(target, 3, "default", False, [root] * count, [root] * count, [[n] for n in range(count)])


def test_what_a_lost_link_took_along_is_what_was_sent_and_not_read_by_then() -> None:
    made = account()
    made.sends([run(4, 0, 10), run(5, 9, 10)], [])
    made.link_broke(THERE)
    made.sends([run(4, 0, 3)], [])
    assert made.is_in_doubt and made.settle(HERE, {4: 1}) == {}
    assert made.settle(THERE, {4: 6}) == made.lost == {4: 4}
    assert made.settle(THERE, {4: 6}) == {} and not made.is_in_doubt
    assert made.sent[4] == 9, "what was read, and what went over the new link"


def test_each_end_says_once_what_it_had_read_when_the_link_broke() -> None:
    made = account()
    made.reads(THERE, run(1, 0, 4))
    made.reads(THERE, run(2, 9, 4))
    made.link_broke(THERE)
    made.reads(THERE, run(1, 0, 1))
    assert [*made.tell()] == [(THERE, {1: 4, 2: 0})] and [*made.tell()] == []
    assert made.exchanged_with(THERE) == ({4: 0, 5: 0}, {1: 5, 2: 0})


def test_the_last_words_have_what_went_each_way_over_all_links() -> None:
    """Also what was on a link that broke, of which the other end has said nothing yet."""
    made = account()
    made.sends([run(4, 0, 3), run(5, 7, 2)], [])
    made.link_broke(THERE)
    made.reads(THERE, run(1, 0, 4))
    assert made.all_exchanged() == ({4: 3}, {THERE: {1: 4}})


def test_what_no_frame_could_hold_was_not_sent() -> None:
    made = account()
    made.sends([run(4, 0, 3), run(5, 0, 2)], [run(5, 0, 1)])
    assert made.exchanged_with(THERE)[0] == {4: 3, 5: 1}


def test_a_worker_that_died_is_forgotten_and_one_that_is_not_replaced_owes_no_word() -> None:
    made = account()
    made.sends([run(4, 0, 3)], [])
    made.reads(THERE, run(1, 0, 4))
    made.link_broke(THERE)
    made.write_off(THERE)
    assert not made.is_in_doubt and [*made.tell()] == [] and made.sent[4] == 3
    made.link_broke(THERE)
    made.forget(THERE)
    assert not made.is_in_doubt and [*made.tell()] == []
    assert made.exchanged_with(THERE) == ({4: 0, 5: 0}, {})
