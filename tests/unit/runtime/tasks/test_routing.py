"""Groupings at work: which task a tuple goes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from streamlet.model.grouping import Grouping
from streamlet.runtime.tasks import routing
from streamlet.runtime.tasks.routing import Target, picker
from streamlet.runtime.tasks.runs import Outbox
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


@pytest.mark.parametrize("key", ["k" * 257, b"k" * 257, ("a", "k" * 257)])
def test_a_long_key_is_not_kept(key: object) -> None:
    """65 536 keys of 10 KiB would be 640 MiB in each task that sends; they go where they always went."""
    cache = routing.KeyCache(tuple(Outbox(1, 10 + index, "default") for index in range(3)))
    assert cache[key] is cache[key] is cache.choose((key,)) and not cache
    assert cache["short"] is cache["short"] and list(cache) == ["short"]
