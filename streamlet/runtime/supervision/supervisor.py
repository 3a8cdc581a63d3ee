"""The decisions about a run: when workers start, are trusted and replaced, and when the run is over.

Pure: events are method calls with the time in seconds; instructions come back, in order. The time counts
while the coordinator is awake (``base.clock.AwakeClock``): while it stood still, nobody was late.

    STARTING --ready--> READY --all linked--> UP          a link of a pair is cut: the pair links again
       ^                  |                   |           by the next version of the book, UP stays
       |                  +------ gone -------+
       +--- restart_at ---- GONE <------------+

- A worker's *epoch* counts its starts. An event of an older epoch is about a process that was replaced, and changes
  nothing.
- The *book* holds the addresses of all workers that listen. Each arrival, death or lost link makes a new version.
- The run is *whole* when every worker is initialised and linked by the present version. Only then may tuples flow, so
  no tuple is ever sent to a worker that is not there.
- *Ending*: pause, drain (until nothing is open, waiting or on its way), quiet (a last tick, then nothing new), drain
  once more, stop, closed. Each step has a deadline. From the first on nothing is replaced: open trees
  stay uncommitted for the next run.
- All trees acked is not all done: what a ``cleanup`` was to write is in no tree. A worker that dies before it has
  closed makes the run incomplete (``unclosed``).

Deliberately absent: clocks, sockets, processes (``backends.run_coordinator`` has them), and the fate of a single tree,
which only the ledger of its spout knows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from streamlet.base.backoff import Backoff
from streamlet.runtime.links.dialing import LinkAddress
from streamlet.runtime.links.links import Traffic
from streamlet.runtime.supervision.blame import CAREFUL_S, Blame
from streamlet.runtime.supervision.end_times import EndTimes
from streamlet.runtime.supervision.instructions import (
    AskWhy,
    GiveUp,
    Instruction,
    Kill,
    NoteDeadly,
    Replaced,
    Start,
    TellUser,
)
from streamlet.runtime.supervision.link_watch import LinkWatch
from streamlet.runtime.supervision.worker_states import HeldUp, WaitNotice, WorkerRecord, WorkerState
from streamlet.runtime.tasks.in_hand import STARTING, Holding
from streamlet.runtime.worker.messages import Book, Close, Cut, Lost, Pause, Quiet, TickNow, Whole

RESTART_REMEDY = "look at what its components do just before, or raise streamlet.worker.restarts.max."

START_REMEDY = (
    "it imports the topology's file before it is ready (on Spark it needs a free slot before that). Look at what is "
    "done there and in what it imports (on Spark, at what its cluster manager says of cores), or give it more time: "
    "streamlet.worker.start.timeout.secs."
)

CALL_REMEDY = "look at what that call does."

IMPORTING = " while it imported the topology's file, before any component was made"
"""Continues how a worker ended."""

IMPORT_REMEDY = (
    "look at what that file, and what it imports, does in a worker, which has no terminal and empty input: a C library "
    "that crashes (PYTHONFAULTHANDLER=1 shows where), os._exit, or memory that is not enough."
)

ASK_S = 5.0
"""Seconds after the start of a worker that is not ready before its launcher is asked why, and between two such asks."""

FRUITLESS_STARTS = 5
"""Starts in a row that may end in an import or a component's own start, as long as the run has not begun."""

WINDOW_S = 300.0
"""Seconds over which deaths and lost links are counted."""

ALONE_S = 10.0
"""Seconds since a worker's last death after which the next one counts as its first."""

KEPT_S = 1.0
"""Seconds of waiting for open trees alone until a drain has bolts tick early, and between two such ticks."""

STANDS_S = 3.0
"""Seconds of a drain without a processed tuple before the user reads whom it waits for."""

CPU_LOOK_S = 1.0
"""Seconds between two looks at the processor time of a silent worker."""

EXCUSED_HALTS, HALTS_S = 2, 600.0
"""So many stops of a worker by a signal, within so many seconds, charge no tuple."""

BUSY_SHARE, LEAST_WORK_S = 0.03, 0.03
"""Share of one processor, and seconds of it, that a silent worker must use to count as working."""

WORKED_S = 3.0
"""Seconds that a silent worker's use of its processor is added up over, and counts for."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds."""

    start_s: float = 30.0
    silent_s: float = 10.0
    heartbeat_s: float = 1.0
    busy_s: float = 300.0
    """Time that a silent worker may take while it uses its processor."""
    restarts: int = 20
    tuple_crashes: int = 3
    """Deaths after which a spout gives up a tuple; 0: its own limit alone counts."""
    drain_s: float | None = None
    """Time for draining. None: as long as is needed (``EndTimes``)."""
    timeout_s: float = 30.0
    """The longest time-out of messages."""
    stop_s: float | None = None
    """Time for closing. None: as long as is needed (``EndTimes``)."""


class Supervisor:
    """The state of a run. One thread.

    Events are the methods up to ``tick``; an event of an epoch that is not the worker's present one changes nothing.
    ``components``: the components of each worker, for the sentences about it. ``tasks``: the component of each task.
    """

    # Long: one machine. An event of one worker may start, drain, replace or end all others, so its edges stand
    # together. What can be said of one thing alone is elsewhere: `Blame`, `LinkWatch`, `WorkerState`.

    def __init__(
        self,
        workers: int,
        spout_workers: frozenset[int],
        limits: Limits,
        components: Mapping[int, str] = {},
        quiet_steps: int = 1,
        tasks: Mapping[int, str] = {},
    ) -> None:
        self.workers = {index: WorkerRecord() for index in range(workers)}
        self._components = components
        self.blame = Blame(tasks, limits.tuple_crashes)
        self._links = LinkWatch(limits.restarts, WINDOW_S)
        self._tracks = False
        """Whether a spout has ever opened a tree."""
        self._wait_notice = WaitNotice()
        self._held = HeldUp()
        self._asked_s = -math.inf
        """When the launcher was last asked why workers do not begin."""
        self.spout_workers = spout_workers
        self.limits = limits
        self.version = 0
        self.whole = False
        self.began = False
        """Whether it has ever been whole: then components have seen tuples."""
        self._end = EndTimes(limits.drain_s, limits.stop_s, limits.timeout_s)
        self.drained = False
        self.cut_short_s: float | None = None
        """The seconds that the drain had, if they were over before it was done."""
        self.unclosed: dict[int, str] = {}
        """Worker -> how it went, if its components had seen tuples and did not close."""
        self._progress_s = 0.0
        """When the drain began, or a worker had processed more; infinity once a standstill was told."""
        self._cut: dict[tuple[int, int], int] = {}
        """Pair of workers -> version of the book before which its links are void."""
        self._replaced: set[int] = set()
        """Workers to announce as replaced when the run is whole again."""
        self._too_late: set[int] = set()
        """Workers of spouts whose replacement stood when the run ended already: it was asked for no tuples."""
        self._quiet = 0
        self._quiet_steps = quiet_steps
        self._kept_since_s: float | None = None
        """Since when a drain waits for open trees alone, or had bolts tick for them."""
        self._backoff = Backoff(initial=0.1, maximum=5.0, jitter=0.0)

    # -- events ----------------------------------------------------------------------------------------------------

    def begin(self, now: float) -> list[Instruction]:
        """Start all workers."""
        return [self._start(index, now) for index in self.workers]

    def ready(self, index: int, epoch: int, address: LinkAddress, now: float) -> list[Instruction]:
        """Note that a worker listens."""
        worker = self.workers[index]
        # A message of an earlier epoch may come late: messages and deaths reach the coordinator in different ways.
        if worker.epoch != epoch or worker.state is not WorkerState.STARTING:
            return []
        worker.state, worker.address, worker.heard_s = WorkerState.READY, address, now
        return self._new_book()

    def initialized(self, index: int, epoch: int) -> list[Instruction]:
        """Note that a worker's components are initialised."""
        worker = self.workers[index]
        if worker.epoch != epoch:
            return []
        worker.initialized = True
        return self._maybe_whole()

    def initializing(self, index: int, epoch: int, component: str) -> None:
        """Note which component a worker initialises; an empty name when it is done."""
        if self.workers[index].epoch == epoch:
            self.workers[index].initializing = component

    def starts_again(self, index: int, epoch: int) -> bool:
        """Tell whether this is a replacement that has not come up yet."""
        worker = self.workers[index]
        return self.began and worker.epoch == epoch > 1 and not worker.initialized

    def linked(self, index: int, epoch: int, version: int) -> list[Instruction]:
        """Note that a worker has every link of a book's version."""
        worker = self.workers[index]
        if worker.epoch != epoch:
            return []
        worker.linked = version
        if version == self.version:
            self._links.linked(index)
        return self._maybe_whole()

    def unlinked(self, index: int, epoch: int, peer: int, why: str) -> None:
        """Note that a worker dials another without success."""
        if self.workers[index].epoch == epoch:
            self._links.refused(index, peer, why)

    def heard(self, index: int, epoch: int, now: float) -> None:
        """Note any sign of life."""
        if self.workers[index].epoch == epoch:
            self.workers[index].heard_s = now

    def state(
        self,
        index: int,
        epoch: int,
        drained: bool,
        caught_up: bool,
        now: float,
        done: bool = True,
        traffic: Traffic | None = None,
        idle: bool = False,
        quiet: int = 0,
    ) -> list[Instruction]:
        """Take a worker's report on its open trees and its spouts' ends.

        Not ``done``: some failed and were not replayed. ``traffic``: the frames of its links until now; None before the
        worker was paused for good. ``idle``: its queues are empty, though trees may be open. ``quiet``: after so
        many steps of quiet.
        """
        worker = self.workers[index]
        if worker.epoch != epoch:
            return []
        worker.caught_up, worker.done = caught_up, done
        # Only an answer that was given after the pause counts: an earlier one may be older than the last tuple, since
        # the worker's spouts could still emit.
        counts = traffic is not None and quiet >= self._quiet
        worker.drained, worker.idle = drained and counts, (drained or idle) and counts
        worker.traffic = traffic or ({}, {})
        if self.ending is None and self.whole and all(self.workers[index].caught_up for index in self.spout_workers):
            return self.end("caught_up", now)
        return self._maybe_stop(now)

    def link_lost(
        self, index: int, epoch: int, peer: int, peer_epoch: int, version: int, why: str = "", now: float = 0.0
    ) -> list[Instruction]:
        """Note the loss of a link that was made by ``version``.

        If both workers live on, they link again by the next version.
        """
        worker, other = self.workers[index], self.workers[peer]
        if worker.epoch != epoch or other.epoch != peer_epoch or self._end.closing:
            return []
        pair = (min(index, peer), max(index, peer))
        # Both ends report the same loss. The second report is about a link that is void already, and would start a
        # third round.
        if version < self._cut.get(pair, 0):
            self._links.lost_at_other_end((index, epoch), (peer, peer_epoch), why)
            return []
        if other.state is WorkerState.GONE or worker.state is WorkerState.GONE:
            return []
        self._links.lost((index, epoch), (peer, peer_epoch), why, now)
        book = self._new_book()
        self._cut[pair] = self.version
        return [Cut(pair, self.version), *book]

    def note_in_hand(self, index: int, epoch: int, holding: Holding | None, has_plan: bool = False) -> None:
        """Note what a worker has in hand, as its page says. Call it before ``gone``: the death is judged by it.

        ``has_plan``: it has read its plan, and imports.
        """
        if self.workers[index].epoch == epoch:
            self.workers[index].holding, self.workers[index].has_plan = holding, has_plan

    def gone(
        self, index: int, epoch: int, why: str, now: float, remedy: str = "", told: bool = False, blames: bool = True
    ) -> list[Instruction]:
        """Note that a worker ended, hung up, or was silent too long.

        ``remedy``: what helps, where that is known; ``told``: the user has read it. ``blames``: what it had in hand may
        be why.
        """
        worker = self.workers[index]
        if worker.epoch != epoch or worker.state is WorkerState.GONE:
            return []
        if not blames:
            worker.holding = None
        was_up = worker.state is WorkerState.UP
        # With a remedy the cause is known, and lies elsewhere.
        imported = worker.state is WorkerState.STARTING and worker.has_plan and not (worker.holding or remedy)
        why += IMPORTING if imported else ""
        ended = f"{why}{self.blame.in_hand_text(worker.holding)}"
        verdict = self.blame.judge(worker.holding, now)
        # Nobody takes its place while the run ends, so nothing comes one by one.
        why = f"{why}{verdict.text}" if self.ending is None else ended
        worker.state, worker.address = WorkerState.GONE, None
        self._links.gone(index)
        kill: list[Instruction] = [Kill(index, epoch)]
        if self._end.closing:
            return [*kill, *self._not_closed(index, f"{ended} before it had closed")]
        self.whole = False
        # With the first of its deaths: who waits for the last one waits for twenty.
        first = f": {remedy.rstrip('.')}" if remedy and not (told or worker.failed_starts) else ""
        lost = [*kill, TellUser("warning", f"worker {index} (epoch {epoch}) {why}{first}", index, epoch)]
        careful_s = CAREFUL_S if verdict.careful else 0.0
        lost.append(Lost(index, epoch, why, [*verdict.roots], [*verdict.careful], careful_s))
        if self.ending is not None:
            return [*lost, *self._not_closed(index, f"{ended} before it was to close"), *self._maybe_stop(now)]
        if self.began:
            self._replaced.add(index)
        # Two counts. Deaths within the window stop a worker that comes up and dies; `failed_starts` stops one that
        # never comes up, since its long starts and growing pauses would leave too few deaths in the window.
        worker.failed_starts = 0 if was_up else worker.failed_starts + 1
        in_own_start = worker.holding is not None and worker.holding.call in STARTING
        worker.fruitless_starts = worker.fruitless_starts + 1 if imported or in_own_start else 0
        pause_s = self._pause_s(worker, was_up, verdict.weight, now)
        known = IMPORT_REMEDY if imported else remedy or RESTART_REMEDY
        hopeless = self._out_of_restarts(index, why, verdict.weight, now, known)
        if hopeless is not None:
            return [*lost, hopeless]
        worker.restart_at = now + pause_s
        return [*lost, *self._new_book()]

    def _pause_s(self, worker: WorkerRecord, was_up: bool, weight: float, now: float) -> float:
        """Return the seconds before a worker's next start; count its death."""
        # Rule: the pause before a start grows with deaths that follow each other closely, or a start that comes to
        # nothing. Tuples wait for a worker that had worked: one killed now and then was started after five seconds.
        # Nor does one grow with deaths that the spout of a tuple counts: each brings that tuple's end nearer.
        alone = not worker.deaths or (was_up and now - worker.deaths[-1][0] >= ALONE_S)
        counted = weight < 1.0
        worker.quick_deaths = 0 if alone else worker.quick_deaths + (not counted)
        return self._backoff.delay(min(worker.quick_deaths, 1) if counted else worker.quick_deaths)

    def hung_up(self, index: int, epoch: int, now: float) -> list[Instruction]:
        """Note that a worker's channel ended, and its process did not."""
        # Rule: one that has closed is left to its exit, however long others still close. Taken for gone it was killed
        # a quarter of a second after its last message, while its libraries still flushed.
        return [] if self.workers[index].stopped else self.gone(index, epoch, "hung up", now)

    def _out_of_restarts(self, index: int, why: str, weight: float, now: float, remedy: str) -> GiveUp | None:
        """Count a death; return the end of the run if it was one too many."""
        worker = self.workers[index]
        worker.deaths.append((now, weight))
        while now - worker.deaths[0][0] > WINDOW_S:
            worker.deaths.popleft()
        # Rule: a component that takes its process along when it starts does so each time, and so does what a file does
        # when it is imported. Before the run has begun there is nothing to lose, and somebody waits for an answer: no
        # minute of the same line. A start that the system or Spark refuses may succeed later, and has its patience.
        fruitless = worker.failed_starts > self.limits.restarts
        if not self.began and worker.fruitless_starts:
            fruitless = fruitless or worker.fruitless_starts >= FRUITLESS_STARTS
            remedy = CALL_REMEDY if worker.holding is not None else remedy
        if not fruitless and sum(weight for _, weight in worker.deaths) <= self.limits.restarts:
            return None
        often = f"died {len(worker.deaths)} times within {WINDOW_S:.0f} s"
        if fruitless:
            often = f"was started {worker.failed_starts} times and never came up"
        return GiveUp(
            f"{self._worker_name(index, 'Worker')} {often}, the last time because it {why.rstrip('.')}. Restarting it "
            f"again would not help: {remedy}"
        )

    def silent_workers(self, now: float) -> list[tuple[int, int]]:
        """Return silent workers (index, epoch): their processor time is due for a look."""
        silent = self.limits.silent_s / 2
        return [
            (index, worker.epoch)
            for index, worker in self.workers.items()
            if worker.state in (WorkerState.READY, WorkerState.UP)
            and now - worker.heard_s > silent
            and now - worker.looked_s >= min(CPU_LOOK_S, silent / 4)
        ]

    def note_processor_time(
        self, index: int, epoch: int, used_s: float | None, now: float, halted: bool = False
    ) -> None:
        """Note how much processor time a silent worker has used; None if nobody can tell.

        ``halted``: a signal has stopped its process.
        """
        worker = self.workers[index]
        if worker.epoch != epoch:
            return
        worker.used_s, worker.looked_s, worker.halted = used_s, now, halted
        if used_s is None:
            return
        looks = [look for look in worker.looks if look[0] > worker.heard_s and now - look[0] <= WORKED_S]
        worker.looks = [*looks, (now, used_s)]
        since, before = worker.looks[0]
        # Threads that wait for the interpreter's lock wake up two hundred times a second: that is no work. And on a
        # machine with too much to do a worker that works gets its turn rarely: so all looks of some seconds count.
        if used_s - before >= max(LEAST_WORK_S, BUSY_SHARE * (now - since)):
            worker.worked_s = now

    def unfit(self, index: int, epoch: int, why: str, now: float) -> list[Instruction]:
        """Replace a worker that asks for it; while the run drains, end it."""
        # Rule: also while the run waits for others. A loop that hangs links with nobody, so what waits for its links
        # would wait for ever, and a drain stand until its own end.
        if self._end.closing or self.workers[index].state is not WorkerState.UP:
            return []
        return self.gone(index, epoch, f"was {'replaced' if self.ending is None else 'ended'} because it {why}", now)

    def end(self, reason: str, now: float) -> list[Instruction]:
        """Begin to end the run: drain first."""
        if self.ending is not None:
            if reason == "interrupted" != self.ending:
                self._end.interrupt(now, self._work_left_s())
            return []
        self._progress_s = now
        # Rule: nobody is started while the run ends. A replacement would read, and its trees be open at the end.
        for worker in self.workers.values():
            worker.restart_at = None
        text = self._end.begin(reason, now, self._work_left_s(), self._processed_by_all())
        # Nothing has flowed yet, so nothing is to be drained, and workers that still start could not answer.
        if not self.began:
            return [self.pause, *self._stop(now)]
        told = [TellUser("info", text)] if text else []
        return [self.pause, *told, *self._maybe_stop(now)]

    @property
    def pause(self) -> Pause:
        """The message to workers while the run ends. It names those whom they wait for no longer."""
        return Pause([index for index, worker in self.workers.items() if worker.state is WorkerState.GONE])

    @property
    def drain_if_asked_now_s(self) -> float:
        """How long a drain may take that begins now."""
        return self._end.drain_if_asked_now_s(self._work_left_s())

    def _work_left_s(self) -> float:
        up = [worker for worker in self.workers.values() if worker.state is WorkerState.UP]
        # Workers work side by side, but the last tuple may have to go through a call in each of them.
        return max((worker.wait_s for worker in up), default=0.0) + sum(worker.call_s for worker in up)

    def waiting(
        self, index: int, epoch: int, wait_s: float, call_s: float, now: float, untracked: bool = False
    ) -> list[Instruction]:
        """Note how much work waits in a worker.

        In seconds; ``call_s``: one call of its slowest bolt. ``untracked``: untracked tuples wait in the run. Call it
        after ``processed``.
        """
        worker = self.workers[index]
        if worker.epoch != epoch:
            return []
        worker.wait_s, worker.call_s = wait_s, call_s
        text = self._end.found_call(call_s)
        if wait_s > 0:
            left_s, processed = self._work_left_s(), self._processed_by_all()
            text = self._end.found_work(now, left_s, processed, untracked=untracked) or text
        return [TellUser("info", text)] if text else []

    def _processed_by_all(self) -> int:
        return sum(worker.processed for worker in self.workers.values())

    def processed(self, index: int, epoch: int, tuples: int, now: float) -> None:
        """Note a worker's count of processed tuples. While it grows, a run that has caught up goes on draining."""
        worker = self.workers[index]
        if worker.epoch != epoch or worker.processed == tuples:
            return
        worker.processed = tuples
        self._progress_s = now
        self._end.progressed(now)
        if not self._tracks:
            self._links.something_was_done()

    def completed(self, index: int, epoch: int, trees: int, *, tracked: bool) -> None:
        """Note how many trees of a worker's spouts are done; ``tracked``: whether they have opened any."""
        # Not what bolts have processed, where there are trees: a run whose links never last works on replays for ever.
        self._tracks |= tracked
        worker = self.workers[index]
        if worker.epoch == epoch and trees > worker.trees_done:
            worker.trees_done = trees
            self._links.something_was_done()

    def stopped(self, index: int, epoch: int) -> None:
        """Note that a worker has closed its components."""
        if self.workers[index].epoch == epoch:
            self.workers[index].stopped = True

    def tick(self, now: float) -> list[Instruction]:
        """Let time pass: due restarts, silent workers, drains and ends that take too long."""
        out: list[Instruction] = []
        if self.ending is not None and not self._end.closing and self._end.is_over(now):
            if self.began:
                self.cut_short_s = self._end.drained_s()
            out += self._stop(now)
        if self._end.closing:
            return [*out, *self._kill_unstopped(now)] if self._end.is_over(now) else out
        out += [*self._links.tick(now), *self._tell_waiting(now), *self._tell_standing_drain(now)]
        out += self._tick_for_kept(now)
        for index, worker in self.workers.items():
            if worker.state is WorkerState.GONE:
                if worker.restart_at is not None and now >= worker.restart_at:
                    out.append(self._start(index, now))
                continue
            limit = self.limits.start_s if worker.state is WorkerState.STARTING else self.limits.silent_s
            if now - worker.heard_s <= limit:
                worker.busy = False
            elif worker.state is WorkerState.STARTING:
                out += self._not_ready(index, worker.epoch, limit, now)
            else:
                out += self._silent(index, worker, now)
        return out

    def _not_ready(self, index: int, epoch: int, limit_s: float, now: float) -> list[Instruction]:
        why, held = f"was not ready {limit_s:g} s after its start", self._held
        if (index, epoch) not in held.workers:
            return self.gone(index, epoch, why, now, START_REMEDY)
        told = bool(held.why) and held.why == self._wait_notice.told
        return self.gone(index, epoch, f"{why} (it {held.lacks})", now, held.why or START_REMEDY, told)

    def _silent(self, index: int, worker: WorkerRecord, now: float) -> list[Instruction]:
        """Replace a worker that was silent for too long, unless it works."""
        # Code that holds the interpreter's lock (a regular expression, a C library) silences the heartbeat, too. Work
        # that goes on is not helped by a replacement, which would come to the same tuple again.
        silent_s = now - worker.heard_s
        works = now - worker.worked_s <= WORKED_S
        if works and silent_s <= self.limits.busy_s:
            if worker.busy:
                return []
            worker.busy = True
            return [
                TellUser(
                    "warning",
                    f"{self._worker_name(index)} has been silent for {silent_s:.0f} s and uses its processor"
                    f"{self.blame.in_hand_text(worker.holding)}: it is busy in code that holds the interpreter's lock. "
                    f"It is left alone while it works, up to {self.limits.busy_s:g} s "
                    "(streamlet.worker.busy.timeout.secs).",
                    index,
                    worker.epoch,
                )
            ]
        if worker.halted and self._is_excused(worker, now):
            why = f"was silent for {silent_s:.0f} s: its process was stopped by a signal (SIGSTOP, a debugger)"
            return self.gone(index, worker.epoch, why, now, blames=False)
        if works:
            why = f"was silent for {silent_s:.0f} s, though it used its processor"
        else:
            why = f"was silent for {silent_s:.0f} s"
            why += " and used no processor time" if worker.used_s is not None else ""
        return [*self.gone(index, worker.epoch, why, now), NoteDeadly(index, worker.epoch, why)]

    @staticmethod
    def _is_excused(worker: WorkerRecord, now: float) -> bool:
        """Tell whether a stop by a signal charges nothing."""
        # Rule: a stop mostly comes from outside, and charges no tuple. One that comes again and again may be the
        # tuple's own doing: the third within minutes is judged as any silence. Excused each time, it goes on for ever.
        while worker.halts and now - worker.halts[0] > HALTS_S:
            worker.halts.popleft()
        worker.halts.append(now)
        return len(worker.halts) <= EXCUSED_HALTS

    def _tell_waiting(self, now: float) -> list[Instruction]:
        notice, name = self._wait_notice, self._worker_name
        text = notice.text(self.whole, self.version, self.workers, self._links, name, now, self._held, self.began)
        told: list[Instruction] = [TellUser("warning", text)] if text else []
        return [*told, *self._ask_why(now)]

    def _ask_why(self, now: float) -> list[Instruction]:
        # Rule: ask the launcher before telling the user that a worker "does not listen". The cause may lie outside of
        # every worker, as a cluster that is away, and would be looked for in the components.
        starting = {index: w for index, w in self.workers.items() if w.state is WorkerState.STARTING}
        late = any(now - worker.heard_s >= ASK_S for worker in starting.values())
        if not late or self.ending is not None or now - self._asked_s < ASK_S:
            return []
        self._asked_s = now
        return [AskWhy(frozenset((index, worker.epoch) for index, worker in starting.items()))]

    def held_up(self, held: HeldUp) -> None:
        """Note what the launcher answers to an ``AskWhy``."""
        self._held = held

    def _tell_standing_drain(self, now: float) -> list[Instruction]:
        """Tell whom a drain that stands still waits for."""
        # Rule: from outside, by the page of each worker. One in code that holds the interpreter's lock says nothing
        # itself, and the watch of hanging calls speaks later than most drains last.
        stands_s = max(STANDS_S, 2 * self.limits.heartbeat_s)  # what was processed is known by heartbeats
        if self.ending is None or now - self._progress_s < stands_s:
            return []
        left = {index: w for index, w in self.workers.items() if w.state is WorkerState.UP and not w.drained}
        waits = [
            f"{self._worker_name(index)}{self.blame.in_hand_text(worker.holding)}"
            for index, worker in left.items()
            if not worker.idle
        ]
        # The worker of a spout has open trees as long as a bolt elsewhere has a tuple of theirs: its worker is named
        # with it, where one is known.
        waits = waits or [
            f"{self._worker_name(index)}{text}"
            for index, worker in self.workers.items()
            if worker.state is WorkerState.UP and (text := self.blame.in_hand_text(worker.holding))
        ]
        waits = waits or [
            f"open trees of {self._worker_name(index)}, which a bolt keeps or waits with" for index in left
        ]
        if not waits:
            return []
        self._progress_s = math.inf  # once for each standstill: `processed` goes on from here
        text = f"Nothing was processed for {stands_s:g} s, and the end of the run waits for {'; '.join(waits)}"
        return [TellUser("warning", f"{text}: for {math.ceil(self._end.deadline - now)} s more at most.")]

    @property
    def ending(self) -> str | None:
        """Why the run ends, None while it goes on."""
        return self._end.reason

    @property
    def stopping(self) -> bool:
        """Whether the workers were asked to close."""
        return self._end.closing

    @property
    def over(self) -> bool:
        """Whether every worker has stopped or is gone."""
        return self._end.closing and all(w.stopped or w.state is WorkerState.GONE for w in self.workers.values())

    def validate(self) -> None:
        """Check the invariants between the fields. Raises AssertionError. For tests."""
        for index, worker in self.workers.items():
            listens = worker.state in (WorkerState.READY, WorkerState.UP)
            assert (worker.address is not None) == listens, f"worker {index} is {worker.state} at {worker.address}"
            assert worker.linked <= self.version, f"worker {index} is linked by a book of the future"
            assert worker.restart_at is None or worker.state is WorkerState.GONE, f"worker {index} would start twice"
            if self.whole and not self._end.closing:
                assert worker.state is WorkerState.UP and worker.initialized, f"worker {index} is not up"
        assert self.began or not self.whole
        assert self.ending is not None or not (self._end.closing or self.drained or self.unclosed)
        assert self._end.closing or not self.drained
        assert not self._replaced or self.began
        assert all(version <= self.version for version in self._cut.values())
        assert not (self.whole and self._replaced), "a replacement was not announced"

    # -- decisions ---------------------------------------------------------------------------------------------------

    def _start(self, index: int, now: float) -> Start:
        before = self.workers[index]
        epoch = before.epoch + 1
        # The counts of deaths outlive the record: else a worker that dies at each start would be started for ever.
        worker = WorkerRecord(
            WorkerState.STARTING,
            epoch,
            heard_s=now,
            deaths=before.deaths,
            quick_deaths=before.quick_deaths,
            failed_starts=before.failed_starts,
            fruitless_starts=before.fruitless_starts,
            halts=before.halts,
        )
        self.workers[index] = worker
        return Start(index, epoch)

    def _new_book(self) -> list[Instruction]:
        self.version += 1
        self.whole = False
        book = {index: (w.epoch, *w.address) for index, w in self.workers.items() if w.address is not None}
        return [Book(self.version, book)]

    def _maybe_whole(self) -> list[Instruction]:
        if self.whole or self._end.closing:
            return []
        for worker in self.workers.values():
            # Linked by this very version: links of an earlier book may lead to a worker that was replaced since.
            if worker.address is None or not worker.initialized or worker.linked != self.version:
                return []
        for worker in self.workers.values():
            worker.state = WorkerState.UP
            # Rule: an end counts that is reported after this. Trees failed as lost meanwhile, and a spout that had
            # caught up has them to replay; each worker reports again now.
            worker.caught_up = False
        self.whole = self.began = True
        replaced = [Replaced(index, self.workers[index].epoch) for index in sorted(self._replaced)]
        if self.ending is not None:
            self._too_late |= self._replaced & self.spout_workers
        self._replaced.clear()
        return [Whole(self.version), *replaced]

    def _maybe_stop(self, now: float) -> list[Instruction]:
        if self.ending is None or self._end.closing:
            return []
        # Every worker, those without spouts too: where nothing is tracked, tuples wait at bolts though no tree is open.
        up = {index: worker for index, worker in self.workers.items() if worker.state is WorkerState.UP}
        # With a worker that is gone the open trees cannot all be acked, and the next run reads them again. What waits
        # at the others is worked off all the same: nobody else has it where it is not tracked.
        missing = len(up) < len(self.workers)
        if not all(w.idle if missing else w.drained for w in up.values()) or self._on_its_way(up):
            return []
        # A tick, or another thread, may fill an empty queue again. So these end first, bolt after bolt down the
        # topology, and only answers after that count: what they emit would reach workers that close.
        if up and self._quiet < self._quiet_steps:
            self._quiet += 1
            for worker in up.values():
                worker.drained = worker.idle = False
            return [Quiet(self._quiet)]
        # Rule: a spout that came back too late has sent nothing again, so what was open when it died is not done.
        self.drained = not (missing or self._too_late) and all(w.done for w in up.values())
        return self._stop(now, settled=True)

    def _tick_for_kept(self, now: float) -> list[Instruction]:
        """Have bolts tick when a drain waits for open trees alone."""
        # Rule: a bolt that collects tuples until its tick would keep each drain that is shorter than its period from
        # its end. Not at once: a bolt that waits for an answer from elsewhere has open trees as well.
        workers = self.workers.values()
        idle = all(worker.state is WorkerState.UP and worker.idle for worker in workers)
        if self.ending is None or not idle or all(worker.drained for worker in workers):
            self._kept_since_s = None
        elif self._kept_since_s is None:
            self._kept_since_s = now
        elif now - self._kept_since_s >= KEPT_S and not self._on_its_way(self.workers):
            self._kept_since_s = now
            return [TickNow()]
        return []

    @staticmethod
    def _on_its_way(up: Mapping[int, WorkerRecord]) -> bool:
        """Tell whether a sent frame is not counted as read yet."""
        # Every worker was idle when it spoke, though not all at the same moment. One that has become busy since did so
        # by a frame, and the first such frame was sent before its sender spoke: it is in one count of its pair and not
        # in the other (Mattern 1987, vector counters). One sum over all pairs would not do: frames of one pair could
        # stand for those of another.
        workers = up.items()
        return any(
            one.traffic[0].get(other, 0) != receiver.traffic[1].get(index, 0)
            for index, one in workers
            for other, receiver in workers
            if other != index
        )

    def _stop(self, now: float, settled: bool = False) -> list[Instruction]:
        self._end.close(now)
        out: list[Instruction] = [Close(clean=True, settled=settled)]
        for index, worker in self.workers.items():
            if worker.state is WorkerState.STARTING:
                out.append(self._kill(index))  # not up yet: it holds nothing to close
            if worker.state is WorkerState.GONE:
                out += self._not_closed(index, "had died and was not back when the run ended")
        return out

    def _kill_unstopped(self, now: float) -> list[Instruction]:
        """Kill and name every worker that has not closed by the deadline."""
        out: list[Instruction] = []
        for index, worker in self.workers.items():
            if not worker.stopped and worker.state is not WorkerState.GONE:
                how = f"did not stop within {self._end.closing_s(now):.1f} s and was killed"
                text = f"{self._worker_name(index)} {how}"
                told = self._not_closed(index, f"{how}{self.blame.in_hand_text(worker.holding)}") or [
                    TellUser("warning", text, index, worker.epoch)
                ]
                out += [*told, self._kill(index)]
        return out

    def _not_closed(self, index: int, how: str) -> list[Instruction]:
        """Name a worker that is gone before its components were closed."""
        if not self.began or self.workers[index].stopped or index in self.unclosed:
            return []  # no tuple was ever seen, or it has closed, or this is known
        self.unclosed[index] = text = f"{self._worker_name(index)} {how}"
        missing = f"{text}: what its cleanup was to write may be missing"
        return [TellUser("warning", missing, index, self.workers[index].epoch)]

    def _worker_name(self, index: int, noun: str = "worker") -> str:
        """Return ``worker 1 (count, store)``."""
        return f"{noun} {index} ({self._components[index]})" if index in self._components else f"{noun} {index}"

    def _kill(self, index: int) -> Kill:
        worker = self.workers[index]
        worker.state, worker.address = WorkerState.GONE, None
        return Kill(index, worker.epoch)
