"""The settings of an administrator: those of every client, and how long a call may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from streamlet.kafka.settings.client_config import ClientConfig


@dataclass(frozen=True, slots=True)
class AdminConfig(ClientConfig):
    """What :class:`~streamlet.kafka.admin.admin.Admin` takes; Kafka's names, Java's defaults."""

    default_api_timeout_ms: int = 60_000
    """How long a call may take that is given no ``timeout`` of its own."""

    CLIENT: ClassVar[str] = "Admin"
    LEAST: ClassVar[Mapping[str, int]] = {"default_api_timeout_ms": 1}
