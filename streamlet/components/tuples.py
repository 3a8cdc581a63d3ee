"""The tuple a bolt receives."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Never

OPEN = 0
ACKED = 1
FAILED = 2

NO_ROWS = (str, bytes, bytearray, dict, set, frozenset)
"""Types that have a length and give values, but not one value for each field in order."""

MAX_DEPTH = 64
"""Most lists and dictionaries around a value of a tuple."""

CONTAINERS: frozenset[type] = frozenset({list, tuple, dict})
"""Types of values that have others inside."""


class Tuple:
    """One message: ``values`` in the order of the stream's fields, and where they came from.

    ``component``, ``stream`` and ``task`` name the sender. The rest belongs to tracking: ``root`` and ``edge``
    are the tree and this tuple's edge in it (root 0: not tracked), ``children`` the XOR of the edges
    anchored to it so far, ``anchors`` the (root, edge) pairs of a tuple with several roots, else None.
    """

    # Slots and no dataclass: one is made for each tuple that a bolt receives, or filled again where nobody kept it.
    __slots__ = ("anchors", "children", "component", "edge", "root", "state", "stream", "task", "values")

    def __init__(
        self,
        values: Sequence[Any],
        component: str = "",
        stream: str = "default",
        task: int = 0,
        root: int = 0,
        edge: int = 0,
        anchors: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self.values = values
        self.component = component
        self.stream = stream
        self.task = task
        self.root = root
        self.edge = edge
        self.anchors = anchors
        self.children = 0
        self.state = OPEN

    @property
    def id(self) -> TupleId:
        """A number, unique in its tree; ``ack``, ``fail`` and ``anchors`` take it, too (pystorm's)."""
        return TupleId(self)

    if not TYPE_CHECKING:  # with it a type checker would accept an index
        # In place of __iter__: without one, an unpacking asks here too, and nothing takes a tuple for a row of values.
        def __getitem__(self, at: object) -> Never:
            raise TypeError(
                "a tuple is not a named tuple here, as in pystorm: its values are tup.values, and the rest is "
                "tup.id, tup.component, tup.stream and tup.task"
            )

    def __repr__(self) -> str:
        return f"Tuple({self.values!r}, from {self.component}[{self.stream}] task {self.task})"


class TupleId(int):
    """The id of a tuple, which keeps the tuple alive."""

    # The id leads to its tuple, so no task keeps a table of ids; and a tuple whose id is kept is not filled again.
    tup: Tuple

    def __new__(cls, tup: Tuple) -> TupleId:
        # Tuples that share an edge have none of their own; while its id lives, a tuple's address is nobody else's.
        made = super().__new__(cls, tup.edge or id(tup))
        made.tup = tup
        return made


def tuple_of(tup: Tuple | TupleId) -> Tuple:
    """Return the tuple that is meant by itself or by its id. Raises TypeError."""
    if isinstance(tup, TupleId):
        return tup.tup
    if isinstance(tup, Tuple):
        return tup
    raise TypeError(
        f"a tuple, or its `id` as the tuple gave it, is wanted, and not {tup!r:.80}: an id that was turned into text "
        "or came from elsewhere leads to no tuple"
    )


class NamedValues(list[Any]):
    """Values that are also attributes, by field (pystorm's named tuple)."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))


NAMES_OF_ROWS = ("_asdict", "_fields")
"""What values with names have beside their fields."""


def tuple_with_names(fields: Sequence[str]) -> type[Tuple]:
    """Return a class of tuples whose ``values`` are :class:`NamedValues` of these fields."""
    attributes = {name: property(itemgetter(at)) for at, name in enumerate(fields) if name.isidentifier()}
    row = type("Values", (NamedValues,), {"__slots__": (), "_fields": tuple(fields), **attributes})
    slot: Any = vars(Tuple)["values"]

    def take(tup: Tuple, values: Sequence[Any]) -> None:
        slot.__set__(tup, row(values))

    return type("Tuple", (Tuple,), {"__slots__": (), "values": property(slot.__get__, take)})


TICK_COMPONENT = "__system"
TICK_STREAM = "__tick"


# A root of 0 is nobody's tree: acking or failing a tick has no effect on any spout.
def tick_tuple(period_s: float) -> Tuple:
    """Make the tuple for ``process_tick``. Never tracked, never emitted on a stream of the user's."""
    return Tuple((period_s,), TICK_COMPONENT, TICK_STREAM)


def value_bytes(value: Any) -> int:
    """Return about how many bytes a value takes, with its contents."""
    size = getsizeof(value)
    kind: type = value.__class__
    if kind not in CONTAINERS:
        return size
    # Rule: everything in a container is measured. Where only its first values are, one large text behind them is
    # counted as if it were small, in every message that has it.
    inside: list[Any] = [*value, *value.values()] if kind is dict else value
    size += sum(map(getsizeof, inside))
    if not CONTAINERS.isdisjoint(map(type, inside)):
        for item in inside:
            if item.__class__ in CONTAINERS:
                size += value_bytes(item) - getsizeof(item)
    return size
