"""``streamlet run`` with its links through ``wires.py``: ``python proxied_run.py WIRES JOURNAL run FILE ...``.

Two things differ from ``python -m streamlet``. The address book names a proxy before each worker. And the launcher
cannot kill a process that is stopped, as one on another host: it may wake up later, and must find every door closed.
JOURNAL gets a JSON line for each start and kill: ``what``, ``worker``, ``epoch``, ``pid``, ``ns`` on the monotonic
clock, and for a kill ``undead``.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from typing import Any

from streamlet.backends import processes
from streamlet.backends.processes import ProcessLauncher
from streamlet.backends.run_coordinator import RunCoordinator
from streamlet.cli.main import main
from streamlet.devcluster.jvm import is_stopped

WIRES, JOURNAL = sys.argv[1:3]


def order(asked: dict[str, Any]) -> Any:
    """Ask the wires, and wait for their answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(WIRES)
        sock.sendall(json.dumps(asked).encode() + b"\n")
        with sock.makefile() as answers:
            return json.loads(answers.readline())


def note(what: str, worker: int, epoch: int, pid: int, **more: Any) -> None:
    line = {"what": what, "worker": worker, "epoch": epoch, "pid": pid, "ns": time.monotonic_ns(), **more}
    with open(JOURNAL, "a") as journal:
        journal.write(json.dumps(line) + "\n")


class ProxiedLinks(RunCoordinator):
    """Each worker is dialled through a proxy."""

    def _handle(self, worker: int, epoch: int, raw: Any) -> None:
        if raw.get("t") == "ready":
            kind, path, port = raw["address"]
            order({"do": "listen", "group": "links", "at": f"{path}p", "to": path})
            raw = {**raw, "address": [kind, f"{path}p", port]}
        super()._handle(worker, epoch, raw)


class CannotKillTheStopped(ProcessLauncher):
    """Leaves a stopped process alone, until the run is over."""

    def __init__(self, *args: Any, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self.undead: list[Any] = []

    def start(self, worker: int, epoch: int, adopt: Any) -> None:
        super().start(worker, epoch, adopt)
        note("started", worker, epoch, self._processes[worker][1].pid)

    def kill(self, worker: int, epoch: int) -> None:
        held = self._processes.get(worker)
        if held is not None and held[0] == epoch:
            process = held[1]
            undead = process.poll() is None and is_stopped(process.pid)
            note("killed", worker, epoch, process.pid, undead=undead)
            if undead:
                self.undead.append(self._processes.pop(worker)[1])
                return
        super().kill(worker, epoch)

    def close(self) -> None:
        super().close()
        for process in self.undead:
            process.kill()
            process.wait()


if __name__ == "__main__":
    processes.RunCoordinator = ProxiedLinks  # type: ignore[misc]
    processes.ProcessLauncher = CannotKillTheStopped  # type: ignore[misc]
    sys.argv = ["streamlet", *sys.argv[3:]]
    main()
