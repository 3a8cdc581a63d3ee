"""Dead letters with ``topology.delivery: exactly-once``: tuples for the bolt that commits, on a stream of their own.

A letter belongs to its epoch as any tuple does. It is made when an attempt passes over its record, and the bolt writes
it in the transaction that stores the offset behind that record: both are there afterwards, or neither. So an attempt
that fails takes its letters along, and the next one makes them again. On the worker's loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from streamlet.components.epoch_tuples import LetterRow
from streamlet.spouts.kafka.dead_letters.dead_letter import GivenUp, RunStamp, headers_of
from streamlet.spouts.kafka.dead_letters.letter_lines import LetterLines
from streamlet.spouts.kafka.errors import DeadLetterRefused
from streamlet.spouts.kafka.manager import PartitionManager

HOLD_BYTES = 8 << 20
"""Bytes of letters that are not written, above which the spout emits nothing new."""

MOST_BYTES = 48 << 20
"""Bytes of one letter: its tuple is to fit into a frame between workers."""


class _Letter(NamedTuple):
    """A letter under way."""

    manager: PartitionManager
    offset: int
    size_bytes: int


class EpochLetters:
    """The dead letters of one task. ``emit`` emits a row and returns its number."""

    def __init__(self, topic: str, stamp: RunStamp, lines: LetterLines, emit: Callable[[LetterRow], int]) -> None:
        self.topic = topic
        self._stamp = stamp
        self._lines = lines
        self._emit = emit
        self._open: dict[int, _Letter] = {}
        """By number: emitted, and not in a transaction yet."""
        self._open_bytes = 0
        self.written = 0
        """Letters that are committed."""

    @property
    def waiting(self) -> int:
        """The number of letters that are not in a transaction yet."""
        return len(self._open)

    @property
    def holds(self) -> bool:
        """Whether nothing new is to be emitted."""
        # Rule: letters are bounded by their bytes. Most records of a topic may be undecodable and large, and each
        # would be in the queues between here and the producer at once.
        return self._open_bytes > HOLD_BYTES

    def serve(self, managers: Iterable[PartitionManager], now_s: float) -> None:
        """Emit the letters of records that were given up. Raises DeadLetterRefused."""
        for manager in managers:
            if manager.given_up:
                for given_up in manager.given_up:
                    self._send(manager, given_up, now_s)
                manager.given_up.clear()
        self._lines.look(now_s)

    def _send(self, manager: PartitionManager, given_up: GivenUp, now_s: float) -> None:
        record, partition = given_up.record, manager.partition
        if manager.ledger.counts.first_told(record.offset):
            self._lines.tell(partition, given_up, now_s)
        headers = headers_of(given_up, self._stamp, int(time.time() * 1000))
        size = len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(value or b"") for name, value in headers)
        if size > MOST_BYTES:
            why = f"it has {size} bytes, and a tuple to the bolt that writes may have {MOST_BYTES}."
            raise DeadLetterRefused(partition, record.offset, self.topic, why)
        named = f"topic {partition.topic!r}, partition {partition.number}, offset {record.offset}"
        row = LetterRow(self.topic, record.key, record.value, [[*header] for header in headers], named)
        self._open[self._emit(row)] = _Letter(manager, record.offset, size)
        self._open_bytes += size

    def acked(self, number: int) -> bool:
        """Note that a letter is written; False: the number is none of a letter."""
        letter = self._open.pop(number, None)
        if letter is None:
            return False
        self._open_bytes -= letter.size_bytes
        letter.manager.letter_written(letter.offset)
        return True

    def failed(self, number: int) -> bool:
        """Return whether the number is a letter's: its attempt is over."""
        return number in self._open

    def hold(self, managers: Iterable[PartitionManager]) -> None:
        """Forget the letters under way: the attempt is over."""
        self._open.clear()
        self._open_bytes = 0
        for manager in managers:
            manager.given_up.clear()

    def opened(self, manager: PartitionManager) -> None:
        """Note that a partition is open, at its committed offset."""
        # Rule: what is below it was committed, though nobody may have heard that: its attempt was over before the
        # answer. The rest was aborted, and is made again.
        self.committed(manager, manager.ledger.committed)
        manager.ledger.counts.letters.clear()

    def committed(self, manager: PartitionManager, offset: int) -> None:
        """Note that the letters of records below an offset are committed."""
        self.written += manager.ledger.counts.letters_committed(offset)

    def close(self) -> None:
        """Tell what no line of the log has told yet."""
        self._lines.close()
