"""What a module was loaded from: noted once, and forgotten with the load."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from streamlet.base.loaded_sources import (
    file_of,
    is_theirs,
    load_of,
    note_defined,
    note_file,
    note_read,
    source_of_main,
)

TEXT = "LIMIT = 3\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"noted_{tmp_path.name}.py").write_text(TEXT)
    return importlib.import_module(f"noted_{tmp_path.name}")


def test_a_module_is_of_its_note_until_it_is_loaded_again(module: ModuleType) -> None:
    assert load_of(module) is None
    load = note_file(module)
    assert load is not None and load_of(module) is load and load.source == TEXT.encode()
    importlib.reload(module)
    assert load_of(module) is None
    loader = module.__loader__
    assert isinstance(loader, SourceFileLoader)
    note_read(loader, b"read")
    load = load_of(module)
    assert load is not None and load.source == b"read"
    importlib.reload(module)
    assert load_of(module) is None


def test_a_class_that_is_defined_notes_the_folder_that_its_module_is_imported_from(
    module: ModuleType, tmp_path: Path
) -> None:
    package = tmp_path / "noted_package"
    package.mkdir()
    (package / "inner.py").write_text("")
    inner = importlib.import_module("noted_package.inner")
    note_defined(inner.__name__)
    assert load_of(inner) is not None and load_of(module) is not None
    assert load_of(pytest) is None
    for nothing in (None, "no.such.module", "sys"):
        note_defined(nothing)


def test_what_cannot_be_read_or_has_no_file_is_not_noted(module: ModuleType) -> None:
    Path(str(module.__file__)).unlink()
    assert note_file(module) is None and note_file(sys) is None
    assert file_of(sys) is None and file_of(None) is None and file_of(module) == module.__file__


def test_libraries_and_the_interpreters_own_files_are_not_theirs() -> None:
    assert not is_theirs(str(time.__spec__ and importlib.__file__)) and not is_theirs("/x/site-packages/a.py")
    assert not is_theirs(sys.modules["streamlet"].__file__ or "") and is_theirs("/srv/flows/words.py")


def test_two_modules_of_one_file_have_a_note_each(module: ModuleType) -> None:
    spec = importlib.util.spec_from_file_location("another_name", str(module.__file__))
    assert spec is not None and spec.loader is not None
    other = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(other)
    first, second = note_file(module), note_file(other)
    assert load_of(module) is first and load_of(other) is second


def test_what_stands_among_the_modules_is_asked_nothing(module: ModuleType) -> None:
    """A lazy module would be loaded, and a proxy raises."""

    class Proxy:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(f"not ready: {name}")

    class Lazy(ModuleType):
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(f"loaded for {name}")

    lazy = Lazy("lazy")
    object.__getattribute__(lazy, "__dict__")["__file__"] = str(module.__file__)
    assert file_of(Proxy()) is None and file_of(lazy) == module.__file__ and load_of(lazy) is None
    other = ModuleType("other")  # of its own: who looks through sys.modules would meet the odd name
    for odd in (5, Path("a.py"), "a\0b.py"):
        other.__file__ = odd  # type: ignore[assignment]  # as anybody may
        assert file_of(other) is None


def test_the_program_of_these_tests_is_no_topology() -> None:
    assert source_of_main("/no/such/file.py") is None
