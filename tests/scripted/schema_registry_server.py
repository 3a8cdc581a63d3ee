"""A schema registry in this process: Confluent's HTTP API over a dict, with faults that a test asks for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RegistryServer:
    """``schemas`` by id and ``versions`` by (subject, version) are answers; ``asked`` lists the paths."""

    def __init__(self, port: int = 0) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.versions: dict[tuple[str, str], dict[str, Any]] = {}
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        self.status: int | None = None
        """Answer everything with this status; None: as it should be."""
        self.answers = threading.Event()
        """Cleared: requests wait."""
        self.answers.set()
        self.drips = False
        """Send the head of an answer byte by byte, without end."""
        self.ended = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, *args: Any) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        self.authorizations.append(request.headers.get("Authorization"))
        self.answers.wait()
        if self.drips:
            try:
                while not self.ended.wait(0.02):
                    request.wfile.write(b"H")
            except OSError:
                return
        path, _, query = request.path.partition("?")
        parts = path.strip("/").split("/")
        found: dict[str, Any] | None = None
        if parts[-3:-1] == ["schemas", "ids"]:
            found = self.schemas.get(int(parts[-1]))
        elif parts[-2] == "versions":
            found = self.versions.get((parts[-3], parts[-1]))
            if found and found.get("deleted") and query != "deleted=true":
                found = None
        status = self.status or (200 if found else 404)
        body = json.dumps(found if status == 200 else {"error_code": 40403 if status == 404 else status}).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def close(self) -> None:
        self.answers.set()
        self.ended.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@contextmanager
def registry_server(port: int = 0) -> Iterator[RegistryServer]:
    server = RegistryServer(port)
    try:
        yield server
    finally:
        server.close()
