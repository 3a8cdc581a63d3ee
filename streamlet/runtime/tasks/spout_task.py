"""Running a spout: when it is asked for tuples, its trees, and how it learns their ends.

The ledger of a spout's trees lives here, beside the spout (Storm's acker without a task of its own). A tree is opened
before anything of it is sent, so a delta for an unknown root is late, never early.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Sized
from functools import partial
from itertools import chain, islice
from sys import byteorder
from typing import Any

from streamlet.base.clock import Clock
from streamlet.base.errors import BadEmit
from streamlet.base.printable import cut
from streamlet.components.columns import Columns
from streamlet.components.kept_bytes import KeptBytes
from streamlet.components.reliable_spout import ReliableSpout
from streamlet.components.spout import WORKER_DIED, FailReason, FailureCause, MessageIds, Spout, hears_failures
from streamlet.model.delivery import EPOCH_STREAMS
from streamlet.runtime.tasks.emitter import MAKE_S, WEIGH_AFTER_S, Emitter, Outbox, StreamRoutes
from streamlet.runtime.tasks.in_hand import Key, message_key
from streamlet.runtime.tasks.other_threads import OtherThreads, TaskCalls
from streamlet.runtime.tasks.task_stats import TaskStats
from streamlet.runtime.tasks.untracked_counts import TaskCells, cells_apart
from streamlet.runtime.tasks.user_errors import called_by_users
from streamlet.runtime.tasks.values import INT_MAX, INT_MIN, PLAIN, copies
from streamlet.tracking.acker import AckLedger
from streamlet.tracking.census import CensusResult
from streamlet.tracking.overdue import NOBODY, Overdue
from streamlet.tracking.pending import PendingSet
from streamlet.tracking.roots import LAST_TRY, SET_TREES, STEP, end_of, entry_of, owner_task
from streamlet.tracking.window import PendingWindow

SAMPLED = 32
"""One tree of its own in so many is timed from emit to last ack; of sets, every one."""

SAMPLE = SAMPLED * STEP - 1
"""Mask of a root that is timed."""


ASK_S = 0.005
"""Seconds to ask a spout for tuples in one turn; then the tuples it emitted leave."""

LOOKS = frozenset([1, 2, 4, 8, *range(16, 1 << 12, 16)])
"""Numbers of calls in a turn after which the clock is read: after the first of a slow spout."""

FEW = 16
"""Tuples below which those emitted at once are put in one by one, and travel with their neighbours."""

MOST_PLACES = 1000
"""Most trees, oldest first, whose places are looked for."""

PLACES_AFTER_S = 5.0
"""Seconds until the place of an open tree is looked for, and between two looks."""

MOST_FOLLOWED = 100_000
"""Most failed messages that are followed until they are acked."""


class SpoutTask:
    """A spout instance with everything bound, and the ledger of its trees. Lives on the loop's thread."""

    # Long: an emit opens a tree and an ack, failure or time-out closes it, in one ledger and one set of counters. What
    # is pure is in `tracking`: the ledger, ages, the window, time-outs.

    def __init__(
        self,
        spout: Spout,
        task_id: int,
        epoch: int,
        emitter: Emitter,
        getrandbits: Callable[[int], int],
        clock: Clock,
        *,
        tracked: bool,
        window: PendingWindow,
        timeout_s: float,
        crashes: Mapping[Key, int] = {},
        most_crashes: int = 0,
        calls: TaskCalls | None = None,
        cells: TaskCells | None = None,
        by_batch: bool = False,
        may_join: bool = False,
        emitted_much: Callable[[], bool] = lambda: False,
    ) -> None:
        self.spout = spout
        self.hears_failures = hears_failures(type(spout))
        """Whether it may send again what failed. Of any other spout each failure is final."""
        self.calls = TaskCalls(OtherThreads(), emitter.component) if calls is None else calls
        self.here = self.calls.here
        self.task_id = task_id
        self.emitter = emitter
        self.getrandbits = getrandbits
        self.clock = clock
        self.tracked = tracked
        self.by_batch = by_batch
        """Whether all its readers take batches."""
        self._as_sets = tracked and by_batch and may_join
        """Whether trees of one ``emit_each`` are tracked as a set: readers take batches, and no bolt acks by hand."""
        self.window = window
        self.ledger = AckLedger()
        self.overdue = Overdue(timeout_s)
        self.places: dict[Hashable, int] = {}
        """Messages of old trees, and the task at which each was seen last."""
        self._places_due_s = self._places_over_s = 0.0
        self._looks_for_places = False
        self.counting: tuple[int, int, int, int] | None = None
        """When the present round of the census began: emits, trees done, trees open; and the bound of overdue ones."""
        self.pending = PendingSet(task_id, epoch, timeout_s)
        self.stats = TaskStats()
        self.report_metric = self.stats.report_metric
        self.emits = 0
        """Calls of emit, and messages of ``emit_each``: what a turn is counted by."""
        self._more_tuples = 0
        """Tuples of ``emit_many`` beyond one a call, since ``emits`` counts calls."""
        self.in_outboxes = (cells_apart() if cells is None else cells).in_outboxes
        self._counts_rows = True
        """Whether untracked rows are counted there; not those of a thread, which count as handed over."""
        self.untracked_lost = 0
        """Untracked rows that no frame could hold, or that were taken back."""
        self.active = False
        self.paused = False
        """Whether somebody asked that it emits nothing: see ``WorkerLoop.pause_parts``."""
        self.retired = False
        """Whether it has raised, and is asked for nothing more; what it has open is finished."""
        self._epoch_roots: set[int] = set()
        """Open trees of tuples about epochs."""
        self._epoch_emits = 0
        self._emits_asked = 0
        self._most_emits = 0
        """Emits after which the present turn ends."""
        self._emitted_much = emitted_much
        """Tells whether what waits in the outboxes is as much as one turn may emit."""
        self._follows = not spout.answers_for_failures
        self._failed_ids: set[Hashable] = set()  # failed, and not acked since
        self._failed_besides = 0
        """Failures that are counted and not followed: ``_failed_ids`` was full."""
        self._complete: list[Any] = []  # acked before any bolt saw them: no receiver, or tracking is off
        self._complete_rows = 0
        """How many rows these have in the outboxes."""
        self._emitted_at: dict[int, float] = {}
        self.called_at = clock.monotonic()
        """When the present call of the spout began: what it emits counts from then. Read once a call, not a tuple."""
        self.kept_bytes = 0
        """Bytes that the spout kept at the last look, to send them again."""
        self.kept = KeptBytes(lambda: spout.unacked_tuples if isinstance(spout, ReliableSpout) else {}, self._hold_back)
        """The messages of a ReliableSpout among them."""
        self._replay = spout.replay if isinstance(spout, ReliableSpout) else None
        self._crashes = dict(crashes)
        self._most_crashes = most_crashes
        self._spares = False
        self._poison_ids: list[Any] = []  # emitted again after they had killed their worker too often, and not sent
        self.emit: Callable[..., list[int] | None] = self._fast_emit() or self.emit_anywhere
        if any(map(self._kills_too_often, crashes.values())):
            self._skip_poison()
        spout.bind(self)

    @property
    def full(self) -> bool:
        """Whether as many trees are open as may be."""
        return len(self.pending) >= self.window.size

    # -- emitting ------------------------------------------------------------------------------------------

    def _fast_emit(self) -> Callable[..., list[int] | None] | None:
        """Make the closure for a tracked default stream with one reader.

        None where the topology is not of that shape.
        """
        default = self.emitter.default
        if default is None or default.single is None or not self.emitter.one_stream or not self.tracked:
            return None
        pick, width, slow, bits = default.single, default.width, self.emit_anywhere, self.getrandbits
        pending, ids, trees, emitted_at = self.pending, self.pending.ids, self.ledger.open, self._emitted_at
        task, here, from_other_thread = self, self.here, self.emit_from_other_thread

        def emit(
            tup: Sequence[Any],
            tup_id: Hashable | None = None,
            stream: str | None = None,
            direct_task: int | None = None,
            need_task_ids: bool = False,
        ) -> list[int] | None:
            if not here():
                return from_other_thread(slow, tup, tup_id, stream, direct_task, need_task_ids)
            if tup_id is None or stream is not None or need_task_ids or direct_task is not None:
                return slow(tup, tup_id, stream, direct_task, need_task_ids)
            if tup.__class__ is not list and tup.__class__ is not tuple:
                return slow(tup, tup_id)
            for value in tup:
                if value.__class__ not in PLAIN and not (value.__class__ is int and INT_MIN <= value <= INT_MAX):
                    return slow(tup, tup_id)
            if len(tup) != width:
                return slow(tup, tup_id)
            root = pending.next_root
            pending.next_root = root + STEP
            edge = bits(64)
            ids[root] = tup_id
            trees[root] = edge
            if not root & SAMPLE:
                emitted_at[root] = task.called_at
            task.emits += 1
            put = pick(tup).extend
            put((root, edge, [*tup]))
            return None

        return called_by_users(emit)

    def emit_anywhere(
        self,
        tup: Sequence[Any],
        tup_id: Hashable | None = None,
        stream: str | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Emit on any stream, to any number of readers, tracked or not. Any thread."""
        if not self.here():
            return self.emit_from_other_thread(self.emit_anywhere, tup, tup_id, stream, direct_task, need_task_ids)
        routes = self.emitter.routes(stream, direct_task)
        values = self.emitter.checked(tup, routes)
        boxes = routes.boxes(values, direct_task)
        self._open([*zip(boxes, copies(values, len(boxes)), strict=False)], tup_id, routes.name)
        return [box.target for box in boxes] if need_task_ids else None

    def emit_many(
        self, tuples: Iterable[Sequence[Any]], tup_id: Hashable | None = None, stream: str | None = None
    ) -> None:
        """Emit several tuples of one root; nothing unless all of them can travel. Any thread."""
        if not self.here():
            self.emit_many_from_other_thread(self.emit_many, tuples, tup_id, stream)
            return
        routes = self.emitter.routes(stream, None)
        rows: list[tuple[Outbox, list[Any]]] = []
        more = -1
        for values in tuples:
            checked = self.emitter.checked(values, routes)
            boxes = routes.boxes(checked, None)
            rows.extend(zip(boxes, copies(checked, len(boxes)), strict=False))
            more += 1
        self._open(rows, tup_id, routes.name)
        self._more_tuples += more

    def emit_each(self, tuples: Iterable[Sequence[Any]], tup_ids: Iterable[Hashable]) -> bool:
        """Emit tuples on the default stream, a tree each. Any thread.

        None of them unless all can travel. Returns whether they are one set: ``ack_many`` gets ``tup_ids`` back whole
        then, if none of them fails. False on another thread, where that is not known yet.
        """
        rows = tuples if isinstance(tuples, Columns) else [*tuples]
        ids: Sequence[Hashable] = tup_ids if isinstance(tup_ids, MessageIds) else [*tup_ids]
        self._compare(rows, ids)
        if not self.here():
            self.emit_each_from_other_thread(self.emit_each, rows, ids)
            return False
        routes = self.emitter.routes(None, None)
        named = isinstance(ids, MessageIds) or None not in ids
        columns = routes.plain_columns(rows) if rows and named and not self._spares else None
        if columns is None:
            checked = [self.emitter.checked(row, routes) for row in rows]
            for row, tup_id in zip(checked, ids, strict=True):
                self.emit(row, tup_id)
            return False
        self.emits += len(rows)
        if len(rows) <= SET_TREES:
            return self._send_each(columns, ids, routes)
        for first in range(0, len(rows), SET_TREES):
            some = slice(first, first + SET_TREES)
            self._send_each(columns[some], ids[some], routes)
        return False

    def _compare(self, rows: Sized, ids: Sized) -> None:
        if len(rows) != len(ids):
            raise BadEmit(f"{self.emitter.component} called emit_each with {len(rows)} tuples and {len(ids)} ids.")

    def _send_each(self, columns: Columns, ids: Sequence[Hashable], routes: StreamRoutes) -> bool:
        as_one = self._as_sets and len(ids) >= FEW
        if not self.tracked:
            self._complete.extend(ids)
            roots = edges = [0] * len(ids)
        else:
            roots, edges = self._open_each(ids, as_one=as_one)
        if len(ids) < FEW and (pick := routes.single) is not None:
            if not self.tracked:
                self._note_untracked(len(ids))
                self._complete_rows += len(ids)
            for row, root, edge in zip(columns, roots, edges, strict=True):
                box = pick(row)
                put = box.switch(routes.name)
                box.has_untracked |= not self.tracked
                put((root, edge, row))
            return as_one
        for box, select in routes.shares(columns):
            rows = columns.select(select)
            if not self.tracked:
                self._note_untracked(len(rows))
                self._complete_rows += len(rows)
            box.put_run(routes.name, select(roots), select(edges), rows, has_untracked=not self.tracked)
        return as_one

    def _open_each(self, ids: Sequence[Hashable], *, as_one: bool) -> tuple[list[int], list[int]]:
        """Open a tree of one edge for each message; return roots and edges."""
        # Before anything is sent, as in `_open`.
        count, pending = len(ids), self.pending
        drawn = self.getrandbits(64 * count)
        edges = memoryview(drawn.to_bytes(8 * count, byteorder)).cast("Q").tolist()
        if as_one:  # one entry in the ledger, one delta for all
            roots = pending.open_set(ids)
            self.ledger.open[roots.start] = _xor_of_edges(drawn, count)
            self._emitted_at[roots.start] = self.called_at
            return [*roots], edges
        first = pending.next_root & ~LAST_TRY  # that is of one message
        pending.next_root = end = first + count * STEP
        roots = range(first, end, STEP)
        pending.ids.update(zip(roots, ids, strict=True))
        self.ledger.open.update(zip(roots, edges, strict=True))
        for root in range(first + (-first & SAMPLE), end, SAMPLE + 1):
            self._emitted_at[root] = self.called_at
        return [*roots], edges

    def emit_from_other_thread(
        self,
        emit: Callable[..., Any],
        tup: Sequence[Any],
        tup_id: Hashable | None,
        stream: str | None,
        direct_task: int | None,
        need_task_ids: bool,
    ) -> list[int] | None:
        """Hand another thread's ``emit`` over to the loop."""
        try:
            row = self.calls.row(self.emitter, tup, stream, direct_task, need_task_ids)
            self.calls.put(partial(emit, row, tup_id, stream, direct_task), "emit", [row], tracked=self._tracks(tup_id))
        except Exception as error:
            # Its source has it still, which it was not taken from.
            self.calls.note_refused(error, 1, has_open_anchor=True)
            raise
        return None

    def _tracks(self, tup_id: Hashable | None) -> bool:
        return self.tracked and tup_id is not None

    def emit_many_from_other_thread(
        self,
        emit_many: Callable[..., None],
        tuples: Iterable[Sequence[Any]],
        tup_id: Hashable | None,
        stream: str | None,
    ) -> None:
        """Hand another thread's ``emit_many`` over to the loop."""
        given = [*tuples]
        try:
            rows = [self.calls.row(self.emitter, values, stream, None, False) for values in given]
            self.calls.put(partial(emit_many, rows, tup_id, stream), "emit_many", rows, tracked=self._tracks(tup_id))
        except Exception as error:
            # Its source has it still, which it was not taken from.
            self.calls.note_refused(error, len(given), has_open_anchor=True)
            raise

    def emit_each_from_other_thread(
        self, emit_each: Callable[..., bool], rows: list[Sequence[Any]] | Columns, ids: Sequence[Hashable]
    ) -> None:
        """Hand another thread's ``emit_each`` over to the loop."""
        try:
            self._compare(rows, ids)
            # As one call, and after all rows were looked at: else a bad one, or no room, would come after some were
            # taken.
            copied = [self.calls.row(self.emitter, row, None, None, False) for row in rows]
            self.calls.put(partial(emit_each, copied, ids), "emit_each", copied, tracked=self.tracked)
        except Exception as error:
            # Its source has it still, which it was not taken from.
            self.calls.note_refused(error, len(rows), has_open_anchor=True)
            raise

    def make_handed_over(self, act: Callable[[], object]) -> None:
        """Make an emit of another thread. Its rows count as handed over until they are collected."""
        self._counts_rows = False
        try:
            act()
        finally:
            self._counts_rows = True

    def _note_untracked(self, rows: int) -> None:
        """Count untracked rows before they are in the outboxes."""
        # Rule: an untracked row is counted from its emit on. A worker that dies before the loop has collected it would
        # take it along, and nobody would hear of it.
        if self._counts_rows:
            self.in_outboxes[0] += rows

    def _open(self, rows: Sequence[tuple[Outbox, list[Any]]], tup_id: Hashable | None, stream: str) -> None:
        self.emits += 1
        if tup_id is None or not self.tracked:
            self._note_untracked(len(rows))
            for box, values in rows:
                put = box.switch(stream)
                box.has_untracked = True
                put((0, 0, values))
            if tup_id is not None:
                self._complete.append(tup_id)
                self._complete_rows += len(rows)
            return
        if not rows:
            self._complete.append(tup_id)
            return
        root = self.pending.next_root
        self.pending.next_root += STEP
        value = 0
        edges = []
        # Edges are random, roots are not: a root need only be unique, an edge must be independent under XOR.
        for _ in rows:
            edge = self.getrandbits(64)
            edges.append(edge)
            value ^= edge
        # Opened before anything is sent: a delta can never come before its root.
        self.pending.ids[root] = tup_id
        self.ledger.open[root] = value
        if stream in EPOCH_STREAMS:
            self._epoch_roots.add(root)
            self._epoch_emits += 1
        if not root & SAMPLE:
            self._emitted_at[root] = self.called_at
        for (box, values), edge in zip(rows, edges, strict=True):
            box.switch(stream)((root, edge, values))

    # -- poison: messages that kill their worker -----------------------------------------------------------------------

    def _kills_too_often(self, deaths: int) -> bool:
        return 0 < self._most_crashes <= deaths

    def _skip_poison(self) -> None:
        """Emit no message again that killed its worker too often."""
        # Only in a replacement whose predecessor died with such a message: no other run pays for the look.
        send, send_many = self.emit, self.emit_many

        def is_poison(tup_id: Hashable | None) -> bool:
            if tup_id is None:
                return False
            deaths = self._crashes.get(message_key(self.spout.lasting_id(tup_id)), 0)
            if not self._kills_too_often(deaths):
                return False
            self.emits += 1
            self._poison_ids.append(tup_id)
            return True

        def emit(
            tup: Sequence[Any],
            tup_id: Hashable | None = None,
            stream: str | None = None,
            direct_task: int | None = None,
            need_task_ids: bool = False,
        ) -> list[int] | None:
            if is_poison(tup_id):
                return [] if need_task_ids else None
            return send(tup, tup_id, stream, direct_task, need_task_ids)

        def emit_many(
            tuples: Iterable[Sequence[Any]], tup_id: Hashable | None = None, stream: str | None = None
        ) -> None:
            if not is_poison(tup_id):
                send_many(tuples, tup_id, stream)

        self._spares = True
        vars(self).update(emit=called_by_users(emit), emit_many=called_by_users(emit_many))

    def apply_crashes(self, roots: Iterable[int], how: str, component: str = "") -> None:
        """Fail the trees whose tuples a worker died of.

        ``how`` says how, for a sentence; ``component``: the bolt that was at work on them.
        """
        for tup_id in chain.from_iterable(self._take_failed([root]) for root in roots):
            key = message_key(self.spout.lasting_id(tup_id))
            deaths = self._crashes[key] = self._crashes.get(key, 0) + 1
            times = f"{deaths} time{'' if deaths == 1 else 's'} so far"
            detail, final = f"{how} ({times})", self._kills_too_often(deaths)
            cause = FailureCause(component, WORKER_DIED, f"the worker {detail}")
            self._failed([tup_id], FailReason.CRASHED, detail, cause=cause, final=final, deaths=deaths)

    def _fail_poison(self) -> None:
        ids, self._poison_ids = self._poison_ids, []
        for tup_id in ids:
            deaths = self._crashes[message_key(self.spout.lasting_id(tup_id))]
            self.stats.failed += 1
            detail = f"has died of it {deaths} times"
            cause = FailureCause("", WORKER_DIED, f"the worker {detail}")
            self._tell_failed([tup_id], FailReason.CRASHED, detail, cause=cause, final=True, deaths=deaths)

    # -- the turn ------------------------------------------------------------------------------------------

    def turn(self, budget: int, now: float) -> bool:
        """Ask for tuples while there is room; tell whether any was emitted.

        At most ``budget`` times, for ASK_S, and until it has emitted many bytes. Where the spout ``rests``, it need not
        be asked again at once.
        """
        if not self.active:
            return False
        pending, limit, replay, next_tuple = self.pending, self.window.size, self._replay, self.spout.next_tuple
        ids = pending.ids
        if self.spout.holds_back and replay is not None:
            next_tuple = _emit_nothing
        self.spout.rests = False
        first, monotonic = self.emits, self.clock.monotonic
        self._most_emits = first + budget
        began = monotonic()
        over, weighs_at = began + ASK_S, began + WEIGH_AFTER_S
        try:
            for asked in range(1, budget + 1):
                if len(ids) + pending.in_sets >= limit or self.emits >= self._most_emits:
                    break
                before = self.emits
                if replay is None or not replay():
                    next_tuple()
                    if self.emits == before:
                        break
                # Rule: a turn ends when it has emitted many bytes. No mark counts them before it is over, and 128 rows
                # of a megabyte would be there. A turn of small rows is over before anybody looks.
                if asked in LOOKS and ((at := monotonic()) >= weighs_at or at - began >= (self.emits - first) * MAKE_S):
                    if at >= over or self._emitted_much():
                        break
                    weighs_at = min(at + WEIGH_AFTER_S, over)
        finally:
            self.pending.note_time(now)
        return self.emits != first

    def take_back(self, untracked: int) -> int:
        """Fail messages without trees as lost: their rows will not leave.

        ``untracked`` such rows were taken out of the outboxes. Returns how many of them had no message: nobody sends
        them again.
        """
        ids, self._complete = self._complete, []
        lost = max(0, untracked - self._complete_rows)
        self._complete_rows = 0
        self.untracked_lost += lost
        self._failed(ids, FailReason.LOST)
        return lost

    def as_last_try(self, emit: Callable[[], object]) -> None:
        """Emit a message that is given up if it fails once more."""
        # Rule: it is tried alone before it is given up. A batch fails whole for one tuple of it, and its retries come
        # together again: good messages would be given up with a bad one. The mark is in the root, so that tuples which
        # are made of it have it, too, in every worker.
        if not self.here():  # it is handed over, and opens its tree later: without a mark
            emit()
            return
        self.pending.next_root |= LAST_TRY
        try:
            emit()
        finally:
            self.pending.next_root &= ~LAST_TRY

    def room(self) -> int:
        """Return how many tuples may still be emitted in this turn."""
        left = self._most_emits - self.emits
        # Without trees nothing tells the window how long tuples wait: it stays as it began, at one.
        return max(0, min(self.window.size - len(self.pending), left) if self.tracked else left)

    def weigh(self, most_bytes: int) -> None:
        """Let the spout emit nothing new while it keeps too much.

        From more than ``most_bytes`` on, until it keeps half of that.
        """
        spout, kept = self.spout, self.spout.kept_bytes()
        self.kept.bound(most_bytes)
        if isinstance(spout, ReliableSpout):
            kept += self.kept.look()
        self.kept_bytes = kept
        spout.holds_back = kept > (most_bytes // 2 if spout.holds_back else most_bytes)

    def _hold_back(self) -> None:
        """Let the spout emit nothing new, and end its turn."""
        # Rule: not by the next `weigh`, for a turn may emit many large messages before. Replays go on.
        if not self.spout.holds_back:
            self.spout.holds_back = True
            self._most_emits = 0

    def note_emitted(self) -> None:
        """Count emits: messages, and each tuple of ``emit_many``."""
        self.stats.emitted = self.emits + self._more_tuples - self._epoch_emits

    @property
    def has_complete(self) -> bool:
        """Whether ``deliver_complete`` has anything to tell."""
        return bool(self._complete or self._poison_ids)

    def deliver_complete(self) -> None:
        """Settle messages that were over when emitted: no reader, nothing tracked, or given up."""
        if self._complete:
            ids, self._complete = self._complete, []
            self._complete_rows = 0
            self.stats.acked += len(ids)
            self.spout.ack_many(ids)
        if self._poison_ids:
            self._fail_poison()

    # -- what comes back -----------------------------------------------------------------------------------

    def apply_acks(self, deltas: Iterable[tuple[int, int]], now: float) -> None:
        """Apply (root, delta) pairs; tell the spout of the trees they completed."""
        done = self.ledger.apply(deltas)
        if not done:
            return
        were_open, before = len(self.pending), self.stats.acked
        entries: list[int] = []
        if self.pending.sets:
            entries = [entry for entry in done if entry & 1]
            done = [root for root in done if not root & 1]
        emitted_at = self._emitted_at
        if emitted_at:
            for root in done:
                if not root & SAMPLE:
                    started = emitted_at.pop(root, None)
                    if started is not None:
                        self.stats.latency.add(now - started, SAMPLED)
        acked: list[Sequence[Any]] = [self.pending.resolve(done)] if done else []
        for entry in entries:
            ids, started = self.pending.close_set(entry), emitted_at.pop(entry)
            if ids:
                acked.append(ids)
                self.stats.latency.add(now - started, len(ids))
        self.stats.acked += sum(map(len, acked))
        if self._epoch_roots:
            self.stats.set_apart("acked", self._epochs_over(done))
        self.window.done(self.stats.acked - before, were_open)
        for ids in acked:
            if self._failed_ids:
                self._failed_ids.difference_update(map(_key, ids))
                self.stats.unreplayed = self._unreplayed()
            self.spout.ack_many(ids)

    def apply_fails(
        self,
        roots: Iterable[int],
        reason: FailReason = FailReason.FAILED,
        cause: FailureCause | None = None,
    ) -> None:
        """Fail trees that a bolt failed, or that could not be sent; ``cause``: what the bolt said."""
        ids = self._take_failed(roots)
        self.window.done(len(ids), len(self.pending))
        if cause is not None and cause.to_dead_letters:
            self._failed(ids, FailReason.DEAD_LETTER, cause=cause, final=True)
        else:
            self._failed(ids, reason, cause=cause)

    def fail_all(self) -> int:
        """Fail every open tree; return how many there were. Any of them may have used a link that is gone."""
        ids = self._close_failed(self.ledger.fail_all())
        self._failed(ids, FailReason.LOST)
        return len(ids)

    def _take_failed(self, roots: Iterable[int]) -> list[Any]:
        """Close trees as failed; return the messages of those that were open."""
        ids: list[Any] = []
        for root in roots:
            # A set lives on: the other trees of it are done when its XOR says so.
            if root & 1 and self.pending.fail_in_set(root):
                ids.append(self.pending.message_of(root))
            elif not root & 1:
                ids += self._close_failed(self.ledger.fail([root]))
        return ids

    def _close_failed(self, entries: Iterable[int]) -> list[Any]:
        """Forget entries of the ledger; return the messages of their open trees."""
        ids: list[Any] = []
        entries = [*entries]
        if self._epoch_roots:
            self.stats.set_apart("failed", self._epochs_over(entries))
        for entry in entries:
            # The time of a tree that failed says nothing about the latency of those that are acked.
            self._emitted_at.pop(entry, None)
            ids += self.pending.close_set(entry) if entry & 1 else self.pending.resolve([entry])
        return ids

    def _epochs_over(self, roots: Iterable[int]) -> int:
        """Forget trees of tuples about epochs; return how many of these there were."""
        over = self._epoch_roots.intersection(roots)
        self._epoch_roots -= over
        return len(over)

    # -- the census ----------------------------------------------------------------------------------------

    @property
    def wants_census(self) -> bool:
        """Whether trees are open, or were since the last round began."""
        return bool(self.pending) or self.emits != self._emits_asked

    def census_begins(self, now: float) -> tuple[int, int]:
        """Return the oldest open root, and the bound of old ones.

        A round looks for old trees below that root; 0 if there are none.
        """
        self.pending.note_time(now)
        bound = self.pending.old_bound(now)
        if bound is not None:
            self.overdue.add(self.ledger.below(bound))
        below = self.overdue.asked(self.ledger.open, now)
        self._emits_asked = self.emits
        self.counting = self.emits, self.stats.acked + self.stats.failed, len(self.pending), below
        # Rule: places are looked for seldom, and of old trees only: to find them every queue is scanned.
        bound_of_places = self._bound_of_places(now)
        self._looks_for_places = bound_of_places > 0
        return next(iter(self.ledger.open), self.pending.next_root), max(below, bound_of_places)

    def _bound_of_places(self, now: float) -> int:
        if now < self._places_due_s:
            return 0
        self._places_due_s = now + PLACES_AFTER_S
        opened = self.pending.opened_before(now - PLACES_AFTER_S)
        old = [entry for entry in islice(self.ledger.open, MOST_PLACES) if entry < opened]
        return end_of(old[-1]) if old else 0

    def steer(self, found: CensusResult) -> bool | None:
        """Set the window by what a round found; see ``PendingWindow.measured``."""
        assert self.counting is not None
        emits, done, were_open, _ = self.counting
        # Nothing moved since the question: else the answer is about tuples that are done by now.
        stands = (self.emits, self.stats.acked + self.stats.failed) == (emits, done)
        starved = stands and not found.queued and were_open >= self.window.size
        changed = self.window.measured(were_open, found.wait_s, starved)
        self.stats.window, self.stats.wait_ms = self.window.size, int(found.wait_s * 1000)
        return changed

    def expire(self, found: CensusResult, now: float) -> dict[int, int]:
        """Fail the trees that timed out; return them with the task that holds a tuple of each."""
        assert self.counting is not None
        if self._looks_for_places:
            self._note_places(found, now)
        elif now >= self._places_over_s:
            self.places = {}
        entries = self.overdue.judge(found, self.counting[-1], self.ledger.open, now)
        self.counting = None
        sets = {entry for entry in entries if entry & 1}
        expired = {entry: task for entry, task in entries.items() if entry not in sets}
        if sets:
            expired |= self._expired_in_sets(sets, found)
        epochs_open = len(self._epoch_roots)
        ids = self._take_failed(expired)
        self.stats.timed_out += len(ids)
        self.stats.set_apart("timed_out", epochs_open - len(self._epoch_roots))
        self._failed(ids, FailReason.TIMED_OUT)
        # The other trees of a set fail with it, since nobody knows whether they are done: as lost, which blames no
        # message.
        self._failed(self._close_failed(self.ledger.fail(sets)), FailReason.LOST)
        return expired

    def _note_places(self, found: CensusResult, now: float) -> None:
        """Note where old trees wait, by a round that looked for them."""
        # Of a set the first message alone, and of many trees the oldest: that is where a partition stands.
        tasks = {**found.waiting, **{entry_of(root): task for root, (task, _) in found.held.items()}}
        own = [entry for entry in tasks if owner_task(entry) == self.task_id]
        self.places = {}
        for entry in heapq.nsmallest(MOST_PLACES, own):
            opened = self.pending.sets.get(entry)
            ids = [self.pending.ids.get(entry)] if opened is None else opened.left()[:1]
            self.places.update((tup_id, tasks[entry]) for tup_id in ids if tup_id is not None)
        self._places_over_s = now + 3 * PLACES_AFTER_S

    def _expired_in_sets(self, sets: set[int], found: CensusResult) -> dict[int, int]:
        """Return the trees that bolts hold for too long; of a set without one, all. With their holders."""
        expired = {
            root: task
            for root, (task, seconds) in found.held.items()
            if seconds >= self.pending.timeout_s and entry_of(root) in sets
        }
        for entry in sets.difference(map(entry_of, expired)):
            expired |= dict.fromkeys(self.pending.open_in_set(entry), NOBODY)
        return expired

    def _failed(
        self,
        ids: list[Any],
        reason: FailReason,
        detail: str = "",
        *,
        cause: FailureCause | None = None,
        final: bool = False,
        deaths: int = 0,
    ) -> None:
        if ids:
            self.stats.failed += len(ids)
            self._tell_failed(ids, reason, detail, cause=cause, final=final, deaths=deaths)

    def _tell_failed(
        self,
        ids: list[Any],
        reason: FailReason,
        detail: str,
        *,
        cause: FailureCause | None,
        final: bool,
        deaths: int,
    ) -> None:
        spout = self.spout
        spout.fail_reason, spout.fail_detail, spout.fail_final = reason, detail, final
        spout.fail_cause, spout.fail_deaths = cause, deaths
        spout.fail_many(ids)
        if self._follows:
            self._follow(ids)

    def _follow(self, ids: list[Any]) -> None:
        """Remember failed messages until they are acked.

        A spout may emit a message again under the same id; until then the run is not done.
        """
        spout = self.spout
        if isinstance(spout, ReliableSpout):  # it replays all but what it has given up
            ids = [tup_id for tup_id in ids if tup_id not in spout.unacked_tuples]
        # Bounded: a spout that replays under new ids never has the old ones acked, and the set would fill the memory.
        # Those beyond count all the same: the end of the run says how many nobody sent again.
        if len(self._failed_ids) < MOST_FOLLOWED:
            self._failed_ids.update(map(_key, ids))
        else:
            self._failed_besides += len(ids)
        self.stats.unreplayed = self._unreplayed()

    def _unreplayed(self) -> int:
        return len(self._failed_ids) + self._failed_besides

    def unfinished(self) -> int:
        """Count messages neither acked nor given up: open trees, failures to be replayed."""
        known = self.spout.unfinished_count()
        if known is not None:
            if not isinstance(known, int) or known < 0:
                raise ValueError(
                    f"unfinished_count() returned {cut(repr(known))}: a count is wanted, 0 or more, or None"
                )
            return known
        return len(self.pending) + (self._unreplayed() if self.hears_failures else 0)


for _method in (SpoutTask.emit_anywhere, SpoutTask.emit_many, SpoutTask.emit_each):
    called_by_users(_method)


def _xor_of_edges(drawn: int, count: int) -> int:
    """Return the XOR of ``count`` edges that were drawn as one number."""
    # The upper half is laid over the lower one until one edge is left: a tenth of the time of a loop over edges.
    while count > 1:
        lower = (count + 1) // 2
        drawn = (drawn >> 64 * lower) ^ (drawn & (1 << 64 * lower) - 1)
        count = lower
    return drawn


def _emit_nothing() -> None:
    """Stand for ``next_tuple`` of a spout that keeps too much."""


def _key(tup_id: object) -> Hashable:
    """Return the message id, or a text for an unhashable one."""
    try:
        hash(tup_id)
    except TypeError:
        return repr(tup_id)
    return tup_id
