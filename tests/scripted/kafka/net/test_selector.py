"""What a selector does with a transport that holds bytes itself, as TLS does."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from streamlet.kafka.metadata.cluster import Address
from streamlet.kafka.net.selector import Selector

ADDRESS = Address("h", 1)
FRAME = b"\x00\x00\x00\x04"


class Holds:
    """Takes all bytes off the socket at once and gives some at a time; no event tells of the rest."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.held = b""
        self.full = False

    def fileno(self) -> int:
        return self.socket.fileno()

    def finish_connect(self) -> bool:
        return True

    def wants_write(self) -> bool:
        return True

    def recv_into(self, buffer: memoryview) -> int | None:
        with contextlib.suppress(BlockingIOError):
            self.held += self.socket.recv(1 << 20)
        if not self.held:
            return None
        size = min(len(buffer), len(self.held))
        buffer[:size], self.held = self.held[:size], self.held[size:]
        return size

    def pending(self) -> bool:
        return bool(self.held)

    def send(self, data: memoryview) -> int:
        return 0 if self.full else self.socket.send(data)

    def close(self) -> None:
        self.socket.close()


@pytest.fixture
def ends() -> Iterator[tuple[Selector, Holds, socket.socket]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    selector, transport = Selector(1 << 20), Holds(near)
    selector.open(ADDRESS, transport, 0.0)
    assert selector.poll(1.0, 0.0).connected == [ADDRESS]
    yield selector, transport, far
    selector.close_all()
    far.close()


def test_held_bytes_are_read_though_the_socket_has_another_event(ends: tuple[Selector, Holds, socket.socket]) -> None:
    """Room to write hides nothing: else the answers wait until the broker says something more."""
    selector, transport, far = ends
    frames = 500_000
    transport.held = (FRAME + b"abcd") * (frames - 1)
    far.sendall(FRAME + b"abcd")
    found = len(selector.poll(1.0, 0.0).completed_receives)
    assert found < frames and transport.pending()
    transport.full = True
    assert not selector.send(ADDRESS, b"a request", 0.0)
    transport.full = False
    while selector.holds_bytes():
        found += len(selector.poll(0.0, 0.0).completed_receives)
    assert found == frames


def test_a_connection_that_only_sends_is_not_idle(ends: tuple[Selector, Holds, socket.socket]) -> None:
    """What is taken at once makes no event, and with acks=0 no answer comes: it was closed in mid-work."""
    selector, _transport, _far = ends
    for second in range(1, 5):
        assert selector.send(ADDRESS, b"records", float(second))
        assert not selector.idle(second + 0.5, 1.0)
    assert selector.idle(5.0, 1.0) == [ADDRESS]
