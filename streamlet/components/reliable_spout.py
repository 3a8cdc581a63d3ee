"""A spout that keeps what it emitted until it is acked, and replays what failed."""

from __future__ import annotations

import heapq
import inspect
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, NamedTuple, Never, cast

from streamlet.base.backoff import Backoff
from streamlet.base.clock import Clock
from streamlet.base.printable import cut
from streamlet.components.columns import Columns
from streamlet.components.component import TaskPort
from streamlet.components.spout import FailReason, Spout, SpoutPort, TriesInTests
from streamlet.components.tuples import value_bytes

MOST_ID = 200
"""Characters of a message's id in a line or an error."""

_NO_ID = "a ReliableSpout emits with tup_id, so that the tuple can be replayed"


class Unacked(NamedTuple):
    """Everything needed to emit a message again. ``many``: values are those of ``emit_many``.

    With stream and task: a replay that goes to no task would be acked at once, and the message lost. ``mark``: its
    number in a ``KeptBytes``.
    """

    values: list[Any]
    stream: str | None
    direct_task: int | None = None
    many: bool = False
    mark: int = 0


_FLAT: frozenset[type] = frozenset({str, bytes, int, float, bool, type(None), datetime})
"""Types of values that nobody can change; all others that travel are containers."""


class ReliableSpout(Spout):
    """pystorm's ``ReliableSpout`` with its traps closed.

    Replays wait (exponential back-off), and a message that is given up after ``max_fails`` replays goes to ``given_up``
    and the log, and is never silently called acked. ``tup_id`` is mandatory in ``emit``. ``max_fails = None`` replays
    for ever. A message that was lost with a worker or a link is replayed, too, but does not count: it was not the
    message's fault. One at whose work a worker died counts, and is given up after
    ``streamlet.tuple.crashes.max`` deaths.
    """

    # Three, and not for ever: a message that always fails would take a place of topology.max.spout.pending each time.
    max_fails: ClassVar[int | None] = 3
    replay_backoff: ClassVar[Backoff] = Backoff(initial=0.1, maximum=10.0)
    timer_interval_s = 0.05

    unacked_tuples: dict[Hashable, Unacked]
    failed_tuples: Counter[Hashable]
    _taking: Sequence[Hashable]
    """The ids that the loop emits now of those that other threads have handed over."""
    _failing: frozenset[Hashable]
    """The ids that are given to ``fail`` now."""

    @classmethod
    def gives_up_by(cls, kwargs: Mapping[str, Any], exactly_once: bool) -> str:
        return "max_fails = 0" if cls.answers_for_failures and cls.max_fails == 0 else ""

    def given_up(self, tup_id: Hashable, values: Sequence[Any], fails: int) -> None:
        """Take a tuple that failed ``fails`` times and will not be replayed.

        Override to keep it somewhere. A run that ends by itself and has given something up ends with exit status 1,
        unless the class says by ``answers_for_failures = True`` that this is right.
        """
        why = f": its worker {self.fail_detail}" if self.fail_reason is FailReason.CRASHED else ""
        often = f"{fails} failure{'' if fails == 1 else 's'}"
        self.log(f"gave up tuple {cut(repr(tup_id), MOST_ID)} after {often}: {cut(repr(values))}{why}", "error")

    def ack(self, tup_id: Any) -> None:
        self.unacked_tuples.pop(tup_id, None)
        self.failed_tuples.pop(tup_id, None)

    def fail(self, tup_id: Any) -> None:
        kept = self.unacked_tuples.get(tup_id)
        if kept is None:
            return
        # A loss with a worker or a link says nothing against the message.
        blame = self.fail_reason is not FailReason.LOST
        fails = self.failed_tuples[tup_id] = self.failed_tuples.get(tup_id, 0) + blame
        if self.fail_final or (self.max_fails is not None and fails > self.max_fails):
            del self.unacked_tuples[tup_id], self.failed_tuples[tup_id]
            self._waiting.discard(tup_id)
            self._given_up += 1
            self.given_up(tup_id, kept.values, fails)
            return
        # The number keeps ids of one due time in order, and from being compared: an id need only be hashable.
        self._waiting.add(tup_id)
        self._order += 1
        due = self._clock.monotonic() + self.replay_backoff.delay(max(fails, 1))
        heapq.heappush(self._due, (due, self._order, tup_id))

    def replay(self) -> bool:
        """Emit one failed tuple whose wait is over; tell whether there was one.

        The runtime asks before ``next_tuple``.
        """
        if not self._due or self._due[0][0] > self._clock.monotonic():
            return False
        tup_id = heapq.heappop(self._due)[2]
        kept = self.unacked_tuples.get(tup_id)
        if kept is None:  # acked late
            self._waiting.discard(tup_id)
            return True
        if tup_id not in self._waiting:  # emitted again by the spout itself
            return True
        emit = (
            partial(self.emit_many, kept.values, tup_id, kept.stream)
            if kept.many
            else partial(self.emit, kept.values, tup_id, kept.stream, kept.direct_task)
        )
        if self.max_fails is not None and self.failed_tuples.get(tup_id, 0) >= self.max_fails:
            self.as_last_try(emit)
        else:
            emit()
        return True

    def fail_many(self, tup_ids: Sequence[Any]) -> None:
        # Their trees are closed: a `fail` of the user's may emit each again, with other values, too.
        self._waiting.update(tup_ids)
        self._failing = frozenset(tup_ids)
        try:
            super().fail_many(tup_ids)
        finally:
            self._failing = frozenset()
            # The user's `fail` may have dropped messages: nobody emits those again.
            self._waiting.difference_update([tup_id for tup_id in tup_ids if tup_id not in self.unacked_tuples])

    def _emitted_again(self, tup_id: Hashable, values: list[Any]) -> None:
        """Refuse an id whose first tuple is not done. Raises ValueError.

        One that waits for its replay may be emitted by the spout itself, with the values that it had.
        """
        # Replays are kept by id: of two open tuples with one id, the first could not be sent again. One that waits is
        # open, too: with other values it would be dropped, and nobody would hear of it.
        if tup_id not in self._waiting or not (tup_id in self._failing or self.unacked_tuples[tup_id].values == values):
            self._refuse(tup_id)

    def _refuse(self, tup_id: Hashable) -> Never:
        raise ValueError(
            f"tup_id {cut(repr(tup_id), MOST_ID)} was emitted again while the tuple emitted with it before is neither "
            "acked nor failed. Only one of the two could be replayed: give each tuple an id of its own"
        )

    def _hand_over(
        self,
        ids: Sequence[Hashable],
        rows: Sequence[Any],
        put: Callable[..., Any],
        emit: Callable[..., Any],
        *args: Any,
    ) -> Any:
        """Hand an emit of another thread over to the loop. Raises ValueError for an id that is open."""
        # Rule: an id is claimed before it is looked for among the open ones, and the loop opens its tuple before it
        # gives the claim back. So of two threads with one id the second is refused, on its own thread; without a lock.
        claim = object()
        claimed = [tup_id for tup_id in ids if self._handed.setdefault(tup_id, claim) is claim]
        try:
            for tup_id, row in zip(ids, rows, strict=True):
                if tup_id in self.unacked_tuples:
                    self._emitted_again(tup_id, _kept(row))
                if self._handed[tup_id] is not claim:
                    self._refuse(tup_id)
            return put(partial(self._take_over, ids, emit), *args)
        except BaseException:
            self._give_back(claimed)
            raise

    def _take_over(self, ids: Sequence[Hashable], emit: Callable[..., Any], *args: Any) -> None:
        """Emit what another thread has handed over. On the loop's thread."""
        self._taking = ids
        try:
            emit(*args)
        finally:
            self._taking = ()
            self._give_back(ids)

    def _give_back(self, ids: Iterable[Hashable]) -> None:
        for tup_id in ids:
            self._handed.pop(tup_id, None)

    def _refuse_ids(self, ids: Sequence[Hashable], rows: Iterable[Any]) -> None:
        """Refuse ids that are missing, open or there twice. Raises ValueError.

        ``rows``: the values for each.
        """
        if None in ids:
            raise ValueError(_NO_ID)
        try:
            again = not self.unacked_tuples.keys().isdisjoint(ids)
            handed = [tup_id for tup_id in ids if tup_id in self._handed] if self._handed else ()
        except TypeError as error:
            raise _no_key(*ids) from error
        for tup_id, row in zip(ids, rows, strict=True) if again else ():
            if tup_id in self.unacked_tuples:
                self._emitted_again(tup_id, _kept(row))
        for tup_id in handed:
            if tup_id not in self._taking:
                self._refuse(tup_id)
        if len({*ids}) < len(ids):
            raise ValueError("emit_each was given one tup_id twice. Give each tuple an id of its own")

    def has_unfinished(self) -> bool:
        """Tell whether any message is neither acked nor given up."""
        return bool(self.unacked_tuples)

    def unfinished_count(self) -> int | None:
        return len(self.unacked_tuples)

    def given_up_count(self) -> int:
        return self._given_up

    @classmethod
    def tries_in_tests(cls, kwargs: Mapping[str, Any]) -> TriesInTests | None:
        # A property gives its value while the task runs, and a test has no such task.
        static = inspect.getattr_static
        own = [hasattr(static(cls, name), "__get__") for name in ("max_fails", "replay_backoff")]
        return None if any(own) else TriesInTests(cls.max_fails, cls.replay_backoff)

    def bind(self, port: TaskPort) -> None:
        super().bind(port)
        # Long: the three emits are closures over what they need, since each record goes through them.
        # Here and not in __init__: subclasses rarely call super().__init__().
        self.unacked_tuples = {}
        self.failed_tuples = Counter()
        self._due: list[tuple[float, int, Hashable]] = []
        self._order = 0
        self._given_up = 0
        self._clock: Clock = port.clock
        self._waiting: set[Hashable] = set()
        self._handed: dict[Hashable, object] = {}
        """Ids that other threads have handed over and the loop has not emitted, with the claim of each call."""
        self._taking, self._failing = (), frozenset()
        spout_port = cast(SpoutPort, port)
        here, from_other_thread, many_from_other_thread, each_from_other_thread = (
            spout_port.here,
            spout_port.emit_from_other_thread,
            spout_port.emit_many_from_other_thread,
            spout_port.emit_each_from_other_thread,
        )
        send, send_many, send_each = port.emit, spout_port.emit_many, spout_port.emit_each
        waiting, handed, flat, make = self._waiting, self._handed, _FLAT, tuple.__new__
        kept_bytes = spout_port.kept

        # Kept only once it was sent: what an emit refused is nothing to wait for, and its replay is still due.
        def emit(
            tup: Sequence[Any],
            tup_id: Hashable | None = None,
            stream: str | None = None,
            direct_task: int | None = None,
            need_task_ids: bool = False,
        ) -> list[int] | None:
            if tup_id is None:
                raise ValueError(_NO_ID)
            try:
                again = tup_id in self.unacked_tuples
            except TypeError as error:
                raise _no_key(tup_id) from error
            if again:
                self._emitted_again(tup_id, _kept([*tup]))
            if not here():
                more = tup, tup_id, stream, direct_task, need_task_ids
                return cast("None", self._hand_over((tup_id,), ([*tup],), from_other_thread, emit, *more))
            if handed and tup_id in handed and tup_id not in self._taking:
                self._refuse(tup_id)
            tasks = send(tup, tup_id, stream, direct_task, need_task_ids)
            waiting.discard(tup_id)
            # Rule: what is kept is a copy down to the last container, as what was sent is. With the spout's own, which
            # it may fill again, a replay would send what stands there then, and its ack would stand for both.
            kept = [*tup]
            before = left = kept_bytes.left
            for value in kept:
                if value.__class__ not in flat:
                    kept = _copied(kept)
                    left = before - sum(map(value_bytes, kept))
                    break
                left -= value.__sizeof__()  # `getsizeof` does the same for these, at twice the cost
            # `kept_bytes.count`, without the call of a function.
            mark = 0
            if left < 0:
                mark = kept_bytes.mark(tup_id, before - left)
            else:
                kept_bytes.left = left
            # What `Unacked(...)` does, without the call of a function: it pays for the look at the values.
            self.unacked_tuples[tup_id] = make(Unacked, (kept, stream, direct_task, False, mark))
            return tasks

        def emit_many(
            tuples: Iterable[Sequence[Any]], tup_id: Hashable | None = None, stream: str | None = None
        ) -> None:
            if tup_id is None:
                raise ValueError(_NO_ID)
            kept = [[*values] for values in tuples]
            self._refuse_ids([tup_id], [kept])
            if not here():
                self._hand_over((tup_id,), (kept,), many_from_other_thread, emit_many, kept, tup_id, stream)
                return
            send_many(kept, tup_id, stream)
            waiting.discard(tup_id)
            rows = [*map(_kept, kept)]
            mark = kept_bytes.count(tup_id, sum(map(value_bytes, rows)))
            self.unacked_tuples[tup_id] = Unacked(rows, stream, many=True, mark=mark)

        def emit_each(tuples: Iterable[Sequence[Any]], tup_ids: Iterable[Hashable]) -> bool:
            rows, ids = tuples if isinstance(tuples, Columns) else [*tuples], [*tup_ids]
            self._refuse_ids(ids, map(list, rows))
            if not here():
                self._hand_over(ids, [*map(list, rows)], each_from_other_thread, emit_each, rows, ids)
                return False
            as_set = send_each(rows, ids)
            waiting.difference_update(ids)
            for row, tup_id in zip(rows, ids, strict=True):
                kept = _kept([*row])
                mark = kept_bytes.count(tup_id, sum(map(value_bytes, kept)))
                self.unacked_tuples[tup_id] = Unacked(kept, None, mark=mark)
            return as_set

        vars(self).update(emit=emit, emit_many=emit_many, emit_each=emit_each)


def _no_key(*ids: object) -> TypeError:
    """Return the error for the first id that cannot be hashed."""
    for tup_id in ids:
        try:
            hash(tup_id)
        except TypeError:
            break
    return TypeError(
        f"tup_id {cut(repr(tup_id), MOST_ID)} is a {type(tup_id).__name__}, which cannot be hashed, and replays are "
        "kept by it: give a str, an int or a tuple of such"
    )


def _kept(row: list[Any]) -> list[Any]:
    """Return a row, or rows, whose containers are copies: the others of its values nobody can change."""
    return row if _FLAT.issuperset(map(type, row)) else [*map(_copied, row)]


def _copied(value: Any) -> Any:
    """Copy the containers of a value as they travel: a tuple of any class becomes a list."""
    # Not `deepcopy`: it calls the class of a value, which may raise for one that has travelled well.
    if isinstance(value, (list, tuple)):
        return [*map(_copied, value)]
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return value
