"""Settings of TLS and SASL, under kafka-python's names, and their check."""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Protocol
from urllib.parse import urlsplit

from streamlet.base.errors import SettingError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SECRETS = frozenset({"ssl_password", "sasl_plain_password", "sasl_oauthbearer_client_credentials_client_secret"})
"""Settings whose values no message shows and no command line takes."""
OBJECTS = frozenset({"ssl_context", "sasl_oauth_token_provider"})
"""Settings whose values are objects of Python, which no text can give."""

_TLS_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password")
_PASSWORD = ("sasl_plain_username", "sasl_plain_password")
_ENDPOINT = (
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_credentials_client_secret",
)
_ENDPOINT_CAFILE = "sasl_oauthbearer_token_endpoint_cafile"
_TOKEN = ("sasl_oauth_token_provider", *_ENDPOINT, "sasl_oauthbearer_scope", _ENDPOINT_CAFILE)
_SASL = ("sasl_mechanism", *_PASSWORD, *_TOKEN)


class TokenProvider(Protocol):
    """Gives tokens, as kafka-python's AbstractTokenProvider.

    It may have a method ``extensions() -> dict[str, str]``, too. Called in a thread of the client's.
    """

    def token(self) -> str | tuple[str, float]:
        """Return a token, or (token, seconds that it is valid)."""


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
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    """A context of the user's own, in place of every other ``ssl_`` setting; None: one is made from those."""
    sasl_mechanism: str | None = None
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."""
    sasl_plain_username: str | None = None
    """The user, for every mechanism but OAUTHBEARER."""
    sasl_plain_password: str | None = field(default=None, repr=False)
    """The user's password."""
    sasl_oauth_token_provider: Callable[[], str | tuple[str, float]] | TokenProvider | None = field(
        default=None, repr=False
    )
    """For OAUTHBEARER: a function that returns a token, or (token, seconds that it is valid), or an object with such a
    method ``token``. It is called in a thread of its own whenever the token is about to end."""
    sasl_oauthbearer_token_endpoint_url: str | None = None
    """In place of it: where a token is asked for by HTTP, with the grant of client credentials (KIP-768)."""
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    """Our name at that endpoint."""
    sasl_oauthbearer_client_credentials_client_secret: str | None = field(default=None, repr=False)
    """Our secret there."""
    sasl_oauthbearer_scope: str | None = None
    """What the token is to be good for, if the endpoint wants to know."""
    sasl_oauthbearer_token_endpoint_cafile: str | None = None
    """The certificates of authorities to trust there, beside those the system trusts; None: those in ``ssl_cafile``."""
    sasl_login_read_timeout_ms: int = 10_000
    """Milliseconds that a token may take to come, from either source."""

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


def fits_a_request(text: str) -> bool:
    """Return whether a string can be written into a request: UTF-8, with a length of 16 bits."""
    try:
        return len(text.encode()) < 1 << 15
    except UnicodeEncodeError:  # half of a pair, as a byte that was no UTF-8 becomes in os.environ
        return False


def check_security(settings: SecuritySettings) -> None:
    """Raise SettingError for a wrong or contradictory setting. Reads no file."""
    protocol = settings.security_protocol
    _choose("security_protocol", protocol, PROTOCOLS)
    for name in (*_TLS_FILES, *_SASL):
        value = getattr(settings, name)
        if name in OBJECTS:
            continue
        if value is not None and (not isinstance(value, str) or not value):
            shown = "its value" if name in SECRETS else repr(value)
            raise SettingError(f"{name}: {shown} must be a string that is not empty.")
        if value is not None and name in _SASL and not fits_a_request(value):
            shown = "its value" if name in SECRETS else repr(value[:60])
            raise SettingError(
                f"{name}: {shown} must be at most 32767 bytes of UTF-8. From an environment variable or a file it may "
                "have come in another encoding."
            )
    if not isinstance(settings.ssl_check_hostname, bool):
        raise SettingError(f"ssl_check_hostname = {settings.ssl_check_hostname!r} must be True or False.")
    limit = settings.sasl_login_read_timeout_ms
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise SettingError(f"sasl_login_read_timeout_ms = {limit!r} must be a whole number of at least 1.")
    _check_context(settings)
    # A setting of TLS beside a protocol without TLS is an error, not ignored: its user believes that bytes are
    # encrypted.
    if not settings.uses_tls:
        given = _given(settings, (*_TLS_FILES, "ssl_context")) + _unchecked_host(settings)
        if given:
            wanted = "SASL_SSL" if settings.uses_sasl else "SSL"
            instead = f"leave {given[0]} out"
            if settings.sasl_oauthbearer_token_endpoint_url is not None and given[0] in ("ssl_cafile", "ssl_context"):
                instead = f"name the authorities of the token endpoint in {_ENDPOINT_CAFILE} instead"
            raise SettingError(
                f"{given[0]} is given, but security_protocol = {protocol!r} speaks no TLS: set it to {wanted!r}, or "
                f"{instead}."
            )
    elif settings.ssl_certfile is None and (given := _given(settings, ("ssl_keyfile", "ssl_password"))):
        raise SettingError(f"{given[0]} is given without ssl_certfile: name the certificate that the key belongs to.")
    _check_sasl(settings)


def _check_context(settings: SecuritySettings) -> None:
    context = settings.ssl_context
    if context is None:
        return
    if not isinstance(context, ssl.SSLContext):
        raise SettingError(
            f"ssl_context = {context!r} must be an ssl.SSLContext, as ssl.create_default_context() makes one."
        )
    if context.protocol is ssl.PROTOCOL_TLS_SERVER:
        raise SettingError(
            "ssl_context is a context of a server: make one with ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), or with "
            "ssl.create_default_context()."
        )
    # Neither is changed by the other: which of two trust stores, or host name rules, holds would be a guess.
    given = _given(settings, _TLS_FILES) + _unchecked_host(settings)
    if given:
        raise SettingError(
            f"{given[0]} is given beside ssl_context, which is used as it is: {_INTO_CONTEXT[given[0]]} and leave "
            f"{given[0]} out, or leave ssl_context out."
        )


_INTO_CONTEXT = {
    "ssl_cafile": "call its load_verify_locations()",
    "ssl_certfile": "call its load_cert_chain()",
    "ssl_keyfile": "call its load_cert_chain()",
    "ssl_password": "call its load_cert_chain()",
    "ssl_check_hostname": "set its check_hostname to False",
}
"""How a context gets what each setting says."""


def _unchecked_host(settings: SecuritySettings) -> list[str]:
    return [] if settings.ssl_check_hostname else ["ssl_check_hostname"]


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
    if settings.sasl_mechanism is not None:
        _choose("sasl_mechanism", settings.sasl_mechanism, MECHANISMS)
    if settings.sasl_mechanism == "OAUTHBEARER":
        _check_token(settings)
        return
    if tokens := _given(settings, _TOKEN):
        raise SettingError(
            f"{tokens[0]} is given, and sasl_mechanism is {settings.sasl_mechanism!r}: set it to 'OAUTHBEARER', or "
            f"leave {tokens[0]} out."
        )
    missing = [name for name in ("sasl_mechanism", *_PASSWORD) if name not in given]
    if missing:
        raise SettingError(f"security_protocol = {protocol!r} needs {' and '.join(missing)}: give it too.")
    for name in _PASSWORD:
        if "\0" in getattr(settings, name):
            raise SettingError(f"{name} holds a NUL character, which no SASL mechanism can carry.")


def _check_token(settings: SecuritySettings) -> None:
    if given := _given(settings, _PASSWORD):
        raise SettingError(f"{given[0]} is given, and OAUTHBEARER takes a token in its place: leave {given[0]} out.")
    provider, given = settings.sasl_oauth_token_provider, _given(settings, _TOKEN[1:])
    if provider is not None and given:
        raise SettingError(f"{given[0]} is given beside sasl_oauth_token_provider: leave one of the two out.")
    if provider is not None:
        if not callable(provider) and not callable(getattr(provider, "token", None)):
            raise SettingError(
                "sasl_oauth_token_provider must be a function that returns a token, or an object with such a method "
                f"`token`; {type(provider).__name__} is neither."
            )
        return
    missing = [name for name in _ENDPOINT if name not in given]
    if missing:
        wanted = ", ".join(missing) if given else f"sasl_oauth_token_provider, or {', '.join(_ENDPOINT)}"
        raise SettingError(f"sasl_mechanism = 'OAUTHBEARER' needs {wanted}: give it too.")
    url = settings.sasl_oauthbearer_token_endpoint_url
    parts = urlsplit(url or "")
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise SettingError(
            f"sasl_oauthbearer_token_endpoint_url = {_without_user(url)!r} must be an address of HTTP without a user "
            "in it, as https://login.example.org/oauth2/token."
        )
    if parts.scheme.lower() == "http" and settings.sasl_oauthbearer_token_endpoint_cafile is not None:
        raise SettingError(
            f"{_ENDPOINT_CAFILE} is given, but sasl_oauthbearer_token_endpoint_url = {url!r} speaks no TLS: begin it "
            f"with https, or leave {_ENDPOINT_CAFILE} out."
        )


def _without_user(url: str | None) -> str:
    """Return an address without its user, who may have a password."""
    return (url or "").rpartition("@")[2]


def _given(settings: SecuritySettings, names: Iterable[str]) -> list[str]:
    return [name for name in names if getattr(settings, name) is not None]


def _choose(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value in choices:
        return
    near = get_close_matches(str(value).upper().replace("TLS", "SSL"), choices, n=1, cutoff=0.5)
    hint = f" (the nearest one is {near[0]})" if near else ""
    raise SettingError(f"{name} = {value!r} is not possible: choose from {', '.join(choices)}{hint}.")
