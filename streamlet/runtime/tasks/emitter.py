"""The emitting half of a task: one closure for the stream it uses most, one slow path for everything else.

This is the hottest code there is: it runs for every tuple. So all look-ups happen when the closure is built, a
tuple with plain values passes one loop of type tests, and a row goes into an outbox with one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streamlet.model.stream import DEFAULT_STREAM, Stream
from streamlet.runtime.tasks.outbox import Outbox
from streamlet.runtime.tasks.routing import FieldsPick, Pick, Target, picker
from streamlet.runtime.tasks.values import PLAIN, travelling

NO_ROWS = (str, bytes, bytearray, dict, set, frozenset)
"""What has a length and gives values, but not one per field in the order of the fields: a dict gives its keys."""


class BadEmit(ValueError):
    """An ``emit`` that does not fit what the component declared."""


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
        """Every outbox this tuple goes into."""
        if direct_task is not None:
            return [self.direct[direct_task]] if direct_task in self.direct else []
        return [*(pick(values) for pick in self.picks), *self.spreads]

    @property
    def single(self) -> Pick | None:
        """The one picker of a stream read by one grouping: the case worth a closure of its own."""
        return self.picks[0] if len(self.picks) == 1 and not self.spreads and not self.direct else None

    @property
    def single_value(self) -> Callable[[Any], Outbox]:
        """``single`` for a stream of one field, from that field's value (hashable) instead of the row."""
        pick = self.single
        assert pick is not None
        if isinstance(pick, FieldsPick):
            return pick.cache.__getitem__
        return lambda value: pick((value,))


class Emitter:
    """What one task may emit: its declared streams, by name."""

    __slots__ = ("component", "default", "one_stream", "streams")

    def __init__(self, component: str, streams: Sequence[StreamRoutes]) -> None:
        self.component = component
        self.streams = {routes.name: routes for routes in streams}
        self.default = self.streams.get(DEFAULT_STREAM)
        self.one_stream = len(streams) == 1

    def routes(self, stream: str | None, direct_task: int | None) -> StreamRoutes:
        """The stream an emit names. Raises BadEmit for one that is not declared, or not direct."""
        routes = self.default if stream is None else self.streams.get(stream)
        if routes is None:
            declared = ", ".join(map(repr, self.streams)) or "none"
            raise BadEmit(
                f"{self.component} emitted on stream {stream or DEFAULT_STREAM!r}, which it does not declare "
                f"(declared: {declared}). Add it to the class's `outputs`, or name one of these."
            )
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
        """A copy of the values as they travel. Raises BadEmit or ValueCannotTravel."""
        if isinstance(values, NO_ROWS) or len(values) != routes.width:
            raise BadEmit(
                f"{self.component} emitted {values!r:.120} on stream {routes.name!r}, which declares "
                f"{routes.width} field(s): {', '.join(routes.fields)}. Emit a list with one value per field."
            )
        for value in values:
            if value.__class__ not in PLAIN:
                return travelling(values, self.component, routes.name, routes.fields)
        return [*values]
