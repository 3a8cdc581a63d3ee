"""Ready means a protocol answer, not an open port: the few bytes that ask ZooKeeper and Kafka how they are.

Written by hand and apart from ``streamlet.kafka``, so that the client is never tested against its own
mistakes. Every call opens one connection to 127.0.0.1, asks, and closes it; all raise OSError (time-out
included) when there is no answer, and ``ProtocolError`` when the answer is not the one expected.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_ANSWER_LIMIT = 1 << 20


class ProtocolError(Exception):
    """Something answers on that port, but it does not speak the protocol."""


def four_letter_word(port: int, word: str) -> str:
    """Ask a ZooKeeper by text: ``srvr`` (state), ``dump`` (sessions and their ephemeral nodes)."""
    with socket.create_connection(("127.0.0.1", port), 1.0) as link:
        link.sendall(word.encode())
        answer = bytearray()
        while chunk := link.recv(65536):
            answer += chunk
            if len(answer) > _ANSWER_LIMIT:
                raise ProtocolError(f"port {port} answers `{word}` without end")
    return answer.decode(errors="replace")


def zookeeper_serves(port: int) -> bool:
    """Tell whether a ZooKeeper there serves requests. ``srvr`` names its mode only then."""
    return "Mode:" in four_letter_word(port, "srvr")


@dataclass(frozen=True, slots=True)
class KafkaState:
    """What one broker says of the cluster: ids of the brokers it knows, and the controller's (-1: none)."""

    brokers: frozenset[int]
    controller: int


def kafka_state(port: int) -> KafkaState:
    """Ask a broker for the cluster: ApiVersions v0, then Metadata v1 without topics."""
    with socket.create_connection(("127.0.0.1", port), 2.0) as link:
        versions = _exchange(link, api_key=18, version=0, correlation=1, body=b"")
        (error,) = struct.unpack_from(">h", versions)
        if error:
            raise ProtocolError(f"ApiVersions on port {port} is answered with error {error}")
        return _parse_metadata(_exchange(link, api_key=3, version=1, correlation=2, body=struct.pack(">i", 0)))


def _exchange(link: socket.socket, api_key: int, version: int, correlation: int, body: bytes) -> bytes:
    # Header version 1: every broker since 0.8 reads it, so one form serves 3.9 and 4.x.
    client = b"streamlet-dev"
    request = struct.pack(">hhih", api_key, version, correlation, len(client)) + client + body
    link.sendall(struct.pack(">i", len(request)) + request)
    size, answered = struct.unpack(">ii", _read(link, 8))
    if answered != correlation or not 4 <= size <= _ANSWER_LIMIT:
        raise ProtocolError(f"not a Kafka answer: size {size}, correlation id {answered}")
    return _read(link, size - 4)


def _read(link: socket.socket, count: int) -> bytes:
    answer = bytearray()
    while len(answer) < count:
        chunk = link.recv(count - len(answer))
        if not chunk:
            raise ConnectionResetError("connection closed in the middle of an answer")
        answer += chunk
    return bytes(answer)


def _parse_metadata(answer: bytes) -> KafkaState:
    try:
        (count,) = struct.unpack_from(">i", answer)
        at = 4
        brokers = set()
        for _ in range(count):
            (node,) = struct.unpack_from(">i", answer, at)
            brokers.add(node)
            (host,) = struct.unpack_from(">h", answer, at + 4)
            at += 6 + host + 4
            (rack,) = struct.unpack_from(">h", answer, at)
            at += 2 + max(rack, 0)
        (controller,) = struct.unpack_from(">i", answer, at)
    except struct.error as error:
        raise ProtocolError(f"Metadata is cut short: {error}") from error
    return KafkaState(frozenset(brokers), controller)


def expire_session(port: int, session_id: int, password: bytes) -> None:
    """End a ZooKeeper session from outside, as a time-out would: take it over, then close it.

    Its owner learns of it (EXPIRED, kazoo's LOST) when it next speaks; its ephemeral nodes go at once.
    """
    # A session is taken over with its id and password, from any connection; closing it is then the owner's own right.
    with socket.create_connection(("127.0.0.1", port), 5.0) as link:
        connect = struct.pack(">iqiqi", 0, 0, 10_000, session_id, len(password)) + password + b"\0"
        link.sendall(struct.pack(">i", len(connect)) + connect)
        (size,) = struct.unpack(">i", _read(link, 4))
        if not 20 <= size <= _ANSWER_LIMIT:
            raise ProtocolError(f"not a ZooKeeper answer: size {size}")
        _, granted_ms, _ = struct.unpack_from(">iiq", _read(link, size))
        if granted_ms <= 0:
            raise ProtocolError(f"session 0x{session_id & (1 << 64) - 1:x} is not known there (any more)")
        link.sendall(struct.pack(">iii", 8, 1, -11))  # xid 1, closeSession
        (size,) = struct.unpack(">i", _read(link, 4))
        _read(link, min(size, _ANSWER_LIMIT))
