"""Counters of a partition over all its openings in a task. Pure.

Counters of a run never fall: so they belong to the partition, and outlive the ledgers and managers that count.
"""

from __future__ import annotations

from streamlet.spouts.kafka.partition import OffsetRange


class PartitionCounters:
    """Counters of one partition. Used by one ledger after the other."""

    __slots__ = ("_gone", "_passed", "failed", "given_up", "ignored", "lost")

    def __init__(self) -> None:
        self.failed = 0
        """Failures of records."""
        self.given_up = 0
        """Records that were given up, or could not be decoded."""
        self.ignored = 0
        """Answers that came late, twice, or for another opening."""
        self.lost = 0
        """Offsets that were gone from the log before they were read."""
        self._gone = OffsetRange(0, 0)
        """The last of those that the start of the log has passed."""
        self._passed: set[int] = set()
        """Offsets given up that may be read again."""

    def give_up(self, offset: int) -> None:
        """Count a record that is given up, once."""
        # Rule: an opening begins at the committed offset, so what came after it is read again, and given up again.
        if offset not in self._passed:
            self._passed.add(offset)
            self.given_up += 1

    def committed_to(self, offset: int) -> None:
        """Forget the offsets below: they are not read again."""
        if self._passed:
            self._passed = {one for one in self._passed if one >= offset}

    def retired(self, gone: OffsetRange) -> None:
        """Count unread offsets below the start of the log, each once."""
        # Rule: an attempt that failed, or an answer that was damaged, leads to the same gap again.
        before = self._gone
        again = max(0, min(gone.end, before.end) - max(gone.first, before.first))
        self.lost += gone.end - gone.first - again
        self._gone = OffsetRange(min(gone.first, before.first), max(gone.end, before.end)) if again else gone

    def cut(self, gone: OffsetRange | None) -> None:
        """Count offsets that now mean other records; None: how many is not known."""
        self.lost += 0 if gone is None else gone.end - gone.first
        self._gone = OffsetRange(0, 0)
        self._passed.clear()
