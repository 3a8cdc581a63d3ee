"""One definition of running a bolt: anchoring, acking, failing. Every tree is checked by XOR, as the acker does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from streamlet import Bolt, Stream, Tuple
from streamlet.base.clock import ManualClock
from streamlet.model.grouping import Grouping
from streamlet.runtime.bolt_task import SLICE, BoltTask
from streamlet.runtime.emitter import BadEmit, Emitter, StreamRoutes
from streamlet.runtime.outbox import Outbox, Run, Work
from streamlet.runtime.routing import Target

DOWN = 9


class Rig:
    """A bolt task between a scripted source and what it emits, with the tree values an acker would have."""

    def __init__(self, bolt: Bolt, streams: tuple[Stream, ...] = (Stream(["v"]),), readers: int = 1) -> None:
        self.clock = ManualClock()
        self.acks: dict[int, int] = {}
        self.fails: list[int] = []
        self.reported: list[tuple[BaseException, Tuple | None]] = []
        self.boxes = [Outbox(1, DOWN + n, "default") for n in range(readers)]
        random_bits = random.Random(1).getrandbits
        routes = [
            StreamRoutes(s, [Target(Grouping.SHUFFLE, (), (box,), ()) for box in self.boxes], lambda: 0.0)
            for s in streams
        ]
        self.task = BoltTask(
            bolt,
            Emitter("bolt", routes),
            self.acks,
            self.fails,
            random_bits,
            {5: "source"},
            self.clock,
            lambda error, tup: self.reported.append((error, tup)),
        )
        self.task._size = SLICE  # of a bolt that has shown to be fast
        self.trees: dict[int, int] = {}

    def run(self, *rows: tuple[int, list[Any]], multi: list[list[int]] | None = None) -> None:
        """Give the bolt tuples as (root, values); with ``multi``, each with several roots."""
        edges: list[Any] = []
        for index, (root, _) in enumerate(rows):
            roots = multi[index] if multi else [root]
            own = [1000 + 10 * index + n for n in range(len(roots))]
            for one, edge in zip(roots, own, strict=True):
                if one:
                    self.trees[one] = self.trees.get(one, 0) ^ edge
            edges.append(own if multi else own[0])
        first = multi if multi else [root for root, _ in rows]
        run = Run(1, 5, "default", bool(multi), first, edges, [values for _, values in rows])  # type: ignore[arg-type]
        self.task.execute(Work(run), until=1e9)

    def emitted(self) -> list[tuple[Any, Any, Any]]:
        """(root, edge, values) of everything emitted so far, which is taken."""
        rows = []
        for box in self.boxes:
            for run in box.take():
                rows += list(zip(run.roots, run.edges, run.values, strict=True))
        return rows

    def open_trees(self, emitted: list[tuple[Any, Any, Any]]) -> dict[int, int]:
        """The trees once this turn's deltas and all that was emitted are acked; {} means that each is complete."""
        trees = dict(self.trees)
        for root, delta in self.acks.items():
            if root:
                trees[root] = trees.get(root, 0) ^ delta
        for root, edge, _ in emitted:
            pairs = zip(root, edge, strict=True) if isinstance(root, list) else [(root, edge)]
            for one, part in pairs:
                if one:
                    trees[one] = trees.get(one, 0) ^ part
        return {root: value for root, value in trees.items() if value}


def bolt(process: Callable[[Any, Tuple], None], **attributes: Any) -> Bolt:
    made: Bolt = type("Made", (Bolt,), {"process": process, **attributes})()
    return made


def test_each_tree_is_complete_when_all_that_was_emitted_is_acked() -> None:
    def process(self: Bolt, tup: Tuple) -> None:
        for n in range(tup.values[0]):
            self.emit([n])

    rig = Rig(bolt(process))
    rig.run((7, [0]), (7, [2]), (8, [3]), (7, [1]), (8, [0]))
    emitted = rig.emitted()
    assert len(emitted) == 6 and rig.open_trees(emitted) == {}
    assert rig.open_trees(emitted[1:]) != {}, "a tree must not be complete without one of its tuples"
    assert rig.task.stats.acked == 5 and rig.fails == []


def test_untracked_tuples_make_untracked_tuples() -> None:
    rig = Rig(bolt(lambda self, tup: self.emit([1])))
    rig.run((0, [1]), (7, [1]), (0, [1]))
    assert [root for root, _, _ in rig.emitted()] == [0, 7, 0]


def test_an_exception_fails_its_tuple_only() -> None:
    def process(self: Bolt, tup: Tuple) -> None:
        self.emit([0])
        if tup.values[0] == "bad":
            raise KeyError("oh")

    rig = Rig(bolt(process))
    rig.run((7, ["good"]), (8, ["bad"]), (9, ["good"]))
    assert rig.fails == [8] and [str(error) for error, _ in rig.reported] == ["'oh'"]
    assert set(rig.open_trees(rig.emitted())) == {8}
    stats = rig.task.stats
    assert (stats.acked, stats.failed, stats.errors, stats.executed) == (2, 1, 1, 3)


def test_without_auto_fail_an_exception_leaves_the_tree_open() -> None:
    rig = Rig(bolt(lambda self, tup: 1 / 0, auto_fail=False))
    rig.run((7, [0]))
    assert rig.fails == [] and rig.acks == {} and len(rig.reported) == 1


def test_without_auto_ack_the_bolt_acks_when_it_likes() -> None:
    held: list[Tuple] = []
    one = bolt(lambda self, tup: held.append(tup), auto_ack=False)
    rig = Rig(one)
    rig.run((7, [0]), (8, [0]))
    assert rig.acks == {} and rig.task.stats.acked == 0
    for tup in held:
        one.emit([1], anchors=[tup])
        one.ack(tup)
    assert rig.open_trees(rig.emitted()) == {} and rig.task.stats.acked == 2


def test_a_second_ack_changes_nothing() -> None:
    """XOR would undo the first: the tree would never complete, or complete too soon."""

    def process(self: Bolt, tup: Tuple) -> None:
        self.ack(tup)
        self.ack(tup)

    rig = Rig(bolt(process))
    rig.run((7, [0]))
    assert rig.open_trees([]) == {} and rig.task.stats.acked == 1


def test_an_ack_after_a_fail_changes_nothing_and_the_reverse() -> None:
    def process(self: Bolt, tup: Tuple) -> None:
        first, second = (self.fail, self.ack) if tup.values[0] else (self.ack, self.fail)
        first(tup)
        second(tup)

    rig = Rig(bolt(process))
    rig.run((7, [True]), (8, [False]))
    assert rig.fails == [7] and set(rig.acks) == {8}
    assert (rig.task.stats.acked, rig.task.stats.failed) == (1, 1)


@pytest.mark.parametrize("how", ["ack", "fail"])
def test_emitting_with_an_anchor_that_is_done_is_refused(how: str) -> None:
    """Its tree could never complete, or was completed without the new tuple."""

    def process(self: Bolt, tup: Tuple) -> None:
        getattr(self, how)(tup)
        self.emit([1])

    rig = Rig(bolt(process, auto_ack=False))
    rig.run((7, [0]))
    ((error, _),) = rig.reported
    assert isinstance(error, BadEmit) and "already acked" in str(error) and rig.emitted() == []


def test_emitting_later_with_an_anchor_that_was_acked_by_itself_is_refused() -> None:
    held: list[Tuple] = []

    def process(self: Bolt, tup: Tuple) -> None:
        if held:
            self.emit([1], anchors=[held[0]])
        held.append(tup)

    rig = Rig(bolt(process))
    rig.run((7, [0]), (8, [0]))
    assert isinstance(rig.reported[0][0], BadEmit) and rig.fails == [8]


def test_no_anchors_make_an_untracked_tuple() -> None:
    rig = Rig(bolt(lambda self, tup: self.emit([1], anchors=[])))
    rig.run((7, [0]))
    emitted = rig.emitted()
    assert [root for root, _, _ in emitted] == [0] and rig.open_trees([]) == {}


def test_without_auto_anchor_nothing_is_anchored_unless_asked() -> None:
    def process(self: Bolt, tup: Tuple) -> None:
        self.emit([1])
        self.emit([2], anchors=[tup])

    rig = Rig(bolt(process, auto_anchor=False))
    rig.run((7, [0]))
    emitted = rig.emitted()
    assert [root for root, _, _ in emitted] == [0, 7] and rig.open_trees(emitted) == {}


def joiner(size: int) -> Bolt:
    held: list[Tuple] = []

    def process(self: Bolt, tup: Tuple) -> None:
        held.append(tup)
        if len(held) == size:
            self.emit([1], anchors=held)
            for one in held:
                self.ack(one)
            held.clear()

    return bolt(process, auto_ack=False)


@pytest.mark.parametrize("roots", [(7, 8), (7, 8, 9), (7, 7), (7, 7, 8), (7, 0), (0, 0), (7, 7, 7)])
def test_a_tuple_with_several_anchors_belongs_to_every_tree(roots: tuple[int, ...]) -> None:
    """Two anchors of one tree must not cancel: a shared edge XORed in twice would be gone."""
    rig = Rig(joiner(len(roots)))
    rig.run(*((root, [0]) for root in roots))
    emitted = rig.emitted()
    assert len(emitted) == 1
    assert rig.open_trees(emitted) == {}
    assert set(rig.open_trees([])) == {root for root in roots if root}, "acked without the joined tuple"


def test_a_tuple_of_several_roots_passes_all_of_them_on() -> None:
    rig = Rig(bolt(lambda self, tup: [self.emit([n]) for n in range(3)]))
    rig.run((0, [0]), (0, [0]), multi=[[7, 8], [9, 7]])
    emitted = rig.emitted()
    assert [sorted(roots) for roots, _, _ in emitted] == [[7, 8]] * 3 + [[7, 9]] * 3
    assert rig.open_trees(emitted) == {} and rig.task.stats.acked == 2
    assert rig.open_trees(emitted[:-1]) != {}


def test_a_failed_tuple_of_several_roots_fails_all_of_them() -> None:
    rig = Rig(bolt(lambda self, tup: self.fail(tup)))
    rig.run((0, [0]), multi=[[7, 8]])
    assert sorted(rig.fails) == [7, 8]


def test_joined_and_plain_tuples_keep_their_order() -> None:
    """Another kind of tuple closes the run at hand, and the next emit is of the first kind again."""
    held: list[Tuple] = []

    def process(self: Bolt, tup: Tuple) -> None:
        self.emit([tup.values[0]])
        if tup.values[0] == 2:
            self.emit(["joined"], anchors=[held[0], tup])
            self.emit(["after"])
        held.append(tup)

    rig = Rig(bolt(process, auto_ack=False))
    rig.run((7, [1]), (8, [2]), (9, [3]))
    assert [values for _, _, values in rig.emitted()] == [[1], [2], ["joined"], ["after"], [3]]


def test_every_reader_gets_an_edge_of_its_own() -> None:
    rig = Rig(bolt(lambda self, tup: self.emit([1])), readers=3)
    rig.run((7, [0]))
    emitted = rig.emitted()
    assert len({edge for _, edge, _ in emitted}) == 3 and rig.open_trees(emitted) == {}


def test_task_ids_on_request() -> None:
    told: list[Any] = []

    def process(self: Bolt, tup: Tuple) -> None:
        told.append(self.emit([1]))
        told.append(self.emit([1], need_task_ids=True))

    Rig(bolt(process), readers=2).run((7, [0]))
    assert told == [None, [DOWN, DOWN + 1]]


def test_a_tick_is_no_tuple_of_any_tree() -> None:
    ticks: list[Tuple] = []

    def process_tick(self: Bolt, tup: Tuple) -> None:
        ticks.append(tup)
        self.emit([tup.values[0]])

    rig = Rig(bolt(lambda self, tup: None, process_tick=process_tick))
    rig.run((7, [0]))
    rig.task.tick(2.0)
    assert Bolt.is_tick(ticks[0]) and [(root, values) for root, _, values in rig.emitted()] == [(0, [2.0])]


def test_a_tick_that_raises_is_reported_and_hurts_no_tuple() -> None:
    rig = Rig(bolt(lambda self, tup: None, process_tick=lambda self, tup: 1 / 0))
    rig.task.tick(1.0)
    assert [(type(error), tup) for error, tup in rig.reported] == [(ZeroDivisionError, None)] and rig.fails == []


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


def test_auto_anchor_may_be_set_in_initialize() -> None:
    """Of every value's type; and what a bolt has put around its emit stays."""
    for values in (["text"], [7]):
        made = bolt(lambda self, tup, values=values: self.emit(values))
        rig = Rig(made)
        made.auto_anchor = False
        rig.task.initialized()
        rig.run((7, ["a"]))
        assert [row[0] for row in rig.emitted()] == [0]
    wrapped: list[Any] = []
    made.emit = wrapped.append  # type: ignore[method-assign]
    rig.task.initialized()
    rig.run((7, ["a"]))
    assert wrapped == [[7]]


def test_slices_are_as_long_as_a_bolt_is_fast() -> None:
    """One tuple of a bolt that takes its time, and of one not known yet; more of it once it has become fast."""
    sizes: list[int] = []
    took_s = [0.2]

    class Moody(Bolt):
        def process(self, tup: Tuple) -> None:
            sizes[-1] += 1
            rig.clock.advance(took_s[0])

    rig = Rig(Moody())
    rig.task._size = 1
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


def test_streams_by_name() -> None:
    def process(self: Bolt, tup: Tuple) -> None:
        self.emit([1])
        self.emit([2, 3], stream="errors")
        self.emit([4])

    rig = Rig(bolt(process), (Stream(["v"]), Stream(["a", "b"], name="errors")))
    rig.run((7, [0]))
    runs = rig.boxes[0].take()
    assert [(run.stream, run.values) for run in runs] == [("default", [[1]]), ("errors", [[2, 3]]), ("default", [[4]])]
    emitted = [row for run in runs for row in zip(run.roots, run.edges, run.values, strict=True)]
    assert rig.open_trees(emitted) == {}


def test_anchors_may_be_any_iterable() -> None:
    """An iterator is spent by the first look at it: what was emitted would be tracked by nobody."""
    rig = Rig(bolt(lambda self, tup: self.emit([1], anchors=iter([tup]))))
    rig.run((7, ["a"]))
    rows = rig.emitted()
    assert [root for root, _, _ in rows] == [7]
    assert rig.open_trees(rows) == {}


@pytest.mark.parametrize("row", [{"a": 1}, {0: "a"}, {"a"}, "n", b"n", {"a": 1, "b": 2}, {"a", "b"}, "no", b"no"])
def test_a_row_is_a_sequence_of_values(row: Any) -> None:
    """A dict or a set has as many members as a row has fields, and they are not the row's values."""
    rig = Rig(bolt(lambda self, tup: self.emit(row)), (Stream(["x", "y"][: len(row)]),))
    rig.run((7, ["a"]))
    assert rig.emitted() == []
    assert isinstance(rig.reported[0][0], BadEmit)


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
