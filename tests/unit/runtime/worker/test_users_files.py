"""Whose a file is: below the topology's folders the user's, unless it is installed there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamlet.runtime.worker.users_files import OWN, is_installed, is_library, is_users, may_be_users


def test_files_below_the_roots_are_the_users_and_installed_ones_are_not(tmp_path: Path) -> None:
    installed = tmp_path / "env" / "site-packages"
    assert is_users(tmp_path / "deep" / "own.py", [tmp_path])
    assert not is_users(tmp_path.parent / "other.py", [tmp_path])
    assert not is_users(installed / "theirs.py", [tmp_path]) and is_installed(installed / "theirs.py")
    assert not is_users(OWN / "running.py", [OWN.parent]) and is_installed(OWN / "running.py")


def test_what_a_link_leads_to_is_the_users_unless_it_is_installed(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    for folder, users in ((tmp_path / "elsewhere", True), (tmp_path / "site-packages", False)):
        folder.mkdir()
        (folder / "there.py").write_text("")
        (app / folder.name.partition("-")[0]).symlink_to(folder)
        assert is_users(app / folder.name.partition("-")[0] / "there.py", [app]) is users


@pytest.mark.parametrize(("place", "library"), [(".", False), ("missing", True), ("dist-packages", True)])
def test_a_folder_of_installed_packages_or_none_is_a_library(tmp_path: Path, place: str, library: bool) -> None:
    (tmp_path / "dist-packages").mkdir()
    assert is_library(tmp_path / place) is library


def test_a_source_file_in_the_interpreters_folders_is_the_users_only_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("")
    assert may_be_users(str(tmp_path / "own.py")) and not may_be_users(str(tmp_path / "own.so"))
    assert not may_be_users(json.__file__) and not may_be_users(str(OWN / "running.py"))
