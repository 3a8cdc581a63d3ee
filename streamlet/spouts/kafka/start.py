"""Where reading of a partition begins, and why (SEEDMAP K8, K9.6). A pure decision over what was looked up."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from streamlet.spouts.kafka.offset_ledger import OffsetRange


class Reason(enum.Enum):
    """Why a partition begins where it begins; the text is for logs."""

    STORED = "the stored offset"
    FIRST_EARLIEST = "nothing was stored: earliest"
    FIRST_LATEST = "nothing was stored: latest"
    FIRST_TIMESTAMP = "nothing was stored: by time"
    FORCED = "the stored offset of another run was set aside (ignore_stored_offset)"
    NEW_PARTITION = "a partition that appeared while running: earliest"
    BELOW_START = "the next offset is below the start of the log: retention or DeleteRecords removed it"
    AHEAD_OF_END = "the next offset is ahead of the end of the log: it was truncated"
    DIVERGED = "the next offset is in the log, but below it the log was truncated and written anew"
    TOPIC_RECREATED = "the topic was deleted and created again: the next offset belongs to the old one"


LOSSES = frozenset({Reason.BELOW_START, Reason.AHEAD_OF_END, Reason.DIVERGED, Reason.TOPIC_RECREATED})
"""Reasons that mean records were lost, or may have been: refused unless ``fail_on_data_loss=False``."""


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """What the offset store held: the next offset to read, and whose it was."""

    offset: int
    topology_id: str = ""
    topic_id: str | None = None
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The log as its leader sees it: first offset, last stable offset (exclusive), and, when the policy asks by
    time, the first offset at or after that time (None: every record is older).
    """

    start: int
    end: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """What the user wants when nothing (usable) is stored. ``where``: "earliest", "latest" or "timestamp"."""

    where: str = "earliest"
    ignore_stored_offset: bool = False


@dataclass(frozen=True, slots=True)
class StartDecision:
    """Begin at ``offset``. ``lost`` is the exact range that cannot be read any more, where one is known."""

    offset: int
    reason: Reason
    lost: OffsetRange | None = None

    @property
    def is_loss(self) -> bool:
        """Whether going on needs ``fail_on_data_loss=False``."""
        return self.reason in LOSSES


def decide_start(
    stored: StoredOffset | None,
    log: LogBounds,
    policy: StartPolicy,
    *,
    topology_id: str = "",
    topic_id: str | None = None,
    appeared_while_running: bool = False,
    epoch_end: int | None = None,
) -> StartDecision:
    """Storm's rules with its traps closed: 0 is an offset like any other (T4), the default is earliest (T1), and
    a stored offset the log does not have is one of three different losses, never a quiet jump (T2).

    ``ignore_stored_offset`` holds once a run: what *this* run stored (same ``topology_id``) is always used, so a
    restarted worker goes on. A partition that appears while running begins at its start whatever the policy, for
    what was written before it was noticed counts too. ``epoch_end`` is where the leader epoch of the record before the
    stored offset ends in the leader's log (None: not known): there, below the stored offset, the logs parted (KIP-320).
    """
    if stored is None:
        if appeared_while_running:
            return StartDecision(log.start, Reason.NEW_PARTITION)
        return _first(log, policy)
    if policy.ignore_stored_offset and stored.topology_id != topology_id:
        return StartDecision(_first(log, policy).offset, Reason.FORCED)
    if topic_id is not None and stored.topic_id is not None and topic_id != stored.topic_id:
        return StartDecision(log.start, Reason.TOPIC_RECREATED)
    if stored.offset < log.start:
        return StartDecision(log.start, Reason.BELOW_START, OffsetRange(stored.offset, log.start))
    if stored.offset > log.end:
        return StartDecision(log.end, Reason.AHEAD_OF_END, OffsetRange(log.end, stored.offset))
    if epoch_end is not None and epoch_end < stored.offset:
        # What stands there now was written by others, and read by nobody.
        return StartDecision(max(log.start, epoch_end), Reason.DIVERGED, OffsetRange(epoch_end, stored.offset))
    return StartDecision(stored.offset, Reason.STORED)


def _first(log: LogBounds, policy: StartPolicy) -> StartDecision:
    if policy.where == "latest":
        return StartDecision(log.end, Reason.FIRST_LATEST)
    if policy.where == "timestamp":
        return StartDecision(log.end if log.at_time is None else log.at_time, Reason.FIRST_TIMESTAMP)
    return StartDecision(log.start, Reason.FIRST_EARLIEST)
