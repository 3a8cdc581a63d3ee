"""Finds out whether the machine at the other end of a connection still answers.

Three things can be wrong with a peer, and each has its own witness. A process that ended: its kernel says so at once.
One that is stopped or busy: the coordinator misses its heartbeats, and only the coordinator replaces it. A machine that
lost its power or its cable: nothing arrives, and TCP itself would wait for a quarter of an hour. The last one is
found here, by what the other *kernel* sends: it answers for a process that has no time, so a bolt that takes a minute,
or a C library that holds the GIL, is no silence.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import TYPE_CHECKING

from streamlet.base.keep_alive import keep_alive

if TYPE_CHECKING:
    from streamlet.runtime.links.tls import LinkSocket

SILENT_S = 4.0
"""Seconds without one segment from the other machine after which a link is half-open. Told within five."""

LOOK_S = 0.5
"""Seconds between two looks at a link."""

PROBE_S = 1
"""Seconds between two of the kernel's probes of an idle connection."""

_PROBES = 5
_SEGMENTS_IN = struct.Struct("@I")
_SEGMENTS_IN_AT = 140
"""Offset of ``tcpi_segs_in`` in the kernel's ``struct tcp_info`` (Linux 4.2)."""


def watch(sock: socket.socket) -> None:
    """Let the kernel probe an idle TCP connection each second."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # No TCP_USER_TIMEOUT: it also ends connections whose other end lives and acknowledges, and only reads nothing for
    # as long as that. A bolt in a call of ten seconds does so. `Silence` tells the two apart.
    keep_alive(sock, PROBE_S, _PROBES)


def segments_in(sock: LinkSocket) -> int | None:
    """Count the segments that came in on a TCP connection; None where the system does not say. Raises OSError."""
    if sys.platform != "linux" or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SEGMENTS_IN_AT + _SEGMENTS_IN.size)
    if len(info) < _SEGMENTS_IN_AT + _SEGMENTS_IN.size:
        return None
    (count,) = _SEGMENTS_IN.unpack_from(info, _SEGMENTS_IN_AT)
    return int(count)


class Silence:
    """How long a connection has been silent while somebody looked. Pure."""

    __slots__ = ("_looked_at", "_segments", "silent_s")

    def __init__(self, now: float) -> None:
        self._segments: int | None = None
        self._looked_at = now
        self.silent_s = 0.0

    def note_segments(self, segments: int | None, now: float) -> float:
        """Take the count of segments; return the seconds of silence."""
        # A long time between two looks counts as one: while we stood still, or were in a bolt, the other end may have
        # found our window closed, and then its kernel asks ever more rarely.
        passed = min(now - self._looked_at, 2 * LOOK_S)
        self._looked_at = now
        if segments is None or segments != self._segments:
            self._segments, self.silent_s = segments, 0.0
        else:
            self.silent_s += passed
        return self.silent_s


def silent_text(silent_s: float) -> str:
    """Return what a user reads about a silent connection."""
    return (
        f"nothing has come from the other machine for {silent_s:.0f} s, not even an answer of its kernel: it is down, "
        "or the network between the two drops everything"
    )
