"""What a bolt emits: its anchors and edges, its streams and readers, and emits of other threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet import Bolt, Stream, Tuple
from streamlet.base.errors import BadEmit
from streamlet.components.tuples import ACKED, OPEN
from streamlet.runtime.tasks.user_errors import place
from tests.unit.runtime.tasks.bolt_rig import DOWN, Rig, bolt


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


def test_task_ids_are_given_on_request() -> None:
    told: list[Any] = []

    def process(self: Bolt, tup: Tuple) -> None:
        told.append(self.emit([1]))
        told.append(self.emit([1], need_task_ids=True))

    Rig(bolt(process), readers=2).run((7, [0]))
    assert told == [None, [DOWN, DOWN + 1]]


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


def test_an_emit_goes_to_the_stream_it_names() -> None:
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


@pytest.mark.parametrize("row", [5, None, iter(["n"])])
@pytest.mark.parametrize("fields", [["x"], ["x", "y"]])
def test_a_row_without_a_length_is_refused_with_the_declared_fields(row: Any, fields: list[str]) -> None:
    rig = Rig(bolt(lambda self, tup: self.emit(row)), (Stream(fields),))
    rig.run((7, ["a"]))
    error = rig.reported[0][0]
    assert isinstance(error, BadEmit) and f"{len(fields)} field(s): {', '.join(fields)}" in str(error)


def test_the_payload_may_be_named_tup() -> None:
    """pystorm's name of the parameter: ``emit(tup=[...])``, with one field and with two, anchored and not."""
    rig = Rig(bolt(lambda self, tup: self.emit(tup=["one"])))
    rig.run((1, [0]))
    assert [values for _, _, values in rig.emitted()] == [["one"]]
    wide = Rig(
        bolt(lambda self, tup: (self.emit(tup=["a", 1]), self.emit(tup=["b", 2], anchors=[]))), (Stream(["v", "n"]),)
    )
    wide.run((1, [0]))
    assert [values for _, _, values in wide.emitted()] == [["a", 1], ["b", 2]]


@pytest.mark.parametrize("call", ["emit", "emit_many"])
def test_an_emit_that_its_loop_refuses_is_told_with_the_line_of_the_thread_that_called_it(call: str) -> None:
    """Its tuple was acked after the call and before the loop made it: no stack of the loop's has the line."""
    held: list[Tuple] = []
    rig = Rig(bolt(lambda self, tup: held.append(tup), auto_ack=False))
    rig.run((7, ["x"]))

    def emits_there() -> None:
        rig.task.emit([1], anchors=held) if call == "emit" else rig.task.emit_many([[1]], anchors=held)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(emits_there).result()
    rig.task.ack(held[0])
    for handed in rig.task.calls.take(9, emits=True):
        handed.act()
    ((error, _),) = rig.reported
    assert isinstance(error, BadEmit)
    assert place(error) == f"{__file__}:{emits_there.__code__.co_firstlineno + 1}"


@pytest.mark.parametrize("many", [False, True])
def test_an_emit_of_a_thread_for_a_tuple_that_is_settled_is_refused_there_or_counted(many: bool) -> None:
    """The loop dropped it, after the call had returned: the run ended well without it."""
    kept: list[Tuple] = []
    rig = Rig(bolt(lambda self, tup: kept.append(tup)))
    rig.run((7, [1]))
    calls: list[Callable[[], None]] = []
    rig.task.bolt_emits.calls = SimpleNamespace(  # type: ignore[assignment]  # those of another thread
        here=lambda: False,
        row=lambda emitter, values, *rest: [*values],
        put=lambda act, *rest, **named: calls.append(act),
        note_refused=lambda error, rows, has_open_anchor: None,
    )

    def emit() -> None:
        if many:
            rig.task.emit_many([[1], [2]], anchors=kept)
        else:
            rig.task.bolt_emits.emit_anywhere([1], anchors=kept)

    with pytest.raises(BadEmit, match="already acked or failed"):
        emit()
    kept[0].state = OPEN
    emit()
    kept[0].state = ACKED
    rig.task.bolt_emits.calls.here = lambda: True
    for act in calls:
        act()
    assert rig.task.stats.given_up == rig.task.stats.unreplayed == (2 if many else 1)
    assert rig.emitted() == []
