"""The emitting half of a task: from an emitted row to the outboxes of its receivers.

The way of a row: ``Emitter.routes`` finds the stream, ``Emitter.checked`` copies the values, the groupings of the
stream (``Pick``) choose the ``Outbox`` of each receiving task, and when the loop's turn ends an outbox becomes runs
(``Run``), which stay in this worker as ``Work`` or leave it in an ``Outgoing``.

This is the hottest code of all: it runs for every tuple. So all look-ups happen when a task's closure is built, a tuple
with plain values passes one loop of type tests, and a row goes into an outbox with one call. Deliberately absent here:
anchors, edges and roots, which are the tasks' (``bolt_task``, ``spout_task``), and any waiting: a full inbox or link
pauses spouts, it never blocks an emit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from streamlet.model.grouping import Grouping
from streamlet.model.stream import DEFAULT_STREAM, Stream
from streamlet.runtime.tasks.values import PLAIN, key_hash, travelling

CACHED_KEYS = 65_536
"""Keys whose task a fields grouping remembers, before it forgets all and starts again."""

CACHED_KEY_BYTES = 256
"""Longest text or bytes that is remembered; a longer one is hashed each time."""

NO_ROWS = (str, bytes, bytearray, dict, set, frozenset)
"""Types that have a length and give values, but not one value for each field in order."""

Extend = Callable[[tuple[Any, Any, Any]], None]
"""Adds one row (root, edge, values) to an outbox."""


class BadEmit(ValueError):
    """An ``emit`` that does not fit the component's declaration."""


# -- tuples on their way ---------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """Tuples of one sender, stream and receiver, as columns of equal length.

    In order. ``multi`` marks tuples with several roots: their root and edge are then equally long lists.
    """

    target: int
    source: int
    stream: str
    multi: bool
    roots: list[Any]
    edges: list[Any]
    values: list[Any]

    def untracked(self) -> Run:
        """Return those of its tuples that belong to no tree."""
        if self.multi:
            return self._replace(roots=[], edges=[], values=[])
        values = [value for root, value in zip(self.roots, self.values, strict=True) if not root]
        return self._replace(roots=[0] * len(values), edges=[0] * len(values), values=values)


class Work:
    """A run that waits for its bolt: rows to take slice by slice, and how many are left."""

    __slots__ = ("left", "rows", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.left = len(run.roots)
        self.rows = zip(run.roots, run.edges, run.values, strict=True)


class Outbox:
    """The tuples from one task to another during one turn.

    Rows lie flat (root, edge, values, root, ...), which is the cheapest thing to append to.
    """

    __slots__ = ("_closed", "_rows", "extend", "multi", "source", "stream", "target")

    def __init__(self, source: int, target: int, stream: str) -> None:
        self.source = source
        self.target = target
        self.stream = stream
        self.multi = False
        self._rows: list[Any] = []
        self._closed: list[Run] = []
        # Bound once: emit closures keep this method, so `_rows` is emptied in place and never replaced.
        self.extend: Extend = self._rows.extend

    def switch(self, stream: str, multi: bool = False) -> Extend:
        """Return ``extend`` for rows of a stream and kind."""
        # A change closes the present rows into a run, so the order between two tasks holds across streams.
        if stream != self.stream or multi != self.multi:
            self._close()
            self.stream, self.multi = stream, multi
        return self.extend

    def _close(self) -> None:
        rows = self._rows
        if rows:
            run = Run(self.target, self.source, self.stream, self.multi, rows[0::3], rows[1::3], rows[2::3])
            self._closed.append(run)
            rows.clear()

    def take(self) -> list[Run]:
        """Return all runs so far, in order, and leave the outbox empty."""
        self._close()
        taken, self._closed = self._closed, []
        return taken

    def __bool__(self) -> bool:
        return bool(self._rows or self._closed)


@dataclass(slots=True)
class Outgoing:
    """Everything that one turn of the loop sends to one other worker."""

    runs: list[Run] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    deltas: list[int] = field(default_factory=list)
    """Ack deltas, by root: two columns of equal length."""
    fails: list[int] = field(default_factory=list)
    full: bool | None = None
    """True when this worker crosses its high-water mark, False when it is back below: spouts elsewhere pause."""

    def __bool__(self) -> bool:
        return bool(self.runs or self.roots or self.fails) or self.full is not None


@dataclass(slots=True)
class Incoming:
    """One decoded frame of another worker; see Outgoing."""

    runs: list[Run]
    roots: list[int]
    deltas: list[int]
    fails: list[int]
    full: bool | None = None
    worker: int = -1


# -- groupings: which outbox -----------------------------------------------------------------------------------------

Pick = Callable[[Sequence[Any]], Outbox]
"""Chooses the one outbox of a row."""


@dataclass(frozen=True, slots=True)
class Target:
    """One consumer of a stream: its grouping, the outboxes of its tasks by index, the local ones."""

    grouping: Grouping
    key: tuple[int, ...]
    boxes: tuple[Outbox, ...]
    local: tuple[Outbox, ...]


class KeyCache(dict[Any, Outbox]):
    """Key -> outbox, a bounded cache in front of the hash."""

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
        """Return the outbox of a key without the cache: a list or dict cannot be looked up."""
        return self._boxes[key_hash(key) % len(self._boxes)]


def _is_short(key: Any) -> bool:
    """Tell whether a key is worth remembering: one value, or several as a tuple."""
    if isinstance(key, (str, bytes)):
        return len(key) <= CACHED_KEY_BYTES
    return not isinstance(key, tuple) or all(map(_is_short, key))


def picker(target: Target, uniform: Callable[[], float]) -> Pick:
    """Make the function from values to one outbox. Not for ``all`` and ``direct``."""
    kind = target.grouping.kind
    if kind == "global" or len(target.boxes) == 1:
        first = target.boxes[0]
        return lambda values: first
    if kind == "fields":
        return FieldsPick(target)
    if kind == "local_or_shuffle" and target.local:
        return _shuffle_picker(target.local, uniform)
    if kind in ("shuffle", "none", "local_or_shuffle"):
        return _shuffle_picker(target.boxes, uniform)
    # A kind without its branch must not go on as shuffle: its tuples would reach the wrong tasks in silence.
    raise NotImplementedError(f"nothing picks a task for the grouping {kind!r}")


def _shuffle_picker(boxes: Sequence[Outbox], uniform: Callable[[], float]) -> Pick:
    # Every task in turn, as Storm does: even, and without a random number for each tuple. Only the start is random,
    # so that several senders do not all begin at the same task.
    order = list(boxes)
    position = int(uniform() * len(order))
    last = len(order) - 1

    def pick(values: Sequence[Any]) -> Outbox:
        nonlocal position
        position = 0 if position >= last else position + 1
        return order[position]

    return pick


class FieldsPick:
    """Picks by the key of a row: the value itself for one field, a tuple for several."""

    __slots__ = ("_key_of", "cache")

    def __init__(self, target: Target) -> None:
        self.cache = KeyCache(target.boxes)
        self._key_of: Callable[[Sequence[Any]], Any] = itemgetter(*target.key)

    def __call__(self, values: Sequence[Any]) -> Outbox:
        key = self._key_of(values)
        try:
            return self.cache[key]
        except TypeError:  # a list or dict cannot be a dictionary key
            return self.cache.choose((key,))


# -- streams: what a task may emit -----------------------------------------------------------------------------------


class StreamRoutes:
    """One declared stream of one task, with everything an emit needs."""

    __slots__ = ("direct", "fields", "is_direct", "name", "picks", "spreads", "targets", "width")

    def __init__(self, stream: Stream, targets: Sequence[Target], uniform: Callable[[], float]) -> None:
        self.name = stream.name
        self.fields = stream.fields
        self.is_direct = stream.direct
        self.width = len(stream.fields)
        self.targets = tuple(targets)
        self.picks: tuple[Pick, ...] = tuple(
            picker(target, uniform) for target in targets if target.grouping.kind not in ("all", "direct")
        )
        self.spreads = tuple(box for target in targets if target.grouping.kind == "all" for box in target.boxes)
        self.direct: dict[int, Outbox] = {
            box.target: box for target in targets if target.grouping.kind == "direct" for box in target.boxes
        }

    def boxes(self, values: Sequence[Any], direct_task: int | None) -> list[Outbox]:
        """Return every outbox this tuple goes into."""
        if direct_task is not None:
            return [self.direct[direct_task]] if direct_task in self.direct else []
        return [*(pick(values) for pick in self.picks), *self.spreads]

    @property
    def single(self) -> Pick | None:
        """The one picker of a stream read by one grouping: the case worth a closure of its own."""
        return self.picks[0] if len(self.picks) == 1 and not self.spreads and not self.direct else None

    @property
    def single_value(self) -> Callable[[Any], Outbox]:
        """``single`` for a stream of one field: from that field's value (hashable), not the row."""
        pick = self.single
        assert pick is not None
        if isinstance(pick, FieldsPick):
            return pick.cache.__getitem__
        return lambda value: pick((value,))


class Emitter:
    """The declared streams of one task, by name."""

    __slots__ = ("component", "default", "one_stream", "streams")

    def __init__(self, component: str, streams: Sequence[StreamRoutes]) -> None:
        self.component = component
        self.streams = {routes.name: routes for routes in streams}
        self.default = self.streams.get(DEFAULT_STREAM)
        self.one_stream = len(streams) == 1

    def routes(self, stream: str | None, direct_task: int | None) -> StreamRoutes:
        """Return the stream an emit names. Raises BadEmit if undeclared or not direct."""
        routes = self.default if stream is None else self.streams.get(stream)
        if routes is None:
            declared = ", ".join(map(repr, self.streams)) or "none"
            raise BadEmit(
                f"{self.component} emitted on stream {stream or DEFAULT_STREAM!r}, which it does not declare "
                f"(declared: {declared}). Add it to the class's `outputs`, or name one of these."
            )
        # A direct stream needs a task: without one the tuple reaches nobody, and a tree without receivers is acked.
        if direct_task is None and routes.is_direct:
            raise BadEmit(
                f"{self.component} emitted on the direct stream {routes.name!r} without direct_task, so it would reach "
                f"nobody. Name one of the tasks that read it: {sorted(routes.direct) or 'none'}."
            )
        if direct_task is not None and routes.targets and direct_task not in routes.direct:
            raise BadEmit(
                f"{self.component} emitted on stream {routes.name!r} with direct_task={direct_task}, but the tasks "
                f"that read it with Grouping.DIRECT are {sorted(routes.direct) or 'none'}."
            )
        return routes

    def checked(self, values: Sequence[Any], routes: StreamRoutes) -> list[Any]:
        """Return a copy of the values as they travel. Raises BadEmit or ValueCannotTravel."""
        # A str is a sequence of its letters: emit("no") on a stream of two fields would pass as ["n", "o"].
        if isinstance(values, NO_ROWS) or len(values) != routes.width:
            raise BadEmit(
                f"{self.component} emitted {values!r:.120} on stream {routes.name!r}, which declares "
                f"{routes.width} field(s): {', '.join(routes.fields)}. Emit a list with one value per field."
            )
        for value in values:
            if value.__class__ not in PLAIN:
                return travelling(values, self.component, routes.name, routes.fields)
        return [*values]
