"""Writing dead letters: each is offered to a producer until it is acknowledged; only then is its offset done.

The producer's thread leaves notes; everything else runs on the worker's loop and waits for nothing, but the start and
``close``.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from streamlet.base.errors import text_of
from streamlet.base.printable import many
from streamlet.kafka.broker_errors import InvalidRecord, UnknownTopicOrPartition
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.producer import Producer
from streamlet.kafka.producer.errors import BatchExpired, ProducerClosed
from streamlet.kafka.producer.record_future import FailedRecords, FutureRecordMetadata, call_when_over
from streamlet.kafka.producer.topic_wait import await_topic
from streamlet.spouts.kafka.dead_letters.dead_letter import GivenUp, RunStamp, headers_of
from streamlet.spouts.kafka.dead_letters.letter_lines import LetterLines
from streamlet.spouts.kafka.errors import DeadLetterRefused, DeadLettersCannotStart, NoDeadLetterTopic
from streamlet.spouts.kafka.manager import PartitionManager

NEVER_MS = (1 << 31) - 1
"""Milliseconds that the producer may try: until it is closed. An idempotent one then writes each letter once."""

LINGER_MS = 10
"""Milliseconds that a letter waits for others: nobody waits for it, and a request each would cost the loop time."""

MOST_BYTES = 64 << 20
"""Bytes of letters that the producer takes before the first is acknowledged; and of one letter."""

HOLD_S = 2.0
"""Seconds without an acknowledgement after which the spout emits nothing new, and says so."""

OFFER_AGAIN_S = 0.1
"""Seconds until letters that the producer did not take are offered again."""


@dataclass(slots=True, eq=False)
class _Letter:
    """A dead letter that is not acknowledged yet."""

    manager: PartitionManager
    given_up: GivenUp
    since_s: float
    headers: list[tuple[str, bytes | None]]


class DeadLetterWriter:
    """The dead letters of one spout's task, until they are acknowledged.

    ``serve`` raises DeadLetterRefused.
    """

    def __init__(self, producer: Producer, topic: str, stamp: RunStamp, log: logging.Logger) -> None:
        self._producer = producer
        self.topic = topic
        self._stamp = stamp
        self._log = log
        self._open: dict[_Letter, None] = {}
        """All that are not acknowledged, oldest first."""
        self._waiting: deque[_Letter] = deque()
        """Those that the producer has not taken."""
        self._offer_after_s = 0.0
        self._last_error: KafkaError | None = None
        """Why a letter had to be offered again, the latest."""
        self._over: deque[tuple[Sequence[_Letter], FailedRecords]] = deque()
        """Notes of the producer's thread."""
        self._lines = LetterLines(log)
        self.written = 0
        self.holds = False
        """Whether letters wait for so long that nothing new is to be emitted."""
        self._refusal: DeadLetterRefused | None = None
        """The first letter that was refused for good: the run ends."""

    @property
    def waiting(self) -> int:
        """The number of letters that are not acknowledged."""
        return len(self._open)

    def await_topic(self, limit_s: float) -> None:
        """Wait until the topic's partitions are known. Blocks.

        Raises NoDeadLetterTopic, DeadLettersCannotStart.
        """
        error = await_topic(self._producer, self.topic, limit_s)
        if error is not None:
            kind = NoDeadLetterTopic if isinstance(error, UnknownTopicOrPartition) else DeadLettersCannotStart
            raise kind(self.topic, self._stamp.spout, self._producer.connections()) from error

    def serve(self, managers: Iterable[PartitionManager], now_s: float) -> None:
        """Settle letters that are over, take new ones, offer those waiting.

        Raises DeadLetterRefused, once.
        """
        had_refusal = self._refusal is not None
        while self._over:
            self._settle(*self._over.popleft())
        for manager in managers:
            if manager.given_up:
                self._take(manager, now_s)
        if self._waiting and now_s >= self._offer_after_s:
            self._offer(now_s)
        self._watch(now_s)
        self._lines.look(now_s)
        # Rule: raised when all else is done, and once. The end of the run comes here again: the letters beside the
        # refused one are settled then, and nobody waits for that one.
        if self._refusal is not None and not had_refusal:
            raise self._refusal

    def _take(self, manager: PartitionManager, now_s: float) -> None:
        now_ms = int(time.time() * 1000)
        for given_up in manager.given_up:
            letter = _Letter(manager, given_up, now_s, headers_of(given_up, self._stamp, now_ms))
            self._open[letter] = None
            self._waiting.append(letter)
            self._lines.tell(manager.partition, given_up, now_s)
        manager.given_up.clear()

    def _offer(self, now_s: float) -> None:
        taken: list[_Letter] = []
        futures: list[FutureRecordMetadata] = []
        while self._waiting:
            letter = self._waiting[0]
            record = letter.given_up.record
            try:
                futures.append(self._producer.send(self.topic, record.value, record.key, letter.headers))
            except KafkaError as error:
                # Its memory is full, or the topic is not known: both pass. What the offset waits for stays here.
                if not error.retriable:
                    self._waiting.popleft()
                    self._refuse(letter, error)
                    continue
                self._offer_after_s, self._last_error = now_s + OFFER_AGAIN_S, error
                break
            taken.append(self._waiting.popleft())
        if taken:
            call_when_over(futures, partial(self._note, taken))

    def _note(self, letters: Sequence[_Letter], failed: FailedRecords) -> None:
        """Note that letters are over. The producer's thread: a deque needs no lock."""
        self._over.append((letters, failed))

    def _settle(self, letters: Sequence[_Letter], failed: FailedRecords) -> None:
        errors = dict(failed)
        for place, letter in enumerate(letters):
            error = errors.get(place)
            if error is None:
                del self._open[letter]
                self.written += 1
                letter.manager.dead_letter_written(letter.given_up.record.offset)
            elif error.retriable or isinstance(error, (BatchExpired, ProducerClosed)):
                self._last_error = error
                self._waiting.append(letter)
            else:
                self._refuse(letter, error)

    def _refuse(self, letter: _Letter, error: KafkaError) -> None:
        """Keep the offset open, and end the run."""
        del self._open[letter]
        if self._refusal is None:
            where, is_invalid = letter.manager.partition, isinstance(error, InvalidRecord)
            offset = letter.given_up.record.offset
            self._refusal = DeadLetterRefused(where, offset, self.topic, text_of(error), is_invalid=is_invalid)
            self._refusal.__cause__ = error

    def _watch(self, now_s: float) -> None:
        """Hold the spout while letters wait for long; say so once, and when it goes on."""
        if self._refusal is not None:  # the run ends, and nothing goes on
            return
        oldest, waiting = next(iter(self._open), None), len(self._open)
        holds = oldest is not None and now_s - oldest.since_s >= HOLD_S
        if holds and not self.holds:
            # Rule: with the error of the letters themselves, if one has come. Of a topic that was deleted the broker
            # says so, and its connection is ready.
            why = f" ({text_of(self._last_error).rstrip('.')})" if self._last_error else ""
            self._log.warning(
                "%s for topic %r, which does not take them%s: %s The spout emits nothing new until "
                "they are written; nothing is lost, and their records are not committed. See whether the brokers run "
                "and the topic is there.",
                f"{many(waiting, 'dead letter')} {'waits' if waiting == 1 else 'wait'}",
                self.topic,
                why,
                self._producer.connections(),
            )
        elif self.holds and not holds:
            self._log.info("goes on: the dead letters are written to topic %r", self.topic)
        self.holds = holds

    def close(self, limit_s: float) -> None:
        """Close the producer within so many seconds; tell what no line of the log has told yet."""
        self._lines.close()
        self._producer.close(limit_s)


def open_writer(
    topic: str,
    servers: Sequence[str],
    security: Mapping[str, Any],
    client_id: str,
    stamp: RunStamp,
    log: logging.Logger,
) -> DeadLetterWriter:
    """Return a writer with a producer of its own; nothing is connected yet."""
    producer = Producer(
        **{
            **security,
            "bootstrap_servers": list(servers),
            "client_id": f"{client_id}-dead-letters",
            "acks": "all",
            "enable_idempotence": True,
            "linger_ms": LINGER_MS,
            "delivery_timeout_ms": NEVER_MS,
            "max_block_ms": 0,  # called on the worker's loop
            # A letter is larger than its record: the topic's own max.message.bytes is to be the only limit.
            "max_request_size": MOST_BYTES,
            "buffer_memory": MOST_BYTES,
        }
    )
    return DeadLetterWriter(producer, topic, stamp, log)
