"""The code of a run is what was checked at its start: on all workers, after every restart, whatever is edited."""

from __future__ import annotations

import os
import shutil
import signal
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from streamlet.backends.contract import RunRequest, RunStatus, Stop
from streamlet.backends.processes import ProcessesBackend
from streamlet.backends.run_coordinator import RunFailed
from streamlet.model.settings import resolve
from streamlet.runtime.worker import kept_code
from streamlet.runtime.worker.kept_code import KeptCode, keep_code
from streamlet.runtime.worker.loading import load_topology
from tests.marked_processes import REPOSITORY, streamlet
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

ENDLESS = """
import os
from streamlet import Bolt, Spout, Topology

class Endless(Spout):
    outputs = ["n"]
    def initialize(self, conf, context):
        self.n = 0
    def next_tuple(self):
        self.emit([self.n], tup_id=self.n)
        self.n += 1
"""

WRITTEN = """
        self.file = os.open({seen!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.line = f"{{context.epoch}} {{', '.join(seen)}}\\n".encode()
    def process(self, tup):
        os.write(self.file, self.line)

class Coded(Topology):
    config = {{"topology.max.spout.pending": 10}}
    endless = Endless.spec()
    writes = Writes.spec(inputs=[endless])
"""

FILE = f"""
from {{beside}} import VERSION as BESIDE
{ENDLESS}
VERSION = "first"

class Writes(Bolt):
    def initialize(self, conf, context):
        seen = VERSION, BESIDE
{WRITTEN}"""


QUIET = (
    "from streamlet import Spout, Topology\nclass Quiet(Spout):\n    def next_tuple(self): ...\n"
    "class Alone(Topology):\n    quiet = Quiet.spec()\n"
)


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
    assert set(seen.read_text().splitlines()) == {"1 first, first", "2 first, first"}
    for path in (file, beside):
        (told,) = [text for text in watcher.texts if text.startswith(f"{path} was changed since the run began")]
        assert "Worker 1 (epoch 2) runs the code of the start" in told


LATE = f"""
{ENDLESS}
class Writes(Bolt):
    def initialize(self, conf, context):
        with open({{made!r}}, "a" if os.path.exists({{made!r}}) else "w") as file:
            file.write("VERSION = 'made'\\n" if context.epoch == 1 else "VERSION = 'made again'\\n")
        import late_{{name}}, made_{{name}}, late_src_{{name}}
        from late_pkg_{{name}} import inner
        seen = [module.VERSION for module in (late_{{name}}, made_{{name}}, late_src_{{name}}, inner)]
{WRITTEN}"""


def test_what_is_imported_in_a_method_is_the_code_of_the_start_after_an_edit_too(tmp_path: Path) -> None:
    """Beside the topology, in a package, in ``src``; and what the topology has made itself is the same everywhere."""
    name, seen, folder = tmp_path.name, tmp_path / "seen", tmp_path / "topologies"
    package, src = folder / f"late_pkg_{name}", tmp_path / "src"
    package.mkdir(parents=True)
    src.mkdir()
    (package / "__init__.py").write_text("")
    late = [folder / f"late_{name}.py", package / "inner.py", src / f"late_src_{name}.py"]
    for path in late:
        path.write_text('VERSION = "first"\n')
    made = folder / f"made_{name}.py"
    file = folder / f"coded_{name}.py"
    file.write_text(LATE.format(name=name, seen=str(seen), made=str(made)))
    topology, stop = load_topology(file), Stop()
    watcher = EditThenKill(seen, late, stop)
    request = RunRequest(topology, resolve(topology.config, {}), file=file, workers=2, seconds=PATIENCE_S)
    assert ProcessesBackend().run(request, watcher, stop).reason == "interrupted"
    assert set(seen.read_text().splitlines()) == {"1 first, made, first, first", "2 first, made, first, first"}
    for path in (*late, made):
        (told,) = [text for text in watcher.texts if text.startswith(f"{path} was changed since the run began")]
        assert "Worker 1 (epoch 2) runs the code of the start" in told


def test_a_file_that_was_removed_is_imported_as_it_was(tmp_path: Path) -> None:
    file, late = tmp_path / f"gone_later_{tmp_path.name}.py", tmp_path / f"helper_{tmp_path.name}.py"
    file.write_text(QUIET)
    late.write_text("VERSION = 1\n")
    load_topology(file)
    told = list[str]()
    finder = KeptCode(keep_code(file, tmp_path / "code"), file, tmp_path / "code", told.append)
    late.unlink()
    spec = finder.find_spec(late.stem, None)
    assert spec is not None and spec.loader is not None and told == [str(late)]
    assert spec.loader.get_data(str(late)) == b"VERSION = 1\n"  # type: ignore[attr-defined]  # a SourceLoader's
    assert finder.find_spec(f"nowhere_{tmp_path.name}", None) is None


def test_a_file_beyond_the_bound_is_what_its_first_import_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_code, "MOST_FILES", 0)
    file, late = tmp_path / f"bounded_{tmp_path.name}.py", tmp_path / f"beyond_{tmp_path.name}.py"
    file.write_text(QUIET)
    late.write_text("VERSION = 1\n")
    load_topology(file)
    told, folder = list[str](), tmp_path / "code"
    code = keep_code(file, folder)
    assert [*code.files] == [str(file.resolve())]
    for _ in "two workers, then one that starts later":
        spec = KeptCode(code, file, folder, told.append).find_spec(late.stem, None)
        assert spec is not None and spec.loader is not None
        assert spec.loader.get_data(str(late)) == b"VERSION = 1\n"  # type: ignore[attr-defined]  # a SourceLoader's
        late.write_text("VERSION = 2\n")
    assert set(told) == {str(late)}


def test_environments_caches_and_installed_packages_in_the_folder_are_not_kept(tmp_path: Path) -> None:
    file = tmp_path / f"beside_venv_{tmp_path.name}.py"
    file.write_text(QUIET)
    for other in ("env/lib/x.py", "__pycache__/y.py", ".git/z.py", "vendored/site-packages/v.py", "kept/deep/k.py"):
        (tmp_path / other).parent.mkdir(parents=True)
        (tmp_path / other).write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    load_topology(file)
    code = keep_code(file, tmp_path / "code")
    assert {Path(path).name for path in code.files} == {file.name, "k.py"}
    installed = tmp_path / "vendored" / "site-packages"
    spec = KeptCode(code, file, tmp_path / "code", [].append).find_spec("v", [str(installed)])
    assert spec is not None and type(spec.loader) is SourceFileLoader  # as anybody would load it


def test_code_that_was_changed_and_is_not_kept_any_more_is_refused_and_not_mixed(tmp_path: Path) -> None:
    """The copy was torn, or a cleaner of temporary files took it."""
    file = tmp_path / f"gone_{tmp_path.name}.py"
    file.write_text(QUIET)
    load_topology(file)
    folder, told = tmp_path / "code", list[str]()
    code = keep_code(file, folder)
    assert list(code.modules) == [file.stem]
    finder = KeptCode(code, file, folder, told.append)
    assert finder.find_spec(file.stem, None) is not None and told == []
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
        with (library / "streamlet" / "testing" / "tester.py").open("a") as file:
            file.write("# another version\n")
        (victim,) = (pid for pid in run.family() if pid != run.process.pid and is_worker(pid, seen))
        os.kill(victim, signal.SIGKILL)
        _, errors = run.process.communicate(timeout=PATIENCE_S)
        last = errors.splitlines()[-1]
        assert run.process.returncode == 1, errors
        assert last.startswith("Error: Worker 1 (epoch 2) found another streamlet below") and str(library) in last
        assert "Start the run again" in last and set(seen.read_text().splitlines()) == {"1 first, first"}
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
