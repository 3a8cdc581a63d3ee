"""Which files count as Python files of a package."""

from __future__ import annotations

from pathlib import Path

from streamlet.base.python_files import package_files, python_files


def test_caches_hidden_files_and_virtual_environments_are_left_out(tmp_path: Path) -> None:
    for name in ("a.py", "b/c.py", "b/__pycache__/d.py", ".hidden.py", "env/pyvenv.cfg", "env/e.py", "b/notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert [str(path.relative_to(tmp_path)) for path in python_files(tmp_path)] == ["a.py", "b/c.py"]


def test_a_packages_files_have_the_names_they_are_imported_by() -> None:
    names = {name for _path, name in package_files("streamlet")}
    assert {"streamlet/__init__.py", "streamlet/base/python_files.py"} <= names
    assert all(name.startswith("streamlet/") and name.endswith(".py") for name in names)
