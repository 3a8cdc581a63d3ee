"""Groupings at work: from a stream's routes to the outboxes a tuple goes into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from streamlet.model.grouping import Grouping
from streamlet.runtime.tasks.outbox import Outbox
from streamlet.runtime.tasks.values import key_hash

CACHED_KEYS = 65_536
"""How many keys a fields grouping remembers the task of, before it forgets all and starts again."""

CACHED_KEY_BYTES = 256
"""A text or bytes that is longer is hashed each time: the memory for keys has a bound."""

Pick = Callable[[Sequence[Any]], Outbox]


@dataclass(frozen=True, slots=True)
class Target:
    """One consumer of a stream: its grouping, the outboxes of its tasks by index, and which are local."""

    grouping: Grouping
    key: tuple[int, ...]
    boxes: tuple[Outbox, ...]
    local: tuple[Outbox, ...]


class KeyCache(dict[Any, Outbox]):
    """Key -> outbox in front of the hash, bounded. A miss chooses and remembers."""

    __slots__ = ("_boxes",)

    def __init__(self, boxes: Sequence[Outbox]) -> None:
        super().__init__()
        self._boxes = boxes

    def __missing__(self, key: Any) -> Outbox:
        box = self.choose((key,))
        if _is_short(key):
            if len(self) >= CACHED_KEYS:
                self.clear()
            self[key] = box
        return box

    def choose(self, key: Sequence[Any]) -> Outbox:
        """The outbox of a key, without the cache (a list or dict cannot be looked up)."""
        return self._boxes[key_hash(key) % len(self._boxes)]


def _is_short(key: Any) -> bool:
    """Whether a key is worth remembering: one value, or several as a tuple."""
    if isinstance(key, (str, bytes)):
        return len(key) <= CACHED_KEY_BYTES
    return not isinstance(key, tuple) or all(map(_is_short, key))


def picker(target: Target, uniform: Callable[[], float]) -> Pick:
    """A function from values to the one outbox they go to. Not for ``all`` and ``direct``."""
    kind = target.grouping.kind
    if kind == "global" or len(target.boxes) == 1:
        first = target.boxes[0]
        return lambda values: first
    if kind == "fields":
        return FieldsPick(target)
    boxes = target.local if kind == "local_or_shuffle" and target.local else target.boxes
    return _shuffle_picker(boxes, uniform)


def _shuffle_picker(boxes: Sequence[Outbox], uniform: Callable[[], float]) -> Pick:
    # Every task in turn, as Storm: even without a random number a tuple. Only where the walk starts is random.
    order = list(boxes)
    position = int(uniform() * len(order))
    last = len(order) - 1

    def pick(values: Sequence[Any]) -> Outbox:
        nonlocal position
        position = 0 if position >= last else position + 1
        return order[position]

    return pick


class FieldsPick:
    """The outbox of a row's key. A key of one field is the value itself, of several a tuple: it is hashed so."""

    __slots__ = ("_key_of", "cache")

    def __init__(self, target: Target) -> None:
        self.cache = KeyCache(target.boxes)
        self._key_of: Callable[[Sequence[Any]], Any] = itemgetter(*target.key)

    def __call__(self, values: Sequence[Any]) -> Outbox:
        key = self._key_of(values)
        try:
            return self.cache[key]
        except TypeError:  # a list or dict is no dictionary key
            return self.cache.choose((key,))
