"""``--log-file``: what an operator finds in it, and that it holds nothing up."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.scripted.cli.test_run import wait_for

CHATTY = """
import logging, sys, threading
from streamlet import Bolt, ReliableSpout, Topology

LAST = 6
mine = logging.getLogger("mine")

class Numbers(ReliableSpout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        if self.n < LAST:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return self.n >= LAST and not self.has_unfinished()

class Sink(Bolt):
    par = 2
    def initialize(self, conf, context):
        self.log("there")
        self.task = context.task_id
    def process(self, tup):
        n = tup.values[0]
        print("printed", n, self.task)
        print("complained", n, self.task, file=sys.stderr)
        mine.warning("plain %s %s", n, self.task)
        self.log(f"logged {n} {self.task}")
        self.log("the same")
        if n == 1:
            thread = threading.Thread(target=lambda: mine.info("of a thread"))
            thread.start()
            thread.join()
            try:
                {}["none"]
            except KeyError:
                self.logger.exception("caught")
    def cleanup(self):
        self.log(f"bye {self.task}")

class Chatty(Topology):
    numbers = Numbers.spec()
    sink = Sink.spec(inputs=[numbers])
"""

LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (?P<level>[A-Z]+) worker=(?P<worker>\S+) epoch=(?P<epoch>\S+) "
    r"component=(?P<component>\S+) task=(?P<task>\S+) (?P<logger>\S+): (?P<text>.*)"
)

backends = pytest.mark.parametrize("backend", ["inline", "processes"])


def objects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@backends
def test_every_line_says_where_it_comes_from(streamlet: Any, backend: str) -> None:
    """Of the run, of components, of other loggers in their code, of threads, and what they print."""
    file = streamlet.write(CHATTY)
    log = streamlet.folder / "run.log"
    done = streamlet(
        *("run", file, "--backend", backend, "--until-caught-up", "--log-file", log, "--log-format", "json"),
        *(
            "-c",
            "streamlet.log.repeats.secs=0",
            "-c",
            "topology.workers=1" if backend == "inline" else "topology.workers=2",
        ),
    )
    assert done.returncode == 0, done.stderr
    lines = objects(log)
    worker_of = {line["task"]: line["worker"] for line in lines if line["text"] == "there"}
    assert sorted(worker_of) == [2, 3] and set(worker_of.values()) == ({0} if backend == "inline" else {0, 1})
    expected = {
        *((f"printed {n}", "streamlet.stdout") for n in range(1, 7)),
        *((f"complained {n}", "streamlet.stderr") for n in range(1, 7)),
        *((f"plain {n}", "mine") for n in range(1, 7)),
        *((f"logged {n}", "streamlet.component.sink") for n in range(1, 7)),
    }
    found = set()
    for line in lines:
        said, _, task = line["text"].rpartition(" ")
        if (said, line["logger"]) in expected:
            found.add((said, line["logger"]))
            where = line["component"], line["task"], line["worker"], line["epoch"]
            assert where == ("sink", int(task), worker_of[int(task)], 1), line
        assert set(line) >= {"time", "level", "logger", "component", "task", "worker", "epoch", "text", "traceback"}
    assert found == expected
    assert {line["task"] for line in lines if line["text"].startswith("bye")} == {2, 3}
    (caught,) = [line for line in lines if line["text"] == "caught"]
    assert caught["traceback"].startswith("Traceback") and caught["traceback"].endswith("KeyError: 'none'")
    assert "of a thread" in [line["text"] for line in lines]
    assert lines[0]["text"].startswith("Chatty: 1 spout, 1 bolt") and lines[0]["logger"] == "streamlet.run"
    assert lines[-1]["text"].startswith("Caught up after")
    assert [line["text"] for line in lines].count("the same") == 6


@backends
def test_what_is_printed_and_shown_stays_as_it_was(streamlet: Any, backend: str) -> None:
    file = streamlet.write(CHATTY)
    done = streamlet("run", file, "--backend", backend, "--until-caught-up", "--log-file", "run.log")
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("printed"))[0].startswith("printed 1")
    assert done.stdout.count("printed") == 6 and "complained" not in done.stdout
    assert done.stderr.count("complained") == 6 and "printed 1" not in done.stderr
    assert re.search(r"^\d\d:\d\d:\d\d warning mine: plain 1 \d$", done.stderr, re.MULTILINE)
    assert done.stderr.count("sink: the same") == 6, "the terminal folds nothing"


def test_lines_of_text_are_whole_and_repeats_are_counted(streamlet: Any) -> None:
    file = streamlet.write(CHATTY)
    log = streamlet.folder / "run.log"
    done = streamlet("run", file, "--until-caught-up", "--workers", "2", "--log-file", log)
    assert done.returncode == 0, done.stderr
    heads = [LINE.match(line) for line in log.read_text().splitlines() if not line.startswith("    ")]
    assert all(heads)
    found = [head.groupdict() for head in heads if head is not None]
    same = [line["text"] for line in found if line["text"].startswith("the same")]
    assert same == ["the same", "the same (repeated 5 times)"]
    assert {line["task"] for line in found if line["text"].startswith("plain")} == {"2", "3"}
    assert found[-1]["text"].startswith("Caught up after")


def test_the_coordinators_own_lines_name_the_worker_and_its_epoch(streamlet: Any) -> None:
    dies = """
        try:
            n == 3 and (os.mkdir(os.environ["ONCE"]), os._exit(3))
        except OSError:
            pass
    """
    file = streamlet.write("import os\n" + CHATTY.replace('print("printed", n, self.task)', dies.strip()))
    log = streamlet.folder / "run.log"
    done = streamlet(
        *("run", file, "--until-caught-up", "--workers", "2", "--log-file", log, "--log-format", "json"),
        ONCE=str(streamlet.folder / "once"),
    )
    assert done.returncode == 0, done.stderr
    lines = objects(log)
    (died,) = [line for line in lines if "ended with status 3" in line["text"]]
    (again,) = [line for line in lines if "was started again (epoch 2)" in line["text"]]
    assert (died["worker"], died["epoch"], died["level"]) == (again["worker"], 1, "warning")
    assert again["epoch"] == 2
    assert 2 in {line["epoch"] for line in lines if line["component"] == "sink"}


@pytest.mark.parametrize("path", ["none/run.log", "/dev/full", "folder/run.log"])
def test_a_file_that_cannot_be_written_is_refused_before_the_start(streamlet: Any, refused: Any, path: str) -> None:
    file = streamlet.write(CHATTY)
    folder = streamlet.folder / "folder"
    folder.mkdir()
    (folder / "run.log").mkdir()
    name = streamlet.folder / path
    option = ("--log-file", name) if path != "folder/run.log" else ("-c", f"streamlet.log.file={name}")
    said = refused("run", file, "--until-caught-up", *option)
    why = {"none/run.log": "No such file", "/dev/full": "No space left", "folder/run.log": "Is a directory"}[path]
    assert f"The log file {name} cannot be written: {why}" in said
    assert "there" not in said


def test_a_pipe_that_nobody_reads_is_refused_before_the_start(streamlet: Any, refused: Any) -> None:
    file = streamlet.write(CHATTY)
    os.mkfifo(streamlet.folder / "pipe")
    said = refused("run", file, "--until-caught-up", "--log-file", "pipe")
    assert "pipe cannot be written: what is there does not answer within 5 s" in said


SLOW = "import time; time.sleep(0.01); self.log(400 * 'x' + str(tup.values))"
ENDLESS = (
    CHATTY.replace("LAST = 6", "LAST = 10**9")
    .replace("n = tup.values[0]", f"n = tup.values[0]; {SLOW}")
    .replace('print("printed", n, self.task)', "pass")
    .replace("(Topology):", '(Topology):\n    config = {"topology.max.spout.pending": 20}')
)


def drains_beside_a_pipe_that_nobody_reads(streamlet: Any, pipe: str, options: tuple[object, ...], told: str) -> str:
    """Run with these options until it has told of the pipe, then interrupt it: all is done, nobody was replaced.

    Return what it said after that.
    """
    path = streamlet.folder / pipe
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        process = streamlet.start("run", streamlet.write(ENDLESS), "--workers", "2", *options)
        seen = wait_for(process, told)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        os.close(reader)
    assert process.returncode == 130, seen + err
    assert "everything that was emitted is done." in out.splitlines()[-1]
    assert "started again" not in seen + err
    return str(err)


def test_a_reader_that_stands_still_holds_nothing_up_and_is_told(streamlet: Any) -> None:
    """The pipe is opened, and never read: the run goes on, says so, and drains in time."""
    told = "The log file pipe lacks lines: its disk, or the reader of its pipe"
    err = drains_beside_a_pipe_that_nobody_reads(streamlet, "pipe", ("--log-file", "pipe"), told)
    assert re.search(r"The log file pipe may lack [\d,]+ lines: its disk, or the reader of its pipe", err), err


def test_a_disk_that_fills_up_costs_lines_and_not_the_run(streamlet: Any) -> None:
    """RLIMIT_FSIZE stands for the full disk: a write beyond it fails. It is told once."""
    file = streamlet.write(ENDLESS.replace("10**9", "400"))
    limit = (20_000, 20_000)
    process = subprocess.Popen(
        [*streamlet.command, "run", str(file), "--until-caught-up", "--workers", "2", "--log-file", "run.log"],
        cwd=streamlet.folder,
        env=streamlet.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    streamlet.started.append(process)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert err.count("The log file run.log lacks lines: File too large. The run goes on.") == 1
    assert re.search(r"The log file run\.log lacks its last [\d,]+ lines: File too large\.", err)
    log = (streamlet.folder / "run.log").read_text()
    assert len(log) > 15_000 and log.endswith("\n"), "whole lines"


def test_a_full_file_is_put_aside_during_a_run(streamlet: Any) -> None:
    file = streamlet.write(CHATTY.replace("LAST = 6", "LAST = 300"))
    log = streamlet.folder / "run.log"
    done = streamlet(
        *("run", file, "--until-caught-up", "--workers", "2", "--log-file", log, "--log-format", "json"),
        *("-c", "streamlet.log.max.bytes=20000", "-c", "streamlet.log.backups=100"),
    )
    assert done.returncode == 0, done.stderr
    files = sorted(streamlet.folder.glob("run.log*"))
    assert len(files) > 5 and all(path.stat().st_size <= 20_000 for path in files)
    texts = [line["text"] for path in files for line in objects(path)]
    assert len({text for text in texts if text.startswith("logged")}) == 300


def test_two_runs_may_have_one_file(streamlet: Any) -> None:
    file = streamlet.write(CHATTY.replace("LAST = 6", "LAST = 100"))
    more = ("--until-caught-up", "--workers", "1", "--log-file", "run.log", "--log-format", "json")
    sizes = ("-c", "streamlet.log.max.bytes=30000", "-c", "streamlet.log.backups=99")
    runs = [streamlet.start("run", file, *more, *sizes) for _ in "ab"]
    for run in runs:
        _, err = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 0, err
    texts = [line["text"] for path in streamlet.folder.glob("run.log*") for line in objects(path)]
    logged = Counter(int(text.split()[1]) for text in texts if text.startswith("logged"))
    assert logged == dict.fromkeys(range(1, 101), 2), "each run's lines, once"
    assert sum(text.startswith("Caught up after") for text in texts) == 2


def test_the_last_lines_of_a_run_that_is_interrupted_are_there(streamlet: Any) -> None:
    file = streamlet.write(ENDLESS)
    process = streamlet.start("run", file, "--workers", "2", "--log-file", "run.log")
    wait_for(process, "plain 5")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    log = (streamlet.folder / "run.log").read_text()
    assert "streamlet.run: Draining, for 4 s at most." in log
    assert log.count("sink: bye 2\n") == log.count("sink: bye 3\n") == 1
    assert "streamlet.run: Stopped after" in log.splitlines()[-1]


def test_a_run_that_fails_says_why_in_its_log(streamlet: Any) -> None:
    file = streamlet.write(CHATTY.replace('self.log("there")', 'raise LookupError("no table")'))
    done = streamlet("run", file, "--until-caught-up", "--log-file", "run.log", "--log-format", "json")
    assert done.returncode == 1
    last = objects(streamlet.folder / "run.log")[-1]
    assert last["level"] == "error" and "raised LookupError in initialize" in last["text"]
    assert "no table" in last["traceback"]
