"""The coordinator of one run: the shell around ``runtime.supervision``.

The supervisor decides and this does: channels, the clock, the status that an observer sees. One thread, which is the
caller's, owns all of it; others may only hand in a channel (``adopt``). How a worker starts, and how its channel comes
to be, is left to a Launcher: worker processes on this machine, or slots on Spark executors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import mmap
import os
import secrets
import selectors
import shutil
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from streamlet.backends import run_commands
from streamlet.backends.command_listener import CommandListener
from streamlet.backends.contract import ComponentStatus, Observer, RunRequest, RunResult, RunStatus, Stop
from streamlet.backends.folders import recreate_if_swept, run_folder
from streamlet.backends.kernel_records import Memory, killed_for_memory, memory, processor
from streamlet.backends.outcome import (
    HUNG,
    MOST_ERRORS,
    RunFailed,
    check_end,
    drained_failure,
    failed_result,
)
from streamlet.backends.run_certificate import certificate_of
from streamlet.backends.run_numbers import RunNumbers
from streamlet.backends.untracked_losses import TupleLoss
from streamlet.base.clock import AwakeClock, Clock, SystemClock
from streamlet.base.errors import EXIT_FAILED, BadInput, StreamletError
from streamlet.base.log_line import RUN, LogLine
from streamlet.base.untracked import NO_FAILURES_HEARD, NOBODY_SENDS, untracked_text
from streamlet.model.paused import PausedPart
from streamlet.model.plan import Plan, fingerprint, make_plan
from streamlet.model.spec import SPOUT
from streamlet.runtime.supervision import instructions
from streamlet.runtime.supervision.blame import CAREFUL_S
from streamlet.runtime.supervision.supervisor import Limits, Supervisor
from streamlet.runtime.supervision.worker_states import HeldUp, WorkerState
from streamlet.runtime.tasks.in_hand import holding, with_tuple, writer_of
from streamlet.runtime.tasks.untracked_counts import UntrackedCounts
from streamlet.runtime.worker import messages
from streamlet.runtime.worker.channel import ChannelClosed, ControlChannel
from streamlet.runtime.worker.kept_code import Code, keep_code, own_build
from streamlet.runtime.worker.messages import BadMessage, Beat, Failed, FromCoordinator, FromWorker, Raw, from_worker
from streamlet.runtime.worker.page_file import make_page
from streamlet.runtime.worker.timers import next_multiple

CODE_FOLDER = "code"

STATUS_S = 1.0
"""Seconds between two statuses for the observer."""
STATUS_AFTER_S = 0.3
"""Seconds after the workers looked at their numbers, all at the same moment, before a status is made of them."""

STEP_S = 0.05
"""Seconds between two looks at deaths, silence and deadlines."""

CLOSE_S = 5.0
"""Seconds that the channels of stopped workers may take to end."""

STALL_S = 0.5
"""Seconds between two looks at the clock beyond which the coordinator stood still: more do not count for anybody."""

START_REFUSED = "could not be started: "
"""How a launcher tells of a process that the system did not start."""

START_REFUSED_REMEDY = (
    "the system gives no more descriptors, processes or memory. Look at `ulimit -n`, `ulimit -u` and the limits of the "
    "control group."
)

DEATH_S = 0.5
"""Seconds after a link broke until the death of one of its workers must be known."""

HOW_S = 0.25
"""Seconds for the launcher to say how a worker ended whose channel has ended."""

KILLED = "was killed by SIGKILL"
"""How a process launcher says that a worker ended that the kernel may have killed."""

logger = logging.getLogger("streamlet")


class Launcher(Protocol):
    """Starts and ends workers. All methods are called on the coordinator's thread; only the last two wait."""

    local: bool
    """Whether workers run on this machine alone: then secrets may stand in their plans, and links are Unix sockets."""
    listen_host: str
    """Where workers elsewhere listen for each other; empty: at their own end of the channel to us."""

    def start(self, worker: int, epoch: int, adopt: Adopt) -> None:
        """Bring up a worker; hand its channel to ``adopt``, now or later, on any thread."""

    def kill(self, worker: int, epoch: int) -> None:
        """End a worker and every process that it started."""

    def ended(self) -> list[tuple[int, int, str]]:
        """Return (worker, epoch, how) of workers that ended since the last call."""

    def ask_why(self, workers: frozenset[tuple[int, int]], tell: Callable[[HeldUp], None]) -> None:
        """Look why these (worker, epoch) have not begun; ``tell`` it, now or later, on any thread, or never."""

    def let_end(self, workers: Mapping[int, bool]) -> dict[int, str]:
        """Wait a while until workers that have closed end by themselves; return how others ended, or "" for not yet.

        Those that map to True have told an error, and their process says so by its status.
        """

    def close(self) -> None:
        """End everything that was started, before this returns."""


class Adopt(Protocol):
    """Takes the channel of a worker that is alive."""

    def __call__(self, worker: int, epoch: int, channel: ControlChannel) -> None: ...


class RunCoordinator:
    """One run of one topology. ``run`` owns the calling thread until the run is over."""

    # Long: it only does, and everything it does goes to the same workers, channels and listener. What to do is decided
    # in `Supervisor`; how a run has ended, in `outcome`.

    def __init__(
        self, request: RunRequest, observer: Observer, stop: Stop, debug: bool = False, clock: Clock | None = None
    ) -> None:
        self.request = request
        self.observer = observer
        self.stop = stop
        self.debug = debug
        self.clock = clock or SystemClock()
        # Every deadline of a worker is one of this clock. A coordinator that was stopped for a day has not heard them
        # for a day, and what they said meanwhile is read before the next second passes.
        self.awake = AwakeClock(self.clock, STALL_S)
        self.plan: Plan = make_plan(request.topology, request.workers, request.conf)
        self._spouts = frozenset(task.task_id for task in self.plan.spout_tasks)
        self.run_id = uuid.uuid4().bytes
        self.secret = secrets.token_bytes(32)
        self.certificate = certificate_of(request.conf, self.run_id)
        self.directory = run_folder()
        self.code = self._keep_code()
        self.build = own_build()
        self.supervisor = self._make_supervisor()
        self.channels: dict[int, tuple[int, ControlChannel]] = {}
        self.numbers = RunNumbers(self.plan)
        self.pids: dict[int, int] = {}
        self.places: dict[int, tuple[str, str]] = {}
        """Worker -> host and executor, of workers on Spark."""
        self.pages: dict[int, mmap.mmap] = {}
        """Worker -> the page on which it notes what it has in hand."""
        self.failure: RunFailed | None = None
        """An error that ends the run at once."""
        self.ends_by: RunFailed | None = None
        """An error that ends it after a drain."""
        self._began: float | None = None
        """When all workers stood for the first time."""
        self.complaints: list[str] = []
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._adopted: list[tuple[int, int, ControlChannel]] = []
        self._held_up: list[HeldUp] = []
        """Answers of the launcher that the supervisor has not seen. Any thread adds to it."""
        self._close_errors: list[str] = []
        self._close_traces: list[str] = []
        self._told_errors: set[int] = set()
        """Workers whose process ends with the status of an error."""
        self._cut_exits: list[str] = []
        self._channel_closed_at: dict[tuple[int, int], float] = {}
        self._memory: dict[int, deque[Memory]] = {}
        """Worker -> the last two looks at its process's memory. The last may be one at a process being killed."""
        self._broken_links: list[tuple[float, int, int, messages.LinkLost]] = []
        """(when to act on it, worker, epoch, report), in this order."""
        self.paused: list[PausedPart] = []
        """What somebody asked to emit nothing."""
        self._commands: CommandListener | None = None

    def _make_supervisor(self) -> Supervisor:
        conf, workers = self.request.conf, self.request.workers
        return Supervisor(
            workers,
            self.plan.spout_workers(),
            Limits(
                start_s=conf["streamlet.worker.start.timeout.secs"],
                silent_s=conf["streamlet.worker.timeout.secs"],
                heartbeat_s=conf["streamlet.worker.heartbeat.secs"],
                busy_s=conf["streamlet.worker.busy.timeout.secs"],
                restarts=conf["streamlet.worker.restarts.max"],
                tuple_crashes=conf["streamlet.tuple.crashes.max"],
                drain_s=conf["streamlet.drain.timeout.secs"],
                timeout_s=self.plan.longest_timeout_s(conf),
                stop_s=conf["streamlet.stop.timeout.secs"],
            ),
            {worker: ", ".join(self._components_on(worker)) for worker in range(workers)},
            max(1, len(self.plan.ticking(conf))),
            {task.task_id: task.component for task in self.plan.tasks},
        )

    # -- the run -----------------------------------------------------------------------------------------------

    def run(self, launcher: Launcher) -> RunResult:
        """Start, watch, end. Raises RunFailed, after everything was stopped."""
        self.launcher = launcher
        self.started = self.clock.monotonic()
        try:
            for text in self.code.told:
                self.observer.on_event(LogLine("warning", text, time.time(), RUN))
            self._listen_for_commands()
            self._do(self.supervisor.begin(self.awake.monotonic()))
            self._watch()
            self._wait_for_closing()
        finally:
            self._clear()
        self._note_losses(self.numbers.losses.settle())
        self.numbers.left.update(self.numbers.losses.on_the_way())
        self.numbers.end(self.supervisor.ending if self.failure is None else "failed")
        status = self._status("ended")
        self.observer.on_status(status)
        if self.failure is not None:
            error = self.ends_by or self.failure
            error.result = failed_result(status, self.numbers.left)
            raise error
        unclosed = tuple(f"{text}{self._hang_text(worker)}" for worker, text in self.supervisor.unclosed.items())
        reason = self.supervisor.ending or "interrupted"
        cut_s = self.supervisor.cut_short_s
        result = RunResult(
            reason,
            status,
            self.supervisor.drained and not self.numbers.owes(),
            unclosed,
            dict(self.numbers.left),
            drain_cut_s=cut_s,
        )
        if self.ends_by is not None:
            raise drained_failure(self.ends_by, result, self.complaints, self._close_errors)
        try:
            return check_end(result, self.plan.topology, self.complaints, self._close_errors, self._cut_exits)
        except StreamletError as error:
            error.trace = error.trace or "".join(self._close_traces)  # for --debug
            raise

    def _hang_text(self, worker: int) -> str:
        """Return the call that a worker was last seen to hang in."""
        # Only a call on a tuple holds up others, and is ended by that setting: not a `cleanup`.
        replaces = self.request.conf["streamlet.task.hang.action"] == "replace"
        how = (
            "no worker is replaced while a run ends"
            if replaces
            else "streamlet.task.hang.action=replace ends such a call"
        )
        on_tuple = f" on {{}}, with what waits behind it ({how})"
        return "".join(
            f": {HUNG} {row['call']} of {row['component']} (task {row['task']}) for "
            f"{row['seconds']:.0f} s{on_tuple.format(row['tuple']) if row['tuple'] else ''}"
            for row in self.numbers.hanging()
            if row["worker"] == worker
        )

    def _watch(self) -> None:
        show_at = next_multiple(self.started, STATUS_S) + STATUS_AFTER_S
        while not (self.supervisor.over or self._has_failed()):
            self._step()
            if (now := self.clock.monotonic()) >= show_at:
                for worker in self.pids:
                    self._note_memory(worker)
                if self._commands is not None:
                    self._commands.keep_card()
                show_at = next_multiple(now, STATUS_S) + STATUS_AFTER_S
                self.observer.on_status(self._status())

    def _has_failed(self) -> bool:
        # Asked again each time: a type checker takes a field that it has seen for unchanged.
        return self.failure is not None

    def _step(self) -> None:
        """Read all messages, then act on deaths, silence and time."""
        supervisor = self.supervisor
        self._read()
        if self._has_failed():
            return
        while self._held_up:
            supervisor.held_up(self._held_up.pop(0))
        now = self.awake.monotonic()
        # The last words come before the death: the reason of a failure ends the run, where the death alone would start
        # a replacement that fails in the same way.
        for worker, epoch, how in self.launcher.ended():
            self._read_last_messages(worker, epoch)
            # Rule: a worker whose failure ends the run has not died. Taken for a death, its losses would be counted
            # twice: it has told itself what it left.
            if self._has_failed():
                return
            self._read_page(worker, epoch)
            self._note_deadly(worker, epoch, how)
            remedy = START_REFUSED_REMEDY if how.startswith(START_REFUSED) else ""
            self._do(supervisor.gone(worker, epoch, how + self._memory_text(worker, how), now, remedy))
        self._do(self._report_closed_channels(now))
        self._cut_broken_links(now)
        self._look_at_silent(now)
        if supervisor.ending is not None:  # one that does not drain or stop may hang: where, its page says
            for worker, state in supervisor.workers.items():
                self._read_page(worker, state.epoch)
        self._do(supervisor.tick(now))
        self._look_for_end(now)

    def _look_for_end(self, now: float) -> None:
        if self.stop.asked:
            self._do(self.supervisor.end("interrupted", now))
        elif self._time_is_over():
            self._do(self.supervisor.end("time", now))
        else:
            self.stop.drain_s = self.supervisor.drain_if_asked_now_s

    def _time_is_over(self) -> bool:
        # Rule: the seconds of a run count from the moment at which all its workers stood. Counted from the command, a
        # run on a machine with much to do could be over before any tuple was emitted, and end well. How long workers
        # and components may take to start is bounded by times of their own.
        if self.request.seconds is None or not self.supervisor.began:
            return False
        if self._began is None:
            self._began = self.clock.monotonic()
        return self.clock.monotonic() - self._began >= self.request.seconds

    def _wait_for_closing(self) -> None:
        """Read the messages of closing workers: for some seconds, or one after a failure."""
        deadline = self.awake.monotonic() + (CLOSE_S if self.failure is None else 1.0)
        if self.failure is not None:
            self._broadcast(messages.Close(clean=False))
        while self.channels and self.awake.monotonic() < deadline:
            self._read()
            for worker, epoch, _ in self.launcher.ended():
                self._read_last_messages(worker, epoch)

    def _clear(self) -> None:
        # Channels first: a worker that is still there takes the end of its channel for the sign to end by itself, and
        # the launcher then has less to kill.
        for channel in [*(held for _, held in self.channels.values()), *(adopted[2] for adopted in self._adopted)]:
            channel.close()
        self._let_end()
        self.launcher.close()
        if self._commands is not None:
            self._commands.close()
        self._selector.close()
        os.close(self._wake_read)
        wake, self._wake_write = self._wake_write, -1  # its number may be another file's soon, and slots still dial
        os.close(wake)
        self.pages.clear()  # each has a descriptor
        shutil.rmtree(self.directory, ignore_errors=True)

    def _let_end(self) -> None:
        """Give closed workers time for their exit; tell who did not come to its end."""
        # Rule: one that dies at its exit leaves functions that never run. Libraries flush there what was acked: the
        # run ended with 0 and without a word.
        closed = {index: worker.epoch for index, worker in self.supervisor.workers.items() if worker.stopped}
        ends = self.launcher.let_end({worker: worker in self._told_errors for worker in closed})
        for worker, how in ends.items():
            if how:
                about = f"worker {worker} (epoch {closed[worker]}) had closed and {how} at its exit"
                text = (
                    f"{about}: the `atexit` functions that were left may not have run, and what they do may be missing"
                )
                self._cut_exits.append(text)
            else:
                end = "had closed, did not end by itself and was killed"
                text = f"worker {worker} {end}: what its `atexit` functions do may be missing"
            self._say("warning", text, worker, closed[worker])

    # -- reading -----------------------------------------------------------------------------------------------

    def adopt(self, worker: int, epoch: int, channel: ControlChannel) -> None:
        """Take a worker's channel. Any thread."""
        # Taken over by the coordinator's thread, where everything else lives; a list is enough, since append and pop
        # are atomic. The byte in the pipe ends the coordinator's sleep.
        self._adopted.append((worker, epoch, channel))
        try:
            self._wake()
        except OSError:
            channel.close()  # the run is over

    def _wake(self) -> None:
        """End the coordinator's sleep. Any thread. Raises OSError when the run is over."""
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._wake_write, b"\0")

    def _read(self) -> None:
        for key, _ in self._selector.select(STEP_S):
            if key.data is None:
                os.read(self._wake_read, 4096)
            elif isinstance(key.data, CommandListener):
                key.data.serve()
            else:
                self._receive(*key.data)
        if self._commands is not None:
            for command, answer in self._commands.waiting():
                answer.set_result(self._obey(command))
        while self._adopted:
            self._register_channel(*self._adopted.pop(0))
        for _, channel in list(self.channels.values()):
            if channel.unsent:
                with contextlib.suppress(ChannelClosed):  # its end is read like any other
                    channel.flush()

    def _register_channel(self, worker: int, epoch: int, channel: ControlChannel) -> None:
        if self.supervisor.workers[worker].epoch != epoch:
            channel.close()
            return
        if worker in self.channels:
            self._close_channel(worker, self.channels[worker][0])  # else its end would be readable for ever
        self.channels[worker] = (epoch, channel)
        self._selector.register(channel, selectors.EVENT_READ, (worker, epoch, channel))
        with contextlib.suppress(ChannelClosed):  # its end is read like any other
            channel.send(self._plan_for(worker, epoch))
            if self.paused:
                channel.send(messages.Paused(self.paused))
            if self.supervisor.ending is not None:  # it was started before: it reads nothing new
                channel.send(self.supervisor.pause)

    def _keep_code(self) -> Code:
        """Copy the code of the run beside its other files.

        Raises BadInput where there is no room, or an edit of it came meanwhile.
        """
        if self.request.file is None:
            return Code()
        try:
            return keep_code(self.request.file, self.directory / CODE_FOLDER)
        except BadInput:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        except OSError as error:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise BadInput(
                f"A run keeps a copy of its topology's code, and none can be written into {self.directory.parent}: "
                f"{error.strerror or error}. Make room there, or set TMPDIR to a folder that is there and has room."
            ) from error

    def _plan_for(self, worker: int, epoch: int) -> messages.WorkerPlan:
        request = self.request
        # Of workers elsewhere none: one that dialled over TCP has proved that it knows the secret, and links are not
        # encrypted. On Spark the archive that travels holds the code as it was.
        private: dict[str, Any] = {
            "secret": self.secret,
            "certificate": self.certificate,
            "folder": str(self.directory),
            **{name: value for name, value in dataclasses.asdict(self.code).items() if name != "told"},
            "build": self.build,
        }
        return messages.WorkerPlan(
            worker=worker,
            epoch=epoch,
            workers=request.workers,
            file=str(request.file),
            attribute=request.attribute,
            fingerprint=fingerprint(self.plan),
            conf=dict(request.conf),
            overrides={name: dict(values) for name, values in request.overrides.items()},
            run_id=self.run_id,
            listen_host=self.launcher.listen_host,
            heartbeat_s=request.conf["streamlet.worker.heartbeat.secs"],
            began=self.supervisor.began,
            debug=self.debug,
            keeps_log=request.keeps_log,
            page=self._new_page(worker, epoch),
            careful=self.supervisor.blame.careful(self.awake.monotonic()),
            careful_s=CAREFUL_S,
            crashes=self.supervisor.blame.deaths_of(task.task_id for task in self.plan.tasks_on(worker)),
            code_folder=str(self.directory / CODE_FOLDER),
            **(private if self.launcher.local else {}),
        )

    def _new_page(self, worker: int, epoch: int) -> str:
        """Make the page of a worker; return its path, empty where none can be made."""
        self.pages.pop(worker, None)
        if self.stop.killed:
            return ""
        path = self.directory / f"hand-{worker}.{epoch}"
        try:
            for former in self.directory.glob(f"hand-{worker}.*"):  # a run of months has deaths without number
                former.unlink(missing_ok=True)
            if recreate_if_swept(self.directory):
                logger.info("The folder of the run, %s, was swept and is made again.", self.directory)
            self.pages[worker] = make_page(str(path), len(self.plan.tasks))
        except OSError as error:  # the run goes on without: a death is reported without what was under work
            logger.debug("no page for worker %d: %s", worker, error)
            return ""
        return str(path)

    def _read_page(self, worker: int, epoch: int) -> None:
        """Read a worker's page for the supervisor: its death is about to be judged."""
        page = self.pages.get(worker)
        if page is not None and self.supervisor.workers[worker].epoch == epoch:
            # Of a slot of Spark nobody knows whether it ended by itself: its executor may have been taken.
            has_plan = self.launcher.local and writer_of(page) != 0
            self.supervisor.note_in_hand(worker, epoch, holding(page), has_plan)

    def _complain(self, text: str) -> None:
        """Keep what the end of the run may repeat."""
        # A run of months has deaths without number; and of three deaths by one tuple one says all.
        if len(self.complaints) < MOST_ERRORS and text not in self.complaints:
            self.complaints.append(text)

    def _note_deadly(self, worker: int, epoch: int, how: str) -> None:
        """Keep a death that one tuple is to blame for: the end of the run names it.

        That is why its tree failed.
        """
        state = self.supervisor.workers[worker]
        # Rule: only where nothing else can be why. The last words have room for few, and would name tuples that were at
        # work beside the thread that died, and were acked later.
        if state.epoch == epoch and state.holding is not None and self.supervisor.blame.names_one(state.holding):
            self._complain(f"Worker {worker} {how}{self.supervisor.blame.in_hand_text(state.holding)}.")

    def _because(self, why: str) -> str:
        """Say that a worker was ended for that; nobody replaces one while a run ends."""
        ends = self.supervisor.ending is not None or self.failure is not None
        return f"was {'ended' if ends else 'replaced'} because it {why}"

    def _replace_unfit(self, worker: int, epoch: int, unfit: messages.Unfit, now: float) -> None:
        self._read_page(worker, epoch)
        if unfit.task:
            held = self.supervisor.workers[worker].holding
            held = with_tuple(held, unfit.task, unfit.roots, unfit.values)
            self.supervisor.note_in_hand(worker, epoch, held)
        if replacing := self.supervisor.unfit(worker, epoch, unfit.why, now):
            self._note_deadly(worker, epoch, self._because(unfit.why))
            self._do(replacing)

    def _receive(self, worker: int, epoch: int, channel: ControlChannel) -> None:
        try:
            raws = channel.receive()
        except ChannelClosed:
            self._close_channel(worker, epoch)
            self._channel_closed_at[worker, epoch] = self.awake.monotonic()
            return
        # Any bytes are a sign of life: the end of a long message may still be on its way.
        self.supervisor.heard(worker, epoch, self.awake.monotonic())
        for raw in raws:
            self._handle(worker, epoch, raw)

    def _report_closed_channels(self, now: float) -> list[instructions.Instruction]:
        """Report workers whose channel was closed a moment ago."""
        # The channel ends before the process can be reaped. Reported at once, the user would read "hung up" instead of
        # "was killed by SIGSEGV".
        out = []
        for (worker, epoch), since in list(self._channel_closed_at.items()):
            if now - since >= HOW_S:
                del self._channel_closed_at[worker, epoch]
                self._read_page(worker, epoch)
                out += self.supervisor.hung_up(worker, epoch, now)
        return out

    def _look_at_silent(self, now: float) -> None:
        """Look from outside at workers that have been silent for a while: they may be busy."""
        for worker, epoch in self.supervisor.silent_workers(now):
            self._read_page(worker, epoch)
            pid = self._pid_here(worker)
            used = processor(pid) if pid else None
            used_s, halted = (used.used_s, used.stopped) if used is not None else (None, False)
            self.supervisor.note_processor_time(worker, epoch, used_s, now, halted)

    def _memory_text(self, worker: int, how: str) -> str:
        """Return who killed a worker, if the kernel did for memory.

        As a part of a sentence.
        """
        looks = self._memory.pop(worker, None)
        return killed_for_memory(looks[0]) if looks and how == KILLED else ""

    def _note_memory(self, worker: int) -> None:
        pid = self._pid_here(worker)
        look = memory(pid) if pid else None
        if look is not None:
            self._memory.setdefault(worker, deque(maxlen=2)).append(look)

    def _pid_here(self, worker: int) -> int | None:
        """Return the process of a worker on this machine."""
        page, pid = self.pages.get(worker), self.pids.get(worker)
        return pid if page is not None and pid is not None and writer_of(page) == pid else None

    def _cut_broken_links(self, now: float) -> None:
        """Pass on the reports of broken links whose workers live on."""
        # A link breaks before anybody knows that a worker has died. Cut at once, all open trees would fail as lost, and
        # the one that the worker died of with them: nobody could charge it.
        while self._broken_links and now >= self._broken_links[0][0]:
            _, worker, epoch, lost = self._broken_links.pop(0)
            self._do(self.supervisor.link_lost(worker, epoch, lost.worker, lost.epoch, lost.version, lost.why, now))

    def _read_last_messages(self, worker: int, epoch: int) -> None:
        """Read the last messages of an ended worker: the reason of its failure is among them."""
        held = self.channels.get(worker)
        if held is not None and held[0] == epoch:
            for raw in held[1].last_messages():
                self._handle(worker, epoch, raw)
            self._close_channel(worker, epoch)

    def _handle(self, worker: int, epoch: int, raw: Raw) -> None:
        # Rule: nothing counts that a worker said before it was killed, and that was read with what it was killed for.
        # Its counters are kept by then, and its last heartbeat would bring them in again.
        if self.channels.get(worker, (0,))[0] != epoch:
            return
        now = self.awake.monotonic()
        try:
            message = from_worker(raw, self.request.workers, len(self.plan.tasks))
        except BadMessage as wrong:
            self._do(self.supervisor.gone(worker, epoch, str(wrong), now))
        else:
            self._take(worker, epoch, message, now)

    def _take(self, worker: int, epoch: int, message: FromWorker, now: float) -> None:
        supervisor = self.supervisor
        match message:
            case Beat():
                asked = supervisor.whole and supervisor.ending is None and not self.paused
                self.numbers.heard(worker, message, asked)
                supervisor.initializing(worker, epoch, message.initializing)
                self._note_progress(worker, epoch, message, now)
                untracked = supervisor.ending is not None and bool(self.numbers.losses.waiting())
                self._do(supervisor.waiting(worker, epoch, message.wait_s, message.call_s, now, untracked))
            case messages.State(drained, caught_up, done, traffic, idle, quiet):
                self._do(supervisor.state(worker, epoch, drained, caught_up, now, done, traffic, idle, quiet))
            case messages.Ready((kind, host, port), pid):
                self.pids[worker] = pid
                self._note_place(worker, epoch, message)
                self._do(supervisor.ready(worker, epoch, (kind, host, port), now))
            case messages.Initialized():
                self._memory.pop(worker, None)
                self._note_memory(worker)
                self._do(supervisor.initialized(worker, epoch))
            case messages.Linked(version):
                self._do(supervisor.linked(worker, epoch, version))
            case messages.LinkLost():
                self._broken_links.append((now + DEATH_S, worker, epoch, message))
            case messages.Unlinked(peer, why):
                supervisor.unlinked(worker, epoch, peer, why)
            case messages.Exchanged(gone, its_epoch, sent, read):
                self._note_losses(self.numbers.losses.exchanged(worker, gone, its_epoch, sent, read))
            case messages.Unfit():
                self._replace_unfit(worker, epoch, message, now)
            case messages.Event():
                self.observer.on_event(messages.line_of_event(message, worker, epoch))
            case messages.Complaint(text):
                self._complain(text)
            case Failed():
                self._failed(worker, epoch, message, now)
            case messages.Stopped():
                self._note_end(worker, message)
                supervisor.stopped(worker, epoch)

    def _note_end(self, worker: int, last: messages.Stopped) -> None:
        """Keep the last words of a worker that has closed."""
        self._close_errors += last.errors
        if last.errors:
            self._told_errors.add(worker)
        self._close_traces += last.traces
        self.numbers.left.update(last.left)
        self._note_losses(self.numbers.losses.closed(worker, last.sent, last.read))

    def _note_progress(self, worker: int, epoch: int, beat: Beat, now: float) -> None:
        """Tell the supervisor how much a worker has done, tuples and trees."""
        executed = sum(snapshot["executed"] for snapshot in beat.tasks.values())
        self.supervisor.processed(worker, epoch, executed, now)
        spouts = [beat.tasks[task] for task in self._spouts & beat.tasks.keys()]
        acked, failed = (sum(spout[name] for spout in spouts) for name in ("acked", "failed"))
        self.supervisor.completed(worker, epoch, acked, tracked=bool(acked or failed or beat.pending))

    def _note_place(self, worker: int, epoch: int, ready: messages.Ready) -> None:
        """Keep where a worker is, and tell it to the log: Spark chose the place."""
        if ready.host:
            self.places[worker] = ready.host, ready.executor
            on = f"executor {ready.executor} of {ready.host}" if ready.executor else ready.host
            self._say("info", f"worker {worker} (epoch {epoch}) is on {on}, process {ready.pid}.", worker, epoch)

    def _failed(self, worker: int, epoch: int, failed: Failed, now: float) -> None:
        """End the run for a worker's failure, or start it again."""
        self._told_errors.add(worker)
        # A replacement starts while the run is under way: a server that is away may come back, and ending the run would
        # lose it for a short outage. At the first start the user waits for an answer, so there it ends the run.
        if failed.retriable and self.supervisor.starts_again(worker, epoch):
            why = f"could not start: {failed.message.rstrip('.')}"
            self._do(self.supervisor.gone(worker, epoch, why, now))
            return
        status = EXIT_FAILED if self.supervisor.began else failed.status  # a run that began was not refused
        error = RunFailed(failed.message, status, failed.trace)
        if not failed.drains:
            self.failure = self.failure or error
        elif self.ends_by is None:
            self.ends_by = error
            if self.supervisor.ending is None:
                drain_s = self.supervisor.drain_if_asked_now_s
                said = (
                    f"A spout ends the run. What is under way is worked off, for up to {drain_s:g} s; then follows why."
                )
                self._say("error", said, worker, epoch)
            self._do(self.supervisor.end("failed", now))

    # -- doing -------------------------------------------------------------------------------------------------

    def _start_unless_killed(self, worker: int, epoch: int) -> None:
        # Rule: start no process and make no file once the run is killed, and end what was begun just before. The kill
        # ends the workers before this process ends: seen from here, one has died and is to be replaced.
        if not self.stop.killed:
            self.launcher.start(worker, epoch, self.adopt)
        if self.stop.killed:
            self.stop.kill()

    def _do(self, wanted: list[instructions.Instruction]) -> None:
        for instruction in wanted:
            match instruction:
                case instructions.Start(worker, epoch):
                    self._start_unless_killed(worker, epoch)
                case instructions.AskWhy(workers):
                    self.launcher.ask_why(workers, self._held_up.append)
                case instructions.Kill(worker, epoch):
                    self._keep_counters(worker, epoch)
                    # Killed before its channel is closed: a living worker would take the end of the channel for the
                    # coordinator's, and remove the folder of the run.
                    self.launcher.kill(worker, epoch)
                    self._close_channel(worker, epoch)
                case instructions.NoteDeadly(worker, epoch, why):
                    self._note_deadly(worker, epoch, self._because(why))
                case instructions.Replaced(worker, epoch):
                    self._say("warning", self._replaced_text(worker, epoch), worker, epoch)
                case instructions.GiveUp(reason):
                    self.failure = self.failure or RunFailed(reason)
                case instructions.TellUser(level, text, about, epoch):
                    if self.failure is None:  # the consequences of a failure would only hide it
                        self._say(level, text, about, epoch)
                case message:
                    self._broadcast(message)

    def _broadcast(self, message: FromCoordinator) -> None:
        for _, channel in list(self.channels.values()):
            channel.try_send(message)

    def _close_channel(self, worker: int, epoch: int) -> None:
        held = self.channels.get(worker)
        if held is not None and held[0] == epoch:
            del self.channels[worker]
            self._selector.unregister(held[1])
            held[1].close()

    def _keep_counters(self, worker: int, epoch: int) -> None:
        """Keep a dead worker's numbers; tell the losses known by now."""
        numbers, ends = self.numbers, self.supervisor.ending is not None
        page = self.pages.pop(worker, None)
        kept = UntrackedCounts(len(self.plan.tasks), page) if page is not None and writer_of(page) else None
        counts = None
        if kept is not None:
            counts = kept.look()
            numbers.ended_with(worker, kept.look_at_final(), counts.done, kept.look_at_open() if ends else None)
        if not self.supervisor.workers[worker].stopped:  # one that has closed in order has told what it left
            self._note_losses(numbers.losses.died(worker, epoch, counts, self._living(), ends))
        if ends:
            return  # nobody takes its place: its last numbers stand, and what was open with it is not done
        self._note_lost_trees(
            worker, epoch, numbers.replaced(worker, kept.look_at_open() if kept is not None else None)
        )
        self.places.pop(worker, None)  # its replacement may be elsewhere

    def _living(self) -> set[int]:
        """Return the workers that tell, or told, their part of a death."""
        # Rule: of two that die at once the channels of both end before either death is known. Each counts what went
        # between them by the other's counts, and takes it for living until then. One that has closed in order has told
        # its numbers.
        workers = self.supervisor.workers
        ended = {at for at, epoch in self._channel_closed_at if workers[at].epoch == epoch}
        dying = (at for at in ended if workers[at].state is not WorkerState.GONE)
        return {*self.channels, *dying, *(at for at, worker in workers.items() if worker.stopped)}

    def _note_losses(self, losses: list[TupleLoss]) -> None:
        for worker, epoch, ends, tuples in losses:
            if ends:
                self.numbers.left.update(tuples)
                continue
            self.numbers.taken.update(tuples)
            text = f"worker {worker} took up to {untracked_text(tuples)} along. {NOBODY_SENDS}"
            self._say("error", text, worker, epoch)

    def _note_lost_trees(self, worker: int, epoch: int, trees: Mapping[str, int]) -> None:
        if trees:
            counts = " and ".join(f"{count:,} of {name}" for name, count in trees.items())
            text = f"worker {worker} took up to so many open tuple trees along: {counts}. {NO_FAILURES_HEARD}"
            self._say("error", text, worker, epoch)

    def _say(self, level: str, text: str, worker: int | None, epoch: int) -> None:
        """Show a line of the coordinator's own, about a worker or none."""
        self.observer.on_event(LogLine(level, text, time.time(), RUN._replace(worker=worker, epoch=epoch)))

    def _replaced_text(self, worker: int, epoch: int) -> str:
        """Return the line about a replaced worker: open trees are replayed, memory of bolts is lost."""
        here = self._components_on(worker)
        bolts = [c.name for c in self.plan.topology.components if c.kind != SPOUT and c.name in here]
        # Rule: a spout that stands when the run ends is not asked for tuples any more.
        replayed = "what was open is replayed" if self.supervisor.ending is None else "too late to replay what was open"
        text = f"worker {worker} was started again (epoch {epoch}): {replayed}"
        if not bolts:
            return f"{text}."
        return (
            f"{text}. What its tasks of {', '.join(bolts)} kept in memory is gone with the old one: "
            "`streamlet docs counts-that-survive` says what to do about that."
        )

    def _components_on(self, worker: int) -> list[str]:
        return list(dict.fromkeys(task.component for task in self.plan.tasks_on(worker)))

    def _component_of(self, task_id: int) -> str:
        return self.plan.tasks[task_id - 1].component

    # -- commands ----------------------------------------------------------------------------------------------

    def _listen_for_commands(self) -> None:
        about = {
            "topology": self.request.topology.name,
            "file": str(self.request.file),
            "backend": "processes" if self.launcher.local else "spark",
            "workers": self.request.workers,
            "pid": os.getpid(),
            "started_s": time.time(),
        }
        try:
            self._commands = CommandListener(self.directory, self.run_id, about, self._wake)
        except OSError as error:  # no descriptor, no room: the run does without
            logger.debug("the run takes no commands: %s", error)
            return
        self._selector.register(self._commands, selectors.EVENT_READ, self._commands)

    def _obey(self, command: run_commands.Command) -> run_commands.RunAnswer:
        """Do what a command says, or refuse it."""
        match command:
            case run_commands.ShowRun():
                return run_commands.RunAnswer(content=dataclasses.asdict(self._status()))
            case run_commands.StopRun():
                self.stop.ask()
                return run_commands.RunAnswer(content={"drain_s": self.supervisor.drain_if_asked_now_s})
            case run_commands.PauseParts() | run_commands.ResumeParts():
                return self._pause_parts(command)

    def _pause_parts(self, command: run_commands.PauseParts | run_commands.ResumeParts) -> run_commands.RunAnswer:
        if self.supervisor.ending is not None:
            return run_commands.RunAnswer("the run is ending: nothing new begins.")
        spouts = [component.name for component in self.plan.topology.components if component.kind == SPOUT]
        read = {(row.get("component"), row.get("topic"), row.get("partition")) for row in self.numbers.partitions.all()}
        try:
            paused = run_commands.paused_after(command, self.paused, spouts, read)
        except run_commands.BadCommand as error:
            return run_commands.RunAnswer(str(error), bad_input=True)
        if paused != self.paused:
            self.paused = paused
            # Rule: tell all that is paused, each time. Then a worker that starts later hears the same as the others.
            self._broadcast(messages.Paused(paused))
            now = f"paused now: {', '.join(map(str, paused))}" if paused else "all that was paused goes on"
            self._say("warning", f"By a command, {now}.", None, 0)
        return run_commands.RunAnswer(content={"paused": [str(one) for one in paused]})

    # -- the status that observers see -------------------------------------------------------------------------

    def look(self) -> RunStatus:
        """Return the present status, by the workers' pages, too. Any thread."""
        tasks = len(self.plan.tasks)
        pages = {worker: UntrackedCounts(tasks, page) for worker, page in dict(self.pages).items() if writer_of(page)}
        return self._status(numbers=self.numbers.with_pages(pages), seen=pages)

    def _status(
        self, state: str | None = None, numbers: RunNumbers | None = None, seen: Collection[int] = ()
    ) -> RunStatus:
        supervisor, numbers = self.supervisor, numbers or self.numbers
        nowhere = (None, None)
        running = "running" if supervisor.whole else "recovering" if supervisor.began else "starting"
        return RunStatus(
            state=state or ("draining" if supervisor.ending else running),
            elapsed_s=self.clock.monotonic() - self.started,
            components=tuple(ComponentStatus(**row) for row in numbers.rows(ended=state is not None)),
            partitions=numbers.partitions.all(),
            paused=tuple(map(str, self.paused)),
            pending=numbers.unfinished(),
            workers=tuple(
                {
                    "worker": index,
                    "epoch": w.epoch,
                    "state": "busy" if w.busy else w.state.value,
                    "pid": self.pids.get(index),
                    # One whose loop hangs from the start beats, and has no numbers: zeros would be taken for them.
                    "reported": not supervisor.began or index in seen or numbers.are_known_of(index),
                    "host": self.places.get(index, nowhere)[0],
                    "executor": self.places.get(index, nowhere)[1],
                }
                for index, w in supervisor.workers.items()
            ),
            # Also at the end: what then hung had kept the drain from its end.
            hanging=numbers.hanging(),
        )
