"""A program that runs topologies again and again: each run is of the code that it has imported, whatever was edited."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import runpy
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from streamlet.base.errors import BadInput
from streamlet.model.topology import TopologyMeta
from streamlet.runtime.worker.loading import CannotLoad
from tests.marked_processes import REPOSITORY
from tests.patience import PATIENCE_S

ONCE = """
import os
from streamlet import Bolt, ReliableSpout, Topology

VERSION = "first"

def note(name, *seen):
    file = os.open({seen!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{{name}} {{', '.join(seen)}}\\n".encode())
    os.close(file)

class Once(ReliableSpout):
    outputs = ["n"]
    done = False
    def initialize(self, conf, context):
        note("once", VERSION, {more})
    def next_tuple(self):
        if not self.done:
            self.done = True
            self.emit([1], tup_id=1)
    def caught_up(self):
        return self.done and not self.has_unfinished()

class Writes(Bolt):
    def process(self, tup):
        {late}
        note("writes", VERSION, {more})

class Words(Topology):
    once = Once.spec()
    writes = Writes.spec(inputs=[once])
"""


class Notebook:
    """A folder with modules, and this process, which imports and runs them."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.seen, self._log = folder / "code", folder / "seen", caplog
        self.folder.mkdir()
        monkeypatch.syspath_prepend(str(self.folder))
        caplog.set_level(logging.INFO, "streamlet.run")
        self.name = f"words_{folder.name}"

    @property
    def words(self) -> Path:
        return self.folder / f"{self.name}.py"

    def write(self, head: str = "", more: str = "VERSION", late: str = "pass") -> None:
        """Write the topology: what its components see, and what a method imports."""
        self.words.write_text(head + ONCE.format(seen=str(self.seen), more=more, late=late))

    def put(self, name: str, text: str) -> Path:
        path = self.folder / f"{name}_{self.name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def imported(self) -> TopologyMeta:
        importlib.invalidate_caches()
        words: TopologyMeta = importlib.import_module(self.name).Words
        return words

    def run(self, topology: TopologyMeta) -> tuple[set[str], list[str]]:
        """Run a topology; return what its components saw, and the warnings about files."""
        self.seen.unlink(missing_ok=True)
        self._log.clear()
        result = topology.run(workers=2)  # type: ignore[attr-defined]  # every topology has one
        assert result.reason == "caught_up"
        told = [record.getMessage() for record in self._log.records if record.levelno >= logging.WARNING]
        # A starved machine warns of other things.
        return set(self.seen.read_text().splitlines()), [text for text in told if text.startswith(str(self.folder))]


@pytest.fixture
def notebook(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Notebook:
    return Notebook(tmp_path, caplog, monkeypatch)


def both(*seen: str) -> set[str]:
    """Return what the two components write that have seen this."""
    return {f"{name} {', '.join(seen)}" for name in ("once", "writes")}


def edit(path: Path, version: str = "second") -> None:
    path.write_text(path.read_text().replace('"first"', f'"{version}"').replace('["n"]', '["m"]'))


@pytest.mark.parametrize("runs_before", [False, True])
def test_a_file_that_was_edited_and_not_reloaded_runs_as_it_was_imported_and_is_told(
    notebook: Notebook, runs_before: bool
) -> None:
    notebook.write()
    words = notebook.imported()
    if runs_before:
        assert notebook.run(words) == (both("first", "first"), [])
    edit(notebook.words)
    seen, told = notebook.run(words)
    assert seen == both("first", "first")
    (text,) = told
    assert text.startswith(f"{notebook.words} was changed after this process had imported it.")
    assert f"importlib.reload({notebook.name})" in text and "the version that was imported" in text


def test_a_reload_or_another_import_takes_the_edit_on_all_workers_without_a_word(notebook: Notebook) -> None:
    notebook.write()
    words = notebook.imported()
    assert notebook.run(words)[0] == both("first", "first")
    edit(notebook.words)
    module = importlib.reload(sys.modules[notebook.name])
    assert notebook.run(module.Words) == (both("second", "second"), [])
    notebook.words.write_text(notebook.words.read_text().replace("second", "third"))
    del sys.modules[notebook.name]
    assert notebook.run(notebook.imported()) == (both("third", "third"), [])


def test_a_helper_that_was_edited_and_not_reloaded_runs_as_it_was_imported(notebook: Notebook) -> None:
    helper = notebook.put("helper", 'VERSION = "first"\ndef seen():\n    return VERSION\n')
    notebook.write(head=f"import {helper.stem}\n", more=f"{helper.stem}.seen()")
    words = notebook.imported()
    helper.write_text(helper.read_text().replace("first", "second"))
    seen, told = notebook.run(words)
    assert seen == both("first", "first")
    (text,) = told
    assert text.startswith(f"{helper} was changed after") and f"importlib.reload({helper.stem})" in text
    importlib.reload(sys.modules[helper.stem])
    assert notebook.run(words) == (both("first", "second"), [])


def test_what_the_first_run_kept_beside_the_imported_code_goes_with_it(notebook: Notebook) -> None:
    """A module of a method, edited with the topology: as it was; edited alone, it is taken, for nothing has read it."""
    lazy = notebook.put("lazy", 'VERSION = "first"\n')
    notebook.write(late=f"import {lazy.stem} as m", more="globals().get('m') or VERSION")
    notebook.write(head=f"def late():\n    import {lazy.stem}\n    return {lazy.stem}.VERSION\n", more="late()")
    words = notebook.imported()
    assert notebook.run(words) == (both("first", "first"), [])
    lazy.write_text('VERSION = "second"\n')
    assert notebook.run(words) == (both("first", "second"), [])
    edit(notebook.words)
    lazy.write_text('VERSION = "third"\n')
    seen, (told, *more) = notebook.run(words)
    assert seen == both("first", "second") and told.startswith(f"{notebook.words} was changed after")
    assert all(text.startswith(f"{lazy} was changed since the run began") for text in more)


def test_an_edit_that_also_reached_what_nothing_has_imported_is_refused_before_the_first_run(
    notebook: Notebook,
) -> None:
    lazy = notebook.put("lazy", 'VERSION = "first"\n')
    notebook.write()
    words = notebook.imported()
    time.sleep(0.05)  # times of files may lag behind the clock by a tick of the kernel
    edit(notebook.words)
    lazy.write_text('VERSION = "second"\n')
    with pytest.raises(CannotLoad) as refused:
        words.run(workers=2)  # type: ignore[attr-defined]  # every topology has one
    text = refused.value.message
    assert f"{notebook.words} was changed after it had been imported, and {lazy} after" in text
    assert "importlib.reload" in text and "Nothing was started" in text


def test_what_a_reload_leaves_of_former_names_stands_in_nobodys_way(notebook: Notebook) -> None:
    """A module keeps the names that its new text does not have any more."""
    helper = notebook.put("helper", "def old():\n    return 'first'\n\ndef seen():\n    return old()\n")
    notebook.write(head=f"import {helper.stem}\n", more=f"{helper.stem}.seen()")
    assert notebook.run(notebook.imported())[0] == both("first", "first")
    helper.write_text("def seen():\n    return 'second'\n")
    notebook.words.write_text(
        notebook.words.read_text().replace("class Writes", "class Wrote").replace("Writes", "Wrote")
    )
    importlib.reload(sys.modules[helper.stem])
    words = importlib.reload(sys.modules[notebook.name]).Words
    assert notebook.run(words) == (both("first", "second"), [])


def test_a_file_under_two_names_runs_as_each_was_imported(notebook: Notebook) -> None:
    helper = notebook.put("helper", 'VERSION = "first"\n')
    notebook.write(head=f"import {helper.stem}\n", more=f"{helper.stem}.VERSION")
    words = notebook.imported()
    spec = importlib.util.spec_from_file_location(f"also_{helper.stem}", helper)
    assert spec is not None and spec.loader is not None
    sys.modules[spec.name] = also = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(also)
    for version in "first", "second", "third":
        helper.write_text(f'VERSION = "{version}"\n')
        assert notebook.run(words)[0] == both("first", "first")


def test_an_empty_file_and_one_that_came_later_hold_up_no_run_of_former_code(notebook: Notebook) -> None:
    notebook.put("empty", "")
    notebook.write()
    words = notebook.imported()
    assert notebook.run(words)[0] == both("first", "first")
    time.sleep(0.05)  # times of files may lag behind the clock by a tick of the kernel
    edit(notebook.words)
    notebook.put("empty", "NOW = 1\n")
    notebook.put("unrelated", "NEW = 1\n")
    assert notebook.run(words)[0] == both("first", "first")


def test_a_file_that_was_removed_after_its_import_runs_as_it_was(notebook: Notebook) -> None:
    notebook.write()
    words = notebook.imported()
    notebook.words.unlink()
    seen, (told,) = notebook.run(words)
    assert seen == both("first", "first") and told.startswith(f"{notebook.words} was removed after")


def test_a_class_of_before_a_reload_is_told_so(notebook: Notebook) -> None:
    notebook.write()
    words = notebook.imported()
    importlib.reload(sys.modules[notebook.name])
    for _ in "reloaded", "forgotten":
        with pytest.raises(BadInput, match=f"is of a former import of the module {notebook.name}") as refused:
            words.run(workers=2)  # type: ignore[attr-defined]  # every topology has one
        assert f"from {notebook.name} import Words" in refused.value.message
        sys.modules.pop(notebook.name, None)


def test_two_runs_at_once_on_two_threads_are_each_of_what_was_imported(notebook: Notebook) -> None:
    helper = notebook.put("helper", 'VERSION = "first"\n')
    notebook.write(head=f"import {helper.stem}\n", more=f"{helper.stem}.VERSION")
    words, first = notebook.imported(), notebook.words
    other = notebook.put("other", first.read_text().replace("second", "other").replace('"first"', '"other"'))
    others: TopologyMeta = importlib.import_module(other.stem).Words
    for path in (helper, first, other):
        path.write_text(path.read_text().replace("first", "second").replace("other", "second"))
    failed = []

    def run_it(topology: TopologyMeta) -> None:
        try:
            topology.run(workers=2)  # type: ignore[attr-defined]  # every topology has one
        except BaseException as error:  # asserted on below
            failed.append(error)

    threads = [threading.Thread(target=run_it, args=[topology]) for topology in (words, others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert set(notebook.seen.read_text().splitlines()) == both("first", "first") | both("other", "first")


def test_a_package_with_relative_imports_runs_as_it_was_imported(notebook: Notebook) -> None:
    package = notebook.folder / f"shop_{notebook.name}"
    (package / "flows").mkdir(parents=True)
    for folder in (package, package / "flows"):
        (folder / "__init__.py").write_text("")
    (package / "prices.py").write_text('def seen():\n    return "first"\n')
    notebook.write(head="from .. import prices\n", more="prices.seen()")
    notebook.words.rename(package / "flows" / "words.py")
    name = f"{package.name}.flows.words"
    words: TopologyMeta = importlib.import_module(name).Words
    (package / "prices.py").write_text('def seen():\n    return "second"\n')
    seen, (told,) = notebook.run(words)
    assert seen == both("first", "first") and told.startswith(f"{package / 'prices.py'} was changed after")
    for path in sorted(package.rglob("*.py")):
        path.unlink()
    assert notebook.run(words)[0] == both("first", "first")


SCRIPT = """
if __name__ == "__main__":
    from pathlib import Path
    path = Path(__file__)
    path.write_text(path.read_text().replace("first", "second"))
    Words.run(workers=2)
"""


def test_a_script_that_is_edited_before_it_calls_run_is_run_as_it_was_started(notebook: Notebook) -> None:
    notebook.write()
    with notebook.words.open("a") as file:
        file.write(SCRIPT)
    environment: Mapping[str, str] = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, str(notebook.words)], env=environment, timeout=PATIENCE_S, check=True)
    assert set(notebook.seen.read_text().splitlines()) == both("first", "first")


def test_a_script_that_is_run_again_in_one_process_runs_as_it_is_now(notebook: Notebook) -> None:
    """As IPython's %run does it."""
    notebook.write()
    with notebook.words.open("a") as file:
        file.write('if __name__ == "__main__":\n    Words.run(workers=2)\n')
    for version in "first", "second":
        edit(notebook.words, version)
        notebook.seen.unlink(missing_ok=True)
        runpy.run_path(str(notebook.words), run_name="__main__")
        assert set(notebook.seen.read_text().splitlines()) == both(version, version)
