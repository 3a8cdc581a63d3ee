"""Processes that are not our children: named by pid *and* start, so that a recycled pid is never taken for one."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """``started``: clock ticks after boot, from /proc; ``boot``: which boot that was."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """Of a process that runs now; raises ProcessLookupError."""
        started = _started(pid)
        if started is None:
            raise ProcessLookupError(pid)
        return cls(pid, started, _boot())

    @property
    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        return self.boot == _boot() and _started(self.pid) == self.started

    def kill(self) -> bool:
        """SIGKILL it and wait until it is gone; False when it was gone already."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # Asked after the pidfd is open: from here on the pid cannot come to mean another process.
            if not self.alive:
                return False
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            select.select([fd], [], [])
            return True
        finally:
            os.close(fd)


def _started(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may hold spaces and parentheses; state is the first field after it, start the 20th.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
