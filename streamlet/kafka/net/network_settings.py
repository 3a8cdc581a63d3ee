"""From the client's settings to what the network layer must be told."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from streamlet.base.backoff import Backoff
from streamlet.kafka.sasl import SaslClient, sasl_client
from streamlet.kafka.settings.client_config import ClientConfig


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """What the network layer must be told; times in seconds."""

    client_id: str
    request_timeout_s: float
    max_in_flight: int
    reconnect: Backoff
    setup_timeout: Backoff
    max_idle_s: float
    max_frame_bytes: int
    security_protocol: str = "PLAINTEXT"
    rebootstrap_after_s: float = float("inf")
    software: tuple[str, str] = ("streamlet", "0")


def network_settings(config: ClientConfig) -> NetworkSettings:
    """Milliseconds become seconds, pairs become back-offs."""
    return NetworkSettings(
        client_id=config.client_id,
        request_timeout_s=config.request_timeout_ms / 1000,
        max_in_flight=config.max_in_flight_requests_per_connection,
        reconnect=Backoff(config.reconnect_backoff_ms / 1000, config.reconnect_backoff_max_ms / 1000),
        setup_timeout=Backoff(
            config.socket_connection_setup_timeout_ms / 1000,
            config.socket_connection_setup_timeout_max_ms / 1000,
        ),
        max_idle_s=config.connections_max_idle_ms / 1000,
        max_frame_bytes=config.receive_message_max_bytes,
        security_protocol=config.security_protocol,
        rebootstrap_after_s=(
            config.metadata_recovery_rebootstrap_trigger_ms / 1000
            if config.metadata_recovery_strategy == "rebootstrap"
            else float("inf")
        ),
    )


def conversations(config: ClientConfig) -> Callable[[], SaslClient] | None:
    """Makes a fresh SASL conversation for each connection; None where the listener asks for no user."""
    if not config.uses_sasl:
        return None
    mechanism, username, password = config.sasl_mechanism, config.sasl_plain_username, config.sasl_plain_password
    assert mechanism is not None and username is not None and password is not None
    return lambda: sasl_client(mechanism, username, password, secrets.token_urlsafe(24))
