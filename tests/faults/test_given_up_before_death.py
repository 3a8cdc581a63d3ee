"""What a component had given up stands in the result, though its worker died before its next heartbeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlet.backends.contract import RunRequest, Stop
from streamlet.backends.outcome import TreesFailed, TuplesLeft
from streamlet.backends.processes import ProcessesBackend
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.run_observer import Watcher

pytestmark = pytest.mark.faults

TOPOLOGY = """
import os, time
from pathlib import Path
from streamlet import Bolt, ReliableSpout, Topology

NOTES = Path("FOLDER")

def note(name, line):
    with open(NOTES / name, "a") as file:
        file.write(f"{line}\\n")

class Numbers(ReliableSpout):
    outputs = ["n"]
    max_fails = 0
    def initialize(self, conf, context):
        self.left = [] if (NOTES / "died").exists() else [1, 2, 3, 4, 5, "deadly"]
    def next_tuple(self):
        if self.left and (self.left[0] != "deadly" or not self.unacked_tuples):
            n = self.left.pop(0)
            self.emit([n], tup_id=n)
    def given_up(self, tup_id, values, failures):
        note("given_up", tup_id)
    def caught_up(self):
        return not self.left and not self.has_unfinished()

class Refuses(Bolt):
    def process(self, tup):
        if tup.values[0] == "deadly":
            note("died", "")
            os._exit(7)
        if tup.values[0] % 2:
            note("refused", tup.values[0])
            raise ValueError("odd")

class Made(Topology):
    config = {"topology.acker.executors": ACKERS, "streamlet.worker.heartbeat.secs": 5,
              "streamlet.worker.timeout.secs": 20}
    numbers = Numbers.spec()
    refuses = Refuses.spec(inputs=[numbers])
"""


@pytest.mark.parametrize("tracked", [True, False], ids=["tracked", "untracked"])
def test_tuples_given_up_just_before_a_death_are_in_the_result(tracked: bool, tmp_path: Path) -> None:
    """Status 0 and none given up was the end of a run whose spout and bolt died together."""
    file = tmp_path / f"gives_up_{int(tracked)}.py"
    file.write_text(TOPOLOGY.replace("FOLDER", str(tmp_path)).replace("ACKERS", str(int(tracked))))
    topology = load_topology(file, "Made")
    conf = resolve(topology.config, {"streamlet.until.caught.up": True})
    request = RunRequest(topology, conf, file=file, attribute="Made", workers=1, until_caught_up=True)
    with pytest.raises((TreesFailed, TuplesLeft)) as caught:
        ProcessesBackend().run(request, Watcher(), Stop())
    assert (tmp_path / "died").exists() and caught.value.result is not None
    who, notes = ("numbers", "given_up") if tracked else ("refuses", "refused")
    assert (tmp_path / notes).read_text().split() == ["1", "3", "5"]
    assert caught.value.result.components[who].given_up == 3
