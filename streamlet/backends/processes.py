"""Worker processes on this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

from streamlet.backends.contract import Observer, RunRequest, RunResult, Stop
from streamlet.backends.run_coordinator import Adopt, RunCoordinator
from streamlet.base.errors import BadInput
from streamlet.runtime.worker.channel import ControlChannel


class ProcessesBackend:
    """``streamlet run --backend processes``: one process a worker, linked by Unix sockets in a private directory."""

    name = "processes"

    def __init__(self, debug: bool = False) -> None:
        self._debug = debug

    def run(self, request: RunRequest, observer: Observer, stop: Stop) -> RunResult:
        """See ``Backend.run``."""
        if request.file is None:
            raise BadInput("Worker processes import the topology from its file; a topology without one runs inline.")
        coordinator = RunCoordinator(request, observer, stop, self._debug)
        launcher = ProcessLauncher(str(coordinator.directory), quiet=request.quiet_stdout)
        stop.on_kill(launcher.kill_all)
        stop.on_kill(lambda: shutil.rmtree(coordinator.directory, ignore_errors=True))
        return coordinator.run(launcher)


class ProcessLauncher:
    """Starts worker processes, each with one end of a socket pair.

    Plan and secret travel over that pair, never through arguments or environment. Each worker leads a process group of
    its own, so Ctrl-C reaches the coordinator only; the pair's end of file shows it when the coordinator is gone.
    """

    def __init__(self, directory: str, quiet: bool = False) -> None:
        self.listen = ("unix", directory)
        self._quiet = quiet
        self._processes: dict[int, tuple[int, subprocess.Popen[bytes]]] = {}

    def start(self, worker: int, epoch: int, adopt: Adopt) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "streamlet.runtime.worker.worker", str(theirs.fileno())],
                env=_environment(),
                pass_fds=[theirs.fileno()],
                # A component that reads finds an empty input. Reading from the terminal would stop its worker by
                # SIGTTIN, since its group is in the background.
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if self._quiet else None,
                # A group of its own. A terminal sends Ctrl-C to the whole foreground group, and workers would die
                # before they are drained; and the group can be killed together with what components have forked.
                process_group=0,
            )
        self._processes[worker] = (epoch, process)
        adopt(worker, epoch, ControlChannel.inherited(ours))

    def kill(self, worker: int, epoch: int) -> None:
        held = self._processes.get(worker)
        if held is not None and held[0] == epoch:
            del self._processes[worker]
            _end(held[1])

    def kill_all(self) -> None:
        """Send SIGKILL to every worker and its group; reap nothing.

        For a process that ends itself right afterwards.
        """
        for _, process in list(self._processes.values()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def ended(self) -> list[tuple[int, int, str]]:
        return [
            (worker, epoch, _how(process.returncode))
            for worker, (epoch, process) in self._processes.items()
            if process.poll() is not None
        ]

    def close(self) -> None:
        for _, process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
        for _, process in self._processes.values():
            _end(process)
        self._processes.clear()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker and its process group, and reap it."""
    # The whole group: a child that a component forked holds a copy of the worker's channel.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment() -> dict[str, str]:
    """Let a worker find streamlet where this process did."""
    # By name, since `-P` keeps the working directory off the worker's sys.path.
    own = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([own, *filter(None, [os.environ.get("PYTHONPATH")])])}


def _how(returncode: int) -> str:
    if returncode < 0:
        return f"was killed by {signal.Signals(-returncode).name}"
    return f"ended with status {returncode}"
