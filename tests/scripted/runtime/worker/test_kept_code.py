"""The code of a run is what was checked at its start: on all workers, after every restart, whatever is edited."""

from __future__ import annotations

import os
import py_compile
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from streamlet.backends.contract import RunRequest, RunStatus, Stop
from streamlet.backends.processes import ProcessesBackend
from streamlet.backends.run_coordinator import RunFailed
from streamlet.base.python_files import python_files
from streamlet.model.settings import resolve
from streamlet.runtime.worker import kept_code
from streamlet.runtime.worker.kept_code import Code, KeptCode, keep_code
from streamlet.runtime.worker.loading import CannotLoad, load_topology
from tests.marked_processes import REPOSITORY, streamlet
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

ENDLESS = """
import os
from streamlet import Bolt, Spout, Topology

class Endless(Spout):
    outputs = ["n"]
    answers_for_failures = True  # the tests kill workers, and ask for nothing but the code
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
    """Edits the code, kills the bolt's worker, and stops the run once its replacement has written."""

    def __init__(self, seen: Path, edit: Callable[[], object], stop: Stop) -> None:
        super().__init__()
        self.seen, self.edit, self.stop, self.killed = seen, edit, stop, False

    def on_status(self, status: RunStatus) -> None:
        lines = self.seen.read_text().splitlines() if self.seen.exists() else []
        if len(lines) > 1 and not self.killed:  # the bolt has written, not only its spout
            self.killed = True
            self.edit()
            (pid,) = [worker["pid"] for worker in status.workers if worker["worker"] == 1]
            os.kill(pid, signal.SIGKILL)
        if any(line.startswith("2") for line in lines):
            self.stop.ask()


def run_edited(file: Path, seen: Path, edit: Callable[[], object]) -> Watcher:
    """Run a topology in which the bolt's worker is killed after an edit."""
    topology, stop = load_topology(file), Stop()
    watcher = EditThenKill(seen, edit, stop)
    request = RunRequest(topology, resolve(topology.config, {}), file=file, workers=2, seconds=PATIENCE_S)
    assert ProcessesBackend().run(request, watcher, stop).reason == "interrupted"
    return watcher


def make_second(*paths: Path) -> None:
    """Write the second version into these files."""
    for path in paths:
        path.write_text(path.read_text().replace("first", "second"))


def assert_told(watcher: Watcher, *paths: Path) -> None:
    """Check that the edit of each file was told once, and not taken."""
    for path in paths:
        (told,) = [text for text in watcher.texts if text.startswith(f"{path} was changed since the run began")]
        assert "Worker 1 (epoch 2) runs the code of the start" in told


def test_a_worker_that_restarts_runs_the_code_of_the_start_and_tells_the_edit(tmp_path: Path) -> None:
    beside, seen = tmp_path / f"beside_{tmp_path.name}.py", tmp_path / "seen"
    beside.write_text('VERSION = "first"\n')
    file = tmp_path / f"coded_{tmp_path.name}.py"
    file.write_text(FILE.format(beside=beside.stem, seen=str(seen)))
    watcher = run_edited(file, seen, lambda: make_second(file, beside))
    assert set(seen.read_text().splitlines()) == {"1 first, first", "2 first, first"}
    assert_told(watcher, file, beside)


@pytest.mark.parametrize("packaged", [False, True])
def test_a_worker_that_restarts_after_the_topologys_file_was_removed_runs_the_code_of_the_start(
    tmp_path: Path, packaged: bool
) -> None:
    """A checkout of another branch, or a deployment that takes the old folder away."""
    seen, folder = tmp_path / "seen", tmp_path / f"flows_{packaged}"
    folder.mkdir()
    if packaged:
        (folder / "__init__.py").write_text("")
    file, beside = folder / f"removed_{packaged}.py", folder / f"beside_removed_{packaged}.py"
    beside.write_text('VERSION = "first"\n')
    file.write_text(FILE.format(beside=f".{beside.stem}" if packaged else beside.stem, seen=str(seen)))
    watcher = run_edited(file, seen, lambda: shutil.rmtree(folder))
    assert set(seen.read_text().splitlines()) == {"1 first, first", "2 first, first"}
    assert_told(watcher, file, beside)


class StopOnceSeen(Watcher):
    """Stops the run once its bolt has written."""

    def __init__(self, seen: Path, stop: Stop) -> None:
        super().__init__()
        self.seen, self.stop = seen, stop

    def on_status(self, status: RunStatus) -> None:
        if self.seen.exists() and self.seen.read_text():
            self.stop.ask()


EDITING = """
import pathlib
def edit_once():
    flag = pathlib.Path({flag!r})
    if flag.exists():
        flag.unlink()
        for file in map(pathlib.Path, {files!r}):
            file.write_text(file.read_text().replace("first", "second").replace('["n"]', '["m"]'))
edit_once()
"""


def edited_at_import(tmp_path: Path, name: str, *edited: str) -> tuple[Path, Path]:
    """Write a topology whose first import edits files; return it and what its bolt writes."""
    file, seen, flag = tmp_path / f"{name}.py", tmp_path / "seen", tmp_path / "flag"
    flag.write_text("")
    files = [str(tmp_path / path) for path in edited]
    text = FILE.format(beside=f"beside_{name}", seen=str(seen)) + EDITING.format(flag=str(flag), files=files)
    file.write_text(text)
    (tmp_path / f"beside_{name}.py").write_text('VERSION = "first"\n')
    return file, seen


def test_an_edit_while_the_check_still_imports_is_told_and_not_taken(tmp_path: Path) -> None:
    """A topology's import may take seconds: the workers import what was imported then, not what stands there after."""
    name = f"slow_{tmp_path.name}"
    file, seen = edited_at_import(tmp_path, name, f"slow_{tmp_path.name}.py", f"beside_{name}.py")
    topology, stop = load_topology(file), Stop()
    assert "second" in file.read_text() and '["m"]' in file.read_text()
    watcher = StopOnceSeen(seen, stop)
    request = RunRequest(topology, resolve(topology.config, {}), file=file, workers=2, seconds=PATIENCE_S)
    assert ProcessesBackend().run(request, watcher, stop).reason == "interrupted"
    assert set(seen.read_text().splitlines()) == {"1 first, first"}
    for path in (file, tmp_path / f"beside_{name}.py"):
        (told,) = [text for text in watcher.texts if str(path) in text]
        assert told.startswith(f"{path} was changed after this process had imported it. The run is of the version")


def test_an_edit_while_the_check_imports_that_reaches_what_it_did_not_import_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file that no import has read there is nothing but the edit: beside the rest of before it would not fit."""
    name = f"mixed_{tmp_path.name}"
    late = tmp_path / f"late_{name}.py"
    late.write_text("VERSION = 'first'\n")
    file, _ = edited_at_import(tmp_path, name, f"beside_{name}.py", late.name)
    time.sleep(0.05)  # what is written within the same tick of the kernel may be the topology's own
    topology = load_topology(file)
    request = RunRequest(topology, resolve(topology.config, {}), file=file, workers=2, seconds=PATIENCE_S)
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "runs"))
    with pytest.raises(CannotLoad) as refused:
        ProcessesBackend().run(request, Watcher(), Stop())
    text = refused.value.message
    assert f"{tmp_path / f'beside_{name}.py'} was changed after it had been imported, and {late} after that" in text
    assert str(late) in text and "Nothing was started" in text and "tart it again" in text
    assert refused.value.exit_status == 2
    assert not list((tmp_path / "runs").iterdir())


def test_a_file_that_only_methods_import_and_the_import_made_is_kept_as_it_is(tmp_path: Path) -> None:
    """A topology may make modules while it is imported, and load them, again after it has written them again."""
    name = f"makes_{tmp_path.name}"
    made, lazy = tmp_path / f"made_{name}.py", tmp_path / f"lazy_{name}.py"
    file = tmp_path / f"{name}.py"
    file.write_text(
        f"import importlib, pathlib\nmade, lazy = pathlib.Path({str(made)!r}), pathlib.Path({str(lazy)!r})\n"
        "lazy.write_text('VERSION = 1\\n')\nmade.write_text('VERSION = 1\\n')\nimportlib.invalidate_caches()\n"
        f"import {made.stem}\nmade.write_text('VERSION = 22\\n')\nimportlib.reload({made.stem})\n{QUIET}"
    )
    load_topology(file)
    code = keep_code(file, tmp_path / "code")
    for path, text in ((made, b"VERSION = 22\n"), (lazy, b"VERSION = 1\n")):
        assert (tmp_path / "code" / code.files[str(path)]).read_bytes() == text


GENERATED = (
    """
import importlib, pathlib, sys, tempfile, time
folder = pathlib.Path(__file__).parent
made, lazy = folder / "made_NAME.py", folder / "lazy_NAME.py"
HEAD
def versions():
    import made_NAME, lazy_NAME
    return made_NAME.VERSION, lazy_NAME.VERSION
"""
    + ENDLESS.replace("self.n = 0", "self.n = 0; open(SEEN, 'a').write(f'{context.epoch} {versions()}\\n')")
    + """
class Writes(Bolt):
    def initialize(self, conf, context):
        self.line = f"{context.epoch} {versions()}\\n"
    def process(self, tup):
        open(SEEN, "a").write(self.line)

class Coded(Topology):
    config = {"topology.max.spout.pending": 10}
    endless = Endless.spec()
    writes = Writes.spec(inputs=[endless])
"""
)

IF_MISSING = """
if not made.exists() or CHANGES:
    made.write_text("VERSION = 'made'\\n")
    lazy.write_text("VERSION = 'made'\\n")
    importlib.invalidate_caches()
import made_NAME
"""

WITH_A_STAMP = IF_MISSING.replace("CHANGES", "True").replace("\"VERSION = 'made'", "f\"VERSION = '{time.time_ns()}'")

WRITTEN_AGAIN = f"""{WITH_A_STAMP}
made.write_text("VERSION = 'again'\\n")
lazy.write_text("VERSION = 'late'\\n")
"""

INTO_A_NEW_FOLDER = f"""
folder = pathlib.Path(tempfile.mkdtemp(dir=folder, prefix="new-"))
made, lazy = folder / made.name, folder / lazy.name
sys.path.insert(0, str(folder))
{WITH_A_STAMP}"""

SHAPES = {
    "if_missing": IF_MISSING.replace("CHANGES", "False"),
    "the_same": IF_MISSING.replace("CHANGES", "True"),
    "stamped": WITH_A_STAMP,
    "written_again": WRITTEN_AGAIN,
}


def generating(tmp_path: Path, shape: str, head: str, *, there: bool) -> tuple[Path, Path]:
    """Write a topology that generates code when it is imported; return it, and what its components write."""
    seen = tmp_path / "seen"
    file = tmp_path / f"generates_{shape}_{there}.py"
    text = GENERATED.replace("HEAD", head).replace("NAME", f"{shape}_{there}").replace("SEEN", repr(str(seen)))
    file.write_text(text)
    for name in ("made", "lazy") if there else ():
        (tmp_path / f"{name}_{shape}_{there}.py").write_text("VERSION = 'of a former run'\n")
    time.sleep(0.05)  # times of files may lag behind the clock by a tick of the kernel
    return file, seen


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_code_that_a_topology_generates_when_it_is_imported_is_the_one_of_the_check(
    tmp_path: Path, shape: str, there: bool
) -> None:
    """Each worker generates it again, and imports what the check has imported; so does one that starts again."""
    file, seen = generating(tmp_path, shape, SHAPES[shape], there=there)
    run_edited(file, seen, lambda: None)
    lines = [line.partition(" ") for line in seen.read_text().splitlines()]
    assert {epoch for epoch, _, _ in lines} == {"1", "2"}
    (versions,) = {versions for _, _, versions in lines}
    assert versions.startswith(f"('{sys.modules[f'made_{shape}_{there}'].VERSION}', ")


def test_of_code_that_is_generated_into_a_new_folder_the_imported_is_the_same_and_the_other_is_told(
    tmp_path: Path,
) -> None:
    """Each worker has a folder of its own: a module there that the check has not imported is another in each."""
    file, seen = generating(tmp_path, "new_folder", INTO_A_NEW_FOLDER, there=False)
    watcher = run_edited(file, seen, lambda: None)
    made = sys.modules["made_new_folder_False"].VERSION
    assert {line.split("'")[1] for line in seen.read_text().splitlines()} == {made}
    told = [text for text in watcher.texts if "lazy_new_folder_False.py was added or changed after the run" in text]
    assert len(told) == 3


def test_a_topology_that_writes_its_modules_after_their_import_is_told_the_order(tmp_path: Path) -> None:
    """Nobody can tell this from an edit: what was imported is from before the import began."""
    head = "import made_NAME\nmade.write_text('VERSION = 1\\n')\nlazy.write_text('VERSION = 1\\n')\n"
    file, _ = generating(tmp_path, "late", head, there=True)
    topology = load_topology(file)
    request = RunRequest(topology, resolve(topology.config, {}), file=file, workers=2, seconds=PATIENCE_S)
    with pytest.raises(CannotLoad, match="writes each before it imports it, and not after"):
        ProcessesBackend().run(request, Watcher(), Stop())


def test_what_a_topologys_import_puts_into_the_loaders_place_stays_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that instruments code may do so for good."""
    get_data, path_stats = SourceFileLoader.get_data, SourceFileLoader.path_stats
    monkeypatch.setattr(SourceFileLoader, "get_data", get_data)  # undone at the end
    monkeypatch.setattr(SourceFileLoader, "path_stats", path_stats)
    file = tmp_path / f"instruments_{tmp_path.name}.py"
    file.write_text(
        "from importlib.machinery import SourceFileLoader\nbefore = SourceFileLoader.get_data\n"
        f"def theirs(own, path): return before(own, path)\nSourceFileLoader.get_data = theirs\n{QUIET}"
    )
    load_topology(file)
    assert SourceFileLoader.get_data is sys.modules[file.stem].theirs
    assert SourceFileLoader.path_stats is path_stats


@pytest.mark.parametrize("named", [False, True])
def test_what_the_check_loaded_by_file_is_kept_as_it_was_loaded(tmp_path: Path, named: bool) -> None:
    """A module that is loaded by its file need not be in sys.modules; its source may be read again as text."""
    name = f"plugin_{named}"
    file, plugin = tmp_path / f"top_{name}.py", tmp_path / f"{name}.py"
    plugin.write_text('VERSION = "first"\n')
    head = BY_FILE.format(name=name) if named else BY_FILE.format(name=name).replace(f"sys.modules[{name!r}] = ", "")
    again = f"Path({str(plugin)!r}).write_text('VERSION = 2\\n')\nspec.loader.get_source({name!r})\n"
    file.write_text(f"import importlib.util, os, sys\nfrom pathlib import Path\n{head}{again}{QUIET}")
    load_topology(file)
    code = keep_code(file, tmp_path / "code")
    assert (tmp_path / "code" / code.files[str(plugin)]).read_bytes() == b'VERSION = "first"\n'


def test_the_check_imports_the_source_that_stands_there_and_not_byte_code_of_another(tmp_path: Path) -> None:
    """Byte code counts by the second and the size of its source: an edit of the same second has both."""
    name = f"stale_{tmp_path.name}"
    file, beside = tmp_path / f"{name}.py", tmp_path / f"beside_{name}.py"
    beside.write_text("VERSION = 1\n")
    py_compile.compile(str(beside))
    stat = beside.stat()
    beside.write_text("VERSION = 2\n")
    os.utime(beside, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    file.write_text(f"import {beside.stem}\n{QUIET}")
    path_stats, get_data = SourceFileLoader.path_stats, SourceFileLoader.get_data
    load_topology(file)
    assert sys.modules[beside.stem].VERSION == 2
    code = keep_code(file, tmp_path / "code")
    assert (tmp_path / "code" / code.files[str(beside)]).read_bytes() == b"VERSION = 2\n"
    assert SourceFileLoader.path_stats is path_stats and SourceFileLoader.get_data is get_data


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
    watcher = run_edited(file, seen, lambda: make_second(*late))
    assert set(seen.read_text().splitlines()) == {"1 first, made, first, first", "2 first, made, first, first"}
    assert_told(watcher, *late, made)
    (added,) = [text for text in watcher.texts if text.startswith(f"{made} was added or changed after the run began")]
    assert "Worker 1 (epoch 1) has imported it as it is now" in added and "start the run again" in added


LOADED = f"""
import importlib.util, os, sys
{{head}}
{ENDLESS}
class Writes(Bolt):
    def initialize(self, conf, context):
        seen = [VERSION]
        if {{late!r}}:
            seen.append(importlib.import_module({{late!r}}).VERSION)
{WRITTEN}"""

BY_FILE = """
spec = importlib.util.spec_from_file_location({name!r}, os.path.join(os.path.dirname(__file__), "{name}.py"))
sys.modules[{name!r}] = by_file = importlib.util.module_from_spec(spec)
spec.loader.exec_module(by_file)
VERSION = by_file.VERSION
"""

REAL_FOLDER = """
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from {name} import VERSION
"""

OPTIONAL = """
VERSION = "first"
try:
    from {name} import VERSION
except ImportError:
    pass
if importlib.util.find_spec({name!r}):
    VERSION = "second"
"""


@pytest.mark.parametrize("linked", [False, True])
def test_a_module_that_is_loaded_by_its_file_is_the_one_of_the_start(tmp_path: Path, linked: bool) -> None:
    name, seen = f"by_file_{tmp_path.name}", tmp_path / "seen"
    file, plugin = tmp_path / f"top_{name}.py", tmp_path / f"{name}.py"
    there = tmp_path / "elsewhere.py" if linked else plugin
    there.write_text('VERSION = "first"\n')
    if linked:
        plugin.symlink_to(there)
    file.write_text(LOADED.format(head=BY_FILE.format(name=name), late="", seen=str(seen)))
    watcher = run_edited(file, seen, lambda: make_second(there))
    assert set(seen.read_text().splitlines()) == {"1 first", "2 first"}
    assert_told(watcher, plugin)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("packaged", [False, True])
def test_neighbours_of_what_a_link_leads_to_are_those_of_the_start(
    tmp_path: Path, packaged: bool, turned: bool
) -> None:
    """The topology, or a package of its own, puts its real folder on sys.path; that is edited, or the link turned."""
    name, seen, app = f"neighbour_{packaged}_{turned}", tmp_path / "seen", tmp_path / "app"
    app.mkdir()
    file, package, late = app / f"top_{name}.py", f"package_{name}", f"late_{name}"
    text = LOADED.format(head=REAL_FOLDER.format(name=name), late=late, seen=str(seen))
    inside = REAL_FOLDER.format(name=name).replace("realpath(__file__)", "dirname(os.path.realpath(__file__))")
    for version in ("first", "second"):
        (tmp_path / version / package).mkdir(parents=True)
        (tmp_path / version / package / "__init__.py").write_text(f"import os, sys\n{inside}")
        for module in (name, late):
            (tmp_path / version / f"{module}.py").write_text(f"VERSION = {version!r}\n")
        (tmp_path / version / file.name).write_text(text)
    if packaged:
        file.write_text(LOADED.format(head=f"from {package} import VERSION", late=late, seen=str(seen)))
    link = app / package if packaged else file
    link.symlink_to(tmp_path / "first" / link.name)
    there = [tmp_path / "first" / f"{module}.py" for module in (name, late)]

    def edit() -> None:
        turn(link, tmp_path / "second" / link.name) if turned else make_second(*there)

    watcher = run_edited(file, seen, edit)
    assert set(seen.read_text().splitlines()) == {"1 first, first", "2 first, first"}
    # Where the link was turned, the one that was imported at the check is found where it lay, and is as it was.
    assert_told(watcher, *([tmp_path / "second" / there[1].name] if turned else there))


def test_what_the_topology_did_not_find_at_its_check_is_not_found_by_a_replacement(tmp_path: Path) -> None:
    name, seen = f"optional_{tmp_path.name}", tmp_path / "seen"
    file, extra = tmp_path / f"top_{name}.py", tmp_path / f"{name}.py"
    file.write_text(LOADED.format(head=OPTIONAL.format(name=name), late="", seen=str(seen)))
    watcher = run_edited(file, seen, lambda: extra.write_text('VERSION = "second"\n'))
    assert set(seen.read_text().splitlines()) == {"1 first", "2 first"}
    (told,) = [text for text in watcher.texts if text.startswith(f"{extra} was added after the run began")]
    assert "Worker 1 (epoch 2) goes on without it, as all others do" in told


def test_a_file_that_was_added_is_told_by_its_first_importer_and_a_turned_link_adds_one(tmp_path: Path) -> None:
    file, plugins = tmp_path / f"adds_{tmp_path.name}.py", tmp_path / "plugins"
    file.write_text(QUIET)
    for version in ("one", "two"):
        (tmp_path / f"{version}-release").mkdir()
        (tmp_path / f"{version}-release" / "__init__.py").write_text("")
    (tmp_path / "two-release" / "more.py").write_text("")
    plugins.symlink_to("one-release")
    load_topology(file)
    code, told = keep_code(file, tmp_path / "code"), list[str]()
    time.sleep(0.05)  # times of files may lag behind the clock by a tick of the kernel
    turn(plugins, "two-release")
    for _ in "two workers":
        assert finder_of(code, tmp_path / "code", told).find_spec("plugins.more", [str(plugins)]) is not None
    assert told == [f"{plugins / 'more.py'} True"]


RELEASED = f"""
from {{beside}} import VERSION as BESIDE
{ENDLESS}
VERSION = "first"

class Writes(Bolt):
    def initialize(self, conf, context):
        import {{late}}
        from {{package}} import inner
        seen = VERSION, BESIDE, {{late}}.VERSION, inner.VERSION
{WRITTEN}"""


def release(folder: Path, names: Mapping[str, str], seen: Path, version: str) -> None:
    """Write one version of a topology's code: two modules beside it, and a package."""
    (folder / names["package"]).mkdir(parents=True)
    (folder / names["package"] / "__init__.py").write_text("")
    for module in (names["beside"], names["late"], f"{names['package']}/inner"):
        (folder / f"{module}.py").write_text(f"VERSION = {version!r}\n")
    text = RELEASED.format(**names, seen=str(seen))
    (folder / f"{names['top']}.py").write_text(text.replace("first", version))


def turn(link: Path, target: Path | str) -> None:
    """Point a link elsewhere in one step, as `mv -T` and a kubelet do."""
    new = link.with_name(f"{link.name}.new")
    new.symlink_to(target)
    new.replace(link)


def in_a_config_map(folder: Path, names: Mapping[str, str]) -> tuple[Path, list[Path]]:
    """Lay links as a ConfigMap's volume does; return the place of the code, and what to turn."""
    mounted = folder / "mounted"
    mounted.mkdir()
    (mounted / "..data").symlink_to(folder / "first")
    for name in (*(f"{names[module]}.py" for module in ("top", "beside", "late")), names["package"]):
        (mounted / name).symlink_to(f"..data/{name}")
    return mounted, [mounted / "..data"]


def in_a_release(folder: Path, names: Mapping[str, str]) -> tuple[Path, list[Path]]:
    """Lay the one link of a release, `current`."""
    (folder / "current").symlink_to("first")
    return folder / "current", [folder / "current"]


def in_single_links(folder: Path, names: Mapping[str, str]) -> tuple[Path, list[Path]]:
    """Lay a link for each module and package, from a folder of the topology's own."""
    app = folder / "app"
    app.mkdir()
    links = [app / f"{names[module]}.py" for module in ("top", "beside", "late")]
    links.append(app / names["package"])
    for link in links:
        link.symlink_to(folder / "first" / link.name)
    return app, links


@pytest.mark.parametrize("layout", [in_a_config_map, in_a_release, in_single_links])
def test_a_worker_that_restarts_after_a_link_was_turned_runs_the_code_of_the_start(
    tmp_path: Path, layout: Callable[[Path, Mapping[str, str]], tuple[Path, list[Path]]]
) -> None:
    """Modules beside the topology, in a method, and in a package; each edit is told by the path that is imported."""
    seen = tmp_path / "seen"
    names = {name: f"linked_{name}_{layout.__name__}" for name in ("top", "beside", "late", "package")}
    for version in ("first", "second"):
        release(tmp_path / version, names, seen, version)
    place, links = layout(tmp_path, names)

    def turn_all() -> None:
        for link in links:
            turn(link, tmp_path / "second" if link.name in ("..data", "current") else tmp_path / "second" / link.name)

    file = place / f"{names['top']}.py"
    watcher = run_edited(file, seen, turn_all)
    assert set(seen.read_text().splitlines()) == {f"{epoch} first, first, first, first" for epoch in (1, 2)}
    others = [place / f"{module}.py" for module in (names["beside"], names["late"], f"{names['package']}/inner")]
    assert_told(watcher, file, *others)


def finder_of(code: Code, folder: Path, told: list[str]) -> KeptCode:
    """Return a finder of this code, which tells edits and additions to one list."""
    return KeptCode(code, folder, told.append, lambda file, taken: told.append(f"{file} {taken}"), told.append)


def test_a_file_that_was_removed_is_imported_as_it_was(tmp_path: Path) -> None:
    file, late = tmp_path / f"gone_later_{tmp_path.name}.py", tmp_path / f"helper_{tmp_path.name}.py"
    file.write_text(QUIET)
    late.write_text("VERSION = 1\n")
    load_topology(file)
    told = list[str]()
    finder = finder_of(keep_code(file, tmp_path / "code"), tmp_path / "code", told)
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
        spec = finder_of(code, folder, told).find_spec(late.stem, None)
        assert spec is not None and spec.loader is not None
        assert spec.loader.get_data(str(late)) == b"VERSION = 1\n"  # type: ignore[attr-defined]  # a SourceLoader's
        late.write_text("VERSION = 2\n")
    assert set(told) == {str(late)}


def kept_in(file: Path, folder: Path) -> tuple[Callable[[str, list[str] | None], bytes | None], list[str]]:
    """Keep the code of a topology; return how a worker that starts later reads a module, and what it told."""
    load_topology(file)
    code, told = keep_code(file, folder), list[str]()

    def read(name: str, path: list[str] | None) -> bytes | None:
        spec = finder_of(code, folder, told).find_spec(name, path)
        if spec is None or spec.origin is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        return spec.loader.get_data(spec.origin)

    return read, told


def test_a_module_behind_a_link_is_known_by_its_path_and_by_what_the_link_points_at(tmp_path: Path) -> None:
    """A topology may put the real folder of its file on sys.path: before the link was turned, or after."""
    for version in ("one", "two"):
        (tmp_path / version / "inside").mkdir(parents=True)
        (tmp_path / version / "turned.py").write_text(QUIET)
        for path in ("late_turned.py", "inside/__init__.py", "inside/deep.py"):
            (tmp_path / version / path).write_text(f"VERSION = {version!r}\n")
    current = tmp_path / "at" / "current"
    current.parent.mkdir()
    current.symlink_to(tmp_path / "one")
    read, told = kept_in(current / "turned.py", tmp_path / "code")
    turn(current, tmp_path / "two")
    for folder in (current, tmp_path / "one", tmp_path / "two"):
        assert read("late_turned", [str(folder)]) == b"VERSION = 'one'\n"
        assert read("inside", [str(folder)]) == b"VERSION = 'one'\n"
        assert read("inside.deep", [str(folder / "inside")]) == b"VERSION = 'one'\n"
    assert told == [
        str(folder / path)
        for folder in (current, tmp_path / "two")
        for path in ("late_turned.py", "inside/__init__.py", "inside/deep.py")
    ]


def test_a_module_that_has_become_a_package_or_left_is_the_one_of_the_start(tmp_path: Path) -> None:
    """A kept file counts wherever the interpreter would have found it first, whatever stands there or behind it now."""
    app, other = tmp_path / "app", tmp_path / "other"
    app.mkdir()
    other.mkdir()
    (app / "becomes.py").write_text(QUIET)
    for name in ("grows", "splits", "leaves", "stays"):
        (app / f"{name}.py").write_text("VERSION = 1\n")
        (other / f"{name}.py").write_text("VERSION = 'another module'\n")
    read, told = kept_in(app / "becomes.py", tmp_path / "code")
    (app / "grows").mkdir()
    (app / "grows" / "__init__.py").write_text("VERSION = 2\n")
    (app / "splits").mkdir()
    (app / "splits.py").unlink()
    (app / "leaves.py").unlink()
    for name in ("grows", "splits", "leaves", "stays"):
        assert read(name, [str(app), str(other)]) == b"VERSION = 1\n"
    assert read("stays", [str(other), str(app)]) == b"VERSION = 'another module'\n"
    assert told == [str(app / path) for path in ("grows/__init__.py", "splits.py", "leaves.py")]


def test_a_package_without_init_whose_folder_was_removed_is_imported_as_it_was(tmp_path: Path) -> None:
    file, folder = tmp_path / f"scattered_{tmp_path.name}.py", tmp_path / "scattered"
    file.write_text(QUIET)
    folder.mkdir()
    (folder / "part.py").write_text("VERSION = 1\n")
    load_topology(file)
    told = list[str]()
    finder = finder_of(keep_code(file, tmp_path / "code"), tmp_path / "code", told)
    shutil.rmtree(folder)
    spec = finder.find_spec("scattered", [str(tmp_path)])
    assert spec is not None and spec.loader is None and spec.submodule_search_locations == [str(folder)]
    part = finder.find_spec("scattered.part", spec.submodule_search_locations)
    assert part is not None and part.origin == str(folder / "part.py") and told == [part.origin]


def test_a_file_beyond_the_bound_is_its_first_import_after_a_link_was_turned_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_code, "MOST_FILES", 0)
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "bounded_link.py").write_text(QUIET)
        (tmp_path / version / "beyond_link.py").write_text(f"VERSION = {version!r}\n")
    (tmp_path / "current").symlink_to("one")
    read, told = kept_in(tmp_path / "current" / "bounded_link.py", tmp_path / "code")
    assert read("beyond_link", [str(tmp_path / "current")]) == b"VERSION = 'one'\n" and told == []
    turn(tmp_path / "current", "two")
    assert read("beyond_link", [str(tmp_path / "current")]) == b"VERSION = 'one'\n"
    assert told == [str(tmp_path / "current" / "beyond_link.py")]


def test_linked_folders_are_kept_after_the_own_ones_and_a_ring_of_links_ends(tmp_path: Path) -> None:
    file = tmp_path / "app" / f"ring_{tmp_path.name}.py"
    (tmp_path / "app" / "own").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    file.write_text(QUIET)
    (tmp_path / "app" / "own" / "o.py").write_text("")
    (tmp_path / "elsewhere" / "e.py").write_text("")
    (tmp_path / "app" / "again").symlink_to(tmp_path / "app")
    (tmp_path / "app" / "linked").symlink_to(tmp_path / "elsewhere")
    found = [str(path.relative_to(tmp_path / "app")) for path in python_files(tmp_path / "app", follow_links=True)]
    assert found == [file.name, "own/o.py", "linked/e.py"]
    load_topology(file)
    paths = keep_code(file, tmp_path / "code").files
    assert {str(tmp_path / "app" / path) for path in found} <= set(paths)


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
    spec = finder_of(code, tmp_path / "code", []).find_spec("v", [str(installed)])
    assert spec is not None and type(spec.loader) is SourceFileLoader  # as anybody would load it


COMPILED = f"""
import os, sys
sys.path.insert(0, {{archive!r}})
import {{zipped}}, {{compiled}}
{ENDLESS}
class Writes(Bolt):
    def initialize(self, conf, context):
        seen = {{zipped}}.VERSION, {{compiled}}.VERSION
{WRITTEN}"""


def test_an_archive_or_compiled_module_that_was_exchanged_is_told_by_the_worker_that_starts(tmp_path: Path) -> None:
    """It is not kept: the worker that starts again runs another code than the others, and says so."""
    name, seen, archive = tmp_path.name, tmp_path / "seen", tmp_path / "z.zip"
    compiled, same = tmp_path / f"compiled_{name}.pyc", tmp_path / f"same_{name}.pyc"
    file = tmp_path / f"exchanged_{name}.py"
    text = COMPILED.format(archive=str(archive), zipped=f"zipped_{name}", compiled=compiled.stem, seen=str(seen))
    file.write_text(f"import {same.stem}\n{text}")

    def make(version: str) -> None:
        source = tmp_path / "source.txt"
        source.write_text(f"VERSION = {version!r}\n")
        with zipfile.ZipFile(archive, "w") as there:
            there.write(source, f"zipped_{name}.py")
        py_compile.compile(str(source), str(compiled), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        source.write_text("")
        py_compile.compile(str(source), str(same), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)

    make("first")
    watcher = run_edited(file, seen, lambda: make("second"))
    assert set(seen.read_text().splitlines()) == {"1 first, first", "2 second, second"}
    told = [text for text in watcher.texts if "was changed since the run began" in text]
    assert sorted(text.partition(" ")[0] for text in told) == sorted([str(archive), str(compiled)])
    for text in told:
        assert (
            "Only .py files are kept, and this is another kind: worker 1 (epoch 2) starts with it as it is now" in text
        )
        assert "Start the run again" in text


def test_code_that_was_changed_and_is_not_kept_any_more_is_refused_and_not_mixed(tmp_path: Path) -> None:
    """The copy was torn, or a cleaner of temporary files took it."""
    file = tmp_path / f"gone_{tmp_path.name}.py"
    file.write_text(QUIET)
    load_topology(file)
    folder, told = tmp_path / "code", list[str]()
    code = keep_code(file, folder)
    assert list(code.modules) == [file.stem]
    finder = finder_of(code, folder, told)
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
