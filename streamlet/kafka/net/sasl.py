"""SASL mechanisms as conversations without a socket: PLAIN (RFC 4616), SCRAM (RFC 5802, 7677), OAUTHBEARER (RFC 7628).

Pure.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Protocol

from streamlet.kafka.errors import AuthenticationFailed

_LEAST_ITERATIONS = 4096
_MOST_ITERATIONS = 1 << 18
"""Hash rounds that a broker may ask for, so that a hostile one cannot keep us busy. Kafka stores at most 16384."""

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class SaslClient(Protocol):
    """One conversation, used once.

    Errors are AuthenticationFailed, and name neither broker nor secret.
    """

    mechanism: str

    def first(self) -> bytes:
        """Return our first message."""

    def next(self, challenge: bytes) -> bytes | None:
        """Return our next message, None when the conversation is over."""

    def refused(self, reason: str) -> str:
        """Return the end of a paragraph: the broker refuses us; ``reason``: what it adds."""


def sasl_client(mechanism: str, username: str, password: str, nonce: str) -> SaslClient:
    """Return a conversation in one of ``security.MECHANISMS``.

    ``nonce``: printable ASCII, without commas, never used before.
    """
    if mechanism == "PLAIN":
        return Plain(username, password)
    return Scram(mechanism, username, password, nonce)


class Plain:
    """User and password in the clear; only safe in TLS."""

    __slots__ = ("_password", "username")
    mechanism = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self.username, self._password = username, password

    def first(self) -> bytes:
        return f"\0{self.username}\0{self._password}".encode()

    def next(self, challenge: bytes) -> bytes | None:
        return None

    def refused(self, reason: str) -> str:
        return _refuses_password(self.username, self.mechanism, reason)


def _refuses_password(username: str, mechanism: str, reason: str) -> str:
    return (
        f"it refuses the user {username!r} or the password{reason}: correct sasl_plain_username and "
        f"sasl_plain_password, or have an administrator make the user for {mechanism}"
    )


class Scram:
    """Salted challenge and response: the password never travels.

    The broker proves that it knows the password too.

    >>> talk = Scram("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    >>> talk.first()
    b'n,,n=user,r=rOprNGfwEbeRWgbNEkqO'
    """

    __slots__ = ("_bare", "_hash", "_nonce", "_password", "_server_signature", "mechanism", "username")

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self.mechanism = mechanism
        self.username = username
        self._hash = _HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}"
        self._server_signature: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def next(self, challenge: bytes) -> bytes | None:
        fields = _fields(challenge)
        if "e" in fields:
            raise AuthenticationFailed(f"the broker ends the {self.mechanism} exchange with {fields['e'][:80]!r}")
        if self._server_signature is None:
            return self._proof(challenge.decode(), fields)
        found = _decoded(fields.get("v", ""))
        # Only one who knows the password can sign this exchange: here the broker proves itself.
        if not hmac.compare_digest(found, self._server_signature):
            raise AuthenticationFailed(
                "the broker did not prove that it knows the user's password: it is not the broker it says it is"
            )
        return None

    def refused(self, reason: str) -> str:
        return _refuses_password(self.username, self.mechanism, reason)

    def _proof(self, server_first: str, fields: dict[str, str]) -> bytes:
        nonce, rounds = fields.get("r", ""), fields.get("i", "")
        salt = _decoded(fields.get("s", ""))
        # The broker must append to our nonce: an answer without it could be replayed from an earlier exchange.
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or not salt:
            raise AuthenticationFailed(f"the broker's first {self.mechanism} answer is not valid")
        iterations = int(rounds) if rounds.isascii() and rounds.isdigit() and len(rounds) < 10 else 0
        if not _LEAST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
            raise AuthenticationFailed(
                f"the broker asks for {rounds[:20] or 'no'} iterations of {self.mechanism}; between "
                f"{_LEAST_ITERATIONS} and {_MOST_ITERATIONS} are accepted"
            )
        # The UTF-8 bytes of the password, as Kafka's own tools store them. With SASLprep, which the RFC wants, some
        # passwords that are not ASCII would never be accepted.
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        final = f"c=biws,r={nonce}"
        told = f"{self._bare},{server_first},{final}".encode()
        signature = hmac.digest(stored_key, told, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._server_signature = hmac.digest(server_key, told, self._hash)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()


class OAuthBearer:
    """A token, in the clear; only safe in TLS. ``extensions`` are told beside it (KIP-342).

    >>> OAuthBearer("abc", {"tenant": "t1"}).first()
    b'n,,\\x01auth=Bearer abc\\x01tenant=t1\\x01\\x01'
    """

    __slots__ = ("_extensions", "_refusal", "_token")
    mechanism = "OAUTHBEARER"

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self._token, self._extensions = token, extensions
        self._refusal: str | None = None

    def first(self) -> bytes:
        more = "".join(f"{name}={value}\x01" for name, value in self._extensions.items())
        return f"n,,\x01auth=Bearer {self._token}\x01{more}\x01".encode()

    def next(self, challenge: bytes) -> bytes | None:
        if self._refusal is not None:
            raise AuthenticationFailed(self.refused(""))
        if not challenge:
            return None
        # A broker says its reason in JSON, and ends the exchange after one more message of ours (RFC 7628, 3.2.3).
        self._refusal = challenge.decode("utf-8", "replace")[:200]
        return b"\x01"

    def refused(self, reason: str) -> str:
        told = f", and says {self._refusal}" if self._refusal else reason
        return (
            f"it refuses our token{told}: compare issuer, audience, scope and expiry of the token with what the "
            "broker's listener expects for OAUTHBEARER"
        )


def _fields(challenge: bytes) -> dict[str, str]:
    try:
        text = challenge.decode("utf-8")
    except UnicodeDecodeError as err:
        raise AuthenticationFailed("the broker's SCRAM answer is not text") from err
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
