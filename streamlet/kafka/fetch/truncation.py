"""Comparison of a read position with the leader's log, by bounds and leader epochs (KIP-101, KIP-320). Pure.

After an unclean election the new leader's log may lack records that were read already, and may hold other records
under the same offsets. An offset alone cannot show that. So a reader keeps with its position the leader epoch of the
record before it, and asks a new leader where that epoch ends in its log (OffsetsForLeaderEpoch):

- an end at or after the position: the logs agree up to there, read on;
- an end before the position: the logs parted there, and the records read after it are gone;
- no end (-1): the leader's log has no such epoch and none before it, so where they parted is unknown.

A leader from Kafka 2.7 on says the same in a fetch answer ("diverging epoch"). Retention, DeleteRecords and a topic
deleted and created again are other ways to lose a position; one verdict covers them all.

Not decided here: what a reader does about a loss. That is its user's policy (``auto_offset_reset``,
``fail_on_data_loss``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from streamlet.kafka.metadata.cluster import UNKNOWN_EPOCH


class LogRelation(Enum):
    """Relation of a position to the leader's log."""

    HOLDS = "the log holds what was read so far"
    BELOW_START = "the log begins after the position: retention or DeleteRecords removed records"
    AHEAD_OF_END = "the log ends before the position: it was truncated"
    DIVERGED = "the log was truncated below the position and written again"
    NO_COMMON_EPOCH = "the log has no leader epoch in common with what was read"
    TOPIC_RECREATED = "the topic was deleted and created again"


@dataclass(frozen=True, slots=True)
class PositionVerdict:
    """A finding, and what follows from it."""

    finding: LogRelation
    resume_at: int | None
    """Nearest offset to the position at which reading can go on; None when the log does not tell."""
    lost: tuple[int, int] | None = None
    """First offset that cannot be read any more, and the one after the last; None when not known."""

    @property
    def holds(self) -> bool:
        """True when reading goes on at the position."""
        return self.finding is LogRelation.HOLDS


def judge_position(
    position: int,
    *,
    log_start: int | None = None,
    log_end: int | None = None,
    epoch_end: int | None = None,
    same_topic: bool = True,
) -> PositionVerdict:
    """Compare ``position`` with the leader's log; None stands for "not known".

    ``log_end`` is exclusive. ``epoch_end`` is the end in the leader's log of the leader epoch of the record before
    ``position``; a negative one means that the log knows no such epoch.
    """
    # The order counts: offsets of another topic mean nothing, and epochs below the log's start are no longer kept.
    if not same_topic:
        return PositionVerdict(LogRelation.TOPIC_RECREATED, log_start)
    if log_start is not None and position < log_start:
        return PositionVerdict(LogRelation.BELOW_START, log_start, (position, log_start))
    if epoch_end is not None and epoch_end < 0:
        return PositionVerdict(LogRelation.NO_COMMON_EPOCH, None)
    # Rule: epochs count before the end. A log that was cut at 60 and written again to 80 is too short for a position of
    # 100 as well; reading on at its end would pass over 60 to 79, which nobody has read.
    if epoch_end is not None and epoch_end < (position if log_end is None else min(position, log_end)):
        resume_at = epoch_end if log_start is None else max(log_start, epoch_end)
        return PositionVerdict(LogRelation.DIVERGED, resume_at, (epoch_end, position))
    if log_end is not None and position > log_end:
        return PositionVerdict(LogRelation.AHEAD_OF_END, log_end, (log_end, position))
    return PositionVerdict(LogRelation.HOLDS, position)


class LeaderEpochs:
    """Leader epochs of the batches read so far, by offset (Java: ``LeaderEpochFileCache``).

    A committed offset is lower than the read position. Its epoch must be stored with it, so the epochs between the two
    are remembered, one entry for each change of leader.
    """

    __slots__ = ("_starts", "latest")

    def __init__(self) -> None:
        self.latest: int | None = None
        """Epoch of the last entry, for a cheap look whether a batch begins a new one; None without entries."""
        self._starts: list[tuple[int, int]] = []  # (first offset, leader epoch), ascending

    def restart(self, offset: int, epoch: int) -> None:
        """Forget all entries but this one: the record at ``offset`` is of ``epoch``."""
        self._starts = [(offset, epoch)]
        self.latest = epoch

    def note(self, offset: int, epoch: int) -> None:
        """Record that a batch of ``epoch`` begins at ``offset``."""
        if epoch != self.latest:
            self._starts.append((offset, epoch))
            self.latest = epoch

    def before(self, offset: int) -> int:
        """Return the epoch of the record before ``offset``; UNKNOWN_EPOCH when it is not known."""
        found = UNKNOWN_EPOCH
        for first, epoch in self._starts:
            if first >= offset:
                break
            found = epoch
        return found

    def forget_below(self, offset: int) -> None:
        """Drop the entries that no question about ``offset`` or later ones needs."""
        while len(self._starts) > 1 and self._starts[1][0] < offset:
            self._starts.pop(0)
