"""The client's settings: Kafka's names in snake case, Java's defaults, milliseconds where Kafka has them."""

from __future__ import annotations

import dataclasses
import importlib
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Required, Self, TypedDict

from streamlet.base.backoff import Backoff
from streamlet.base.errors import SettingError
from streamlet.base.host_names import can_be_host
from streamlet.kafka.metadata.cluster import UNKNOWN_NODE, Broker
from streamlet.kafka.settings import foreign_names
from streamlet.kafka.settings.security import (
    SECRETS,
    SecuritySettings,
    TokenProvider,
    check_security,
    fits_a_request,
)

_INT32 = (1 << 31) - 1
_INT64 = (1 << 63) - 1


class ClientOptions(TypedDict, total=False):
    """Names and types of :class:`ClientConfig`, but for ``bootstrap_servers``: for editors."""

    client_id: str
    request_timeout_ms: int
    metadata_max_age_ms: int
    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    metadata_recovery_rebootstrap_trigger_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    max_in_flight_requests_per_connection: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    receive_message_max_bytes: int
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_check_hostname: bool
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_oauth_token_provider: Callable[[], str | tuple[str, float]] | TokenProvider | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_token_endpoint_cafile: str | None
    sasl_login_read_timeout_ms: int


class ClientSettings(ClientOptions, total=False):
    """All of them. A test holds both equal; they differ in ``bootstrap_servers``, which may be a list too."""

    bootstrap_servers: Required[str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class ClientConfig(SecuritySettings):
    """The settings of every client; each client has a subclass with more.

    Checked when made: SettingError names the setting, its value and the allowed ones.
    """

    bootstrap_servers: str | tuple[str, ...]
    """Addresses ``host:port``, one string with commas or several strings; one living is enough."""
    client_id: str = "streamlet"
    request_timeout_ms: int = 30_000
    metadata_max_age_ms: int = 300_000
    """-1: metadata is asked for again only after a failure."""
    metadata_recovery_strategy: str = "rebootstrap"
    """"rebootstrap" or "none": whether ``bootstrap_servers`` are tried again once the brokers known from metadata give
    none for ``metadata_recovery_rebootstrap_trigger_ms``. When *no* connection to a known broker can be made they are
    tried at once, whatever this says."""
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    socket_connection_setup_timeout_max_ms: int = 30_000
    connections_max_idle_ms: int = 540_000
    max_in_flight_requests_per_connection: int = 5
    send_buffer_bytes: int = 131_072
    receive_buffer_bytes: int = -1
    """-1: the operating system's own, which grows with need. (Java: 65536.)"""
    receive_message_max_bytes: int = 100_000_000
    """Bytes of the largest answer (librdkafka's name: Java has no such limit)."""

    CLIENT: ClassVar[str] = ""
    """The client's name as its users call it; "" for all clients."""
    LEAST: ClassVar[Mapping[str, int]] = {
        "max_in_flight_requests_per_connection": 1,
        "request_timeout_ms": 1,
        "metadata_max_age_ms": -1,
        "send_buffer_bytes": -1,
        "receive_buffer_bytes": -1,
        "receive_message_max_bytes": 1024,
        "connections_max_idle_ms": 1,
        "socket_connection_setup_timeout_ms": 1,
        "sasl_login_read_timeout_ms": 1,
    }
    """The least value of a whole number; 0 for those not named. A subclass has a table of its own beside this one."""
    MOST: ClassVar[Mapping[str, int]] = {"request_timeout_ms": _INT32}
    """The greatest value: what the protocol, or Java, has 32 bits for. Other times have 64, other numbers 32."""
    ORDERED: ClassVar[Sequence[tuple[str, str]]] = (
        ("retry_backoff_ms", "retry_backoff_max_ms"),
        ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
        ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"),
    )
    """Pairs whose first must not be greater than its second; a subclass adds pairs of its own."""
    CHOICES: ClassVar[Mapping[str, Sequence[object]]] = {"metadata_recovery_strategy": ("rebootstrap", "none")}
    """The only values that a setting can have; a subclass adds rows of its own."""

    def __post_init__(self) -> None:
        """Check all values by annotation and by the tables. Raises SettingError.

        Annotations: ``int``, ``bool``, ``str``, each perhaps ``| None``. A subclass with more to check calls
        ``ClientConfig.__post_init__(self)`` first.
        """
        # A subclass names ClientConfig where super() would be expected: `slots=True` makes a second class, and the cell
        # of a bare super() still points to the first.
        for field in dataclasses.fields(self):
            self._check_type(field.name, str(field.type), getattr(self, field.name))
        for name, choices in self._tables("CHOICES"):
            if getattr(self, name) not in choices:
                listed = ", ".join(dict.fromkeys(str(choice) for choice in choices if choice is not None))
                raise SettingError(f"{name} = {getattr(self, name)!r} is not possible: choose from {listed}.")
        for low, high in self._tables("ORDERED"):
            if getattr(self, low) > getattr(self, high):
                raise SettingError(
                    f"{low} = {getattr(self, low)} is greater than {high} = {getattr(self, high)}: "
                    f"lower the one or raise the other."
                )
        parse_servers(self.bootstrap_servers)
        check_security(self)

    @property
    def retry_backoff(self) -> Backoff:
        """Pauses before a request is tried again, in seconds."""
        return Backoff(self.retry_backoff_ms / 1000, self.retry_backoff_max_ms / 1000)

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> Self:
        """Return the settings by names and values. Raises SettingError.

        Kafka's dotted names work too. An unknown name is refused with the nearest right ones, the client that has it,
        or the reason that there is none here.
        """
        # Names are checked here and not by the constructor, whose TypeError names no setting of Kafka's and no
        # neighbour.
        known = _names(cls)
        given: dict[str, object] = {}
        for written, value in settings.items():
            name = written.replace(".", "_")
            if name not in known:
                raise SettingError(foreign_names.unknown(written, cls.CLIENT, known, _names_of_clients()))
            if name in given:
                raise SettingError(f"{name} is given twice, as {written!r} too: leave one of them out.")
            given[name] = value
        cls.check_given(given)
        if "bootstrap_servers" not in given:
            raise SettingError("bootstrap_servers is missing: give at least one host:port of the cluster.")
        servers = given["bootstrap_servers"]
        if isinstance(servers, list):
            given["bootstrap_servers"] = tuple(servers)
        return cls(**given)  # type: ignore[arg-type]  # the checks above and in __post_init__ are the types

    @classmethod
    def check_given(cls, given: Mapping[str, object]) -> None:
        """Refuse settings that exclude one another; a subclass has such rules. Raises SettingError."""

    @classmethod
    def _tables(cls, table: str) -> list[Any]:  # Any: rows of whichever table it is
        """Return the rows of a class-level table, those of base classes first."""
        found: list[Any] = []
        for kind in reversed(cls.__mro__):
            rows = kind.__dict__.get(table, ())
            found += rows.items() if isinstance(rows, Mapping) else rows
        return found

    def _check_type(self, name: str, annotation: str, value: object) -> None:
        kind, _, optional = annotation.partition(" | ")
        if name in SECRETS or (value is None and optional == "None"):
            return  # a secret is checked by check_security, whose messages do not show it
        if kind == "int" and optional in ("", "None"):
            least = dict(self._tables("LEAST")).get(name, 0)
            most = dict(self._tables("MOST")).get(name, _INT64 if name.endswith("_ms") else _INT32)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise SettingError(f"{name} = {value!r} must be a whole number of at least {least}.")
            if value > most:
                raise SettingError(f"{name} = {value!r} must be a whole number of at most {most}.")
        elif kind == "bool" and not isinstance(value, bool):
            raise SettingError(f"{name} = {value!r} must be True or False.")
        elif kind == "str" and optional in ("", "None"):
            if not isinstance(value, str):
                raise SettingError(f"{name} = {value!r} must be a string.")
            if not name.startswith("ssl_") and not fits_a_request(value):
                raise SettingError(f"{name} = {value[:60]!r} must be at most 32767 bytes of UTF-8.")

    def brokers(self) -> tuple[Broker, ...]:
        """Return the bootstrap addresses as brokers without an id."""
        return parse_servers(self.bootstrap_servers)


def _names_of_clients() -> dict[str, list[str]]:
    """Return the settings of each client, by its name."""
    # Rule: of all three, whichever are loaded. An answer that names the client which has a setting must not depend on
    # what the program happens to use. By name, since this module is below them.
    for config in ("admin.admin", "consumer.consumer_config", "producer.producer_config"):
        importlib.import_module(f"streamlet.kafka.{config}")
    kinds = sorted((kind for kind in ClientConfig.__subclasses__() if kind.CLIENT), key=lambda kind: kind.CLIENT)
    return {kind.CLIENT: _names(kind) for kind in kinds}


def _names(config: type[ClientConfig]) -> list[str]:
    return [field.name for field in dataclasses.fields(config)]


def parse_servers(servers: object) -> tuple[Broker, ...]:
    """Return brokers from ``"h1:9092,h2:9092"`` or several such strings.

    IPv6 in brackets. Raises SettingError.
    """
    if isinstance(servers, str):
        parts = servers.split(",")
    elif isinstance(servers, (tuple, list)) and all(isinstance(part, str) for part in servers):
        parts = [piece for part in servers for piece in part.split(",")]
    else:
        raise SettingError(f"bootstrap_servers = {servers!r} must be host:port, or several of them.")
    brokers = tuple(parse_server(part.strip()) for part in parts if part.strip())
    if not brokers:
        raise SettingError("bootstrap_servers is empty: give at least one host:port of the cluster.")
    # Once each: a doubled address would be asked twice as often, and named twice in errors.
    return tuple(dict.fromkeys(brokers))


def parse_server(text: str) -> Broker:
    """Return a broker without an id from ``host:port``. Raises SettingError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not colon or not host or "://" in text or (":" in host and not text.startswith("[")):
        raise SettingError(f"{text!r} is not a broker address: write host:port, as in 127.0.0.1:9092.")
    if not can_be_host(host):
        raise SettingError(f"{text!r} is not a broker address: {host!r} cannot be a host name.")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise SettingError(f"{text!r} is not a broker address: the port must be a number from 1 to 65535.")
    return Broker(UNKNOWN_NODE, host, int(port))
