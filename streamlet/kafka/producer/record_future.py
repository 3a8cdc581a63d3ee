"""The future of a sent record: its batch, and its place there.

Nothing is made for a record that its batch can do once: the batch holds the outcome, the callbacks, and the event that
wakes threads that wait, which is made only when one does. This module has the threads' part of that, so that
``producer_batch`` stays pure.

A callback may be added by any thread while the sender's thread runs those of the batch. ``_registration`` decides who
is first: a callback is either noted before :func:`run_callbacks` finds none left and marks the batch as fired, and is
then run by the sender, or comes after that mark, and is run at once by the thread that adds it. So each runs exactly
once.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, overload

from streamlet.base.errors import WrongArgument
from streamlet.kafka.arguments import seconds
from streamlet.kafka.errors import ClientTimeout, KafkaError, copy_of
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.producer.errors import IllegalProducerState, ProducerClosed
from streamlet.kafka.producer.producer_batch import UNKNOWN_OFFSET, Callback, ProducerBatch, Waiter

_log = logging.getLogger(__name__)

# Reentrant, because a signal handler may interrupt the thread that holds it, and note a callback, too.
_registration = threading.RLock()
"""Held for a moment by all batches alike, while a callback or a waiter is noted or taken."""


def _after_fork() -> None:
    # A thread of the parent may have held the lock at the fork; in the child nobody would ever release it.
    global _registration
    _registration = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


class RecordMetadata(NamedTuple):
    """The place where a record was written.

    ``offset`` -1: not known (acks=0, or the broker had it already).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970: the record's, or the broker's where the topic has LogAppendTime."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The two as one key, as the consumer's offsets use it."""
        return TopicPartition(self.topic, self.partition)


class SenderThread(threading.Thread):
    """The thread that settles the batches of one producer."""

    def __init__(self, holds_lock: Callable[[], bool], target: Callable[[], None], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self._holds_lock = holds_lock
        self._pid = os.getpid()

    @property
    def is_of_parent(self) -> bool:
        """Whether this process is a fork of its own: it does not run here, and nothing of it will end."""
        return os.getpid() != self._pid

    def check_wait(self) -> None:
        """Raise IllegalProducerState in a thread that would wait for itself.

        That is this one, and one that holds its producer's lock. Raise ProducerClosed in a forked child.
        """
        if self.is_of_parent:
            raise ProducerClosed(
                "get() of a record that is still open was called in a fork of its process: only the parent hears how "
                "it ends. Wait for it there, or before the fork."
            )
        if threading.current_thread() is self:
            raise IllegalProducerState(
                "get() of a record that is still open was called in a callback of the same producer: the thread that "
                "runs it is the one that sends, so it would wait for ever. Use add_callback."
            )
        if self._holds_lock() or _registration._is_owned():  # type: ignore[attr-defined]  # as Condition asks it
            raise IllegalProducerState(
                "get() of a record that is still open was called in a signal handler (or a __del__) that interrupts "
                "another call of the same producer in this thread: it would wait for that call for ever."
            )


class FutureRecordMetadata:
    """The future of one record, returned by ``send``. Any thread."""

    __slots__ = ("_batch", "_index", "_timestamp")

    def __init__(self, batch: ProducerBatch, index: int, timestamp: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    def __repr__(self) -> str:
        return f"<FutureRecordMetadata {self._index} of {self._batch!r}>"

    def _place(self) -> tuple[ProducerBatch, int]:
        """Return the batch that decides, and the record's place in it.

        After a split it is the part that holds the record.
        """
        # Counted from the start each time and stored nowhere: two threads that both moved a stored place on to the
        # part would count the way twice.
        batch, index = self._batch, self._index
        while batch.children:
            start, batch = batch.child_of(index)
            index -= start
        return batch, index

    @property
    def is_done(self) -> bool:
        """Whether it is resolved, and its callbacks have run."""
        return self._place()[0].fired

    def done(self) -> bool:
        """Return :attr:`is_done`, as a call."""
        return self.is_done

    def succeeded(self) -> bool:
        """Return whether the record is written; False while that is open."""
        batch, _index = self._place()
        return batch.fired and batch.error is None

    def failed(self) -> bool:
        """Return whether the record is over and not known to be written."""
        return self.exception is not None

    @property
    def exception(self) -> KafkaError | None:
        """Its error; None while it is open, or when it was written."""
        batch, _index = self._place()
        return batch.error if batch.fired else None

    @property
    def value(self) -> RecordMetadata | None:
        """Its place in the log; None while it is open, or when it failed."""
        batch, index = self._place()
        return None if not batch.fired or batch.error is not None else _metadata(batch, index, self._timestamp)

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the outcome, at most ``timeout`` seconds; return the record's place.

        ``timeout`` None: as long as ``delivery_timeout_ms`` lets it take. Raises the record's error (BatchExpired,
        OutcomeUnknown, the broker's ...); ClientTimeout when it is still open then, and is decided later all the
        same; IllegalProducerState in a callback, which runs in the thread that would have to decide.
        """
        batch, index = self._place()
        if not batch.fired:
            batch, index = self._wait(timeout)
        if batch.error is not None:
            raise copy_of(batch.error)  # all records of the batch share it
        return _metadata(batch, index, self._timestamp)

    def _wait(self, timeout: float | None) -> tuple[ProducerBatch, int]:
        if self._batch.wait_guard is not None:
            self._batch.wait_guard.check_wait()
        deadline = None if timeout is None else time.monotonic() + seconds(timeout)
        while True:
            batch, index = self._place()
            waiter = await_batch(batch)
            if waiter is None:
                if batch.children:
                    continue
                return batch, index
            if not waiter.wait(None if deadline is None else max(deadline - time.monotonic(), 0.0)):
                raise ClientTimeout(
                    f"The record for {batch.topic_partition} was not acknowledged within {timeout:.3g} s. It is still "
                    "on its way: it is written, or fails, at the latest when delivery_timeout_ms is over."
                )

    def add_callback(self, call: Callable[..., object], *args: object, **kwargs: object) -> FutureRecordMetadata:
        """Call ``call(*args, metadata, **kwargs)`` once the record is written; at once when it is.

        In the sender's thread, records in order. An error that it raises is logged and counted, and hurts no other
        record.
        """
        return self._add(_bound(call, args, kwargs), True)

    def add_errback(self, call: Callable[..., object], *args: object, **kwargs: object) -> FutureRecordMetadata:
        """Call ``call(*args, error, **kwargs)`` once the record has failed; at once when it has."""
        return self._add(_bound(call, args, kwargs), False)

    def add_both(self, call: Callable[..., object], *args: object, **kwargs: object) -> FutureRecordMetadata:
        """Add one function as callback and as errback."""
        return self.add_callback(call, *args, **kwargs).add_errback(call, *args, **kwargs)

    def _add(self, call: Callable[..., object], on_success: bool) -> FutureRecordMetadata:
        with _registration:
            batch, index = self._place()
            row: Callback = (index, self._timestamp, call, on_success)
            if not batch.fired:
                batch.callbacks.append(row)
                return self
        _run(batch, row)
        return self


class SentRecords(Sequence[FutureRecordMetadata]):
    """The futures of records sent together, made when asked for. Any thread."""

    # Rule: many records are sent, and few are asked for. An object for each costs a seventh of what a record takes from
    # the bolt to the socket.
    __slots__ = ("_made", "_timestamp", "batches", "indexes")

    def __init__(self, timestamp: int) -> None:
        self.batches: list[ProducerBatch] = []
        """The batch of each record, in order. Only the call that sends them adds to it."""
        self.indexes: list[int] = []
        """The place of each record in its batch."""
        self._timestamp = timestamp
        self._made: list[FutureRecordMetadata] | None = None

    def add(self, future: FutureRecordMetadata) -> None:
        """Add a record that was sent by itself."""
        self.batches.append(future._batch)
        self.indexes.append(future._index)

    def _all(self) -> list[FutureRecordMetadata]:
        if self._made is None:
            rows = zip(self.batches, self.indexes, strict=True)
            self._made = [FutureRecordMetadata(batch, index, self._timestamp) for batch, index in rows]
        return self._made

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[FutureRecordMetadata]:
        return iter(self._all())

    @overload
    def __getitem__(self, at: int) -> FutureRecordMetadata: ...

    @overload
    def __getitem__(self, at: slice) -> list[FutureRecordMetadata]: ...

    def __getitem__(self, at: int | slice) -> FutureRecordMetadata | list[FutureRecordMetadata]:
        return self._all()[at]

    # As a list in these: futures of several calls are put together.
    def __add__(self, other: Sequence[FutureRecordMetadata]) -> list[FutureRecordMetadata]:
        return [*self, *other]

    def __radd__(self, other: Sequence[FutureRecordMetadata]) -> list[FutureRecordMetadata]:
        return [*other, *self]

    def __eq__(self, other: object) -> bool:
        return [*self] == [*other] if isinstance(other, (list, SentRecords)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as a list: what is equal by its content

    def __repr__(self) -> str:
        return f"SentRecords({self._all()!r})"


def _bound(call: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> Callable[..., object]:
    if not callable(call):
        raise WrongArgument(f"{call!r} is not a callback: give a function of the record's metadata, or of its error.")
    if not args and not kwargs:
        return call
    return lambda outcome: call(*args, outcome, **kwargs)


FailedRecords = list[tuple[int, KafkaError]]
"""The records of a list that failed: place in the list, and error."""


def call_when_over(futures: Sequence[FutureRecordMetadata], call: Callable[[FailedRecords], object]) -> None:
    """Call once, when all records are over, with those that failed.

    In the sender's thread, as a callback; at once in this one when they are over by now.
    """
    _RecordsTogether(futures, call).go_on()


class _RecordsTogether:
    """Records that are waited for together, by one callback a batch."""

    # One callback is registered at a time, so no two threads are ever in here, and it needs no lock of its own.
    __slots__ = ("_call", "_failed", "_groups", "_indexes")

    def __init__(self, futures: Sequence[FutureRecordMetadata], call: Callable[[FailedRecords], object]) -> None:
        self._call = call
        self._failed: FailedRecords = []
        if isinstance(futures, SentRecords):
            batches, self._indexes = futures.batches, [*futures.indexes]
        else:
            batches, self._indexes = [one._batch for one in futures], [one._index for one in futures]
        groups: dict[ProducerBatch, list[int]] = {}
        for place, batch in enumerate(batches):
            if batch in groups:
                groups[batch].append(place)
            else:
                groups[batch] = [place]
        self._groups = deque(groups.items())
        """Batch -> places in the list of its records. Their places in the batch are in ``_indexes``."""

    def go_on(self) -> None:
        """Wait for the next batch that is not over; make the call when there is none."""
        while self._groups:
            batch, places = self._groups[0]
            with _registration:
                if not batch.fired and not batch.children:
                    index = self._indexes[places[-1]]
                    batch.callbacks += [(index, 0, self._fired, True), (index, 0, self._fired, False)]
                    return
            self._take_off()
        self._call(self._failed)

    def _fired(self, _outcome: object) -> None:
        # The batch, or the part of it that this callback went to in a split, is over, and not marked as fired yet.
        if not self._groups[0][0].children:
            self._take_off()
        self.go_on()

    def _take_off(self) -> None:
        """Take the first batch off the list: it is over, or was split into parts that take its place."""
        batch, places = self._groups.popleft()
        if batch.children:
            parts: dict[ProducerBatch, list[int]] = {}
            for place in places:
                start, part = batch.child_of(self._indexes[place])
                self._indexes[place] -= start
                parts.setdefault(part, []).append(place)
            self._groups.extendleft(parts.items())
        elif batch.error is not None:
            self._failed += [(place, batch.error) for place in places]


def await_batch(batch: ProducerBatch) -> Waiter | None:
    """Return the waiter of a batch; None when it is over, or was split."""
    with _registration:
        if batch.fired or batch.children:
            return None
        if batch.waiter is None:
            batch.waiter = threading.Event()
        return batch.waiter


def split_batch(batch: ProducerBatch, split: Callable[[ProducerBatch], list[ProducerBatch]]) -> list[ProducerBatch]:
    """Split a batch, and send its waiters on to the parts."""
    # Under the lock: a callback added meanwhile must be seen by the split, or find the parts.
    with _registration:
        parts = split(batch)
    if batch.waiter is not None:
        batch.waiter.set()
    return parts


def run_callbacks(batch: ProducerBatch) -> int:
    """Run a batch's callbacks in order of records; wake its waiters.

    Returns how many of them raised. Called once a batch, by the sender's thread, without any lock.
    """
    raised = 0
    # Until none is left: a callback may add callbacks to records of this batch, and these must run as well.
    while True:
        with _registration:
            rows, batch.callbacks = batch.callbacks, []
            if not rows:
                batch.fired = True
                break
        rows.sort(key=lambda row: row[0])
        for row in rows:
            raised += not _run(batch, row)
    if batch.waiter is not None:
        batch.waiter.set()
    return raised


def _run(batch: ProducerBatch, row: Callback) -> bool:
    index, timestamp, call, on_success = row
    if on_success != (batch.error is None):
        return True
    try:
        call(batch.error if batch.error is not None else _metadata(batch, index, timestamp))
    except BaseException:  # noqa: BLE001 - foreign code: its fault must not cost other records, nor this thread
        # Rule: SystemExit and its kin as well. In this thread they end no program; raised on they would end the thread,
        # and every other future, flush and close would wait for it.
        _log.exception("a callback of a record for %s raised", batch.topic_partition)
        return False
    return True


def _metadata(batch: ProducerBatch, index: int, timestamp: int) -> RecordMetadata:
    offset = UNKNOWN_OFFSET if batch.base_offset < 0 else batch.base_offset + index
    written = batch.log_append_time if batch.log_append_time >= 0 else timestamp
    return RecordMetadata(*batch.topic_partition, offset, written)
