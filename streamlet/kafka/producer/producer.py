"""The producer that users write with: sync and async on one path, one record or many.

A call does three things at most: it checks and serializes what it was given, it puts records into batches
(``append``), and it waits, for metadata, memory, acknowledgements or a transaction. All else is done by the sender's
thread (``sender``). docs/internals/send.md follows one record from here to its callback.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import time
from types import TracebackType
from typing import Any, Never, Self, Unpack

from streamlet.base import chance
from streamlet.base.clock import Clock, SystemClock
from streamlet.kafka.arguments import by_name_only, check_place, check_timestamp, check_topic, seconds
from streamlet.kafka.client.closing import HASTE_S, in_haste
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, offset_rows
from streamlet.kafka.errors import ClientTimeout, copy_of
from streamlet.kafka.metadata.cluster import PartitionInfo, TopicPartition
from streamlet.kafka.producer.append import Appender, as_bytes, check_headers
from streamlet.kafka.producer.errors import IllegalProducerState, ProducerClosed
from streamlet.kafka.producer.producer_batch import ProducerBatch
from streamlet.kafka.producer.producer_config import ProducerConfig, ProducerSettings
from streamlet.kafka.producer.record_future import FutureRecordMetadata
from streamlet.kafka.producer.sender import EXIT_S, Sender
from streamlet.kafka.producer.transaction import TransactionManager, TransactionResult
from streamlet.kafka.producer.transaction_steps import TransactionSteps
from streamlet.kafka.records.appending import VARINT
from streamlet.kafka.settings.foreign_names import answers_foreign_calls

GivenHeaders = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]
Offered = tuple[Sequence[FutureRecordMetadata], Exception | None]


_REFUSED_IN_FORK = (
    "send",
    "send_many",
    "offer",
    "flush",
    "metrics",
    "partitions_for",
    "init_transactions",
    "begin_transaction",
    "send_offsets_to_transaction",
    "commit_transaction",
    "abort_transaction",
)


@answers_foreign_calls
class Producer:
    """Writes records to topics. Every method may be called from any thread, and from callbacks where it says so.

    ``Producer(bootstrap_servers="127.0.0.1:9092", value_serializer=str.encode)``; the settings are those of
    :class:`ProducerConfig`, unknown ones are refused. Making one does no I/O; a thread of its own sends. Use it as a
    context manager, or call :meth:`close`. Not usable in a forked child: make one there.
    """

    def __init__(
        self,
        *misplaced: Never,
        clock: Clock | None = None,
        uniform: Callable[[], float] = chance.uniform,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        by_name_only("Producer", misplaced)
        self.config = ProducerConfig.of(settings)
        self._clock = clock or SystemClock()
        self._sender = Sender(self.config, self._clock, uniform)
        self._appender = Appender(self.config, self._sender)
        self._key_serializer = self._appender.key_serializer
        self._value_serializer = self._appender.value_serializer
        self._calls = TransactionCalls(self._sender, self._appender)
        self._lock = self._sender.lock
        self._holds_lock = self._sender.holds_lock
        self._topic = self._appender.topics.get
        self._plain_keyless = self._appender.plain_keyless
        self._pid = os.getpid()
        self._closed = False
        self._sender.start()
        # The program's end closes the producer, and must not keep it alive until then: the hook holds a weak
        # reference, and where the last strong one goes first, _abandon takes the hook's place.
        reference = weakref.ref(self)
        self._at_exit = lambda: _close_at_exit(reference)
        atexit.register(self._at_exit)
        self._abandoned = weakref.finalize(self, _abandon, self._sender, self._at_exit)
        self._abandoned.atexit = False
        _living.add(self)

    def _refuse_in_fork(self) -> None:
        """Refuse every call in a forked child."""
        # The sender's thread does not exist there, and it may have held the lock at the fork: nobody would ever
        # release it. So the calls are replaced, and none of them looks at the lock.

        def refuse(*_: object, **__: object) -> None:
            gone = self._appender.forked()
            gone.taken = []  # type: ignore[attr-defined]  # documented in send_many
            raise gone

        for call in _REFUSED_IN_FORK:
            setattr(self, call, refuse)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(HASTE_S if in_haste(kind) else None)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._sender.accumulator.incomplete)} batches open"
        return f"<Producer {self.config.client_id!r} of {self.config.bootstrap_servers}: {state}>"

    # -- records

    def send(
        self,
        topic: str,
        value: Any = None,  # Any: what the user's serializer takes
        key: Any = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        partition_key: Any = None,
    ) -> FutureRecordMetadata:
        """Take one record, to be sent by the sender's thread; return its future.

        ``value`` None is a tombstone. ``partition_key`` decides the partition in place of ``key``. Blocks only
        while the topic is not known yet or ``buffer_memory`` is full, together at most ``max_block_ms``: then
        ClientTimeout or BufferExhausted. Also raises SerializationFailed, PartitionerFailed, RecordTooLarge,
        TopicAuthorizationFailed, ProducerClosed, and in a transaction its own errors; after any error the record
        was not taken. In a callback it may be called too, and then never blocks.
        """
        if topic.__class__ is not str or (partition is not None and (partition.__class__ is not int or partition < 0)):
            check_place(topic, partition)
        if self._value_serializer is not None:
            value = self._value_serializer(topic, value)
        elif value.__class__ is not bytes and value is not None:
            value = as_bytes("value_serializer", topic, value)
        timestamp = int(time() * 1000) if timestamp_ms is None else check_timestamp(timestamp_ms)
        if self._holds_lock():
            self._sender.may_lock("send()")
        if key is None and partition is None and partition_key is None and not headers and self._plain_keyless:
            # Long: the usual case is written out, a keyless record into the open batch of the sticky partition. The
            # encoder (records/appending.encode_plain) stands here a second time: calling it costs 5 % of a send,
            # measured. An open batch means that records may be taken, so nothing else is checked.
            with self._lock:
                state = self._topic(topic)
                if (
                    state is not None
                    and (queue := state.sticky_queue) is not None
                    and (batch := queue.open) is not None
                ):
                    parts = batch.parts
                    index = len(parts)
                    delta = timestamp - batch.base_timestamp
                    size = -1 if value is None else len(value)
                    if index < 8192 and 0 <= delta < 8192 and 0 <= size < 8100:
                        lead, place, length = VARINT[delta], VARINT[index], VARINT[size]
                        body = size + len(lead) + len(place) + len(length) + 3
                        part = b"%b\0%b%b\1%b%b\0" % (VARINT[body], lead, place, length, value)
                        grown = batch.size + len(part)
                        if grown < batch.room:
                            parts.append(part)
                            batch.size = grown
                            if timestamp > batch.max_timestamp:
                                batch.max_timestamp = timestamp
                            sticky = state.sticky
                            sticky.left -= len(part)
                            if sticky.left <= 0:
                                state.sticky_queue = None
                            return FutureRecordMetadata(batch, index, timestamp)
        raw_key = self._as_key(topic, key)
        rows = check_headers(topic, headers) if headers else ()
        if partition_key is None and self._key_serializer is not None and self._appender.hashes_raw_keys:
            partition_key = key
        return self._appender.append(topic, raw_key, value, rows, timestamp, partition, partition_key)

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        headers: GivenHeaders | None = None,
        timestamp_ms: int | None = None,
    ) -> Sequence[FutureRecordMetadata]:
        """Take many records in order; return a future for each. Far cheaper than one by one.

        ``keys`` has one for each value, or is None; headers and time are those of all. Raises the errors of
        :meth:`send`, and ValueError when the counts differ. After any error the first ``len(error.taken)`` records of
        the list were taken, none or more, and no others; ``error.taken`` has their futures, and the message says how
        many. A value or key that cannot be serialized is found before the first is taken.
        """
        self._sender.may_lock("send_many()")
        return self._appender.append_list(topic, values, keys, partition, headers, timestamp_ms)

    def offer(self, topic: str, values: Sequence[Any], keys: Sequence[Any] | None = None) -> Offered:
        """Take records up to the first that cannot be; return futures and its error.

        :meth:`send_many` for who goes on by itself. The error is what :meth:`send` raises for that record, or None.
        """
        self._sender.may_lock("offer()")
        return self._appender.append_some(topic, values, keys)

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Return the topic's partitions; wait for metadata, at most ``max_block_ms``."""
        check_topic(topic)
        self._sender.may_lock("partitions_for()")
        self._appender.wait_on_metadata(topic, None, self.config.max_block_ms / 1000, note="")
        return self._sender.client.cluster.partitions_for(topic)

    def connections(self) -> str:
        """Return the states of all connections as a sentence, for a message."""
        return self._sender.client.connections()

    def _as_key(self, topic: str, key: Any) -> bytes | None:  # Any: what the user's serializer takes
        if self._key_serializer is not None:
            return self._key_serializer(topic, key)
        if key is None or key.__class__ is bytes:
            return key
        return as_bytes("key_serializer", topic, key)

    # -- waiting and ending

    def flush(self, timeout: float | None = None) -> None:
        """Send all queued records, and wait until their callbacks have run.

        ClientTimeout after ``timeout`` seconds (None: every record ends within ``delivery_timeout_ms``). Errors of
        records stand in their futures, and are not raised here. Not in a callback.
        """
        sender = self._sender
        sender.may_wait("flush()")
        deadline = None if timeout is None else self._clock.monotonic() + seconds(timeout)
        with self._lock:
            self._appender.check_open()
            # The batches of now: records that others send meanwhile must not keep this call from its end.
            waiting = list(sender.accumulator.live)
            sender.accumulator.flushes += 1
            sender.wake()
            try:
                while waiting := [batch for batch in waiting if not _is_over(batch)]:
                    left = None if deadline is None else deadline - self._clock.monotonic()
                    if left is not None and left <= 0:
                        raise ClientTimeout(
                            f"{len(waiting)} batches are still on their way after {timeout:.3g} s of flush(). "
                            f"{sender.client.connections()}"
                        )
                    sender.changed.wait(left)
            finally:
                sender.accumulator.flushes -= 1

    def close(self, timeout: float | None = None) -> None:
        """Send every record that was taken, and end; wait at most ``timeout`` seconds.

        ``timeout`` None: as long as the settings let it take. Records that are still open then fail with
        ProducerClosed, and their count is logged; an open transaction is aborted. Never hangs, may be called twice; in
        a signal handler that interrupts a call of this producer it does not wait: the records are then sent afterwards,
        and the program's end waits for that, as it does for a few seconds when Ctrl-C interrupts this wait. In a
        callback it gives open records up. A ``with`` block that Ctrl-C or ``exit()`` leaves waits at most 5 s; a wait
        of more than 2 s is explained in the log.
        """
        sender = self._sender
        limit = self.config.delivery_timeout_s + self.config.request_timeout_ms / 1000
        limit = limit if timeout is None else max(min(seconds(timeout), limit), 0.0)
        atexit.unregister(self._at_exit)
        self._abandoned.detach()
        self._closed = True
        if os.getpid() != self._pid:  # a forked child: the records are the parent's
            return
        # In the middle of a call of this very thread, with the data half changed: only flags may be set here.
        if sender.holds_lock():
            sender.forced = sender.forced or limit <= 0
            sender.leave(min(limit, EXIT_S))
            return
        with self._lock:
            sender.begin_close()
            if limit <= 0 or sender.is_own_thread:
                sender.forced = True
            sender.wake()
        if sender.is_own_thread:
            return
        try:
            sender.end_within(limit)
        except BaseException:
            # Ctrl-C, or a signal handler that raises: the thread is a daemon, and nobody else waits for it now.
            sender.leave(min(limit, HASTE_S))
            raise

    def metrics(self) -> dict[str, object]:
        """Return the counts of :class:`ProducerMetrics`, and the memory and batches in use."""
        self._sender.may_lock("metrics()")
        with self._lock:
            found = self._sender.metrics.snapshot(self._clock.monotonic())
            found["buffer_bytes_in_use"] = self._sender.accumulator.pool.in_use
            found["batches_open"] = len(self._sender.accumulator.incomplete)
        return found

    # -- transactions

    def init_transactions(self) -> None:
        """Fence other producers of this ``transactional_id`` and end their transactions.

        To be called once, before the first transaction. Waits at most ``max_block_ms`` (ClientTimeout: call it again
        to wait on). ProducerFenced, or the broker's refusal.
        """
        self._calls.transact("init_transactions()", TransactionManager.begin_initialize)

    def begin_transaction(self) -> None:
        """Begin a transaction: records belong to it from here on.

        Waits, at most ``max_block_ms``, only after a transaction that failed or lost an answer: the next one takes a
        new epoch. ProducerFenced, or the broker's refusal.
        """
        self._calls.begin_transaction()

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, Any],  # Any: OffsetAndMetadata, or kafka-python's, or an int
        group: ConsumerGroupMetadata | str | Any,  # Any: whatever has a consumer's group_id and generation_id
    ) -> None:
        """Store a group's offsets, the *next* ones to read, with the transaction.

        ``group``: the consumer's group metadata, which fences a member that lost its partitions (KIP-447), or a bare
        group id, which fences nobody. Waits at most ``max_block_ms``.
        """
        rows, member = offset_rows(offsets), ConsumerGroupMetadata.of(group)
        if rows:
            self._calls.transact("send_offsets_to_transaction()", lambda manager: manager.send_offsets(rows, member))

    def commit_transaction(self) -> None:
        """Send all queued records, and commit. Waits at most ``max_block_ms``.

        TransactionFailed: something in it failed; abort it. ProducerFenced: close this producer. ClientTimeout: the
        commit is still under way and may be done yet; call it again to wait on. abort_transaction() is then refused
        (IllegalProducerState).
        """
        self._calls.end("commit_transaction()", TransactionManager.begin_commit)

    def abort_transaction(self) -> None:
        """Take the transaction's records back. Waits like a commit.

        No reader of read_committed sees them.
        """
        self._calls.end("abort_transaction()", TransactionManager.begin_abort)

    def transaction_steps(self, heard: Callable[[], None]) -> TransactionSteps:
        """Return these calls for a loop that may not wait; ``heard`` is called on the sender's thread after news."""
        return TransactionSteps(self._sender, heard)


class TransactionCalls:
    """The calls that wait for a transaction's coordinator."""

    def __init__(self, sender: Sender, appender: Appender) -> None:
        self._sender = sender
        self._appender = appender
        self._max_block_s = sender.config.max_block_ms / 1000

    def begin_transaction(self) -> None:
        """Begin a transaction, after the new epoch where one is needed."""
        # A commit ends when EndTxn is answered. The epoch taken after it belongs to the next transaction, so its
        # refusal is reported here: a commit that was made must not raise an error.
        call = "begin_transaction()"
        self._sender.may_lock(call)
        with self._sender.lock:
            self._appender.check_open()
            manager = self._manager()
            if manager.takes_epoch:
                self._await(call, lambda: not manager.takes_epoch)
            manager.begin_transaction()

    def transact(self, call: str, begin: Callable[[TransactionManager], TransactionResult]) -> None:
        """Begin an operation, wait for its end, and raise its error."""
        self._sender.may_wait(call)
        with self._sender.lock:
            self._appender.check_open()
            manager = self._manager()
            result = begin(manager)
            self._sender.wake()
            self._await(call, lambda: result.done)
            manager.claimed(result)
        if result.error is not None:
            raise copy_of(result.error)

    def end(self, call: str, begin: Callable[[TransactionManager], TransactionResult]) -> None:
        """Commit or abort."""

        def close_and_begin(manager: TransactionManager) -> TransactionResult:
            # The short paths of send() ask nothing while a batch is open: it would take records after the end.
            self._sender.accumulator.close_open_batches()
            return begin(manager)

        self.transact(call, close_and_begin)

    def _await(self, call: str, done: Callable[[], bool]) -> None:
        """Wait with the lock held; ClientTimeout after ``max_block_ms``."""
        sender = self._sender
        sender.may_not_be_callback(call)
        deadline = sender.clock.monotonic() + self._max_block_s
        while not done():
            left = deadline - sender.clock.monotonic()
            if left <= 0:
                raise ClientTimeout(
                    f"{call} has had no answer for {self._max_block_s:.3g} s (max_block_ms); it is still under way: "
                    f"call it again to wait on. {sender.client.connections()}"
                )
            if sender.died is not None or sender.forced:
                raise ProducerClosed(f"The producer was closed during {call}.")
            sender.changed.wait(left)

    def _manager(self) -> TransactionManager:
        manager = self._sender.manager
        if manager is None or not manager.is_transactional:
            raise IllegalProducerState("Transactions need a producer with transactional_id set, and this one has none.")
        return manager


_living: weakref.WeakSet[Producer] = weakref.WeakSet()


def _after_fork() -> None:
    for producer in list(_living):
        producer._refuse_in_fork()


os.register_at_fork(after_in_child=_after_fork)


def _is_over(batch: ProducerBatch) -> bool:
    if batch.children:
        return all(_is_over(child) for _start, child in batch.children)
    return batch.fired


def _close_at_exit(reference: weakref.ref[Producer]) -> None:
    producer = reference()
    if producer is not None:
        producer.close(EXIT_S)


def _abandon(sender: Sender, at_exit: Callable[[], None]) -> None:
    """End the sender of a producer without references, after its records."""
    atexit.unregister(at_exit)
    sender.leave()
