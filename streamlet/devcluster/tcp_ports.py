"""Free ports on loopback that stay free until a JVM binds them."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

_LOWEST = 10_000


def ephemeral_floor() -> int:
    """Where the kernel begins to take source ports of outgoing connections."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


def is_free(port: int) -> bool:
    """Whether 127.0.0.1:port can be bound now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(count: int, preferred: Sequence[int] = ()) -> list[int]:
    """``count`` different free ports; the i-th is ``preferred[i]`` where that one is free, else a random one.

    Random ones lie *below* the ephemeral range. Above it, a client that keeps dialling a dead broker's port can be
    given that very port as its source: it then connects to itself, and the broker cannot bind its port again.
    """
    chosen = {at: port for at, port in enumerate(preferred[:count]) if is_free(port)}
    ceiling = ephemeral_floor()
    low, high = (_LOWEST, ceiling) if ceiling > _LOWEST + 1000 else (_LOWEST, 65_536)
    for at in range(count):
        tries = iter(range(10_000))
        while at not in chosen:
            if next(tries, None) is None:
                raise OSError(f"no {count} free ports on 127.0.0.1 between {low} and {high}")
            port = random.randrange(low, high)
            if port not in chosen.values() and is_free(port):
                chosen[at] = port
    return [chosen[at] for at in range(count)]


def listens(pid: int, port: int) -> bool:
    """Whether a socket of process ``pid`` listens on ``port``; True too where /proc does not let us look."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if str(descriptor.readlink()) in sockets:
                    return True
    except FileNotFoundError:
        return False
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
