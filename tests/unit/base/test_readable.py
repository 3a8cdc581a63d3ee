"""Paths that may not be looked at; closed files and folders, on a real disk: ``tests/faults/test_closed_places.py``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamlet.base.readable import is_there, why_unreadable


def test_what_can_be_read_and_what_is_not_there_is_forbidden_by_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name, there in (("file", True), (".", True), ("none", False), ("file/below", False)):
        assert (why_unreadable(tmp_path / name), is_there(tmp_path / name)) == ("", there)


def test_a_path_of_which_the_system_tells_nothing_is_not_there_and_has_its_reason(tmp_path: Path) -> None:
    """Here for its length: as root, as tests often run, no folder is closed."""
    path = tmp_path / ("x" * 300)
    assert not is_there(path) and why_unreadable(path) == "File name too long"


def test_a_file_without_the_right_to_read_it_has_that_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as other:
        other.setattr(os, "access", lambda path, mode: False)
        assert why_unreadable(tmp_path) == "Permission denied"
