"""A run whose coordinator and workers are on hosts of a ``network.Network``, linked over TCP as on executors."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from streamlet.backends.spark.launcher import SlotLauncher
from streamlet.runtime.supervision.worker_states import HeldUp
from tests.faults.inside import Inside
from tests.faults.network import Network
from tests.faults.rig import wait_for

NUMBERED = Path(__file__).parents[1] / "topologies" / "numbered.py"


class Hosts:
    """Spark's part: it runs each worker on its host. ``on`` says where the next start of a worker goes.

    A host without power is out of reach: ``cancel`` does nothing there.
    """

    def __init__(self, network: Network, on: Sequence[str], file: Path, log: Path) -> None:
        self.network = network
        self.on = list(on)
        self.off: set[str] = set()
        self.processes: dict[tuple[int, int], tuple[str, subprocess.Popen[bytes]]] = {}
        self.run_id = self.secret = b""
        self._file = file
        self._log = log

    def run(self, worker: int, epoch: int, address: tuple[str, int]) -> str:
        host = self.on[worker]
        slot = {"unpacked": str(self._file.parent), "name": self._file.name, "origin": str(self._file.parent)}
        slot |= {"address": address, "worker": worker, "epoch": epoch, "folder": None}  # type: ignore[dict-item]
        slot |= {"run_id": self.run_id.hex(), "secret": self.secret.hex()}
        with self.network.inside(host), self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.network_worker"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(json.dumps(slot).encode() + b"\n")
        self.processes[worker, epoch] = host, process
        return f"ended with status {process.wait()}"

    def cancel(self, worker: int, epoch: int) -> None:
        host, process = self.processes[worker, epoch]
        if host not in self.off:
            process.kill()

    def lost(self) -> None:
        return None

    def held_up(self, workers: frozenset[tuple[int, int]]) -> HeldUp:
        return HeldUp()

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=target, name=name, daemon=True)

    def power_off(self, host: str) -> None:
        """Take a host off the network, and out of reach of ``cancel``."""
        self.off.add(host)
        self.network.power_off(host)

    def close(self) -> None:
        for _, process in self.processes.values():
            process.kill()
            process.wait()


class FarRun(Inside):
    """``numbered.py``, or another, on three workers, each on its host, and the coordinator on a fourth."""

    def __init__(
        self, network: Network, folder: Path, count: int, *, six: bool = False, file: Path = NUMBERED, **conf: Any
    ) -> None:
        self.out = folder / "out"
        self.out.mkdir()
        self.count = count
        settings = {"out": str(self.out), "numbers.count": count, **conf}
        super().__init__(None, 3, file=file, **settings)
        self.hosts = Hosts(network, network.names[1:4], file, folder / "workers.log")
        self.hosts.run_id, self.hosts.secret = self.coordinator.run_id, self.coordinator.secret
        driver = network.names[0]
        host = network.address6(driver) if six else network.address(driver)
        with network.inside(driver):
            self.launcher = SlotLauncher(self.hosts, host, "", self.coordinator.run_id, self.coordinator.secret)

    def stored(self) -> list[int]:
        """What the witness has, from outside of the run."""
        file = self.out / "witness"
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []

    def wait_for_stored(self, count: int) -> None:
        count = min(count, self.count)
        wait_for(f"{count} numbers to be stored", lambda: len(set(self.stored())) >= count, told=self.told)

    def wait_for_more(self, count: int = 100) -> None:
        """Until that many further numbers are stored."""
        self.wait_for_stored(len(set(self.stored())) + count)

    def wait_for_text(self, text: str, patience_s: float) -> str:
        """Wait for a line that holds a text; that line."""
        return str(wait_for(f"{text!r} to be told", lambda: self._line_with(text), patience_s, self.told))

    def _line_with(self, text: str) -> str:
        return next((line for line in self.observer.texts if text in line), "")

    def addresses(self) -> list[str]:
        """Where the workers were listening for each other."""
        return [worker.address[1] for worker in self.coordinator.supervisor.workers.values() if worker.address]

    def check(self) -> None:
        """Every number was stored."""
        assert sorted(set(self.stored())) == list(range(self.count))


@contextlib.contextmanager
def far_run(network: Network, folder: Path, count: int, **conf: Any) -> Iterator[FarRun]:
    """A run on the network's hosts; its processes end with it."""
    run = FarRun(network, folder, count, **conf)
    try:
        with run:
            yield run
    finally:
        network.heal()
        run.hosts.close()
