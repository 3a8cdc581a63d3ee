"""What spouts say to the bolt that commits, with ``topology.delivery: exactly-once``: tracked tuples of one stream.

An *attempt* of a spout task begins with BEGIN. Its tuples are counted in *epochs*; each ends with END and COMMIT, which
leave together. An answer is the ack or failure of the tuple:

- BEGIN acked: earlier transactions are over, and a producer that was replaced can commit no more. Offsets may be read.
- END acked: the transaction has all it will have. The next epoch may begin.
- COMMIT acked: offsets and records are committed, together.
- ASK acked: the attempt stands, so a failure that was heard was the record's own.

A failure of any of them: the attempt is over, and nothing of its present epoch counts.

A dead letter is a tuple of a second stream, and belongs to its epoch as any tuple does: it is written in the
transaction that stores the offset behind its record, acked when it is written, and END waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from streamlet.model.delivery import EPOCHS, LETTERS

__all__ = ["ASK", "BEGIN", "COMMIT", "END", "EPOCHS", "LETTERS", "EndOfEpoch", "LetterRow", "StoredRow"]

BEGIN = "begin"
END = "end"
COMMIT = "commit"
ASK = "ask"

StoredRow = tuple[str, int, int, int, str]
"""Topic, partition, next offset, leader epoch, metadata."""


@dataclass(frozen=True, slots=True)
class EndOfEpoch:
    """The offsets that an epoch ends at, and their group member."""

    group: str
    generation: int
    member: str
    instance: str | None
    rows: Sequence[StoredRow]
    cluster: str | None = None
    """The id of the Kafka cluster that the offsets are of; None: its brokers name none."""

    def told(self) -> list[Any]:
        """Return it as a value of a tuple."""
        return [self.group, self.generation, self.member, self.instance, [[*row] for row in self.rows], self.cluster]

    @classmethod
    def of(cls, told: Sequence[Any]) -> EndOfEpoch:
        """Read what ``told`` gave."""
        group, generation, member, instance, rows, cluster = told
        return cls(group, generation, member, instance, [tuple(row) for row in rows], cluster)


class LetterRow(NamedTuple):
    """The values of a dead letter's tuple: the record to write, and in words the one that was given up."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[Sequence[Any]]
    record: str
