"""Probes against ends that answer wrongly."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from streamlet.devcluster.probes import ProtocolError, kafka_state, zookeeper_serves


@contextlib.contextmanager
def answering(*answers: bytes) -> Iterator[int]:
    """A port that gives one answer to each thing it is told on one connection, then closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            link, _ = server.accept()
            with link, contextlib.suppress(OSError):
                for answer in answers:
                    link.recv(1024)
                    link.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
    thread.join()


def framed(correlation: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation) + body


VERSIONS = framed(1, struct.pack(">hi", 0, 0))


def test_brokers_and_controller_are_read_from_a_metadata_answer() -> None:
    """Brokers and controller out of a Metadata answer, racks included."""
    brokers = b"".join(
        struct.pack(">ih", node, 9) + b"127.0.0.1" + struct.pack(">ih", 9092, rack) + b"r" * max(rack, 0)
        for node, rack in ((1, -1), (7, 3))
    )
    with answering(VERSIONS, framed(2, struct.pack(">i", 2) + brokers + struct.pack(">ii", 7, 0))) as port:
        state = kafka_state(port)
    assert (state.brokers, state.controller) == ({1, 7}, 7)


@pytest.mark.parametrize(
    "answers",
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n",),
        (framed(9, b""),),
        (framed(1, struct.pack(">h", 35)),),
        (VERSIONS, framed(2, struct.pack(">i", 1000))),
        (VERSIONS, struct.pack(">ii", 1 << 30, 2)),
    ],
)
def test_wrong_answers_are_refused_and_reserve_nothing(answers: tuple[bytes, ...]) -> None:
    """Another protocol, another correlation id, an error, a cut one, an absurd length: refused, nothing reserved."""
    with answering(*answers) as port, pytest.raises(ProtocolError):
        kafka_state(port)


def test_an_answer_cut_off_is_none() -> None:
    """Is no answer."""
    with answering(VERSIONS, framed(2, bytes(100))[:20]) as port, pytest.raises(OSError):
        kafka_state(port)


def test_a_zookeeper_that_does_not_serve_yet() -> None:
    """It answers, but names no mode."""
    with answering(b"This ZooKeeper instance is not currently serving requests\n") as port:
        assert not zookeeper_serves(port)
