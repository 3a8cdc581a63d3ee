"""A worker process: builds its part of a plan, runs the loop, and answers its coordinator.

Two threads. The main one is the loop and all user code. The control thread listens for links, reads the
coordinator's messages and sends heartbeats, so that a slow bolt never looks like a dead worker.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import selectors
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from streamlet.base.clock import SystemClock
from streamlet.base.errors import StreamletError
from streamlet.model.plan import fingerprint, make_plan
from streamlet.runtime.links import handshake
from streamlet.runtime.links.dialing import Address
from streamlet.runtime.links.handshake import Hello
from streamlet.runtime.links.links import SocketLinks
from streamlet.runtime.links.peering import Peering
from streamlet.runtime.links.route_check import RouteCheck
from streamlet.runtime.links.server import LinkServer, socket_path
from streamlet.runtime.links.wire import MAX_DATA_FRAME
from streamlet.runtime.tasks.building import Running, component_names
from streamlet.runtime.tasks.user_errors import Complaints, exited
from streamlet.runtime.worker.channel import ChannelClosed, ControlChannel, Message
from streamlet.runtime.worker.loading import CannotLoad, ImportedOtherwise, load_topology
from streamlet.runtime.worker.log_lines import logs_shown
from streamlet.runtime.worker.loop import WorkerLoop
from streamlet.runtime.worker.timers import next_multiple

ORPHAN_S = 3.0
"""How long a worker without a coordinator may take to end by itself."""

LEAVE_S = 3.0
"""How long the control thread may take to end after the loop; it may be sending."""

DRAINING = "draining"

BEAT_AFTER_S = 0.1
"""A heartbeat comes so long after the loop has looked at its numbers, which it does at multiples of the period."""

logger = logging.getLogger("streamlet")


class Worker:
    """Everything a worker process is. ``run`` returns the exit status."""

    def __init__(self, channel: ControlChannel, plan: Message, early: Sequence[Message] = ()) -> None:
        self.channel = channel
        self.plan = plan
        self._early = early  # what came together with the plan
        self.index: int = plan["worker"]
        self.epoch: int = plan["epoch"]
        self.clock = SystemClock()
        self.complaints = Complaints(self.tell, self.clock, self._complain)
        self.numbers: Message = {"t": "beat", "tasks": {}, "partitions": [], "pending": 0, "unfinished": 0}
        self.reported: Message = {}
        self.clean = self.initialized = False
        self.server: LinkServer | None = None
        self.over = threading.Event()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._control_thread = threading.Thread(target=self._control, name="control", daemon=True)
        self.loop: WorkerLoop
        self.peering: Peering

    # -- the main thread -----------------------------------------------------------------------------------------

    def run(self) -> int:
        """Build, announce, initialise, turn until told to stop. The process may live on: nothing of us does."""
        try:
            return self._live()
        finally:
            self._leave()

    def _live(self) -> int:
        try:
            self._build()
            self._listen()
            self._control_thread.start()
            self.loop.initialize()
            self.loop.timers.every(self.plan["heartbeat_s"], self._look, self.clock.monotonic(), aligned=True)
            self._look()
            _settle_collector()
            self.initialized = True
            self.channel.send({"t": "initialized"})
            self._turn()
        except ChannelClosed:
            self.clean = False
        except StreamletError as error:
            if hasattr(self, "loop"):
                self.loop.finish_open_trees()
            return self._failed(error, error.exit_status)
        except Exception as error:  # noqa: BLE001 - the last frame of a process: report, then end
            return self._failed(error, 1)
        except BaseException as error:  # noqa: BLE001 - a component's sys.exit(): it has a reason, and no replay mends it
            return self._failed(self._exited(error), 1)
        return self._close()

    def _exited(self, error: BaseException) -> StreamletError:
        return exited(error, component_names(self.loop.tasks.values() if hasattr(self, "loop") else ()))

    def _build(self) -> None:
        plan = self.plan
        try:
            topology = load_topology(Path(plan["file"]), plan["attribute"])
        except CannotLoad as error:  # the coordinator could: it is not the input that is bad
            raise ImportedOtherwise(self.index, plan["file"], error) from error
        placed = make_plan(topology, plan["workers"])
        if fingerprint(placed) != plan["fingerprint"]:
            raise StreamletError(
                f"Worker {self.index} imported {plan['file']} and found another topology than the coordinator did. "
                "The class body must give the same components in every process: no random names, no dependence on "
                "time, environment or working directory."
            )
        running = Running(
            plan=placed,
            worker=self.index,
            epoch=self.epoch,
            topology_id=plan["run_id"].hex(),
            conf=plan["conf"],
            clock=self.clock,
            rng=random.Random(os.urandom(32)),
            report=self.complaints.report,
            wake=lambda: self.loop.post(lambda: None),
            overrides=plan["overrides"],
        )
        links = SocketLinks(self._link_lost, RouteCheck(placed, self.index).check)
        self.loop = WorkerLoop(running, links)
        self.peering = Peering(
            Hello(handshake.DATA, plan["run_id"], self.index, self.epoch, wanted=self.index),
            plan["workers"],
            plan["secret"],
            links,
            self.loop.post,
            self._linked,
            lambda peer, why: self.channel.try_send({"t": "unlinked", "worker": peer, "why": why}),
        )

    def _turn(self) -> None:
        loop, sleep_s = self.loop, 0.0
        while not loop.stopped:
            sleep_s = loop.turn(sleep_s)
            if sleep_s > 0:
                self._report_state()

    def _report_state(self) -> None:
        """Tell at once when the last tree is done or the end is reached; heartbeats would be too slow for both."""
        loop = self.loop
        state = {
            "t": "state",
            "drained": loop.ledgers.pending() == 0 and not loop.inbox and not loop.unsent,
            "caught_up": self._asks_end() and not loop.paused and loop.ledgers.caught_up(),
            "done": loop.ledgers.unfinished() == 0,
            "traffic": loop.links.traffic() if DRAINING in loop.paused else None,
        }
        if state != self.reported:
            self.reported = state
            self.channel.try_send(state)

    def _asks_end(self) -> bool:
        return bool(self.plan["conf"]["streamlet.until.caught.up"])

    def _look(self) -> None:
        """On the loop's thread, all numbers of one moment, for the control thread to send: they fit each other."""
        loop = self.loop
        self.numbers = {
            "t": "beat",
            "tasks": {task_id: live.run.stats.snapshot() for task_id, live in loop.tasks.items()},
            "partitions": [row for spout in loop.spouts.values() for row in spout.spout.partition_status()],
            "pending": loop.ledgers.pending(),
            "unfinished": loop.ledgers.unfinished(),
        }

    def _say_failed(self, error: Exception, status: int) -> None:
        message = str(error) if isinstance(error, StreamletError) else self._bug(error)
        trace = "".join(traceback.format_exception(error))
        told = {"message": message, "status": status, "trace": trace, "retriable": _retriable(error)}
        self.channel.try_send({"t": "failed", **told})

    def _failed(self, error: Exception, status: int) -> int:
        self._say_failed(error, status)
        if hasattr(self, "loop"):
            self.loop.close(clean=False)
        return status

    def _bug(self, error: Exception) -> str:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename}:{frame.lineno}"
        return (
            f"Worker {self.index} raised {type(error).__name__} at {place}: {error}. The topology stops; what was not "
            "acked will be read again. The traceback is shown with --debug."
        )

    def _close(self) -> int:
        raised = self.loop.close(self.clean)
        try:
            self._look()  # after the last commit: what is shown as committed is committed
            self._beat()
        except Exception:
            logger.debug("worker %d: the last numbers were not told", self.index, exc_info=True)
        self.complaints.flush()
        self.channel.try_send({"t": "stopped", "errors": [f"{type(e).__name__}: {e}" for e in raised]})
        return 1 if raised else 0

    def _leave(self) -> None:
        self.over.set()
        if self._control_thread.ident is not None:
            os.write(self._wake_write, b"\0")
            self._control_thread.join(LEAVE_S)
        if self.server is not None:
            self.server.close()
        if not self._control_thread.is_alive():  # one that hangs still looks at the pipe
            os.close(self._wake_read)
            os.close(self._wake_write)

    # -- links -----------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self.server = LinkServer(
            self._place(), self.plan["secret"], self.peering.admits, self.peering.welcomed, MAX_DATA_FRAME
        )
        self.channel.send({"t": "ready", "address": list(self.server.address), "pid": os.getpid()})

    def _place(self) -> Address:
        """Where to listen for peers: never on every interface."""
        kind, where = self.plan["listen"]
        if kind == "unix":
            return "unix", socket_path(Path(where), self.index, self.epoch), 0
        # Without a named host: the address that the coordinator is reached from is one that peers can reach, too.
        return "tcp", where or self.channel.sock.getsockname()[0], 0

    def _linked(self, version: int) -> None:
        self.channel.try_send({"t": "linked", "version": version})

    def _link_lost(self, worker: int, epoch: int, version: int, why: str) -> None:
        """On the loop's thread. No tuple may be sent into the gap, so spouts pause until all is linked again."""
        self._recover(f"its link to worker {worker}", worker)
        self.channel.try_send({"t": "link_lost", "worker": worker, "epoch": epoch, "version": version, "why": why})

    def _recover(self, what: str, *lost: int) -> None:
        failed = self.loop.recover(lost)
        if failed:
            logger.info("worker %d: %s was lost and %d open trees failed", self.index, what, failed)

    # -- the control thread ----------------------------------------------------------------------------------------

    def _control(self) -> None:
        assert self.server is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.channel, selectors.EVENT_READ, self._read_messages)
            selector.register(self.server, selectors.EVENT_READ, self.server.serve)
            selector.register(self._wake_read, selectors.EVENT_READ, lambda: None)
            period, due = self.plan["heartbeat_s"], 0.0
            for message in self._early:
                self._handle(message)
            try:
                while not self.over.is_set():
                    for key, _ in selector.select(max(0.0, due - time.monotonic())):
                        key.data()
                    if time.monotonic() >= due:
                        due = next_multiple(time.monotonic(), period) + min(BEAT_AFTER_S, period / 2)
                        self._beat()
            except ChannelClosed:
                self._orphaned()
            except Exception as error:  # noqa: BLE001 - a row or metric that cannot be sent: said, not taken for silence
                self._say_failed(error, 1)
                self._orphaned()

    def _read_messages(self) -> None:
        for message in self.channel.receive():
            self._handle(message)

    def _handle(self, message: Message) -> None:
        kind, loop = message["t"], self.loop
        if kind == "book":
            book = {peer: (epoch, (kind, host, port)) for peer, (epoch, kind, host, port) in message["workers"].items()}
            loop.post(lambda: self.peering.apply_book(message["version"], book))
        elif kind == "whole":
            loop.post(lambda: self._whole(message["version"]))
        elif kind == "pause":
            loop.post(self._pause_for_good)
        elif kind == "lost":
            loop.post(lambda: self._worker_lost(message["worker"], message["epoch"]))
        elif kind == "cut":
            loop.post(lambda: self._cut(message["pair"], message["version"]))
        elif kind == "stop":
            loop.post(lambda: self._stop(message["clean"]))

    def _whole(self, version: int) -> None:
        """Every worker is linked by this version of the book; older news, or news overtaken by a loss, is void."""
        if not self.peering.whole_by(version):
            return
        self.loop.recovered()
        if not self.loop.activated:
            self.loop.activate()
        # Told again: the coordinator heeds an end only while the run is whole, and may have heard of it before.
        self.reported = {}

    def _pause_for_good(self) -> None:
        """The run is ending. From now on the state says what went over the links, too."""
        self.loop.pause(DRAINING)

    def _worker_lost(self, worker: int, epoch: int) -> None:
        """The coordinator says that a worker is gone."""
        self.peering.gone(worker, epoch)
        self._recover(f"worker {worker}", worker)

    def _cut(self, pair: list[int], version: int) -> None:
        """The coordinator says that two workers, perhaps this one among them, lost the link between them."""
        self.peering.cut(pair, version)
        self._recover(f"the link between workers {pair[0]} and {pair[1]}", *pair)

    def _stop(self, clean: bool) -> None:
        self.clean = clean
        self.loop.stopped = True

    def _beat(self) -> None:
        begun = [] if self.initialized else list(self.loop.tasks.values())
        self.channel.send({**self.numbers, "initializing": begun[-1].plan.component if begun else ""})

    def _orphaned(self) -> None:
        """The coordinator is gone: end unclean, soon, even if user code never returns; nobody else can tidy up."""
        if self.plan["listen"][0] == "unix":
            shutil.rmtree(self.plan["listen"][1], ignore_errors=True)
        self.loop.post(lambda: self._stop(False))
        if not self.over.wait(ORPHAN_S):
            os._exit(1)

    def _complain(self, text: str) -> None:
        """What a component raised is told again at the end of a run that it made fail."""
        self.channel.try_send({"t": "complaint", "text": text})

    def tell(self, level: str, text: str) -> None:
        """Show a line to whoever watches the run. Any thread."""
        self.channel.try_send({"t": "event", "level": level, "text": text})


def _settle_collector() -> None:
    """Collect reference cycles less often: tuples have none and go by reference count."""
    # With the interpreter's own 700 allocations a collection, cycles are searched for a hundred times a second among
    # objects that have none: a sixth of the time a tuple takes. What exists by now stays for good, so it is frozen.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)


def _retriable(error: BaseException) -> bool:
    """The error says so, or the one that it was made of."""
    return any(isinstance(one, StreamletError) and one.retriable for one in (error, error.__cause__))


def serve(channel: ControlChannel, known: Message | None = None) -> int:
    """Be a worker for the coordinator at the other end; the exit status. Called on a process's main thread.

    ``known`` is what this process knows better than the plan that will come: where the topology's file lies here, or
    a secret that must not travel over a network again. Threads, handlers and sockets are gone when it returns.
    """
    try:
        messages: list[Message] = []
        deadline = time.monotonic() + 30
        while not messages and time.monotonic() < deadline:
            messages = channel.receive()
    except ChannelClosed:
        return 1
    if not messages or messages[0]["t"] != "plan":
        return 1
    worker = Worker(channel, {**messages[0], **(known or {})}, messages[1:])
    with logs_shown(worker.tell, messages[0]["debug"]):
        return worker.run()


def main() -> None:
    """``python -m streamlet.runtime.worker.worker FD``: the control channel is an inherited socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator decides what Ctrl-C means
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)  # as every descriptor but one that was passed on is already
    channel = ControlChannel.inherited(socket.socket(fileno=descriptor))
    status = serve(channel)
    sys.stdout.flush()
    channel.close()
    os._exit(status)  # daemon threads of libraries must not hold up the end


if __name__ == "__main__":
    main()
