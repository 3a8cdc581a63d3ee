"""A file that is appended to line by line, and put aside when it is full: ``run.log`` becomes ``run.log.1``."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path


class RotatedFile:
    """An open log file. One thread; other processes may append to the same file, and put it aside.

    ``max_bytes`` 0: it is never put aside here. A pipe or a device never is either.
    """

    def __init__(self, path: Path, max_bytes: int, backups: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._backups = backups
        self._descriptor = -1
        self._regular = False
        self._torn = False
        """A part of a line stands there, and could not be taken back."""
        self.too_long: OSError | None = None
        """Why the file grows beyond its size: it cannot be put aside."""

    def append(self, lines: bytes) -> None:
        """Append whole lines. Raises OSError, which may leave a part of them."""
        # One write in append mode: lines of two runs with the same file do not mix.
        self._follow()
        size = os.fstat(self._descriptor).st_size if self._regular else 0
        if 0 < self._max_bytes < size + len(lines) and size:
            self._put_aside()
        self._write(b"\n" + lines if self._torn else lines)

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._descriptor = -1

    def _follow(self) -> None:
        """Open the file that has the name now.

        Logrotate, or another run, may have put ours aside.
        """
        if self._descriptor >= 0:
            if not self._regular or self._is_named():
                return
            self.close()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY
        self._descriptor = os.open(self.path, flags, 0o666)
        self._regular = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        self._torn = False

    def _is_named(self) -> bool:
        """Tell whether the open file still has its name."""
        try:
            named, ours = self.path.stat(), os.fstat(self._descriptor)
        except FileNotFoundError:
            return False
        return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)

    def _put_aside(self) -> None:
        # Under a lock on the very file: of two runs that find it full only the first one moves it. The other finds
        # another file under the name, and goes on there.
        locked = self._locked()
        if locked is False:
            return
        try:
            if self._is_named():
                self._move()
            self.too_long = None
        except OSError as error:
            # The folder may not be written to: a file that grows is better than lines that are lost.
            self.too_long = error
            return
        finally:
            if locked:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._follow()

    def _locked(self) -> bool | None:
        """Lock the file; return None where the file system has no locks.

        False: another run has it.
        """
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return None
        return True

    def _move(self) -> None:
        if not self._backups:
            self.path.unlink()
            return
        for number in range(self._backups - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                self._aside(number).replace(self._aside(number + 1))
        self.path.replace(self._aside(1))

    def _aside(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _write(self, data: bytes) -> None:
        left, written = memoryview(data), 0
        try:
            while left:
                written = os.write(self._descriptor, left)
                left = left[written:]
        except OSError:
            if len(left) < len(data):
                self._torn = not self._taken_back(len(data) - len(left))
            raise
        self._torn = False

    def _taken_back(self, written: int) -> bool:
        """Cut off the part of a line that did not fit; tell whether it is gone."""
        if not self._regular:
            return False
        with contextlib.suppress(OSError):
            end = os.lseek(self._descriptor, 0, os.SEEK_CUR)  # where our own last write ended
            if os.fstat(self._descriptor).st_size == end:  # nobody has appended since
                os.ftruncate(self._descriptor, end - written)
                return True
        return False
