"""A ZooKeeper of one node: it grants sessions, and notes what it is asked."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

CONNECT, GET_DATA, PING, MULTI, CLOSE = 0, 4, 11, 14, -11
_STAT = struct.pack(">qqqqiiiqiiq", 1, 1, 0, 0, 3, 0, 0, 0, 4, 0, 1)
"""A node's numbers: version 3, 4 bytes."""
_CHECKED = struct.pack(">i?i", 13, False, 0) + struct.pack(">i?i", -1, True, -1)
"""The answer to a transaction of one check that holds."""


class LittleZooKeeper:
    """Every node holds ``data``. Without a quorum a transaction is not answered, and nothing behind it."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        """The kinds of requests, but for pings and the ends of sessions."""
        self.has_quorum = True
        self.ignored = 0
        """How many of the next connections are taken and never answered."""
        self.taken: list[float] = []
        """When each connection was taken, by `time.monotonic`."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._links: list[socket.socket] = []

    def serve(self) -> None:
        """Take connections until the end. A thread of its own, as each connection has."""
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._server.accept()
                self._links.append(link)
                self.taken.append(time.monotonic())
                if self.ignored:
                    self.ignored -= 1
                    continue
                threading.Thread(target=self._answer_all, args=(link,), daemon=True).start()

    def cut(self) -> None:
        """End all connections."""
        links, self._links = self._links, []
        for each in links:
            _end(each)

    def close(self) -> None:
        _end(self._server)
        self.cut()

    def _answer_all(self, link: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), link.makefile("rb") as stream:
            _read(stream.read)
            _send(link, struct.pack(">iiqi", 0, 10_000, 7, 16) + bytes(16) + b"\0")
            while True:
                xid, kind = struct.unpack_from(">ii", _read(stream.read))
                if kind not in (PING, CLOSE):
                    self.asked.append(kind)
                if kind == MULTI and not self.has_quorum:
                    return
                body = {GET_DATA: struct.pack(">i", 4) + b"data" + _STAT, MULTI: _CHECKED}.get(kind, b"")
                _send(link, struct.pack(">iqi", xid, 1, 0) + body)


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def _read(read: object) -> bytes:
    assert callable(read)
    head = read(4)
    if len(head) < 4:
        raise EOFError
    return bytes(read(struct.unpack(">i", head)[0]))


def _send(link: socket.socket, body: bytes) -> None:
    link.sendall(struct.pack(">i", len(body)) + body)


@contextlib.contextmanager
def little_zookeeper() -> Iterator[LittleZooKeeper]:
    """Serve until the block ends."""
    server = LittleZooKeeper()
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()
