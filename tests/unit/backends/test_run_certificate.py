"""The certificate of a run: whose it is, how long it is valid, and what it takes to make one."""

from __future__ import annotations

import importlib.util

import pytest
from cryptography import x509

from streamlet.backends.run_certificate import SETTING, certificate_of, check_certificates
from streamlet.base.errors import BadInput
from streamlet.model.settings import resolve


def test_each_run_has_a_certificate_and_key_of_its_own() -> None:
    one, other = (certificate_of(resolve({}, {SETTING: True}), b"r" * 16) for _ in range(2))
    assert one != other
    read = x509.load_pem_x509_certificate(one)
    assert read.subject == read.issuer and (b"r" * 16).hex() in read.subject.rfc4514_string()
    assert one.startswith(b"-----BEGIN PRIVATE KEY-----")


def test_it_outlives_every_run_and_fits_every_clock() -> None:
    read = x509.load_pem_x509_certificate(certificate_of({SETTING: True}, b"r"))
    assert (read.not_valid_before_utc.year, read.not_valid_after_utc.year) == (2000, 9999)


def test_links_are_plain_unless_somebody_wants_otherwise() -> None:
    assert certificate_of(resolve({}, {}), b"r") == b""


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_certificates(resolve({}, {}))
    with pytest.raises(BadInput, match=r"cryptography.*does not have.*pip install 'streamlet-storm\[tls\]'"):
        certificate_of(resolve({}, {SETTING: True}), b"r")
