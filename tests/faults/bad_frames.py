"""Frames that no worker sends: recorded ones with one field mutated, and those of somebody who has no secret."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Any

from streamlet.runtime.links import handshake
from streamlet.runtime.links.handshake import Hello
from streamlet.runtime.links.wire import MAX_DATA_FRAME, pack, unpack

BAD: list[Any] = [
    None, True, -1, 0, 1, 2, 3, 99, 2**63, 2**64 - 1, -(2**63), 1.5, "", "default", b"x", [], [[]], [1], [None], {},
    {1: 2}, [[1, 2]], ["x"], [[["x"]]],
]  # fmt: skip


def mutated(rng: random.Random, payload: bytes) -> bytes:
    """A recorded payload with one field, at any depth, replaced, left out, or given twice."""
    frame = unpack(payload)
    if frame[0] and rng.random() < 0.3:  # a target that is there: a bolt that reads the stream, or the spout
        for run in frame[0]:
            run[0] = rng.choice((1, 2))
            run[6] = [["alien"] for _ in run[6]]
        return pack(frame)
    node: Any = frame
    while True:
        at = rng.randrange(len(node))
        if isinstance(node[at], list) and node[at] and rng.random() < 0.8:
            node = node[at]
            continue
        what = rng.randrange(4)
        if what == 0:
            del node[at]
        elif what == 1:
            node.append(node[at])
        else:
            node[at] = rng.choice(BAD)
        return pack(frame)


def without_secret(rng: random.Random, payload: bytes) -> bytes:
    """A frame as a stranger could send it: well made, but for its tag; or announced as longer than any may be."""
    kind = rng.randrange(3)
    if kind == 0:
        return len(payload).to_bytes(4, "big") + rng.randbytes(16) + payload
    if kind == 1:
        return rng.randrange(MAX_DATA_FRAME + 1, 1 << 32).to_bytes(4, "big") + rng.randbytes(rng.randrange(60))
    return b"\xff" + rng.randbytes(3) + rng.randbytes(rng.randrange(200))


def stranger(rng: random.Random, path: str, claimed: Hello, payload: bytes) -> None:
    """A connection that proves nothing. It gets the acceptor's fixed answer at most, and is gone."""
    hello = bytearray(handshake.encode_hello(claimed, rng.randbytes(16)))
    kind = rng.randrange(4)
    if kind == 0:
        words = rng.randbytes(rng.randrange(300))
    elif kind == 1:
        words = without_secret(rng, payload)
    else:
        if kind == 2:
            hello[rng.randrange(len(hello))] ^= 1 << rng.randrange(8)
        words = bytes(hello) + rng.randbytes(handshake.PROOF_BYTES) + without_secret(rng, payload)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        said = b""
        with contextlib.suppress(ConnectionError):
            sock.connect(path)
            sock.sendall(words)
            sock.shutdown(socket.SHUT_WR)
            while data := sock.recv(4096):
                said += data
        assert len(said) <= handshake.ANSWER_BYTES
