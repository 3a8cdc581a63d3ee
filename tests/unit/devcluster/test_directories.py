"""Temporary directories go with their owners."""

from __future__ import annotations

from streamlet.devcluster.machine import OwnedDirectory


def test_a_directory_is_removed_by_its_owner() -> None:
    """Private while it lives; removing twice is nothing."""
    directory = OwnedDirectory()
    assert directory.path.stat().st_mode & 0o777 == 0o700
    (directory.path / "data").write_text("x")
    directory.remove()
    directory.remove()
    assert not directory.path.exists()
