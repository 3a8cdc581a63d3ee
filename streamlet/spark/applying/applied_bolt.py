"""One bolt on rows of a DataFrame, with the functions behind its ``emit``, ``ack`` and ``fail``.

It takes columns and leaves columns. Nothing is tracked: a row is done when the call returns that it was given to, and
Spark repeats a whole task. Knows neither Spark nor Arrow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import compress
from sys import getrefcount
from threading import RLock
from typing import Any, NamedTuple, Never

from streamlet.base.clock import Clock
from streamlet.base.errors import BadEmit, StreamletError, hurts_one_tuple, text_of
from streamlet.components.batch import Batch
from streamlet.components.batching import BatchFailed, BatchingBolt
from streamlet.components.bolt import Bolt
from streamlet.components.columns import Columns
from streamlet.components.component import COMPONENT_LOGGER
from streamlet.components.context import TopologyContext
from streamlet.components.tuples import ACKED, FAILED, NO_ROWS, OPEN, TICK_STREAM, Tuple, TupleId, tick_tuple, tuple_of
from streamlet.model.stream import DEFAULT_STREAM, StreamId
from streamlet.runtime.tasks.named_values import tuple_classes
from streamlet.runtime.tasks.user_errors import behind, bolt_ended_run, could_not_start, every_tuple_failed, place
from streamlet.runtime.tasks.values import PLAIN, travelling

STOP, SKIP, DEAD_LETTER = "stop", "skip", "dead-letter"
ON_FAILED = (STOP, SKIP, DEAD_LETTER)

_PLAIN = PLAIN | {int}
_ROWS: frozenset[Any] = frozenset({list, tuple})
_GONE = object()
"""Stands in a buffer where a row was withdrawn."""


class TupleFailed(StreamletError):
    """A bolt failed a tuple, and ``on_failed`` is "stop"."""


class FailedRow(NamedTuple):
    """One failed tuple: the bolt, the stream it came from, its values (None: a tick, an acked batch), and why."""

    bolt: str
    source: str
    values: list[Any] | None
    reason: str


@dataclass(frozen=True, slots=True)
class BoltDef:
    """A bolt as executors make it. ``sources``: the fields of each stream it reads; ``streams``: of each it gives."""

    name: str
    cls: type[Bolt]
    kwargs: Mapping[str, Any]
    conf: Mapping[str, Any]
    sources: Mapping[StreamId, tuple[str, ...]]
    streams: Mapping[str, tuple[str, ...]]
    tick_s: float | None


class _Holder:
    _current: object = None


def _unkept() -> int:
    # Counted in the shape that the question has in `_process`, as in `runtime.tasks.bolt_task`.
    tup = _Holder._current = object()
    return getrefcount(tup)


_UNKEPT = _unkept()


class AppliedBolt:
    """A bolt of one Spark task, bound. All on the thread that made it."""

    # Long: emit, ack, fail and process meet in the present call, and what that leaves in the buffers.

    def __init__(
        self, definition: BoltDef, context: TopologyContext, on_failed: str, failed: Callable[[FailedRow], None]
    ) -> None:
        self.definition = definition
        self.name = definition.name
        self.context = context
        self.clock: Clock = context.clock
        self._on_failed = on_failed
        self._tell = failed
        # As in `runtime.tasks.other_threads`: whether this thread holds a lock is asked at each emit, and is cheaper to
        # answer than which thread it is.
        self._mine = RLock()
        self._mine.acquire()
        self._here: Callable[[], bool] = self._mine._is_owned  # type: ignore[attr-defined]  # threading.Condition asks it too
        self.bolt: Bolt
        # A list a field, not a row: rows that wait would be looked at by the collector of cycles again and again.
        self._buffers: dict[str, list[list[Any]]] = {
            name: [[] for _ in fields] for name, fields in definition.streams.items()
        }
        self._lists = [columns[0] for columns in self._buffers.values()]
        self._withdrawn = False
        self._current: Tuple | Batch | None = None
        self._named: list[tuple[tuple[Any, ...], list[list[Any]], int]] = []
        """Of the present call, each row with anchors of its own: these, its columns, its place there."""
        self._failures: list[tuple[Tuple | Batch, str]] = []
        """Tuples that failed in the present call, and why; also the acked ones on which it raised."""
        self._held: dict[Tuple, BaseException | None] = {}
        """Open tuples, and what the bolt raised on them."""
        self._failed_batch: BatchFailed | None = None
        """The first batch of the last tick that raised, until ``forget_held``."""
        self._count = self._bad = 0
        self._limit = definition.conf["streamlet.first.failures.max"]

    def start(self) -> None:
        """Make the bolt and call its ``initialize``. Raises ComponentFailed."""
        definition, context = self.definition, self.context
        where = "its constructor"
        try:
            self.bolt = definition.cls(**definition.kwargs)
            where = "initialize"
            self.bolt.logger = logging.getLogger(f"{COMPONENT_LOGGER}.{self.name}")
            self.bolt.bind_context(definition.conf, context)
            self.emit: Callable[..., Any] = self._quick_emit()
            self.bolt.bind(self)
            self.bolt.initialize(definition.conf, context)
        except BaseException as error:
            if not hurts_one_tuple(error):
                raise
            told = could_not_start(self.name, 0, where, error)
            raise told from behind(told, error)
        self._kinds = tuple_classes(definition.cls, context.sources)

    # -- what goes in and comes out ------------------------------------------------------------------------

    def take(self, source: StreamId, columns: Sequence[Sequence[Any]]) -> None:
        """Give the bolt rows of a stream, a column a field."""
        if self.bolt.takes_batches():
            size = self.bolt.batch_size
            for start in range(0, len(columns[0]), size):
                part = Columns([list(column[start : start + size]) for column in columns])
                self._process_batch(self._batch(source, part))
        else:
            self._process(source, columns)

    def give(self, stream: str) -> list[Sequence[Any]]:
        """Return a stream's columns since the last call; none without rows."""
        if self._withdrawn:
            self._withdrawn = False
            for columns in self._buffers.values():
                stays = [value is not _GONE for value in columns[0]]
                for column in columns:
                    column[:] = compress(column, stays)
        columns = self._buffers[stream]
        if not columns[0]:
            return []
        found: list[Sequence[Any]] = [[*column] for column in columns]
        for column in columns:  # emptied in place: emit keeps their methods
            column.clear()
        return found

    def tick(self) -> None:
        """Give the bolt a tick."""
        self._begin()
        marks = [*map(len, self._lists)]
        try:
            self.bolt.process_tick(tick_tuple(self.definition.tick_s or 0.0))
        except BaseException as error:
            if not hurts_one_tuple(error):
                raise
            if self.bolt.exit_on_exception:
                self._end_run(error, self.bolt.process_tick)
            self._failed_batch = error if isinstance(error, BatchFailed) else None
            self._settle(error)
            if self._failed_batch is None:  # that one has failed its tuples, and others went well
                for columns, mark in zip(self._buffers.values(), marks, strict=True):
                    for column in columns:
                        del column[mark:]
                self._failed_row(FailedRow(self.name, TICK_STREAM, None, _why(error)), error)
            return
        self._settle(None)

    def last_ticks(self) -> None:
        """Give ticks until a batching bolt has processed all batches."""
        for _ in range(getattr(self.bolt, "ticks_between_batches", 1)):
            self.tick()

    def finish(self) -> None:
        """Fail the tuples that are neither acked nor failed."""
        self._begin()
        for tup, error in [*self._held.items()]:
            self.fail(tup, error or "it was neither acked nor failed when the last row of its task was done")
            self._settle(error)

    def hold_waiting(self) -> None:
        """Take as open what a key's state brought back."""
        self._held.update((tup, None) for tup in self._waiting() if tup.state == OPEN)

    def forget_held(self) -> None:
        """Drop the open tuples; the state of a key has them.

        Those of a batch that raised with ``auto_fail`` off are in no state: they fail. Raises TupleFailed.
        """
        if self._failed_batch is not None:
            raised, self._failed_batch = self._failed_batch, None
            for tup in self._waiting():
                self._held.pop(tup, None)
            for tup in [*self._held]:
                self.fail(tup, raised)
            self._settle(None)
        self._held.clear()

    def _waiting(self) -> list[Tuple]:
        if not isinstance(self.bolt, BatchingBolt):
            return []
        return [tup for tups in self.bolt._batches.values() for tup in tups]

    def make_tuple(self, values: Sequence[Any], component: str, stream: str, state: int) -> Tuple:
        """Make a tuple of a key's state again."""
        tup = self._kinds.get((component, stream), Tuple)(values, component, stream)
        tup.state = state
        return tup

    def close(self) -> None:
        """Call ``cleanup``; emits raise from here on."""
        if self._here():  # else a collector of garbage closes it, on any thread
            self._mine.release()  # an emit that somebody kept raises
        vars(self.bolt).update(emit=self._emit_late, emit_many=self._emit_late)
        self.bolt.cleanup()

    # -- calls of the bolt ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._current = None
        self._named.clear()

    def _process(self, source: StreamId, columns: Sequence[Sequence[Any]]) -> None:
        # Long: the loop over rows, written out, as in `runtime.tasks.bolt_task`.
        bolt, process = self.bolt, self.bolt.process
        make = self._kinds.get((source.component, source.stream), Tuple)
        lists = self._lists
        only = lists[0] if len(lists) == 1 else None
        by_hand, failures, done = not bolt.auto_ack, self._failures, 0
        mark: Any
        tup: Tuple | None = None
        self._begin()
        alone = len(columns) == 1
        for row in columns[0] if alone else zip(*columns, strict=True):
            values = [row] if alone else [*row]
            # A tuple that nobody kept is filled again: cheaper than to make one.
            if tup is None:
                tup = self._current = make(values, source.component, source.stream)
            else:
                tup.values = values
            mark = len(only) if only is not None else [*map(len, lists)]
            try:
                process(tup)
            except BaseException as error:
                if not hurts_one_tuple(error):
                    raise
                self._count, done = self._count + done, 0
                self._raised(error, tup, mark)
                tup = None
                continue
            done += 1
            if tup.state or by_hand or failures:
                self._count, done = self._count + done, 0
                self._afterwards(tup, mark)
                tup = None
            elif getrefcount(tup) != _UNKEPT:
                tup.state = ACKED
                tup = None
        self._count += done
        self._begin()

    def _afterwards(self, tup: Tuple, mark: Any) -> None:
        """Settle a tuple that was acked, failed or kept by hand."""
        if tup.state == FAILED:
            self._withdraw(tup, mark)
        elif tup.state == OPEN:
            if self.bolt.auto_ack:
                tup.state = ACKED
            else:
                self._held[tup] = None
        self._settle(None)
        self._begin()

    def _end_run(self, error: BaseException, called: Callable[..., Any]) -> Never:
        told = bolt_ended_run(self.name, type(self.bolt), error, called, job=True)
        raise told from behind(told, error)

    def _raised(self, error: BaseException, tup: Tuple, mark: Any) -> None:
        if self.bolt.exit_on_exception:
            self._end_run(error, self.bolt.process)
        # Rule: what was acked keeps its rows, and its error is told all the same. Nothing else would say that a row is
        # gone, or that the bolt raised.
        if tup.state == ACKED:
            self._failures.append((tup, _after_ack(error)))
        elif self.bolt.auto_fail or tup.state == FAILED:
            self._withdraw(tup, mark)
            self.fail(tup, error)
        else:
            self._held[tup] = error
        self._settle(error)
        self._begin()

    def _batch(self, source: StreamId, rows: Columns) -> Batch:
        kind = self._kinds.get((source.component, source.stream), Tuple)
        return Batch(rows, source.component, source.stream, 0, self.definition.sources[source], kind=kind)

    def _process_batch(self, batch: Batch) -> None:
        self._begin()
        self._current = batch
        marks = [*map(len, self._lists)]
        may_split = self.bolt.on_batch_error == "split" and len(batch) > 1
        # They come again as they came, whatever the call changes in place. A deep copy: a DataFrame's lists may hold
        # dates and decimals, which a tuple of a topology may not.
        rows = deepcopy(batch.peek()) if may_split else []
        try:
            self.bolt.process_batch(batch)
        except BaseException as error:
            if not hurts_one_tuple(error):
                raise
            if self.bolt.exit_on_exception:
                self._end_run(error, self.bolt.process_batch)
            acked = batch.state == ACKED or any(tup.state == ACKED for tup in batch.made or ())
            split = may_split and not self._failures and not acked
            if not acked and (split or self.bolt.auto_fail or batch.state == FAILED):
                self._withdraw(batch, marks)
            if not split:
                self._batch_raised(batch, error)
                return
        else:
            self._count += len(batch)
            if batch.state == FAILED:
                self._withdraw(batch, marks)
            elif not self.bolt.auto_ack and batch.state == OPEN:
                self._held.update((tup, None) for tup in batch.tuples if tup.state == OPEN)
            self._settle(None)
            return
        # Not inside of the `except`: what a row raises alone would have the batch's error as its context.
        source = StreamId(batch.component, batch.stream)
        for row in rows:
            self._process_batch(self._batch(source, Columns([[value] for value in row])))

    def _batch_raised(self, batch: Batch, error: BaseException) -> None:
        if self.bolt.auto_fail:
            self.fail(batch, error)
        else:
            self._held.update((tup, error) for tup in batch.tuples if tup.state == OPEN)
        if not self._failures and all(tup.state == ACKED for tup in batch.tuples):
            self._failures.append((batch, _after_ack(error)))
        self._settle(error)

    # -- emitting ------------------------------------------------------------------------------------------

    def _quick_emit(self) -> Callable[..., Any]:
        """Make the closure for the default stream."""
        columns = self._buffers.get(DEFAULT_STREAM)
        if not columns:
            return self._emit
        if len(columns) < 3:
            return self._emit_of_one(*columns) if len(columns) == 1 else self._emit_of_two(*columns)
        plain, slow, width, here = _PLAIN, self._emit, len(columns), self._here
        puts = [column.append for column in columns]

        def emit(
            tup: Any, stream: Any = None, anchors: Any = None, direct_task: Any = None, need_task_ids: Any = None
        ) -> None:
            if (
                here() and (tup.__class__ is list or tup.__class__ is tuple) and len(tup) == width
                and stream is None and anchors is None and direct_task is None and need_task_ids is None
            ):  # fmt: skip
                for value in tup:
                    if value.__class__ not in plain:
                        return slow(tup)
                for put, value in zip(puts, tup, strict=True):
                    put(value)
                return None
            return slow(tup, stream, anchors, direct_task, bool(need_task_ids))

        return emit

    def _emit_of_one(self, column: list[Any]) -> Callable[..., Any]:
        plain, slow, here = _PLAIN, self._emit, self._here

        def emit(
            tup: Any, stream: Any = None, anchors: Any = None, direct_task: Any = None, need_task_ids: Any = None
        ) -> None:
            if (
                here() and (tup.__class__ is list or tup.__class__ is tuple)
                and stream is None and anchors is None and direct_task is None and need_task_ids is None
            ):  # fmt: skip
                try:
                    (value,) = tup  # cheaper than to ask for the length and index
                except ValueError:
                    return slow(tup)
                if value.__class__ is str or value.__class__ in plain:
                    column.append(value)
                    return None
            return slow(tup, stream, anchors, direct_task, bool(need_task_ids))

        return emit

    def _emit_of_two(self, first: list[Any], second: list[Any]) -> Callable[..., Any]:
        plain, slow, here = _PLAIN, self._emit, self._here

        def emit(
            tup: Any, stream: Any = None, anchors: Any = None, direct_task: Any = None, need_task_ids: Any = None
        ) -> None:
            if (
                (tup.__class__ is list or tup.__class__ is tuple) and here()
                and stream is None and anchors is None and direct_task is None and need_task_ids is None
            ):  # fmt: skip
                try:
                    one, other = tup
                except ValueError:
                    return slow(tup)
                if (one.__class__ is str or one.__class__ in plain) and other.__class__ in plain:
                    first.append(one)
                    second.append(other)
                    return None
            return slow(tup, stream, anchors, direct_task, bool(need_task_ids))

        return emit

    def _emit(
        self, tup: Any, stream: Any = None, anchors: Any = None, direct_task: Any = None, need_task_ids: bool = False
    ) -> None:
        self._check_here("emit")
        if direct_task is not None or need_task_ids:
            raise BadEmit(
                f"{self.name} emitted with {'direct_task' if direct_task is not None else 'need_task_ids'}=, and on "
                "DataFrames there are no tasks to name. Leave it out, and group by a field."
            )
        self._put(stream or DEFAULT_STREAM, [tup], anchors)

    def emit_many(self, tuples: Iterable[Sequence[Any]], stream: str | None = None, anchors: Any = None) -> None:
        """Emit several tuples; none of them unless all can travel."""
        self._check_here("emit_many")
        name = stream or DEFAULT_STREAM
        if isinstance(tuples, Columns) and anchors is None and name in self._buffers:
            width = len(self.definition.streams[name])
            if len(tuples.by_field) == width and all(_PLAIN.issuperset(map(type, one)) for one in tuples.by_field):
                for column, values in zip(self._buffers[name], tuples.by_field, strict=True):
                    column.extend(values)
                return
        elif anchors is None and name in self._buffers:
            # Check columns, not rows: it costs half as much. A value that is not plain goes the long way, which copies
            # it, or refuses it and names its field.
            tuples = [*tuples]
            columns = self._buffers[name]
            if _ROWS.issuperset(map(type, tuples)) and {len(columns)}.issuperset(map(len, tuples)):
                found = [*zip(*tuples, strict=True)]
                if all(_PLAIN.issuperset(map(type, more)) for more in found):
                    for column, more in zip(columns, found, strict=bool(found)):
                        column.extend(more)
                    return
        self._put(name, tuples, anchors)

    def _put(self, name: str, tuples: Iterable[Any], anchors: Any) -> None:
        columns = self._buffers.get(name)
        if columns is None:
            declared = ", ".join(map(repr, self._buffers)) or "none"
            raise BadEmit(
                f"{self.name} emitted on stream {name!r}, which it does not declare. It declares: {declared}."
            )
        fields = self.definition.streams[name]
        rows = [self._checked(tup, name, fields) for tup in tuples]
        if anchors is not None:
            given = (anchors,) if isinstance(anchors, Batch) else tuple(map(_anchor, anchors))
            self._named += [(given, columns, len(columns[0]) + at) for at in range(len(rows))]
        for row in rows:
            for column, value in zip(columns, row, strict=True):
                column.append(value)

    def _checked(self, tup: Any, stream: str, fields: Sequence[str]) -> list[Any]:
        if isinstance(tup, NO_ROWS) or not isinstance(tup, Sequence):
            raise BadEmit(
                f"{self.name} emitted {tup!r:.80} on stream {stream!r}, and a list of values is wanted: emit([value]) "
                "has one field."
            )
        if len(tup) != len(fields):
            raise BadEmit(
                f"{self.name} emitted {len(tup)} values on stream {stream!r}, which declares {len(fields)} fields: "
                f"{', '.join(fields)}. The values were {list(tup)!r:.200}."
            )
        return travelling(tup, self.name, stream, fields)

    def _check_here(self, what: str) -> None:
        if not self._here():
            raise BadEmit(
                f"{self.name} called {what} on another thread than the one that gives it rows, and on DataFrames a row "
                f"is done when its bolt returns: what comes later reaches nobody. Wait for the thread in process, and "
                "emit there."
            )

    def _emit_late(self, *values: Any, **more: Any) -> None:
        raise BadEmit(
            f"{self.name} emitted in cleanup, or after its last row: that reaches nobody. Emit in process or "
            "process_tick."
        )

    # -- acks and failures ---------------------------------------------------------------------------------

    def ack(self, tup: Tuple | TupleId | Batch) -> None:
        """Finish a tuple or batch."""
        self._check_here("ack")
        for one in self._open(tup, ACKED):
            one.state = ACKED
            self._held.pop(one, None)

    def fail(self, tup: Tuple | TupleId | Batch, reason: str | BaseException | None = None) -> None:
        """Fail a tuple or batch.

        ``on_failed`` decides what follows, when the present call is over.
        """
        self._check_here("fail")
        said = "the bolt failed it by itself (self.fail), and gave no reason" if reason is None else _why(reason)
        for one in self._open(tup, FAILED):
            one.state = FAILED
            self._held.pop(one, None)
            if one is not self._current:
                self._withdraw_named(one)
            self._failures.append((one, said))

    def last_tries(self, tups: list[Tuple]) -> list[Tuple]:
        """Return no tuple: a row is tried once."""
        return []

    def fail_told(self, tup: Tuple | Batch, error: BaseException) -> None:
        """Fail a tuple or batch for an error."""
        self.fail(tup, error)

    def dead_letter(self, tup: Tuple | TupleId | Batch, reason: str) -> None:
        """Fail a tuple or batch with a reason."""
        self.fail(tup, reason)

    def report_metric(self, name: str, value: float) -> None:
        """Take a metric, which nobody shows here."""

    def hand_over(self, act: Callable[[], None]) -> None:
        """Raise BadEmit: no loop waits here for calls of other threads."""
        raise BadEmit(
            f"{self.name} handed a call over from a thread of its own, and on DataFrames a row is done when its bolt "
            "returns. Wait for the thread in process."
        )

    def complain(self, error: BaseException, tup: Tuple | Batch | None) -> None:
        """Log an error that fails no tuple."""
        self.bolt.logger.error("%s: %s", type(error).__name__, text_of(error), exc_info=error)

    def begins(self, tup: Tuple) -> None:
        """Do nothing: no row times out."""

    def ends(self, tup: Tuple) -> None:
        """Do nothing: no row is held."""

    def raised(self, error: BaseException, tup: Tuple) -> None:
        """Raise BadEmit: a row is done when its bolt returns."""
        raise BadEmit(f"{self.name} works on threads of its own: on DataFrames wait for them in process.") from error

    def rest(self, rests: bool) -> None:
        """Do nothing: Spark decides when rows come."""

    def _open(self, given: Tuple | TupleId | Batch, state: int) -> Iterator[Tuple]:
        if isinstance(given, Batch):
            if given.state == OPEN:
                tuples = [tup for tup in given.tuples if tup.state == OPEN]
                given.state = state
                yield from tuples
        else:
            tup = tuple_of(given)
            if tup.state == OPEN and tup.stream != TICK_STREAM:
                yield tup

    def _withdraw(self, anchor: Tuple | Batch, marks: Any) -> None:
        """Take back the present call's rows, but those anchored to others."""
        all_marks = [marks] if isinstance(marks, int) else marks
        for columns, mark in zip(self._buffers.values(), all_marks, strict=True):
            if len(columns[0]) > mark:
                kept = [
                    at
                    for anchors, its, at in self._named
                    if its is columns and at >= mark and not any(one is anchor for one in anchors)
                ]
                for column in columns:
                    column[mark:] = [column[at] for at in kept]

    def _withdraw_named(self, anchor: Tuple) -> None:
        for anchors, columns, at in self._named:
            if any(one is anchor for one in anchors) and at < len(columns[0]):
                columns[0][at] = _GONE
                self._withdrawn = True

    def _settle(self, error: BaseException | None) -> None:
        """Tell the failures of a call that is over. Raises TupleFailed with ``on_failed`` "stop"."""
        if not self._failures:
            return
        failures = [*self._failures]
        self._failures.clear()  # in place: the loop over rows keeps the list
        self._bad += len(failures)
        self._count += len(failures) if error is not None else 0
        for tup, why in failures:
            source = str(StreamId(tup.component, tup.stream))
            values = None if isinstance(tup, Batch) else [*tup.values]
            self._failed_row(FailedRow(self.name, source, values, why), error)
        if self._limit and self._bad == self._count >= self._limit:
            called = self.bolt.process_batch if self.bolt.takes_batches() else self.bolt.process
            by_itself = 0 if error is not None else self._bad
            raise every_tuple_failed(self.name, 0, self._bad, error, by_itself, called)

    def _failed_row(self, row: FailedRow, error: BaseException | None) -> None:
        if self._on_failed == STOP:
            what = f"on {'a batch' if row.values is None else f'the tuple {row.values!r:.200}'} from {row.source}"
            if row.source == TICK_STREAM:
                what = "at a tick"
            raise TupleFailed(
                f"The bolt {self.name} failed {what}: {row.reason}. on_failed is {STOP!r}, so the job ends; its rows "
                f"are as before it. Fix it, or go on without such tuples: on_failed={SKIP!r} counts them, "
                f"on_failed={DEAD_LETTER!r} makes them a DataFrame."
            ) from error
        self._tell(row)


def _anchor(given: Any) -> Any:
    return given if isinstance(given, Batch) else tuple_of(given)


def _after_ack(error: BaseException) -> str:
    return f"{_why(error)} (it had acked that before, and what it emitted stays)"


def _why(reason: str | BaseException) -> str:
    if not isinstance(reason, BaseException):
        return str(reason)
    at = place(reason)
    return f"{type(reason).__name__}{f' at {at}' if at else ''}: {text_of(reason)}"
