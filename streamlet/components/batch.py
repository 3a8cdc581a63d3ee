"""The batch that a bolt receives in one call of ``process_batch``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from streamlet.base.errors import BadInput, StreamletError
from streamlet.components.columns import Columns, Rows
from streamlet.components.tuples import OPEN, Tuple, TupleId, tuple_of


class Batch:
    """Tuples of one stream of one task, in order.

    Those that waited for a bolt, up to its ``batch_size``.

    ``component``, ``stream`` and ``task`` name the sender, ``fields`` the fields of the stream. As an anchor it stands
    for all its tuples. The rest belongs to tracking: ``root`` stands for all their trees, ``children`` is the XOR of
    the edges that were anchored to the batch as a whole.
    """

    # An emit asks the present tuple for root, children, anchors and state, and a batch for the same.
    __slots__ = (
        "_part_edges",
        "_rows",
        "_tuples",
        "anchors",
        "children",
        "component",
        "edges",
        "fields",
        "kind",
        "root",
        "roots",
        "state",
        "stream",
        "task",
    )

    def __init__(
        self,
        rows: Rows,
        component: str = "",
        stream: str = "default",
        task: int = 0,
        fields: Sequence[str] = (),
        *,
        roots: Sequence[Any] = (),
        edges: Sequence[Any] = (),
        root: Any = 0,
        kind: type[Tuple] = Tuple,
        part_edges: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]] | None = None,
    ) -> None:
        self._rows = rows
        self._part_edges = part_edges
        self.component = component
        self.stream = stream
        self.task = task
        self.fields = fields
        self.roots = roots or [0] * len(rows)
        self.edges = edges or [0] * len(rows)
        self.root = root
        self.children = 0
        self.anchors: Sequence[tuple[int, int]] | None = None
        self.state = OPEN
        self.kind = kind
        self._tuples: list[Tuple] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Tuple]:
        return iter(self.tuples)

    def __repr__(self) -> str:
        return f"Batch({len(self)} tuples from {self.component}[{self.stream}] task {self.task})"

    @property
    def rows(self) -> list[list[Any]]:
        """The values of each tuple."""
        # Made when asked for, and once: a tuple's values and its row are one list.
        if isinstance(self._rows, Columns):
            self._rows = [*self._rows]
        return self._rows

    def peek(self) -> list[list[Any]]:
        """Return the values of each tuple, and change nothing: for a thread that is not the bolt's."""
        return [*self._rows]

    @property
    def tuples(self) -> list[Tuple]:
        """The tuples: to ack, fail or anchor to one apart from the rest."""
        # Made when asked for: a bolt that reads columns pays for none.
        if self._tuples is None:
            self.part()
            self._tuples = [self._tuple(*row) for row in zip(self.rows, self.roots, self.edges, strict=True)]
        return self._tuples

    def part(self) -> None:
        """Give each tuple its own edge where several share one.

        For the runtime. Any thread.
        """
        # Rule: made of roots and edges alone, by a function that gives the same edges each time. Two threads may ask
        # for the tuples at once, and a tuple of each is settled.
        if self._part_edges is not None and self.state == OPEN:
            self.edges = self._part_edges(self.roots, self.edges)

    @property
    def multi(self) -> bool:
        """Whether its tuples have several roots each, as lists, for the runtime."""
        return bool(self.roots) and isinstance(self.roots[0], list)

    @property
    def made(self) -> list[Tuple] | None:
        """The tuples if they were asked for, for the runtime."""
        return self._tuples

    def _tuple(self, values: list[Any], root: Any, edge: Any) -> Tuple:
        if isinstance(root, list):
            anchors = tuple(zip(root, edge, strict=True))
            made = self.kind(values, self.component, self.stream, self.task, root[0], edge[0], anchors)
        else:
            made = self.kind(values, self.component, self.stream, self.task, root, edge)
        made.state = self.state  # acked with its batch before it was made, it must not be acked again
        return made

    def values(self, field: str | int = 0) -> list[Any]:
        """Return one field's values as a column. Raises BadInput for a field the stream does not have."""
        at = field if isinstance(field, int) else self._place(field)
        try:
            if isinstance(self._rows, Columns):
                return [*self._rows.by_field[at]]
            return [row[at] for row in self._rows]
        except IndexError:
            raise self._no_field(field) from None

    def arrow(self) -> Any:
        """Return the batch as a ``pyarrow.RecordBatch``, a column for each field. Needs pyarrow."""
        try:
            import pyarrow
        except ImportError:
            raise StreamletError(
                "batch.arrow() needs pyarrow, which is not installed: `pip install pyarrow`, or read the columns as "
                "lists with batch.values(field)."
            ) from None
        columns = []
        for at, field in enumerate(self.fields):
            try:
                columns.append(pyarrow.array(self.values(at)))
            except pyarrow.ArrowException as error:
                raise BadInput(
                    f"The field {field!r} of the stream {self.stream!r} of {self.component} cannot be a column of "
                    f"arrow: {str(error).rstrip('.')}. Read it as a list: batch.values({field!r})."
                ) from error
        return pyarrow.RecordBatch.from_arrays(columns, names=list(self.fields))

    def _place(self, field: str) -> int:
        try:
            return [*self.fields].index(field)
        except ValueError:
            raise self._no_field(field) from None

    def _no_field(self, field: str | int) -> BadInput:
        names = ", ".join(map(repr, self.fields)) or "none"
        return BadInput(
            f"The stream {self.stream!r} of {self.component} has no field {field!r}. It has: {names}. A field is "
            "named, or counted from 0."
        )


def tuple_or_batch(given: Tuple | TupleId | Batch) -> Tuple | Batch:
    """Return the tuple or batch that a user means. Raises TypeError."""
    return given if isinstance(given, Batch) else tuple_of(given)
