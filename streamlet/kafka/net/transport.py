"""Transports: the contract between a connection and its bytes, and plain TCP.

A transport is non-blocking and owned by one thread. It knows no Kafka: it connects (a handshake counts as
part of that), sends and receives. TLS is another implementation of :class:`Transport` and another :data:`Dial`
(``tls.py``). SASL is *not* here: it speaks in Kafka's frames, above the transport (``connection_setup.py``).
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import Protocol

from streamlet.kafka.metadata.cluster import Address
from streamlet.kafka.net.connection_states import SocketAddress


class Transport(Protocol):
    """Carries the bytes of one connection.

    Methods never block; they raise OSError (or KafkaError) when the connection is broken.
    """

    def fileno(self) -> int:
        """Return the descriptor for the selector."""

    def finish_connect(self) -> bool:
        """Go on connecting when the socket is ready; return whether bytes may flow."""

    def wants_write(self) -> bool:
        """Return whether the connecting waits for room to send, not for bytes."""

    def recv_into(self, buffer: memoryview) -> int | None:
        """Return the bytes received, None for none yet, 0 at the end."""

    def pending(self) -> bool:
        """Return whether it holds bytes that no event will announce."""

    def send(self, data: memoryview) -> int:
        """Return how many bytes were taken, 0 when there is no room."""

    def close(self) -> None:
        """Close it. Never blocks, never raises, may be called twice."""


Dial = Callable[[SocketAddress, Address], Transport]
"""Begin a connection to the socket address.

The second argument is the name it was resolved from (for TLS).
"""


class PlaintextTransport:
    """Plain TCP."""

    __slots__ = ("_socket",)

    def __init__(self, target: SocketAddress, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        family, sockaddr = target
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            # A request is written whole, so Nagle's algorithm could only delay its last segment.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            # -1 leaves the size to the operating system, which lets it grow with need.
            if send_buffer_bytes != -1:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            if receive_buffer_bytes != -1:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            code = self._socket.connect_ex(sockaddr)
            if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
                raise OSError(code, os.strerror(code))
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def finish_connect(self) -> bool:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        return True

    def wants_write(self) -> bool:
        return True

    def pending(self) -> bool:
        return False

    def recv_into(self, buffer: memoryview) -> int | None:
        try:
            return self._socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None

    def send(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0

    def close(self) -> None:
        self._socket.close()


def resolve_all(address: Address) -> list[SocketAddress]:
    """Return every address of a name, in the resolver's order.

    Blocks while the system resolves. Raises OSError.
    """
    rows = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return [(int(family), sockaddr) for family, _kind, _proto, _name, sockaddr in rows]
