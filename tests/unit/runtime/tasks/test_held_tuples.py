"""What a bolt holds: since when, how much more it may be given, and what becomes of a batch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from streamlet.components.batch import Batch
from streamlet.components.tuples import ACKED, Tuple
from streamlet.runtime.tasks.held_tuples import SWEEP_AT, SWEEP_S, HeldTuples


def tup(root: int = 1) -> Tuple:
    return Tuple([root], "numbers", "default", 1, root, root)


def test_a_call_is_under_way_from_the_word_of_its_thread_to_the_word_of_its_thread() -> None:
    """Not from when the bolt is given its tuple, nor until the loop has heard that it is settled."""
    held, one = HeldTuples(), tup()
    held.add(one, 10.0)
    assert held.at_work_since(one, 11.0) == 10.0 and held.at_work(11.0) == []
    held.begins(one, 12.0)
    assert held.at_work_since(one, 13.0) == 12.0 and held.at_work(13.0) == [(one, 12.0)]
    assert held.let_go(one) == 10.0 and not held and held.at_work(13.0) == [(one, 12.0)], "acked, and not returned"
    assert held.let_go(one) is None
    held.ends(one)
    assert held.at_work(13.0) == []


def test_work_may_begin_before_the_tuple_is_noted_as_held() -> None:
    """A thread is at work on it while ``process`` returns."""
    held, one = HeldTuples(), tup()
    held.begins(one, 12.0)
    held.add(one, 12.1)
    assert held.at_work_since(one, 13.0) == 12.0 and held.at_work(13.0) == [(one, 12.0)]


def test_of_calls_that_outlive_their_tuples_nothing_is_kept() -> None:
    held = HeldTuples()
    for n in range(1, 100):
        one = tup(n)
        held.add(one, 1.0)
        held.begins(one, 1.0)
        held.let_go(one)
        held.ends(one)
    assert len(held._over) <= 2 and not held.calls


def test_a_tuple_that_is_held_on_after_its_call_is_not_at_work() -> None:
    """A bolt with ``auto_fail = False`` keeps what raised: no call of it hangs."""
    held, one = HeldTuples(), tup()
    held.add(one, 10.0)
    held.begins(one, 10.0)
    held.ends(one)
    assert held.at_work(11.0) == [] and held.at_work_since(one, 11.0) == 10.0


def test_a_call_whose_emit_waits_for_room_is_not_at_work_meanwhile() -> None:
    """Those of its thread, and those that the emit is for: an asyncio loop's, and one that has asked another thread."""
    held, mine, elsewhere, other = HeldTuples(), tup(1), tup(2), tup(3)
    for one in (mine, elsewhere, other):
        held.add(one, 1.0)
    held.begins(mine, 10.0)
    for one in (elsewhere, other):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(held.begins, one, 10.0).result()
    calls = held.waits_for_room([elsewhere], 12.0)
    assert held.at_work(40.0) == [(mine, 40.0), (elsewhere, 40.0), (other, 10.0)]
    more = held.waits_for_room([], 20.0)
    held.has_room(calls, 50.0)
    assert held.at_work(51.0) == [(mine, 51.0), (elsewhere, 48.0), (other, 10.0)]
    held.has_room(more, 60.0)
    assert held.at_work(61.0) == [(mine, 58.0), (elsewhere, 48.0), (other, 10.0)]


def test_no_time_out_runs_while_emits_of_the_bolt_wait_for_room_or_the_process_stands() -> None:
    """Also of what the bolt holds for a pool of its own, which says not when work begins."""
    held, one, late = HeldTuples(), tup(1), tup(2)
    held.add(one, 10.0)
    first = held.waits_for_room([], 12.0)
    assert held.at_work_since(one, 40.0) == 38.0
    second = held.waits_for_room([], 30.0)
    held.has_room(first, 40.0)
    held.has_room(second, 52.0)
    held.add(late, 50.0)
    assert held.at_work_since(one, 53.0) == 50.0 and held.at_work_since(late, 53.0) == 52.0
    held.note_stood(50.0, 60.0)
    held.begins(late, 58.0)
    assert held.at_work_since(one, 61.0) == 58.0 and held.at_work_since(late, 61.0) == 60.0


def test_it_has_room_up_to_what_is_allowed_and_any_without_a_bound() -> None:
    held = HeldTuples()
    assert held.room(64) == 64
    held.bound(3)
    held.given.update({tup(1): 1.0, tup(2): 1.0})
    assert held.room(64) == 1
    held.allowed = 1
    assert held.room(64) == -1


def test_the_seconds_that_it_was_full_are_summed() -> None:
    held, one = HeldTuples(), tup()
    held.bound(1)
    assert not held.is_full(1.0) and held.full_s(5.0) == 0
    held.add(one, 5.0)
    assert held.is_full(5.0) and held.full_s(7.0) == 2.0
    held.let_go(one)
    assert not held.is_full(8.0) and held.full_s(20.0) == 3.0


def test_a_bolt_is_full_until_a_thread_has_settled_a_tuple_and_not_until_the_loop_hears_of_it() -> None:
    """The loop is in another bolt's call meanwhile: for as long as that takes no pool is slow."""
    held, one, other = HeldTuples(), tup(1), tup(2)
    held.bound(1)
    held.add(one, 5.0)
    assert held.is_full(5.0)
    held.leaves(one, 6.0)
    assert held.full_s(100.0) == 1.0 and held.is_full(100.0) and held.full_s(100.0) == 1.0
    assert held.waiting() == [one], "it is done: no time-out may take it for forgotten"
    held.let_go(one)
    held.add(other, 100.0)
    assert held.is_full(100.0) and held.full_s(103.0) == 4.0
    held.leaves(other, 103.0)
    held.let_go(other)
    held.add(one, 200.0)
    assert held.full_s(200.0) == 4.0, "also where nobody has asked in between"


def test_a_bolt_is_not_full_while_the_process_stands_or_nobody_takes_what_it_emits() -> None:
    """The loop is in another task's call: that says nothing of how fast this one is."""
    held, one = HeldTuples(), tup(1)
    held.bound(1)
    held.add(one, 1.0)
    assert held.is_full(2.0)
    held.note_stood(3.0, 10.0)
    assert held.full_s(12.0) == 3.0
    calls = held.waits_for_room([], 12.0)
    held.note_behind(13.0, 20.0)
    held.note_stood(15.0, 18.0)
    assert held.full_s(21.0) == 5.0, "a time counts once, whatever there is to be said for it"
    held.has_room(calls, 21.0)
    held.note_behind(22.0, 30.0)
    assert held.full_s(30.0) == 14.0, "it was slow itself"
    held.note_stood(30.0, 40.0, by_own_call=True)
    assert held.full_s(40.0) == 24.0, "so it was when its own call held the lock"
    held.let_go(one)
    assert not held.is_full(40.0)
    held.note_stood(40.0, 50.0)
    assert held.full_s(51.0) == 24.0


def test_no_time_is_counted_before_somebody_has_looked_whether_the_process_stood() -> None:
    """The loop may be the first to run again, and who ends a call may have held the lock in it."""
    one, looks = tup(1), []

    def look() -> None:
        looks.append([*held.calls])
        if len(looks) == 1:
            held.note_stood(3.0, 10.0)

    held = HeldTuples(look_if_missed=look)
    held.bound(1)
    held.add(one, 1.0)
    held.begins(one, 1.0)
    assert held.is_full(1.0) and held.full_s(11.0) == 3.0 and held.at_work_since(one, 11.0) == 8.0
    held.ends(one)
    assert looks == [[one]] * 3, "the call is under way for the one who looks"


def test_a_pool_that_is_done_before_it_is_seen_to_be_full_has_not_been_full() -> None:
    held, one = HeldTuples(), tup()
    held.bound(1)
    held.leaves(one, 4.9)
    held.add(one, 5.0)
    assert held.is_full(5.0) and held.is_full(50.0) and held.full_s(50.0) == 0.0


def test_of_a_batch_the_open_tuples_are_held_and_let_go_together() -> None:
    held = HeldTuples()
    batch = Batch([[1], [0], [2]], roots=[1, 0, 2], edges=[5, 0, 6])
    done, untracked, wanted = batch.tuples
    done.state = ACKED
    held.add_open(batch, 4.0, kept=False)
    held.batches[batch] = None
    assert held.given == {untracked: 4.0, wanted: 4.0} and held.untracked == 1
    held.let_batch_go(batch)
    assert not held and not held.batches and not held.untracked


def test_an_untracked_tuple_is_held_as_long_as_somebody_keeps_it_or_its_id() -> None:
    """A tracked one until it is settled, or its spout says that its tree is over."""
    dropped: list[Tuple] = []
    held = HeldTuples(dropped.append)
    kept, by_id = tup(0), tup(0).id
    held.add(kept, 1.0)
    held.add(kept, 1.0)
    held.add(by_id.tup, 1.0)
    held.add(tup(0), 1.0)
    held.add(tup(7), 1.0)
    assert held.untracked == 3
    held.forget_unreachable(SWEEP_S / 2)
    assert held.untracked == 3, "so few are looked for once a second"
    held.forget_unreachable(SWEEP_S)
    assert len(dropped) == 1 and held.untracked == 2 and kept in held.given and by_id.tup in held.given
    assert [each.root for each in held.given] == [0, 0, 7]
    del by_id
    held.let_go(kept)
    held.forget_unreachable()
    assert held.untracked == 0 and [each.root for each in held.given] == [7]
    assert len(dropped) == 2, "one that is settled is not dropped"


@pytest.mark.parametrize("keeps", ["nothing", "the batch", "a tuple"])
def test_of_an_untracked_batch_that_is_held_is_what_the_bolt_keeps(keeps: str) -> None:
    held = HeldTuples()
    batch = Batch([[1], [0], [2]], roots=[0, 0, 9], edges=[0, 0, 6])
    kept = batch.tuples[0] if keeps == "a tuple" else None
    held.add_open(batch, 4.0, kept=keeps == "the batch")
    assert held.untracked == {"nothing": 0, "the batch": 2, "a tuple": 1}[keeps]
    assert len(held) == held.untracked + 1
    assert kept is None or kept in held.given


def test_untracked_tuples_that_nobody_keeps_take_no_place() -> None:
    """A bolt with `max_unacked` that acks none of them would be given nothing more."""
    held, kept = HeldTuples(), tup(0)
    held.bound(2)
    held.add(kept, 1.0)
    held.add(tup(0), 1.0)
    assert not held.is_full(2.0) and held.room(64) == 1
    held.add(tup(7), 1.0)
    assert held.is_full(2.0)


def test_untracked_tuples_that_nobody_keeps_do_not_fill_the_memory() -> None:
    held = HeldTuples()
    kept = [tup(0) for _ in range(100)]
    for one in kept:
        held.add(one, 1.0)
    for _ in range(20):
        for _ in range(SWEEP_AT):
            held.add(tup(0), 1.0)
        held.forget_unreachable(1.0)
        assert 100 <= held.untracked < 100 + 2 * SWEEP_AT


def test_what_waits_for_a_thread_is_neither_begun_nor_over() -> None:
    """Without a word of when work begins nobody knows of it: then nothing is said to wait."""
    held, tuples = HeldTuples(), [tup(n) for n in range(1, 5)]
    for one in tuples:
        held.add(one, 1.0)
    assert held.waiting() == []
    begun, over, settled, waits = tuples
    for one in (begun, over, settled):
        held.begins(one, 2.0)
    held.ends(over)
    held.ends(settled)
    held.let_go(settled)
    assert held.waiting() == [waits]
    held.ends(settled)
    assert held.queued() == held.waiting() == [waits] and not held._over.keys() - {over}, (
        "what is held no more is forgotten"
    )
