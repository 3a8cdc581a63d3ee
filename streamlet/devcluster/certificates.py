"""Certificates for a development cluster, made by the ``openssl`` command: an authority, a broker, two clients."""

from __future__ import annotations

import subprocess
from pathlib import Path

from streamlet.devcluster.errors import DevStackError

KEY_PASSWORD = "key-secret"  # noqa: S105 - of a key that lives as long as a test
"""Of the client's encrypted private key."""

_DAYS = "30"


class Certificates:
    """PEM files. The broker's certificate is made for the address 127.0.0.1, and for no name."""

    def __init__(self, directory: Path) -> None:
        self.ca = directory / "ca.pem"
        """The authority that signed broker and client."""
        self.broker = directory / "broker.pem"
        """The broker's private key and certificate in one file, as Kafka's PEM key store wants them."""
        self.client = directory / "client.crt"
        """A client's certificate, signed by ``ca``."""
        self.client_key = directory / "client.key"
        self.client_locked_key = directory / "client.locked.key"
        """The same key, encrypted with KEY_PASSWORD."""
        self.stranger_ca = directory / "stranger-ca.pem"
        """An authority that signed neither broker nor client."""
        self.stranger = directory / "stranger.crt"
        """A client's certificate, signed by ``stranger_ca``."""
        self.stranger_key = directory / "stranger.key"


def make_certificates(directory: Path) -> Certificates:
    """Write them there (about half a second). Raises DevStackError where ``openssl`` is missing or fails."""
    directory.mkdir(parents=True, exist_ok=True)
    made = Certificates(directory)
    _authority(directory, "ca")
    _authority(directory, "stranger-ca")
    _signed(directory, "broker", "ca", "subjectAltName=IP:127.0.0.1")
    _signed(directory, "client", "ca", "extendedKeyUsage=clientAuth")
    _signed(directory, "stranger", "stranger-ca", "extendedKeyUsage=clientAuth")
    made.broker.touch(mode=0o600)
    made.broker.write_bytes((directory / "broker.key").read_bytes() + (directory / "broker.crt").read_bytes())
    locked = ["pkcs8", "-topk8", "-in", str(made.client_key), "-out", str(made.client_locked_key)]
    _openssl(*locked, "-v2", "aes-256-cbc", "-passout", f"pass:{KEY_PASSWORD}")
    return made


def _authority(directory: Path, name: str) -> None:
    key, certificate = str(directory / f"{name}.key"), str(directory / f"{name}.pem")
    subject = f"/CN=streamlet development {name}"
    # Rule: as RFC 5280 wants certificates, with key usage and key identifiers. Python verifies strictly from 3.13 on.
    usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    _openssl("req", "-x509", *_new_key(key), "-out", certificate, "-days", _DAYS, "-subj", subject, *usage)


def _signed(directory: Path, name: str, authority: str, extension: str) -> None:
    key, request, certificate = (str(directory / f"{name}.{kind}") for kind in ("key", "csr", "crt"))
    _openssl("req", "-new", *_new_key(key), "-out", request, "-subj", f"/CN={name}")
    extensions = directory / f"{name}.ext"
    identified = "basicConstraints=critical,CA:FALSE\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
    extensions.write_text(f"{identified}{extension}\n")
    signer = ["-CA", str(directory / f"{authority}.pem"), "-CAkey", str(directory / f"{authority}.key")]
    sign = ["x509", "-req", "-in", request, *signer, "-CAcreateserial", "-out", certificate]
    _openssl(*sign, "-days", _DAYS, "-extfile", str(extensions))


def _new_key(path: str) -> list[str]:
    return ["-newkey", "rsa:2048", "-nodes", "-keyout", path]


def _openssl(*arguments: str) -> None:
    try:
        done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError as error:
        raise DevStackError(
            "The certificates of a secured development cluster are made by `openssl`, which is not installed here: "
            "install it (Debian: apt install openssl)."
        ) from error
    if done.returncode:
        raise DevStackError(f"`openssl {arguments[0]}` failed while making a certificate: {done.stderr.strip()[-500:]}")
