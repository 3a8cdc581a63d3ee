"""What runs leave in the temporary folder: the dead's is removed by the next run, a living run's is never touched."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlet.backends.contract import RunRequest, Stop
from streamlet.backends.folders import recreate_if_swept, run_folder, spark_folder
from streamlet.backends.run_coordinator import RunCoordinator
from streamlet.base.errors import BadInput
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.run_observer import Watcher

ROOT = Path(__file__).parents[3]
MAKE = """
import sys, time
from streamlet.backends.folders import run_folder, spark_folder
for folder in (run_folder(), spark_folder()):
    (folder / "inside").mkdir()
    (folder / "inside" / "file").write_text("x")
    print(folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of its own."""
    with tempfile.TemporaryDirectory(prefix="t") as made:
        monkeypatch.setattr(tempfile, "tempdir", made)
        yield Path(made)


@pytest.fixture
def owner(place: Path) -> Iterator[tuple[subprocess.Popen[str], list[Path]]]:
    """Another process with a folder of each kind. It ends with its standard input, and so with this one."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAKE],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdin is not None
    yield process, [Path(process.stdout.readline().strip()) for _ in range(2)]
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_a_killed_runs_folders_are_removed_by_the_next_and_a_living_ones_are_not(
    owner: tuple[subprocess.Popen[str], list[Path]], place: Path
) -> None:
    process, theirs = owner
    mine = [run_folder(), spark_folder()]
    assert all(folder.is_dir() for folder in [*theirs, *mine])
    assert [folder.stat().st_mode & 0o777 for folder in mine] == [0o700] * 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    mine.append(run_folder())
    assert not any(folder.exists() for folder in theirs) and all(folder.is_dir() for folder in mine)


@pytest.mark.parametrize(
    "name",
    ["slt-abcdefgh", "slt-1-x-2-00000000-abc", "other-1-2-3-00000000-abc", "slt-1-2-3-abc", "slt-spark-abcdefgh"],
)
def test_what_is_not_named_like_a_runs_folder_is_left(place: Path, name: str) -> None:
    (place / name).mkdir()
    run_folder()
    assert (place / name).is_dir()


def gone_process() -> str:
    """Name of a process that was there and is not, as folders bear it."""
    process = subprocess.Popen(["true"])
    process.wait()
    return f"{process.pid}-1"


def namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def boot_of_this_machine() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:8]


def test_only_folders_of_this_user_machine_and_view_of_processes_are_removed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link of that name leads elsewhere; in another container or machine the process may well live."""
    here, boot = namespace(), boot_of_this_machine()
    kept = [
        place / f"slt-{gone_process()}-{here + 1}-{boot}-container",
        place / f"slt-{gone_process()}-{here}-{boot[::-1] if boot != boot[::-1] else '01234567'}-machine",
        place / f"slt-{gone_process()}-{here}-{boot}-link",
    ]
    kept[0].mkdir()
    kept[1].mkdir()
    (place / "elsewhere").mkdir()
    kept[2].symlink_to(place / "elsewhere")
    removed = place / f"slt-{gone_process()}-{here}-{boot}-dead"
    removed.mkdir()
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: os.getuid() + 1)
        run_folder()
        assert removed.is_dir()
    run_folder()
    assert not removed.exists() and all(path.exists() for path in kept)


def test_a_number_that_came_again_is_another_process(place: Path) -> None:
    """This one lives, and did not make the folder."""
    old = place / f"slt-{os.getpid()}-1-{namespace()}-{boot_of_this_machine()}-old"
    old.mkdir()
    run_folder()
    assert not old.exists()


def test_a_folder_that_was_swept_is_made_again_and_what_somebody_else_put_there_is_not_used(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_folder()
    assert not recreate_if_swept(folder)
    folder.rmdir()
    assert recreate_if_swept(folder) and folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    folder.symlink_to(place)
    with pytest.raises(PermissionError):
        recreate_if_swept(folder)
    folder.unlink()
    folder.mkdir()
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(PermissionError):
            recreate_if_swept(folder)


def test_where_no_folder_can_be_made_it_says_what_to_do(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full, or a file system that is read-only: one paragraph, before anything is started."""
    monkeypatch.setattr(tempfile, "tempdir", str(place / "none"))
    with pytest.raises(BadInput, match=r"none can be made .*No such file or directory. Make room there, or set TMPDIR"):
        run_folder()


def test_g2_a_disk_that_has_no_room_for_a_runs_code_is_told_and_nothing_is_left(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder itself could be made."""
    file = tmp_path / "roomless.py"
    file.write_text("from streamlet import Spout, Topology\nclass Quiet(Spout):\n    def next_tuple(self): ...\n"
                    "class Alone(Topology):\n    quiet = Quiet.spec()\n")  # fmt: skip
    topology = load_topology(file)

    def full(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk, pytest.raises(BadInput, match=r"No space left on device\. Make room there, or"):
        disk.setattr(Path, "write_bytes", full)
        RunCoordinator(RunRequest(topology, resolve(topology.config, {}), file=file), Watcher(), Stop())
    assert not list(place.glob("slt-*"))
