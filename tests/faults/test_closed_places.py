"""File systems that are read-only, and files and folders that another user may not read or write: real ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.faults.rig import wait_for
from tests.faults.test_coordinator_stalls import FILE as CHATTY
from tests.marked_processes import REPOSITORY, Marked
from tests.patience import PATIENCE_S

STREAMLET = [sys.executable, "-m", "streamlet"]
PLAIN = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
"""Root as any user is: what others own is closed to it as its mode says."""
OTHER = 65534
READ_ONLY = 'for place in $PLACES; do mount --bind $place $place && mount -o remount,ro,bind $place; done; exec "$@"'
"""For sh: folders that are read-only to the program that follows, and to nobody else."""
BEGAN = "Ctrl-C drains and stops"
"""What a run says when it starts its workers."""

QUIET = """
from streamlet import Bolt, Spout, Topology
class Quiet(Spout):
    outputs = ["n"]
    def next_tuple(self): ...
class Sink(Bolt):
    def process(self, tup): ...
class Made(Topology):
    quiet = Quiet.spec()
    sink = Sink.spec(inputs=[quiet])
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="it mounts folders read-only, or gives files away")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "quiet.py").write_text(QUIET)
    return tmp_path


def give_away(path: Path, mode: int) -> None:
    """Let a file or folder be another user's."""
    os.chown(path, OTHER, OTHER)
    path.chmod(mode)


def said(folder: Path, command: Sequence[str], *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """What ``streamlet ...`` says, in one line a paragraph; no worker was started, and nobody called it a bug."""
    given = {**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "10000", **environ}
    done = subprocess.run(
        [*command, *STREAMLET, *arguments], cwd=folder, env=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stderr.count("Error: ") == 1 and "a bug in streamlet" not in done.stderr
    assert "out of date" not in done.stderr and "Traceback" not in done.stderr
    return done


def read_only(*places: Path | str) -> tuple[list[str], dict[str, str]]:
    return ["unshare", "-m", "sh", "-c", READ_ONLY, "sh"], {"PLACES": " ".join(map(str, places))}


@needs_root
def test_g4_where_every_temporary_folder_is_read_only_a_run_says_so_and_starts_nothing(folder: Path) -> None:
    command, places = read_only(*(place for place in ("/tmp", "/var/tmp", "/usr/tmp") if os.path.isdir(place)), folder)
    done = said(folder, command, "run", "quiet.py", "-t", "1", **places, TMPDIR=str(folder))
    assert "none can be made" in done.stderr and "set TMPDIR to a folder that you may write to" in done.stderr


@needs_root
@pytest.mark.parametrize(
    ("option", "file"), [("--metrics-file", "disk/m.prom"), ("--log-file", "disk/run.log")], ids=["metrics", "log"]
)
def test_g4_a_file_on_a_read_only_disk_is_told_before_anything_starts(folder: Path, option: str, file: str) -> None:
    (folder / "disk").mkdir()
    command, places = read_only(folder / "disk")
    done = said(folder, command, "run", "quiet.py", "-t", "1", option, file, **places)
    assert BEGAN not in done.stdout
    assert f"{file} cannot be written: Read-only file system. Name a file in a folder" in done.stderr


@needs_root
@pytest.mark.parametrize("made", ["a folder that may be looked into", "a folder that is closed"])
@pytest.mark.parametrize(
    ("option", "file"), [("--metrics-file", "theirs/m.prom"), ("--log-file", "theirs/run.log")], ids=["metrics", "log"]
)
def test_g4_a_file_in_somebody_elses_folder_is_told_before_anything_starts(
    folder: Path, option: str, file: str, made: str
) -> None:
    (folder / "theirs").mkdir()
    give_away(folder / "theirs", 0o755 if "looked" in made else 0o700)
    done = said(folder, PLAIN, "run", "quiet.py", "-t", "1", option, file)
    assert BEGAN not in done.stdout
    assert f"{file} cannot be written: Permission denied. Name a file in a folder" in done.stderr


@needs_root
@pytest.mark.parametrize("command", ["check", "graph", "run"])
@pytest.mark.parametrize("closed", ["the file", "its folder"])
def test_g4_a_topology_that_may_not_be_read_is_told_with_what_to_do(folder: Path, command: str, closed: str) -> None:
    theirs = folder / "theirs"
    theirs.mkdir()
    shutil.copy(folder / "quiet.py", theirs)
    give_away(theirs / "quiet.py" if closed == "the file" else theirs, 0o600)
    done = said(folder, PLAIN, command, "theirs/quiet.py")
    assert "theirs/quiet.py cannot be read: Permission denied. " in done.stderr
    assert "the right to read the file, and to enter the folders above it" in done.stderr


@needs_root
@pytest.mark.parametrize("closed", ["the file", "its folder"])
def test_g4_a_shared_file_that_may_not_be_read_is_told_before_anything_starts(folder: Path, closed: str) -> None:
    theirs = folder / "theirs"
    theirs.mkdir()
    (theirs / "table").write_text("1")
    give_away(theirs / "table" if closed == "the file" else theirs, 0o600)
    done = said(folder, PLAIN, "run", "quiet.py", "-t", "1", "--shared", "table=theirs/table")
    assert BEGAN not in done.stdout
    assert "table=theirs/table" in done.stderr and "Permission denied" in done.stderr


@needs_root
def test_g4_what_may_not_be_read_beside_a_topology_and_is_not_imported_costs_nothing(folder: Path) -> None:
    """A closed folder, and a closed module: nobody could import them in a worker either."""
    (folder / "private").mkdir()
    (folder / "secret.py").write_text("")
    for beside in ("private", "secret.py"):
        give_away(folder / beside, 0o600)
    given = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [*PLAIN, *STREAMLET, "run", "quiet.py", "-t", "1"]
    done = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_root
def test_g4_a_disk_that_becomes_read_only_under_a_run_costs_the_metrics_file_until_it_is_mended(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """As a file system does after an error of its disk. No tuple is lost, and no worker replaced."""
    (tmp_path / "chatty.py").write_text(CHATTY)
    disk, said_in = tmp_path / "disk", tmp_path / "said"
    disk.mkdir()
    mount = 'mount -t tmpfs -o size=2m small "$0" && exec "$@"'
    arguments = ["run", "chatty.py", "--workers", "2", "--until-caught-up", "--metrics-file", "disk/m.prom"]
    given = {"PYTHONPATH": str(REPOSITORY), "FOLDER": str(tmp_path), "TMPDIR": str(tmp_path)}
    command: Any = ["unshare", "-m", "sh", "-c", mount, str(disk), *STREAMLET, *arguments]
    with said_in.open("w") as into:
        run = Marked(command, given, cwd=tmp_path, stderr=into)
    request.addfinalizer(run.end)
    done = tmp_path / "done"

    def more(count: int) -> Callable[[], bool]:
        before = done.read_bytes().count(b"\n") if done.exists() else 0
        return lambda: done.exists() and done.read_bytes().count(b"\n") >= before + count

    def remounted(how: str) -> bool:
        # Refused as busy while the file is written.
        inside = ["nsenter", "-t", str(run.process.pid), "-m", "mount", "-o", f"remount,{how}", str(disk)]
        return subprocess.run(inside, capture_output=True, check=False).returncode == 0

    wait_for("tuples", more(1000))
    wait_for("the disk to be read-only", lambda: remounted("ro"))
    wait_for("it to be told", lambda: "disk/m.prom is out of date: Read-only file system" in said_in.read_text())
    wait_for("more tuples", more(1000))
    assert remounted("rw")
    wait_for("more tuples", more(1000))
    (tmp_path / "enough").touch()
    run.process.communicate(timeout=PATIENCE_S)
    assert run.process.returncode == 0, said_in.read_text()[-2000:]
    lines = done.read_text().split()
    assert sorted(map(int, lines)) == list(range(1, len(lines) + 1)), "a tuple was lost, or came twice"
