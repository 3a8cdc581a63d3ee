"""Whether a run that came to its end succeeded: decided here for every backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from streamlet.backends.contract import ComponentStatus, RunResult, RunStatus
from streamlet.base.errors import EXIT_FAILED, StreamletError
from streamlet.base.untracked import NOBODY_SENDS, NOBODY_SENDS_OF_SPOUT, untracked_text
from streamlet.components.reliable_spout import ReliableSpout
from streamlet.model.spec import SPOUT
from streamlet.model.topology import TopologySpec

MISSING = "What `cleanup` or `close` was to write may be missing."

LATE = "did not stop within"
"""What the end of a run says of a worker that took too long to close."""

HUNG = "it had been in"
"""What it says of the call that such a worker hung in; its name follows."""

_CLOSING = ("cleanup", "close", "deactivate")
"""Calls that end a component."""

MOST_ERRORS = 3
"""Most errors of components that the end of a run repeats."""


class RunFailed(StreamletError):
    """A worker could not go on, or could not close; it says why itself.

    ``result``: what the run had done, as far as its workers could still tell.
    """

    def __init__(
        self, message: str, status: int = EXIT_FAILED, trace: str = "", result: RunResult | None = None
    ) -> None:
        super().__init__(message)
        self.exit_status = status
        self.trace = trace
        self.result = result


class TickFailed(StreamletError):
    """The last ``process_tick`` of a bolt raised: no later one made it good.

    ``result`` is the result that the run would have had.
    """

    def __init__(self, message: str, result: RunResult) -> None:
        super().__init__(message)
        self.result = result


class TreesFailed(StreamletError):
    """Some emitted tuples were not processed, and nobody will emit them again.

    ``result`` is the result that the run would have had.
    """

    def __init__(self, message: str, result: RunResult) -> None:
        super().__init__(message)
        self.result = result


class TuplesLeft(StreamletError):
    """The drain ended with tuples in queues that nobody will send again.

    ``result`` is the result that the run would have had.
    """

    def __init__(self, message: str, result: RunResult) -> None:
        super().__init__(message)
        self.result = result


def check_end(
    result: RunResult,
    topology: TopologySpec,
    errors: Sequence[str],
    raised: Sequence[str],
    cut_exits: Sequence[str] = (),
) -> RunResult:
    """Return the result of a run that succeeded and was closed.

    ``raised`` are the errors of those that could not; ``cut_exits`` tell who died at its exit afterwards; ``errors`` as
    for ``check_result``. Raises RunFailed, TreesFailed, TuplesLeft or TickFailed.
    """
    cut = f"{'; '.join(cut_exits)}. What was acked is not read again." if cut_exits else ""
    try:
        checked = _check_closed(result, topology, errors, raised)
    except (RunFailed, TreesFailed, TuplesLeft, TickFailed) as found:
        if not cut:
            raise
        raise type(found)(f"{found.message} Besides, {cut}", result=result) from None
    # As of a `cleanup` that was cut: after Ctrl-C the user is only told.
    if cut and result.reason != "interrupted":
        raise RunFailed(f"{_end_text(result)}, but {cut}", result=result)
    return checked


def _check_closed(result: RunResult, topology: TopologySpec, errors: Sequence[str], raised: Sequence[str]) -> RunResult:
    """Return the result of a run but for its workers' exits."""
    # Rule: everything that is known is said, and the numbers are in the result. A worker that is lost while the run
    # drains takes tuples along, too: the words about its closing must not hide theirs.
    closing = _closing_text(raised, result)
    ticks = _ticks_text(result, errors)
    try:
        checked = check_result(result, topology, errors)
    except (TreesFailed, TuplesLeft) as found:
        if closing is None and not ticks:
            raise
        besides = f"Besides, {ticks}" if ticks else ""
        if closing is not None:  # those who died stand in it already
            known = not raised and "; ".join(result.unclosed) in found.message
            besides = f"{MISSING if known else f'Besides, {closing}'} {besides}".strip()
        raise type(found)(f"{found.message} {besides}", result) from None
    if closing is not None:
        besides = f" Besides, {ticks}" if ticks else ""
        raise RunFailed(f"{_end_text(result)}, but {closing}{besides}", result=result)
    if ticks:
        raise TickFailed(f"{_end_text(result)}, but {ticks}", result)
    return checked


def failed_result(status: RunStatus, left: Mapping[str, int]) -> RunResult:
    """Return what a run has done that an error ended at once."""
    # Rule: a run that fails tells its numbers as any other does: what was given up and lost, nobody sends again.
    return RunResult("failed", status, drained=False, left=dict(left))


def _ticks_text(result: RunResult, errors: Sequence[str]) -> str:
    """Return which bolts' last ticks raised, and what; empty: none."""
    # Rule: as of a `cleanup` that raises. What a bolt writes at its ticks is in no tree, so "everything is done" says
    # nothing of it. After an error a later tick of the task may have made it good: then the run is well.
    rows = [row for row in result.status.components if row.tick_failed]
    if not rows:
        return ""
    who = " and ".join(
        f"of {row.name}" + (f" (in {row.tick_failed} of {row.tasks} tasks)" if row.tasks > 1 else "") for row in rows
    )
    said = [text for row in rows for text in errors if text.startswith(f"{row.name} (task ")]
    why = "".join(f" {text}" for text in dict.fromkeys(said))
    return f"the last process_tick {who} raised. What it was to write may be missing.{why}"


def drained_failure(
    error: StreamletError, result: RunResult, errors: Sequence[str], raised: Sequence[str]
) -> RunFailed:
    """Return the error of a drained run that a spout ended.

    ``errors`` and ``raised`` as for ``check_end``.
    """
    more = []
    if result.left:
        more.append(f"{_drain_text(result)} {untracked_text(result.left)}. {NOBODY_SENDS}")
    more += [f"Besides, {text}" for text in (_closing_text(raised, result), _ticks_text(result, errors)) if text]
    failure = RunFailed(" ".join([error.message, *more]), trace=error.trace, result=result)
    failure.__cause__ = error if error.__cause__ is None else error.__cause__
    return failure


def _closing_text(raised: Sequence[str], result: RunResult) -> str | None:
    """Return what went wrong when components closed; None: nothing."""
    # Many components write what they have when they close. What a `cleanup` was to write is in no tree, so "all trees
    # acked" says nothing about it.
    if raised:
        return f"closing it raised: {'; '.join(text.rstrip('.') for text in raised)}. {MISSING}"
    # After Ctrl-C the user limits the time, and is only told.
    if result.unclosed and result.reason != "interrupted":
        # One that was at work on a tuple, or hung in another call, never came to its `cleanup`: more time would only
        # prolong the wait.
        late = any(LATE in text and not _never_closed(text) for text in result.unclosed)
        more = " A `cleanup` that needs more time gets it by streamlet.stop.timeout.secs." if late else ""
        return f"{'; '.join(result.unclosed)}. {MISSING}{more} What was acked is not read again."
    return None


def _never_closed(text: str) -> bool:
    """Tell whether a worker was ended before its components' own ends."""
    return " at work in " in text or (HUNG in text and not any(f"{HUNG} {call} of " in text for call in _CLOSING))


def check_result(result: RunResult, topology: TopologySpec, errors: Sequence[str]) -> RunResult:
    """Return the result of a run that succeeded. Raises TreesFailed or TuplesLeft.

    ``errors`` are the paragraphs about errors of components. Messages that were given up fail any run, and so do lost
    tuples. A policy that its user has named (``answers_for_failures``) is asked for neither.
    """
    if result.left:
        remedy = _more_time_or(
            "have the spout emit with tup_id, so that an open tree is read again by the next run.", result
        )
        left = f"{untracked_text(result.left)}{_lost_before(result)}"
        raise TuplesLeft(f"{_drain_text(result)} {left}. {NOBODY_SENDS} {remedy}", result)
    answered = {row.name for row in result.status.components if _answers_for_failures(row, topology)}
    failed = [row for row in result.status.components if row.given_up and row.name not in answered]
    lost = [row for row in result.status.components if row.lost and row.name not in answered]
    if lost:
        counts = " and ".join(f"{lost_text(row)} at {row.name}" for row in lost)
        besides = f" Besides, {_rows_text(failed)} failed and were given up." if failed else ""
        # What a spout has lost may be untracked tuples, or trees of one that hears of no failures.
        of_spouts = any(row.kind == SPOUT for row in lost)
        what, why = ("tuples", NOBODY_SENDS_OF_SPOUT) if of_spouts else ("untracked tuples", NOBODY_SENDS)
        raise TuplesLeft(f"{_end_text(result)}, but {what} were lost: {counts}. {why}{besides}", result)
    why = " ".join(dict.fromkeys(errors[:MOST_ERRORS])) or _silent_failures(result)
    if not failed:
        return _check_open_trees(result, topology, why)
    counts = _rows_text(failed)
    again = "it again, so it was" if sum(row.given_up for row in failed) == 1 else "them again, so they were"
    spouts = [topology.component(row.name).cls for row in failed if row.kind == SPOUT]
    replays = bool(spouts) and all(issubclass(spout, ReliableSpout) for spout in spouts)
    remedy = "Fix that." if replays else "Fix that, or let a ReliableSpout replay what fails."
    raise TreesFailed(
        f"{_end_text(result)}, but {counts} failed and nobody sent {again} not processed. {why} {remedy}",
        result,
    )


def _drain_text(result: RunResult) -> str:
    """Return how the drain ended; what it left follows."""
    # Rule: a death hides no time, and no time a death. Each alone leaves tuples, and only one of them is mended by more
    # time.
    over = "" if result.drain_cut_s is None else f"The drain's time of {result.drain_cut_s:g} s was over"
    hangs = hangs_text(result)
    if result.unclosed:
        # Of a worker that died, a slice at work counts as left though some of it was done: exact would be a note
        # outside its memory for each tuple.
        how = f"{over}, and it did not end well" if over else "The drain did not end well"
        return f"{how}: {'; '.join([*result.unclosed, *filter(None, [hangs])])}. It left up to"
    return f"{over or 'The drain ended'} before all was done{hangs and f': {hangs}'}, and it left"


def hangs_text(result: RunResult) -> str:
    """Name the calls that hung when the run had ended."""
    # Rule: also those of a pool, whose worker closes though a thread of it hangs. What is said of a worker that did not
    # close names its calls already.
    return " and ".join(
        f"{row['component']} (task {row['task']}) had been in {row['call']} for {row['seconds']:.0f} s"
        f"{' on ' + row['tuple'] if row['tuple'] else ''}"
        for row in result.status.hanging
        if not any(text.startswith(f"worker {row['worker']} ") for text in result.unclosed)
    )


def _more_time_or(advice: str, result: RunResult) -> str:
    """Return the advice, behind that of more time where more helps."""
    if result.drain_cut_s is None:
        return advice[0].upper() + advice[1:]
    # Rule: promise no help of more time where a call hangs. One that waits for a lock never comes back.
    hopes = " if that call comes back" if hangs_text(result) or any(HUNG in text for text in result.unclosed) else ""
    return f"Allow more time with --drain-timeout (from Python: drain_timeout){hopes}, or {advice}"


def _silent_failures(result: RunResult) -> str:
    """Return who failed tuples though no component raised anything."""
    bolts = [row for row in result.status.components if row.kind != SPOUT and row.failed]
    if bolts:
        by_itself = " and ".join(f"{row.name} failed {row.failed:,} tuples by itself, with self.fail" for row in bolts)
        return f"No component raised anything: {by_itself}."
    late = "they took longer than topology.message.timeout.secs, or a worker or link was lost"
    # Rule: of a worker that did not close, its last second is not known. A bolt there may have failed them by itself.
    if result.unclosed:
        return f"Whether a component raised anything is not known: perhaps a bolt failed them by itself, {late}."
    return f"No component raised anything: {late}."


def _end_text(result: RunResult) -> str:
    """Return why the run came to its end, for a sentence."""
    # Rule: only a run that caught up ran to its end. One whose time was over may have hung from its first tuple.
    ends = {"time": "The time of the run was over", "interrupted": "The run was stopped"}
    return ends.get(result.reason, "The topology ran to its end")


def lost_text(row: ComponentStatus) -> str:
    """Return ``12``, or ``up to 12`` where a death took some along."""
    # Rule: a bound is called one at the end as well, not in the line of the death alone. A fast bolt has done most of
    # the tuples that count as lost with its worker.
    return f"up to {row.lost:,}" if row.taken and row.lost > 1 else f"{row.lost:,}"


def _lost_before(result: RunResult) -> str:
    """Return the losses before the drain, for a sentence."""
    bolts = [row for row in result.status.components if row.kind != SPOUT]
    before = [dataclasses.replace(row, lost=row.lost - result.left.get(row.name, 0)) for row in bolts]
    counts = " and ".join(f"{lost_text(row)} at {row.name}" for row in before if row.lost > 0)
    return f"; before that, more had been lost: {counts}" if counts else ""


def _check_open_trees(result: RunResult, topology: TopologySpec, why: str) -> RunResult:
    """Return the result unless its drain left trees nobody reads again.

    ``why`` trees have failed. Raises TuplesLeft.
    """
    left = [row for row in result.status.components if row.open and not _answers_for_failures(row, topology)]
    if not left or result.reason == "interrupted":  # who interrupts a run limits its time, and is told
        return result
    owed = all(row.owed == row.open for row in left)
    if not (owed or result.unclosed or result.drain_cut_s is not None or hangs_text(result)):
        # Rule: what is open after a whole drain has failed and waits for its next try. The drain is not to blame, but
        # what failed it.
        raise TuplesLeft(
            f"{_end_text(result)}, and {_trees_text(left)} had failed and not been sent again by then. {why} Whether "
            "the next run reads them again only the spout knows: where it reads what was not acked, say so by "
            "answers_for_failures = True in its class.",
            result,
        )
    how = "The run ended before what a dead worker had open came again: it left" if owed else _drain_text(result)
    raise TuplesLeft(
        f"{how} {_trees_text(left, 'open ')}. Whether the next run reads them again only the spout knows. "
        f"{_more_time_or('say by answers_for_failures = True in its class that they come again.', result)}",
        result,
    )


def _trees_text(rows: Sequence[ComponentStatus], how: str = "") -> str:
    return " and ".join(f"{row.open:,} {how}tuple tree{'' if row.open == 1 else 's'} of {row.name}" for row in rows)


def _answers_for_failures(row: ComponentStatus, topology: TopologySpec) -> bool:
    return bool(getattr(topology.component(row.name).cls, "answers_for_failures", False))


def _rows_text(rows: Sequence[ComponentStatus]) -> str:
    return " and ".join(map(_row_text, rows))


def _row_text(row: ComponentStatus) -> str:
    if row.kind == SPOUT:
        return f"{row.given_up:,} tuple tree{'' if row.given_up == 1 else 's'} of the spout {row.name}"
    return f"{row.given_up:,} untracked tuple{'' if row.given_up == 1 else 's'} at {row.name}"
