"""What a component had given up stands in the result, though its worker died before its next heartbeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.backends.outcome import TreesFailed, TuplesLeft
from streamlet.backends.processes import ProcessesBackend
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.run_observer import Watcher

pytestmark = pytest.mark.faults

TOPOLOGY = """
import os, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from streamlet import Bolt, ReliableSpout, Spout, Topology

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

class Plain(Spout):
    # It hears of nothing that fails.
    outputs = ["n"]
    initialize = Numbers.initialize
    def next_tuple(self):
        if self.left and (self.left[0] != "deadly" or (NOTES / "refused").read_text().split()[2:] == ["5"]):
            n = self.left.pop(0)
            self.emit([n], tup_id=n)
    def caught_up(self):
        return not self.left

class Dying(Spout):
    # Dies in the middle of a call, when some of its emits have returned, one by one and as a list.
    outputs = ["n"]
    initialize = Numbers.initialize
    def next_tuple(self):
        if not self.left:
            return
        for n in range(4):
            self.emit([n])
        self.emit_many([[4], [5], [6]])
        note("died", "")
        os._exit(7)
    def caught_up(self):
        return not self.left

class Ticking(Bolt):
    # Dies in the middle of a tick.
    outputs = ["n"]
    config = {"topology.tick.tuple.freq.secs": 0.2}
    def process(self, tup):
        pass
    def process_tick(self, tup):
        if not (NOTES / "died").exists():
            for n in range(7):
                self.emit([n])
            note("died", "")
            os._exit(7)

class Counts(Bolt):
    outputs = ["n"]
    def process(self, tup):
        note("arrived", tup.values[0])

class Refuses(Bolt):
    outputs = ["n"]
    def process(self, tup):
        if tup.values[0] == "deadly":
            note("died", "")
            os._exit(7)
        if tup.values[0] % 2:
            note("refused", tup.values[0])
            raise ValueError("odd")

class Pooled(Refuses):
    # Its pool emits for tuples that are acked already, and is refused.
    def initialize(self, conf, context):
        self.pool, self.acked = ThreadPoolExecutor(2), threading.Event()
    def process(self, tup):
        if tup.values[0] == "deadly":
            self.acked.set()
            self.pool.shutdown()
            super().process(tup)
        self.pool.submit(self.send, tup)
    def send(self, tup):
        self.acked.wait()
        try:
            self.emit(tup.values, anchors=[tup])
        except ValueError:
            note("refused", tup.values[0])
            raise

class Made(Topology):
    config = {"topology.acker.executors": ACKERS, "streamlet.worker.heartbeat.secs": 5,
              "streamlet.worker.timeout.secs": 20}
    numbers = SPOUT.spec()
    refuses = BOLT.spec(inputs=[numbers])
    counts = Counts.spec(inputs=[refuses])
"""


def result_of(folder: Path, name: str, acker: int, spout: str = "Numbers", bolt: str = "Refuses") -> RunResult:
    """Run the topology to its end, which is no good one; return its numbers."""
    file = folder / f"died_{name}.py"  # no other test has a module of that name
    text = TOPOLOGY.replace("FOLDER", str(folder)).replace("ACKERS", str(acker))
    file.write_text(text.replace("SPOUT", spout).replace("BOLT", bolt))
    topology = load_topology(file, "Made")
    conf = resolve(topology.config, {"streamlet.until.caught.up": True})
    request = RunRequest(topology, conf, file=file, attribute="Made", workers=1, until_caught_up=True)
    with pytest.raises((TreesFailed, TuplesLeft)) as caught:
        ProcessesBackend().run(request, Watcher(), Stop())
    assert (folder / "died").exists() and caught.value.result is not None
    return caught.value.result


@pytest.mark.parametrize("tracked", [True, False], ids=["tracked", "untracked"])
def test_tuples_given_up_just_before_a_death_are_in_the_result(tracked: bool, tmp_path: Path) -> None:
    """Status 0 and none given up was the end of a run whose spout and bolt died together."""
    result = result_of(tmp_path, f"gives_up_{int(tracked)}", int(tracked))
    who, notes = ("numbers", "given_up") if tracked else ("refuses", "refused")
    assert (tmp_path / notes).read_text().split() == ["1", "3", "5"]
    assert result.components[who].given_up == 3


def test_failures_that_a_spout_does_not_hear_of_outlive_its_worker(tmp_path: Path) -> None:
    assert result_of(tmp_path, "plain", 1, "Plain").components["numbers"].given_up == 3


def test_refused_emits_of_a_pool_outlive_their_worker(tmp_path: Path) -> None:
    result = result_of(tmp_path, "pooled", 1, bolt="Pooled")
    refused = (tmp_path / "refused").read_text().split()
    assert len(refused) == 5 and result.components["refuses"].given_up == 5


@pytest.mark.parametrize(("spout", "bolt", "who"), [("Dying", "Counts", "numbers"), ("Numbers", "Ticking", "refuses")])
def test_untracked_emits_of_a_call_in_which_the_worker_dies_are_lost_to_the_last(
    spout: str, bolt: str, who: str, tmp_path: Path
) -> None:
    """They had returned, and the loop had not collected them: nobody counted them."""
    result = result_of(tmp_path, f"dies_in_{bolt.lower()}", 0, spout, bolt)
    assert not (tmp_path / "arrived").exists() and result.components[who].lost == 7
