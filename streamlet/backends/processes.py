"""Worker processes on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from streamlet.backends.contract import Observer, RunRequest, RunResult, Stop
from streamlet.backends.run_coordinator import START_REFUSED, Adopt, RunCoordinator
from streamlet.base.errors import BadInput
from streamlet.base.termination_signals import held_back
from streamlet.runtime.supervision.worker_states import HeldUp
from streamlet.runtime.worker import closed_descriptors
from streamlet.runtime.worker.channel import ControlChannel

OWN_END_S = 0.5
"""Seconds for workers that have not closed to end by themselves."""

EXIT_S = 5.0
"""Seconds for workers that have closed to do what libraries left for the exit: a last flush over a network."""

EXIT_LOOK_S = 0.005
"""Seconds between two looks at workers that are about to end."""

REAP_S = 5.0
"""Seconds that the kernel may take to end killed processes."""

logger = logging.getLogger("streamlet")


class ProcessesBackend:
    """``streamlet run --backend processes``: one process a worker, linked by Unix sockets."""

    name = "processes"

    def __init__(self, debug: bool = False) -> None:
        self._debug = debug

    def run(self, request: RunRequest, observer: Observer, stop: Stop) -> RunResult:
        """See ``Backend.run``."""
        if request.file is None:
            raise BadInput("Worker processes import the topology from its file; a topology without one runs inline.")
        coordinator = RunCoordinator(request, observer, stop, self._debug)
        launcher = ProcessLauncher(request.quiet_stdout, request.conf["topology.environment"] or {})
        stop.look = coordinator.look
        stop.on_kill(launcher.kill_all)
        stop.on_kill(lambda: shutil.rmtree(coordinator.directory, ignore_errors=True))
        return coordinator.run(launcher)


class ProcessLauncher:
    """Starts worker processes, each with one end of a socket pair.

    Plan and secret travel over that pair, never through arguments or environment. Each worker leads a process group of
    its own, so Ctrl-C reaches the coordinator only; the pair's end of file shows it when the coordinator is gone.
    """

    local, listen_host = True, ""

    def __init__(self, quiet: bool = False, variables: Mapping[str, str] | None = None) -> None:
        """Take ``quiet``, prints go to standard error, and the ``variables`` of workers."""
        self._quiet = quiet
        self._environment = _environment(variables or {})
        self._processes: dict[int, tuple[int, subprocess.Popen[bytes]]] = {}
        self._latest: dict[int, subprocess.Popen[bytes]] = {}
        """The latest process of each worker, also of one that has ended."""
        self._killed: list[subprocess.Popen[bytes]] = []
        """Those that were sent SIGKILL and are not reaped yet."""
        self._unstarted: list[tuple[int, int, str]] = []

    def start(self, worker: int, epoch: int, adopt: Adopt) -> None:
        try:
            ours = self._start(worker, epoch)
        except (OSError, subprocess.SubprocessError) as error:
            # No descriptor, process or memory is left: that may pass, so it is one start that came to nothing.
            self._unstarted.append((worker, epoch, f"{START_REFUSED}{error}"))
            return
        adopt(worker, epoch, ControlChannel.inherited(ours))

    def _start(self, worker: int, epoch: int) -> socket.socket:
        """Start a process; return our end of its channel. Raises OSError."""
        ours, theirs = socket.socketpair()
        # Rule: no signal reaches a worker before its handlers stand. Service managers signal every process, and one
        # that is only starting would die of it, and be missed by the drain.
        with theirs, held_back(), contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "streamlet.runtime.worker.worker", str(theirs.fileno())],
                env=self._environment,
                pass_fds=[theirs.fileno()],
                # A component that reads finds an empty input. Reading from the terminal would stop its worker by
                # SIGTTIN, since its group is in the background.
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if self._quiet else None,
                # A group of its own. A terminal sends Ctrl-C to the whole foreground group, and workers would die
                # before they are drained; and the group can be killed together with what components have forked.
                process_group=0,
            )
            undo.pop_all()
        self._processes[worker], self._latest[worker] = (epoch, process), process
        return ours

    def kill(self, worker: int, epoch: int) -> None:
        held = self._processes.get(worker)
        if held is not None and held[0] == epoch:
            del self._processes[worker]
            self._kill(held[1])

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        """Send SIGKILL to a worker's process group; wait for nothing."""
        # The whole group: a child that a component forked holds a copy of the worker's channel.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        # Reaped later: a process that the kernel keeps in a read of a disk that hangs does not end until that returns.
        self._killed.append(process)

    def kill_all(self) -> None:
        """Send SIGKILL to every worker and its group; reap nothing.

        For a process that ends itself right afterwards.
        """
        for _, process in list(self._processes.values()):
            with contextlib.suppress(OSError):  # one that cannot be killed must not keep the others alive
                os.killpg(process.pid, signal.SIGKILL)

    def ended(self) -> list[tuple[int, int, str]]:
        self._killed = [process for process in self._killed if process.poll() is None]
        unstarted, self._unstarted = self._unstarted, []
        return unstarted + [
            (worker, epoch, _exit_text(status))
            for worker, (epoch, process) in self._processes.items()
            if (status := _status(process)) is not None
        ]

    def ask_why(self, workers: frozenset[tuple[int, int]], tell: Callable[[HeldUp], None]) -> None:
        """Say nothing: a process begins as soon as it is started."""

    def let_end(self, workers: Mapping[int, bool]) -> dict[int, str]:
        # Rule: also those whose end was noted before. A worker that has closed comes to its exit while others still
        # close, and nobody has asked how it ended there.
        closed = {worker: self._latest[worker] for worker in workers if worker in self._latest}
        wait_until_ended([*closed.values()], EXIT_S)
        how = dict[int, str]()
        for worker, process in closed.items():
            status = _status(process)
            if status is None:
                how[worker] = ""
            elif status < 0 or (status and not workers[worker]):
                how[worker] = _exit_text(status)
        return how

    def close(self) -> None:
        wait_until_ended([process for _, process in self._processes.values()], OWN_END_S)
        for _, process in self._processes.values():
            self._kill(process)
        self._processes.clear()
        left = _wait_for(self._killed, REAP_S)
        if left:
            pids = ", ".join(str(process.pid) for process in left)
            logger.warning(
                "Workers that were killed have not ended after %g s (process %s): the kernel keeps them, mostly in a "
                "read or write of a disk that hangs. They end with it.", REAP_S, pids
            )  # fmt: skip
        for process in left:
            process.returncode = -signal.SIGKILL  # else its last reference complains that nobody has waited for it
        self._killed = []


def _status(process: subprocess.Popen[bytes]) -> int | None:
    """Return the status of a process that has ended, else None; do not reap it."""
    # Rule: the group of a worker is killed before the worker is reaped. Until then the kernel gives its number to
    # nobody; afterwards another program's group may have it.
    try:
        found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # code of the user's has reaped it, as a handler of SIGCHLD may
        return process.poll()
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def wait_until_ended(processes: list[subprocess.Popen[bytes]], seconds: float) -> None:
    """Wait until processes have ended, for so long in all; reap none."""
    deadline = time.monotonic() + seconds
    while any(_status(process) is None for process in processes) and time.monotonic() < deadline:
        time.sleep(EXIT_LOOK_S)


def _wait_for(processes: list[subprocess.Popen[bytes]], seconds: float) -> list[subprocess.Popen[bytes]]:
    """Wait until processes have ended, for so long in all; return those that have not."""
    deadline = time.monotonic() + seconds
    left = []
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            left.append(process)
    return left


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return a worker's environment: it finds streamlet where we did."""
    # Rule: a worker has a topology's variables from its first moment, as in Storm. The interpreter, the C library and
    # the loader read some once, at the start: TZ, PYTHONPATH, LD_LIBRARY_PATH, PYTHONHASHSEED.
    # PYTHONPATH is built from absolute names, because `-P` keeps the working directory off the worker's sys.path. Ours
    # comes first, whatever streamlet the others hold; those of this process come last: it has imported the topology
    # with them.
    paths = [str(Path(__file__).parents[2]), variables.get("PYTHONPATH"), os.environ.get("PYTHONPATH")]
    return {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _exit_text(returncode: int) -> str:
    if returncode < 0:
        names = {each.value: each.name for each in signal.Signals}  # of real-time signals the first and the last alone
        return f"was killed by {names.get(-returncode, f'signal {-returncode}')}"
    return closed_descriptors.HOW if returncode == closed_descriptors.STATUS else f"ended with status {returncode}"
