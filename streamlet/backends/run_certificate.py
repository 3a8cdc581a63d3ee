"""The certificate of a run whose links are encrypted: made for it, kept in memory, gone with it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from streamlet.base.errors import BadInput

SETTING = "streamlet.links.tls"


def check_certificates(conf: Mapping[str, Any]) -> None:
    """Refuse encrypted links without the package that makes their certificate."""
    if conf[SETTING] and importlib.util.find_spec("cryptography") is None:
        raise BadInput(
            f"{SETTING} is true, and the certificate of such a run is made with the package cryptography, which this "
            "Python does not have. Install it here, where the run is started (workers and executors need none): "
            "pip install 'streamlet-storm[tls]'"
        )


def certificate_of(conf: Mapping[str, Any], run_id: bytes) -> bytes:
    """Make a run's certificate and key, as PEM; empty where its links are not encrypted. Raises BadInput."""
    if not conf[SETTING]:
        return b""
    check_certificates(conf)
    return _made(run_id.hex())


def _made(name: str) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    whose = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"streamlet run {name}")])
    builder = x509.CertificateBuilder().subject_name(whose).issuer_name(whose).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    # Always valid: a run may last for years, the clocks of its machines may differ, and its end ends the key.
    builder = builder.not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
    builder = builder.not_valid_after(datetime(9999, 12, 31, tzinfo=UTC))
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.public_bytes(Encoding.PEM)
