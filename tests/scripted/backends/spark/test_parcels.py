"""Files for executors, without Spark: what unpacks them there."""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.backends.spark import parcels
from streamlet.backends.spark.jobs import SparkJobs
from streamlet.base.errors import BadInput


def test_an_archive_in_pieces_is_unpacked_once_however_many_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data.txt").write_text("line\n" * 100)
    with tarfile.open(tmp_path / "archive.tar", "w") as made:
        made.add(tmp_path / "data.txt", "words/data.txt")
    root = tmp_path / "executor"
    root.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{root},/nowhere")
    content = (tmp_path / "archive.tar").read_bytes()
    pieces = [SimpleNamespace(value=part, _value=part, _path="a file") for part in (content[:99], content[99:])]
    folder = parcels.make_unpack(pieces, "words-1")()
    assert (Path(folder) / "words" / "data.txt").read_text() == "line\n" * 100
    assert not any(hasattr(piece, "_value") for piece in pieces), "pyspark would keep them in memory"
    assert parcels.make_unpack([SimpleNamespace(value=b"never read")], "words-1")() == folder
    assert [path.name for path in root.iterdir() if path.suffix != ".lock"] == ["words-1"]


class Encrypted:
    """A piece as pyspark has it on an executor under ``spark.io.encryption.enabled``: a value, and no file."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    @property
    def value(self) -> bytes:
        return self._value


def test_an_archive_is_unpacked_where_spark_encrypts_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data.txt").write_text("line\n")
    with tarfile.open(tmp_path / "archive.tar", "w") as made:
        made.add(tmp_path / "data.txt", "data.txt")
    root = tmp_path / "executor"
    root.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(root))
    pieces = [Encrypted((tmp_path / "archive.tar").read_bytes())]
    assert (Path(parcels.make_unpack(pieces, "words-1")()) / "data.txt").read_text() == "line\n"
    assert parcels.make_unpack(pieces, "words-1")() == str(root / "words-1")


def test_a_death_while_it_unpacks_leaves_nothing_that_looks_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    piece = SimpleNamespace(value=b"half", _value=b"half", _path="a file")
    with pytest.raises(RuntimeError, match=f"no unpacking in {tmp_path} on .*: file could not be opened"):
        parcels.make_unpack([piece], "words-1")()
    assert [path.name for path in tmp_path.iterdir()] == ["words-1.lock"], "no room is taken by what failed"
    assert not hasattr(piece, "_value")


class Context:
    """Spark's, as far as it broadcasts; what it cannot write it refuses."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.destroyed = 0

    def broadcast(self, value: bytes) -> Any:
        self.room -= len(value)
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return SimpleNamespace(value=value, _value=value, destroy=self.destroy)

    def destroy(self) -> None:
        self.destroyed += 1


def unpacked(files: Mapping[str, Path], executor: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Send files to an executor; return where each of them is there."""
    executor.mkdir(exist_ok=True)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(executor))
    session: Any = SimpleNamespace(context=Context(), lost=lambda: None)
    with parcels.sent(session, None, {name: str(path) for name, path in files.items()}) as ready:
        assert ready.shared is not None
        folder = Path(ready.shared())
        return {name: folder / place for name, place in ready.places.items()}


def test_code_that_does_not_fit_on_the_driver_is_told_in_a_paragraph() -> None:
    session: Any = SimpleNamespace(context=Context(room=3))
    with pytest.raises(BadInput, match=r"does not fit on the driver \(No space left on device\)"):
        SparkJobs(session, b"code", run_id=b"run", secret=b"secret", topology="T", file="/t.py", folder=None)


def test_of_a_link_comes_what_it_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An absolute one, a relative one, one in a folder, and a folder that is one."""
    here = tmp_path / "here"
    (here / "models" / "3").mkdir(parents=True)
    (here / "models" / "3" / "model.bin").write_text("three")
    (here / "absolute").symlink_to(here / "models" / "3" / "model.bin")
    (here / "relative").symlink_to("models/3/model.bin")
    (here / "current").symlink_to("models/3")
    (here / "cache").mkdir()
    (here / "cache" / "model.bin").symlink_to(here / "models" / "3" / "model.bin")
    names = ("absolute", "relative", "current", "cache")
    found = unpacked({name: here / name for name in names}, tmp_path / "executor", monkeypatch)
    shutil.rmtree(here)
    assert found["absolute"].read_text() == found["relative"].read_text() == "three"
    assert (found["current"] / "model.bin").read_text() == (found["cache"] / "model.bin").read_text() == "three"


def test_equal_content_is_the_same_parcel_and_other_content_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote it, and when: a session is not filled with copies of one model."""
    model, executor = tmp_path / "model.bin", tmp_path / "executor"
    places = []
    for text, when in (("one", 1.0), ("one", 1e9), ("two", 1.0)):
        model.write_text(text)
        os.utime(model, (when, when))
        places.append(unpacked({"model": model}, executor, monkeypatch)["model"])
    assert places[0] == places[1] != places[2]
    assert [place.read_text() for place in places[1:]] == ["one", "two"]


def test_what_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match=r"pipe/pipe is neither a file nor a folder, .* leave it out"):
        unpacked({"pipe": tmp_path / "pipe"}, tmp_path / "executor", monkeypatch)


def test_a_driver_without_room_says_where_it_is_needed(tmp_path: Path) -> None:
    """And not that the file cannot be read."""
    (tmp_path / "model.bin").write_bytes(bytes(100_000))
    context = Context(room=1000)
    session: Any = SimpleNamespace(context=context, lost=lambda: None)
    with (
        pytest.raises(BadInput, match=r"does not fit on the driver \(No space left on device\).*spark\.local\.dir"),
        parcels.sent(session, None, {"model": str(tmp_path / "model.bin")}),
    ):
        pass
