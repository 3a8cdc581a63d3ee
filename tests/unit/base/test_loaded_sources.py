"""What a module was loaded from: noted once, and forgotten with the load."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from streamlet.base.loaded_sources import (
    file_of,
    fits,
    is_theirs,
    load_of,
    note_defined,
    note_file,
    note_read,
    process_began_s,
    source_of_main,
)

TEXT = """
LIMIT = 3
def plain(n): return [n for n in range(n) if n in {1, 2, 3}]
class Kind:
    def method(self): return lambda: 1
    @staticmethod
    def static(): return 2
    @property
    def shown(self): return 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"noted_{tmp_path.name}.py").write_text(TEXT)
    return importlib.import_module(f"noted_{tmp_path.name}")


def test_a_module_is_of_its_note_until_it_is_loaded_again(module: ModuleType) -> None:
    assert load_of(module) is None
    load = note_file(module)
    assert load is not None and load_of(module) is load and load.source == TEXT.encode() and not load.is_exact
    importlib.reload(module)
    assert load_of(module) is None
    note_read(str(module.__file__), module.__spec__.loader if module.__spec__ else None, b"read")
    load = load_of(module)
    assert load is not None and load.source == b"read" and load.is_exact
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


@pytest.mark.parametrize(
    ("before", "after"),
    [("n in range", "n  in range"), ("LIMIT = 3", "LIMIT = 4")],
    ids=["spaces", "a_constant_that_no_function_has"],
)
def test_an_edit_that_no_function_shows_is_not_seen(module: ModuleType, before: str, after: str) -> None:
    assert fits(module, TEXT.encode()) and fits(module, TEXT.replace(before, after).encode())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{1, 2, 3}", "{1, 2, 4}"),
        ("lambda: 1", "lambda: 9"),
        ("return 2", "return 9"),
        ("return 3", "return 9"),
        ("LIMIT", "# a line more\nLIMIT"),
        ("def plain", "def"),
    ],
)
def test_an_edit_of_a_function_or_of_its_place_is_seen(module: ModuleType, before: str, after: str) -> None:
    assert not fits(module, TEXT.replace(before, after).encode())


def test_what_a_decorator_may_have_compiled_again_is_not_compared(module: ModuleType) -> None:
    text = TEXT.replace("def plain", "@checked\ndef plain").replace("class Kind", "@checked()\nclass Kind")
    assert fits(module, text.encode()) and fits(module, text.replace("return 2", "return 9").encode())


def test_code_that_another_loader_has_changed_on_its_way_is_not_compared() -> None:
    """As pytest does with this very file."""
    assert fits(sys.modules[__name__], b"")


def test_this_process_began_before_now_and_its_program_is_no_topology() -> None:
    assert 0 <= time.time() - process_began_s() < 30 * 86400
    assert source_of_main("/no/such/file.py") is None
