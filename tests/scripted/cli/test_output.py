"""Standard output that is full or closed: said as what it is, and a run that shows itself there ends in order."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest

from streamlet.backends.contract import RunStatus
from streamlet.base.log_line import LogLine
from streamlet.cli.output import OutputFailed
from streamlet.cli.show import LastingView
from tests.patience import PATIENCE_S
from tests.scripted.cli.test_metrics_file import value
from tests.scripted.cli.test_run import READINGS

_8K = (8192, 8192)
FULL = "Error: Standard output cannot be written: No space left on device."


def shell(streamlet: Any, *arguments: object, to: str, unbuffered: bool = False) -> subprocess.CompletedProcess[str]:
    """One command whose output goes ``to`` what a shell's redirection says."""
    command = [*streamlet.command, *map(str, arguments)]
    environ = {name: value for name, value in streamlet.environment.items() if unbuffered or name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {to}', "sh", *command],
        cwd=streamlet.folder, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize(
    "arguments", [("check", READINGS), ("check", READINGS, "--json"), ("graph", READINGS), ("--help",), ("--version",)]
)
def test_a_full_disk_is_no_bug(streamlet: Any, arguments: tuple[object, ...], unbuffered: bool) -> None:
    """One paragraph and status 1, and nothing of the interpreter's own at the end."""
    done = shell(streamlet, *arguments, to=">/dev/full", unbuffered=unbuffered)
    assert done.returncode == 1 and done.stderr.startswith(FULL) and done.stderr.count("\n") == 1, done


@pytest.mark.parametrize("arguments", [("check", READINGS), ("run", READINGS), ("consume", "t"), ("--help",)])
@pytest.mark.parametrize("closed", [">&-", ">&- <&-"])
def test_a_closed_output_is_said_before_anything_runs(streamlet: Any, arguments: tuple[str, ...], closed: str) -> None:
    done = shell(streamlet, *arguments, to=closed)
    assert done.returncode == 1, done
    assert done.stderr.startswith("Error: Standard output cannot be written: it is closed.")
    assert done.stderr.count("\n") == 1


def test_closed_errors_change_no_status(streamlet: Any) -> None:
    """What cannot be said is not a reason to end otherwise."""
    assert shell(streamlet, "check", READINGS, to="2>&-").returncode == 0
    assert shell(streamlet, "check", "none.py", to="2>&-").returncode == 2


def test_what_is_refused_is_said_though_its_json_cannot_be(streamlet: Any) -> None:
    done = shell(streamlet, "run", "none.py", "--json", "-t", "1", to=">/dev/full")
    assert "none.py" in done.stderr and "Standard output" not in done.stderr and done.returncode == 2, done
    done = shell(streamlet, "run", READINGS, "--json", "-c", "no.such=1", to=">/dev/full")
    assert "no.such" in done.stderr and done.returncode == 2, done


ENDLESS = """
import os
from streamlet import Bolt, ReliableSpout, Topology

class Numbers(ReliableSpout):
    outputs = ['n']
    def next_tuple(self):
        self.emit([1], tup_id=os.urandom(8))

class Sink(Bolt):
    def process(self, tup): pass
    def cleanup(self):
        open('closed', 'w').close()

class Made(Topology):
    config = {'topology.max.spout.pending': 10}
    numbers = Numbers.spec()
    sink = Sink.spec(inputs=[numbers])
"""


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a17_a_run_whose_reader_goes_away_drains(streamlet: Any, backend: str) -> None:
    """As ``| head`` does: no SIGPIPE ends it in the middle of its work."""
    workers = "1" if backend == "inline" else "2"
    process = streamlet.start("run", streamlet.write(ENDLESS), "--json", "--backend", backend, "--workers", workers)
    for line in process.stdout:
        if '"running"' in line:  # else components may not have begun, and have nothing to close
            break
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 1
    said = process.stderr.read()
    assert "Traceback" not in said and "bug" not in said
    assert said.splitlines()[-1].startswith("Error: Nobody reads the run's standard output any more"), "for a journal"
    assert (streamlet.folder / "closed").exists()


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_run_whose_output_ends_drains(streamlet: Any, backend: str) -> None:
    """The disk fills up while it runs: components are closed, and the last word says why."""
    file = streamlet.write(ENDLESS)
    # The first lines have room in the file, then no other has.
    out = streamlet.folder / "out"
    out.write_bytes(b"\n" * 7_200)
    arguments = ("run", file, "--json", "--backend", backend, "--workers", "1", "--metrics-file", "m.prom")
    command = [*streamlet.command, *map(str, arguments)]
    with out.open("ab") as into:
        done = subprocess.run(
            command, stdout=into, stderr=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, _8K),
            cwd=streamlet.folder, env=streamlet.environment, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    assert done.returncode == 1, done
    assert done.stderr.splitlines()[-1].startswith("Error: Standard output cannot be written: File too large."), done
    assert value(streamlet.folder / "m.prom", "streamlet_run", state="failed") == 1
    assert (streamlet.folder / "closed").exists() and os.path.getsize(out) > 7_200


def test_a_lost_view_asks_for_a_drain_once() -> None:
    """And is shown nothing more, whatever comes."""

    class Broken:
        shown = 0

        def __getattr__(self, name: str) -> Any:
            return self.show

        def on_errors(self, *_: object, **__: object) -> bool:
            return False

        def show(self, *_: object) -> None:
            self.shown += 1
            raise OutputFailed("No space left on device")

    broken, asked = Broken(), []
    view = LastingView(broken, lambda: asked.append(1))  # type: ignore[arg-type]
    view.on_status(RunStatus("running", 1.0))
    view.on_event(LogLine("warning", "x", 0.0))
    view.failed(RuntimeError(), 1)
    assert isinstance(view.lost, OutputFailed) and (broken.shown, asked) == (1, [1])


def test_a_line_of_standard_error_is_shown_though_standard_output_is_lost() -> None:
    """A run that drains for its reader has errors, too."""
    shown: list[str] = []

    class Half:
        def __getattr__(self, name: str) -> Any:
            return lambda *_: None

        def on_errors(self, *_: object, **__: object) -> bool:
            return True

        def on_event(self, line: LogLine) -> None:
            shown.append(line.text)

    view = LastingView(Half(), lambda: None)  # type: ignore[arg-type]
    view.broke(BrokenPipeError())
    view.on_event(LogLine("error", "x", 0.0))
    assert shown == ["x"]


def test_a_full_disk_is_told_from_any_other_file(streamlet: Any, tmp_path: Path) -> None:
    """An OSError of something else is not one of the output."""
    file = streamlet.write("raise OSError(28, 'No space left on device')\n")
    done = streamlet("check", file)
    assert done.returncode != 0 and "Standard output" not in done.stderr
