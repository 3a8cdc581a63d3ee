"""The topology's modules in zips, as executors import them."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle

from streamlet.base.errors import BadInput
from streamlet.spark.applying import shipping
from streamlet.spark.applying.operators import _Travelling
from streamlet.spark.applying.shipping import import_from, module_folders, zip_modules


def module(monkeypatch: pytest.MonkeyPatch, name: str, file: Path) -> None:
    made = ModuleType(name)
    made.__file__ = str(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x = 1\n")
    monkeypatch.setitem(sys.modules, name, made)


def test_a_module_travels_with_those_beside_it_and_a_package_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module(monkeypatch, "alone_here", tmp_path / "one" / "alone_here.py")
    module(monkeypatch, "beside", tmp_path / "one" / "beside.py")
    module(monkeypatch, "pack.inner.bolts", tmp_path / "two" / "pack" / "inner" / "bolts.py")
    module(monkeypatch, "pack", tmp_path / "two" / "pack" / "__init__.py")
    module(monkeypatch, "other", tmp_path / "two" / "other.py")
    found = module_folders(["alone_here", "pack.inner.bolts", "pack"])
    assert found == {tmp_path / "one": {""}, tmp_path / "two": {"pack"}}
    (tmp_path / "zips").mkdir()
    names = [zipfile.ZipFile(zip_modules(root, tops, tmp_path / "zips")).namelist() for root, tops in found.items()]
    files = [[name for name in some if not name.endswith("/")] for some in names]
    assert files == [["alone_here.py", "beside.py"], ["pack/__init__.py", "pack/inner/bolts.py"]]


def test_the_src_beside_a_topologys_folder_travels_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module(monkeypatch, "count_words", tmp_path / "topologies" / "count_words.py")
    module(monkeypatch, "bolts.count", tmp_path / "src" / "bolts" / "count.py")
    assert module_folders(["count_words"]) == {tmp_path / "topologies": {""}, tmp_path / "src": {""}}


def test_nothing_travels_of_streamlet_of_python_and_of_what_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module(monkeypatch, "bought", tmp_path / "site-packages" / "bought.py")
    module(monkeypatch, "gone", tmp_path / "gone.py")
    (tmp_path / "gone.py").unlink()
    assert module_folders(["streamlet.components.bolt", "collections", "abc", "builtins", "bought", "gone", "no"]) == {}


def test_equal_files_are_one_zip_and_changed_ones_another(tmp_path: Path) -> None:
    (tmp_path / "zips").mkdir()
    code = tmp_path / "code"
    code.mkdir()
    (code / "bolts.py").write_text("x = 1\n")
    first = zip_modules(code, {""}, tmp_path / "zips")
    assert zip_modules(code, {""}, tmp_path / "zips") == first
    (code / "bolts.py").write_text("x = 2\n")
    assert zip_modules(code, {""}, tmp_path / "zips") != first


def test_a_huge_folder_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "MAX_FILES", 1)
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text("")
    with pytest.raises(BadInput, match=r"holds more than 1 Python files.*a folder of their own"):
        zip_modules(tmp_path, {""}, tmp_path)


def test_a_package_without_init_is_imported_from_its_zip(tmp_path: Path) -> None:
    """By a Python of its own, which sees nothing else of it."""
    (tmp_path / "zips").mkdir()
    (tmp_path / "code" / "spaces" / "inner").mkdir(parents=True)
    (tmp_path / "code" / "spaces" / "inner" / "bolts.py").write_text("x = 7\n")
    zipped = zip_modules(tmp_path / "code", {"spaces"}, tmp_path / "zips")
    program = f"import sys; sys.path.insert(0, {str(zipped)!r}); import spaces.inner.bolts as b; print(b.x)"
    assert subprocess.check_output([sys.executable, "-I", "-c", program]) == b"7\n"


def test_a_project_below_the_prefix_of_python_travels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    module(monkeypatch, "of_a_project", tmp_path / "src" / "project" / "of_a_project.py")
    assert module_folders(["of_a_project", "collections"]) == {tmp_path / "src" / "project": {""}}


def test_two_writers_of_one_zip_have_files_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "zips").mkdir()
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "bolts.py").write_text("x = 1\n")
    write = zipfile.ZipFile.writestr
    inner: list[Path] = []

    def meanwhile(archive: zipfile.ZipFile, *given: Any) -> None:
        if not inner:
            inner.append(tmp_path)
            inner.append(zip_modules(tmp_path / "code", {""}, tmp_path / "zips"))
        write(archive, *given)

    monkeypatch.setattr(zipfile.ZipFile, "writestr", meanwhile)
    made = zip_modules(tmp_path / "code", {""}, tmp_path / "zips")
    assert inner[1] == made and zipfile.ZipFile(made).namelist() == ["bolts.py"]
    assert [*(tmp_path / "zips").iterdir()] == [made]


def test_a_zip_may_be_read_by_an_executor_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "bolts.py").write_text("x = 1\n")
    before = os.umask(0o022)
    try:
        assert zip_modules(tmp_path / "code", {""}, tmp_path).stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)


def versions(tmp_path: Path, name: str, *texts: str) -> list[Path]:
    """A zip for each text of a module, and of one beside it that stays as it is."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{name}_beside.py").write_text(f"import {name}\n")
    made = []
    for text in texts:
        (tmp_path / "code" / f"{name}.py").write_text(text)
        made.append(zip_modules(tmp_path / "code", {""}, tmp_path))
    return made


def test_a_task_imports_what_its_dataframe_was_made_with_whatever_an_earlier_one_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Back to the first version, too; the path of a Python worker keeps every zip in the order of the first time."""
    old, new = versions(tmp_path, "edited_twice", "x = 1\n", "x = 2 + 0\n")
    monkeypatch.setattr(sys, "path", ["", str(new), str(old), *sys.path])
    for zipped, x in ((old, 1), (new, 2), (old, 1)):
        import_from([zipped.name])
        found = importlib.import_module("edited_twice_beside")
        assert (found.edited_twice.x, sys.path[0]) == (x, "")
        import_from([zipped.name])
        assert sys.modules["edited_twice_beside"] is found
    for name in ("edited_twice", "edited_twice_beside"):
        del sys.modules[name]


def test_a_package_without_init_is_forgotten_with_its_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code" / "bare_package").mkdir(parents=True)
    (tmp_path / "code" / "bare_package" / "bolts.py").write_text("x = 7\n")
    zipped = zip_modules(tmp_path / "code", {"bare_package"}, tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(zipped), *sys.path])
    assert importlib.import_module("bare_package.bolts").x == 7
    import_from(["topology-00000000.zip"])
    assert not {"bare_package", "bare_package.bolts"} & sys.modules.keys()


def test_a_job_is_unpacked_where_its_zips_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its classes are looked up by name: those of the version that the job names."""
    old, new = versions(tmp_path, "edited_bolts", "class Bolt: x = 1\n", "class Bolt: x = 2 + 0\n")
    monkeypatch.setattr(sys, "path", ["", str(old), str(new), *sys.path])
    job = SimpleNamespace(zips=(new.name,), bolt=importlib.import_module("edited_bolts").Bolt)
    assert job.bolt.x == 1
    data = cloudpickle.dumps(_Travelling(job))  # type: ignore[arg-type]  # only its zips are looked at
    assert pickle.loads(data).arrived().bolt.x == 2
    del sys.modules["edited_bolts"]
