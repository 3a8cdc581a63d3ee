"""What becomes of old trees: none with a tuple anywhere between two workers ever counts as nobody's."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from streamlet.tracking.census import Answer, Census, CensusResult
from streamlet.tracking.overdue import MOST_ASKED, NOBODY, Overdue
from streamlet.tracking.roots import STEP, first_root, roots_of_set
from tests.seeds import seeds

NOTHING = {"queued": 0, "wait_s": 0.0, "slowest": 0, "settled": True, "waiting": {}, "held": {}, "loads": []}


def found(**of: Any) -> CensusResult:
    return CensusResult(**{**NOTHING, **of})


def test_nobodys_tree_times_out_after_two_rounds_in_a_row_without_it() -> None:
    overdue, trees = Overdue(10.0), {4: 77, 6: 88}
    overdue.add([4])
    assert overdue.asked(trees, 10.0) == 5
    assert overdue.judge(found(), 5, trees, 10.0) == {} and overdue.in_doubt
    assert overdue.asked(trees, 10.1) == 5
    assert overdue.judge(found(), 5, trees, 10.1) == {4: NOBODY} and not overdue.in_doubt


@pytest.mark.parametrize("why", ["it moved", "frames are on their way"])
def test_a_tree_that_may_be_between_two_workers_does_not_time_out(why: str) -> None:
    overdue, trees = Overdue(10.0), {4: 77}
    overdue.add([4])
    for _ in range(100):
        bound = overdue.asked(trees, 10.0)
        if why == "it moved":
            trees[4] += 1
        assert overdue.judge(found(settled=why == "it moved"), bound, trees, 10.0) == {}


def test_a_tree_that_was_queued_is_looked_for_again_later() -> None:
    overdue, trees = Overdue(10.0), {4: 77}
    overdue.add([4])
    bound = overdue.asked(trees, 10.0)
    assert overdue.judge(found(waiting={4: 3}), bound, trees, 10.0) == {}
    assert overdue.asked(trees, 12.0) == 0
    assert overdue.asked(trees, 13.0) == 5


def test_a_tree_times_out_when_a_bolt_has_held_it_for_the_whole_timeout() -> None:
    overdue, trees = Overdue(10.0), {4: 77}
    overdue.add([4])
    bound = overdue.asked(trees, 10.0)
    assert overdue.judge(found(held={4: (3, 4.0)}), bound, trees, 10.0) == {}
    assert overdue.asked(trees, 15.9) == 0, "it was given to the bolt at 6"
    bound = overdue.asked(trees, 16.0)
    assert overdue.judge(found(held={4: (3, 10.0)}), bound, trees, 16.0) == {4: 3}


def test_a_tree_of_which_one_tuple_is_held_and_one_queued_has_not_timed_out() -> None:
    overdue, trees = Overdue(10.0), {4: 77}
    overdue.add([4])
    bound = overdue.asked(trees, 10.0)
    assert overdue.judge(found(held={4: (3, 40.0)}, waiting={4: 3}), bound, trees, 10.0) == {}


def test_a_tree_that_is_done_meanwhile_is_forgotten() -> None:
    overdue, trees = Overdue(10.0), {4: 77}
    overdue.add([4])
    bound = overdue.asked(trees, 10.0)
    trees.clear()
    assert overdue.judge(found(), bound, trees, 10.0) == {}
    assert overdue.asked(trees, 99.0) == 0


def test_one_round_asks_for_so_many_trees_that_an_answer_fits_into_a_frame() -> None:
    overdue = Overdue(10.0)
    trees = dict.fromkeys(range(STEP, (MOST_ASKED + 500) * STEP, STEP), 1)
    overdue.add(trees)
    bound = overdue.asked(trees, 10.0)
    assert sum(root < bound for root in trees) == MOST_ASKED
    assert overdue.judge(found(), bound, trees, 10.0) == {}


def test_a_set_of_trees_is_looked_for_as_one_with_all_its_roots() -> None:
    roots = roots_of_set(first_root(1, 1), 100)
    overdue, trees = Overdue(10.0), {roots.start: 77}
    overdue.add(trees)
    bound = overdue.asked(trees, 10.0)
    assert bound > roots[-1], "a tuple of its last tree is looked for, too"
    assert overdue.judge(found(waiting={roots.start: 3}, held={roots[7]: (3, 40.0)}), bound, trees, 10.0) == {}
    bound = overdue.asked(trees, 13.0)
    held = {roots[7]: (3, 9.0), roots[8]: (4, 11.0), roots[9]: (5, 1.0)}
    assert overdue.judge(found(held=held), bound, trees, 13.0) == {roots.start: 4}


# -- no conclusion too early -----------------------------------------------------------------------------------------


@dataclass
class Worker:
    """A queue of one tree's tuples, links to the others, and counts of frames."""

    queue: list[int] = field(default_factory=list)
    links: dict[int, deque[Any]] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)
    received: dict[int, int] = field(default_factory=dict)

    def send(self, to: int, frame: Any) -> None:
        self.links[to].append(frame)
        self.sent[to] = self.sent.get(to, 0) + 1


@pytest.mark.parametrize("seed", seeds("census"))
def test_10000_steps_of_a_tuple_among_four_workers_never_look_like_nobodys(seed: int) -> None:
    """It hops at random, one link at a time stands still, worker 0 asks all the time: the tree never times out."""
    rng = random.Random(seed)
    workers = [Worker(links={to: deque() for to in range(4)}) for _ in range(4)]
    edge = rng.getrandbits(64)
    workers[1].queue.append(edge)
    trees, overdue, census, bound = {4: edge}, Overdue(10.0), Census(range(4), 0), 0
    overdue.add([4])

    def judged(whole: CensusResult | None) -> None:
        if whole is not None:
            assert overdue.judge(whole, bound, trees, 0.0) == {}
            overdue.add([4])

    def answered(worker: int, number: int) -> Answer:
        mine = workers[worker]
        return Answer(number, 0, 0.0, 0, {}, {}, {}, [], 0.0)._replace(
            sent={**mine.sent}, received={**mine.received}, waiting={4: 3} if mine.queue else {}
        )

    still = (1, 2)
    for step in range(10_000):
        if step % 300 == 0:
            still = rng.choice([(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)])
        here = rng.randrange(4)
        mine, act = workers[here], rng.random()
        if act < 0.3 and mine.queue:  # processed: a child for another worker, and the delta for worker 0
            old, child = mine.queue.pop(), rng.getrandbits(64)
            to = rng.choice([other for other in range(4) if other != here])
            mine.send(to, ("tuple", child))
            if here == 0:
                trees[4] ^= old ^ child
            else:
                mine.send(0, ("delta", old ^ child))
        elif act < 0.9:
            sender = rng.choice([other for other in range(4) if other != here])
            if workers[sender].links[here] and (sender, here) != still:
                kind, value = workers[sender].links[here].popleft()
                mine.received[sender] = mine.received.get(sender, 0) + 1
                if kind == "tuple":
                    mine.queue.append(value)
                elif kind == "delta":
                    trees[4] ^= value
                elif kind == "ask":
                    mine.send(sender, ("answer", answered(here, value)))
                else:
                    judged(census.take(sender, value))
        elif here == 0 and not census.asking:
            bound = overdue.asked(trees, 0.0)
            number = census.begin()
            for to in (1, 2, 3):
                mine.send(to, ("ask", number))
            judged(census.take(0, answered(0, number)))
