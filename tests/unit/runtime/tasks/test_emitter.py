"""Streams of a task: which tasks a tuple reaches, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.base.errors import BadEmit
from streamlet.components.columns import Columns
from streamlet.model.grouping import Grouping
from streamlet.model.stream import Stream
from streamlet.runtime.tasks.emitter import Emitter, StreamRoutes
from streamlet.runtime.tasks.routing import Target
from streamlet.runtime.tasks.runs import Outbox


def target(grouping: Grouping, tasks: int = 3) -> Target:
    return Target(grouping, (), tuple(Outbox(1, 10 + index, "default") for index in range(tasks)), ())


def routes(*targets: Target, direct: bool = False, fields: tuple[str, ...] = ("a",)) -> StreamRoutes:
    return StreamRoutes(Stream(fields, direct=direct), targets, lambda: 0.0)


def test_all_copies_to_every_task() -> None:
    assert [box.target for box in routes(target(Grouping.ALL)).boxes([1], None)] == [10, 11, 12]


def test_several_readers_each_get_their_own() -> None:
    both = routes(target(Grouping.GLOBAL), target(Grouping.ALL, tasks=2))
    assert [box.target for box in both.boxes([1], None)] == [10, 10, 11]


def test_direct_reaches_the_named_task_only() -> None:
    emitter = Emitter("bolt", [routes(target(Grouping.DIRECT), direct=True)])
    assert [box.target for box in emitter.routes(None, 11).boxes([1], 11)] == [11]


def test_a_direct_stream_without_a_task_is_refused() -> None:
    """It would reach nobody, and so be lost without a word."""
    emitter = Emitter("bolt", [routes(target(Grouping.DIRECT), direct=True)])
    with pytest.raises(BadEmit, match="direct_task"):
        emitter.routes(None, None)


def test_a_task_that_does_not_read_the_stream_is_refused() -> None:
    emitter = Emitter("bolt", [routes(target(Grouping.DIRECT), direct=True)])
    with pytest.raises(BadEmit, match=r"\[10, 11, 12\]"):
        emitter.routes(None, 99)


def test_a_stream_that_is_not_declared_names_what_is() -> None:
    with pytest.raises(BadEmit, match=r"'errors', which it does not declare \(declared: 'default'"):
        Emitter("bolt", [routes()]).routes("errors", None)
    with pytest.raises(BadEmit, match="declared: none"):
        Emitter("bolt", []).routes(None, None)


@pytest.mark.parametrize("values", [[], [1, 2], "x", b"x", (1, 2, 3), 5, None, object(), iter([1])])
def test_a_tuple_of_another_width_is_refused(values: object) -> None:
    emitter = Emitter("bolt", [routes()])
    with pytest.raises(BadEmit, match="1 field"):
        emitter.checked(values, emitter.routes(None, None))  # type: ignore[arg-type]


GROUPINGS = [
    (Grouping.fields("word"), (0,)),
    (Grouping.fields("n"), (1,)),
    (Grouping.fields("word", "n"), (0, 1)),
    (Grouping.fields("n", "word"), (1, 0)),
    (Grouping.SHUFFLE, ()),
    (Grouping.LOCAL_OR_SHUFFLE, ()),
    (Grouping.GLOBAL, ()),
]


@given(
    st.sampled_from(GROUPINGS),
    st.integers(1, 9),
    st.lists(st.lists(st.tuples(st.text(max_size=2), st.integers(0, 30) | st.floats() | st.none()), max_size=40)),
    st.lists(st.integers(0, 8), max_size=12),
)
def test_rows_emitted_at_once_go_where_they_go_one_by_one_in_order_and_as_copies(
    grouping: tuple[Grouping, tuple[int, ...]], tasks: int, calls: list[list[tuple[object, object]]], turns: list[int]
) -> None:
    """``turns``: the order of a shuffle that follows the load."""
    kind, key = grouping

    def routes() -> StreamRoutes:
        boxes = tuple(Outbox(1, 9 + n, "default") for n in range(tasks))
        order = [*boxes, *(boxes[turn % tasks] for turn in turns)]
        return StreamRoutes(Stream(["word", "n"]), [Target(kind, key, boxes, (), order)], lambda: 0.0)

    one, many = routes(), routes()
    for rows in calls:
        expected: dict[int, list[object]] = {}
        for row in rows:
            (box,) = one.boxes(row, None)
            expected.setdefault(box.target, []).append(list(row))
        columns = many.plain_columns(rows) if rows else None
        got = {} if columns is None else {box.target: [*columns.select(take)] for box, take in many.shares(columns)}
        assert repr(sorted(got.items())) == repr(sorted(expected.items()))  # nan is not equal to itself


def test_rows_of_a_stream_without_fields_are_looked_at_one_by_one() -> None:
    """As columns, they would not say how many they are."""
    routes = StreamRoutes(Stream([]), [Target(Grouping.SHUFFLE, (), (Outbox(1, 2, "default"),), ())], lambda: 0.0)
    assert routes.plain_columns([[], []]) is None


def test_columns_shared_out_are_lists_of_their_own() -> None:
    routes = StreamRoutes(Stream(["n"]), [Target(Grouping.SHUFFLE, (), (Outbox(1, 9, "default"),), ())], lambda: 0.0)
    given_ = Columns([[1, 2]])
    columns = routes.plain_columns(given_)
    assert columns is not None
    ((_, take),) = routes.shares(columns)
    columns.select(take).extend([[3]])
    assert given_.by_field == [[1, 2]]


def test_rows_that_are_not_plain_are_left_to_the_look_at_each() -> None:
    routes = StreamRoutes(
        Stream(["word", "n"]), [Target(Grouping.SHUFFLE, (), (Outbox(1, 9, "default"),), ())], lambda: 0.0
    )
    for wrong in (["a"], ["a", [1]], "ab", ["a", 1 << 64]):
        assert routes.plain_columns([["a", 1], wrong]) is None
    for columns in ([["a"]], [["a"], [[1]]], [["a"], [1], [2]], [["a", "b"], [1, -(1 << 63) - 1]]):
        assert routes.plain_columns(Columns(columns)) is None
