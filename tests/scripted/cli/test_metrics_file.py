"""``--metrics-file``: what a Prometheus would read, while a run goes on and after it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamlet.backends.contract import ComponentStatus, RunStatus
from streamlet.cli.interrupts import SAME_S
from streamlet.cli.metrics_file import MetricsFile, MetricsUnavailable
from tests.patience import PATIENCE_S
from tests.scripted.cli.test_run import ENDLESS, QUICK, READINGS, backends, wait_for


def value(path: Path, sample: str, **labels: str) -> float | None:
    """The sample with these labels, read by prometheus-client's own parser."""
    for family in text_string_to_metric_families(path.read_text()):
        for row in family.samples:
            if row.name == sample and labels.items() <= row.labels.items():
                return float(row.value)
    return None


def test_a_run_leaves_its_last_status(streamlet: Any, tmp_path: Path) -> None:
    """Counters of each component, the state, and nothing beside the file."""
    path = tmp_path / "run.prom"
    done = streamlet("run", str(READINGS), "--until-caught-up", *QUICK, "--metrics-file", str(path))
    assert done.returncode == 0, done.stderr
    assert value(path, "streamlet_acked_total", topology="Weather", component="readings") == 500
    assert value(path, "streamlet_failed_total", component="readings") is not None
    assert value(path, "streamlet_run", topology="Weather", state="ended") == 1
    assert value(path, "streamlet_pending_trees") == 0
    assert [entry.name for entry in tmp_path.glob("*run.prom*")] == ["run.prom"]


def test_a_file_that_cannot_be_written_is_told_before_the_start(streamlet: Any, tmp_path: Path) -> None:
    done = streamlet("run", str(READINGS), "--metrics-file", str(tmp_path / "none" / "run.prom"))
    assert done.returncode == 2
    assert "run.prom cannot be written: No such file or directory" in done.stderr
    assert "out of date" not in done.stderr
    assert "Traceback" not in done.stderr


class Silent:
    """A view that shows nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


def test_partitions_latencies_and_own_metrics_have_their_labels(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    view = MetricsFile(path, Silent())
    component = ComponentStatus(
        *("lines", "spout", 1),
        emitted=7,
        timed_out=2,
        p50_ms=2.0,
        window=250,
        wait_ms=7400,
        metrics={"given_up": 1.0},
        given_up=3,
        lost=4,
    )
    partition = {
        "component": "lines",
        "topic": "t",
        "partition": 3,
        "position": 9,
        "committed": 8,
        "lag": None,
        "behind_s": 1.5,
        "open": 2,
    }
    other = {**partition, "component": "others", "position": 4}
    view.on_status(RunStatus("running", 1.5, (component,), (partition, other)))
    assert view._answered()
    assert value(path, "streamlet_emitted_total", component="lines") == 7
    assert value(path, "streamlet_timed_out_total", component="lines") == 2
    assert value(path, "streamlet_window_trees", component="lines") == 250
    assert value(path, "streamlet_queue_wait_seconds", component="lines") == 7.4
    assert value(path, "streamlet_latency_seconds", component="lines", quantile="0.5") == 0.002
    assert value(path, "streamlet_latency_seconds", component="lines", quantile="0.99") is None
    assert value(path, "streamlet_component_metric", component="lines", name="given_up") == 1
    assert value(path, "streamlet_given_up_total", component="lines") == 3
    assert value(path, "streamlet_lost_total", component="lines") == 4
    assert value(path, "streamlet_partition_position", component="lines", topic="t", partition="3") == 9
    assert value(path, "streamlet_partition_position", component="others", topic="t", partition="3") == 4
    assert value(path, "streamlet_partition_lag", component="lines", topic="t", partition="3") is None
    assert value(path, "streamlet_partition_behind_seconds", component="lines", topic="t", partition="3") == 1.5
    assert value(path, "streamlet_partition_oldest_open", component="lines", topic="t", partition="3") is None


def test_a_call_that_hangs_is_a_metric_while_it_does(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    view = MetricsFile(path, Silent())
    row = {"worker": 1, "component": "count", "task": 3, "call": "process", "seconds": 41.5, "tuple": "['a']"}
    view.on_status(RunStatus("running", 1.5, hanging=(row,)))
    assert view._answered()
    labels = {"component": "count", "task": "3", "call": "process"}
    assert value(path, "streamlet_hanging_seconds", **labels) == 41.5
    for ended_or_over in (RunStatus("running", 2.5), RunStatus("ended", 2.5, hanging=(row,))):
        view.on_status(ended_or_over)
        assert view._answered()
        assert value(path, "streamlet_hanging_seconds", **labels) is None


HANGS = """
import threading
from streamlet import Bolt, Spout, Topology

class Few(Spout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        if self.n < 5:
            self.n += 1
            self.emit([self.n], tup_id=self.n)

class Stuck(Bolt):
    def process(self, tup):
        threading.Event().wait()

class Made(Topology):
    few = Few.spec()
    stuck = Stuck.spec(inputs=[few])
"""


def test_a_call_that_hangs_in_a_run_stands_in_its_metrics_file(streamlet: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.prom"
    more = ("-c", "streamlet.task.hang.secs=0.5", "--workers", "2")
    process = streamlet.start("run", streamlet.write(HANGS), "--metrics-file", str(path), *more)
    deadline, labels = time.monotonic() + PATIENCE_S, {"component": "stuck", "task": "2", "call": "process"}
    while not path.exists() or (value(path, "streamlet_hanging_seconds", **labels) or 0.0) < 0.5:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        time.sleep(2 * SAME_S)
    process.communicate(timeout=PATIENCE_S)


def test_where_a_worker_is_is_a_label(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    view = MetricsFile(path, Silent())
    far = {"worker": 1, "epoch": 3, "state": "up", "pid": 7, "host": "node2", "executor": "4"}
    view.on_status(RunStatus("running", 1.5, workers=({**far, "worker": 0, "host": None, "executor": None}, far)))
    assert view._answered()
    assert value(path, "streamlet_worker_epoch", worker="1", host="node2", executor="4") == 3
    assert value(path, "streamlet_worker_epoch", worker="0", host="", executor="") == 3


def test_a_metrics_file_that_cannot_be_written_any_more_costs_the_file_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its folder is gone: told once, and the run goes on."""
    view = MetricsFile(tmp_path / "gone" / "m.prom", Silent())
    for second in range(3):
        view.on_status(RunStatus("running", float(second)))
        assert view._answered()
    assert [record.message for record in caplog.records].count(caplog.records[0].message) == 1
    assert "is out of date: No such file or directory" in caplog.text


@pytest.mark.parametrize("state", ["failed", "killed"])
def test_a_run_that_did_not_end_well_is_not_running_for_ever(tmp_path: Path, state: str) -> None:
    """Its numbers stay as they were last."""
    path = tmp_path / "m.prom"
    view = MetricsFile(path, Silent())
    view.on_status(RunStatus("running", 1.5, (ComponentStatus("lines", "spout", 1, emitted=7),)))
    if state == "failed":
        view.failed(RuntimeError("no"), 1)
    else:
        view.killed(130, None)
    assert value(path, "streamlet_run", state=state) == 1
    assert value(path, "streamlet_run", state="running") is None
    assert value(path, "streamlet_emitted_total", component="lines") == 7


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MetricsUnavailable, match=r"pip install 'streamlet-storm\[metrics\]'"):
        MetricsFile(tmp_path / "m", Silent())


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_only_a_regular_file_is_replaced(streamlet, tmp_path: Path, kind: str) -> None:
    """A device or pipe that is renamed over is gone for every process, and a link leads nowhere any more."""
    path, target = tmp_path / "m.prom", tmp_path / "target.prom"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(target)
    before = path.lstat()
    done = streamlet("run", str(READINGS), "--until-caught-up", *QUICK, "--metrics-file", str(path))
    after = path.lstat()
    assert (before.st_mode, before.st_ino, before.st_dev) == (after.st_mode, after.st_ino, after.st_dev)
    if kind == "link":
        assert "streamlet_run" in target.read_text()
    else:
        assert done.returncode == 2 and "is a device, a pipe or a folder" in done.stderr, done


def test_a_second_run_with_the_same_metrics_file_is_refused_by_name(streamlet: Any, tmp_path: Path) -> None:
    """And by a link, too; a run that was killed leaves nothing that refuses the next one, though its worker lives."""
    path, link = tmp_path / "m.prom", tmp_path / "link.prom"
    link.symlink_to(path)
    # A bolt that sleeps in its first tuple: its worker does not see at once that its run is gone.
    first = streamlet.start("run", streamlet.write(ENDLESS), "-c", "naps=3600", "--metrics-file", path)
    wait_for(first, "the first tuple is there")
    again = ("run", str(READINGS), "--until-caught-up", *QUICK, "--metrics-file")
    for named in (path, link):
        done = streamlet(*again, named)
        assert done.returncode == 2 and "Traceback" not in done.stderr
        who = f"the run of topology Endless (process {first.pid} on "
        assert f"--metrics-file {named} is being written by {who}" in done.stderr, done.stderr
        assert value(path, "streamlet_run", topology="Endless") == 1
    first.kill()
    first.wait(PATIENCE_S)
    done = streamlet(*again, path)
    assert done.returncode == 0, done.stderr
    assert value(path, "streamlet_run", topology="Weather", state="ended") == 1
    assert sorted(entry.name for entry in tmp_path.glob("*.prom*")) == ["link.prom", "m.prom"], "no lock is left"


LOSING = """
import os
from streamlet import Bolt, ReliableSpout, Spout, Topology

class Numbers(ReliableSpout):
    outputs = ["n"]
    max_fails = 0
    n = 0
    def next_tuple(self):
        if self.n < 20:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return self.n == 20 and not self.has_unfinished()

class Plain(Spout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        if self.n < 30:
            self.n += 1
            self.emit([self.n])
    def caught_up(self):
        return self.n == 30

class Refuses(Bolt):
    def process(self, tup):
        if tup.values[0] % 4 == 0:
            raise ValueError("a multiple of four")

class Keeps(Bolt):
    auto_ack = False
    def initialize(self, conf, context):
        self.kept = []
    def process(self, tup):
        self.kept.append(tup)

class Losing(Topology):
    config = {"streamlet.drain.timeout.secs": 0.5}
    numbers = Numbers.spec()
    plain = Plain.spec()
    refuses = Refuses.spec(inputs=[numbers])
    keeps = Keeps.spec(inputs=[plain])
"""


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_what_a_run_gave_up_and_lost_stands_in_its_metrics_file(streamlet: Any, tmp_path: Path, backend: str) -> None:
    path = tmp_path / "run.prom"
    file = streamlet.write(LOSING)
    done = streamlet("run", file, "--backend", backend, "--until-caught-up", "--metrics-file", str(path))
    assert done.returncode == 1, done.stderr
    assert value(path, "streamlet_given_up_total", component="numbers") == 5, path.read_text()
    assert value(path, "streamlet_lost_total", component="keeps") == 30


@backends
def test_a_run_that_is_killed_names_what_it_loses(streamlet: Any, backend: str) -> None:
    """Sixty untracked tuples of 0.1 s: those that wait stand in the last line, the result and the metrics file."""
    text = ENDLESS.replace("self.n += 1", "if self.n == 60: return\n        self.n += 1").replace(", tup_id=self.n", "")
    file = streamlet.write(text.replace("ReliableSpout", "Spout"))
    metrics = streamlet.folder / "metrics.prom"
    workers = ("--workers", "1" if backend == "inline" else "2")
    given = ("--backend", backend, "-c", "naps=0.1", "--json", "--metrics-file", metrics, *workers)
    process = streamlet.start("run", file, *given)
    for line in process.stdout:
        event = json.loads(line)
        rows = {row["name"]: row for row in event["components"]} if event["event"] == "status" else {}
        if rows and rows["sink"]["untracked"] and rows["sink"]["executed"]:
            break
    process.send_signal(signal.SIGINT)
    wait_for(process, "Once more kills: what is open is then replayed, untracked tuples are lost.")
    time.sleep(2 * SAME_S)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    result = json.loads(out.splitlines()[-1])
    assert process.returncode == 130 and result["reason"] == "killed"
    (sink,) = (row for row in result["components"] if row["name"] == "sink")
    assert sink["lost"] > 0 == sink["untracked"] and 60 <= sink["executed"] + sink["lost"] <= 62, sink
    assert f"{sink['lost']} untracked tuples lost (sink {sink['lost']})" in err.splitlines()[-1]
    kept = value(metrics, "streamlet_lost_total", component="sink")  # of the same status, or of the next one
    assert kept is not None and 0 < kept <= sink["lost"]
