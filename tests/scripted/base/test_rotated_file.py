"""A file that is put aside when it is full."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest

from streamlet.base.rotated_file import RotatedFile


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_a_full_file_is_put_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "run.log", 10, 2)
    for number in range(7):
        file.append(f"line{number}\n".encode())
    file.append(b"longer than ten bytes\n")
    file.append(b"last\n")
    assert texts(tmp_path) == {"run.log": "last\n", "run.log.1": "longer than ten bytes\n", "run.log.2": "line6\n"}


def test_lines_are_appended_to_what_is_there_and_its_size_counts(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("of the run before\n")
    RotatedFile(tmp_path / "run.log", 100, 1).append(b"new\n")
    assert texts(tmp_path) == {"run.log": "of the run before\nnew\n"}
    RotatedFile(tmp_path / "run.log", 10, 1).append(b"newer\n")
    assert texts(tmp_path) == {"run.log": "newer\n", "run.log.1": "of the run before\nnew\n"}


def test_without_backups_a_full_file_begins_anew_and_without_a_size_it_grows(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "run.log", 8, 0)
    for number in range(3):
        file.append(f"line{number}\n".encode())
    assert texts(tmp_path) == {"run.log": "line2\n"}
    file = RotatedFile(tmp_path / "run.log", 0, 5)
    for number in range(3):
        file.append(f"more{number}\n".encode())
    assert texts(tmp_path) == {"run.log": "line2\nmore0\nmore1\nmore2\n"}


def test_a_file_that_logrotate_has_moved_is_opened_anew(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "run.log", 0, 5)
    file.append(b"one\n")
    (tmp_path / "run.log").rename(tmp_path / "run.log.old")
    file.append(b"two\n")
    assert texts(tmp_path) == {"run.log": "two\n", "run.log.old": "one\n"}


def test_two_runs_with_one_file_lose_and_mix_no_line(tmp_path: Path) -> None:
    """Both find it full at about the same time: one of them puts it aside."""

    def write(name: str) -> None:
        file = RotatedFile(tmp_path / "run.log", 2000, 100)
        for number in range(500):
            file.append(f"{name}{number:>9}\n".encode())

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = "".join(texts(tmp_path).values()).splitlines()
    assert sorted(lines) == [f"{name}{number:>9}" for name in "ab" for number in range(500)]
    sizes = [path.stat().st_size for path in tmp_path.iterdir() if path.name != "run.log"]
    assert sizes and min(sizes) > 1900, "none is put aside that the other has just begun"


def test_a_file_that_another_run_is_putting_aside_is_left_to_it(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "run.log", 8, 3)
    file.append(b"line0\n")
    with (tmp_path / "run.log").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        file.append(b"line1\n")
    assert texts(tmp_path) == {"run.log": "line0\nline1\n"}
    file.append(b"line2\n")
    assert texts(tmp_path) == {"run.log": "line2\n", "run.log.1": "line0\nline1\n"}


def test_a_file_that_cannot_be_put_aside_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    file = RotatedFile(tmp_path / "run.log", 8, 3)
    file.append(b"line0\n")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refuse)
        file.append(b"line1\n")
        assert file.too_long is not None and file.too_long.strerror == "Permission denied"
    assert texts(tmp_path) == {"run.log": "line0\nline1\n"}
    file.append(b"line2\n")
    assert file.too_long is None and (tmp_path / "run.log.1").read_text() == "line0\nline1\n"


def test_a_line_that_found_room_for_a_part_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RotatedFile(tmp_path / "run.log", 0, 0)
    file.append(b"whole\n")
    write = os.write

    def half(descriptor: int, data: memoryview) -> int:
        if bytes(data) != b"a line":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:3])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space"):
            file.append(b"a line")
    file.append(b"next\n")
    assert texts(tmp_path) == {"run.log": "whole\nnext\n"}


def test_a_torn_line_that_cannot_be_taken_back_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run has appended behind it."""
    path = tmp_path / "run.log"
    file = RotatedFile(path, 0, 0)
    write = os.write

    def torn(descriptor: int, data: memoryview) -> int:
        if bytes(data) != b"a line\n":
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, data[:3])
        with path.open("a") as other:
            other.write("|other")
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", torn)
        with pytest.raises(OSError, match="No space"):
            file.append(b"a line\n")
    file.append(b"next\n")
    file.append(b"last\n")
    assert path.read_text() == "a l|other\nnext\nlast\n"


def test_a_device_is_never_put_aside() -> None:
    file = RotatedFile(Path("/dev/null"), 1, 3)
    for _ in range(3):
        file.append(b"line\n")
    assert file.too_long is None and not Path("/dev/null.1").exists()
