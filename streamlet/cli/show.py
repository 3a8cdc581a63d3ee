"""What a run looks like from outside: plain lines, or one JSON object a line. The live table is ``table.py``.

Everything meant for a person's eyes while it runs, and every log line, goes to stderr where stdout carries JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from rich.cells import cell_len

from streamlet.backends.contract import ComponentStatus, Observer, RunRequest, RunResult, RunStatus
from streamlet.backends.outcome import MISSING, hangs_text, lost_text
from streamlet.base.log_line import LogLine, fields
from streamlet.base.printable import many, printable
from streamlet.cli.check import summary
from streamlet.cli.errors import explain
from streamlet.cli.json_lines import json_text
from streamlet.cli.output import OutputFailed, ReaderGone
from streamlet.model.delivery import is_exactly_once
from streamlet.model.spec import SPOUT
from streamlet.model.validate import endless_spouts, warnings_of
from streamlet.runtime.worker.log_lines import is_own, shown_text

AT_WORK_S = 0.3
"""Seconds for a line that another thread is just writing, before the last line of a killed run."""


class View(Observer, Protocol):
    """Shows one run. One thread calls it (``view_thread.py``), but for ``killed``."""

    def start(self, request: RunRequest, backend: str) -> None:
        """Show that the run begins."""

    def log(self, line: LogLine) -> None:
        """Show a log line."""

    def notice(self, text: str) -> None:
        """Show what a signal brought about."""

    def killed(self, exit_status: int, last: RunStatus | None) -> None:
        """Show the last line of a run that is killed. Past all locks and buffers.

        ``last``: its numbers at that moment, where the backend could tell.
        """

    def finish(self, result: RunResult, exit_status: int = 0) -> None:
        """Show the result of a run that ended well."""

    def failed(self, error: BaseException, exit_status: int) -> None:
        """Show that the run failed; the caller explains the error on stderr."""

    def close(self) -> None:
        """End the view. Always called."""


class WrittenView(View, Protocol):
    """Writes a run to one or two streams. One thread calls it for each of them."""

    def on_errors(self, line: LogLine | None, event: bool = False) -> bool:
        """Tell whether a line goes to standard error. Any thread.

        None: a notice, or lines that are due. ``event``: ``on_event`` gets it, and not ``log``.
        """

    def show_due(self, over: bool) -> None:
        """Show lines that waited for their time; ``over``: no others come."""


class LastingView:
    """A view whose broken output asks the run to drain.

    A reader that goes away, or a full disk, does not stop the run in the middle: emitted tuples are committed first.
    ``lost`` is the error, for the caller to raise after the run.
    """

    def __init__(self, view: WrittenView, drain: Callable[[], None]) -> None:
        self._view = view
        self._drain = drain
        self.lost: Exception | None = None
        self.on_errors = view.on_errors
        self.show_due = view.show_due
        self.log = view.log
        self.notice = view.notice
        self.killed = view.killed
        self.close = view.close

    def start(self, request: RunRequest, backend: str) -> None:
        """Start the view. Raises its errors: nothing runs yet."""
        self._view.start(request, backend)

    def on_status(self, status: RunStatus) -> None:
        self._shown(lambda: self._view.on_status(status))

    def on_event(self, line: LogLine) -> None:
        # Rule: standard output that is gone costs no line of standard error: the errors of a run that drains for it
        # are errors, too.
        if self._view.on_errors(line, event=True):
            self._view.on_event(line)
        else:
            self._shown(lambda: self._view.on_event(line))

    def finish(self, result: RunResult, exit_status: int = 0) -> None:
        self._shown(lambda: self._view.finish(result, exit_status))

    def failed(self, error: BaseException, exit_status: int) -> None:
        self._shown(lambda: self._view.failed(error, exit_status))

    def _shown(self, show: Callable[[], None]) -> None:
        if self.lost is not None:
            return
        try:
            show()
        except (OutputFailed, BrokenPipeError) as error:
            self.broke(error)

    def broke(self, error: Exception) -> None:
        """Show nothing more, and ask for the drain."""
        # Unlike other commands a run says so: it ends before its time, and its log may be all that is looked at.
        self.lost = self.lost or (ReaderGone() if isinstance(error, BrokenPipeError) else error)
        self._drain()


def is_event(line: LogLine) -> bool:
    """Tell whether a worker, a component or a library logged this."""
    return line.origin.worker is not None or not is_own(line)


class JsonView:
    """Events on stdout for programs: ``start``, ``status``, ``log`` and, always last, ``result``."""

    def __init__(self) -> None:
        self._out = sys.stdout  # held, for a backend sends what users print elsewhere
        self._status: RunStatus | None = None
        self._content_shown = dataclasses.asdict(RunStatus("starting", 0.0))
        self._rates = Rates()
        self._begun = False
        self._writing = threading.Lock()
        self._ended = False

    def start(self, request: RunRequest, backend: str) -> None:
        self._begun = True
        components = [
            {"name": c.name, "kind": c.kind, "tasks": c.par, "class": c.cls.__qualname__}
            for c in request.topology.components
        ]
        self._put(
            "start", topology=request.topology.name, backend=backend, workers=request.workers, components=components
        )

    def on_status(self, status: RunStatus) -> None:
        self._status, self._content_shown = status, self._content(status)
        self._put("status", **self._content_shown)

    def on_event(self, line: LogLine) -> None:
        self._put("log", **{**fields(line), "text": shown_text(line)})

    def log(self, line: LogLine) -> None:
        # Rule: what is logged in a worker is an event, also where the worker is this process. A program that reads the
        # events would hear of the lines of components, and of the libraries they call on threads, on one backend only.
        if is_event(line) and self._begun and not self._ended:
            self.on_event(line)
        else:
            say_error(line)

    def on_errors(self, line: LogLine | None, event: bool = False) -> bool:
        return not event and (line is None or not is_event(line))

    def show_due(self, over: bool) -> None:
        pass

    def notice(self, text: str) -> None:
        say_past_streams(text)

    def killed(self, exit_status: int, last: RunStatus | None) -> None:
        if last is not None:
            self._status, self._content_shown = last, self._content(last)
        ended = {"event": "result", "reason": "killed", "drained": False, "exit_status": exit_status}
        rows = [
            {**row, "lost": row["lost"] + row["untracked"], "untracked": 0} for row in self._content_shown["components"]
        ]
        result = {**ended, **self._content_shown, "components": rows}
        # The thread that shows the run may be about to write a status: nothing follows the result. Not waited for any
        # longer where that thread stands in a write to a terminal that nobody reads.
        between_lines = self._writing.acquire(timeout=AT_WORK_S)
        self._ended = True
        if between_lines:
            self._writing.release()
        writing = begin_to_say(json_text(result), self._out.fileno())
        say_past_streams(killed(self._status))
        writing.join()

    def finish(self, result: RunResult, exit_status: int = 0) -> None:
        status = self._content(result.status)
        ended = {"reason": result.reason, "drained": result.drained, "unclosed": result.unclosed}
        self._put("result", **ended, exit_status=exit_status, **status)

    def failed(self, error: BaseException, exit_status: int) -> None:
        reason = "failed" if self._begun else "refused"
        message, _ = explain(error)
        reached: RunResult | None = getattr(error, "result", None)
        status: dict[str, Any] = {}
        if reached is not None:
            status = {"drained": reached.drained, **self._content(reached.status)}
        elif self._begun:  # of a run that failed by anything else the numbers that were shown last
            status = {"drained": False, **self._content_shown}
        self._put(
            "result", reason=reason, error=type(error).__name__, message=message, exit_status=exit_status, **status
        )

    def close(self) -> None:
        pass

    def _content(self, status: RunStatus) -> dict[str, Any]:
        rates = self._rates.of(status)
        content = dataclasses.asdict(status)
        for row in content["components"]:
            row["per_s"] = rates.get(row["name"])
        return content

    def _put(self, event: str, **content: Any) -> None:
        line = json_text({"event": event, **content}) + "\n"
        with self._writing:
            if not self._ended:
                self._ended = event == "result"
                self._out.write(line)
                self._out.flush()


class PlainView:
    """Writes lines for a log file: a status now and then, a table at the end.

    The status lines get rarer as the run gets longer.
    """

    def __init__(self) -> None:
        self._next_s = 1.0
        self._status: RunStatus | None = None

    def start(self, request: RunRequest, backend: str) -> None:
        _say(heading(request, backend))

    def on_status(self, status: RunStatus) -> None:
        self._status = status
        if status.state == "ended" or status.elapsed_s < self._next_s:
            return
        # Ever rarer, up to half a minute: the log of a run of hours stays readable.
        self._next_s = status.elapsed_s + min(30.0, max(1.0, status.elapsed_s / 2))
        _say(status_line(status))

    def on_event(self, line: LogLine) -> None:
        say_error(line)

    def log(self, line: LogLine) -> None:
        say_error(line)

    def on_errors(self, line: LogLine | None, event: bool = False) -> bool:
        return True

    def show_due(self, over: bool) -> None:
        pass

    def notice(self, text: str) -> None:
        say_past_streams(text)

    def killed(self, exit_status: int, last: RunStatus | None) -> None:
        say_last_words(killed(last or self._status))

    def finish(self, result: RunResult, exit_status: int = 0) -> None:
        for line in component_lines(result.status, Rates().of(result.status)):
            _say(line)
        for line in partition_lines(result.status.partitions):
            _say(line)
        _say(ending(result, exit_status))

    def failed(self, error: BaseException, exit_status: int) -> None:
        """Show the last numbers: above the error, as the table of a run that went well."""
        # A spout that hangs in its first second has told of nothing that it emitted; its readers have.
        if self._status is None or not any(row.emitted or row.executed for row in self._status.components):
            return
        for line in [
            *component_lines(self._status, Rates().of(self._status)),
            *partition_lines(self._status.partitions),
        ]:
            _say(line)
        for line in [*gone_lines(self._status), *tick_lines(self._status)]:
            _say(line)

    def close(self) -> None:
        pass


# -- words -------------------------------------------------------------------------------------------------


def heading(request: RunRequest, backend: str) -> str:
    """Return ``WordCount: 1 spout, 2 bolts, 5 tasks on 2 worker processes. ...``."""
    where = {
        "inline": "in this process",
        "spark": f"on {many(request.workers, 'Spark executor slot')}",
    }.get(backend, f"on {many(request.workers, 'worker process', 'worker processes')}")
    endless = endless_spouts(request.topology) if request.until_caught_up and request.seconds is None else []
    hardly_meant = warnings_of(request.topology, exactly_once=is_exactly_once(request.conf))
    warnings = "".join(f" {line}" for line in [*hardly_meant, *endless])
    return f"{request.topology.name}: {summary(request.topology)} {where}. Ctrl-C drains and stops.{warnings}"


def ending(result: RunResult, exit_status: int = 0) -> str:
    """Return the last lines: failed trees, why the run ended, open trees.

    A run that ended by the time with an ``exit_status`` was to catch up before.
    """
    why = {"caught_up": "Caught up", "time": "Time is over", "interrupted": "Stopped"}.get(result.reason, result.reason)
    spouts = [row for row in result.status.components if row.kind == SPOUT]
    failed = sum(row.failed for row in spouts if row.failed > row.unreplayed)
    # Rule: no difference of the two. Records that were never in a tree are given up, too.
    but = " what it did not give up" if any(row.given_up for row in spouts) else ""
    before = f"{many(failed, 'tuple tree')} failed on the way, for the spout to send again{but}.\n" if failed else ""
    before += "".join(f"{line}\n" for line in [*gone_lines(result.status), *tick_lines(result.status)])
    left = _all_done(result.status)
    if not result.drained:
        by_name = ", ".join(f"{row.name} {row.open:,}" for row in result.status.components if row.open)
        over = "" if result.drain_cut_s is None else f" when the drain's {result.drain_cut_s:g} s were over"
        left = f"{many(result.status.pending, 'tuple tree')} still open{by_name and f' ({by_name})'}{over}, to be"
        left += " replayed by the next run"
        left += _owed_text(result.status)
        # Rule: say that done records are read again, too. An offset is committed once all before it are done.
        if (beyond := _uncommitted(result.status)) > result.status.pending:
            left += f", which reads {many(beyond, 'offset')} again, done ones behind an open one too"
        silent = unreported(result.status)
        if not silent and result.unclosed and not result.status.pending:
            # Rule: no 0 of a worker that did not close is shown as one. What its spout emits before it hangs is in no
            # number yet, and may be done.
            silent = "a worker did not close, and its last numbers are older"
        if silent:
            left = f"what is open is not known: {silent}"
        elif not result.status.pending:
            # Rule: of a drain that was cut short say that, and no more. What waited may all be untracked, or a tick's.
            left = "without a drain, so what was read last is read again by the next run"
            if result.drain_cut_s is not None:
                left = f"not everything was done when the drain's {result.drain_cut_s:g} s were over"
                # A call that is under way then comes to its end, and may be the last. Of what nobody tracks `left`
                # has the count, of a worker that did not close nobody.
                if not (result.left or result.unclosed) and any(row.acked for row in spouts):
                    left += ", but a moment later it was"
            if not any(row.emitted for row in spouts):
                left = "nothing had been emitted yet"
        if hangs := hangs_text(result):
            left += f"; {hangs}"
    cut = f" But {'; '.join(result.unclosed)}. {MISSING}" if result.unclosed else ""
    late = "not caught up; " if result.reason == "time" and exit_status else ""
    return f"{before}{why} after {duration(result.status.elapsed_s)}: {late}{left}{_doubt_text(result.status)}.{cut}"


def _doubt_text(status: RunStatus) -> str:
    """Return which trees of dead workers may not have come again; empty: none."""
    # Rule: say what nobody here knows as that. A spout that begins behind what it had emitted loses what was open, and
    # one that sends it again is not to be called wrong.
    rows = [row for row in status.components if row.in_doubt]
    said = " and ".join(f"{many(row.in_doubt, 'tuple tree')} of {row.name}" for row in rows)
    return f"; {said} were open when a worker died, and only the spout knows whether it sent them again" if said else ""


def _owed_text(status: RunStatus) -> str:
    """Return which of the open trees a dead worker had; empty: none."""
    owed = sum(row.owed for row in status.components)
    return f"; {'it was' if owed == 1 else f'{owed:,} of them were'} open when a worker died" if owed else ""


def _all_done(status: RunStatus) -> str:
    """Return what a run has done whose drain left nothing."""
    done = "everything that was emitted is done"
    if not (beyond := sum(row.get("uncommitted", 0) for row in status.partitions)):
        return done
    return f"{done}, but {many(beyond, 'offset')} could not be committed: the next run reads what is behind them again"


def gone_lines(status: RunStatus) -> list[str]:
    """Return ``lines: 3 given up, 12 lost; nobody sends them again.`` for each component with such.

    What a KafkaSpout wrote to its dead letters is given up, too, and kept.
    """
    lines = []
    for row in status.components:
        kept = min(row.given_up, row.kept)
        parts = [f"{row.given_up - kept:,} given up"] if row.given_up > kept else []
        parts += [f"{lost_text(row)} lost"] if row.lost else []
        if kept:
            lines.append(
                f"{row.name}: {kept:,} given up, and kept as {'a dead letter' if kept == 1 else 'dead letters'}."
            )
        if parts:
            lines.append(f"{row.name}: {', '.join(parts)}; nobody sends them again.")
    return lines


def tick_lines(status: RunStatus) -> list[str]:
    """Return ``count: 3 ticks raised`` for each bolt with such."""
    return [
        f"{row.name}: {many(row.tick_errors, 'tick')} raised; what {'it was' if row.tick_errors == 1 else 'they were'} "
        "to do is not done, unless a later tick did it."
        for row in status.components
        if row.tick_errors
    ]


def _uncommitted(status: RunStatus) -> int:
    """Count the offsets that were read, and are not committed."""
    rows = [(row.get("position"), row.get("committed")) for row in status.partitions]
    return sum(read - done for read, done in rows if isinstance(read, int) and isinstance(done, int))


def killed(status: RunStatus | None) -> str:
    """Return the last line of a killed run, by the latest numbers."""
    if status is None:
        return (
            "Killed before its first numbers came: nothing was drained. What was tracked is read again by the next run."
        )
    beyond = _uncommitted(status)
    more = f", and {many(beyond, 'record')} beyond what is committed" if beyond > 0 else ""
    silent = unreported(status)
    trees = f"what is open is not known ({silent})" if silent else f"{many(status.pending, 'tuple tree')} still open"
    # Rule: a kill is an end, too, and what it loses is told like any other loss. Nobody sends these tuples again.
    waiting = [row for row in status.components if row.untracked]
    by_name = ", ".join(f"{row.name} {row.untracked:,}" for row in waiting)
    untracked = sum(row.untracked for row in waiting)
    up_to = "up to " if untracked > 1 else ""  # a slice at work counts whole, though some of it may be done
    lost = f", and {up_to}{many(untracked, 'untracked tuple')} lost ({by_name})" if waiting else ""
    before = "".join(f" Before, {line}" for line in gone_lines(status))
    return (
        f"Killed, not drained: {trees}{more}{lost}, as of {duration(status.elapsed_s)} after the start.{before} "
        "What was tracked and open is read again by the next run; `cleanup` was not called."
    )


def status_line(status: RunStatus) -> str:
    """Return one line: counts, open trees and lag; while it starts, workers."""
    if status.state == "starting":
        there = sum(worker.get("state") not in ("starting", "gone") for worker in status.workers)
        return f"{duration(status.elapsed_s):>7}  starting: {there} of {many(len(status.workers), 'worker')} there"
    parts = []
    for row in status.components:
        text = f"{row.name} {count(row.emitted if row.kind == SPOUT else row.executed)}"
        parts.append(text + (f" ({count(row.failed)} failed)" if row.failed else ""))
    silent = unreported(status)
    parts.append(f"open {count(status.pending)}" + (f" (not known: {silent})" if silent else ""))
    parts += [*hanging_lines(status), *paused_line(status)]
    lags = [row["lag"] for row in status.partitions if isinstance(row.get("lag"), int)]
    if lags:
        parts.append(f"lag {count(sum(lags))}")
    return f"{duration(status.elapsed_s):>7}  {'   '.join(parts)}"


def unreported(status: RunStatus) -> str:
    """Name the workers without numbers, for a sentence; empty without such."""
    # Rule: no number that nobody has reported is shown as one. A bolt that hangs in its first tuples keeps its worker's
    # numbers from being read, and "0 trees open" would be believed.
    at_work = ("up", "busy") if status.state != "ended" else None
    silent = [
        str(worker["worker"])
        for worker in status.workers
        if not worker.get("reported", True) and (at_work is None or worker.get("state") in at_work)
    ]
    if not silent:
        return ""
    if len(silent) == 1:
        return f"worker {silent[0]} has reported no numbers since its last start"
    return f"workers {', '.join(silent)} have reported no numbers since their last start"


COLUMNS = (
    *("", "tasks", "emitted", "acked", "failed", "timed out", "given up", "lost"),
    *("window", "wait ms", "per s", "p50 ms", "p99 ms"),
)
"""What a table of components may show.

``failed`` contains the ``timed out``. ``timed out``, ``given up`` and ``lost`` are there once something has been;
``window`` and ``wait ms`` while tuples wait.
"""

WAIT_SHOWN_MS = 100
"""Milliseconds of waiting in queues that the table shows at least."""

PARTITION_COLUMNS = ("partition", "position", "committed", "lag", "behind")
"""What a table of partitions shows; and ``waits at``, once the place of an old tuple is known."""


class Rates:
    """Tuples a second of each component: emitted by spouts, executed by bolts, since the status before."""

    def __init__(self) -> None:
        self._before: Mapping[str, int] = {}
        self._elapsed_s = 0.0
        self._rates: Mapping[str, float] = {}

    def of(self, status: RunStatus) -> Mapping[str, float]:
        """Return the rates up to this status; of a run that has ended, over all of it."""
        done = {row.name: row.emitted if row.kind == SPOUT else row.executed for row in status.components}
        if status.state == "ended":
            self._before, self._elapsed_s = {}, 0.0
        passed = status.elapsed_s - self._elapsed_s
        if passed > 0:
            # The counters of a worker that died may be missing for a moment: no rate is below zero.
            self._rates = {name: max(0, now - self._before.get(name, 0)) / passed for name, now in done.items()}
            self._before, self._elapsed_s = done, status.elapsed_s
        return self._rates


def component_table(status: RunStatus, rates: Mapping[str, float]) -> list[tuple[str, ...]]:
    """Return the table of components as text: its heads, which are some of COLUMNS, then a row each."""
    # A column of zeros takes room from those that say something.
    rare = {"timed out": "timed_out", "given up": "given_up", "lost": "lost"}
    absent = {head for head, name in rare.items() if not any(getattr(row, name) for row in status.components)}
    if status.state == "ended" or all(row.wait_ms < WAIT_SHOWN_MS for row in status.components):
        absent |= {"window", "wait ms"}
    kept = [at for at, name in enumerate(COLUMNS) if name not in absent]
    rows = [COLUMNS, *(_component_cells(row, rates.get(row.name)) for row in status.components)]
    return [tuple(row[at] for at in kept) for row in rows]


def _component_cells(row: ComponentStatus, rate: float | None) -> tuple[str, ...]:
    numbers = (row.emitted, row.acked, row.failed, row.timed_out, row.given_up, row.lost)
    counts = map(count, numbers)
    waiting = (count(row.window), count(row.wait_ms)) if row.kind == SPOUT else ("-", "-")
    a_second = "-" if rate is None else f"{rate:,.0f}"
    return (row.name, str(row.tasks), *counts, *waiting, a_second, milliseconds(row.p50_ms), milliseconds(row.p99_ms))


def metric_lines(status: RunStatus) -> Iterator[str]:
    """Yield ``count: words 4, hits 2`` for each component that reports metrics of its own."""
    for row in status.components:
        if row.metrics:
            told = ", ".join(f"{name} {value:,.10g}" for name, value in sorted(row.metrics.items()))
            yield f"{row.name}: {told}"


def hanging_lines(status: RunStatus) -> list[str]:
    """Return a text for each call that takes too long.

    As ``count (task 3) is in process for 41 s``.
    """
    return [
        f"{row['component']} (task {row['task']}) is in {row['call']} for {row['seconds']:.0f} s"
        for row in status.hanging
    ]


def place_lines(status: RunStatus) -> list[str]:
    """Return a text for each executor, with its workers; none of workers on this machine.

    As ``executor 1 of node2: workers 0, 2``.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for worker in status.workers:
        if worker.get("host"):
            found.setdefault((worker["host"], worker["executor"]), []).append(str(worker["worker"]))
    return [
        f"{f'executor {executor} of ' if executor else ''}{host}: worker{'s' if len(workers) > 1 else ''} "
        f"{', '.join(workers)}"
        for (host, executor), workers in found.items()
    ]


def paused_line(status: RunStatus) -> list[str]:
    """Return ``paused by a command: lines``, or nothing."""
    return [f"paused by a command: {', '.join(status.paused)}"] if status.paused else []


def partition_cells(row: Mapping[str, Any], several: bool = False) -> tuple[str, ...]:
    """Return a partition's row as text for PARTITION_COLUMNS.

    ``several``: more than one spout has partitions.
    """
    where = f"{row.get('topic', '')}/{row.get('partition', '?')}"
    if several:
        where = f"{row.get('component', '?')} {where}"
    behind = row.get("behind_s")
    age = "-" if not isinstance(behind, int | float) else duration(behind) if behind else "0"
    return (where, *(count(row.get(key)) for key in PARTITION_COLUMNS[1:-1]), age)


def partition_table(rows: Iterable[Mapping[str, Any]], several: bool) -> list[tuple[str, ...]]:
    """Return the table of partitions as text: its heads, then a row each."""
    ordered = in_order(rows)
    table: list[tuple[str, ...]] = [PARTITION_COLUMNS, *(partition_cells(row, several) for row in ordered)]
    if not any(row.get("waits_at") for row in ordered):
        return table
    places = ["waits at", *(str(row.get("waits_at") or "-") for row in ordered)]
    return [(*cells, place) for cells, place in zip(table, places, strict=True)]


def in_order(partitions: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return partitions' rows by spout, topic and number."""
    return sorted(partitions, key=lambda row: (*_spout_and_topic(row), str(row.get("partition")).rjust(10)))


def _spout_and_topic(row: Mapping[str, Any]) -> tuple[str, str]:
    return str(row.get("component")), str(row.get("topic"))


def of_several_spouts(partitions: Iterable[Mapping[str, Any]]) -> bool:
    """Tell whether the rows need the names of their spouts."""
    return len({row.get("component") for row in partitions}) > 1


def component_lines(status: RunStatus, rates: Mapping[str, float]) -> Iterator[str]:
    """Yield the table of components as aligned text."""
    if status.components:
        yield from aligned(component_table(status, rates))
        yield from metric_lines(status)


def partition_lines(partitions: tuple[Mapping[str, Any], ...]) -> Iterator[str]:
    """Yield the table of partitions as aligned text."""
    if partitions:
        yield from aligned(partition_table(partitions, of_several_spouts(partitions)))


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield a table as text: its first row is the heads."""
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        gaps = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        numbers = (gap + cell for gap, cell in zip(gaps[1:], row[1:], strict=True))
        yield "  ".join([row[0] + gaps[0], *numbers]).rstrip()


def count(value: Any) -> str:
    """Return ``1,234,567``, or a dash for an unknown number."""
    return f"{value:,}" if isinstance(value, int) else "-"


def milliseconds(value: float | None) -> str:
    """Three digits that count: ``0.042``, ``3.14``, ``27``."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def duration(seconds: float) -> str:
    """Write a duration as ``4.2 s``, ``3:07 min``, ``1:02:07 h``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"


# -- where it goes -----------------------------------------------------------------------------------------


def _say(text: str) -> None:
    sys.stdout.write(printable(text, sys.stdout.encoding) + "\n")
    sys.stdout.flush()


def say_error(line: LogLine) -> None:
    """Write a log line to stderr in one write: lines of threads do not mix."""
    # A disk that is full or a terminal that is gone ends no run: where errors go, there is nobody left to tell.
    with contextlib.suppress(OSError):
        text = printable(shown_text(line), sys.stderr.encoding)
        sys.stderr.write(f"{datetime.now():%H:%M:%S} {line.level:<7} {text}\n")
        sys.stderr.flush()


def say_past_streams(text: str, descriptor: int = 2, before: str = "") -> None:
    """Write a line to a descriptor, past its stream; ``before`` as it is."""
    # Another thread may stand in a write of the stream for ever, with its lock.
    with contextlib.suppress(OSError):
        os.write(descriptor, f"{before}{printable(text)}\n".encode())


def begin_to_say(text: str, descriptor: int = 2, before: str = "") -> threading.Thread:
    """Write a line past its stream on a thread of its own; return that."""
    # Rule: of two streams that are written at once, none waits for the other's reader.
    writing = threading.Thread(target=say_past_streams, args=(text, descriptor, before), daemon=True)
    writing.start()
    return writing


def say_last_words(text: str, before: str = "") -> None:
    """Write a line to standard output; to standard error, too, where nobody reads there."""
    writing = begin_to_say(text, 1, before)
    writing.join(AT_WORK_S)
    if writing.is_alive():
        say_past_streams(text)
