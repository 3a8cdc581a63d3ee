"""The certificates of a secured development cluster, and what is said where they cannot be made."""

from __future__ import annotations

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


def test_without_openssl_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One paragraph, not a missing file."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DevStackError, match="`openssl`, which is not installed here: install it"):
        make_certificates(tmp_path)


def test_a_cluster_that_is_not_secured_has_none() -> None:
    """And says how to get them."""
    with pytest.raises(DevStackError, match="start one with secured=True"):
        _ = DevCluster().certificates
