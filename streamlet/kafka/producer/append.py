"""The way of a record, or of a list, into batches: its bytes, its place, its waits.

Any thread. The lock is the sender's, taken for one record or for as many of a list as one batch has room for. The
user's partitioner is asked without it; so after each such question, and after each wait, the topic's state is looked at
again.

A call may wait twice, for its topic's metadata and for memory, both together at most ``max_block_ms``. The error of a
record that was not taken always says so; after the append its future alone tells the outcome.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import time
from typing import Any, TypeGuard

from streamlet.base.errors import StreamletError
from streamlet.base.notices import Notices
from streamlet.kafka.arguments import check_place, check_timestamp, check_topic, listed, shortened
from streamlet.kafka.client import diagnosis
from streamlet.kafka.errors import ClientTimeout, copy_of
from streamlet.kafka.producer.accumulator import PartitionQueue, TopicState
from streamlet.kafka.producer.errors import (
    BufferExhausted,
    PartitionOutOfRange,
    ProducerClosed,
    RecordTooLarge,
    SerializationFailed,
)
from streamlet.kafka.producer.producer_batch import ProducerBatch
from streamlet.kafka.producer.producer_config import ProducerConfig
from streamlet.kafka.producer.record_future import FutureRecordMetadata, SentRecords
from streamlet.kafka.producer.sender import Sender
from streamlet.kafka.records.appending import HEADER_SIZE, VARINT, encode_plain, encode_record, upper_bound
from streamlet.kafka.records.record_batch import Headers

_log = logging.getLogger(__name__)
TOLD_AFTER_S = 3.0
"""Seconds before a record's wait for its topic is named in the log."""
IN_A_ROW_S = 1.0
"""Seconds between two sends that count as in a row, at most."""
TOLD_AGAIN_S = 30.0
"""Seconds before the next line about such a wait."""
MOST_AT_ONCE = 1024
"""Most records with keys that are appended under one lock: about a millisecond."""
_NOT_TAKEN = "The record was not taken."
_OF_ONE = (" The record was not taken.", " No record was taken.")
"""Sentences in the errors of a single record that are not true of a list."""


# -- a record as bytes -----------------------------------------------------------------------------------------------

Serialize = Callable[[str, Any], bytes | None]  # Any: what users send


def serializer(setting: str, given: Any) -> Serialize | None:  # Any: an object with `serialize`, or a function
    """Return the user's serializer as (topic, value) -> bytes or None; None when there is none."""
    if given is None:
        return None
    method = getattr(given, "serialize", None)
    call: Serialize = method if callable(method) else lambda _topic, value: given(value)

    def serialize(topic: str, value: Any) -> bytes | None:
        if value is None:
            return None  # a tombstone has no form
        try:
            raw = call(topic, value)
        except Exception as err:  # the user's code may raise anything
            raise SerializationFailed(
                f"{setting} raised {type(err).__name__}: {err}; it was given {_shown(value)} for topic {topic!r}. The "
                "record was not taken."
            ) from err
        return raw if raw.__class__ is bytes or raw is None else as_bytes(setting, topic, raw)

    return serialize


def as_bytes(setting: str, topic: str, value: Any) -> bytes:
    """Return a bytes-like value as bytes; SerializationFailed for any other."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise SerializationFailed(
        f"A record for topic {topic!r} has {_shown(value)} where bytes are needed: give the producer a {setting} (such "
        "as str.encode), or send bytes. The record was not taken."
    )


def check_headers(topic: str, headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Return headers, given as pairs or a mapping, as pairs. Raises SerializationFailed."""
    rows = headers.items() if isinstance(headers, Mapping) else headers
    found = []
    for row in rows if isinstance(rows, Iterable) else [rows]:
        name, value = row if isinstance(row, (tuple, list)) and len(row) == 2 else (None, None)
        if not _is_text(name) or not (value is None or isinstance(value, (bytes, bytearray, memoryview))):
            raise SerializationFailed(
                f"headers = {shortened(headers)} of a record for topic {topic!r}: {shortened(row)} is not a pair of a "
                "name and bytes (or None). Write [('source', b'docs'), ...], or a dict. The record was not taken."
            )
        found.append((name, None if value is None else bytes(value)))
    return tuple(found)


def check_size(config: ProducerConfig, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the most bytes that a record takes. Raises RecordTooLarge."""
    need = upper_bound(key, value, headers)
    for name, limit in (("max_request_size", config.max_request_size), ("buffer_memory", config.buffer_memory)):
        if need + HEADER_SIZE > limit:
            also = " The topic's max.message.bytes must allow it, too." if name == "max_request_size" else ""
            raise RecordTooLarge(
                f"A record for topic {topic!r} takes up to {need + HEADER_SIZE} bytes, and the producer's "
                f"{name} is {limit}: send a smaller record, or raise {name}.{also} The record was not taken."
            )
    return need


def check_record(
    config: ProducerConfig,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Any,
    partition: int | None,
    timestamp_ms: int | None,
) -> None:
    """Raise what a send of this record would, whatever the cluster has. For tests without one."""
    check_place(topic, partition)
    if timestamp_ms is not None:
        check_timestamp(timestamp_ms)
    check_size(config, topic, key, value, check_headers(topic, headers) if headers else ())


def _is_text(name: object) -> TypeGuard[str]:
    # A str with a lone surrogate has no UTF-8: it must fail here, not when its batch is encoded.
    if not isinstance(name, str):
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: object) -> str:
    return f"{type(value).__name__} {shortened(value)}"


# -- into a batch ----------------------------------------------------------------------------------------------------


class Appender:
    """The way of one producer's records into batches. Takes the sender's lock itself."""

    # Long: one record, a list of them and a record that waits take the same way and the same waits, under one lock,
    # with the usual case written out.

    def __init__(self, config: ProducerConfig, sender: Sender) -> None:
        self._config = config
        self._sender = sender
        self._lock = sender.lock
        self._clock = sender.clock
        self._accumulator = sender.accumulator
        self._max_block_s = config.max_block_ms / 1000
        self._batch_bytes = config.batch_bytes
        self._pid = os.getpid()
        self.topics = sender.topics
        self.hashes_raw_keys = self.topics.wants_raw_keys
        self.key_serializer = serializer("key_serializer", config.key_serializer)
        self.value_serializer = serializer("value_serializer", config.value_serializer)
        may_go_elsewhere = config.partition_failover != "off"
        self.plain_keyless = self.topics.custom is None and not may_go_elsewhere
        """Whether a record without a key goes to the sticky partition, and nobody is asked."""
        self._plain_keyed = not (self.hashes_raw_keys or config.partitioner_ignore_keys or may_go_elsewhere)
        """Whether the bytes of a key alone choose its record's partition."""
        self._waits: Notices[None] = Notices(TOLD_AGAIN_S)
        self._wanting: dict[tuple[str, int | None], tuple[int, float]] = {}
        """Place that is not known -> full updates before the first of sends in a row to it; when the latest was."""

    def check_open(self) -> None:
        """Raise ProducerClosed when the producer is closed, or its thread died."""
        sender = self._sender
        if sender.died is not None:
            raise ProducerClosed(
                f"The producer's sender thread died of {type(sender.died).__name__}: {sender.died}. Make a new one."
            ) from sender.died
        if sender.closing:
            raise ProducerClosed("The producer is closed.")

    def forked(self) -> ProducerClosed:
        """Return the error of every call in a child of this process."""
        return ProducerClosed(
            f"This producer was made in process {self._pid}, and process {os.getpid()} is a fork of it, where the "
            "thread that sends does not exist: make a producer of its own in each process, after the fork."
        )

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: int,
        partition: int | None,
        partition_key: object,
    ) -> FutureRecordMetadata:
        """Append one record, whatever it has; ``partition_key`` decides in place of ``key``."""
        if not headers and partition_key is None and self._plain_keyed:
            with self._lock:
                found = self._append_directly(topic, key, value, timestamp, partition)
            if found is not None:
                return found
        deadline = self._clock.monotonic() + self._max_block_s
        need = check_size(self._config, topic, key, value, headers)
        while True:
            state = self._known(topic, partition, deadline)
            count = state.count
            number = partition if partition is not None else self.topics.ask(topic, count, key, partition_key)
            with self._lock:
                self.check_open()
                if not self._is_current(state, count):
                    continue  # metadata came while the partitioner was asked: ask again, with the new count
                home = self._queue(state, number, key, partition_key)
                # Here already, and not only in the sender's thread: a transaction that was told of a dead partition
                # cannot end before that one is back.
                moves = self._config.partition_failover == "all" and number is None
                queue = self.topics.living(state, home) if moves else home
                has_key = key is not None or partition_key is not None
                self._keep_apart(queue, has_key, partition)
                batch = self._open(queue, need, timestamp, deadline)
                before = batch.size
                index = batch.append(_encoded(batch, key, value, headers, timestamp), timestamp)
                batch.pinned = batch.pinned or partition is not None
                batch.keyed = batch.keyed or has_key
                if state.sticky_queue is queue:
                    self._spend(state, batch.size - before)
                if queue is not home:
                    self._sender.moved(home.topic_partition, queue.topic_partition, 1)
                if batch.size >= self._batch_bytes > before:
                    self._sender.wake()
                return FutureRecordMetadata(batch, index, timestamp)

    def _is_current(self, state: TopicState, count: int) -> bool:
        """Return whether a state found without the lock still holds."""
        return state.count == count and self.topics.get(state.name) is state

    def _append_directly(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, partition: int | None
    ) -> FutureRecordMetadata | None:
        """Append a record with a key or partition to an open batch.

        The usual case, in few steps. None: take the long way.
        """
        # An open batch means that records may be taken (see ``accumulator``): nothing else is checked.
        state = self.topics.get(topic)
        if state is None:
            return None
        if partition is None:
            if key is None:
                return None
            # The partitions of the last 16384 keys are remembered: murmur2 in Python costs more than the rest.
            number = state.keys.get(key)
            if number is None:
                number = self.topics.keyed(state, key)
        elif 0 <= partition < state.count:
            number = partition
        else:
            return None
        batch = state.queues[number].open
        if batch is None or (partition is not None and not batch.pinned) or (key is not None and not batch.keyed):
            return None
        part = encode_plain(key, value, timestamp - batch.base_timestamp, len(batch.parts))
        if batch.size + len(part) >= batch.room:  # a record that fills it takes the long way, which wakes the sender
            return None
        return FutureRecordMetadata(batch, batch.append(part, timestamp), timestamp)

    def append_list(
        self,
        topic: str,
        values: Iterable[Any],  # Any: what the user's serializers take
        keys: Iterable[Any] | None,
        partition: int | None,
        headers: Any,
        timestamp_ms: int | None,
    ) -> SentRecords:
        """Append a list of records, as ``Producer.send_many`` says; its errors say how far it came."""
        taken, count, error = SentRecords(0), None, None
        try:
            rows = list(listed("values", values))
        except Exception as err:  # noqa: BLE001 - the user's iterable
            error = err
        else:
            count = len(rows)
            taken, error = self.append_some(topic, rows, keys, partition, headers, timestamp_ms)
        if error is None:
            return taken
        # Whatever it is, the caller must learn how many were taken.
        told = _told(error, taken, count)
        if told is error:
            raise error
        raise told from (error.__cause__ or error)

    def append_some(
        self,
        topic: str,
        rows: Sequence[Any],
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        headers: Any = None,
        timestamp_ms: int | None = None,
    ) -> tuple[SentRecords, Exception | None]:
        """Append a list up to the first record that is not taken; return its error, too."""
        # Rule: the error of a record is the record's, and what it means for a list is said by the call that was given
        # one. A KafkaBolt's user has no list: "go on from values[2] on" would tell of records that are sent all right.
        taken = SentRecords(0)
        count = len(rows)
        try:
            check_place(topic, partition)
            given = None if keys is None else list(listed("keys", keys))
            if given is not None and len(given) != count:
                raise ValueError(f"send_many was given {count} values and {len(given)} keys: each value needs one.")
            timestamp = int(time() * 1000) if timestamp_ms is None else check_timestamp(timestamp_ms)
            taken = SentRecords(timestamp)
            extra = check_headers(topic, headers) if headers else ()
            # All of them are serialized before the first is taken, so that a value that cannot be costs no half list.
            raws = _serialized("value", self.value_serializer, topic, rows)
            if given is None and (partition is not None or self.topics.custom is None):
                self._append_keyless(taken, topic, raws, extra, timestamp, partition)
            else:
                raw_keys = [None] * count if given is None else _serialized("key", self.key_serializer, topic, given)
                at_once = self._plain_keyed and given is not None and partition is None and not extra
                while (at := len(taken)) < count:
                    if at_once and self._append_keyed(taken, topic, raw_keys, raws, timestamp):
                        continue
                    original = given[at] if given is not None and self.hashes_raw_keys else None
                    taken.add(self.append(topic, raw_keys[at], raws[at], extra, timestamp, partition, original))
        except Exception as err:  # noqa: BLE001 - also one of the user's code
            return taken, err
        return taken, None

    def _append_keyed(
        self,
        done: SentRecords,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamp: int,
    ) -> bool:
        """Append the next records while open batches take them; return whether they took any.

        Under one lock: taking it for each costs a third of what such a record costs.
        """
        # As in _append_directly: an open batch means that records may be taken, and nothing else is checked.
        first = len(done)
        batches, indexes = done.batches, done.indexes
        with self._lock:
            state = self.topics.get(topic)
            if state is None:
                return False
            for at in range(first, min(first + MOST_AT_ONCE, len(values))):
                key = keys[at]
                if key is None:
                    break
                number = state.keys.get(key)
                batch = state.queues[self.topics.keyed(state, key) if number is None else number].open
                if batch is None or not batch.keyed:
                    break
                index = len(batch.parts)
                part = encode_plain(key, values[at], timestamp - batch.base_timestamp, index)
                grown = batch.size + len(part)
                if grown >= batch.room:  # a record that fills it takes the long way, which wakes the sender
                    break
                batch.parts.append(part)
                batch.size = grown
                if timestamp > batch.max_timestamp:
                    batch.max_timestamp = timestamp
                batches.append(batch)
                indexes.append(index)
        return len(done) > first

    def _append_keyless(
        self,
        done: SentRecords,
        topic: str,
        values: Sequence[bytes | None],
        headers: Headers,
        timestamp: int,
        partition: int | None,
    ) -> None:
        """Append keyless records in order, a batch at a time.

        Each may wait as long as if it came alone. Not for a partitioner of the user's, which is asked for each
        record. Those taken are put into ``done``, so that they are there whatever this raises.
        """
        while len(done) < len(values):
            deadline = self._clock.monotonic() + self._max_block_s
            state = self._known(topic, partition, deadline)
            count = state.count
            head = values[len(done)]
            need = check_size(self._config, topic, None, head, headers)
            with self._lock:
                self.check_open()
                if not self._is_current(state, count):
                    continue
                queue = self._queue(state, partition, None, None)
                self._keep_apart(queue, False, partition)
                batch = self._open(queue, need, timestamp, deadline)
                batch.pinned = batch.pinned or partition is not None
                before = batch.size
                first = len(batch.parts)
                taken = _fill(batch, values, len(done), headers, timestamp, self._most(state, queue))
                if state.sticky_queue is queue:
                    self._spend(state, batch.size - before)
                if batch.size >= self._batch_bytes > before:
                    self._sender.wake()
            done.batches += [batch] * taken
            done.indexes += range(first, first + taken)

    def _most(self, state: TopicState, queue: PartitionQueue) -> float:
        """Return how many bytes may still go to this partition."""
        return state.sticky.left if state.sticky_queue is queue else float("inf")

    @staticmethod
    def _spend(state: TopicState, size: int) -> None:
        state.sticky.left -= size
        if state.sticky.left <= 0:
            state.sticky_queue = None

    def _queue(self, state: TopicState, number: int | None, key: bytes | None, partition_key: object) -> PartitionQueue:
        if number is not None:
            return state.queues[number]
        return self.topics.choose(state, key, partition_key, self._clock.monotonic())

    def _keep_apart(self, queue: PartitionQueue, has_key: bool, partition: int | None) -> None:
        """Close the open batch unless it and this record may move alike."""
        # A batch moves to another partition as a whole, or not at all (``partition_failover``).
        batch = queue.open
        if batch is None or self._config.partition_failover == "off":
            return
        stays = partition is not None or (has_key and self._config.partition_failover != "all")
        if stays != (batch.pinned or (batch.keyed and self._config.partition_failover != "all")):
            queue.open = None

    def _open(self, queue: PartitionQueue, need: int, timestamp: int, deadline: float) -> ProducerBatch:
        """Return the queue's open batch with room for ``need`` bytes: as it is, grown, or a new one."""
        accumulator, sender = self._accumulator, self._sender
        # Memory that was waited for is ours before a batch stands for it. Another thread may have opened a batch
        # meanwhile, or the producer may refuse the record: then the finally clause gives it to the next waiter.
        taken = 0
        try:
            while True:
                batch = queue.open
                if batch is not None and batch.size + need <= batch.room:
                    return batch
                if batch is not None and accumulator.grow(batch, need):
                    # A batch with more room than batch_size is due at once. The short paths into it look only at the
                    # room and wake nobody, while the sender may sleep for linger_ms.
                    if batch.size < self._batch_bytes:
                        sender.wake()
                    return batch
                if sender.manager is not None:
                    sender.manager.check_may_send(queue.topic_partition)
                size = accumulator.first_size(need)
                if taken or accumulator.pool.try_take(size):
                    break
                self._await_memory(size, deadline)
                taken = size  # the lock was released meanwhile: look again
            taken = 0
        finally:
            if taken and accumulator.pool.free(taken):
                sender.changed.notify_all()
        batch = accumulator.open_batch(queue, size, timestamp, self._clock.monotonic())
        sender.touched.add(queue.topic_partition.topic)
        sender.wake()
        return batch

    def _await_memory(self, size: int, deadline: float) -> None:
        """Wait for ``buffer_memory``; ``size`` bytes of it are ours when this returns. With the lock held."""
        sender = self._sender
        pool = self._accumulator.pool
        waiter = pool.wait(size)
        sender.wake()
        try:
            while not waiter.served:
                left = deadline - self._clock.monotonic()
                if left <= 0 or sender.is_own_thread:
                    why = (
                        "a callback must not wait" if sender.is_own_thread else f"{self._max_block_s:.3g} s have passed"
                    )
                    raise BufferExhausted(
                        f"buffer_memory ({pool.total} bytes) is full of records that are not acknowledged yet, and "
                        f"{why} (max_block_ms). The record was not taken. Send more slowly, raise buffer_memory, or "
                        f"look at the brokers. {sender.client.connections()}"
                    )
                sender.changed.wait(left)
                self.check_open()
        except BaseException:
            if pool.leave(waiter):
                sender.changed.notify_all()
            raise

    def _known(self, topic: str, partition: int | None, deadline: float) -> TopicState:
        """Return a topic's state; wait for it until the deadline.

        With ``partition``, until the topic has that one.
        """
        while True:
            state = self.topics.get(topic)
            if state is not None and (partition is None or partition < state.count):
                return state
            self.wait_on_metadata(topic, partition, max(deadline - self._clock.monotonic(), 0.0))

    def wait_on_metadata(self, topic: str, partition: int | None, max_wait_s: float, note: str = _NOT_TAKEN) -> float:
        """Wait until a topic is known; return the seconds it took.

        With ``partition``, until the topic has that one. A long wait is named in the log. ``note``: the consequence for
        the caller, for the error's text. Raises ClientTimeout, PartitionOutOfRange, TopicAuthorizationFailed or another
        error of the topic that time does not fix; ValueError for a negative wait.
        """
        if max_wait_s < 0:
            raise ValueError(f"a wait of {max_wait_s} s: it cannot be negative")
        sender, begun = self._sender, self._clock.monotonic()
        deadline, told_s = begun + max_wait_s, begun + TOLD_AFTER_S
        with self._lock:
            self.check_open()
            state = self.topics.get(topic)
            if state is not None and (partition is None or partition < state.count):
                return 0.0
            check_topic(topic, note)
            seen = self._seen_before(topic, partition, begun)
            found = self._wait_for_topic(topic, partition, seen, min(told_s, deadline), note)
        if found is None and told_s < deadline:
            self._tell_wait(topic, deadline)
            with self._lock:
                found = self._wait_for_topic(topic, partition, seen, deadline, note)
        if found is None:
            raise diagnosis.metadata_timeout(
                sender.client.cluster, topic, partition, max_wait_s, sender.client.connections(), note
            )
        return self._clock.monotonic() - begun

    def _wait_for_topic(
        self, topic: str, partition: int | None, seen: int, deadline: float, note: str
    ) -> TopicState | None:
        """Wait for metadata with the lock held; None when the time is up.

        ``seen``: the full updates that there were when the call began, or those in a row before it.
        """
        sender = self._sender
        # A topic that is unknown is asked for because it is touched; one that lacks the partition needs newer metadata.
        sender.touched.add(topic)
        while True:
            state = self.topics.get(topic)
            if state is not None:
                if partition is None or partition < state.count:
                    return state
                self._check_partition(topic, partition, seen, note)
                sender.wanted_update = True
            if sender.refusal is not None:
                raise copy_of(sender.refusal)
            if sender.is_own_thread:
                raise ClientTimeout(
                    f"What partitions topic {topic!r} has is not known yet, and a callback must not wait for that. "
                    f"{note} Call partitions_for() with the topic before, outside of callbacks."
                )
            sender.wake()
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return None
            sender.changed.wait(left)
            self.check_open()
            # Not before: what is known of it may be as old as metadata may get.
            info = self.topics.cluster.topics.get(topic)
            if info is not None and info.error is not None and not info.error.retriable:
                raise info.error(f"Topic {topic!r}", note)

    def _seen_before(self, topic: str, partition: int | None, now: float) -> int:
        """Return the full updates before the first send in a row."""
        # Rule: sends that do not wait learn together what one that waits would. Each would else look for itself alone,
        # and a partition that is not there would be one not known yet for as long as a KafkaBolt sends to it.
        seen = self._sender.client.metadata.full_updates
        self._wanting = {place: row for place, row in self._wanting.items() if now - row[1] <= IN_A_ROW_S}
        first, _ = self._wanting.get((topic, partition), (seen, now))
        self._wanting[topic, partition] = first, now
        return first

    def _check_partition(self, topic: str, partition: int | None, seen: int, note: str) -> None:
        """Raise PartitionOutOfRange where fresh metadata of a topic lacks the partition."""
        # Rule: the second answer decides that a partition is not there. The first may be to a question from before the
        # call: a topic that has just grown would be told its old count.
        if self._sender.looks < seen + 2:
            return
        self._wanting.pop((topic, partition), None)
        raise PartitionOutOfRange(
            f"Partition {partition} of topic {topic!r} is not there: "
            f"{diagnosis.no_such_partition(self.topics.cluster, topic)} {note}".rstrip()
        )

    def _tell_wait(self, topic: str, deadline: float) -> None:
        """Warn, now and then, that nothing can be sent. Without the lock: a handler of the log may send, too."""
        now = self._clock.monotonic()
        if self._waits.due(None, now) is None:
            return
        client = self._sender.client
        info = client.cluster.topics.get(topic)
        if client.cluster.has(topic):
            why = "the topic has no such partition."
        elif info is not None and info.error is not None:
            why = f"the brokers answer {info.error.__name__}. Create the topic, or correct its name."
        else:
            why = diagnosis.no_metadata(client.cluster, client.connections())
        _log.warning("a record for topic %r waits, at most %.0f s more (max_block_ms): %s", topic, deadline - now, why)


def _encoded(batch: ProducerBatch, key: bytes | None, value: bytes | None, headers: Headers, timestamp: int) -> bytes:
    delta, place = timestamp - batch.base_timestamp, len(batch.parts)
    return encode_record(key, value, headers, delta, place) if headers else encode_plain(key, value, delta, place)


def _fill(
    batch: ProducerBatch,
    values: Sequence[bytes | None],
    start: int,
    headers: Headers,
    timestamp: int,
    most: float,
) -> int:
    """Append values while the batch has room, at least one; return how many."""
    parts = batch.parts
    first = index = len(parts)
    size, limit = batch.size, batch.size + most
    delta = timestamp - batch.base_timestamp
    lead = VARINT[delta] if 0 <= delta < 8192 else b""
    room = batch.room
    plain = bool(lead) and not headers
    for at in range(start, len(values)):
        value = values[at]
        # encode_plain, written out: calling it costs 6 % of a list's records, measured.
        if plain and value is not None and len(value) < 8100 and index < 8192:
            place, length = VARINT[index], VARINT[len(value)]
            body = VARINT[len(value) + len(lead) + len(place) + len(length) + 3]
            part = b"%b\0%b%b\1%b%b\0" % (body, lead, place, length, value)
        else:
            part = encode_record(None, value, headers, delta, index)
        if size + len(part) > room or size >= limit:
            break
        parts.append(part)
        size += len(part)
        index += 1
    batch.size = size
    if timestamp > batch.max_timestamp:
        batch.max_timestamp = timestamp
    return index - first


def _serialized(what: str, serialize: Serialize | None, topic: str, given: Sequence[Any]) -> list[bytes | None]:
    """Return all of them as bytes, before the first is taken; SerializationFailed names the place in the list."""
    raws: list[bytes | None] = []
    try:
        if serialize is not None:
            for one in given:
                raws.append(serialize(topic, one))  # noqa: PERF401 - how far it came is asked below
        else:
            for one in given:
                plain = one.__class__ is bytes or one is None
                raws.append(one if plain else as_bytes(f"{what}_serializer", topic, one))
    except SerializationFailed as err:
        raise SerializationFailed(f"{what}s[{len(raws)}]: {err.message}") from err.__cause__
    return raws


def _told(error: Exception, taken: SentRecords, count: int | None) -> Exception:
    """Return the error for this caller: with ``taken``, and a text that says how many of how many.

    One of ours becomes a copy: the same object may go to others who wait. One of the user's own code stays.
    """
    ours = isinstance(error, (StreamletError, ValueError)) and [type(arg) for arg in error.args[:1]] == [str]
    told = error
    if not ours:
        error.add_note("send_many: no record was taken." if not taken else _counted(len(taken), count or 0))
    elif count is not None:
        text: str = error.args[0]
        for sentence in _OF_ONE:
            text = text.replace(sentence, "")
        told = copy_of(error)
        told.args = (f"{text} {_counted(len(taken), count)}", *error.args[1:])
        if isinstance(told, StreamletError):
            told.message = told.args[0]
    told.taken = taken  # type: ignore[attr-defined]  # any class of error: send_many promises it of each
    return told


def _counted(taken: int, count: int) -> str:
    said = f"{taken} of {count} records were taken"
    return f"{said}: to send the rest, go on from values[{taken}] on." if taken else f"{said}."
