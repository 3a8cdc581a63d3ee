"""A file that is there whole or not at all, whatever happens to the process or the machine."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file aside, and name it once it is stored; it replaces one of that name.

    Raises OSError, and leaves nothing then. Beside it there is ``.NAME.partial`` meanwhile, which Spark does not read.
    """
    with _stored_aside(path, write) as partial:
        partial.rename(path)
        _keep_names(path.parent)


def write_new(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file as ``write_whole``, but never replace one.

    Raises FileExistsError where there is one of that name.
    """
    with _stored_aside(path, write) as partial:
        _name_new(partial, path)
        try:
            _keep_names(path.parent)
        except BaseException:
            # Another try does not replace it, and would write its rows a second time.
            path.unlink()
            raise


@contextlib.contextmanager
def _stored_aside(path: Path, write: Callable[[BinaryIO], object]) -> Iterator[Path]:
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            write(file)
            file.flush()
            # Rule: before the name. A name that reaches the disk before its content stands for an empty file after a
            # power cut, and the tuples of that file were acked.
            os.fsync(file.fileno())
        yield partial
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def _name_new(partial: Path, path: Path) -> None:
    """Give a file its name. Raises FileExistsError."""
    # Rule: by a link, which takes the place of nothing. A rename replaces in silence, and what the other file held was
    # acked.
    try:
        os.link(partial, path)
    except OSError:
        if not path.exists():
            partial.rename(path)  # a file system without hard links
        elif not path.samefile(partial):  # over NFS a request that is sent again finds the name that it has made
            raise FileExistsError(errno.EEXIST, f"{path.name} is there already, and is not replaced") from None


def _keep_names(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
