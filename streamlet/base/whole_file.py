"""A file that is there whole or not at all, whatever happens to the process or the machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file aside, and name it once it is stored.

    Raises OSError, and leaves nothing then. Beside it there is ``.NAME.partial`` meanwhile, which Spark does not read.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            write(file)
            file.flush()
            # Rule: before the name. A name that reaches the disk before its content stands for an empty file after a
            # power cut, and the tuples of that file were acked.
            os.fsync(file.fileno())
        partial.rename(path)
        _keep_names(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def _keep_names(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
