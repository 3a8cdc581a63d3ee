"""Groupings at work: which outbox a row goes into.

This runs for every tuple, so all look-ups happen when a picker is made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress, cycle, islice
from operator import itemgetter
from typing import Any, TypeVar

from streamlet.components.columns import Columns
from streamlet.model.grouping import Grouping
from streamlet.runtime.tasks.runs import Outbox
from streamlet.runtime.tasks.values import key_hash

CACHED_KEYS = 65_536
"""Keys whose task a fields grouping remembers, before it forgets all and starts again."""

CACHED_KEY_BYTES = 256
"""Longest text or bytes that is remembered; a longer one is hashed each time."""

Pick = Callable[[Sequence[Any]], Outbox]
"""Chooses the one outbox of a row."""

Select = Callable[[list[Any]], list[Any]]
"""Takes out of a column what belongs to one share of its rows."""

FEW_BOXES = 8
"""Most outboxes that rows are shared out to by a mask each; to more of them, by number."""

_IS = tuple(bytes(number == one for number in range(256)) for one in range(FEW_BOXES))
"""Tables for ``bytes.translate``: 1 for one number, 0 for all others."""


@dataclass(frozen=True, slots=True)
class Target:
    """One consumer of a stream: its grouping, the outboxes of its tasks by index, the local ones."""

    grouping: Grouping
    key: tuple[int, ...]
    boxes: tuple[Outbox, ...]
    local: tuple[Outbox, ...]
    order: Sequence[Outbox] = ()
    """The outboxes in turn, as a ``Shuffle`` has them now; empty for each once."""


C = TypeVar("C")


class KeyCache(dict[Any, C]):
    """Key -> its task's outbox, or that one's number: a bounded cache in front of the hash."""

    __slots__ = ("_choices",)

    def __init__(self, choices: Sequence[C]) -> None:
        super().__init__()
        self._choices = choices

    def __missing__(self, key: Any) -> C:
        choice = self.choose((key,))
        if _is_short(key):
            if len(self) >= CACHED_KEYS:
                self.clear()
            self[key] = choice
        return choice

    def choose(self, key: Sequence[Any]) -> C:
        """Return the choice for a key without the cache: a list or dict cannot be looked up."""
        return self._choices[key_hash(key) % len(self._choices)]


def _is_short(key: Any) -> bool:
    """Tell whether a key is worth remembering: one value, or several as a tuple."""
    if isinstance(key, (str, bytes)):
        return len(key) <= CACHED_KEY_BYTES
    return not isinstance(key, tuple) or all(map(_is_short, key))


@dataclass(frozen=True, slots=True)
class Picker:
    """Chooses one outbox for each row."""

    one: Pick
    of_value: Callable[[Any], Outbox]
    """``one`` for a stream of one field: from that field's value (hashable), not the row."""
    shares: Callable[[Columns], Iterable[tuple[Outbox, Select]]]
    """``one`` for many rows at once: the outboxes, and what selects the rows of each, in order."""


def picker(target: Target, uniform: Callable[[], float]) -> Picker:
    """Make what chooses a row's outbox. Not for ``all`` and ``direct``."""
    kind = target.grouping.kind
    if kind == "global" or len(target.boxes) == 1:
        first = target.boxes[0]
        return Picker(lambda values: first, lambda value: first, lambda columns: [(first, list)])
    if kind == "fields":
        return _fields_picker(target)
    if kind == "local_or_shuffle" and target.local:
        return _shuffle_picker(target.local, target.local, uniform)
    if kind in ("shuffle", "none", "local_or_shuffle"):
        return _shuffle_picker(target.boxes, target.order or target.boxes, uniform)
    # A kind without its branch must not go on as shuffle: its tuples would reach the wrong tasks in silence.
    raise NotImplementedError(f"nothing picks a task for the grouping {kind!r}")


def _shuffle_picker(boxes: Sequence[Outbox], order: Sequence[Outbox], uniform: Callable[[], float]) -> Picker:
    # In turn, as Storm does, without a random number for each tuple. Only the start is random, so that several senders
    # do not all begin at the same task. A `Shuffle` changes the order meanwhile, never its length.
    size = len(order)
    position = int(uniform() * size)
    last = size - 1
    number_of = {box: number for number, box in enumerate(boxes)}.__getitem__

    def one(values: Sequence[Any]) -> Outbox:
        nonlocal position
        position = 0 if position >= last else position + 1
        return order[position]

    def shares(columns: Columns) -> Iterable[tuple[Outbox, Select]]:
        nonlocal position
        count, first = len(columns), position + 1
        position = (position + count) % size
        if size == len(boxes):
            return [(order[(first + at) % size], itemgetter(slice(at, None, size))) for at in range(min(count, size))]
        return _share_out(boxes, map(number_of, islice(cycle(order), first % size, first % size + count)))

    return Picker(one, one, shares)


def _fields_picker(target: Target) -> Picker:
    """Make what chooses by the key of a row: the value itself for one field, a tuple for several."""
    boxes, fields, key_of = target.boxes, target.key, itemgetter(*target.key)
    cache, number_of = KeyCache(boxes), KeyCache(range(len(boxes))).__getitem__

    def one(values: Sequence[Any]) -> Outbox:
        key = key_of(values)
        try:
            return cache[key]
        except TypeError:  # a list or dict cannot be a dictionary key
            return cache.choose((key,))

    def shares(columns: Columns) -> Iterable[tuple[Outbox, Select]]:
        by_field = columns.by_field
        keys = by_field[fields[0]] if len(fields) == 1 else zip(*map(by_field.__getitem__, fields), strict=True)
        return _share_out(boxes, map(number_of, keys))

    return Picker(one, cache.__getitem__, shares)


def _share_out(boxes: Sequence[Outbox], numbers: Iterable[int]) -> Iterator[tuple[Outbox, Select]]:
    """Return the outboxes chosen by number, and what selects their rows."""
    return _by_mask(boxes, numbers) if len(boxes) <= FEW_BOXES else _by_number(boxes, numbers)


def _by_mask(boxes: Sequence[Outbox], numbers: Iterable[int]) -> Iterator[tuple[Outbox, Select]]:
    """Yield the chosen outboxes, and what selects the rows of each."""
    # As bytes: a mask of each box is made, and read, without a call or an object for each row.
    chosen = bytes(numbers)
    for number in set(chosen):
        yield boxes[number], partial(_masked, chosen.translate(_IS[number]))


def _by_number(boxes: Sequence[Outbox], numbers: Iterable[int]) -> Iterator[tuple[Outbox, Select]]:
    """Do the same for many outboxes: a mask each would read all rows as often."""
    rows_of: dict[int, list[int]] = defaultdict(list)
    for at, number in enumerate(numbers):
        rows_of[number].append(at)
    for number, rows in rows_of.items():
        yield boxes[number], partial(_numbered, rows)


def _masked(mask: bytes, column: list[Any]) -> list[Any]:
    return [*compress(column, mask)]


def _numbered(rows: list[int], column: list[Any]) -> list[Any]:
    return [*map(column.__getitem__, rows)]
