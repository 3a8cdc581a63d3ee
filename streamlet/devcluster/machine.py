"""What a cluster takes of this machine: directories, processes and TCP ports."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from streamlet.base.chance import CHANCE
from streamlet.base.process_identity import start_ticks

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
                # The lock goes with its owner, however that ends; a pid written there could be somebody else's by now.
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
                removed.append(directory)
        except OSError:
            continue  # not marked yet, its owner lives, or someone else sweeps it right now
    return removed


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """``started``: clock ticks after boot, from /proc; ``boot``: which boot that was."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """Return the identity of a process that runs now. Raises ProcessLookupError."""
        started = start_ticks(pid)
        if started is None:
            raise ProcessLookupError(pid)
        return cls(pid, started, _boot())

    @property
    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        # Starts are counted from the boot: after a reboot pid and start together may be another process's.
        return self.boot == _boot() and start_ticks(self.pid) == self.started

    def kill(self) -> bool:
        """Kill it (SIGKILL) and wait until it is gone; False when it was gone already.

        Its process group goes with it where it leads one: executors are children of a Spark worker.
        """
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # Asked after the pidfd is open: from here on the pid cannot come to mean another process.
            if not self.alive:
                return False
            with contextlib.suppress(ProcessLookupError):
                # While the leader lives, its pid means no other group.
                if os.getpgid(self.pid) == self.pid:
                    os.killpg(self.pid, signal.SIGKILL)
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            select.select([fd], [], [])
            return True
        finally:
            os.close(fd)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


_LOWEST = 10_000


def ephemeral_floor() -> int:
    """Return where the kernel begins to take source ports of outgoing connections."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether host:port can be bound now."""
    with socket.socket() as probe:
        # As servers bind: connections that linger in TIME_WAIT do not keep a port from them.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(count: int, preferred: Sequence[int] = ()) -> list[int]:
    """Return ``count`` free ports; port i is ``preferred[i]`` if that is free.

    All are different. The others are random, and lie *below* the ephemeral range. Above it, a client that keeps
    dialling a dead broker's port can be given that very port as its source: it then connects to itself, and the broker
    cannot bind its port again.
    """
    chosen = {at: port for at, port in enumerate(preferred[:count]) if is_free(port)}
    ceiling = ephemeral_floor()
    low, high = (_LOWEST, ceiling) if ceiling > _LOWEST + 1000 else (_LOWEST, 65_536)
    for at in range(count):
        tries = iter(range(10_000))
        while at not in chosen:
            if next(tries, None) is None:
                raise OSError(f"no {count} free ports on 127.0.0.1 between {low} and {high}")
            port = CHANCE.randrange(low, high)
            if port not in chosen.values() and is_free(port):
                chosen[at] = port
    return [chosen[at] for at in range(count)]


def listens(pid: int, port: int) -> bool:
    """Tell whether process ``pid`` listens on ``port``; True where /proc hides it."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if str(descriptor.readlink()) in sockets:
                    return True
    except FileNotFoundError:
        return False
    # Another user's process cannot be looked into; then the protocol's answer has to do.
    except PermissionError:
        return True
    return False


def _listening(port: int) -> Iterator[str]:
    """Return the inodes of sockets that listen on the port (kernel tables)."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                    yield rest[5]
