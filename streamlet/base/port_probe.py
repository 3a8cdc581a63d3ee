"""What listens at an address that does not speak the protocol it was given for: a guess from a few bytes, at once.

For error messages only. Each question is one that its own kind of server answers in a moment, and that the others
answer with an error or by hanging up; nobody changes anything because of it.
"""

from __future__ import annotations

import socket
import struct

PATIENCE_S = 0.5
"""Seconds to wait for the answer to each of the three questions."""

MOST_BYTES = 64
"""Bytes read of an answer. A stranger may answer without end: its first bytes are enough to name it."""

_CORRELATION = 0x736C7374
_API_VERSIONS = struct.pack(
    ">ihhih", 10, 18, 0, _CORRELATION, -1
)  # length, api key, version, correlation id, no client

QUESTIONS = (b"srvr\n", _API_VERSIONS, b"GET / HTTP/1.0\r\n\r\n")


def spoken_at(host: str, port: int, patience_s: float = PATIENCE_S) -> str | None:
    """Return the protocol that a port speaks, such as ``ZooKeeper`` or ``HTTP``.

    Another one is ``an unknown protocol (...)`` with its first bytes.

    None when nothing is there, or nothing answers. Blocks up to three times ``patience_s``; reads 64 bytes at most.
    """
    # In the words of several protocols: a server seldom answers another one's client (an HTTP server waits for a line
    # end, a broker takes a ZooKeeper client for a producer without acks), and a time-out would tell the user nothing.
    unknown = None
    for question in QUESTIONS:
        try:
            answer = _asked(host, port, question, patience_s)
        except OSError:
            continue
        named = named_by(answer)
        if named is not None:
            return named
        if answer and unknown is None:
            unknown = f"an unknown protocol (its answer begins with {answer[:16]!r})"
    return unknown


def named_by(answer: bytes) -> str | None:
    """Return the protocol that the first bytes of an answer belong to."""
    start = answer[:9].lower()
    if start.startswith((b"http/", b"<!doctype", b"<html")):
        return "HTTP"
    if answer.startswith((b"Zookeeper version", b"srvr is not exec", b"This ZooKeeper")):
        return "ZooKeeper"
    if len(answer) >= 8 and struct.unpack_from(">i", answer, 4)[0] == _CORRELATION:
        return "Kafka"
    if answer[:2] in (b"\x15\x03", b"\x16\x03"):
        return "TLS"
    if answer.startswith(b"SSH-"):
        return "SSH"
    return None


def _asked(host: str, port: int, question: bytes, patience_s: float) -> bytes:
    with socket.create_connection((host, port), patience_s) as link:
        link.sendall(question)
        answer = b""
        try:
            while len(answer) < MOST_BYTES and named_by(answer) is None:
                chunk = link.recv(MOST_BYTES - len(answer))
                if not chunk:
                    break
                answer += chunk
        except OSError:  # silent, or reset after its answer: what came counts
            pass
        return answer
