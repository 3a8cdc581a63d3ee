"""Free ports on loopback that stay free until a JVM binds them."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable
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


def free_ports(count: int, preferred: Iterable[int] = ()) -> list[int]:
    """``count`` different free ports: the preferred ones as far as they are free, then random ones.

    Random ones lie *below* the ephemeral range. Above it, a client that keeps dialling a dead broker's port
    can be given that very port as its source: it then connects to itself, and the broker cannot bind its port
    again.
    """
    chosen = [port for port in dict.fromkeys(preferred) if is_free(port)][:count]
    ceiling = ephemeral_floor()
    low, high = (_LOWEST, ceiling) if ceiling > _LOWEST + 1000 else (_LOWEST, 65_536)
    for _ in range(10_000):
        if len(chosen) == count:
            return chosen
        port = random.randrange(low, high)
        if port not in chosen and is_free(port):
            chosen.append(port)
    raise OSError(f"no {count} free ports on 127.0.0.1 between {low} and {high}")
