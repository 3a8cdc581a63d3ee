"""Ends what a run of faults leaves when its runner is killed: ``python sweeper.py OWNER_PID MARK FOLDER``.

A worker that is stopped (SIGSTOP) does not notice that its coordinator is gone, and would stay for ever. This process
waits for the end of the owner, kills everything that has MARK in its environment, and removes FOLDER with the disk
FOLDER/d.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MNT_DETACH = 2


@contextlib.contextmanager
def sweeping(mark: str, folder: Path) -> Iterator[None]:
    """Let nothing marked, nor the folder, outlive this process, however it ends while this is entered."""
    command = [sys.executable, "-I", __file__, str(os.getpid()), mark, str(folder)]
    sweeper = subprocess.Popen(command, start_new_session=True)
    try:
        yield
    finally:
        sweeper.kill()
        sweeper.wait()


def marked(mark: str) -> list[int]:
    """Processes with ``mark`` in their environment, other than this one."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            if pid != os.getpid() and mark.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


def kill(pids: list[int]) -> None:
    """SIGKILL to each that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def main(owner: int, mark: str, folder: str) -> None:
    try:
        fd = os.pidfd_open(owner)
    except ProcessLookupError:
        pass
    else:
        select.select([fd], [], [])
    while found := marked(mark):
        kill(found)
        select.select([], [], [], 0.1)
    ctypes.CDLL(None).umount2(f"{folder}/d".encode(), MNT_DETACH)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
