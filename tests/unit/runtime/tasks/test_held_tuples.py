"""What a bolt holds: since when, how much more it may be given, and what becomes of a batch."""

from __future__ import annotations

from streamlet.components.batch import Batch
from streamlet.components.tuples import ACKED, Tuple
from streamlet.runtime.tasks.held_tuples import HeldTuples


def tup(root: int = 1) -> Tuple:
    return Tuple([root], "numbers", "default", 1, root, root)


def test_work_on_a_tuple_begins_when_a_thread_says_so_and_is_forgotten_with_it() -> None:
    held, one = HeldTuples(), tup()
    held.given[one] = 10.0
    assert held.at_work_since(one) == 10.0 and held.at_work() == [(one, 10.0)]
    held.begins(one, 12.0)
    assert held.at_work_since(one) == 12.0 and held.at_work() == [(one, 12.0)]
    assert held.let_go(one) == 10.0 and not held and held.at_work() == []
    assert held.let_go(one) is None


def test_work_may_begin_before_the_tuple_is_noted_as_held() -> None:
    """A thread is at work on it while ``process`` returns."""
    held, one = HeldTuples(), tup()
    held.begins(one, 12.0)
    held.given[one] = 12.1
    assert held.at_work_since(one) == 12.0 and held.at_work() == [(one, 12.0)]
    held.let_go(one)
    assert held.at_work() == []


def test_a_tuple_that_is_held_on_after_its_call_is_not_at_work() -> None:
    """A bolt with ``auto_fail = False`` keeps what raised: no call of it hangs."""
    held, one = HeldTuples(), tup()
    held.given[one] = 10.0
    held.begins(one, 10.0)
    held.ends(one)
    assert held.at_work() == [] and held.at_work_since(one) == 10.0


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
    held.given[one] = 5.0
    assert held.is_full(5.0) and held.full_s(7.0) == 2.0
    held.let_go(one)
    assert not held.is_full(8.0) and held.full_s(20.0) == 3.0


def test_of_a_batch_the_open_tracked_tuples_are_held_and_let_go_together() -> None:
    held = HeldTuples()
    batch = Batch([[1], [0], [2]], roots=[1, 0, 2], edges=[5, 0, 6])
    done, _untracked, wanted = batch.tuples
    done.state = ACKED
    held.add_open(batch, 4.0)
    held.batches[batch] = None
    assert held.given == {wanted: 4.0} and held.untracked() == 0
    held.let_batch_go(batch)
    assert not held and not held.batches
