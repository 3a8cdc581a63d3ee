"""Which values travel, how they arrive, and which of them are the same key."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any, NamedTuple

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.base.errors import ValueCannotTravel
from streamlet.runtime.tasks.values import INT_MAX, INT_MIN, MAX_DEPTH, canonical, key_hash, travelling


def travel(value: Any) -> Any:
    return travelling([value], "bolt", "default", ["field"])[0]


class Point(NamedTuple):
    x: int
    y: int


class Color(IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


AWARE = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=5, minutes=30)))


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, 0, -1, INT_MIN, INT_MAX, 0.0, -0.0, math.inf, 1e308),
        *("", "ü\ud800", b"", b"\xff", [], {}),
        [1, [2, [3]]],
        {"a": {1: b"x"}},
        {None: 1, 2.5: 2, b"k": 3, True: 4},
    ],
)
def test_plain_values_arrive_as_they_were(value: Any) -> None:
    arrived = travel(value)
    assert arrived == value and type(arrived) is type(value)


def test_tuples_arrive_as_lists_named_ones_too() -> None:
    assert travel((1, (2, Point(3, 4)))) == [1, [2, [3, 4]]]


def test_aware_times_arrive_as_the_same_instant_in_utc() -> None:
    arrived = travel(AWARE)
    assert arrived == AWARE and arrived.tzinfo is UTC


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({1, 2}, "is a set"),
        (INT_MAX + 1, "65 bits"),
        (INT_MIN - 1, "64"),
        (datetime(2026, 1, 1), "without a time zone"),
        (object(), "is an object"),
        ({"order": {"country": {"de"}}}, "field 'word', at ['order']['country'], is a set"),
        (1j, "is a complex"),
        (Decimal("1"), "is a Decimal"),
        (Color.RED, "is a Color"),
        (Text("x"), "is a Text"),
        (bytearray(b"x"), "is a bytearray"),
        ({(1, 2): 3}, "key of type tuple"),
        ({INT_MAX + 1: 3}, "key of type int"),
        ([{"a": {1}}], "field 'word', at [0]['a'], is a set"),
        (("x", {(1, 2): 3}), "field 'word', at [1], is a dict with a key of type tuple"),
        (len, "is a builtin_function_or_method"),
        (datetime.fromisoformat("9999-12-31T23:59:59-05:00"), "'word' is a datetime that lies outside of the years"),
        ([datetime.fromisoformat("0001-01-01T00:00:00+01:00")], "at [0], is a datetime that lies outside"),
    ],
)
def test_what_the_receiver_could_not_read_back_is_refused(value: Any, why: str) -> None:
    """The paragraph names component, stream and field, wherever in the value the fault lies."""
    with pytest.raises(ValueCannotTravel) as raised:
        travelling([1, value], "split", "words", ["n", "word"])
    assert all(part in raised.value.message for part in ("split", "'words'", "'word'", why))


def _tree() -> dict[str, Any]:
    root: dict[str, Any] = {"children": []}
    root["children"] = [{"parent": root, "children": []} for _ in range(4)]
    return root


def _containing_itself(times: int) -> list[Any]:
    endless: list[Any] = []
    endless += [endless] * times
    return endless


@pytest.mark.parametrize("endless", [_containing_itself(1), _containing_itself(3), _tree()], ids=["1", "3", "tree"])
def test_what_contains_itself_is_refused(endless: Any) -> None:
    """At once, however often: a search through all ways would take 3 to the 64th steps."""
    with pytest.raises(ValueCannotTravel, match="contains itself"):
        travel(endless)


def test_depth_has_a_limit() -> None:
    def nested(depth: int) -> Any:
        return [nested(depth - 1)] if depth else 1

    assert travel(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    with pytest.raises(ValueCannotTravel):
        travel(nested(MAX_DEPTH + 2))


def test_containers_are_copied() -> None:
    """What the sender changes afterwards does not change what the receiver holds, even in one worker."""
    inner = [1]
    value = {"a": inner}
    arrived = travel(value)
    inner.append(2)
    value["b"] = []
    assert arrived == {"a": [1]}


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(INT_MIN, INT_MAX), st.floats(allow_nan=False), st.text(), st.binary()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3), max_leaves=10
)


@given(VALUES)
def test_a_travelled_value_survives_the_wire(value: Any) -> None:
    """What `emit` lets pass, msgpack gives back equal: the check promises no more than the wire holds."""
    arrived = travel(value)
    packed = msgpack.packb(arrived, use_bin_type=True, datetime=True, unicode_errors="surrogatepass")
    read = msgpack.unpackb(packed, strict_map_key=False, timestamp=3, unicode_errors="surrogatepass")
    assert read == arrived == value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0, -0.0),
        (0, False),
        (2**53, 2.0**53),
        (-(2**63), -(2.0**63)),
        ([1, [2.0]], [True, [2]]),
        ({"a": 1, "b": 2}, {"b": 2.0, "a": True}),
        ({1: "x"}, {1.0: "x"}),
        ([{"k": [1]}], [{"k": [1.0]}]),
        (AWARE, AWARE.astimezone(UTC)),
    ],
)
def test_values_that_are_equal_in_python_are_one_key(one: Any, other: Any) -> None:
    assert one == other
    assert canonical(one) == canonical(other)
    assert key_hash([one]) == key_hash([other])


@pytest.mark.parametrize(("one", "other"), [("1", 1), (b"a", "a"), (None, 0), ("", b""), (1.5, 1), ([1], [2])])
def test_values_that_differ_are_other_keys(one: Any, other: Any) -> None:
    assert key_hash([one]) != key_hash([other])


@given(st.one_of(st.integers(INT_MIN, INT_MAX), st.floats(allow_nan=False), st.booleans()))
def test_numbers_hash_by_value(number: Any) -> None:
    for other in (float(number), number):
        if other == number:
            assert key_hash([other]) == key_hash([number])
    if isinstance(number, float) and number.is_integer() and INT_MIN <= number <= INT_MAX:
        assert key_hash([int(number)]) == key_hash([number])


def test_a_key_whose_text_cannot_be_made_is_told_by_its_type() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("no text")

    with pytest.raises(ValueCannotTravel, match=r"is a dict with a key of type .*Shy"):
        travelling([{"a": [{Shy(): 1}]}], "count", "default", ("v",))
