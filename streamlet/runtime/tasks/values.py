"""The values that may stand in a tuple, and which of them count as the same key.

A tuple must look the same to a bolt in the same worker and to one in another: an ``emit`` refuses what msgpack would
change or lose, and copies containers even where nothing is serialised.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import crc32c
import msgpack

from streamlet.base.errors import ValueCannotTravel
from streamlet.components.tuples import MAX_DEPTH

PLAIN = frozenset({str, bytes, float, bool, type(None)})
"""Types that travel as they are. An int does too, within 64 bits."""

INT_MIN, INT_MAX = -(1 << 63), (1 << 64) - 1


def travelling(values: Sequence[Any], component: str, stream: str, fields: Sequence[str]) -> list[Any]:
    """Copy values as a receiver will see them. Raises ValueCannotTravel.

    The error names component, stream and field.
    """
    copied = []
    for index, value in enumerate(values):
        try:
            copied.append(_copy(value, 0))
        except ValueError as error:
            field = fields[index] if index < len(fields) else f"#{index}"
            inside = _path_to_fault(value)
            at = f", at {inside}," if inside else ""
            raise ValueCannotTravel(
                f"{component} emitted a tuple on stream {stream!r} whose field {field!r}{at} {error}. A tuple may hold "
                "None, bool, int of at most 64 bits, float, str, bytes, aware datetime, and lists, tuples and dicts "
                "of these (dict keys: all but datetimes, lists, tuples and dicts). Convert the value before you emit "
                "it."
            ) from None
    return copied


def copies(values: list[Any], count: int) -> Iterator[list[Any]]:
    """Yield a row for each of ``count`` receivers; changes to one change no other."""
    for _ in range(count - 1):
        yield copied(values)
    yield values


def copied(values: list[Any]) -> list[Any]:
    """Return a row that no change to this one reaches."""
    return [_copy(value, 0) if value.__class__ is list or value.__class__ is dict else value for value in values]


def _copy(value: Any, depth: int) -> Any:
    kind = value.__class__
    if kind in PLAIN:
        return value
    if kind is int:
        if INT_MIN <= value <= INT_MAX:
            return value
        raise ValueError(f"is an int of {value.bit_length()} bits, and the wire carries 64")
    if depth > MAX_DEPTH:
        raise ValueError(f"is nested more than {MAX_DEPTH} deep (or contains itself)")
    if kind is list or isinstance(value, tuple):
        return [_copy(item, depth + 1) for item in value]
    if kind is dict:
        return {_key(key): _copy(item, depth + 1) for key, item in value.items()}
    if kind is datetime:
        if value.tzinfo is None:
            raise ValueError("is a datetime without a time zone, which would arrive as another instant")
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise ValueError("is a datetime that lies outside of the years 1 to 9999 in UTC") from None
    article = "an" if kind.__qualname__[0] in "aeiouAEIOU" else "a"
    raise ValueError(f"is {article} {kind.__qualname__}, which the receiver could not read back as one")


# A second walk, after the error: the copy of a value that can travel pays nothing for it.
def _path_to_fault(value: Any) -> str:
    """Return ``['country'][0]``, the way to a value that cannot travel; empty: the value itself, or too deep."""
    try:
        return _fault_below(value, 0) or ""
    except RecursionError:
        return ""


def _fault_below(value: Any, depth: int) -> str | None:
    """Return the way to the first fault; None: there is none. Raises RecursionError where it is too deep."""
    parts: Iterable[tuple[Any, Any]]
    if value.__class__ is dict:
        parts = value.items()
    elif isinstance(value, (list, tuple)):
        parts = enumerate(value)
    else:
        return None if _travels(value) else ""
    if depth > MAX_DEPTH:
        # Rule: the depth is the first fault, as it was for the copy, and ends the search. A look at each other way
        # through a value that contains itself twice would never end.
        raise RecursionError
    for key, part in parts:
        # Before it is shown: the text of a key of any other kind is made by code of the user's, which may raise.
        if not _may_be_key(key):
            return ""
        below = _fault_below(part, depth + 1)
        if below is not None:
            return f"[{key!r:.80}]{below}"
    return None


def _travels(value: Any) -> bool:
    try:
        _copy(value, 0)
    except ValueError:
        return False
    return True


def _may_be_key(key: Any) -> bool:
    return key.__class__ in PLAIN or (key.__class__ is int and INT_MIN <= key <= INT_MAX)


def _key(key: Any) -> Any:
    if _may_be_key(key):
        return key
    raise ValueError(f"is a dict with a key of type {key.__class__.__qualname__}")


def canonical(value: Any) -> Any:
    """Return the one form of all values that are equal in Python. 1, 1.0 and True; equal instants; nested too."""
    kind = value.__class__
    if kind is float:
        if value != value:
            return math.nan  # inf - inf and float("nan") have other bits, and are one key all the same
        return int(value) if value.is_integer() and INT_MIN <= value <= INT_MAX else value
    if kind is bool:
        return int(value)
    if kind is list or kind is tuple:
        return [canonical(item) for item in value]
    if kind is dict:
        pairs = ([canonical(key), canonical(item)] for key, item in value.items())
        return sorted(pairs, key=lambda pair: bytes(_pack(pair[0])))
    if kind is datetime:
        return value.astimezone(UTC)
    return value


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True, datetime=True, unicode_errors="surrogatepass")
    return packed


def key_hash(key: Sequence[Any]) -> int:
    """Hash a key alike in every process and every run, unlike ``hash``.

    It is the crc32c of the canonical msgpack of the key's values.

    >>> key_hash([1, "a"]) == key_hash([1.0, "a"]) == key_hash([True, "a"])
    True
    """
    return crc32c.crc32c(_pack([canonical(value) for value in key]))
