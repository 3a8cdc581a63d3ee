"""Mutual proof of the run's secret before anything else is read from a link. Pure: bytes in, bytes out.

The dialer sends HELLO (who it is, whom it wants, a nonce), the acceptor answers with its nonce and a proof,
the dialer with its own. All parts have a fixed size: at most 85 bytes are read of a peer that has proved nothing.
Both proofs cover everything said so far; each direction of the link then has a key of its own.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass

MAGIC = b"SLT1"
DATA = 1
CONTROL = 2
NONCE_BYTES = 16
"""Random bytes that each side gives the other to prove the key on."""

PROOF_BYTES = 32
"""Bytes of a proof: HMAC-SHA256."""

DEADLINE_S = 4.0
"""Seconds for the whole handshake. With the delays of a loaded machine, a stranger is gone within five."""

_HELLO = struct.Struct(">4sB16sIIII16s")
HELLO_BYTES = _HELLO.size
"""Bytes of the first message, from the side that dialled."""

ANSWER_BYTES = 4 + NONCE_BYTES + PROOF_BYTES
"""Bytes of the second message: magic, nonce and proof."""


class Refused(Exception):
    """The peer is not one of ours, or not wanted now. The text never holds a proof."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Who dials whom: ``kind`` DATA or CONTROL, run, dialer, epoch, wanted worker.

    ``version`` belongs to the dialer's address book: of two links of a pair the later one stands.
    """

    kind: int
    run_id: bytes
    worker: int
    epoch: int
    wanted: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one link, by direction."""

    to_acceptor: bytes
    to_dialer: bytes


def encode_hello(hello: Hello, nonce: bytes) -> bytes:
    """Build the dialer's first message."""
    return _HELLO.pack(MAGIC, hello.kind, hello.run_id, hello.worker, hello.epoch, hello.wanted, hello.version, nonce)


def decode_hello(data: bytes) -> Hello:
    """Read the dialer's first message. Raises Refused."""
    magic, kind, run_id, worker, epoch, wanted, version, _ = _HELLO.unpack(data)
    if magic != MAGIC or kind not in (DATA, CONTROL):
        raise Refused("it does not speak streamlet's protocol")
    return Hello(kind, run_id, worker, epoch, wanted, version)


def _proof(secret: bytes, role: bytes, hello: bytes, nonce: bytes) -> bytes:
    return hmac.digest(secret, b"streamlet " + role + hello + nonce, hashlib.sha256)


def answer(secret: bytes, hello: bytes, nonce: bytes) -> bytes:
    """Build the acceptor's nonce and proof."""
    return MAGIC + nonce + _proof(secret, b"accept", hello, nonce)


def check_answer(secret: bytes, hello: bytes, data: bytes) -> bytes:
    """Check the acceptor's proof and return the dialer's. Raises Refused."""
    nonce, proof = data[4 : 4 + NONCE_BYTES], data[4 + NONCE_BYTES :]
    if data[:4] != MAGIC or not hmac.compare_digest(proof, _proof(secret, b"accept", hello, nonce)):
        raise Refused("it does not know this run's secret")
    return _proof(secret, b"dial", hello, nonce)


def check_proof(secret: bytes, hello: bytes, nonce: bytes, proof: bytes) -> None:
    """Check the dialer's proof. Raises Refused."""
    if not hmac.compare_digest(proof, _proof(secret, b"dial", hello, nonce)):
        raise Refused("it does not know this run's secret")


def link_keys(secret: bytes, hello: bytes, nonce: bytes) -> Keys:
    """Derive keys that exist for this link only: both nonces are in them."""
    seed = hello + nonce
    return Keys(
        hmac.digest(secret, b"streamlet key to acceptor" + seed, hashlib.sha256),
        hmac.digest(secret, b"streamlet key to dialer" + seed, hashlib.sha256),
    )
