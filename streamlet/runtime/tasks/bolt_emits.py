"""Sending what a bolt emits, anchored to its present tuple, to other tuples, or to none.

Each emit draws a random edge, XORs it into ``children`` of its anchors, and puts it with the row into the outbox of the
receiver. Emits of other threads are handed over to the loop and made there.

Pure. Deliberately absent: when a tuple is done (``bolt_task``), and where an outbox goes (``emitter``, the loop).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from streamlet.base.errors import BadEmit
from streamlet.components.batch import Batch, tuple_or_batch
from streamlet.components.bolt import Bolt
from streamlet.components.columns import Columns
from streamlet.components.tuples import OPEN, Tuple, TupleId, tuple_of
from streamlet.model.stream import DEFAULT_STREAM
from streamlet.runtime.tasks import settling
from streamlet.runtime.tasks.emitter import Emitter, Outbox, Pick, StreamRoutes
from streamlet.runtime.tasks.other_threads import RefusedEmits, TaskCalls
from streamlet.runtime.tasks.task_stats import TaskStats
from streamlet.runtime.tasks.untracked_counts import TaskCells, cells_apart
from streamlet.runtime.tasks.user_errors import Defined, called_by_users, users_line
from streamlet.runtime.tasks.values import INT_MAX, INT_MIN, PLAIN, copies
from streamlet.tracking.roots import entry_of
from streamlet.tracking.shared_roots import Root, each_root

ReportError = Callable[[BaseException, Tuple | Batch | None, Defined], None]
"""Takes an error of the user's code, the tuple or batch at work, and the function that was called."""


class Mark(NamedTuple):
    """Where the outboxes stood before a call that may be taken back."""

    boxes: list[int]
    copied: int


class BoltEmits:
    """The emits of one bolt. Lives on the loop's thread; ``emit`` and ``emit_many`` are for any."""

    def __init__(
        self,
        bolt: Bolt,
        emitter: Emitter,
        calls: TaskCalls,
        acks: dict[Root, int],
        getrandbits: Callable[[int], int],
        stats: TaskStats,
        report: ReportError,
        boxes: Collection[Outbox] = (),
        cells: TaskCells | None = None,
    ) -> None:
        self.bolt = bolt
        self.emitter = emitter
        self.calls = calls
        self.acks = acks
        self.getrandbits = getrandbits
        self.stats = stats
        self.report = report
        self._boxes = boxes
        self.current: Tuple | Batch | None = None
        """The tuple or batch that the bolt is at, which an emit is anchored to; the task sets it."""
        self.copied = 0
        """Rows in the outboxes minus emits: an emit has a row for each reader, and none where nobody reads."""
        self.in_outboxes = (cells_apart() if cells is None else cells).in_outboxes
        self._counts_rows = True
        """Whether untracked rows are counted there; not those of a thread, which count as handed over."""
        self._splits = bolt.on_batch_error == "split"
        self.named_anchors: list[Tuple | Batch] = []
        """Anchors that the present call of a batch that may be split has named."""

    def fastest(self) -> Callable[..., list[int] | None]:
        """Return the ``emit`` for the bolt as it is set now."""
        default = self.emitter.default
        if default is None or default.single is None or not self.emitter.one_stream or not self.bolt.auto_anchor:
            return self.emit_anywhere
        if default.width == 1:
            return _emit_one_field(self, default.single_value)
        return _emit_row(self, default.width, default.single)

    # -- emitting ------------------------------------------------------------------------------------------

    def emit_anywhere(
        self,
        tup: Sequence[Any],
        stream: str | None = None,
        anchors: Sequence[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Emit on any stream, with any anchors, to any number of readers. Any thread."""
        if not self.calls.here():
            return self.emit_from_other_thread(tup, stream, anchors, direct_task, need_task_ids)
        routes = self.emitter.routes(stream, direct_task)
        values = self.emitter.checked(tup, routes)
        boxes = self._send(values, routes, self._anchors(anchors, routes), direct_task)
        return [box.target for box in boxes] if need_task_ids else None

    def emit_many(
        self,
        tuples: Iterable[Sequence[Any]],
        stream: str | None = None,
        anchors: Sequence[Tuple | TupleId] | Batch | None = None,
    ) -> None:
        """Emit several tuples; none of them unless all can travel. Any thread."""
        rows = tuples if isinstance(tuples, Columns) else [*tuples]
        if not self.calls.here():
            self._emit_many_from_other_thread(rows, stream, anchors)
            return
        routes = self.emitter.routes(stream, None)
        found = self._anchors(anchors, routes)
        tracked = [anchor for anchor in found if anchor.root]
        one_root = len(tracked) < 2 and all(anchor.anchors is None for anchor in tracked)
        columns = routes.plain_columns(rows) if one_root and rows else None
        if columns is None:
            for values in [self.emitter.checked(row, routes) for row in rows]:
                self._send(values, routes, found, None)
            return
        # The rows of each receiver are one block, with one edge.
        for box, select in routes.shares(columns):
            some = columns.select(select)
            if not tracked:
                self._note_untracked(len(some))
            edge = self.getrandbits(64) if tracked else 0
            for anchor in tracked:
                anchor.children ^= edge
            box.put_block(routes.name, tracked[0].root if tracked else 0, edge, some)
        self._settle_others(tracked)

    def _emit_many_from_other_thread(
        self,
        rows: list[Sequence[Any]] | Columns,
        stream: str | None,
        anchors: Sequence[Tuple | TupleId] | Batch | None,
    ) -> None:
        def emit_all() -> None:
            for row in copied:
                self._emit_handed_over(row, stream, given, None, at)

        at = users_line()
        try:
            copied = [self.calls.row(self.emitter, row, stream, None, False) for row in rows]
            given = _given_anchors(anchors)
            self._refuse_settled(given, stream or DEFAULT_STREAM)
            self.calls.put(emit_all, "emit_many", copied, tracked=_are_tracked(given), anchors=given)
        except Exception as error:
            self.calls.note_refused(error, len(rows), _is_one_open(anchors))
            raise

    def _anchors(self, given: Iterable[Any] | Batch | None, routes: StreamRoutes) -> tuple[Tuple | Batch, ...]:
        """Return the anchors of an emit. Raises BadEmit if one of them is done."""
        anchors: tuple[Tuple | Batch, ...]
        if given is None:
            anchors = (self.current,) if self.current is not None and self.bolt.auto_anchor else ()
        elif isinstance(given, Batch):
            anchors = (given,)
        else:
            # Once: a second look at an iterator finds nothing, and the tuple would be tracked by nobody.
            anchors = tuple(one if isinstance(one, Batch) else tuple_of(one) for one in given)
        if self._splits:
            self.named_anchors += anchors
        self._refuse_settled(anchors, routes.name)
        return anchors

    def _refuse_settled(self, anchors: Iterable[Tuple | Batch], stream: str) -> None:
        """Raise BadEmit for an anchor whose tree is over. Any thread."""
        if any(anchor.state != OPEN and anchor.root for anchor in anchors):
            raise BadEmit(
                f"{self.emitter.component} emitted on stream {stream!r} with an anchor that was already acked or "
                "failed: its tree could never complete. Emit before you ack, or emit with anchors=[]. Where a thread "
                "emits after process has returned, set auto_ack = False and ack the tuple then."
            )

    def _send(
        self, values: list[Any], routes: StreamRoutes, anchors: Sequence[Tuple | Batch], direct_task: int | None
    ) -> list[Outbox]:
        boxes = routes.boxes(values, direct_task)
        self.copied += len(boxes) - 1
        # A row for each receiver: with one list in two outboxes a bolt could change what another bolt receives.
        for box, row in zip(boxes, copies(values, len(boxes)), strict=False):
            self._put(box, routes.name, row, anchors)
        self._settle_others(anchors)
        return boxes

    def note_emitted(self, rows: int) -> None:
        """Count the emits whose rows have left the outboxes."""
        # Rule: an emit counts once, whatever its readers. The closures do not count: one reader has a row an emit, and
        # only the way of all others notes by how many its rows differ.
        self.stats.emitted += rows - self.copied
        self.copied = 0

    def _settle_others(self, anchors: Iterable[Tuple | Batch]) -> None:
        for anchor in anchors:
            if isinstance(anchor, Batch) and anchor is not self.current:  # nothing else looks at it before its ack
                settling.settle_children(anchor, self.acks)

    def emit_from_other_thread(
        self,
        tup: Sequence[Any],
        stream: str | None,
        anchors: Sequence[Tuple] | None,
        direct_task: int | None,
        need_task_ids: bool,
    ) -> list[int] | None:
        """Hand an emit of another thread over to the loop.

        It is anchored to the tuples that it names, and to nothing else.
        """
        try:
            row = self.calls.row(self.emitter, tup, stream, direct_task, need_task_ids)
            given = _given_anchors(anchors)
            self._refuse_settled(given, stream or DEFAULT_STREAM)
            act = partial(self._emit_handed_over, row, stream, given, direct_task, users_line())
            self.calls.put(act, "emit", [row], tracked=_are_tracked(given), anchors=given)
        except Exception as error:
            self.calls.note_refused(error, 1, _is_one_open(anchors))
            raise
        return None

    def _emit_handed_over(
        self, row: list[Any], stream: str | None, anchors: Sequence[Any], direct_task: int | None, at: tuple[str, int]
    ) -> None:
        """Make an emit of another thread, called at the line ``at``."""
        self._counts_rows = False  # they count as handed over until they are collected
        try:
            self.emit_anywhere(row, stream, anchors, direct_task)
        except BadEmit as error:  # an anchor was acked meanwhile
            # Rule: what was taken from a thread is processed, or counted: the call has returned, and nobody else knows
            # that this row is gone.
            self.stats.errors += 1
            self.stats.give_up_untracked(1)
            error.called_at = f"{at[0]}:{at[1]}"  # the loop's stack knows nothing of who called
            self.report(error, anchors[0] if anchors else None, None)
        finally:
            self._counts_rows = True

    def give_up_refused(self, refused: RefusedEmits) -> None:
        """Count emits of other threads that were refused, and tell why."""
        self.stats.errors += 1
        self.stats.give_up_untracked(refused.gone)
        self.report(refused.error, None, None)

    def _note_untracked(self, rows: int) -> None:
        """Count untracked rows of a tick before they are in outboxes."""
        # Rule: as at a spout. What `process` emits is covered by its tuple, which counts as done only afterwards.
        if self.current is None and self._counts_rows:
            self.in_outboxes[0] += rows

    def _put(self, box: Outbox, stream: str, values: list[Any], anchors: Sequence[Tuple | Batch]) -> None:
        """Put a row into an outbox, with fresh edges for its anchors."""
        # Every edge is a random 64-bit number. A counter times a constant is not independent under XOR: small trees
        # could cancel to zero, and be acked before they are done.
        tracked = [anchor for anchor in anchors if anchor.root]
        if not tracked:
            self._note_untracked(1)
            put = box.switch(stream)
            box.has_untracked = True
            put((0, 0, values))
        elif len(tracked) == 1 and tracked[0].anchors is None:
            edge = self.getrandbits(64)
            tracked[0].children ^= edge
            box.switch(stream)((tracked[0].root, edge, values))
        else:
            # One edge for each anchor, even for two of one tree: a shared edge would be XORed in twice and vanish, and
            # the tree would be acked too early.
            edges: dict[int, int] = {}
            for anchor in tracked:
                edge = self.getrandbits(64)
                anchor.children ^= edge
                # Into each entry of the ledger once, as `settling` does with the children: two trees of one set would
                # cancel each other out. The others are named, with nothing.
                entries: set[int] = set()
                for root in each_root(root for root, _ in anchor.anchors or ((anchor.root, 0),)):
                    entry = entry_of(root)
                    edges[root] = edges.get(root, 0) ^ (0 if entry in entries else edge)
                    entries.add(entry)
            box.switch(stream, multi=True)((list(edges), list(edges.values()), values))
            box.switch(stream)  # the fast closure appends without asking what the outbox holds

    # -- taking back -----------------------------------------------------------------------------------------

    def mark(self) -> Mark:
        """Return where the outboxes stand, for ``take_back``."""
        return Mark([box.mark() for box in self._boxes], self.copied)

    def take_back(self, mark: Mark) -> None:
        """Take the rows emitted since a mark out of the outboxes."""
        for box, before in zip(self._boxes, mark.boxes, strict=True):
            box.withdraw(before)
        self.copied = mark.copied

    def may_be_taken_back(self, batch: Batch) -> bool:
        """Tell whether emits for a batch that raised may be taken back."""
        # Rule: only emits for the batch or tuples of it that are open. The edge of another anchor, or of one that was
        # acked, has gone into its tree: without its row that tree would never be complete.
        own = {id(batch), *map(id, batch.made or ())}
        untouched = batch.state == OPEN and all(tup.state == OPEN for tup in batch.made or ())
        return self._splits and len(batch) > 1 and untouched and own.issuperset(map(id, self.named_anchors))


for _method in (BoltEmits.emit_anywhere, BoltEmits.emit_many):
    called_by_users(_method)


def _emit_row(emits: BoltEmits, width: int, pick: Pick) -> Callable[..., list[int] | None]:
    """Make the closure for several fields."""
    slow, bits, plain = emits.emit_anywhere, emits.getrandbits, PLAIN
    here, from_other_thread = emits.calls.here, emits.emit_from_other_thread

    def emit(
        tup: Sequence[Any],
        stream: str | None = None,
        anchors: Sequence[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        if not here():
            return from_other_thread(tup, stream, anchors, direct_task, need_task_ids)
        if stream is not None or anchors is not None or need_task_ids or direct_task is not None:
            return slow(tup, stream, anchors, direct_task, need_task_ids)
        # Asked before the values are: what has none goes the slow way, which says so.
        if tup.__class__ is not list and tup.__class__ is not tuple:
            return slow(tup)
        for value in tup:
            if value.__class__ not in plain and not (value.__class__ is int and INT_MIN <= value <= INT_MAX):
                return slow(tup)
        current = emits.current
        if len(tup) != width or current is None or current.anchors is not None:
            return slow(tup)
        box = pick(tup)
        put = box.extend  # a look-up and a call are cheaper apart: the slot is no method
        root = current.root
        if root:
            edge = bits(64)
            current.children ^= edge
            put((root, edge, [*tup]))
        else:
            box.has_untracked = True
            put((0, 0, [*tup]))
        return None

    return called_by_users(emit)


def _emit_one_field(emits: BoltEmits, pick: Callable[[Any], Outbox]) -> Callable[..., list[int] | None]:
    """Make the closure for one field: no loop over values, no call for a key."""
    slow, bits, plain = emits.emit_anywhere, emits.getrandbits, PLAIN
    here, from_other_thread = emits.calls.here, emits.emit_from_other_thread

    def emit(
        tup: Sequence[Any],
        stream: str | None = None,
        anchors: Sequence[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        if not here():
            return from_other_thread(tup, stream, anchors, direct_task, need_task_ids)
        if stream is not None or anchors is not None or need_task_ids or direct_task is not None:
            return slow(tup, stream, anchors, direct_task, need_task_ids)
        current = emits.current
        if (tup.__class__ is not list and tup.__class__ is not tuple) or current is None or current.anchors is not None:
            return slow(tup)
        try:
            (value,) = tup  # cheaper than to ask for the length and index
        except ValueError:
            return slow(tup)
        if value.__class__ not in plain and not (value.__class__ is int and INT_MIN <= value <= INT_MAX):
            return slow(tup)
        box = pick(value)
        put = box.extend  # a look-up and a call are cheaper apart: the slot is no method
        root = current.root
        if root:
            edge = bits(64)
            current.children ^= edge
            put((root, edge, [value]))
        else:
            box.has_untracked = True
            put((0, 0, [value]))
        return None

    return called_by_users(emit)


def _are_tracked(anchors: Sequence[Tuple | Batch]) -> bool:
    return any(anchor.root for anchor in anchors)


def _is_one_open(anchors: Iterable[Any] | Batch | None) -> bool:
    """Tell whether an anchor is open, and answers for the emit.

    Anchors may be wrong ones.
    """
    named = (anchors,) if isinstance(anchors, Batch) else anchors if isinstance(anchors, (list, tuple)) else ()
    return any(getattr(getattr(one, "tup", one), "state", None) == OPEN for one in named)


def _given_anchors(anchors: Iterable[Any] | Batch | None) -> tuple[Tuple | Batch, ...]:
    """Return the anchors that an emit names; none for None. Raises TypeError."""
    return (anchors,) if isinstance(anchors, Batch) else tuple(map(tuple_or_batch, anchors or ()))
