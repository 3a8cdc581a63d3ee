"""Files that were left open are written out, whoever holds them."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from streamlet.base.open_files import flush_open_files


def test_texts_bytes_and_compressed_files_are_written_out(tmp_path: Path) -> None:
    """A compressed one to its last part, with the text above it."""
    held = [
        (tmp_path / "text").open("w"),
        (tmp_path / "bytes").open("wb"),
        gzip.open(tmp_path / "compressed", "wt"),  # noqa: SIM115 - it is left open
        (tmp_path / "text").open(),
    ]
    held[0].write("a")
    held[1].write(b"b")
    held[2].write("c")
    assert flush_open_files() == []
    assert (tmp_path / "text").read_text() == "a" and (tmp_path / "bytes").read_bytes() == b"b"
    with gzip.open(tmp_path / "compressed", "rt") as packed:
        assert packed.read() == "c"
    for file in held:
        file.close()


def test_what_could_not_be_written_is_named() -> None:
    with pytest.raises(OSError, match="No space left"), open("/dev/full", "w") as full:
        full.write("a")
        (told,) = flush_open_files()
        assert "'/dev/full'" in told and "No space left" in told


def test_a_text_without_its_buffer_and_a_file_that_is_only_read_are_no_loss(tmp_path: Path) -> None:
    """As where a library puts a text of another encoding over a stream's buffer."""
    text = (tmp_path / "text").open("w")
    text.write("a")
    with io.TextIOWrapper(text.detach(), "latin-1") as other, (tmp_path / "text").open() as read:
        other.write("\xe4")
        assert flush_open_files() == [] and text is not None and read.readable()
    assert (tmp_path / "text").read_bytes() == b"a\xe4"
