"""Bolts under suspicion share one tuple at a time, and none waits for ever."""

from __future__ import annotations

from typing import Any

from streamlet import Bolt, Tuple
from streamlet.runtime.worker.one_by_one import PATIENCE_S, OneByOne
from tests.unit.runtime.tasks.bolt_rig import Rig


class Holds(Bolt):
    auto_ack = False
    answers_for_untracked = True

    def process(self, tup: Tuple) -> None:
        pass


def bolts(*tasks: int) -> list[Any]:
    rigs = [Rig(Holds()) for _ in tasks]
    for task, rig in zip(tasks, rigs, strict=True):
        rig.task.task_id = task
    return [rig.task for rig in rigs]


def tup(root: int) -> Tuple:
    return Tuple(["x"], "c", "s", 1, root)


def test_while_one_suspect_holds_a_tuple_no_other_gets_one() -> None:
    one, other = bolts(2, 3)
    suspects = OneByOne()
    assert not suspects
    suspects.suspect([one, other], 10.0, 120.0)
    assert suspects and 2 in suspects and suspects.waiting(10.0) == set()
    one.held.add(tup(1), 10.0)
    assert suspects.waiting(10.0) == {2, 3}
    one.held.given.clear()
    one.stats.acked += 1
    assert suspects.waiting(10.1) == set()
    other.held.given.update({tup(1): 10.0, tup(2): 10.0})  # from before it was suspected
    one.held.add(tup(3), 10.0)
    assert suspects.waiting(10.2) == {2, 3}


def test_one_that_only_keeps_tuples_until_it_has_more_waits_for_nothing() -> None:
    class Keeps(Holds):
        answers_for_untracked = False

    task, suspects = Rig(Keeps()).task, OneByOne()
    suspects.suspect([task], 10.0, 120.0)
    task.held.add(tup(1), 10.0)
    assert suspects.waiting(10.1) == set() and task.held.allowed == 0


def test_where_none_is_settled_all_suspects_get_as_many_again() -> None:
    """The one that holds tuples may wait for what only another has to send on."""
    one, other = bolts(2, 3)
    suspects = OneByOne()
    suspects.suspect([one, other], 10.0, 120.0)
    one.held.add(tup(1), 10.0)
    assert suspects.waiting(10.0) == {2, 3}
    assert suspects.waiting(10.0 + PATIENCE_S) == set() and (one.held.allowed, other.held.allowed) == (2, 1)
    other.held.add(tup(2), 10.3)
    assert suspects.waiting(10.3) == {2, 3}
    assert suspects.waiting(10.3 + PATIENCE_S) == set() and (one.held.allowed, other.held.allowed) == (3, 3)
    one.held.given.update({tup(3): 10.6, tup(4): 10.6})
    assert suspects.waiting(10.6) == {2, 3}
    one.held.given.clear()  # all three at once: so it works, and it keeps its room
    one.stats.acked += 3
    assert suspects.waiting(10.7) == set() and one.held.allowed == 3


def test_where_a_single_one_was_only_slow_they_go_back_to_one_with_more_patience() -> None:
    (one,) = bolts(2)
    suspects = OneByOne()
    suspects.suspect([one], 10.0, 120.0)
    slow, second = tup(1), tup(2)
    one.held.add(slow, 10.0)
    suspects.waiting(10.0)
    assert suspects.waiting(10.3) == set()
    one.held.add(second, 10.3)
    assert suspects.waiting(10.4) == {2}
    one.held.let_go(slow)
    one.stats.acked += 1
    assert suspects.waiting(10.5) == {2} and one.held.allowed == 1
    assert suspects.waiting(10.5 + PATIENCE_S) == {2}, "twice as long as before"
    one.held.let_go(second)
    one.stats.failed += 1
    assert suspects.waiting(10.8) == set()


def test_a_plain_suspect_that_acks_one_by_one_takes_no_room_away() -> None:
    class Plain(Bolt):
        def process(self, tup: Tuple) -> None:
            pass

    (one,), plain, suspects = bolts(2), Rig(Plain()).task, OneByOne()
    plain.task_id = 3
    suspects.suspect([one, plain], 10.0, 120.0)
    one.held.add(tup(1), 10.0)
    suspects.waiting(10.0)
    assert suspects.waiting(10.0 + PATIENCE_S) == set() and one.held.allowed == 2
    plain.stats.acked += 1
    assert suspects.waiting(10.3) == set() and one.held.allowed == 2


def test_suspicion_ends_with_its_time_and_a_death_elsewhere_does_not_end_it() -> None:
    (one,) = bolts(2)
    suspects = OneByOne()
    suspects.suspect([one], 10.0, 120.0)
    suspects.suspect([], 10.1, 0.0)
    one.held.add(tup(1), 10.0)
    assert suspects.waiting(10.2) == {2}
    assert suspects.waiting(130.2) == set() and not suspects and one.held.allowed == 0
