"""The command line as its users have it: a process of its own, which dies with the test."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamlet.devcluster import DevCluster
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[1]


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Streamlet:
    """Starts ``streamlet`` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        self.command = [sys.executable, "-P", "-m", "streamlet"]
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}

    def write(self, text: str, name: str = "made.py") -> Path:
        """A file for the command to read."""
        path = self.folder / name
        path.write_text(text)
        return path

    def start(self, *arguments: object, **environment: str) -> subprocess.Popen[str]:
        """The process, its output in pipes, its terminal none."""
        process = subprocess.Popen(
            [*self.command, *map(str, arguments)],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_die_with_parent,
        )
        self.started.append(process)
        return process

    def __call__(self, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def streamlet(tmp_path: Path) -> Iterator[Streamlet]:
    """Runs the command line; what is still running at the end of the test is killed."""
    command = Streamlet(tmp_path)
    yield command
    for process in command.started:
        process.kill()
        process.communicate()


@pytest.fixture
def refused(streamlet: Streamlet) -> Callable[..., str]:
    """Runs a command that must be refused as bad input; the paragraph it says."""

    def run(*arguments: object) -> str:
        done = streamlet(*arguments)
        assert done.returncode == 2, done
        assert done.stdout == "", done.stdout
        assert "Traceback" not in done.stderr
        assert done.stderr.startswith("Error: ")
        assert done.stderr.endswith("\n") and done.stderr.count("\n") == 1, f"not one paragraph: {done.stderr}"
        return done.stderr

    return run


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory of the test's own; what is up in it goes down when the test, or its runner, has ended."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    # The end of this guard's standard input is our end, however we end.
    body = "import sys; sys.stdin.read()\nfrom streamlet.devcluster import resident; resident.down()"
    guard = subprocess.Popen([sys.executable, "-c", body], stdin=subprocess.PIPE, start_new_session=True)
    yield tmp_path / "streamlet" / "dev"
    guard.communicate()
    assert guard.returncode == 0


class Consume:
    """Runs the command in a process of its own, against one cluster."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "streamlet", "consume", "--bootstrap-server", self.servers, *arguments]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True)
        self.started.append(process)
        return process

    def __call__(self, *arguments: str) -> tuple[int, bytes, str]:
        """Exit status, output, and what it said."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err.decode()


@pytest.fixture
def consume(kafka39: DevCluster) -> Iterator[Consume]:
    command = Consume(kafka39.bootstrap_servers)
    yield command
    for process in command.started:
        process.kill()
        process.communicate()
