"""``streamlet run``: what it shows, how it ends, and that signals end it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from streamlet.cli.interrupts import SAME_S
from streamlet.runtime.worker.parents_end import END_S
from tests.patience import PATIENCE_S

READINGS = Path(__file__).parents[3] / "topologies" / "readings.py"
QUICK = ("-c", "readings.count=500", "-c", "readings.per.second=50000")

ENDLESS = """
import sys
import time
from streamlet import Bolt, ReliableSpout, Topology

class Ticks(ReliableSpout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        self.n += 1
        self.emit([self.n], tup_id=self.n)

class Sink(Bolt):
    def initialize(self, conf, context):
        self.log("sink is there")
        self.naps, self.first = conf["naps"], True
    def process(self, tup):
        if self.first:
            self.first = False
            print("the first tuple is there", file=sys.stderr, flush=True)
        if self.naps:
            time.sleep(self.naps)
    def cleanup(self):
        self.log("cleaned up")

class Endless(Topology):
    config = {"naps": 0.0, "topology.max.spout.pending": 10}
    ticks = Ticks.spec()
    sink = Sink.spec(inputs=[ticks])
"""

backends = pytest.mark.parametrize("backend", ["inline", "processes"])


def events(done: subprocess.CompletedProcess[str]) -> list[dict]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def wait_for(process: subprocess.Popen[str], text: str) -> str:
    """Read stderr until a line holds ``text``; what was read."""
    seen = ""
    for line in process.stderr:
        seen += line
        if text in line:
            return seen
    pytest.fail(f"{text!r} was never said")


def kill(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Ask a run to end, and then again; return what it still said."""
    process.send_signal(signal.SIGINT)
    wait_for(process, "Draining")
    time.sleep(2 * SAME_S)
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=PATIENCE_S)


def run_and_interrupt(streamlet, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run ENDLESS until its first tuple is there, then ask it to drain."""
    process = streamlet.start(*arguments)
    seen = wait_for(process, "the first tuple is there")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    return subprocess.CompletedProcess(process.args, process.returncode, out, seen + err)


@backends
@pytest.mark.parametrize("allowed_s", [0.5, 30])
def test_drain_timeout_bounds_the_drain_after_ctrl_c_and_stands_in_the_message(
    streamlet, backend: str, allowed_s: float
) -> None:
    """Sixty tuples of 0.1 s wait, which nobody sends again: half a second is too little, thirty are enough."""
    text = ENDLESS.replace("self.n += 1", "if self.n == 60: return\n        self.n += 1").replace(", tup_id=self.n", "")
    text = text.replace("ReliableSpout", "Spout")
    process = streamlet.start(
        "run", streamlet.write(text), "--backend", backend, "--drain-timeout", allowed_s, "-c", "naps=0.1"
    )
    said = wait_for(process, "the first tuple is there")
    time.sleep(0.5)  # all sixty are emitted
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    took_s, said = time.monotonic() - began, said + err
    if backend == "processes":  # inline a drain ends only between two calls of components, however long they take
        assert f"Draining, for {allowed_s:g} s at most." in said, said
    if allowed_s > 1:
        assert process.returncode == 130 and "left" not in said and took_s > 3, said
        return
    assert process.returncode == 1 and took_s < 4, said
    last = said.splitlines()[-1]
    assert re.match(r"Error: The drain's time of 0\.5 s was over before all was done, and it left \d\d untracked", last)
    assert "tuples for sink" in last and "Allow more time with --drain-timeout" in last


@backends
def test_readings_end_by_themselves_with_every_reading_counted(streamlet, backend: str) -> None:
    """The README's first taste: replays are seen, and nothing is missing."""
    done = streamlet(
        "run", READINGS, "--backend", backend, "--until-caught-up", "--json", *QUICK, "-c", "readings.failing=0.2"
    )
    assert done.returncode == 0, done
    result = events(done)[-1]
    rows = {row["name"]: row for row in result["components"]}
    assert (result["event"], result["reason"], result["drained"], result["pending"]) == ("result", "caught_up", True, 0)
    assert rows["readings"]["acked"] == rows["report"]["acked"] == 500
    assert rows["readings"]["failed"] == rows["check"]["failed"] > 0
    assert rows["readings"]["emitted"] == 500 + rows["readings"]["failed"]
    said = done.stdout + done.stderr
    assert "report: 500 readings in all" in said


@backends
def test_json_is_one_object_a_line_from_start_to_result(streamlet, backend: str) -> None:
    seen = events(streamlet("run", READINGS, "--backend", backend, "--until-caught-up", "--json", *QUICK))
    assert seen[0]["event"] == "start" and seen[-1]["event"] == "result"
    assert {event["event"] for event in seen} <= {"start", "status", "log", "result"}
    assert seen[0]["backend"] == backend


def test_lines_where_there_is_no_terminal(streamlet) -> None:
    done = streamlet("run", READINGS, "--until-caught-up", *QUICK)
    assert done.returncode == 0 and "\x1b" not in done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Weather: 1 spout, 3 bolts, 6 tasks on ")
    assert lines[-1].startswith("Caught up after ")
    assert any(line.startswith("readings ") for line in lines)


@backends
def test_a_run_ends_when_its_time_is_over(streamlet, backend: str) -> None:
    done = streamlet("run", streamlet.write(ENDLESS), "--backend", backend, "-t", "0.5", "--json")
    assert done.returncode == 0 and events(done)[-1]["reason"] == "time"


@backends
def test_seconds_and_settings_may_stand_in_a_file(streamlet, backend: str) -> None:
    settings = streamlet.write("readings.count = 7\nreadings.per.second = 1e6\n", "settings.toml")
    done = streamlet("run", READINGS, "--backend", backend, "--config", settings, "--until-caught-up", "--json")
    assert {r["name"]: r["acked"] for r in events(done)[-1]["components"]}["readings"] == 7


@backends
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_makes_the_run_drain_and_clean_up(streamlet, backend: str, number: int, status: int) -> None:
    """Within the drain time-out and a little: pause, drain, `cleanup`, exit with the shell's status."""
    process = streamlet.start("run", streamlet.write(ENDLESS), "--backend", backend)
    wait_for(process, "the first tuple is there")
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status, err
    bound = "" if backend == "inline" else ", for 4 s at most"  # one process is bounded by nothing
    assert f"Draining{bound}. Once more kills" in err and "cleaned up" in err
    assert "everything that was emitted is done" in out.splitlines()[-1]


@pytest.mark.parametrize("numbers", [[signal.SIGINT] * 3, [signal.SIGTERM, signal.SIGHUP], [signal.SIGHUP] * 2])
def test_one_wish_that_comes_as_several_signals_drains(streamlet, numbers: list[int]) -> None:
    """A launcher passes on what the group got already, a service manager sends SIGHUP too, a terminal goes twice."""
    took_s = SAME_S
    while took_s >= SAME_S / 2:  # on a machine that stood still in between they were several wishes: once more
        process = streamlet.start("run", streamlet.write(ENDLESS), "--workers", "2")
        wait_for(process, "the first tuple is there")
        began = time.monotonic()
        for number in numbers:
            process.send_signal(number)
            time.sleep(SAME_S / 10)
        took_s = time.monotonic() - began
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + numbers[0], err
    assert "everything that was emitted is done" in out.splitlines()[-1]


def test_a_run_under_nohup_outlives_its_terminal(streamlet) -> None:
    process = subprocess.Popen(
        ["nohup", *streamlet.command, "run", str(streamlet.write(ENDLESS))],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=streamlet.folder,
        env=streamlet.environment,
    )  # fmt: skip
    streamlet.started.append(process)
    wait_for(process, "the first tuple is there")
    process.send_signal(signal.SIGHUP)
    time.sleep(2 * SAME_S)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    # Had it drained for the first signal, its status would be that one's, and the second would have killed it.
    assert process.returncode == 143 and "everything that was emitted is done" in out.splitlines()[-1], err


@backends
def test_a_second_signal_kills_at_once_and_leaves_nothing(streamlet, backend: str, tmp_path: Path) -> None:
    """Even a bolt that hangs in its own code does not outlive the second Ctrl-C, nor does any worker."""
    process = streamlet.start(
        "run", streamlet.write(ENDLESS), "--backend", backend, "-c", "naps=3600", TMPDIR=str(tmp_path)
    )
    wait_for(process, "the first tuple is there")
    children = _children(process.pid)
    assert bool(children) == (backend == "processes")
    out, _ = kill(process)
    assert process.returncode == 130
    assert out.splitlines()[-1].startswith("Killed") and "the next run" in out.lower()
    assert _gone(children), "a worker outlived the run"
    assert not list(tmp_path.glob("slt-*")), "the links' directory is left"


def test_a_program_is_told_of_a_second_signal_too(streamlet) -> None:
    """The result is the last line even then: what was open by the last numbers, undrained, and the exit status.

    Two workers: the spout's reports what is open while the bolt's hangs.
    """
    process = streamlet.start("run", streamlet.write(ENDLESS), "-c", "naps=3600", "--workers", "2", "--json")
    wait_for(process, "the first tuple is there")
    for line in process.stdout:
        if json.loads(line)["event"] == "status" and json.loads(line)["pending"]:
            break
    out, err = kill(process)
    result = json.loads(out.splitlines()[-1])
    assert (result["event"], result["reason"], result["drained"]) == ("result", "killed", False)
    assert result["exit_status"] == process.returncode == 130
    assert result["pending"] > 0 and f"{result['pending']} tuple tree" in err.splitlines()[-1]


UNTRACKED = """
import ctypes, sys
from streamlet import Bolt, Spout, Topology

class Ticks(Spout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        if self.n < 50:
            self.n += 1
            self.emit([self.n])
    def caught_up(self):
        return self.n == 50

class Holds(Bolt):
    def process(self, tup):
        print("the first tuple is there", file=sys.stderr, flush=True)
        ctypes.HOLDS(None).sleep(3600)

class Untracked(Topology):
    config = {"topology.acker.executors": 0}
    ticks = Ticks.spec()
    holds = Holds.spec(inputs=[ticks])
"""


@pytest.mark.parametrize(("backend", "holds"), [("inline", "CDLL"), ("processes", "CDLL"), ("processes", "PyDLL")])
def test_a_run_that_is_killed_in_its_first_call_says_how_many_untracked_tuples_it_loses(
    streamlet, backend: str, holds: str, tmp_path: Path
) -> None:
    """No numbers had come: inline the loop is in the call, and a lock that is held keeps a worker from its beat."""
    file, metrics = streamlet.write(UNTRACKED.replace("HOLDS", holds)), tmp_path / "m.prom"
    workers = ["--workers", "1"] if backend == "processes" else []
    options = ["--backend", backend, *workers, "--json", "--metrics-file", metrics]
    process = streamlet.start("run", file, *options, "-c", "topology.max.spout.pending=50")
    wait_for(process, "the first tuple is there")
    out, err = kill(process)
    result = json.loads(out.splitlines()[-1])
    lost = {row["name"]: row["lost"] for row in result["components"]}["holds"]
    up_to = "up to " if lost > 1 else ""
    assert 0 < lost <= 50 and f"and {up_to}{lost} untracked tuple" in err, (lost, err)
    assert f'streamlet_lost_total{{component="holds",topology="Untracked"}} {lost}.0' in metrics.read_text()


def test_a_slow_start_is_a_start_and_the_death_of_a_worker_is_told(streamlet) -> None:
    """`starting` until tuples flow, `recovering` only after a loss; whose memory is gone, and where to read of it."""
    text = ENDLESS.replace('self.log("sink is there")', "time.sleep(1.6)")
    process = streamlet.start("run", streamlet.write(text), "--workers", "2", "--json")
    wait_for(process, "the first tuple is there")
    seen: list[dict] = []

    def read(until) -> dict:
        for line in process.stdout:
            seen.append(json.loads(line))
            if until(seen[-1]):
                return seen[-1]
        raise AssertionError(seen)

    running = read(lambda event: event.get("state") == "running")
    states = [event["state"] for event in seen if event["event"] == "status"]
    assert states[0] == "starting" and set(states) == {"starting", "running"}
    (bolts,) = [worker["pid"] for worker in running["workers"] if worker["worker"] == 1]
    os.kill(bolts, signal.SIGKILL)
    told = read(lambda event: event["event"] == "log" and "was started again" in event["text"])
    assert told["level"] == "warning" and "worker 1 was started again (epoch 2)" in told["text"]
    assert "its tasks of sink kept in memory is gone" in told["text"]
    assert "streamlet docs counts-that-survive" in told["text"]
    assert "recovering" in [event["state"] for event in seen if event["event"] == "status"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130


def test_the_numbers_of_a_status_are_of_one_moment(streamlet) -> None:
    """What a spout emitted is acked, failed or open: none is counted between two looks."""
    text = ENDLESS.replace('"topology.max.spout.pending": 10', '"topology.max.spout.pending": 500')
    process = streamlet.start("run", streamlet.write(text), "--workers", "2", "--json")
    rows: list[Any] = []
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "status" and event["state"] == "running":
            rows.append(event)
            if len(rows) == 3:
                process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130 and len(rows) >= 3
    for row in rows:
        (ticks,) = [component for component in row["components"] if component["name"] == "ticks"]
        assert ticks["emitted"] == ticks["acked"] + ticks["failed"] + row["pending"], row


def test_a_killed_run_takes_its_workers_along(streamlet, tmp_path: Path) -> None:
    """kill -9 of the run itself: the workers hear it at the end of their control channel."""
    process = streamlet.start("run", streamlet.write(ENDLESS), TMPDIR=str(tmp_path))
    wait_for(process, "the first tuple is there")
    children = _children(process.pid)
    assert children
    process.kill()
    assert _gone(children)


def test_a4_a_killed_run_takes_along_a_worker_that_holds_the_interpreter(streamlet, tmp_path: Path) -> None:
    """In a lock of C that is never given up: no thread of Python's runs any more, and no signal ends the call."""
    deadlock = "import ctypes; lock = ctypes.PyDLL(None).pthread_mutex_lock; own = ctypes.create_string_buffer(64)"
    text = ENDLESS.replace(
        "        if self.naps:\n", f"        {deadlock}; lock(own); lock(own)\n        if self.naps:\n"
    )
    process = streamlet.start("run", streamlet.write(text), TMPDIR=str(tmp_path))
    wait_for(process, "the first tuple is there")
    children = _children(process.pid)
    time.sleep(1.0)
    process.kill()
    try:
        assert children and _gone(children, END_S + 5)
    finally:
        for pid in filter(_alive, children):
            os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def _gone(pids: list[int], deadline_s: float = 15.0) -> bool:
    deadline = time.monotonic() + deadline_s
    while any(_alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@backends
@pytest.mark.parametrize("where", ["__init__", "initialize", "next_tuple", "ack", "activate"])
def test_a_spout_that_raises_ends_the_run_with_a_paragraph(streamlet, backend: str, where: str) -> None:
    """What the user's code raises is the user's: named with component and place, exit status 1, not called our bug."""
    arguments = {"__init__": "", "initialize": "conf, context", "ack": "tup_id"}.get(where, "")
    text = ENDLESS.replace(
        "class Sink", f"class Bad(Ticks):\n    def {where}(self, {arguments}): raise KeyError('oh')\nclass Sink"
    ).replace("Ticks.spec", "Bad.spec")
    done = streamlet("run", streamlet.write(text), "--backend", backend)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    said = done.stderr.splitlines()[-1]
    assert said.startswith("Error: ") and "ticks" in said and "KeyError" in said and "bug in streamlet" not in said
    debug = streamlet("run", streamlet.write(text), "--backend", backend, "--debug")
    assert "raise KeyError('oh')" in debug.stderr


@backends
def test_a_bolt_that_cannot_start_ends_the_run_with_a_paragraph(streamlet, backend: str) -> None:
    text = ENDLESS.replace('self.log("sink is there")', "raise KeyError('oh')")
    done = streamlet("run", streamlet.write(text), "--backend", backend, "--json")
    assert done.returncode == 1, done
    said = done.stderr.splitlines()[-1]
    assert "sink" in said and "KeyError" in said and "initialize" in said and "bug in streamlet" not in said
    result = events(done)[-1]
    assert (result["event"], result["reason"], result["exit_status"]) == ("result", "failed", 1)


@backends
def test_a_value_that_cannot_travel_is_named_where_it_was_emitted(streamlet, backend: str) -> None:
    """The Show: one paragraph naming component, stream and field, and the run ends (a spout's) with status 1."""
    text = ENDLESS.replace("self.emit([self.n], tup_id=self.n)", "self.emit([{1, 2}], tup_id=self.n)")
    done = streamlet("run", streamlet.write(text), "--backend", backend)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    said = done.stderr.splitlines()[-1]
    assert "ticks" in said and "'default'" in said and "'n'" in said and "is a set" in said


@backends
def test_a_bolt_that_raises_fails_its_tuple_and_goes_on(streamlet, backend: str) -> None:
    """One paragraph, however often it happens; the run goes on."""
    odd_once = """
        if tup.values[0] % 2 and tup.values[0] not in vars(self).setdefault("odd", set()):
            self.odd.add(tup.values[0])
            raise KeyError("odd")
        if self.naps:"""
    text = ENDLESS.replace("        if self.naps:", odd_once)
    text = text.replace(
        "if self.first:", "if self.first and tup.values[0] > 8:"
    )  # some of both kinds are through by then
    done = run_and_interrupt(streamlet, "run", streamlet.write(text), "--backend", backend, "--json")
    rows = {row["name"]: row for row in events(done)[-1]["components"]}
    assert rows["sink"]["errors"] == rows["sink"]["failed"] > 0 and rows["sink"]["acked"] > 0
    told = [e["text"] for e in events(done) if e["event"] == "log" and "KeyError" in e["text"]]
    assert 1 <= len([text for text in told if "goes on with the next tuple" in text]) <= 2


@backends
def test_a_print_of_a_component_does_not_end_up_in_the_json(streamlet, backend: str) -> None:
    """A user's print must not break what a program reads."""
    text = ENDLESS.replace('self.log("sink is there")', 'print("a line of mine", flush=True)')
    done = run_and_interrupt(streamlet, "run", streamlet.write(text), "--backend", backend, "--json")
    assert events(done)[-1]["event"] == "result"
    assert "a line of mine" in done.stderr


def in_a_terminal(streamlet, *arguments: str, **environment: str) -> tuple[int, bytes]:
    """The exit status of a command in a terminal, and all that was written there."""
    import pty

    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0) as screen:
        process = subprocess.Popen(
            [*streamlet.command, *arguments],
            env={**streamlet.environment, "TERM": "xterm", "COLUMNS": "90", **environment},
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
        )
        streamlet.started.append(process)
        os.close(slave)
        seen = b""
        try:
            while chunk := screen.read(65536):
                seen += chunk
        except OSError:  # the terminal's other end is closed
            pass
        return process.wait(20), seen


def test_the_live_table_ends_with_the_exit_status_too(streamlet) -> None:
    """In a terminal: the table is drawn in place, and the last line says how it ended."""
    status, seen = in_a_terminal(streamlet, "run", str(READINGS), "--until-caught-up", *QUICK)
    assert status == 0
    text = seen.decode()
    assert "p99 ms" in text and "report: 500 readings in all" in text and "Caught up after" in text


HOSTILE = """
from streamlet import Bolt, ReliableSpout, Topology

class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no text")

class Numbers(ReliableSpout):
    outputs = ["n"]
    max_fails = 0
    answers_for_failures = True
    number = 0
    def next_tuple(self):
        if self.number < 3:
            self.number += 1
            self.emit([self.number], tup_id=self.number)
    def caught_up(self):
        return self.number == 3 and not self.has_unfinished()

class Sink(Bolt):
    def process(self, tup):
        self.log("logged: \\udce9\\x1b[5A")
        if tup.values[0] == 1:
            raise OSError("cannot open caf\\udce9.txt\\x1b[5A\\r\\x9b2J")
        if tup.values[0] == 2:
            raise Unspeakable

class T(Topology):
    numbers = Numbers.spec()
    sink = Sink.spec(inputs=[numbers])
"""


@backends
@pytest.mark.parametrize("view", ["terminal", "lines", "json"])
def test_nothing_that_an_errors_text_holds_ends_a_run_or_moves_the_cursor(streamlet, backend: str, view: str) -> None:
    """Halves of characters (a file's name that is no text) and what a terminal obeys are written out."""
    arguments = ["run", str(streamlet.write(HOSTILE)), "--until-caught-up", "--backend", backend]
    if view == "terminal":
        status, seen = in_a_terminal(streamlet, *arguments, PYTHONIOENCODING="utf-8:strict", COLUMNS="1000")
    else:
        done = streamlet(*arguments, *(["--json"] if view == "json" else []), PYTHONIOENCODING="utf-8:strict")
        status, seen = done.returncode, (done.stdout + done.stderr).encode()
    assert status == 0, seen
    text = seen.decode()
    if view != "json":
        text = " ".join(text.split())
        assert "\\udce9" in text and "\\x1b[5A" in text and "\\r" in text and "\\x9b2J" in text
    assert "Caught up" in text or '"reason": "caught_up"' in text
    assert "__str__ raised RuntimeError" in text
    assert "\x1b[5A" not in text and "\x9b" not in text


GIVES_UP = """
from streamlet import Bolt, ReliableSpout, Topology

class Numbers(ReliableSpout):
    outputs = ["n"]
    max_fails = 1
    n = 0
    def next_tuple(self):
        if self.n < 40:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return self.n == 40 and not self.has_unfinished()

class Refuses(Bolt):
    def process(self, tup):
        if tup.values[0] % 10 == 0:
            raise ValueError(f"number {tup.values[0]}")

class Some(Topology):
    numbers = Numbers.spec()
    refuses = Refuses.spec(inputs=[numbers])
"""


@backends
def test_what_a_run_gave_up_stands_in_its_result_its_last_lines_and_its_status(streamlet, backend: str) -> None:
    file = streamlet.write(GIVES_UP, name="gives_up.py")
    done = streamlet("run", file, "--backend", backend, "--until-caught-up", "--json")
    (result,) = (event for event in events(done) if event["event"] == "result")
    assert done.returncode == result["exit_status"] == 1
    rows = {row["name"]: row for row in result["components"]}
    assert (rows["numbers"]["given_up"], rows["numbers"]["acked"], rows["numbers"]["lost"]) == (4, 36, 0)
    assert "4 tuple trees of the spout numbers failed" in result["message"]
    shown = streamlet("run", file, "--backend", backend, "--until-caught-up")
    assert shown.returncode == 1 and "4 tuple trees of the spout numbers failed" in shown.stderr.splitlines()[-1]
    assert "numbers: gave up tuple 10" in shown.stderr
