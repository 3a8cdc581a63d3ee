"""Files for executors, without Spark: what unpacks them there."""

from __future__ import annotations

import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamlet.backends.spark import parcels


def test_an_archive_in_pieces_is_unpacked_once_however_many_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data.txt").write_text("line\n" * 100)
    with tarfile.open(tmp_path / "archive.tar", "w") as made:
        made.add(tmp_path / "data.txt", "words/data.txt")
    root = tmp_path / "executor"
    root.mkdir()
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(root))
    content = (tmp_path / "archive.tar").read_bytes()
    pieces = [SimpleNamespace(value=part, _value=part) for part in (content[:99], content[99:])]
    folder = parcels.make_unpack(pieces, "words-1")()
    assert (Path(folder) / "words" / "data.txt").read_text() == "line\n" * 100
    assert not any(hasattr(piece, "_value") for piece in pieces), "pyspark would keep them in memory"
    assert parcels.make_unpack([SimpleNamespace(value=b"never read")], "words-1")() == folder
    assert [path.name for path in root.iterdir() if path.suffix != ".lock"] == ["words-1"]


def test_a_death_while_it_unpacks_leaves_nothing_that_looks_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    with pytest.raises(tarfile.TarError):
        parcels.make_unpack([SimpleNamespace(value=b"half")], "words-1")()
    assert not (tmp_path / "words-1").exists()
