"""Ports on loopback that speak something else than what is looked for there."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def saying(answer: bytes) -> Iterator[int]:
    """A port that says ``answer`` to whatever it is told, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    link, _ = server.accept()
                    with link, contextlib.suppress(OSError):
                        link.recv(1024)
                        link.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@contextlib.contextmanager
def web_server() -> Iterator[int]:
    """A port that speaks HTTP."""

    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()
