"""A dead-letter topic from outside of a run: read, replayed, purged. Everything here blocks.

A replay writes records and their markers in one transaction: after a crash in between, both are there for readers of
``read_committed``, or neither. All replays of one topic have one transactional id, so a second command fences the
first.
"""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from streamlet.base.clock import Clock, SystemClock
from streamlet.base.errors import BadInput, StreamletError, text_of
from streamlet.base.printable import many
from streamlet.kafka import Consumer, ConsumerRecord, Producer, TopicPartition
from streamlet.kafka.broker_errors import (
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    ProducerFenced,
    RecordListTooLarge,
    UnknownTopicOrPartition,
)
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.producer import FutureRecordMetadata, sender
from streamlet.kafka.producer.errors import RecordTooLarge, TransactionFailed
from streamlet.spouts.kafka.dead_letters.dead_letter import DeadLetter, marker_headers, replayed_headers
from streamlet.spouts.kafka.dead_letters.dead_letter_choice import LetterLog, LetterPlace
from streamlet.spouts.kafka.dead_letters.dead_letter_writer import MOST_BYTES
from streamlet.spouts.kafka.errors import NoSuchTopic
from streamlet.spouts.kafka.offset_tools.stored_offsets import connect_admin
from streamlet.spouts.kafka.spout_config import SpoutConfig
from streamlet.spouts.kafka.startup import Held

TRANSACTION = 500
"""Letters replayed in one transaction, at most."""

TRANSACTION_BYTES = 8 << 20
"""Bytes of keys and values after which a transaction ends."""

TRANSACTION_TIMEOUT_MS = 15_000
"""Milliseconds until brokers abort the transaction of a killed replay."""

UNDECIDED_S = 75.0
"""Seconds to wait for the transactions that are open in the topic: a KafkaBolt's end within a minute, unless set."""

POLL_MS = 200
"""Milliseconds of one poll."""

LetterRecord = tuple[DeadLetter, ConsumerRecord]
"""A dead letter, and its record in the dead-letter topic."""


OWN_FAULTS = (MessageTooLarge, RecordListTooLarge, InvalidRecord, InvalidTimestamp, RecordTooLarge)
"""Errors that are about a record itself: it is refused each time, and others are not."""


class RefusedLetter(NamedTuple):
    """A letter whose record its topic does not take, and why."""

    letter: DeadLetter
    why: str


class Replayed(NamedTuple):
    """Letters written, gone, refused, and left by an interrupt."""

    written: list[DeadLetter]
    missing: list[DeadLetter]
    refused: list[RefusedLetter]
    left: list[DeadLetter]


class ReplayFailed(StreamletError):
    """A replay ended before its last letter."""

    def __init__(self, topic: str, done: int, left: int, error: Exception, letter: DeadLetter | None) -> None:
        # What a producer's user is to do with its transaction is done here.
        if isinstance(error, TransactionFailed) and isinstance(error.__cause__, KafkaError):
            error, letter = error.__cause__, None
        why = text_of(error) if letter is None else f"letter {name_of(letter)}: {text_of(error)}"
        what_to_do = "Run the command again"
        if isinstance(error, ProducerFenced):
            # The producer is ours: what its error says of it, and to do with it, is nothing that a user has.
            why = (
                "another `streamlet dlq replay` of the same dead-letter topic has taken over, or a transaction of this "
                f"one took longer than {TRANSACTION_TIMEOUT_MS // 1000} s and brokers have ended it."
            )
            what_to_do = "Let the other one end, then run this one again. No letter is replayed twice by that"
        elif isinstance(error, BadInput):
            what_to_do = "Correct this, or leave the letter out with the options that choose letters"
        super().__init__(
            f"The replay of dead letters in {topic!r} has ended early: {why} {many(done, 'letter')} "
            f"{'is' if done == 1 else 'are'} replayed and marked as such, {left} may not be. {what_to_do}: a replay "
            "takes exactly those that are still open, for a record and its mark are written together or not at all."
        )


class NothingRead(StreamletError):
    """The brokers give no records of a partition that has some."""

    retriable = True

    def __init__(self, tp: TopicPartition, at: int, end: int, limit_s: float) -> None:
        super().__init__(
            f"Partition {tp.partition} of {tp.topic!r} cannot be read on from offset {at}, and it has records up to "
            f"{end}: its broker gave none for {limit_s:.0f} s. Look whether its leader is up, or whether a run that "
            "was killed has left a transaction open there (its transaction_timeout_ms ends that), and run the command "
            "again."
        )


class ReplayTargetTooSmall(BadInput):
    """The topic for the records has fewer partitions than letters name."""

    def __init__(self, letter: DeadLetter, count: int) -> None:
        super().__init__(
            f"Dead letter {name_of(letter)} cannot be replayed: its record is of partition {letter.partition} of "
            f"{letter.topic!r}, which has {many(count, 'partition')} (from 0). Nothing was written. Leave it out with "
            f"--partition, or let keys choose the partition with --to {letter.topic}."
        )


def name_of(letter: DeadLetter) -> str:
    """Name a letter as the commands do: partition and offset."""
    return f"{letter.place[0]}:{letter.place[1]}"


class ReplayTargetMissing(BadInput):
    """The topic that records are to be replayed to does not exist."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"Dead letters cannot be replayed to topic {topic!r}: it does not exist. Nothing was written. Create it, "
            "choose other letters with --topic, or name the topic to write to with --to."
        )


class DeadLetterTopic:
    """The dead-letter topic of a spout's settings. One thread; ``close`` it. Raises errors of a start when made."""

    def __init__(self, config: SpoutConfig, say: Callable[[str], None]) -> None:
        self.topic = config.dead_letter_topic
        self._config = config
        self._clock: Clock = SystemClock()
        self._sending: DeadLetter | None = None
        """The letter that the producer is given at the moment."""
        self._held = Held(lambda: None, say)
        try:
            self._admin = connect_admin(config, self._held, self._clock)
        finally:
            self._held.close()
        try:
            row = self._admin.describe_topics(self.topic)[self.topic]
        except BaseException as error:
            self._admin.close()
            if isinstance(error, UnknownTopicOrPartition):
                raise NoSuchTopic(self.topic, "no broker of the cluster knows it", "dead_letter_topic") from None
            raise
        self.partitions = sorted(part.partition for part in row.partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._admin.close()

    # -- reading --------------------------------------------------------------------------------------------

    def read(self, *, whole: bool = False) -> LetterLog:
        """Read all headers; committed records only. Raises NothingRead.

        ``whole``: wait for the end of open transactions, and read on behind them.
        """
        log = LetterLog()
        tps = [TopicPartition(self.topic, number) for number in self.partitions]
        limit_s = self._config.request_timeout_ms / 1000
        with self._consumer() as consumer:
            first, ends = consumer.beginning_offsets(tps), consumer.end_offsets(tps)
            if whole:
                # Rule: a replay reads to the end of the log, not to the first open transaction. A topology that is
                # exactly once has one open nearly always, and the marks of the last replay may stand behind it: their
                # letters would be replayed a second time.
                limit_s = max(limit_s, UNDECIDED_S)
                with self._consumer("read_uncommitted") as behind:
                    ends = behind.end_offsets(tps)
            log.ends = {tp.partition: ends[tp] for tp in tps}
            for tp in tps:
                for record in self._records(consumer, tp, first[tp], ends[tp], limit_s):
                    log.add((tp.partition, record.offset), record.headers)
        return log

    def find(self, place: LetterPlace) -> ConsumerRecord | None:
        """Return one record; None: there is none."""
        tp = TopicPartition(self.topic, place[0])
        if place[0] not in self.partitions:
            return None
        with self._consumer() as consumer:
            first, end = consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]
            if not first <= place[1] < end:
                return None
            for record in self._records(consumer, tp, place[1], end):
                return record if record.offset == place[1] else None
        return None

    # -- replaying ------------------------------------------------------------------------------------------

    def begin_replay(self) -> Producer:
        """Return the producer of a replay; it fences one that another command has begun."""
        # Rule: before the topic is read. Afterwards another command's transaction is decided and its markers are in
        # the log; a letter that was read before that would be replayed twice.
        producer = Producer(
            **{
                **self._client("replay"),
                "transactional_id": f"streamlet-dlq-{self.topic}",
                "linger_ms": 5,
                "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
                # What was written as a letter must fit as a record: it is smaller.
                "max_request_size": MOST_BYTES,
                "buffer_memory": MOST_BYTES,
            }
        )
        try:
            producer.init_transactions()
        except BaseException:
            producer.close(0)
            raise
        return producer

    def check_targets(self, letters: Sequence[DeadLetter], to: str | None) -> None:
        """Raise ReplayTargetMissing or ReplayTargetTooSmall where a record has no place to go."""
        for name in sorted({letter.topic for letter in letters} if to is None else {to}):
            try:
                count = len(self._admin.describe_topics(name)[name].partitions)
            except UnknownTopicOrPartition:
                raise ReplayTargetMissing(name) from None
            for letter in letters if to is None else ():
                if letter.topic == name and letter.partition >= count:
                    raise ReplayTargetTooSmall(letter, count)

    def replay(
        self,
        producer: Producer,
        letters: Sequence[DeadLetter],
        to: str | None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Replayed:
        """Write the records of letters to their topics, or to one; mark them. Raises ReplayFailed.

        ``stopped`` is asked between two transactions; true ends the replay.
        """
        # Rule: an interrupt waits for the transaction at hand. Only so is it known which letters are replayed, and
        # nobody reads up to an open transaction until the brokers end it.
        done = Replayed([], [], [], [])
        try:
            with self._consumer() as consumer, _failures_told_here():
                for group in in_transactions(self._with_records(consumer, letters, stopped)):
                    self._write(producer, group, to, done, stopped)
        except (KafkaError, NothingRead) as error:
            count = len(done.written)
            raise ReplayFailed(self.topic, count, len(letters) - count, error, self._sending) from error
        read = {letter.place for letter in (*done.written, *(one.letter for one in done.refused))}
        # What was not come to may be gone or not: nobody has looked.
        others = done.left if stopped() else done.missing
        others.extend(letter for letter in letters if letter.place not in read)
        return done

    def _write(
        self,
        producer: Producer,
        group: list[LetterRecord],
        to: str | None,
        done: Replayed,
        stopped: Callable[[], bool],
    ) -> None:
        """Write a group in one transaction, or several where records are refused."""
        # Rule: a record that its topic refuses is set aside, and the others are written. It is refused each time: left
        # in, none of its group, nor any after it, would ever be replayed. Brokers refuse whole batches, so a letter
        # that fails with others is tried by itself before it counts as refused.
        waiting = deque([group])
        while waiting and not stopped():
            part = waiting.popleft()
            faults = self._transact(producer, part, to)
            if not faults:
                done.written.extend(letter for letter, _ in part)
            elif len(faults) == 1:
                ((place, error),) = faults.items()
                done.refused.extend(
                    RefusedLetter(letter, why_refused(error, letter.topic if to is None else to, record))
                    for letter, record in part
                    if letter.place == place
                )
            else:
                waiting.extend([one] for one in part if one[0].place in faults)
            if faults and (rest := [one for one in part if one[0].place not in faults]):
                waiting.appendleft(rest)

    def _transact(self, producer: Producer, part: list[LetterRecord], to: str | None) -> dict[LetterPlace, KafkaError]:
        """Write letters in one transaction; return the faults that aborted it."""
        futures: list[FutureRecordMetadata] = []
        try:
            producer.begin_transaction()
            for letter, record in part:
                self._sending = letter
                # Noted before the mark is sent: by then the record may be refused already, and that call fails.
                futures.append(self._send(producer, letter, record, to))
                producer.send(self.topic, None, None, marker_headers(letter.place[1]), letter.place[0])
            self._sending = None
            producer.commit_transaction()
        except (TransactionFailed, *OWN_FAULTS) as error:
            producer.abort_transaction()
            sent = zip(part, futures, strict=False)  # perhaps not all were sent
            faults = {letter.place: fault for (letter, _), one in sent if (fault := _own_fault(one)) is not None}
            if self._sending is not None and isinstance(error, OWN_FAULTS):
                faults[self._sending.place] = error
            if not faults:
                raise
            self._sending = None
            return faults
        return {}

    def _send(
        self, producer: Producer, letter: DeadLetter, record: ConsumerRecord, to: str | None
    ) -> FutureRecordMetadata:
        topic, partition = (letter.topic, letter.partition) if to is None else (to, None)
        return producer.send(topic, record.value, record.key, replayed_headers(letter, record.headers), partition)

    def _with_records(
        self, consumer: Consumer, letters: Sequence[DeadLetter], stopped: Callable[[], bool]
    ) -> Iterator[LetterRecord]:
        """Yield letters with their records, by partition and offset, until ``stopped``."""
        wanted: dict[int, dict[int, DeadLetter]] = defaultdict(dict)
        for letter in letters:
            wanted[letter.place[0]][letter.place[1]] = letter
        for partition, by_offset in sorted(wanted.items()):
            tp = TopicPartition(self.topic, partition)
            for record in self._records(consumer, tp, min(by_offset), max(by_offset) + 1):
                if stopped():
                    return
                if record.offset in by_offset:
                    yield by_offset[record.offset], record

    def _records(
        self, consumer: Consumer, tp: TopicPartition, first: int, end: int, limit_s: float | None = None
    ) -> Iterator[ConsumerRecord]:
        """Yield a partition's records from one offset up to another. Raises NothingRead."""
        limit_s = self._config.request_timeout_ms / 1000 if limit_s is None else limit_s
        consumer.assign([tp])
        consumer.seek(tp, first)
        at, since_s = first, self._clock.monotonic()
        while (position := consumer.position(tp)) < end:
            if position == at and self._clock.monotonic() - since_s > limit_s:
                raise NothingRead(tp, at, end, limit_s)
            if position != at:
                at, since_s = position, self._clock.monotonic()
            for record in consumer.poll(POLL_MS).get(tp, ()):
                if record.offset >= end:
                    return
                yield record

    # -- deleting -------------------------------------------------------------------------------------------

    def purge(self, before: Mapping[int, int]) -> None:
        """Delete the records below these offsets."""
        if before:
            self._admin.delete_records({TopicPartition(self.topic, part): offset for part, offset in before.items()})

    def _consumer(self, isolation: str = "read_committed") -> Consumer:
        return Consumer(**{**self._client("read"), "isolation_level": isolation, "auto_offset_reset": "none"})

    def _client(self, purpose: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": list(self._admin.config.bootstrap_servers),
            "client_id": f"{self._config.client_id}-dlq-{purpose}",
            "request_timeout_ms": self._config.request_timeout_ms,
            **self._config.security(),
        }


def in_transactions(found: Iterable[LetterRecord]) -> Iterator[list[LetterRecord]]:
    """Group letters by transaction.

    Each has TRANSACTION letters at most, and TRANSACTION_BYTES with the last record beyond.
    """
    group: list[LetterRecord] = []
    size = 0
    for one in found:
        group.append(one)
        size += len(one[1].key or b"") + len(one[1].value or b"")
        if len(group) == TRANSACTION or size >= TRANSACTION_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def why_refused(error: KafkaError, topic: str, record: ConsumerRecord) -> str:
    """Return why a topic refuses a record, and what to do."""
    if isinstance(error, (MessageTooLarge, RecordListTooLarge)):
        size = len(record.key or b"") + len(record.value or b"")
        return (
            f"{topic!r} takes no record of {size} bytes. Raise its max.message.bytes, or write it elsewhere with --to."
        )
    return text_of(error)


def _own_fault(future: FutureRecordMetadata) -> KafkaError | None:
    """Return a record's own error. Waits for its transaction."""
    try:
        future.get()
    except OWN_FAULTS as error:
        return error
    except KafkaError:
        return None
    return None


@contextlib.contextmanager
def _failures_told_here() -> Iterator[None]:
    """Keep the producer's lines about failed records from the log."""
    # A replay names each letter itself, and a batch that failed beside it is tried again.
    log = logging.getLogger(sender.__name__)

    def others(line: logging.LogRecord) -> bool:
        return line.msg != sender.RECORDS_FAILED

    log.addFilter(others)
    try:
        yield
    finally:
        log.removeFilter(others)
