"""Settings of TLS and SASL, under kafka-python's names, and their check."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

from streamlet.base.errors import SettingError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SECRETS = frozenset({"ssl_password", "sasl_plain_password"})
"""Settings whose values no message shows and no command line takes."""

_TLS = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password")
_SASL = ("sasl_mechanism", "sasl_plain_username", "sasl_plain_password")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """TLS and SASL for every client; files are PEM, secrets not in the ``repr``."""

    security_protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL: the protocol of the listener behind ``bootstrap_servers``."""
    ssl_cafile: str | None = None
    """The certificates of the authorities to trust; None: those the system trusts."""
    ssl_certfile: str | None = None
    """Our own certificate, with its chain, for brokers that ask for one."""
    ssl_keyfile: str | None = None
    """Its private key; None: in ``ssl_certfile`` too."""
    ssl_password: str | None = field(default=None, repr=False)
    """The password of an encrypted private key."""
    ssl_check_hostname: bool = True
    """Whether the broker's certificate must be made for the host name we connect to."""
    sasl_mechanism: str | None = None
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
    sasl_plain_username: str | None = None
    """The user, for every mechanism."""
    sasl_plain_password: str | None = field(default=None, repr=False)
    """The user's password, for every mechanism."""

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is TLS."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether a connection begins with user and password."""
        return self.security_protocol.startswith("SASL_")


def security_of(settings: SecuritySettings) -> dict[str, object]:
    """Return the settings of this module by name, for another client."""
    return {row.name: getattr(settings, row.name) for row in dataclasses.fields(SecuritySettings)}


def check_security(settings: SecuritySettings) -> None:
    """Raise SettingError for a wrong or contradictory setting. Reads no file."""
    protocol = settings.security_protocol
    _choose("security_protocol", protocol, PROTOCOLS)
    for name in (*_TLS, *_SASL):
        value = getattr(settings, name)
        if value is not None and (not isinstance(value, str) or not value):
            shown = "its value" if name in SECRETS else repr(value)
            raise SettingError(f"{name}: {shown} must be a string that is not empty.")
    if not isinstance(settings.ssl_check_hostname, bool):
        raise SettingError(f"ssl_check_hostname = {settings.ssl_check_hostname!r} must be True or False.")
    # A setting of TLS beside a protocol without TLS is an error, not ignored: its user believes that bytes are
    # encrypted.
    if not settings.uses_tls:
        given = _given(settings, _TLS) + ([] if settings.ssl_check_hostname else ["ssl_check_hostname"])
        if given:
            wanted = "SASL_SSL" if settings.uses_sasl else "SSL"
            raise SettingError(
                f"{given[0]} is given, but security_protocol = {protocol!r} speaks no TLS: set it to {wanted!r}, or "
                f"leave {given[0]} out."
            )
    elif settings.ssl_certfile is None and (given := _given(settings, ("ssl_keyfile", "ssl_password"))):
        raise SettingError(f"{given[0]} is given without ssl_certfile: name the certificate that the key belongs to.")
    _check_sasl(settings)


def _check_sasl(settings: SecuritySettings) -> None:
    protocol = settings.security_protocol
    given = _given(settings, _SASL)
    if not settings.uses_sasl:
        if given:
            wanted = "SASL_SSL" if settings.uses_tls else "SASL_PLAINTEXT"
            raise SettingError(
                f"{given[0]} is given, but security_protocol = {protocol!r} asks for no user: set it to {wanted!r}, or "
                f"leave {given[0]} out."
            )
        return
    missing = [name for name in _SASL if name not in given]
    if missing:
        raise SettingError(f"security_protocol = {protocol!r} needs {' and '.join(missing)}: give it too.")
    _choose("sasl_mechanism", settings.sasl_mechanism, MECHANISMS)
    for name in ("sasl_plain_username", "sasl_plain_password"):
        if "\0" in getattr(settings, name):
            raise SettingError(f"{name} holds a NUL character, which no SASL mechanism can carry.")


def _given(settings: SecuritySettings, names: Iterable[str]) -> list[str]:
    return [name for name in names if getattr(settings, name) is not None]


def _choose(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value in choices:
        return
    near = get_close_matches(str(value).upper().replace("TLS", "SSL"), choices, n=1, cutoff=0.5)
    hint = f" (the nearest one is {near[0]})" if near else ""
    raise SettingError(f"{name} = {value!r} is not possible: choose from {', '.join(choices)}{hint}.")
