"""How many tuples a bolt gets between two looks at the clock, and which objects they are."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet import Batch, Bolt, Tuple
from streamlet.runtime.tasks.batch_bound import BatchBound
from streamlet.runtime.tasks.emitter import Run, Work
from streamlet.runtime.tasks.in_hand import CallWatch
from streamlet.runtime.tasks.slices import SLICE, SliceSize
from tests.unit.runtime.tasks.bolt_rig import Rig, bolt


def test_a_long_run_is_left_where_the_time_ended() -> None:
    """A slow bolt lets the loop read and send between slices; the rest waits, in order."""
    seen: list[int] = []

    class Slow(Bolt):
        def process(self, tup: Tuple) -> None:
            seen.append(tup.values[0])

    rig = Rig(Slow())
    rows = [[n] for n in range(3 * SLICE + 5)]
    work = Work(Run(1, 5, "default", False, [7] * len(rows), list(range(len(rows))), rows))
    turns = 0
    while work.left > 0:
        rig.task.execute(work, until=0.0)
        turns += 1
    assert turns == 4 and seen == list(range(len(rows)))
    assert rig.task.stats.acked == rig.task.stats.executed == len(rows)


def test_a_bolt_is_not_slow_for_the_time_in_which_its_thread_could_not_go_on() -> None:
    """Another's call held the interpreter's lock: its own took 2 s of the 8."""
    looked: list[tuple[Any, ...]] = []

    class Waits(Bolt):
        def process(self, tup: Tuple) -> None:
            rig.clock.advance(8.0)

    rig = Rig(Waits())
    rig.task.watch = CallWatch(1.0, lambda *call: looked.append(call) or 6.0)
    rig.run((7, ["a"]))
    (look,) = looked
    assert look[1:] == ("process", 0.0, " on a tuple from source, ['a']")
    assert rig.task.stats.busy_s == rig.task.taken_s(8.0) == 2.0


def test_a_batch_of_a_last_try_says_nothing_of_how_long_tuples_take() -> None:
    """A call has a cost of its own: one tuple took as long as a hundred, and the others came one by one after it."""
    sizes: list[int] = []

    class Inserts(Bolt):
        batch_size = 100

        def process_batch(self, batch: Batch) -> None:
            sizes.append(len(batch))
            rig.clock.advance(0.05)

    rig = Rig(Inserts())
    rig.task.slices = SliceSize(100, 7.5)
    roots = [4] * 300 + ([6] + [8] * 100) * 3 + [12] * 50 + [6] + [16] * 100
    edges, rows = [*range(len(roots))], [[n] for n in range(len(roots))]
    rig.task.execute(Work(Run(1, 5, "default", False, roots, edges, rows)), until=1e9)
    known = sizes[sizes.index(100) + 3 :]  # behind the rest of the first run, by when its pace is known
    assert known.count(1) == 4 and set(known) == {100, 50, 1}


def test_slices_are_as_long_as_a_bolt_is_fast() -> None:
    """One tuple of a bolt that takes its time, and of one not known yet; more of it once it has become fast."""
    sizes: list[int] = []
    took_s = [0.2]

    class Moody(Bolt):
        def process(self, tup: Tuple) -> None:
            sizes[-1] += 1
            rig.clock.advance(took_s[0])

    rig = Rig(Moody())
    rig.task.slices.size = 1
    rows = [[n] for n in range(6 * SLICE)]
    work = Work(Run(1, 5, "default", False, [7] * len(rows), list(range(len(rows))), rows))

    def turn() -> int:
        sizes.append(0)
        rig.task.execute(work, until=0.0)
        return sizes[-1]

    assert [turn() for _ in range(3)] == [1, 1, 1]
    took_s[0] = 0.0
    assert [turn() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 64, 64]
    took_s[0] = 0.0009
    assert [turn(), turn()] == [64, 2]


@pytest.mark.parametrize(("took_s", "wanted"), [(0.0001, [1, 1, 1]), (0.00001, [127, 160])])
def test_a_bolts_turn_ends_when_many_bytes_were_emitted(took_s: float, wanted: list[int]) -> None:
    """Where tuples take long, after each slice; of a fast bolt, after a thousandth of a second."""
    sizes: list[int] = []
    rows = [[n] for n in range(6 * SLICE)]

    class Making(Bolt):
        def process(self, tup: Tuple) -> None:
            sizes[-1] += 1
            rig.clock.advance(took_s)

    rig = Rig(Making())
    rig.task.slices.size = 1
    rig.task._emitted_much = lambda: True
    work = Work(Run(1, 5, "default", False, [7] * len(rows), list(range(len(rows))), rows))
    for _ in wanted:
        sizes.append(0)
        rig.task.execute(work, until=1e9)
    assert sizes == wanted and work.left == len(rows) - sum(wanted)


@pytest.mark.parametrize("how", ["list", "closure", "generator", "traceback"])
def test_a_tuple_somebody_keeps_is_not_filled_again(how: str) -> None:
    """However it is kept; one that nobody keeps is."""
    kept: list[Any] = []

    def keep(self: Any, tup: Tuple) -> None:
        if how == "list":
            kept.append(tup)
        elif how == "closure":
            kept.append(lambda: tup)
        elif how == "generator":
            kept.append(tup for _ in range(1))
        else:
            try:
                raise ValueError
            except ValueError as error:
                kept.append(error)

    def value(one: Any) -> Any:
        if how == "traceback":
            return one.__traceback__.tb_frame.f_locals["tup"].values
        return {"list": lambda: one, "closure": lambda: one(), "generator": lambda: next(one)}[how]().values

    rig = Rig(bolt(keep))
    rig.run(*[(root, [root]) for root in range(1, 6)])
    assert [value(one) for one in kept] == [[1], [2], [3], [4], [5]]
    seen: set[int] = set()
    Rig(bolt(lambda self, tup: seen.add(id(tup)))).run(*[(root, [root]) for root in range(1, 6)])
    assert len(seen) == 1


def test_a_batch_is_bounded_by_what_the_tuples_of_the_calls_before_cost() -> None:
    """Of 0.1 s each, and a call of 0.5 s at most: the first takes all that waits, since nobody knows that yet."""
    sizes: list[int] = []

    class SlowRows(Bolt):
        batch_size = 64

        def process_batch(self, batch: Batch) -> None:
            sizes.append(len(batch))
            rig.clock.advance(0.1 * len(batch))

    rig = Rig(SlowRows())
    rig.task.slices.batches = BatchBound(64, target_s=2.0)
    rig.run(*[(7, [n]) for n in range(20)])
    rig.run(*[(7, [n]) for n in range(20)])
    assert sizes == [20, 5, 5, 5, 5] and rig.task.stats.acked == 40
