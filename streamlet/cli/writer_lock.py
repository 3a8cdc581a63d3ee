"""The right to replace a file, held by one run at a time: a lock on ``.NAME.lock`` beside it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from pathlib import Path

_MOST_BYTES = 4096
"""Bytes of a lock's file that are read."""

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY | os.O_NONBLOCK

_held: set[int] = set()
"""Descriptors of the locks of this process."""


class WriterLock:
    """A lock that ends with its process, however that ends. Where a file system has no locks it costs nothing."""

    # Rule: the kernel's lock on an open file, not a file that is there or not. One that was left by a run that was
    # killed would refuse each later start, until somebody who knows it removes it.

    def __init__(self, target: Path) -> None:
        """Name the lock of a file."""
        self._path = target.with_name(f".{target.name}.lock")
        self._descriptor = -1

    def take(self, topology: str) -> str:
        """Take the lock; return who has it instead, empty where nobody has."""
        while True:
            try:
                descriptor = self._open()
            except OSError:
                return ""  # the folder cannot be written, or the name is too long
            _held.add(descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _holder(descriptor)
                _close(descriptor)
                return holder
            except OSError:
                _close(descriptor)  # a server of files without locks
                return ""
            if self._is_named(descriptor):
                break
            _close(descriptor)  # its holder ended just now, and took the name away
        self._descriptor = descriptor
        who = {"topology": topology, "pid": os.getpid(), "host": socket.gethostname()}
        with contextlib.suppress(OSError):  # another user's, or a full disk: then it has no name
            writing = os.open(self._path, _FLAGS | os.O_WRONLY | os.O_TRUNC)
            try:
                os.write(writing, json.dumps(who).encode())
            finally:
                os.close(writing)
        return ""

    def release(self) -> None:
        """Give the lock back, and leave nothing beside the file."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        with contextlib.suppress(OSError):
            if self._is_named(descriptor):  # while it is locked: nobody else may take it away
                self._path.unlink()
        _close(descriptor)

    def _open(self) -> int:
        # Rule: what is held all the time is open for reading. A disk on which a file is open for writing cannot be made
        # read-only, which is how its owner mends it.
        return os.open(self._path, _FLAGS | os.O_RDONLY | os.O_CREAT, 0o666)

    def _is_named(self, descriptor: int) -> bool:
        """Tell whether an open file still has the name."""
        try:
            named, ours = self._path.lstat(), os.fstat(descriptor)
        except OSError:
            return False
        return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)


def _holder(descriptor: int) -> str:
    """Return who has a lock, for a sentence."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        who = json.loads(os.pread(descriptor, _MOST_BYTES, 0))
        return f"the run of topology {who['topology']} (process {who['pid']} on {who['host']})"
    return "another run"


def _close(descriptor: int) -> None:
    _held.discard(descriptor)
    with contextlib.suppress(OSError):
        os.close(descriptor)


def _close_in_child() -> None:
    # Rule: no child holds the lock. One that a component forked may outlive its run, and would refuse the next one.
    # Closed, not unlocked: that would end the parent's lock, too.
    for descriptor in list(_held):
        _close(descriptor)


os.register_at_fork(after_in_child=_close_in_child)
