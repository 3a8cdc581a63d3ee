"""A worker dies while a run ends: nobody takes its place, and the others still work off what they hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlet.backends.contract import RunRequest, Stop
from streamlet.backends.processes import ProcessesBackend
from streamlet.base.errors import StreamletError
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

pytestmark = pytest.mark.faults

FILE = """
import os, time
from pathlib import Path
from streamlet import Bolt, Spout, Topology

COUNT = 200
FOLDER = Path(__file__).parent

class Numbers(Spout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        while self.n < COUNT:
            self.n += 1
            self.emit([self.n])
    def caught_up(self):
        return self.n == COUNT
    def on_drain(self):
        (FOLDER / "draining").touch()

class Relay(Bolt):
    outputs = ["n"]
    def process(self, tup):
        time.sleep(0.01)
        self.emit(tup.values)
        with (FOLDER / "done").open("a") as done:
            done.write(f"{tup.values[0]}\\n")

class Sink(Bolt):
    def process(self, tup):
        if (FOLDER / "draining").exists():
            os._exit(7)

class Made(Topology):
    numbers = Numbers.spec()
    relay = Relay.spec(inputs=[numbers])
    sink = Sink.spec(inputs=[relay])
"""


def test_what_a_drain_has_left_to_do_is_done_though_its_next_worker_has_died(tmp_path: Path) -> None:
    """Untracked, so that nobody sends it again: what reaches nobody is told by number, all else is done."""
    file = tmp_path / "death_in_a_drain.py"
    file.write_text(FILE)
    topology = load_topology(file)
    settings = {"streamlet.until.caught.up": True, "streamlet.worker.heartbeat.secs": 0.2}
    request = RunRequest(
        topology, resolve(topology.config, settings), file=file, workers=3, until_caught_up=True, seconds=PATIENCE_S
    )
    with pytest.raises(StreamletError) as failed:
        ProcessesBackend().run(request, Watcher(), Stop())
    assert [int(line) for line in (tmp_path / "done").read_text().split()] == [*range(1, 201)]
    assert "sink" in str(failed.value) and "status 7" in str(failed.value)
