"""Streams of a task: the checks of an emit, and the outboxes that a row goes into.

The way of a row: ``Emitter.routes`` finds the stream, ``Emitter.checked`` copies the values, the groupings of the
stream (``routing``) choose the ``Outbox`` of each receiving task, and when the loop's turn ends an outbox becomes runs
(``runs``), which leave this worker or wait in its ``Inbox``.

This is the hottest code of all: it runs for every tuple. So all look-ups happen when a task's closure is built, a tuple
with plain values passes one loop of type tests, and a row goes into an outbox with one call. Deliberately absent here:
anchors, edges and roots, which are the tasks' (``bolt_task``, ``spout_task``), and any waiting in an emit: a full inbox
or link keeps a bolt or spout from its next turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from streamlet.base.errors import BadEmit
from streamlet.components.columns import Columns
from streamlet.components.tuples import NO_ROWS
from streamlet.model.stream import DEFAULT_STREAM, Stream
from streamlet.runtime.tasks.routing import Pick, Picker, Select, Target, picker
from streamlet.runtime.tasks.runs import Outbox
from streamlet.runtime.tasks.values import INT_MAX, INT_MIN, PLAIN, travelling

ROWS = frozenset({list, tuple})
"""Types of rows that many are emitted of in one call."""


def _is_plain(column: list[Any]) -> bool:
    """Tell whether all values travel as they are."""
    others = set(map(type, column)) - PLAIN
    if not others:
        return True
    ints = [value for value in column if value.__class__ is int]
    return others == {int} and min(ints) >= INT_MIN and max(ints) <= INT_MAX


class StreamRoutes:
    """One declared stream of one task, with everything an emit needs."""

    __slots__ = ("direct", "fields", "is_direct", "name", "picks", "spreads", "targets", "width")

    def __init__(self, stream: Stream, targets: Sequence[Target], uniform: Callable[[], float]) -> None:
        self.name = stream.name
        self.fields = stream.fields
        self.is_direct = stream.direct
        self.width = len(stream.fields)
        self.targets = tuple(targets)
        self.picks: tuple[Picker, ...] = tuple(
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
        return [*(pick.one(values) for pick in self.picks), *self.spreads]

    def plain_columns(self, rows: Sequence[Any] | Columns) -> Columns | None:
        """Return rows as columns for its one reader.

        None for a stream with several readers, or where a row is not plain: each is looked at by ``checked`` then.
        """
        if self.single is None or not self.width:  # without a field, columns do not say how many rows there are
            return None
        if not isinstance(rows, Columns):
            if not set(map(type, rows)) <= ROWS or set(map(len, rows)) != {self.width}:
                return None
            rows = Columns([[*map(itemgetter(at), rows)] for at in range(self.width)])
        return rows if len(rows.by_field) == self.width and all(map(_is_plain, rows.by_field)) else None

    def shares(self, columns: Columns) -> Iterable[tuple[Outbox, Select]]:
        """Share the rows of ``plain_columns`` out: the outboxes, and what selects the rows of each."""
        return self.picks[0].shares(columns)

    @property
    def single(self) -> Pick | None:
        """The one picker of a stream read by one grouping: the case worth a closure of its own."""
        return self.picks[0].one if len(self.picks) == 1 and not self.spreads and not self.direct else None

    @property
    def single_value(self) -> Callable[[Any], Outbox]:
        """``single`` for a stream of one field: from that field's value (hashable), not the row."""
        assert self.single is not None
        return self.picks[0].of_value


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
        try:
            fits = not isinstance(values, NO_ROWS) and len(values) == routes.width
        except TypeError:  # a number, an iterator
            fits = False
        if not fits:
            raise BadEmit(
                f"{self.component} emitted {values!r:.120} on stream {routes.name!r}, which declares "
                f"{routes.width} field(s): {', '.join(routes.fields)}. Emit a list with one value per field."
            )
        for value in values:
            if value.__class__ not in PLAIN:
                return travelling(values, self.component, routes.name, routes.fields)
        return [*values]
