"""``topology.environment``: what a process reads at its start has effect in worker processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamlet.backends.contract import Backend, RunRequest, Stop
from streamlet.backends.inline import InlineBackend
from streamlet.backends.processes import ProcessesBackend
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

FILE = """
import json, os, sys, time
from pathlib import Path
from streamlet import Bolt, ReliableSpout, Topology

HERE = Path(__file__).parent

class One(ReliableSpout):
    outputs = ["n"]
    left = [1]
    def next_tuple(self):
        if self.left:
            self.emit([1], tup_id=self.left.pop())
    def caught_up(self):
        return not self.left and not self.has_unfinished()

class Looks(Bolt):
    def process(self, tup):
        try:
            import found_by_the_path
            found = found_by_the_path.WORD
        except ImportError:
            found = None
        seen = {
            "zone": time.tzname[0],
            "found": found,
            "hashes": not sys.flags.hash_randomization,
            "libraries": b"LD_LIBRARY_PATH=/nowhere/at/all" in Path("/proc/self/environ").read_bytes().split(b"\\0"),
        }
        (HERE / "seen").write_text(json.dumps(seen))

class Looking(Topology):
    config = {"topology.environment": {
        "TZ": "XYZ+5", "PYTHONHASHSEED": "0", "LD_LIBRARY_PATH": "/nowhere/at/all", "PYTHONPATH": str(HERE / "more"),
    }}
    one = One.spec()
    looks = Looks.spec(inputs=[one])
"""


def seen_by(backend: Backend, folder: Path) -> dict[str, object]:
    """What the bolt of a run on that backend found."""
    (folder / "more").mkdir()
    (folder / "more" / "found_by_the_path.py").write_text("WORD = 'here'\n")
    # Another package of this name on the user's path does not come in the way.
    (folder / "more" / "streamlet").mkdir()
    (folder / "more" / "streamlet" / "__init__.py").write_text("raise ImportError('the wrong streamlet')\n")
    file = folder / "looking.py"
    file.write_text(FILE)
    topology = load_topology(file)
    conf = resolve(topology.config, {"streamlet.until.caught.up": True})
    asked = RunRequest(topology, conf, file=file, workers=1, until_caught_up=True, seconds=PATIENCE_S)
    assert backend.run(asked, Watcher(), Stop()).reason == "caught_up"
    seen: dict[str, object] = json.loads((folder / "seen").read_text())
    return seen


def test_variables_that_a_process_reads_at_its_start_have_effect_in_worker_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set in the running process alone, they came after the interpreter and its libraries had looked."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    assert seen_by(ProcessesBackend(), tmp_path) == {"zone": "XYZ", "found": "here", "hashes": True, "libraries": True}


def test_the_time_zone_has_effect_in_a_living_process_and_the_others_come_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    seen = seen_by(InlineBackend(), tmp_path)
    assert (seen["zone"], seen["found"], seen["libraries"]) == ("XYZ", None, False)
