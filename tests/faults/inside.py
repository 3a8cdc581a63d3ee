"""A run whose coordinator lives on a thread of the test, so that the test can bring a launcher of its own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.backends.processes import Adopt, ProcessLauncher
from streamlet.backends.run_coordinator import Launcher, RunCoordinator
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from streamlet.runtime.worker.messages import Raw
from tests.faults.rig import MAX_PENDING, PATIENCE_S, Rig, wait_for
from tests.run_observer import Watcher


class Inside:
    """``with Inside(rig, ...) as run``: ``run.coordinator`` works on a thread until it is done."""

    def __init__(
        self,
        rig: Rig,
        workers: int,
        kind: type[RunCoordinator] = RunCoordinator,
        *,
        file: Path | None = None,
        **conf: Any,
    ) -> None:
        before = list(sys.path)
        file = file or rig.topology()
        topology = load_topology(file)
        sys.path[:] = before
        settings: dict[str, Any] = {"topology.max.spout.pending": MAX_PENDING, "topology.message.timeout.secs": 900}
        settings |= {"streamlet.until.caught.up": True} | {k.replace("_", "."): v for k, v in conf.items()}
        resolved = resolve(topology.config, settings)
        request = RunRequest(topology, resolved, file=file, workers=workers, until_caught_up=True)
        self.observer = Watcher()
        self.stop = Stop()
        self.coordinator = kind(request, self.observer, self.stop)
        self.result: RunResult | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="coordinator")
        self.launcher: Launcher = ProcessLauncher()

    def __enter__(self) -> Inside:
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            self.result = self.coordinator.run(self.launcher)
        except BaseException as error:
            self.error = error

    def finish(self) -> RunResult:
        """Until it has ended by itself, well."""
        wait_for("the run to end", lambda: not self._thread.is_alive(), PATIENCE_S, self.told)
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result

    def told(self) -> str:
        return "\n".join(f"{level} {text}" for level, text in self.observer.events[-20:])

    def __exit__(self, *_: object) -> None:
        self.stop.ask()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


class NeverKills(ProcessLauncher):
    """A launcher whose ``kill`` does nothing: what it should have killed may wake up again, as on another host."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.undead: list[subprocess.Popen[bytes]] = []

    def start(self, worker: int, epoch: int, adopt: Adopt) -> None:
        self.kill(worker, epoch - 1)
        super().start(worker, epoch, adopt)

    def kill(self, worker: int, epoch: int) -> None:
        held = self._processes.get(worker)
        if held is not None and held[0] == epoch:
            del self._processes[worker]
            self.undead.append(held[1])

    def close(self) -> None:
        super().close()
        for process in self.undead:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
            process.kill()
            process.wait()


class CutProxy:
    """Stands between all who dial one worker and that worker; ``cut`` ends what runs through it, both ways."""

    def __init__(self, path: str, target: str) -> None:
        self.path = path
        self._target = target
        self._open: list[socket.socket] = []
        self._all: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(64)
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                far.connect(self._target)
            except OSError:
                near.close()
                far.close()
                continue
            self._open += [near, far]
            self._all += [near, far]
            for source, sink, from_dialer in ((near, far, True), (far, near, False)):
                self._threads.append(threading.Thread(target=self._pump, args=(source, sink, from_dialer)))
                self._threads[-1].start()

    def links(self) -> int:
        """How many links have run through it so far."""
        return len(self._all) // 2

    def _pump(self, source: socket.socket, sink: socket.socket, from_dialer: bool) -> None:
        with contextlib.suppress(OSError):
            self.pump(source, sink, from_dialer)
        _shut(sink)
        _shut(source)

    def pump(self, source: socket.socket, sink: socket.socket, from_dialer: bool) -> None:
        """Hand on what comes, to its end. One thread a direction."""
        while data := source.recv(1 << 16):
            sink.sendall(data)

    def cut(self) -> int:
        """How many links there were."""
        cut, self._open = self._open, []
        for sock in cut:
            _shut(sock)
        return len(cut) // 2

    def close(self) -> None:
        _shut(self._listener)
        self.cut()
        for thread in self._threads:
            thread.join(5)
        for sock in [self._listener, *self._all]:
            sock.close()


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


class Proxied(RunCoordinator):
    """Puts a proxy before every worker: the address book names the proxy."""

    kind: type[CutProxy] = CutProxy

    def __init__(self, *args: Any, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self.proxies: list[CutProxy] = []
        self.before: dict[int, CutProxy] = {}
        """The latest of each worker."""

    def _handle(self, worker: int, epoch: int, message: Raw) -> None:
        if message["t"] == "ready":
            family, path, port = message["address"]
            proxy = self.before[worker] = self.kind(f"{path}p", path)
            self.proxies.append(proxy)
            message = {**message, "address": [family, proxy.path, port]}
        super()._handle(worker, epoch, message)

    def cut(self) -> int:
        """Cut every link there is; how many."""
        return sum(proxy.cut() for proxy in self.proxies)

    def _clear(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        super()._clear()
