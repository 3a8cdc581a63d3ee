"""What the kernel is told about idle connections."""

from __future__ import annotations

import os
import socket

import pytest

from streamlet.base.keep_alive import keep_alive
from streamlet.kafka.net.selector import KEEP_ALIVE_PROBES, KEEP_ALIVE_S, PlaintextTransport


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_an_idle_connection_is_probed(family: socket.AddressFamily, host: str) -> None:
    with socket.create_server((host, 0), family=family) as server:
        transport = PlaintextTransport((family, server.getsockname()), -1, -1)
        try:
            with socket.socket(fileno=os.dup(transport.fileno())) as sock:
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEP_ALIVE_S
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == KEEP_ALIVE_S
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == KEEP_ALIVE_PROBES
        finally:
            transport.close()


def test_sent_bytes_wait_as_long_as_told_for_an_answer() -> None:
    with socket.socket() as sock:
        keep_alive(sock, 3, 3, 6.5)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 6500


def test_a_socket_that_is_not_tcp_stays_as_it_is() -> None:
    near, far = socket.socketpair()
    with near, far:
        keep_alive(near, 3, 3)
        assert near.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
