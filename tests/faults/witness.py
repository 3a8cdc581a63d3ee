"""The witness: a process of its own that appends what it is told to a file before it answers.

    python witness.py SOCKET FILE

It listens on a Unix socket. A client sends lines: ``h PID ROLE`` first; ``s LINE`` when a line was seen (not answered);
``w ID ID ...`` to have ids stored, answered by ``k`` and a newline once they are. Each becomes a line of the file,
``KIND WHAT NS PID``, NS on the monotonic clock, which all processes of a machine share. A written page outlives every
SIGKILL: what was answered stands in the file.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import time


class Client:
    """One connection: bytes that make no line yet, and who is at the other end."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.rest = b""
        self.pid = b"?"

    def take(self, data: bytes) -> tuple[list[bytes], int]:
        """Lines for the file, and how many answers are owed."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        out, owed = [], 0
        now = b"%d" % time.monotonic_ns()
        for line in lines:
            kind, *words = line.split(b" ")
            if kind == b"h":
                self.pid = words.pop(0)
            owed += kind == b"w"
            out += [b"%b %b %b %b\n" % (kind, word, now, self.pid) for word in words]
        return out, owed


def serve(path: str, file: str) -> None:
    """For ever; whoever started it ends it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(64)
    record = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ, None)
    while True:
        for key, _ in selector.select():
            if key.data is None:
                sock, _ = listener.accept()
                selector.register(sock, selectors.EVENT_READ, Client(sock))
                continue
            client: Client = key.data
            try:
                data = client.sock.recv(1 << 16)
                out, owed = client.take(data)
                os.write(record, b"".join(out))
                if owed:
                    client.sock.sendall(b"k\n" * owed)
            except OSError:
                data = b""  # it was killed
            if not data:
                selector.unregister(client.sock)
                client.sock.close()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
