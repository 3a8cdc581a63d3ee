"""Counters of a partition over all its openings in a task. Pure.

Counters of a run never fall: so they belong to the partition, and outlive the ledgers and managers that count. What
they remember of single offsets belongs to one topic: in another one of the same name they mean other records.
"""

from __future__ import annotations

from streamlet.spouts.kafka.dead_letters.dead_letter import LastTry
from streamlet.spouts.kafka.partition import OffsetRange


class _Sums:
    """The numbers of one partition, over all topics of its name."""

    __slots__ = ("failed", "given_up", "ignored", "lost")

    def __init__(self) -> None:
        self.failed = self.given_up = self.ignored = self.lost = 0


class PartitionCounters:
    """Counters of one partition. Used by one ledger after the other, as long as the topic is the same."""

    __slots__ = ("_gone", "_passed", "_sums", "_told", "letters", "too_often", "topic_id")

    def __init__(self, topic_id: str | None = None, before: PartitionCounters | None = None) -> None:
        # Rule: counters of a new topic count on from those of the old one, which its open records still use. But each
        # remembers its own offsets: one that was given up in the old topic is another record in the new one.
        self._sums: _Sums = _Sums() if before is None else before._sums
        self.topic_id = topic_id
        """The id of the topic that the offsets belong to; None unknown."""
        self.too_often: dict[int, LastTry] = {}
        """Offsets to pass over, for they failed too often (``exactly_once``). Never replaced: managers hold it too."""
        self.letters: set[int] = set()
        """Offsets whose dead letters are written, in a transaction that is not known to be committed."""
        self._told: set[int] = set()
        """Those of them, and others, that a line of the log was due for."""
        self._gone = OffsetRange(0, 0)
        """The last of those that the start of the log has passed."""
        self._passed: set[int] = set()
        """Offsets given up that may be read again."""

    @property
    def failed(self) -> int:
        """Failures of records."""
        return self._sums.failed

    @property
    def given_up(self) -> int:
        """Records that were given up, or could not be decoded."""
        return self._sums.given_up

    @property
    def ignored(self) -> int:
        """Answers that came late, twice, or for another opening."""
        return self._sums.ignored

    @property
    def lost(self) -> int:
        """Offsets that are gone from the log."""
        return self._sums.lost

    def fail(self) -> None:
        """Count a failure of a record."""
        self._sums.failed += 1

    def ignore(self) -> None:
        """Count an answer that nobody waits for."""
        self._sums.ignored += 1

    def give_up(self, offset: int) -> None:
        """Count a record that is given up, once."""
        # Rule: an opening begins at the committed offset, so what came after it is read again, and given up again.
        if offset not in self._passed:
            self._passed.add(offset)
            self._sums.given_up += 1

    def first_told(self, offset: int) -> bool:
        """Tell whether a record's dead letter is made for the first time: each attempt makes it again."""
        known = offset in self._told
        self._told.add(offset)
        return not known

    def letters_committed(self, offset: int) -> int:
        """Count the records below whose dead letters are committed, as given up; return how many these are."""
        done = [one for one in self.letters if one < offset]
        self.letters.difference_update(done)
        self._sums.given_up += len(done)
        return len(done)

    def committed_to(self, offset: int) -> None:
        """Forget the offsets below: they are not read again."""
        for known in (self._passed, self._told):
            if known:
                known.difference_update([one for one in known if one < offset])
        for one in [one for one in self.too_often if one < offset]:
            del self.too_often[one]

    def retired(self, gone: OffsetRange) -> None:
        """Count unread offsets below the start of the log, each once."""
        # Rule: an attempt that failed, or an answer that was damaged, leads to the same gap again.
        before = self._gone
        again = max(0, min(gone.end, before.end) - max(gone.first, before.first))
        self._sums.lost += gone.end - gone.first - again
        self._gone = OffsetRange(min(gone.first, before.first), max(gone.end, before.end)) if again else gone

    def cut(self, gone: OffsetRange | None) -> None:
        """Count offsets that now mean other records; None: how many is not known."""
        self._sums.lost += 0 if gone is None else gone.end - gone.first
        self._gone = OffsetRange(0, 0)
        for known in (self._passed, self._told, self.letters, self.too_often):
            known.clear()
