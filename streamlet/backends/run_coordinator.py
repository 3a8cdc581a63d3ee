"""The shell around ``runtime.supervision``: channels, processes, the clock, and what an observer sees.

Who starts a worker, and how its channel comes to be, is a Launcher's business: worker processes on this machine, or
slots on Spark executors. Everything else about a run is here, once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import selectors
import shutil
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

from streamlet.backends.contract import ComponentStatus, Observer, RunRequest, RunResult, RunStatus, Stop
from streamlet.backends.folders import socket_folder
from streamlet.backends.outcome import RunFailed, check_closed, judged
from streamlet.base.clock import SystemClock
from streamlet.base.errors import FAILED
from streamlet.model.plan import Plan, fingerprint, make_plan
from streamlet.model.spec import SPOUT
from streamlet.runtime.supervision import instructions
from streamlet.runtime.supervision.reports import misshapen
from streamlet.runtime.supervision.supervisor import Limits, Supervisor
from streamlet.runtime.tasks.task_stats import component_rows
from streamlet.runtime.worker.channel import ChannelClosed, ControlChannel, Message
from streamlet.runtime.worker.timers import next_multiple

STATUS_S = 1.0
STATUS_AFTER_S = 0.3
"""Workers look at their numbers at the same moments, and tell them right afterwards: a status has all of one moment."""

LOOK_S = 0.05
CLOSE_S = 5.0
HOW_S = 0.25

logger = logging.getLogger("streamlet")


class Launcher(Protocol):
    """Starts and ends workers. All methods are called on the coordinator's thread and return at once."""

    listen: tuple[str, str]
    """Where workers listen for each other: ("unix", directory) or ("tcp", host or "" for their own address)."""

    def start(self, worker: int, epoch: int, adopt: Adopt) -> None:
        """Bring up a worker; its channel is handed to ``adopt``, now or later, on any thread."""
        ...

    def kill(self, worker: int, epoch: int) -> None:
        """Nothing of it may live on."""
        ...

    def ended(self) -> list[tuple[int, int, str]]:
        """(worker, epoch, how) of workers that ended since the last call."""
        ...

    def close(self) -> None:
        """Everything that was started is gone when this returns."""
        ...


class Adopt(Protocol):
    """Takes the channel of a worker that is alive."""

    def __call__(self, worker: int, epoch: int, channel: ControlChannel) -> None: ...


class RunCoordinator:
    """One run of one topology. ``run`` owns the calling thread until the run is over."""

    def __init__(self, request: RunRequest, observer: Observer, stop: Stop, debug: bool = False) -> None:
        self.request = request
        self.observer = observer
        self.stop = stop
        self.debug = debug
        self.clock = SystemClock()
        self.plan: Plan = make_plan(request.topology, request.workers)
        self.run_id = uuid.uuid4().bytes
        self.secret = secrets.token_bytes(32)
        self.directory = socket_folder()
        conf = request.conf
        self.supervisor = Supervisor(
            request.workers,
            self.plan.spout_workers(),
            Limits(
                start_s=conf["streamlet.worker.start.timeout.secs"],
                silent_s=conf["streamlet.worker.timeout.secs"],
                restarts=conf["streamlet.worker.restarts.max"],
                drain_s=conf["streamlet.drain.timeout.secs"],
                stop_s=conf["streamlet.stop.timeout.secs"],
            ),
            {worker: ", ".join(self._components_on(worker)) for worker in range(request.workers)},
        )
        self.channels: dict[int, tuple[int, ControlChannel]] = {}
        self.beats: dict[int, Message] = {}
        self.partitions: dict[int, Any] = {}  # last told rows, which outlive their worker
        self.pids: dict[int, int] = {}
        self.dead: dict[str, list[Mapping[str, Any]]] = {}  # last snapshots of tasks whose worker was replaced
        self.failure: RunFailed | None = None
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._adopted: list[tuple[int, int, ControlChannel]] = []
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._close_errors: list[str] = []
        self.complaints: list[str] = []
        self._hung_up: dict[tuple[int, int], float] = {}

    # -- the run -----------------------------------------------------------------------------------------------

    def run(self, launcher: Launcher) -> RunResult:
        """Start, watch, end. Raises RunFailed, after everything was stopped."""
        self.launcher = launcher
        self.started = self.clock.monotonic()
        show_at = next_multiple(self.started, STATUS_S) + STATUS_AFTER_S
        supervisor = self.supervisor
        try:
            self._do(supervisor.begin(self.started))
            while not supervisor.over and self.failure is None:
                self._read()
                now = self.clock.monotonic()
                for worker, epoch, how in launcher.ended():
                    self._last_words(worker, epoch)
                    self._do(supervisor.gone(worker, epoch, how, now))
                self._do(self._gone_without_a_word(now))
                self._do(supervisor.tick(now))
                self._look_for_end(now)
                if now >= show_at:
                    show_at = next_multiple(now, STATUS_S) + STATUS_AFTER_S
                    self.observer.on_status(self._status())
            self._wait_for_closing()
        finally:
            self._clear()
        if self.failure is not None:
            raise self.failure
        status = self._status("ended")
        self.observer.on_status(status)
        reason, unclosed = supervisor.ending or "interrupted", tuple(supervisor.unclosed.values())
        check_closed(self._close_errors, unclosed, reason)
        result = RunResult(reason, status, supervisor.drained, unclosed)
        return judged(result, self.plan.topology, self.complaints)

    def _look_for_end(self, now: float) -> None:
        if self.stop.asked:
            self._do(self.supervisor.end("interrupted", now))
        elif self.request.seconds is not None and now - self.started >= self.request.seconds:
            self._do(self.supervisor.end("time", now))

    def _wait_for_closing(self) -> None:
        """Workers have a few seconds to close what they hold; those that failed have one."""
        deadline = self.clock.monotonic() + (CLOSE_S if self.failure is None else 1.0)
        if self.failure is not None:
            self._broadcast({"t": "stop", "clean": False})
        while self.channels and self.clock.monotonic() < deadline:
            self._read()
            for worker, epoch, _ in self.launcher.ended():
                self._last_words(worker, epoch)

    def _clear(self) -> None:
        for channel in [*(held for _, held in self.channels.values()), *(adopted[2] for adopted in self._adopted)]:
            channel.close()
        self.launcher.close()
        self._selector.close()
        os.close(self._wake_read)
        wake, self._wake_write = self._wake_write, -1  # its number may be another file's soon, and slots still dial
        os.close(wake)
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- reading -----------------------------------------------------------------------------------------------

    def adopt(self, worker: int, epoch: int, channel: ControlChannel) -> None:
        """A worker's channel is there. Any thread."""
        self._adopted.append((worker, epoch, channel))
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            pass  # a full pipe wakes as well
        except OSError:
            channel.close()  # the run is over

    def _read(self) -> None:
        for key, _ in self._selector.select(LOOK_S):
            if key.data is None:
                os.read(self._wake_read, 4096)
            else:
                self._receive(*key.data)
        while self._adopted:
            self._welcome(*self._adopted.pop(0))

    def _welcome(self, worker: int, epoch: int, channel: ControlChannel) -> None:
        if self.supervisor.workers[worker].epoch != epoch:
            channel.close()
            return
        if worker in self.channels:
            self._hang_up(worker, self.channels[worker][0])  # or its end would be read for ever
        self.channels[worker] = (epoch, channel)
        self._selector.register(channel, selectors.EVENT_READ, (worker, epoch, channel))
        with contextlib.suppress(ChannelClosed):  # its end is read like any other
            channel.send(self._plan_for(worker, epoch))

    def _plan_for(self, worker: int, epoch: int) -> Message:
        request = self.request
        listen = self.launcher.listen
        return {
            "t": "plan",
            "worker": worker,
            "epoch": epoch,
            "workers": request.workers,
            "file": str(request.file),
            "attribute": request.attribute,
            "fingerprint": fingerprint(self.plan),
            "conf": dict(request.conf),
            "overrides": {name: dict(values) for name, values in request.overrides.items()},
            "run_id": self.run_id,
            # Who dialled over TCP has proved that it knows the secret; it must not cross a network in clear.
            "secret": self.secret if listen[0] == "unix" else b"",
            "listen": list(listen),
            "heartbeat_s": request.conf["streamlet.worker.heartbeat.secs"],
            "debug": self.debug,
        }

    def _receive(self, worker: int, epoch: int, channel: ControlChannel) -> None:
        try:
            messages = channel.receive()
        except ChannelClosed:
            self._hang_up(worker, epoch)
            self._hung_up[worker, epoch] = self.clock.monotonic()
            return
        for message in messages:
            self._handle(worker, epoch, message)

    def _gone_without_a_word(self, now: float) -> list[instructions.Instruction]:
        """Whoever hung up, most likely died: the launcher, which knows how, is given a moment to say so."""
        out = []
        for (worker, epoch), since in list(self._hung_up.items()):
            if now - since >= HOW_S:
                del self._hung_up[worker, epoch]
                out += self.supervisor.gone(worker, epoch, "hung up", now)
        return out

    def _last_words(self, worker: int, epoch: int) -> None:
        """Read what an ended worker still said: why it failed stands there."""
        held = self.channels.get(worker)
        if held is not None and held[0] == epoch:
            for message in held[1].last_words():
                self._handle(worker, epoch, message)
            self._hang_up(worker, epoch)

    def _handle(self, worker: int, epoch: int, message: Message) -> None:
        now, supervisor, kind = self.clock.monotonic(), self.supervisor, message["t"]
        supervisor.heard(worker, epoch, now)
        wrong = misshapen(message, self.request.workers, len(self.plan.tasks))
        if wrong is not None:
            self._do(supervisor.gone(worker, epoch, wrong, now))
        elif kind == "beat":
            self.beats[worker] = message
            supervisor.initializing(worker, epoch, message["initializing"])
            self.partitions[worker] = message["partitions"]
        elif kind == "state":
            said = message["drained"], message["caught_up"]
            self._do(supervisor.state(worker, epoch, *said, now, message["done"], message["traffic"]))
        elif kind == "ready":
            kind, host, port = message["address"]
            self.pids[worker] = message["pid"]
            self._do(supervisor.ready(worker, epoch, (kind, host, port), now))
        elif kind == "initialized":
            self._do(supervisor.initialized(worker, epoch))
        elif kind == "linked":
            self._do(supervisor.linked(worker, epoch, message["version"]))
        elif kind == "link_lost":
            link = message["worker"], message["epoch"], message["version"], message["why"]
            self._do(supervisor.link_lost(worker, epoch, *link, now))
        elif kind == "unlinked":
            supervisor.unlinked(worker, epoch, message["worker"], message["why"])
        elif kind == "event":
            self.observer.on_event(message["level"], message["text"])
        elif kind == "complaint":
            self.complaints.append(message["text"])
        elif kind == "failed":
            self._failed(worker, epoch, message, now)
        elif kind == "stopped":
            self._close_errors += message["errors"]
            supervisor.stopped(worker, epoch)

    def _failed(self, worker: int, epoch: int, message: Message, now: float) -> None:
        """A worker cannot go on, and says why. What may pass ends no run that had begun: a replacement tries again."""
        if message["retriable"] and self.supervisor.starts_again(worker, epoch):
            why = f"could not start: {message['message'].rstrip('.')}"
            self._do(self.supervisor.gone(worker, epoch, why, now))
            return
        status = FAILED if self.supervisor.began else message["status"]  # what has begun was not refused
        self.failure = self.failure or RunFailed(message["message"], status, message["trace"])

    # -- doing -------------------------------------------------------------------------------------------------

    def _do(self, wanted: list[instructions.Instruction]) -> None:
        for instruction in wanted:
            match instruction:
                case instructions.Start(worker, epoch):
                    self.launcher.start(worker, epoch, self.adopt)
                case instructions.Kill(worker, epoch):
                    self._bury(worker)
                    self.launcher.kill(worker, epoch)
                    self._hang_up(
                        worker, epoch
                    )  # now: one that lives would take it for our end, and remove the sockets
                case instructions.SendBook(version, book):
                    entries = {index: [epoch, *address] for index, (epoch, address) in book.items()}
                    self._broadcast({"t": "book", "version": version, "workers": entries})
                case instructions.SendLost(worker, epoch):
                    self._broadcast({"t": "lost", "worker": worker, "epoch": epoch})
                case instructions.SendCut(pair, version):
                    self._broadcast({"t": "cut", "pair": list(pair), "version": version})
                case instructions.SendWhole(version):
                    self._broadcast({"t": "whole", "version": version})
                case instructions.Replaced(worker, epoch):
                    self.observer.on_event("warning", self._begins_anew(worker, epoch))
                case instructions.SendPause():
                    self._broadcast({"t": "pause"})
                case instructions.SendStop(clean):
                    self._broadcast({"t": "stop", "clean": clean})
                case instructions.GiveUp(reason):
                    self.failure = self.failure or RunFailed(reason)
                case instructions.Tell(level, text):
                    if self.failure is None:  # what follows from a failure would only hide it
                        self.observer.on_event(level, text)

    def _broadcast(self, message: Message) -> None:
        for _, channel in list(self.channels.values()):
            channel.try_send(message)

    def _hang_up(self, worker: int, epoch: int) -> None:
        held = self.channels.get(worker)
        if held is not None and held[0] == epoch:
            del self.channels[worker]
            self._selector.unregister(held[1])
            held[1].close()

    def _bury(self, worker: int) -> None:
        """Keep the counters of a worker that died: a run's totals do not shrink."""
        if self.supervisor.ending is not None:
            return  # nobody takes its place: its last numbers stand, and what was open with it is not done
        beat = self.beats.pop(worker, None)
        # Spouts of a worker that is replaced begin anew: what the old ones had not sent again is nobody's any more.
        for task_id, snapshot in (beat or {}).get("tasks", {}).items():
            self.dead.setdefault(self._component_of(task_id), []).append({**snapshot, "unreplayed": 0})

    def _begins_anew(self, worker: int, epoch: int) -> str:
        """What the death of a worker means, besides replays: its user may count on what is gone."""
        here = self._components_on(worker)
        bolts = [c.name for c in self.plan.topology.components if c.kind != SPOUT and c.name in here]
        text = f"worker {worker} was started again (epoch {epoch}): what was open is replayed"
        if not bolts:
            return f"{text}."
        return (
            f"{text}. What its tasks of {', '.join(bolts)} kept in memory is gone with the old one: "
            "docs/guide/counts-that-survive.md says what to do about that."
        )

    def _components_on(self, worker: int) -> list[str]:
        return list(dict.fromkeys(task.component for task in self.plan.tasks_on(worker)))

    def _component_of(self, task_id: int) -> str:
        return self.plan.tasks[task_id - 1].component

    # -- what observers see ------------------------------------------------------------------------------------

    def _status(self, state: str | None = None) -> RunStatus:
        supervisor = self.supervisor
        pairs = [(name, snapshot) for name, snapshots in self.dead.items() for snapshot in snapshots]
        for beat in self.beats.values():
            pairs += [(self._component_of(task_id), snapshot) for task_id, snapshot in beat["tasks"].items()]
        rows = component_rows(self.plan.topology, pairs)
        running = "running" if supervisor.whole else "recovering" if supervisor.began else "starting"
        return RunStatus(
            state=state or ("draining" if supervisor.ending else running),
            elapsed_s=self.clock.monotonic() - self.started,
            components=tuple(ComponentStatus(**row) for row in rows),
            partitions=tuple(row for rows in self.partitions.values() for row in rows),
            pending=sum(beat["unfinished" if state else "pending"] for beat in self.beats.values()),
            workers=tuple(
                {"worker": index, "epoch": w.epoch, "state": w.state.value, "pid": self.pids.get(index)}
                for index, w in supervisor.workers.items()
            ),
        )
