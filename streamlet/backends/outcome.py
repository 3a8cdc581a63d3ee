"""Whether a run that came to its end went well: the one place where that is decided, for every backend."""

from __future__ import annotations

from collections.abc import Sequence

from streamlet.backends.contract import ComponentStatus, RunResult
from streamlet.base.errors import FAILED, StreamletError
from streamlet.components.reliable_spout import ReliableSpout
from streamlet.components.spout import Spout
from streamlet.model.spec import SPOUT
from streamlet.model.topology import TopologySpec

MISSING = "What `cleanup` or `close` was to write may be missing."

MOST_TOLD = 3
"""So many of the errors that components raised are told again at the end."""


class RunFailed(StreamletError):
    """A worker could not go on, or not close what it had; its own paragraph is the message."""

    def __init__(self, message: str, status: int = FAILED, trace: str = "") -> None:
        super().__init__(message)
        self.exit_status = status
        self.trace = trace


class TreesFailed(StreamletError):
    """Not all that was emitted was processed, and nobody will emit it again. ``result`` is what the run came to."""

    def __init__(self, message: str, result: RunResult) -> None:
        super().__init__(message)
        self.result = result


def check_closed(raised: Sequence[str], unclosed: Sequence[str], reason: str) -> None:
    """Whether the components could close, which is when many write what they have. Raises RunFailed.

    ``raised`` are the errors of those that could not, ``unclosed`` how workers went that did not come to it. Who
    interrupts a run bounds its time, and is told only.
    """
    if raised:
        raise RunFailed(f"The topology ran to its end, but closing it raised: {'; '.join(raised)}. {MISSING}")
    if unclosed and reason != "interrupted":
        raise RunFailed(
            f"The topology ran to its end, but {'; '.join(unclosed)}. {MISSING} A `cleanup` that needs more time gets "
            "it by streamlet.stop.timeout.secs; what was acked is not read again."
        )


def judged(result: RunResult, topology: TopologySpec, told: Sequence[str]) -> RunResult:
    """The result, if it is a good one. ``told`` are the paragraphs about what components raised. Raises TreesFailed.

    A run that caught up answers for every message that failed and was not acked since. One that was ended by time only
    for those of which it is certain that they will not be sent again; one that was interrupted for none.
    """
    failed = [row for row in result.status.components if row.unreplayed and _counts(row, result.reason, topology)]
    if not failed:
        return result
    counts = " and ".join(_count(row) for row in failed)
    why = " ".join(dict.fromkeys(told[:MOST_TOLD])) or (
        "No component raised anything: a bolt failed them by itself, they took longer than "
        "topology.message.timeout.secs, or a worker or link was lost."
    )
    raise TreesFailed(
        f"The topology ran to its end, but {counts} failed and nobody sent them again, so they were not processed. "
        f"{why} Mend that, or let a ReliableSpout replay what fails.",
        result,
    )


def _counts(row: ComponentStatus, reason: str, topology: TopologySpec) -> bool:
    if reason == "caught_up" or row.kind != SPOUT:
        return reason in ("caught_up", "time")
    return reason == "time" and not _may_still_replay(topology.component(row.name).cls)


def _may_still_replay(spout: type) -> bool:
    """A spout that hears of failures may send them again, had it the time; a ReliableSpout has given these up."""
    if issubclass(spout, ReliableSpout):
        return False
    return issubclass(spout, Spout) and (spout.fail is not Spout.fail or spout.fail_many is not Spout.fail_many)


def _count(row: ComponentStatus) -> str:
    if row.kind == SPOUT:
        return f"{row.unreplayed:,} tuple tree{'' if row.unreplayed == 1 else 's'} of the spout {row.name}"
    return f"{row.unreplayed:,} untracked tuple{'' if row.unreplayed == 1 else 's'} at {row.name}"
