"""Links between real worker processes that do not come up or do not last: who is told what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.backends.processes import ProcessLauncher
from streamlet.backends.run_coordinator import RunCoordinator, RunFailed
from streamlet.base.log_line import LogLine
from streamlet.model.settings import resolve
from streamlet.runtime.supervision import instructions, link_watch, worker_states
from streamlet.runtime.worker.loading import load_topology
from streamlet.runtime.worker.messages import Raw
from tests.faults.inside import Proxied
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

FILE = """
import time
from streamlet import Bolt, Spout, Topology

class Quiet(Spout):
    outputs = ["n"]
    def next_tuple(self): ...

class Slow(Bolt):
    def initialize(self, conf, context):
        time.sleep(conf["slow"])
    def process(self, tup): ...

class Two(Topology):
    config = {"slow": 0.0}
    quiet = Quiet.spec()
    slow = Slow.spec(inputs=[quiet])
"""


class Until(Watcher):
    """Asks the run to stop at an event that holds these words."""

    def __init__(self, stop: Stop, words: str) -> None:
        super().__init__()
        self.stop, self.words = stop, words

    def on_event(self, line: LogLine) -> None:
        super().on_event(line)
        if self.words in line.text:
            self.stop.ask()


def run(folder: Path, kind: type[RunCoordinator], words: str, **settings: Any) -> tuple[RunResult, str]:
    """Run until an event holds these words; the result, and that event."""
    file = folder / f"two_{kind.__name__}_{len(settings)}.py".lower()
    file.write_text(FILE)
    topology, stop = load_topology(file), Stop()
    conf = resolve(topology.config, {key.replace("_", "."): value for key, value in settings.items()})
    observer = Until(stop, words)
    coordinator = kind(RunRequest(topology, conf, file=file, workers=2, seconds=PATIENCE_S), observer, stop)
    result = coordinator.run(ProcessLauncher())
    (text,) = [text for text in observer.texts if words in text]
    assert result.reason == "interrupted"
    return result, text


class Elsewhere(RunCoordinator):
    """Names an address for each worker at which nobody listens."""

    def _handle(self, worker: int, epoch: int, message: Raw) -> None:
        if message["t"] == "ready":
            kind, path, port = message["address"]
            message = {**message, "address": [kind, f"{path}x", port]}
        super()._handle(worker, epoch, message)
        if message["t"] == "unlinked":
            worker_states.UNWHOLE_S = 0.0  # it has been long enough


class Initialising(RunCoordinator):
    """Has waited long enough when one worker is up and the other has begun."""

    def _handle(self, worker: int, epoch: int, message: Raw) -> None:
        super()._handle(worker, epoch, message)
        if self.supervisor.workers[0].initialized and self.supervisor.workers[1].initializing:
            worker_states.UNWHOLE_S = 0.0


def test_a_pair_that_cannot_link_is_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again for ever, which nobody saw."""
    monkeypatch.setattr(worker_states, "UNWHOLE_S", PATIENCE_S)
    _, text = run(tmp_path, Elsewhere, "No tuple has flowed")
    assert "worker 1 cannot reach worker 0 (" in text and "Connection refused" in text


def test_a_worker_that_initialises_for_long_is_named_with_its_component(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_states, "UNWHOLE_S", PATIENCE_S)
    settings = {"slow": 4 * PATIENCE_S, "streamlet_worker_heartbeat_secs": 0.1, "streamlet_stop_timeout_secs": 0.1}
    _, text = run(tmp_path, Initialising, "No tuple has flowed", **settings)
    assert "worker 1 (slow) is still initialising its components (last begun: slow)" in text
    assert "worker 0" not in text


class Cutting(Proxied):
    """Cuts every link as soon as all stand."""

    def _do(self, wanted: list[instructions.Instruction]) -> None:
        super()._do(wanted)
        if any(isinstance(one, instructions.Whole) for one in wanted):
            self.cut()


def test_a_link_that_never_lasts_ends_the_run_with_both_workers_and_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_watch, "SETTLES_S", 0.2)
    monkeypatch.setattr(link_watch, "AGAIN_S", 0.2)
    with pytest.raises(
        RunFailed, match=r"The link between worker 0 and worker 1 was lost \d+ times .* the peer closed it"
    ):
        run(tmp_path, Cutting, "never said", streamlet_worker_restarts_max=2)
