from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import pytest

from streamlet.base.whole_file import write_whole


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    seen: list[str] = []

    def write(file: BinaryIO) -> None:
        file.write(b"half")
        seen.extend(path.name for path in tmp_path.iterdir())

    write_whole(tmp_path / "part-0", write)
    assert seen == [".part-0.partial"], "Spark does not read a name that begins with a dot"
    assert [path.name for path in tmp_path.iterdir()] == ["part-0"]


def test_of_a_write_that_fails_nothing_is_left(tmp_path: Path) -> None:
    def write(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "part-0", write)
    assert not [*tmp_path.iterdir()]
