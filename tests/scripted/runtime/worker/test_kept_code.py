"""The code of a run is what was checked at its start: on all workers, after every restart, whatever is edited."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from streamlet.backends.contract import RunRequest, RunStatus, Stop
from streamlet.backends.processes import ProcessesBackend
from streamlet.backends.run_coordinator import RunFailed
from streamlet.model.settings import resolve
from streamlet.runtime.worker.kept_code import KeptCode, keep_code
from streamlet.runtime.worker.loading import load_topology
from tests.marked_processes import REPOSITORY, streamlet
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

FILE = """
import os
from {beside} import VERSION as BESIDE
from streamlet import Bolt, Spout, Topology

VERSION = "first"

class Endless(Spout):
    outputs = ["n"]
    def initialize(self, conf, context):
        self.n = 0
    def next_tuple(self):
        self.emit([self.n], tup_id=self.n)
        self.n += 1

class Writes(Bolt):
    def initialize(self, conf, context):
        self.file = os.open({seen!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.line = f"{{context.epoch}} {{VERSION}} {{BESIDE}}\\n".encode()
    def process(self, tup):
        os.write(self.file, self.line)

class Coded(Topology):
    config = {{"topology.max.spout.pending": 10}}
    endless = Endless.spec()
    writes = Writes.spec(inputs=[endless])
"""


class EditThenKill(Watcher):
    """Edits both files, kills the bolt's worker, and stops the run once its replacement has written."""

    def __init__(self, seen: Path, edit: list[Path], stop: Stop) -> None:
        super().__init__()
        self.seen, self.edit, self.stop, self.killed = seen, edit, stop, False

    def on_status(self, status: RunStatus) -> None:
        lines = self.seen.read_text().splitlines() if self.seen.exists() else []
        if lines and not self.killed:
            self.killed = True
            for path in self.edit:
                path.write_text(path.read_text().replace("first", "second"))
            (pid,) = [worker["pid"] for worker in status.workers if worker["worker"] == 1]
            os.kill(pid, signal.SIGKILL)
        if any(line.startswith("2") for line in lines):
            self.stop.ask()


def test_a_worker_that_restarts_runs_the_code_of_the_start_and_tells_the_edit(tmp_path: Path) -> None:
    beside, seen = tmp_path / f"beside_{tmp_path.name}.py", tmp_path / "seen"
    beside.write_text('VERSION = "first"\n')
    file = tmp_path / f"coded_{tmp_path.name}.py"
    file.write_text(FILE.format(beside=beside.stem, seen=str(seen)))
    topology, stop = load_topology(file), Stop()
    watcher = EditThenKill(seen, [file, beside], stop)
    request = RunRequest(topology, resolve(topology.config, {}), file=file, workers=2, seconds=PATIENCE_S)
    assert ProcessesBackend().run(request, watcher, stop).reason == "interrupted"
    assert set(seen.read_text().splitlines()) == {"1 first first", "2 first first"}
    for path in (file, beside):
        (told,) = [text for text in watcher.texts if text.startswith(f"{path} was changed since the run began")]
        assert "Worker 1 (epoch 2) runs the code of the start" in told


def test_code_that_was_changed_and_is_not_kept_any_more_is_refused_and_not_mixed(tmp_path: Path) -> None:
    """The copy was torn, or a cleaner of temporary files took it."""
    file = tmp_path / f"gone_{tmp_path.name}.py"
    file.write_text("from streamlet import Spout, Topology\nclass Quiet(Spout):\n    def next_tuple(self): ...\n"
                    "class Alone(Topology):\n    quiet = Quiet.spec()\n")  # fmt: skip
    load_topology(file)
    folder, told = tmp_path / "code", list[str]()
    code = keep_code(file, folder)
    assert list(code) == [file.stem]
    finder = KeptCode(code, folder, told.append)
    assert finder.find_spec(file.stem, None) is not None and finder.find_spec("json", None) is None and told == []
    file.write_text("raise SystemExit\n")
    assert finder.find_spec(file.stem, None) is not None and told == [str(file)]
    (kept,) = folder.iterdir()
    kept.write_bytes(kept.read_bytes()[:-9])
    with pytest.raises(
        Exception, match=r"was changed since the run began, and its code .* is gone from .* \(damaged\)"
    ):
        finder.find_spec(file.stem, None)
    kept.unlink()
    with pytest.raises(Exception, match=r"was changed since the run began, and its code as it was then is gone"):
        finder.find_spec(file.stem, None)


def test_a19_a_replacement_that_finds_another_streamlet_is_refused_with_its_folder(tmp_path: Path) -> None:
    """An upgrade while a run goes on: its workers have the old one in memory, a replacement would import the new."""
    library = tmp_path / "library"
    ignored = shutil.ignore_patterns("__pycache__", "docs")
    shutil.copytree(REPOSITORY / "streamlet", library / "streamlet", ignore=ignored)
    beside, seen = tmp_path / "beside_upgrade.py", tmp_path / "seen"
    beside.write_text('VERSION = "first"\n')
    (tmp_path / "upgraded.py").write_text(FILE.format(beside=beside.stem, seen=str(seen)))
    run = streamlet(
        ["run", "upgraded.py", "--workers", "2", "--json"],
        {"PYTHONPATH": str(library), "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not seen.exists() or not seen.read_text():
            assert time.monotonic() < deadline and run.process.poll() is None
            time.sleep(0.02)
        with (library / "streamlet" / "testing.py").open("a") as file:
            file.write("# another version\n")
        (victim,) = (pid for pid in run.family() if pid != run.process.pid and is_worker(pid, seen))
        os.kill(victim, signal.SIGKILL)
        _, errors = run.process.communicate(timeout=PATIENCE_S)
        last = errors.splitlines()[-1]
        assert run.process.returncode == 1, errors
        assert last.startswith("Error: Worker 1 (epoch 2) found another streamlet below") and str(library) in last
        assert "Start the run again" in last and set(seen.read_text().splitlines()) == {"1 first first"}
    finally:
        run.end()


def is_worker(pid: int, file: Path) -> bool:
    """Whether the process has this file open."""
    return any(os.path.realpath(entry) == str(file.resolve()) for entry in Path(f"/proc/{pid}/fd").iterdir())


def test_a19_a_worker_whose_import_gives_another_topology_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "unsteady.py"
    file.write_text(
        "import os\nfrom streamlet import Spout, Topology\nclass Quiet(Spout):\n    def next_tuple(self): ...\n"
        f"class Unsteady(Topology):\n    quiet = Quiet.spec(par=1 if os.getpid() == {os.getpid()} else 2)\n"
    )
    topology = load_topology(file)
    request = RunRequest(topology, resolve(topology.config, {}), file=file, workers=1, seconds=PATIENCE_S)
    with pytest.raises(RunFailed, match="found another topology than the coordinator did"):
        ProcessesBackend().run(request, Watcher(), Stop())
