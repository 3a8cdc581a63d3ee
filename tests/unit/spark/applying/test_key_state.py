"""One bolt object serves many keys."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from typing import Any

import pytest

from streamlet import Bolt, Tuple
from streamlet.components.tuples import tuple_with_names
from streamlet.spark.applying.key_state import KeyState, StateNotKept


class Count(Bolt):
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seen = 0
        self.lock = threading.Lock()
        self.kept: list[Any] = []


Named = tuple_with_names(["word"])


def again(values: Sequence[Any], component: str, stream: str, state: int) -> Tuple:
    made = Named(values, component, stream)
    made.state = state
    return made


@pytest.fixture
def bolt() -> Count:
    return Count()


@pytest.fixture
def state(bolt: Count) -> KeyState:
    return KeyState(bolt, "count", again)


def test_each_key_has_what_it_left_and_a_new_one_what_initialize_left(bolt: Count, state: KeyState) -> None:
    state.restore(None)
    assert state.changes() == b""
    bolt.counts["a"] += 1
    bolt.seen = 1
    bolt.extra = {"of": "a"}  # type: ignore[attr-defined]
    a = state.changes()
    state.restore(None)
    assert (bolt.counts, bolt.seen, hasattr(bolt, "extra")) == (Counter(), 0, False)
    state.restore(a)
    assert (bolt.counts, bolt.seen, vars(bolt)["extra"]) == (Counter("a"), 1, {"of": "a"})
    assert state.changes() == a


def test_a_state_that_lacks_an_attribute_gets_that_of_initialize(bolt: Count, state: KeyState) -> None:
    """As one that an earlier program has kept, and one with plain attributes alone."""
    state.restore(None)
    bolt.seen = 1
    plain = state.changes()
    bolt.counts["a"] += 1
    del bolt.kept
    without = state.changes()
    bolt.counts["b"] += 1
    state.restore(plain)
    assert (bolt.counts, bolt.seen, bolt.kept) == (Counter(), 1, [])
    state.restore(without)
    assert (bolt.counts, bolt.seen, hasattr(bolt, "kept")) == (Counter("a"), 1, False)


def test_a_key_that_is_as_initialize_left_it_is_nothing_to_keep(bolt: Count, state: KeyState) -> None:
    state.restore(None)
    bolt.counts["a"] += 1
    state.restore(state.changes())
    bolt.counts.clear()
    assert state.changes() == b""


def test_what_cannot_be_pickled_belongs_to_the_object(bolt: Count, state: KeyState) -> None:
    lock = bolt.lock
    state.restore(None)
    assert bolt.lock is lock and state.changes() == b""


def test_what_all_keys_share_is_neither_copied_nor_kept(bolt: Count) -> None:
    conf = {"a": [1]}
    bolt.conf = conf  # type: ignore[attr-defined]
    state = KeyState(bolt, "count", again, (conf,))
    state.restore(None)
    assert vars(bolt)["conf"] is conf and state.changes() == b""


def test_an_attribute_that_was_deleted_stays_away(bolt: Count, state: KeyState) -> None:
    state.restore(None)
    del bolt.seen
    left = state.changes()
    state.restore(None)
    assert bolt.seen == 0
    state.restore(left)
    assert not hasattr(bolt, "seen")


def test_kept_tuples_have_their_names_again(bolt: Count, state: KeyState) -> None:
    state.restore(None)
    bolt.kept.append(Named(["w"], "split", "default"))
    left = state.changes()
    state.restore(left)
    (tup,) = bolt.kept
    assert (tup.values.word, tup.component) == ("w", "split")


def test_what_is_set_late_and_cannot_be_kept_is_named(bolt: Count, state: KeyState) -> None:
    state.restore(None)
    bolt.late = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(StateNotKept, match=r"The bolt count has set self\.late while.*Make connections"):
        state.changes()


class Adrift:
    """Of a notebook: pickle does not find it there."""


Adrift.__module__ = "__main__"


@pytest.mark.parametrize("made", [lambda: defaultdict(lambda: 0), Adrift], ids=["lambda", "class of a notebook"])
def test_what_pickle_does_not_find_by_name_is_refused_and_not_shared_by_all_keys(bolt: Count, made: Any) -> None:
    bolt.counts = made()
    with pytest.raises(StateNotKept, match=r"The bolt count has set self\.counts in initialize.*Use a named function"):
        KeyState(bolt, "count", again)


@pytest.mark.parametrize(
    "made", [lambda lock: {"lock": lock, "n": 0}, lambda lock: deque([lock]), lambda lock: (lock,)]
)
def test_a_container_with_a_lock_in_it_is_refused_and_not_shared_by_all_keys(bolt: Count, made: Any) -> None:
    bolt.counts = made(bolt.lock)
    with pytest.raises(StateNotKept, match=r"set self\.counts in initialize.*'_thread\.lock'.*attribute of its own"):
        KeyState(bolt, "count", again)


def test_functions_of_the_bolt_are_of_this_bolt_for_each_key(bolt: Count) -> None:
    given: dict[str, Any] = {"a": bolt.fail}
    bolt.by_name = given  # type: ignore[attr-defined]
    bolt.half = lambda n: n / 2  # type: ignore[attr-defined]
    state = KeyState(bolt, "count", again)
    state.restore(None)
    assert state.changes() == b""
    given = vars(bolt)["by_name"]
    assert given["a"].__self__ is bolt
    given["b"] = bolt.ack
    state.restore(state.changes())
    assert [one.__self__ for one in vars(bolt)["by_name"].values()] == [bolt, bolt]
    assert vars(bolt)["half"](4) == 2


def test_attributes_that_hold_one_object_hold_one_for_each_key(bolt: Count) -> None:
    window: list[int] = []
    vars(bolt).update(window=window, views={"w": window})
    state = KeyState(bolt, "count", again)
    state.restore(None)
    own: dict[str, Any] = vars(bolt)
    assert own["views"]["w"] is own["window"] is not window
    own["window"].append(1)
    left = state.changes()
    state.restore(None)
    assert (own["window"], own["views"]) == ([], {"w": []})
    state.restore(left)
    assert own["views"]["w"] is own["window"] == [1]
    assert state.changes() == left
