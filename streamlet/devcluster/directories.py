"""Temporary directories of clusters: marked as ours, and swept when the process that made one is gone."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

_PREFIX = "streamlet-dev-"
_MARK = "owner.lock"


class OwnedDirectory:
    """A fresh 0700 directory below the system's temporary one; ``remove`` may be repeated.

    Its mark is a file locked by the owner, so whether the owner lives is not a question of pids.
    """

    __slots__ = ("_mark", "path")

    def __init__(self) -> None:
        sweep()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Locked before it gets its name: nobody ever sees the mark unlocked while we live.
        unnamed = self.path / f"{_MARK}.new"
        self._mark: IO[str] | None = unnamed.open("w")
        fcntl.flock(self._mark, fcntl.LOCK_EX)
        unnamed.rename(self.path / _MARK)

    def remove(self) -> None:
        """Delete it with all it holds."""
        if self._mark is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            self._mark.close()
            self._mark = None


def sweep() -> list[Path]:
    """Remove directories of dead owners (``kill -9``); return their paths."""
    removed = []
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if directory.stat().st_uid != os.getuid():
                continue
            with (directory / _MARK).open("r") as mark:
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
                removed.append(directory)
        except OSError:
            continue  # not marked yet, its owner lives, or someone else sweeps it right now
    return removed
