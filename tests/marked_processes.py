"""Processes that a test starts, and what it can read about them off /proc."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from streamlet.devcluster.machine import ProcessIdentity

REPOSITORY = Path(__file__).parents[1]
NUMBERED = REPOSITORY / "tests" / "topologies" / "numbered.py"
MARK = "STREAMLET_TEST_MARK"


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Marked:
    """A process whose descendants, however distant, are known by a variable of their environment."""

    def __init__(self, arguments: list[str], environ: Mapping[str, str], **options: Any) -> None:
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            arguments,
            env={**os.environ, **environ, MARK: self.mark},
            text=True,
            preexec_fn=_die_with_parent,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )

    def family(self) -> list[int]:
        """Every living process that has the mark."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    environ = (entry / "environ").read_bytes()
                except OSError:
                    continue
                if f"{MARK}={self.mark}".encode() in environ:
                    found.append(int(entry.name))
        return found

    def end(self) -> None:
        """Leave nothing behind, whatever became of the test."""
        for pid in [self.process.pid, *self.family()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.communicate()


MAIN = "from streamlet.cli.main import main; main()"


def streamlet(arguments: list[str], environ: Mapping[str, str], code: str = MAIN, **options: Any) -> Marked:
    """``streamlet ...`` from the checkout, as a marked process."""
    environ = {"PYTHONPATH": str(REPOSITORY), **environ}
    return Marked([sys.executable, "-c", code, *arguments], environ, **options)


def command_line(pid: int) -> list[str]:
    """What a process was started with."""
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def parent(pid: int) -> int:
    """The parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def descendants(pid: int) -> list[int]:
    """Every process that came from this one; a daemon that left it counts by its session's first process."""
    children: dict[int, list[int]] = {}
    for each in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            children.setdefault(parent(each), []).append(each)
        except OSError:
            continue
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def lives(pid: int) -> bool:
    """Whether a process is there; a zombie that waits for its parent is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def living_family(pid: int) -> list[ProcessIdentity]:
    """Every process that came from this one and still runs; one that ends meanwhile, or is a zombie, is left out."""
    found = []
    for each in descendants(pid):
        with contextlib.suppress(ProcessLookupError):
            found.append(ProcessIdentity.of(each))
    return found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Marked]]:
    """Starts ``streamlet run`` in a folder and with a temporary folder of its own; ends what is left of it."""
    begun: list[Marked] = []
    for name in ("temporary", "here", "out"):
        (tmp_path / name).mkdir()

    def start(*arguments: str, environ: Mapping[str, str] | None = None, topology: Path = NUMBERED) -> Marked:
        given = ["run", str(topology), "--backend", "spark", "-c", f"out={tmp_path / 'out'}", *arguments]
        environ = {"TMPDIR": str(tmp_path / "temporary"), **(environ or {})}
        begun.append(streamlet(given, environ, cwd=tmp_path / "here", start_new_session=True))
        return begun[-1]

    yield start
    for each in begun:
        each.end()
