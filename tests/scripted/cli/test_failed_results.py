"""Every run that failed after its start tells its numbers: in the last line of ``--json`` and to Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamlet.backends.contract import RunRequest, Stop
from streamlet.backends.inline import InlineBackend
from streamlet.backends.processes import ProcessesBackend
from streamlet.base.errors import StreamletError
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

FILE = """
import os
from streamlet import Bolt, Grouping, ReliableSpout, Topology

class Numbers(ReliableSpout):
    outputs = ["n"]
    max_fails = 0
    n = 0
    def next_tuple(self):
        if self.n < 5000:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    SPOUT

class Side(Bolt):
    outputs = ["n"]
    def process(self, tup):
        if tup.values[0] <= 3:
            raise KeyError("given up")
        self.emit([tup.values[0]], anchors=[])

class Ends(Bolt):
    MORE
    def process(self, tup):
        DOES

class Made(Topology):
    numbers = Numbers.spec()
    side = Side.spec(inputs=[numbers])
    ends = Ends.spec(inputs=[side])
"""

ENDS = {
    "exit_on_exception": ("exit_on_exception = True", "if tup.values[0] >= 1000: raise OSError('its table is gone')"),
    "first failures": ("", "raise ValueError('a typo')"),
    "sys.exit": ("", "if tup.values[0] >= 1000: raise SystemExit(7)"),
    "cannot start": ("def initialize(self, conf, context): raise OSError('no table')", "pass"),
    "a spout's error": ("", "pass"),
}
DIES = ("", "if tup.values[0] >= 1000: os.abort()")


def made(how: str) -> str:
    more, does = DIES if how == "dies again and again" else ENDS[how]
    raises = "def ack(self, tup_id): raise OSError('away')" if how == "a spout's error" else ""
    return FILE.replace("SPOUT", raises).replace("MORE", more).replace("DOES", does)


backends = pytest.mark.parametrize("backend", ["inline", "processes"])


def failed_result(streamlet: Any, backend: str, how: str, *options: str) -> dict[str, Any]:
    file = streamlet.write(made(how), f"{''.join(filter(str.isalnum, how))}.py")
    done = streamlet("run", file, "--backend", backend, "--json", *options)
    assert done.returncode == 1, done
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (result["event"], result["reason"], result["exit_status"]) == ("result", "failed", 1)
    return result


@backends
@pytest.mark.parametrize("how", ["exit_on_exception", "first failures", "sys.exit", "cannot start"])
def test_a_run_that_an_error_ended_at_once_has_the_result_of_any_failed_run(streamlet, backend: str, how: str) -> None:
    result = failed_result(streamlet, backend, how)
    assert result.keys() == failed_result(streamlet, backend, "a spout's error").keys()
    assert result["drained"] is False and result["state"] == "ended"
    rows = {row["name"]: row for row in result["components"]}
    assert rows.keys() == {"numbers", "side", "ends"}
    if how != "cannot start":
        assert rows["numbers"]["given_up"] >= 3, "of max_fails = 0, each failure"
        # What side has sent and ends has not done is gone with the run. `executed` lacks what the slices before the
        # error did in the same turn.
        known = rows["ends"]["executed"] + rows["ends"]["lost"]
        assert 0 <= rows["side"]["emitted"] - known <= 256, rows
        assert how == "first failures" or rows["ends"]["lost"] > 0


def test_a_worker_that_cannot_go_on_leaves_its_numbers(streamlet) -> None:
    options = ("-c", "streamlet.worker.restarts.max=0", "-c", "streamlet.tuple.crashes.max=5")
    result = failed_result(streamlet, "processes", "dies again and again", *options)
    assert result.keys() == failed_result(streamlet, "processes", "a spout's error").keys()
    rows = {row["name"]: row for row in result["components"]}
    assert rows.keys() == {"numbers", "side", "ends"} and rows["ends"]["lost"] > 0


@backends
def test_python_gets_the_result_too(tmp_path: Path, backend: str) -> None:
    file = tmp_path / f"ends_{backend}.py"
    file.write_text(made("exit_on_exception"))
    topology = load_topology(file)
    request = RunRequest(topology, resolve(topology.config, {}), file=file, workers=2, seconds=PATIENCE_S)
    runner: Any = InlineBackend() if backend == "inline" else ProcessesBackend()
    watcher = Watcher()
    with pytest.raises(StreamletError, match="its table is gone") as caught:
        runner.run(request, watcher, Stop())
    result = caught.value.result
    assert (result.reason, result.drained, result.status.state) == ("failed", False, "ended")
    assert result.components["numbers"].given_up >= 3 and watcher.statuses[-1] == result.status
