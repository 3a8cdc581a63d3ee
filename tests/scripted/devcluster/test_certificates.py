"""The certificates of a secured development cluster, and what is said where they cannot be made."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import pytest

from streamlet.devcluster import DevCluster, DevStackError
from streamlet.devcluster.certificates import KEY_PASSWORD, make_certificates


def test_each_is_what_its_name_says(tmp_path: Path) -> None:
    """Python's own TLS reads them; a key fits its certificate, and the locked one opens with its password."""
    made = make_certificates(tmp_path / "new")
    for certificate, key, password in (
        (made.broker, made.broker, None),
        (made.client, made.client_key, None),
        (made.client, made.client_locked_key, KEY_PASSWORD),
        (made.stranger, made.stranger_key, None),
    ):
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password)
    with pytest.raises(ssl.SSLError):
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(made.client, made.stranger_key)
    for authority in (made.ca, made.stranger_ca):
        ssl.create_default_context(cafile=str(authority))


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Both ends of one connection, in memory."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    assert all(end.version() for end in ends) and ends[1].getpeercert()


def test_they_hold_where_a_verifier_is_strict(tmp_path: Path) -> None:
    """As Python 3.13 is in each context it makes by default: key usage and key identifiers are wanted."""
    made = make_certificates(tmp_path)
    client = ssl.create_default_context(cafile=str(made.ca))
    client.load_cert_chain(made.client, made.client_key)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(made.ca))
    server.load_cert_chain(made.broker)
    server.verify_mode = ssl.CERT_REQUIRED
    for context in (client, server):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    shake_hands(client, server)


def test_without_openssl_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One paragraph, not a missing file."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DevStackError, match="`openssl`, which is not installed here: install it"):
        make_certificates(tmp_path)


def test_a_cluster_that_is_not_secured_has_none() -> None:
    """And says how to get them."""
    with pytest.raises(DevStackError, match="start one with secured=True"):
        _ = DevCluster().certificates
