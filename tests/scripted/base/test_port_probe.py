"""What a stranger's port speaks, told from its own first bytes."""

from __future__ import annotations

import http.server
import socket
import threading

import pytest

from streamlet.base.port_probe import named_by, spoken_at
from streamlet.devcluster.machine import free_ports
from tests.wrong_ports import saying


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (b"srvr is not executed because it is not in the whitelist.\n", "ZooKeeper"),
        (b"-ERR unknown command\r\n", "an unknown protocol (its answer begins with b'-ERR unknown com')"),
    ],
)
def test_a_server_is_named_by_its_answer(answer: bytes, name: str) -> None:
    with saying(answer) as port:
        assert spoken_at("127.0.0.1", port) == name


def test_a_web_server_is_recognised() -> None:
    """One that waits for the end of a line before it says anything."""
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    server.RequestHandlerClass.log_message = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        assert spoken_at("127.0.0.1", server.server_port) == "HTTP"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_nobody_and_somebody_silent_give_nothing() -> None:
    """Nothing is claimed of a port that nobody listens on, nor of one that keeps silent."""
    (port,) = free_ports(1)
    assert spoken_at("127.0.0.1", port) is None
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert spoken_at("127.0.0.1", server.getsockname()[1], 0.05) is None


def test_too_few_bytes_name_nothing() -> None:
    assert named_by(b"") is None and named_by(b"\x00\x00\x00") is None
