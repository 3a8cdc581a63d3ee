"""``streamlet offsets export``: the file that it writes, and what becomes of the one that is there."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from streamlet.cli.offsets import _write_out


def test_an_export_that_cannot_be_written_leaves_the_one_that_is_there(tmp_path: Path) -> None:
    """A full disk, say, here a limit of the system's: the old copy is what one goes back to."""
    file = tmp_path / "before.json"
    _write_out(file, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            _write_out(file, b"n" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]


def test_an_export_keeps_the_link_and_the_mode_of_the_file_that_it_replaces(tmp_path: Path) -> None:
    file, link = tmp_path / "before.json", tmp_path / "link.json"
    file.write_bytes(b"old")
    file.chmod(0o600)
    link.symlink_to(file)
    _write_out(link, b"new")
    assert link.is_symlink() and file.read_bytes() == b"new" and file.stat().st_mode & 0o777 == 0o600


def test_an_export_into_a_device_or_a_pipe_is_written_in_place(tmp_path: Path) -> None:
    read, write = os.pipe()
    _write_out(Path(f"/proc/self/fd/{write}"), b"to a pipe")
    assert os.read(read, 100) == b"to a pipe"
    os.close(read)
    os.close(write)
    with pytest.raises(OSError, match="No space left"):
        _write_out(Path("/dev/full"), b"x")
