"""One Java process that never outlives its owner, and that signals reach without fear of a recycled pid."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from streamlet.devcluster.errors import ClusterFailed

_KEEPER = Path(__file__).with_name("keeper.py")

STOPPED_WITHIN_S = 10.0
"""Seconds that a JVM may take to stand still after SIGSTOP."""

SMALL_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Quick to start and small; not for figures: they keep the best compiler and collector away."""


def keeper_command(mode: str, command: Sequence[str]) -> list[str]:
    """Return ``command`` under a keeper whose owner is this process. Modes: see ``keeper.py``."""
    # -I -S: no site packages and no PYTHON variables, so that it starts in milliseconds and runs nothing of the user's.
    return [sys.executable, "-I", "-S", str(_KEEPER), str(os.getpid()), mode, *command]


def is_stopped(pid: int) -> bool:
    """Tell whether every thread of a process is stopped; True of one that is gone."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return True
    for thread in threads:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
            if state not in "TtZX":
                return False
    return True


class Jvm:
    """A started JVM. ``keeper.py`` stands between it and us and ends it when we end, however we end.

    Methods may be called from any thread.
    """

    __slots__ = ("_fd", "_keeper", "_paused", "log", "name", "pid")

    def __init__(self, name: str, command: Sequence[str], log: Path, *, detachable: bool = False) -> None:
        self.name = name
        self.log = log
        self._paused = False
        self._fd: int | None = None
        with log.open("ab") as out:
            self._keeper = subprocess.Popen(
                keeper_command("detachable" if detachable else "owned", command),
                stdin=subprocess.PIPE if detachable else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=out,
                start_new_session=True,
                cwd=log.parent,  # not the caller's: that directory could then not be unmounted
            )
        assert self._keeper.stdout is not None
        with self._keeper.stdout as said:
            line = said.readline()
        if not line:
            self._keeper.wait()
            raise ClusterFailed(f"{name} could not be started: {log_tail(log)}")
        self.pid = int(line)
        # ProcessLookupError: it has ended already and was reaped; `alive` will tell.
        with contextlib.suppress(ProcessLookupError):
            self._fd = os.pidfd_open(self.pid)

    @property
    def alive(self) -> bool:
        """Whether it still runs (a paused one does)."""
        return self._keeper.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal; to one that has ended, nothing happens."""
        if self._fd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, number)

    def pause(self) -> None:
        """Stop it (SIGSTOP): it keeps its connections and answers nothing from now on."""
        self._paused = True
        self.send(signal.SIGSTOP)
        # On a busy machine the thread that takes the signal may get its turn after others have answered.
        deadline = time.monotonic() + STOPPED_WITHIN_S
        while self.alive and not is_stopped(self.pid):
            if time.monotonic() > deadline:
                raise ClusterFailed(f"{self.name} did not stop within {STOPPED_WITHIN_S:g} s of SIGSTOP.")
            time.sleep(0.002)

    def resume(self) -> None:
        """Continue it (SIGCONT)."""
        self.send(signal.SIGCONT)
        self._paused = False

    def kill(self) -> None:
        """Kill it (SIGKILL) and wait until it is gone. May be repeated."""
        self.send(signal.SIGKILL)
        self._reap()

    def stop(self, grace_s: float) -> None:
        """End it by SIGTERM, after ``grace_s`` by SIGKILL. May be repeated."""
        # A stopped process does not take SIGTERM before it goes on.
        if self._paused:
            self.resume()
        self.send(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._keeper.wait(grace_s)
        self.kill()

    def release(self) -> None:
        """Let a detachable one live on without us; from here on this object reaches nothing."""
        assert self._keeper.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            os.write(self._keeper.stdin.fileno(), b"r")
        self._reap()

    def _reap(self) -> None:
        if self._keeper.stdin is not None:
            self._keeper.stdin.close()
        self._keeper.wait()
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)


def log_tail(log: Path, lines: int = 8) -> str:
    """Return the last lines that name an error, else the last lines."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - 65536))
            text = stream.read().decode(errors="replace")
    except OSError:
        return "(no log)"
    # A Java stack has dozens of lines that begin with "at"; the message stands above them.
    said = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    told = [line for line in said if "ERROR" in line or "FATAL" in line or "Exception" in line or "cannot run" in line]
    return " | ".join((told or said)[-lines:]) or "(its log is empty)"
