"""The handshake over real sockets: blocking, with one deadline for all of it. Runs in short-lived threads."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamlet.runtime.links import handshake
from streamlet.runtime.links.handshake import Hello, Refused
from streamlet.runtime.links.silence import watch
from streamlet.runtime.links.wire import FrameReader, FrameWriter

if TYPE_CHECKING:
    from streamlet.runtime.links.tls import LinkSocket, LinkTls

LinkAddress = tuple[str, str, int]
"""("unix", path, 0) or ("tcp", host, port)."""

WELCOME = b"\x01"


class PeerHungUp(Refused):
    """The other end went away during the handshake: mostly a process that ended."""


@dataclass(frozen=True, slots=True)
class Secured:
    """A socket whose other end has proved the secret. With both directions of its frames."""

    sock: LinkSocket
    hello: Hello
    writer: FrameWriter
    reader: FrameReader


def dial(address: LinkAddress, hello: Hello, secret: bytes, frame_limit: int, tls: LinkTls | None = None) -> Secured:
    """Connect and prove, within the handshake's deadline. Raises OSError or Refused.

    With ``tls`` everything is encrypted, the proof too. A name may have several addresses, of both families; they are
    tried in the resolver's order, and each has an equal share of the time that is left. The error names all of them.
    """
    targets = resolve(address)
    deadline = time.monotonic() + handshake.DEADLINE_S
    failed: list[tuple[str, OSError | Refused]] = []
    for number, (family, target) in enumerate(targets):
        left_s = max(0.0, deadline - time.monotonic())
        by = deadline - left_s + left_s / (len(targets) - number)
        try:
            return _connect(family, target, by, hello, secret, frame_limit, tls)
        except (OSError, Refused) as error:
            failed.append((_address_text(target), error))
    if len(failed) == 1:
        raise failed[0][1]
    raise Refused(f"none of its addresses: {'; '.join(f'{where}: {error}' for where, error in failed)}")


def resolve(address: LinkAddress) -> list[tuple[socket.AddressFamily, Any]]:
    """Return family and socket address of every address that a name has. Blocks. Raises OSError."""
    kind, host, port = address
    if kind == "unix":
        return [(socket.AF_UNIX, host)]
    # Spark, like a URL, writes an address of IPv6 in brackets.
    rows = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((family, target) for family, _kind, _protocol, _name, target in rows))


def _address_text(target: Any) -> str:
    """Write a socket address as users do: brackets around one of IPv6."""
    if isinstance(target, str):
        return target
    host, port = target[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _connect(
    family: socket.AddressFamily,
    target: Any,
    deadline: float,
    hello: Hello,
    secret: bytes,
    frame_limit: int,
    tls: LinkTls | None,
) -> Secured:
    plain = socket.socket(family, socket.SOCK_STREAM)
    try:
        watch(plain)
        plain.settimeout(max(0.001, deadline - time.monotonic()))
        plain.connect(target)
        sock = plain if tls is None else tls.dial(plain, deadline)
        words = handshake.encode_hello(hello, os.urandom(handshake.NONCE_BYTES))
        sock.sendall(words)
        reply = _read_exactly(sock, handshake.ANSWER_BYTES, deadline)
        sock.sendall(handshake.check_answer(secret, words, reply))
        if _read_exactly(sock, 1, deadline) != WELCOME:
            raise Refused("it did not accept this worker's epoch")
        keys = handshake.link_keys(secret, words, reply[4 : 4 + handshake.NONCE_BYTES])
        return Secured(sock, hello, FrameWriter(keys.to_acceptor), FrameReader(keys.to_dialer, frame_limit))
    except BaseException:
        plain.close()
        raise


def accept(
    plain: socket.socket,
    secret: bytes,
    check_hello: Callable[[Hello], None],
    frame_limit: int,
    tls: LinkTls | None = None,
) -> Secured:
    """Exchange proofs with a peer that has dialled. Raises OSError or Refused.

    ``check_hello(hello)`` raises Refused for a peer that is not wanted. A peer that has gone raises PeerHungUp. The
    socket is closed after each error.
    """
    deadline = time.monotonic() + handshake.DEADLINE_S
    try:
        watch(plain)
        sock = plain if tls is None else tls.accept(plain, deadline)
        # Only fixed sizes are read before the proof: a stranger can make us hold 85 bytes and no more.
        words = _read_exactly(sock, handshake.HELLO_BYTES, deadline)
        hello = handshake.decode_hello(words)
        nonce = os.urandom(handshake.NONCE_BYTES)
        sock.sendall(handshake.answer(secret, words, nonce))
        handshake.check_proof(secret, words, nonce, _read_exactly(sock, handshake.PROOF_BYTES, deadline))
        # After the proof: a stranger learns nothing about epochs.
        check_hello(hello)
        sock.sendall(WELCOME)
        keys = handshake.link_keys(secret, words, nonce)
        return Secured(sock, hello, FrameWriter(keys.to_dialer), FrameReader(keys.to_acceptor, frame_limit))
    except ConnectionError as error:
        plain.close()
        raise PeerHungUp("it hung up during the handshake") from error
    except BaseException:
        plain.close()
        raise


def _read_exactly(sock: LinkSocket, count: int, deadline: float) -> bytes:
    data = b""
    while len(data) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Refused("it did not finish the handshake in time")
        sock.settimeout(left)
        try:
            more = sock.recv(count - len(data))
        except TimeoutError:
            raise Refused("it did not finish the handshake in time") from None
        if not more:
            raise PeerHungUp("it hung up during the handshake")
        data += more
    return data
