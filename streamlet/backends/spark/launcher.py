"""Slots as workers: a thread and a job for each, and a listener that their tasks dial. Knows no pyspark."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from streamlet.backends.run_coordinator import Adopt
from streamlet.backends.spark.loss import Loss, spark_lost
from streamlet.runtime.links import handshake
from streamlet.runtime.links.dialing import Secured
from streamlet.runtime.links.handshake import Hello, Refused
from streamlet.runtime.links.server import LinkServer
from streamlet.runtime.links.tls import LinkTls
from streamlet.runtime.links.wire import MAX_CONTROL_FRAME
from streamlet.runtime.supervision.worker_states import HeldUp
from streamlet.runtime.worker.channel import ControlChannel

LAST_S = 1.0
"""Seconds for the job of a worker that is gone to end by itself."""

RETURN_S = 5.0
"""Seconds for a task that was told to stop before its job is cancelled."""

CANCEL_S = 15.0
"""Seconds that Spark may take over a cancelled job."""


class Jobs(Protocol):
    """Runs slots on Spark. Methods are called by several threads at once."""

    def run(self, worker: int, epoch: int, address: tuple[str, int]) -> str:
        """Run the slot's job to its end; return how it ended, for a sentence.

        The sentence begins "worker 1 (epoch 2) ...".
        """

    def cancel(self, worker: int, epoch: int) -> None:
        """End its job if it runs."""

    def lost(self) -> Loss | None:
        """Return how Spark's application ended; None while it is there."""

    def held_up(self, workers: frozenset[tuple[int, int]]) -> HeldUp:
        """Return which of these (worker, epoch) wait for a slot, and why. May block for seconds."""

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """Make a thread that may call the methods above, not started."""


class SlotLauncher:
    """A Launcher whose workers are tasks of Spark.

    Tasks dial the coordinator at ``host``. Workers listen for each other at ``listen_host``; if that is empty, each
    listens at its own end of the connection to the coordinator.
    """

    local = False

    def __init__(
        self,
        jobs: Jobs,
        host: str,
        listen_host: str,
        run_id: bytes,
        secret: bytes,
        certificate: bytes = b"",
        dialled_host: str = "",
    ) -> None:
        """Listen at ``host``; ``dialled_host``: where slots dial, if elsewhere."""
        self.listen_host = listen_host
        self._jobs = jobs
        self._run_id = run_id
        self._lock = threading.Lock()
        self._expected: dict[int, tuple[int, Adopt]] = {}
        self._slots: dict[tuple[int, int], threading.Thread] = {}
        self._cancellers: list[threading.Thread] = []
        self._looker: threading.Thread | None = None
        self._ended: list[tuple[int, int, str, Loss | None]] = []
        self._closed = threading.Event()
        tls = LinkTls(certificate) if certificate else None
        self._server = LinkServer(
            ("tcp", host, 0), secret, self._check_hello, self._adopt_secured, MAX_CONTROL_FRAME, tls
        )
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.address = (dialled_host or self._server.address[1], self._server.address[2])
        self._acceptor = threading.Thread(target=self._accept, name="slots", daemon=True)
        self._acceptor.start()

    # -- the listener, on threads of its own ---------------------------------------------------------------------

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            while not self._closed.is_set():
                selector.select()
                self._server.serve()

    def _check_hello(self, hello: Hello) -> None:
        if hello.kind != handshake.CONTROL or hello.run_id != self._run_id:
            raise Refused("it wants another run")
        with self._lock:
            expected = self._expected.get(hello.worker)
        if expected is None or expected[0] != hello.epoch:
            raise Refused(f"epoch {hello.epoch} of worker {hello.worker} is not expected: it was replaced, or is here")

    def _adopt_secured(self, secured: Secured) -> None:
        hello = secured.hello
        adopt = self._forget(hello.worker, hello.epoch)  # one task for each epoch, whatever Spark does
        if adopt is None:
            secured.sock.close()
        else:
            channel = ControlChannel(secured.sock, secured.writer, secured.reader)
            adopt(hello.worker, hello.epoch, channel)

    # -- what the coordinator calls --------------------------------------------------------------------------------

    def start(self, worker: int, epoch: int, adopt: Adopt) -> None:
        # Expected before its job is started: the task may dial in before this method has returned.
        with self._lock:
            self._expected[worker] = epoch, adopt
        thread = self._jobs.thread(lambda: self._run(worker, epoch), f"slot {worker}.{epoch}")
        self._slots[worker, epoch] = thread
        thread.start()

    def _run(self, worker: int, epoch: int) -> None:
        try:
            how = self._jobs.run(worker, epoch, self.address)
        except Exception as error:  # noqa: BLE001 - the last frame of a slot's thread: it must be told, not lost
            how = f"could not be run by Spark ({type(error).__name__}: {error})"
        # Asked on this thread: a driver JVM that hangs must not stop the coordinator.
        self._ended.append((worker, epoch, how, self._jobs.lost()))

    def kill(self, worker: int, epoch: int) -> None:
        self._forget(worker, epoch)
        thread = self._slots.get((worker, epoch))
        if thread is not None and thread.is_alive():
            self._cancel(worker, epoch, LAST_S)

    def _forget(self, worker: int, epoch: int) -> Adopt | None:
        with self._lock:
            expected = self._expected.get(worker)
            if expected is None or expected[0] != epoch:
                return None
            del self._expected[worker]
            return expected[1]

    def _cancel(self, worker: int, epoch: int, after_s: float) -> None:
        """Cancel a slot on another thread. A driver JVM that hangs must not stop the coordinator."""
        slot = self._slots[worker, epoch]
        thread = self._jobs.thread(lambda: self._cancel_slot(slot, worker, epoch, after_s), f"cancel {worker}.{epoch}")
        self._cancellers.append(thread)
        thread.start()

    def _cancel_slot(self, slot: threading.Thread, worker: int, epoch: int, after_s: float) -> None:
        # A cancel is a SIGKILL and takes Spark two to four seconds; a worker that closed on request needs none.
        slot.join(after_s)
        if not slot.is_alive():
            return
        with contextlib.suppress(Exception):  # py4j raises half a dozen kinds when the JVM is gone, and the job with it
            self._jobs.cancel(worker, epoch)

    def ended(self) -> list[tuple[int, int, str]]:
        """Return workers that ended. Raises SparkLost without an application to start more."""
        taken = self._taken()
        # Rule: look at the application, not at the JVM. One that was stopped, on the page of Spark's master for one,
        # leaves the JVM alive, and slots would be started on nothing for as long as the run is to last.
        lost = next((loss for *_, loss in taken if loss is not None), None)
        if lost is not None and not self._closed.is_set():
            _join([*self._slots.values()], LAST_S)  # one of them has the reason
            raise spark_lost(lost, running=True, said=[how for _, _, how, _ in [*taken, *self._taken()]])
        return [(worker, epoch, how) for worker, epoch, how, _ in taken]

    def ask_why(self, workers: frozenset[tuple[int, int]], tell: Callable[[HeldUp], None]) -> None:
        # Rule: on another thread, and one at a time. A master that is gone, or a JVM that hangs, answers late or never,
        # and must neither stop the coordinator nor gather threads.
        if self._looker is None or not self._looker.is_alive():
            self._looker = self._jobs.thread(lambda: self._look(workers, tell), "look why slots wait")
            self._looker.start()

    def _look(self, workers: frozenset[tuple[int, int]], tell: Callable[[HeldUp], None]) -> None:
        with contextlib.suppress(
            Exception
        ):  # py4j raises half a dozen kinds; `ended` tells an application that is gone
            tell(self._jobs.held_up(workers))

    def _taken(self) -> list[tuple[int, int, str, Loss | None]]:
        taken = []
        while self._ended:  # one by one: slots add to the list meanwhile
            taken.append(self._ended.pop(0))
        for worker, epoch, *_ in taken:
            self._slots.pop((worker, epoch), None)
        return taken

    def let_end(self, workers: Mapping[int, bool]) -> dict[int, str]:
        """Return none: a slot's process is Spark's, and lives on."""
        return {}

    def close(self) -> None:
        """Let tasks return, cancel those that do not, and stop listening."""
        with self._lock:
            self._expected.clear()
        _join(self._slots.values(), RETURN_S)
        for (worker, epoch), thread in self._slots.items():
            if thread.is_alive():
                self._cancel(worker, epoch, 0.0)
        _join([*self._slots.values(), *self._cancellers], CANCEL_S)
        # The listener goes last: a task that is still coming up finds it and is refused at once, and does not dial
        # until its own time-out.
        self._closed.set()
        os.write(self._wake_write, b"\0")
        self._acceptor.join()
        self._server.close()
        os.close(self._wake_read)
        os.close(self._wake_write)


def _join(threads: Iterable[threading.Thread], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
