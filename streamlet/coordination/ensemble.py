"""Where a ZooKeeper ensemble is, and whether what answers there is one."""

from __future__ import annotations

import re
import socket
import struct
from dataclasses import dataclass

from streamlet.base.errors import SettingError
from streamlet.base.host_names import can_be_host
from streamlet.coordination.node_store import check_path

DEFAULT_PORT = 2181

_CLOSE_SESSION = struct.pack(">iii", 8, 1, -11)  # length, xid 1, opcode closeSession


class NotZooKeeper(Exception):
    """Something answers at that address, in another protocol."""


@dataclass(frozen=True, slots=True)
class Ensemble:
    """``host:port,host:port/chroot`` taken apart; ``chroot`` is empty or begins with a slash."""

    addresses: tuple[tuple[str, int], ...]
    chroot: str = ""

    @classmethod
    def parse(cls, text: str) -> Ensemble:
        """Check and split an address. Raises ``SettingError``.

        The port may be left out (2181); an IPv6 address stands in brackets."""
        servers, slash, rest = text.partition("/")
        try:
            chroot = _chroot(slash + rest.rstrip("/")) if rest.rstrip("/") else ""
            addresses = tuple(_address(server.strip()) for server in servers.split(","))
        except ValueError as error:
            meant = _meant(text)
            raise SettingError(
                f"{text!r} is not a ZooKeeper ensemble: {error}. Write host:port,host:port, and after that the "
                "path everything lies under, if there is one: zk1:2181,zk2:2181/streamlet."
                + (f" Probably this is meant: {meant}" if meant else "")
            ) from error
        return cls(addresses, chroot)

    @property
    def servers(self) -> str:
        """Without the chroot."""
        return ",".join(map(server_name, self.addresses))

    def __str__(self) -> str:
        return self.servers + self.chroot


def server_name(address: tuple[str, int]) -> str:
    """Write ``host:port``, with brackets around an address of IPv6."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _chroot(path: str) -> str:
    """Return the path below which everything lies. Raises ValueError."""
    # Rule: a comma ends no chroot and is in none. With the path behind each server, all from the first slash on would
    # be one path, through one server: offsets are looked for where none are, and a run begins at the start policy.
    if "," in path:
        raise ValueError(f"{path!r} would be the path; the path is written once, after the last server")
    return check_path(path)


def _meant(text: str) -> str:
    """Return the ensemble that a malformed string stands for.

    One with a path at each server, or with other separators; empty where it is not clear.
    """
    pieces = [piece.partition("/") for piece in re.split(r"[\s,;]+", text) if piece]
    paths = {path.strip("/") for _, _, path in pieces} - {""}
    written = "/".join([",".join(server for server, _, _ in pieces), *paths])
    if len(paths) > 1 or written == text:
        return ""
    try:
        Ensemble.parse(written)
    except SettingError:
        return ""
    return written


def _address(server: str) -> tuple[str, int]:
    if server.startswith("["):
        host, closed, rest = server[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise ValueError(f"{server!r} is not an address")
        port = rest[1:]
    else:
        host, _, port = server.partition(":")
    if not host or not ((port.isascii() and port.isdigit()) or not port):
        raise ValueError(f"{server!r} is not an address")
    if not can_be_host(host):
        raise ValueError(f"{server!r} is not an address: {host!r} cannot be a host name; commas stand between servers")
    number = int(port) if port else DEFAULT_PORT
    if not 0 < number < 65536:
        raise ValueError(f"{server!r} has no port between 1 and 65535")
    return host, number


def ask_for_session(host: str, port: int, timeout_s: float, session_s: float) -> float:
    """Ask for a session of ``session_s`` seconds, which is closed at once; return the seconds granted.

    Raises OSError when there is no answer in time, ``NotZooKeeper`` when the answer is something else. At
    most 64 bytes of an answer are read.
    """
    # A real request and not an open port: a ZooKeeper without a quorum takes connections, too.
    body = struct.pack(">iqiqi", 0, 0, int(session_s * 1e3), 0, 16) + bytes(16) + b"\0"
    with socket.create_connection((host, port), timeout_s) as link:
        link.sendall(struct.pack(">i", len(body)) + body)
        answer = b""
        while len(answer) < 40:
            chunk = link.recv(64 - len(answer))
            if not chunk:
                break
            answer += chunk
            if not _may_be_granted(answer):
                break
        if not answer:
            # A ZooKeeper that is starting or has no quorum does this; so does a Kafka broker.
            why = "it closes the connection without an answer: no ZooKeeper, or one without a quorum"
            raise ConnectionResetError(0, why)
        if len(answer) < 40 or not _may_be_granted(answer):
            raise NotZooKeeper(f"it speaks another protocol, its answer begins with {answer[:16]!r}")
        link.sendall(_CLOSE_SESSION)
    return float(struct.unpack_from(">i", answer, 8)[0]) / 1e3


def _may_be_granted(answer: bytes) -> bool:
    """Tell whether bytes begin a connect response: length 36 or 37, protocol version 0, a time-out above zero."""
    if len(answer) < 4:
        return True
    (length,) = struct.unpack_from(">i", answer)
    if not 36 <= length <= 37:
        return False
    if len(answer) < 12:
        return True
    version, granted_ms = struct.unpack_from(">ii", answer, 4)
    return bool(version == 0 and granted_ms > 0)
