"""Running a bolt: its tuples, what it emits, acks and fails.

The life of a tuple here: ``execute`` takes it from a run, ``process`` handles it, each ``emit`` draws a random edge and
XORs it into the tuple's ``children``, and the ack XORs ``edge ^ children`` into ``acks[root]``. Consecutive tuples
mostly belong to the same tree, so the deltas of a slice are combined before they reach the dictionary, and those of a
turn before they leave for the ledger (``ledgers``).

Pure but for the user's code. Deliberately absent: any look at other tasks, sockets or the ledgers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from sys import getrefcount
from typing import Any

from streamlet.base.clock import Clock
from streamlet.components.bolt import Bolt
from streamlet.components.tuples import ACKED, FAILED, OPEN, Tuple, TupleId, tick_tuple, tuple_of
from streamlet.runtime.tasks.emitter import BadEmit, Emitter, Outbox, Pick, Work
from streamlet.runtime.tasks.in_hand import BEGAN, CALL, COUNT, LENGTH, TASK, InHand
from streamlet.runtime.tasks.other_threads import OtherThreads, TaskCalls
from streamlet.runtime.tasks.task_stats import TaskStats
from streamlet.runtime.tasks.user_errors import bolt_ended_run, every_tuple_failed, hurts_one_tuple
from streamlet.runtime.tasks.values import PLAIN, copies

SLICE = 64
"""Most tuples between two looks at the clock; a slow bolt gets fewer, down to one."""

SLICE_S = 0.002
"""Seconds that a slice should take.

Then acks leave, and a stop, a timer or a peer is noticed, though a bolt is slow: with a fixed number of tuples, a bolt
of 0.2 s a tuple would let no ack leave for 13 s, and be killed as hanging when the run ends.
"""


class _Holder:
    """Stands for a BoltTask in the question below."""

    _current: object = None


def _unkept() -> int:
    # Counted, not assumed, in the shape that the question has in the slice: the number depends on the interpreter. One
    # too many, and a tuple that somebody kept would be filled again.
    tup = _Holder._current = object()
    return getrefcount(tup)


UNKEPT = _unkept()
"""References to a tuple that only the slice holds.

These are its variable, ``_current`` and, in some interpreters, the argument of the question itself.
"""

Report = Callable[[BaseException, Tuple | None], None]


class BoltTask:
    """A bolt instance with everything bound. Lives on the loop's thread.

    ``acks`` (root -> delta) and ``fails`` are the worker's, shared by all its tasks and emptied each turn.
    ``first_failures``: after so many tuples without one success ``execute`` raises EveryTupleFailed; 0: never.
    """

    def __init__(
        self,
        bolt: Bolt,
        emitter: Emitter,
        acks: dict[int, int],
        fails: list[int],
        getrandbits: Callable[[int], int],
        sources: dict[int, str],
        clock: Clock,
        report: Report,
        *,
        task_id: int = 0,
        first_failures: int = 0,
        named: Mapping[tuple[str, str], type[Tuple]] | None = None,
        in_hand: InHand | None = None,
        calls: TaskCalls | None = None,
    ) -> None:
        self.bolt = bolt
        self.calls = TaskCalls(OtherThreads(), emitter.component) if calls is None else calls
        self.task_id = task_id
        self.in_hand = in_hand or InHand()
        self.emitter = emitter
        self.acks = acks
        self.fails = fails
        self.getrandbits = getrandbits
        self.sources = sources
        self.clock = clock
        self.report = report
        self.named = named or {}
        """Tuple class of each (component, stream) that the bolt reads by field name."""
        self.stats = TaskStats()
        self.report_metric = self.stats.report_metric
        self.held: dict[Tuple, float] = {}
        """Tracked tuples that ``process`` has returned from without an ack or failure, and when they were given."""
        self._current: Tuple | None = None
        self._size = 1
        self._most_size = SLICE
        self._by_name = False
        self._careful_until: float | None = None
        self._failures = 0
        self._most_failures = first_failures
        self._one_too_many: BaseException | None = None
        self.emit: Callable[..., list[int] | None] = self._fast_emit() or self.emit_anywhere
        bolt.bind(self)

    def initialized(self) -> None:
        """Choose the emit again after ``initialize``, which may set ``auto_anchor``."""
        before, self.emit = self.emit, self._fast_emit() or self.emit_anywhere
        if vars(self.bolt).get("emit") is before:  # else it has put something of its own around it
            self.bolt.bind(self)

    # -- emitting ------------------------------------------------------------------------------------------

    def _fast_emit(self) -> Callable[..., list[int] | None] | None:
        """Make the closure for a default stream with one reader, else None."""
        default = self.emitter.default
        if default is None or default.single is None or not self.emitter.one_stream or not self.bolt.auto_anchor:
            return None
        return self._emit_one_field(default.single_value) if default.width == 1 else self._emit_row(default.single)

    def _emit_row(self, pick: Pick) -> Callable[..., list[int] | None]:
        assert self.emitter.default is not None
        width, slow, bits = self.emitter.default.width, self.emit_anywhere, self.getrandbits
        plain, task, here, from_other_thread = PLAIN, self, self.calls.here, self._emit_from_other_thread

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
                if value.__class__ not in plain:
                    return slow(tup)
            current = task._current
            if len(tup) != width or current is None or current.anchors is not None:
                return slow(tup)
            put = pick(tup).extend
            root = current.root
            if root:
                edge = bits(64)
                current.children ^= edge
                put((root, edge, [*tup]))
            else:
                put((0, 0, [*tup]))
            return None

        return emit

    def _emit_one_field(self, pick: Callable[[Any], Outbox]) -> Callable[..., list[int] | None]:
        """Make the closure for one field: no loop over values, no call for a key."""
        slow, bits, plain, task = self.emit_anywhere, self.getrandbits, PLAIN, self
        here, from_other_thread = self.calls.here, self._emit_from_other_thread

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
            current = task._current
            if (
                (tup.__class__ is not list and tup.__class__ is not tuple)
                or current is None
                or current.anchors is not None
            ):
                return slow(tup)
            try:
                (value,) = tup  # cheaper than to ask for the length and index
            except ValueError:
                return slow(tup)
            if value.__class__ not in plain:
                return slow(tup)
            put = pick(value).extend  # a look-up and a call are cheaper apart: the slot is no method
            root = current.root
            if root:
                edge = bits(64)
                current.children ^= edge
                put((root, edge, [value]))
            else:
                put((0, 0, [value]))
            return None

        return emit

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
            return self._emit_from_other_thread(tup, stream, anchors, direct_task, need_task_ids)
        routes = self.emitter.routes(stream, direct_task)
        values = self.emitter.checked(tup, routes)
        if anchors is None:
            anchors = (self._current,) if self._current is not None and self.bolt.auto_anchor else ()
        else:
            # The first look would spend an iterator, and the tuple would be tracked by nobody.
            anchors = tuple(map(tuple_of, anchors))
        if any(anchor.state != OPEN and anchor.root for anchor in anchors):
            raise BadEmit(
                f"{self.emitter.component} emitted on stream {routes.name!r} with an anchor that was already acked "
                "or failed: its tree could never complete. Emit before you ack, or emit with anchors=[]."
            )
        boxes = routes.boxes(values, direct_task)
        # A row for each receiver: with one list in two outboxes a bolt could change what another bolt receives.
        for box, row in zip(boxes, copies(values, len(boxes)), strict=False):
            self._put(box, routes.name, row, anchors)
        return [box.target for box in boxes] if need_task_ids else None

    def _emit_from_other_thread(
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
        row = self.calls.row(self.emitter, tup, stream, direct_task, need_task_ids)
        given = tuple(anchors or ())
        self.calls.put(partial(self._emit_handed_over, row, stream, given, direct_task), "emit")
        return None

    def _emit_handed_over(
        self, row: list[Any], stream: str | None, anchors: tuple[Tuple, ...], direct_task: int | None
    ) -> None:
        try:
            self.emit_anywhere(row, stream, anchors, direct_task)
        except BadEmit as error:  # an anchor was acked meanwhile
            self.stats.errors += 1
            self.report(error, anchors[0] if anchors else None)

    def _put(self, box: Outbox, stream: str, values: list[Any], anchors: Sequence[Tuple]) -> None:
        """Put a row into an outbox, with fresh edges for its anchors."""
        # Every edge is a random 64-bit number. A counter times a constant is not independent under XOR: small trees
        # could cancel to zero, and be acked before they are done.
        tracked = [anchor for anchor in anchors if anchor.root]
        if not tracked:
            box.switch(stream)((0, 0, values))
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
                for root, _ in anchor.anchors or ((anchor.root, 0),):
                    edges[root] = edges.get(root, 0) ^ edge
            box.switch(stream, multi=True)((list(edges), list(edges.values()), values))
            box.switch(stream)  # the fast closure appends without asking what the outbox holds

    # -- acking --------------------------------------------------------------------------------------------

    def ack(self, tup: Tuple | TupleId) -> None:
        """Ack a tuple. A second ack, or one after a failure, changes nothing. Any thread."""
        if not self.calls.here():
            self.calls.put(partial(self.ack, tup), "ack", waits=False)
            return
        tup = tuple_of(tup)
        if tup.state != OPEN:
            return
        tup.state = ACKED
        self.stats.acked += 1
        if self.held:
            self.held.pop(tup, None)
        acks = self.acks
        for root, edge in tup.anchors or ((tup.root, tup.edge),):
            acks[root] = acks.get(root, 0) ^ edge ^ tup.children
        tup.anchors = ()  # sends a later emit with this anchor to the slow path, which refuses it

    def fail(self, tup: Tuple | TupleId) -> None:
        """Fail every tree that a tuple belongs to. Any thread."""
        if not self.calls.here():
            self.calls.put(partial(self.fail, tup), "fail", waits=False)
            return
        tup = tuple_of(tup)
        if tup.state != OPEN:
            return
        tup.state = FAILED
        self.stats.failed += 1
        if self.held:
            self.held.pop(tup, None)
        self.fails.extend(root for root, _ in tup.anchors or ((tup.root, tup.edge),) if root)
        tup.anchors = ()

    # -- receiving -----------------------------------------------------------------------------------------

    def execute(self, work: Work, until: float) -> None:
        """Process a run in order, slice by slice, until done or ``until``.

        ``work.left`` says how many tuples remain. What the user's code raises fails that tuple only.
        """
        before = work.left
        now = started = self.clock.monotonic()
        words, times = self.in_hand.words, self.in_hand.times
        words[CALL] = words[LENGTH] = 0
        while work.left > 0:
            size = self._size
            # Where a death or a hang can be looked up from outside: two numbers a slice, and in full for a tuple that
            # is alone in its slice because the bolt is slow.
            if size == 1 and self._by_name:
                self._note_tuple(work, now)
            else:
                words[COUNT] = size
                times[BEGAN] = now
                words[TASK] = self.task_id
            self._slice(work, size)
            work.left -= size
            began, now = now, self.clock.monotonic()
            if now - began > SLICE_S:
                self._size = max(1, int(size * SLICE_S / (now - began)))
                self._by_name = True
            elif size < self._most_size:
                self._size = min(2 * size, self._most_size)
            elif self._careful_until is not None and now >= self._careful_until:
                self._most_size, self._careful_until = SLICE, None
            if now >= until:
                break
        self._current = None
        self.stats.ran(before - max(work.left, 0), now - started)
        if self._one_too_many is not None:
            self._stop_if_all_failed()

    def be_careful(self, until: float) -> None:
        """Process one tuple at a time until then: one has killed a worker."""
        self._size = self._most_size = 1
        self._by_name = True
        self._careful_until = until

    def _note_tuple(self, work: Work, now: float) -> None:
        run = work.run
        index = len(run.roots) - work.left
        self.in_hand.note_tuple(self.task_id, run.roots[index], run.values[index], now)

    @property
    def present(self) -> Tuple | None:
        """The tuple that is processed now. Any thread: it may hold another's values a moment later."""
        return self._current

    def _stop_if_all_failed(self) -> None:
        """Raise EveryTupleFailed unless a tuple has succeeded."""
        # A typing error fails every tuple alike. With retries such a run would take minutes to say so, so the first
        # thousand are enough; one success, and the errors are taken to be the tuples' own.
        error, self._one_too_many = self._one_too_many, None
        if error is not None and self._failures >= self.stats.executed:
            raise every_tuple_failed(self.emitter.component, self.task_id, self._failures, error, self.bolt.process)

    def _slice(self, work: Work, size: int) -> None:
        run = work.run
        bolt = self.bolt
        if run.multi or not bolt.auto_ack:
            self._slice_by_hand(work, size)
            return
        process, acks = bolt.process, self.acks
        component, stream, source = self.sources.get(run.source, "?"), run.stream, run.source
        make = self.named.get((component, stream), Tuple)
        last = delta = 0
        otherwise = 0  # ended in another way than by the ack below
        tup: Tuple | None = None
        for root, edge, values in islice(work.rows, size):
            # A tuple nobody kept is filled again: that is twice as fast as making one, for every tuple there is.
            if tup is None:
                tup = self._current = make(values, component, stream, source, root, edge)
            else:
                tup.values = values
                tup.root = root
                tup.edge = edge
                tup.children = 0
            try:
                process(tup)
            except BaseException as error:
                if not hurts_one_tuple(error):
                    raise
                self._raised(error, tup)
                otherwise += 1
                tup = None
                continue
            if tup.state:
                otherwise += 1
                tup = None
                continue
            # Deltas of one root are joined before they go into the dictionary: runs often hold many tuples of one tree.
            if root == last:
                delta ^= edge ^ tup.children
            else:
                if last:
                    acks[last] = acks.get(last, 0) ^ delta
                last = root
                delta = edge ^ tup.children
            if getrefcount(tup) != UNKEPT:
                tup.state = ACKED
                tup = None
        if last:
            acks[last] = acks.get(last, 0) ^ delta
        self.stats.acked += min(size, work.left) - otherwise

    def _slice_by_hand(self, work: Work, size: int) -> None:
        """Process tuples with several roots, and those of bolts that ack themselves."""
        run, bolt = work.run, self.bolt
        component = self.sources.get(run.source, "?")
        make = self.named.get((component, run.stream), Tuple)
        given = self.clock.monotonic()
        for root, edge, values in islice(work.rows, size):
            if run.multi:
                anchors = tuple(zip(root, edge, strict=True))
                tup = make(values, component, run.stream, run.source, root[0], edge[0], anchors)
            else:
                tup = make(values, component, run.stream, run.source, root, edge)
            self._current = tup
            try:
                bolt.process(tup)
            except BaseException as error:
                if not hurts_one_tuple(error):
                    raise
                self._raised(error, tup)
                continue
            if bolt.auto_ack:
                self.ack(tup)
            elif tup.state == OPEN and tup.root:
                self.held[tup] = given

    def _raised(self, error: BaseException, tup: Tuple) -> None:
        # No longer the present tuple: what the bolt emits from elsewhere must not be anchored to a tree that has
        # failed.
        self._current = None
        self.stats.errors += 1
        self._failures += 1
        if self._failures == self._most_failures:
            self._one_too_many = error
        if self.bolt.auto_fail:
            self.fail(tup)
        elif tup.root and tup.state == OPEN:
            self.held[tup] = self.clock.monotonic()
        if not tup.root:
            self.stats.unreplayed += 1  # untracked: no spout can replay it
            self.stats.given_up += 1
        self.report(error, tup)
        self._end_run(error, self.bolt.process)

    def tick(self, period_s: float) -> None:
        """Give the bolt its tick. It anchors emitted tuples to nothing."""
        try:
            self.bolt.process_tick(tick_tuple(period_s))
        except BaseException as error:
            if not hurts_one_tuple(error):
                raise
            self.stats.errors += 1
            self.report(error, None)
            self._end_run(error, self.bolt.process_tick)

    def _end_run(self, error: BaseException, called: Callable[..., Any]) -> None:
        if self.bolt.exit_on_exception:
            raise bolt_ended_run(self.emitter.component, error, called) from error
