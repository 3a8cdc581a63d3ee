"""Groupings at work: which tasks a tuple reaches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.base.errors import BadEmit
from streamlet.components.columns import Columns
from streamlet.model.grouping import Grouping
from streamlet.model.stream import Stream
from streamlet.runtime.tasks import emitter as routing
from streamlet.runtime.tasks.emitter import Emitter, Outbox, StreamRoutes, Target, picker, row_bytes
from streamlet.runtime.tasks.values import key_hash


def zero() -> float:
    return 0.0


def target(grouping: Grouping, tasks: int = 3, local: tuple[int, ...] = (), key: tuple[int, ...] = ()) -> Target:
    boxes = tuple(Outbox(1, 10 + index, "default") for index in range(tasks))
    return Target(grouping, key, boxes, tuple(boxes[index] for index in local))


def picked(
    grouping: Grouping, rows: list[list[object]], uniform: Callable[[], float] = zero, **more: object
) -> list[int]:
    pick = picker(target(grouping, **more), uniform).one  # type: ignore[arg-type]
    return [pick(row).target for row in rows]


ROWS: list[list[object]] = [[n] for n in range(300)]


@pytest.mark.parametrize("grouping", [Grouping.SHUFFLE, Grouping.NONE, Grouping.LOCAL_OR_SHUFFLE])
def test_shuffle_gives_every_task_its_turn(grouping: Grouping) -> None:
    assert set(Counter(picked(grouping, ROWS)).values()) == {100}


def test_where_a_shuffle_starts_is_random() -> None:
    """Else all tasks of a spout would send their first tuple to the same bolt."""
    starts = {picked(Grouping.SHUFFLE, [[0]], lambda share=share: share)[0] for share in (0.0, 0.4, 0.9)}
    assert starts == {10, 11, 12}


def test_global_is_the_lowest_task() -> None:
    assert set(picked(Grouping.GLOBAL, ROWS)) == {10}


def test_local_or_shuffle_prefers_the_same_worker() -> None:
    assert Counter(picked(Grouping.LOCAL_OR_SHUFFLE, ROWS, local=(1, 2))) == {11: 150, 12: 150}


def test_fields_sends_a_key_to_one_task_by_its_hash() -> None:
    rows: list[list[object]] = [[n, f"word{n % 50}"] for n in range(1000)]
    targets = picked(Grouping.fields("word"), rows, key=(1,))
    assert targets == [10 + key_hash([word]) % 3 for _, word in rows]
    assert len(set(targets)) == 3


def test_fields_of_several_fields_count_together_in_the_order_named() -> None:
    rows: list[list[object]] = [["a", 1, "b"], ["a", 2, "b"], ["b", 1, "a"]]
    one, two, three = picked(Grouping.fields("z", "x"), rows, key=(2, 0))
    assert one == two == 10 + key_hash([("b", "a")]) % 3
    assert three == 10 + key_hash([("a", "b")]) % 3


def test_equal_values_of_other_types_are_one_key_whichever_comes_first() -> None:
    """The cache in front of the hash knows 1, 1.0 and True as one, as the hash does; lists are no cache keys."""
    for rows in ([[1], [1.0], [True]], [[True], [1], [1.0]], [[[1]], [[1.0]], [[True]]], [[{"a": 1}], [{"a": 1.0}]]):
        assert len(set(picked(Grouping.fields("k"), rows, key=(0,)))) == 1  # type: ignore[arg-type]


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten million keys must not stay in memory, and forgetting them changes no choice."""
    monkeypatch.setattr(routing, "CACHED_KEYS", 10)
    cache = routing.KeyCache(target(Grouping.fields("k")).boxes)
    chosen = [cache[n].target for n in range(100)]
    assert len(cache) <= 10
    assert [cache[n].target for n in range(100)] == chosen


def test_a13_every_nan_is_one_key_though_none_equals_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, with another field and inside a list; and they do not fill the memory."""
    monkeypatch.setattr(routing, "CACHED_KEYS", 10)
    for kind in (lambda nan: nan, lambda nan: ("a", nan), lambda nan: (nan, 1)):
        cache = routing.KeyCache(target(Grouping.fields("k")).boxes)
        assert len({cache[kind(float(sign + "nan"))].target for _ in range(50) for sign in "+-"}) == 1
        assert len(cache) <= 10
    assert len({cache.choose(([float(sign + "nan")],)).target for sign in "+-"}) == 1


def routes(*targets: Target, direct: bool = False, fields: tuple[str, ...] = ("a",)) -> StreamRoutes:
    return StreamRoutes(Stream(fields, direct=direct), targets, zero)


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


@pytest.mark.parametrize("key", ["k" * 257, b"k" * 257, ("a", "k" * 257)])
def test_a_long_key_is_not_kept(key: object) -> None:
    """65 536 keys of 10 KiB would be 640 MiB in each task that sends; they go where they always went."""
    cache = routing.KeyCache(tuple(Outbox(1, 10 + index, "default") for index in range(3)))
    assert cache[key] is cache[key] is cache.choose((key,)) and not cache
    assert cache["short"] is cache["short"] and list(cache) == ["short"]


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


def test_an_outbox_weighs_what_has_come_by_one_row_of_it() -> None:
    box = Outbox(1, 9, "default")
    assert box.weigh() == 0
    small, large = row_bytes(["x"]), row_bytes(["x" * 100_000])
    for _ in range(4):
        box.extend((1, 1, ["x"]))
    assert box.weigh() == box.weigh() == 4 * small
    for _ in range(3):
        box.extend((1, 1, ["x" * 100_000]))
    assert box.weigh() == 4 * small + 3 * large, "each by a row that came with it"
    box.switch("other")
    box.put_block("other", 1, 1, Columns([["x"] * 5]))
    assert 2 * 5 * small <= box.weigh() <= 2 * 7 * large, "by a row of one of two runs"
    box.extend((1, 1, ["x"]))
    before = box.weigh()
    box.extend((1, 1, ["x"] * 2))
    assert before < box.weigh() <= before + 2 * small
    box.take()
    assert box.weigh() == 0
    box.extend((1, 1, ["x"]))
    assert box.weigh() == small
    box.withdraw(0)
    assert box.weigh() == 0


def test_rows_of_two_sizes_in_turn_weigh_about_what_they_take() -> None:
    """A bolt may emit a large row and then a small one for each tuple, on one stream or on two."""
    one, two, large = Outbox(1, 9, "default"), Outbox(1, 9, "default"), "x" * 100_000
    for _ in range(400):
        for _ in range(3):
            for stream, text in (("default", large), ("other", "x")):
                one.extend((1, 1, [text]))
                two.switch(stream)((1, 1, [text]))
        one.weigh()
        two.weigh()
    assert 90_000_000 < one.weigh() < 150_000_000 and 90_000_000 < two.weigh() < 150_000_000
