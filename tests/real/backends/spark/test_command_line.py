"""``streamlet run --backend spark``, from the outside: what it says, how it ends, and that nothing stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streamlet.backends.folders import spark_folder
from streamlet.backends.spark.spark_session import STOP_S
from streamlet.cli.interrupts import SAME_S
from tests.marked_processes import Marked
from tests.patience import PATIENCE_S
from tests.scripted.backends.spark.test_command_line import refused
from tests.scripted.cli.test_run_ends import made
from tests.spark_home import spark_home


def wait_until(what: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def listening(pids: list[int]) -> set[str]:
    """Addresses at which processes listen, as ``ss`` prints them."""
    lines = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[3] for line in lines if any(f"pid={pid}," in line for pid in pids)}


def nothing_left(run: Marked, tmp_path: Path) -> None:
    """No process, no file; without a process there is no port."""
    wait_until(lambda: not run.family(), 5)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert list((tmp_path / "here").iterdir()) == []
    assert not (spark_home() / "work").exists()


def witness(tmp_path: Path) -> set[int]:
    path = tmp_path / "out" / "witness"
    return {int(line) for line in path.read_text().split()} if path.exists() else set()


@pytest.mark.spark
def test_it_runs_to_the_end_as_json_and_leaves_nothing(run: Callable[..., Marked], tmp_path: Path) -> None:
    """Nothing but JSON on stdout, nothing of Spark's log anywhere, no listener beyond loopback while it runs.

    Without pyarrow and pandas, here and on the executors: what makes no DataFrames needs none of them.
    """
    (tmp_path / "absent").mkdir()
    for name in ("pyarrow", "pandas"):
        (tmp_path / "absent" / f"{name}.py").write_text(f"raise ImportError('no {name} here')")
    path = f"{tmp_path / 'absent'}:{os.environ.get('PYTHONPATH', '')}"
    options = ("--workers", "2", "--until-caught-up", "--json", "-c", "numbers.per.second=500")
    started = run(*options, environ={"PYTHONPATH": path})
    wait_until(lambda: len(witness(tmp_path)) > 100, PATIENCE_S)
    addresses = listening(started.family())
    said, complaints = started.process.communicate(timeout=PATIENCE_S)
    assert started.process.returncode == 0, complaints
    last = [json.loads(line) for line in said.splitlines()][-1]
    assert "caught_up" in json.dumps(last)
    assert complaints == ""
    assert witness(tmp_path) == set(range(1000))
    assert len(addresses) > 5
    assert {address.rpartition(":")[0] for address in addresses} <= {"127.0.0.1", "[::ffff:127.0.0.1]", "[::1]"}
    nothing_left(started, tmp_path)


@pytest.mark.spark
def test_ctrl_c_drains(run: Callable[..., Marked], tmp_path: Path) -> None:
    """A terminal sends it to the whole group, JVMs too; the workers' cleanup is called all the same."""
    started = run("--workers", "2", "-c", "numbers.count=1000000", "-c", "numbers.per.second=500")
    wait_until(lambda: len(witness(tmp_path)) > 100, PATIENCE_S)
    os.killpg(started.process.pid, signal.SIGINT)
    said, complaints = started.process.communicate(timeout=PATIENCE_S)
    assert started.process.returncode == 130, said + complaints
    assert "Traceback" not in said + complaints
    sums = [json.loads(line) for line in (tmp_path / "out" / "sums.jsonl").read_text().splitlines()]
    assert len(sums) == 2
    assert sum(sum(each.values()) for each in sums) == sum(number * number for number in witness(tmp_path))
    nothing_left(started, tmp_path)


@pytest.mark.spark
def test_ctrl_c_while_spark_starts_ends_the_run_and_leaves_nothing(run: Callable[..., Marked], tmp_path: Path) -> None:
    """Nobody waits for a cluster that nobody wants any more."""
    started = run("--workers", "2")
    wait_until(lambda: len(started.family()) > 2, PATIENCE_S)
    os.killpg(started.process.pid, signal.SIGINT)
    said, complaints = started.process.communicate(timeout=PATIENCE_S)
    assert started.process.returncode == 130, said + complaints
    assert "Traceback" not in said + complaints
    nothing_left(started, tmp_path)


@pytest.mark.spark
def test_ctrl_c_twice_while_spark_starts_waits_for_nothing(run: Callable[..., Marked], tmp_path: Path) -> None:
    """Nobody who asks twice waits for a JVM that is only coming up, here one that is held there; it goes, too."""
    started = run("--workers", "2")
    wait_until(lambda: len(started.family()) > 2, PATIENCE_S)
    for pid in started.family():
        if pid != started.process.pid:
            with contextlib.suppress(ProcessLookupError):  # a shell on the way to a JVM has done its work
                os.kill(pid, signal.SIGSTOP)
    for _ in range(2):
        os.killpg(started.process.pid, signal.SIGINT)
        time.sleep(2 * SAME_S)  # two that come at once are one
    said, complaints = started.process.communicate(timeout=0.6 * STOP_S)
    # The second may find the run at its end, and the process with the system's own handler.
    assert started.process.returncode in (130, -signal.SIGINT), said + complaints
    assert "Traceback" not in said + complaints
    nothing_left(started, tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_or_sigterm_twice_kills(run: Callable[..., Marked], tmp_path: Path, number: signal.Signals) -> None:
    """At once, JVMs and all, even if a bolt never returns."""
    started = run("--workers", "2", "-c", "numbers.count=1000000", "-c", "numbers.per.second=500")
    wait_until(lambda: len(witness(tmp_path)) > 100, PATIENCE_S)
    (hanging, *_) = [json.loads(line)[2] for line in (tmp_path / "out" / "started.jsonl").read_text().splitlines()]
    os.kill(hanging, signal.SIGSTOP)
    os.killpg(started.process.pid, number)
    assert started.process.stderr is not None
    wait_until(lambda: "Draining" in started.process.stderr.readline(), 10)
    time.sleep(2 * SAME_S)  # two that come at once are one
    os.killpg(started.process.pid, number)
    said, complaints = started.process.communicate(timeout=10)
    assert started.process.returncode == 128 + number, said + complaints
    nothing_left(started, tmp_path)


@pytest.mark.spark
@pytest.mark.faults
def test_kill_9_of_the_whole_run_leaves_no_process(
    run: Callable[..., Marked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers end at the end of their channel, JVMs at the end of their pipe; the next run removes the folders."""
    started = run("--workers", "2", "-c", "numbers.count=1000000", "-c", "numbers.per.second=500")
    wait_until(lambda: len(witness(tmp_path)) > 100, PATIENCE_S)
    started.process.kill()
    wait_until(lambda: not started.family(), 10)
    temporary = tmp_path / "temporary"
    assert list(temporary.glob("slt-spark-*"))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    mine = spark_folder()
    assert list(temporary.glob("slt-*")) == [mine]


@pytest.mark.spark
def test_a_spark_that_does_not_start_says_why(run: Callable[..., Marked], tmp_path: Path) -> None:
    """Its own last words, and nothing of it left."""
    java = tmp_path / "jre" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        '[ "$1" = -version ] && { echo \'openjdk version "17.0.1"\' >&2; exit 0; }\n'
        "echo 'Error: the heap could not be reserved' >&2; exit 1\n"
    )
    java.chmod(0o755)
    started = run(environ={"JAVA_HOME": str(tmp_path / "jre")})
    said = refused(started)
    assert "Spark did not start on local-cluster[2,1,1024]" in said
    assert "the heap could not be reserved" in said
    nothing_left(started, tmp_path)


@pytest.mark.spark
def test_what_stands_in_the_buffer_of_a_file_that_was_left_open_on_an_executor_is_written(
    run: Callable[..., Marked], tmp_path: Path
) -> None:
    """Its Python process lives on for other tasks, and would keep it there."""
    opens = f"self.file = open({str(tmp_path / 'rows')!r}, 'w')"
    text = made(opens, "self.file.write(f'{tup.values[0]}\\n')").replace("config = {", "config = {'out': '', ")
    (tmp_path / "made.py").write_text(text)
    done = run("--workers", "2", "--until-caught-up", topology=tmp_path / "made.py")
    said, complaints = done.process.communicate(timeout=PATIENCE_S)
    assert done.process.returncode == 0, said + complaints
    assert (tmp_path / "rows").read_text().split() == list("12345")
