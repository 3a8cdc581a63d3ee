"""The whole topology in this process, on this thread.

For development, tests and small jobs. With ``streamlet.seed`` and a ManualClock two runs are alike to the last edge id.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import math
import random
import signal
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from streamlet.backends.contract import ComponentStatus, Observer, RunRequest, RunResult, RunStatus, Stop
from streamlet.backends.outcome import check_end, drained_failure, failed_result
from streamlet.backends.untracked_losses import UntrackedLosses
from streamlet.base.clock import Clock, SystemClock
from streamlet.base.environment import environment
from streamlet.base.errors import StreamletError
from streamlet.base.pools import MOST_S, STILL_S, pool_threads, wait_for_pools
from streamlet.components.batch import Batch
from streamlet.components.tuples import Tuple
from streamlet.model.plan import make_plan
from streamlet.runtime.links.links import NoLinks
from streamlet.runtime.supervision.end_times import EndTimes, drain_needed_s
from streamlet.runtime.supervision.supervisor import KEPT_S
from streamlet.runtime.tasks.building import WorkerContext, component_names
from streamlet.runtime.tasks.task_stats import component_rows
from streamlet.runtime.tasks.user_errors import Complaints, exited
from streamlet.runtime.worker.hang_watch import Hang, HangWatch, call_text, present_call, stack_in_call
from streamlet.runtime.worker.log_lines import ABOUT, Place, at_work, line_now, prints_of
from streamlet.runtime.worker.loop import DRAINING, Trace, WorkerLoop
from streamlet.runtime.worker.printed_lines import prints_told
from streamlet.runtime.worker.standstill import gap_of

LOOK_S = 0.25
"""Seconds between two looks at the call that the run is in."""
STALL_S = 2.0
"""Seconds between two looks that count for no call: the process was stopped, or its interpreter's lock was held."""
STATUS_S = 1.0
"""Seconds between two statuses for the observer."""
END_LOOK_S = 0.02
"""Seconds that the loop may sleep between two looks at whether the run should end."""

MEASURE_S = 1.0
"""Seconds between two measurements of the work that a drain has left."""

logger = logging.getLogger("streamlet")


class InlineBackend:
    """Runs a topology on the calling thread. ``trace`` receives every run of tuples (for tests)."""

    name = "inline"

    def __init__(self, clock: Clock | None = None, trace: Trace | None = None) -> None:
        self._clock = clock or SystemClock()
        self._trace = trace
        self.loop: WorkerLoop | None = None
        self._partitions: tuple[Mapping[str, Any], ...] = ()
        """As last looked at: a spout is asked on its own thread alone."""

    def run(self, request: RunRequest, observer: Observer, stop: Stop) -> RunResult:
        """Run on the calling thread; see ``Backend.run``.

        Errors of bolts go to ``observer.on_event``; a spout that raises ends the run.
        """
        # Long: a run from its making to its verdict, with all that surrounds it while it lasts: output, log,
        # environment.
        seed = request.conf["streamlet.seed"]
        errors: list[str] = []

        def tell(level: str, text: str, component: str, task: int) -> None:
            observer.on_event(line_now(level, text, component=component, task=task))

        complaints = Complaints(tell, self._clock, errors.append)
        shared = WorkerContext(
            plan=make_plan(request.topology, 1, request.conf),
            worker=0,
            epoch=1,
            # Rule: never of the seed. Who names files by it would write over those of the run before, and an owner
            # of partitions would take itself for the one that was deposed.
            topology_id=str(uuid.uuid4()),
            conf=request.conf,
            clock=self._clock,
            rng=random.Random(seed),
            report=complaints.report,
            explain=complaints.explain,
            finish_pools=partial(wait_for_pools, pool_threads(), STILL_S, MOST_S),
            wake=lambda: loop.post(lambda: None),
            overrides=request.overrides,
            tell=tell,
        )
        loop = self.loop = WorkerLoop(shared, NoLinks(), self._trace)
        self._started = self._clock.monotonic()
        stop.look = partial(self._look, loop)
        clean = False
        failed: StreamletError | None = None
        left: dict[str, int] = {}
        # Where stdout carries JSON, a user's print goes to stderr, as it does in a worker.
        quiet = contextlib.redirect_stdout(sys.stderr) if request.quiet_stdout else contextlib.nullcontext()
        place = Place(shared.in_hand.words, {task.task_id: task.component for task in shared.plan.tasks}, 0, 1)
        # A clock that is set by hand stands still during a call.
        watched = _CallWatch(loop, shared, stop) if isinstance(self._clock, SystemClock) else contextlib.nullcontext()
        surroundings = environment(request.conf["topology.environment"] or {})
        # The place outermost: the watch's last words, when it is left, still belong to a task of it.
        with at_work(place), watched, quiet, _prints(request, observer), surroundings, _crash_told():
            try:
                loop.initialize()
                loop.activate()
                loop.ledgers.retires = True
                reason = self._turn_until_over(loop, request, observer, stop)
                reason, drained, cut_s = self._drain(loop, request.conf, reason, stop, observer)
                left = loop.left_over(settled=True, ticks=True)
                clean = True
            except StreamletError as error:
                loop.finish_open_trees()
                left = _left_by(loop)
                failed = error
                if loop.ledgers.failure is not None:  # the first reason counts
                    failed = loop.ledgers.failure
                    failed.__cause__ = error
            except Exception:
                raise
            except BaseException as error:  # a sys.exit() must not decide our exit status
                if isinstance(error, KeyboardInterrupt) and _was_pressed(stop):
                    raise
                left = _left_by(loop)
                failed = exited(error, component_names(loop.tasks.values()))
            finally:
                raised = loop.close(clean)
        status = self._status(loop, "ended", left, caught_up=failed is None and reason == "caught_up")
        observer.on_status(status)
        if failed is not None:
            failed.result = failed_result(status, left)
            raise failed
        complaints.flush()
        result = RunResult(reason, status, drained, left=left, drain_cut_s=cut_s)
        if loop.ledgers.failure is not None:
            raise drained_failure(loop.ledgers.failure, result, errors, [str(error) for error in raised])
        try:
            return check_end(result, request.topology, errors, [str(error) for error in raised])
        except StreamletError as error:
            raise error from (raised[0] if raised else None)  # for the traceback that --debug shows

    def _turn_until_over(self, loop: WorkerLoop, request: RunRequest, observer: Observer, stop: Stop) -> str:
        clock = self._clock
        self._started = shown = clock.monotonic()
        sleep_s = 0.0
        while True:
            sleep_s = loop.turn(min(sleep_s, END_LOOK_S))
            now = clock.monotonic()
            if now - shown >= STATUS_S:
                shown = now
                observer.on_status(self._status(loop, "running"))
            if loop.ledgers.failure is not None:
                return "failed"
            if stop.asked:
                return "interrupted"
            if request.seconds is not None and now - self._started >= request.seconds:
                return "time"
            if request.until_caught_up and loop.at_rest and loop.ledgers.caught_up():
                return "caught_up"

    def _drain(
        self, loop: WorkerLoop, conf: Mapping[str, Any], reason: str, stop: Stop, observer: Observer
    ) -> tuple[str, bool, float | None]:
        """Work off open trees; return why the run ends, whether all is done, and the seconds that were too few."""
        loop.pause(DRAINING)
        end = EndTimes(conf["streamlet.drain.timeout.secs"], None, loop.plan.longest_timeout_s(conf))
        now = measured_at = self._clock.monotonic()
        _tell_if_any(observer, end.begin(reason, now, sum(loop.census.work_left()), loop.processed()))
        processed, kept_since = 0, math.inf
        while True:
            sleep_s = loop.turn()
            if loop.at_rest and loop.idle and not loop.ledgers.pending():
                if loop.quiet == loop.quiet_steps:
                    return reason, not loop.ledgers.unfinished(), None
                loop.be_quiet(loop.quiet + 1)
                continue
            now, before, processed = self._clock.monotonic(), processed, loop.processed()
            kept_since = min(kept_since, now) if loop.idle else math.inf
            if now - kept_since >= KEPT_S:  # as `Supervisor._tick_for_kept`
                kept_since = now
                loop.tick_now()
            if processed != before:
                end.progressed(now)
            if stop.asked and reason != "interrupted":  # no more time than after any Ctrl-C
                reason = "interrupted"
                end.interrupt(now, sum(loop.census.work_left()))
            if now - measured_at >= MEASURE_S:
                measured_at = now
                wait_s, call_s = loop.census.work_left()
                _tell_if_any(observer, end.found_call(call_s))
                if wait_s > 0:
                    untracked = bool(_waiting(loop))
                    _tell_if_any(observer, end.found_work(now, wait_s + call_s, processed, untracked=untracked))
            if end.is_over(now):
                return reason, False, end.drained_s()
            loop.turn(min(sleep_s, END_LOOK_S))

    def _look(self, loop: WorkerLoop) -> RunStatus:
        """Return the status at this moment. Any thread: no code of the user's is called."""
        final, unfinished = loop.untracked.look_at_final(), loop.untracked.look_at_open()
        pairs = []
        for live in [*loop.tasks.values()]:
            row, task = dict(live.task.stats.snapshot()), live.plan.task_id
            told = {name: counts.get(task, 0) for name, counts in final._asdict().items()}
            newest = {name: max(row[name], told[name]) for name in told}
            pairs.append((live.plan.component, {**row, **newest, "open": unfinished.get(task, 0)}))
        rows, waiting = component_rows(loop.plan.topology, pairs), _waiting(loop)
        return RunStatus(
            state="running",
            elapsed_s=self._clock.monotonic() - self._started,
            components=tuple(ComponentStatus(**row, untracked=waiting[row["name"]]) for row in rows),
            partitions=self._partitions,
            pending=sum(unfinished.values()),
            workers=({"worker": 0, "epoch": 1},),
        )

    def _status(self, loop: WorkerLoop, state: str, left: Mapping[str, int] = {}, caught_up: bool = False) -> RunStatus:
        loop.ledgers.note_open()
        pairs = [(live.plan.component, live.task.stats.snapshot()) for live in loop.tasks.values()]
        rows = component_rows(loop.plan.topology, pairs, caught_up)
        waiting = _waiting(loop) if state != "ended" else Counter()
        for row in rows:
            row["untracked"] = waiting[row["name"]]
            row["lost"] += left.get(row["name"], 0)
        self._partitions = tuple(loop.ledgers.partitions())
        return RunStatus(
            state=state,
            elapsed_s=self._clock.monotonic() - self._started,
            components=tuple(ComponentStatus(**row) for row in rows),
            partitions=self._partitions,
            pending=sum(row["open"] for row in rows) if caught_up else loop.ledgers.unfinished(),
            workers=({"worker": 0, "epoch": 1},),
            hanging=tuple(
                {"worker": 0, "component": loop.plan.tasks[row["task"] - 1].component, **row}
                for row in loop.long_calls.rows()
            ),
        )


def _tell_if_any(observer: Observer, text: str) -> None:
    if text:
        observer.on_event(line_now("info", text))


def _waiting(loop: WorkerLoop) -> Counter[str]:
    """Count the untracked tuples that wait, by bolt. Any thread."""
    losses = UntrackedLosses(loop.plan)
    losses.heard(0, loop.untracked.look(), {})
    return losses.waiting()


def _left_by(loop: WorkerLoop) -> dict[str, int]:
    """Count the untracked tuples that an error left, by bolt."""
    with contextlib.suppress(Exception):  # why the run failed is known, and this only adds a number
        return loop.left_over(settled=True, ticks=False) if loop.activated else {}
    return {}


@contextlib.contextmanager
def _crash_told() -> Iterator[None]:
    """Write a crash of this process, with its place, to standard error."""
    # Rule: a C library's crash takes the run along, and nobody is left to name it. By its descriptor: what stands in
    # for sys.stderr (a notebook's, a test's) may have none. Who has chosen another place keeps it.
    if faulthandler.is_enabled():
        yield
        return
    faulthandler.enable(file=2)
    try:
        yield
    finally:
        faulthandler.disable()


def _was_pressed(stop: Stop) -> bool:
    """Tell whether a KeyboardInterrupt may be a Ctrl-C; else a component raised it."""
    # Where a run has handlers of its own, Ctrl-C raises nothing before it has asked the run to stop.
    return stop.asked or signal.getsignal(signal.SIGINT) is signal.default_int_handler


class _CallWatch:
    """Names calls that do not return, while entered. On a thread of its own: the run's is in the call."""

    def __init__(self, loop: WorkerLoop, shared: WorkerContext, stop: Stop) -> None:
        self._loop, self._shared, self._stop = loop, shared, stop
        drain_s = shared.conf["streamlet.drain.timeout.secs"]
        limit_s = shared.conf["streamlet.task.hang.secs"]
        self._gap_s = gap_of(STALL_S, LOOK_S, limit_s)
        self._long = HangWatch(limit_s, self._gap_s)
        self._last = HangWatch(drain_s or drain_needed_s(0.0, shared.plan.longest_timeout_s(shared.conf)), STALL_S)
        """For a run that is to end."""
        self._told_last = -math.inf
        """When the call began that a run that is to end was last told to wait for."""
        self._run_thread = threading.get_ident()
        self._looks, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._look_until_over, name="calls", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()
        self._looks.wait(STALL_S)  # before the first call of a component: it may hold the lock from then on

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look_until_over(self) -> None:
        self._look()
        self._looks.set()
        over = False
        while not over:
            over = self._over.wait(LOOK_S)
            self._look()

    def _look(self) -> None:
        now = self._shared.clock.monotonic()  # before the look: the run may hold the lock between these two
        self._loop.long_calls.standstill.look(now, self._gap_s)
        look, tup = present_call(self._shared.in_hand, self._loop.tasks)
        hang = self._long.observe(look, now)
        if hang is not None:  # else the loop looks itself
            self._loop.long_calls.look(self._gap_s, self._log)
        if hang is not None and hang.first:
            self._tell(hang, tup, "Nothing else runs meanwhile.")
        if self._long.over is not None:
            told = self._long.over
            name = self._name(told.look.task)
            logger.warning("%s went on after more than %.0f s.", name, told.seconds, extra=self._about(told.look.task))
        hang = self._last.observe(look, now)
        if hang is not None and self._stop.asked and hang.look.began != self._told_last:
            self._told_last = hang.look.began
            remedy = "a second Ctrl-C or SIGTERM kills it, and what is open is then replayed."
            self._tell(hang, tup, f"The run cannot end before that call returns: {remedy}")

    def _tell(self, hang: Hang, tup: Tuple | Batch | None, follows: str) -> None:
        call = call_text(hang, tup, self._name(hang.look.task))
        stack = stack_in_call(self._run_thread, hang.look, self._shared.in_hand, self._loop.tasks)
        logger.warning("The run has been in %s. %s%s", call, follows, stack, extra=self._about(hang.look.task))

    def _log(self, level: str, text: str, component: str, task: int) -> None:
        # Not by the observer, which is called on the run's thread alone.
        logger.log(getattr(logging, level.upper()), "%s", text, extra={ABOUT: (component, task)})

    def _name(self, task_id: int) -> str:
        return f"{self._component(task_id)} (task {task_id})"

    def _about(self, task_id: int) -> dict[str, tuple[str, int]]:
        return {ABOUT: (self._component(task_id), task_id)}

    def _component(self, task_id: int) -> str:
        return self._loop.plan.tasks[task_id - 1].component


def _prints(request: RunRequest, observer: Observer) -> contextlib.AbstractContextManager[None]:
    # The run's own thread alone: the others of this process, which shows the run, print no tuples' news.
    if not request.keeps_log:
        return contextlib.nullcontext()
    return prints_told(observer.on_event, partial(prints_of, threading.get_ident()))
