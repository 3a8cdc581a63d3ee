"""Versions of packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlet.base.installed import installed_version, release

NAME = "never_installed"


@pytest.fixture
def lies_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package that no installer has written down, as in the zip of a Spark."""
    (tmp_path / f"{NAME}.py").write_text("__version__ = '4.1.1'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield NAME
    sys.modules.pop(NAME, None)


def test_a_package_that_lies_on_the_path_without_an_installer_has_a_version(lies_there: str) -> None:
    """spark-submit brings its own pyspark so: a run in it would be told that there is none."""
    assert installed_version(lies_there) == "4.1.1"


def test_a_package_that_is_imported_counts_and_not_what_was_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pyspark of spark-submit stands before that of pip."""
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1.0")
    monkeypatch.setattr("msgpack.__version__", "2.0", raising=False)
    assert installed_version("msgpack") == "2.0"


def test_the_import_of_a_package_is_spared_where_an_installer_has_written_it_down() -> None:
    sys.modules.pop("pip", None)
    assert installed_version("pip") is not None
    assert "pip" not in sys.modules


def test_a_missing_package_has_no_version() -> None:
    assert installed_version("nowhere_to_be_found") is None


def test_the_release_of_a_version_is_its_first_two_numbers() -> None:
    assert [release(version) for version in ("18.1.2", "4.3.0.dev1", "18")] == [(18, 1), (4, 3), (18,)]
