from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from streamlet.base.whole_file import write_new, write_whole


@pytest.mark.parametrize("write_file", [write_whole, write_new])
def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path, write_file: Callable[..., None]) -> None:
    seen: list[str] = []

    def write(file: BinaryIO) -> None:
        file.write(b"half")
        seen.extend(path.name for path in tmp_path.iterdir())

    write_file(tmp_path / "part-0", write)
    assert seen == [".part-0.partial"], "Spark does not read a name that begins with a dot"
    assert [path.name for path in tmp_path.iterdir()] == ["part-0"]


@pytest.mark.parametrize("write_file", [write_whole, write_new])
def test_of_a_write_that_fails_nothing_is_left(tmp_path: Path, write_file: Callable[..., None]) -> None:
    def write(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "part-0", write)
    assert not [*tmp_path.iterdir()]


def no_links(*_: object) -> None:
    raise OSError(errno.EOPNOTSUPP, "Operation not supported")


@pytest.mark.parametrize("links", [True, False])
def test_a_new_file_takes_the_place_of_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    """Of another run, and also where a disk knows no hard links."""
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    write_new(tmp_path / "part-0", lambda file: file.write(b"monday"))
    with pytest.raises(FileExistsError, match="part-0 is there already"):
        write_new(tmp_path / "part-0", lambda file: file.write(b"tuesday"))
    assert [path.name for path in tmp_path.iterdir()] == ["part-0"]
    assert (tmp_path / "part-0").read_bytes() == b"monday"
    write_whole(tmp_path / "part-0", lambda file: file.write(b"a marker of tuesday"))
    assert (tmp_path / "part-0").read_bytes() == b"a marker of tuesday"


def test_a_name_that_was_given_although_the_answer_was_lost_is_no_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS may: the request is sent again, and finds the name that the first one made."""
    link = os.link

    def twice(*given: Path) -> None:
        link(*given)
        link(*given)

    monkeypatch.setattr(os, "link", twice)
    write_new(tmp_path / "part-0", lambda file: file.write(b"monday"))
    assert [path.name for path in tmp_path.iterdir()] == ["part-0"]


def test_a_new_file_whose_name_is_not_stored_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stand there beside the one of the next try."""
    sync = os.fsync

    def of_files(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        sync(handle)

    monkeypatch.setattr(os, "fsync", of_files)
    with pytest.raises(OSError, match="Input/output error"):
        write_new(tmp_path / "part-0", lambda file: file.write(b"monday"))
    assert not [*tmp_path.iterdir()]
