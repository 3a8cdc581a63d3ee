"""The producer's settings: Kafka's names in snake case, Java's defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from streamlet.base.errors import SettingError
from streamlet.kafka.producer.partitioners import FAILOVERS, UNIFORM_STICKY, check_partitioner
from streamlet.kafka.records.appending import HEADER_SIZE, upper_bound
from streamlet.kafka.records.compression import Compression
from streamlet.kafka.settings.client_config import ClientConfig, ClientOptions, ClientSettings

_DELIVERY_TIMEOUT_MS = 120_000
"""Milliseconds of the default `delivery_timeout_ms`, as in Java."""
_NO_LIMIT = 2_147_483_647
_ACKS = ("all", -1, 0, 1, "-1", "0", "1")
_SMALLEST_BATCH = HEADER_SIZE + upper_bound(None, None, ())
"""With less room no record is ever taken."""
_CODECS: dict[str | None, Compression] = {None: Compression.NONE} | {codec.name.lower(): codec for codec in Compression}


class ProducerOptions(ClientOptions, total=False):
    """Names and types of :class:`ProducerConfig`, but for ``bootstrap_servers``."""

    acks: Literal["all", -1, 0, 1, "-1", "0", "1"]
    retries: int
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None
    delivery_timeout_ms: int
    enable_idempotence: bool | None
    transactional_id: str | None
    transaction_timeout_ms: int
    partitioner: object
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    interval_sticky_ms: int
    partition_failover: Literal["off", "keyless", "all"]
    key_serializer: object
    value_serializer: object
    metadata_max_idle_ms: int
    allow_auto_create_topics: bool


class ProducerSettings(ProducerOptions, ClientSettings, total=False):
    """All of them."""


@dataclass(frozen=True, slots=True)
class ProducerConfig(ClientConfig):
    """The settings of one producer. SettingError for an unknown, impossible or contradictory one."""

    acks: int | str = "all"
    """"all" (or -1): every in-sync replica has it; 1: the leader; 0: it was handed to the socket, no more."""
    retries: int = _NO_LIMIT
    """``delivery_timeout_ms`` is the limit that matters."""
    batch_size: int = 16_384
    """A batch of so many bytes waits for no more; while the sender is busy it goes on growing, to 16 times that."""
    linger_ms: int = 0
    """0, Java's until Kafka 3.9 (5 from 4.0): batches grow with the load, and nothing waits for a timer."""
    buffer_memory: int = 33_554_432
    max_block_ms: int = 60_000
    max_request_size: int = 1_048_576
    compression_type: str | None = "none"
    delivery_timeout_ms: int = _DELIVERY_TIMEOUT_MS
    enable_idempotence: bool | None = None
    """None: on, unless ``acks``, ``retries`` or ``max_in_flight_requests_per_connection`` rule it out."""
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    partitioner: object = UNIFORM_STICKY
    """A name, a function of (key, number of partitions), or an object with such a method ``partition``."""
    partitioner_ignore_keys: bool = False
    partitioner_adaptive_partitioning_enable: bool = True
    """Keyless records lean to partitions with short queues."""
    interval_sticky_ms: int = 600_000
    """For the partitioner "interval_sticky" (0.8: ``topic.metadata.refresh.interval.ms``)."""
    partition_failover: str = "off"
    """When every replica of a partition is down: "keyless" records, or "all", go to another one."""
    key_serializer: object = None
    value_serializer: object = None
    metadata_max_idle_ms: int = 300_000
    allow_auto_create_topics: bool = True

    CLIENT: ClassVar[str] = "Producer"
    LEAST: ClassVar[Mapping[str, int]] = {
        "batch_size": 1,
        "buffer_memory": _SMALLEST_BATCH,
        "max_request_size": _SMALLEST_BATCH,
        "transaction_timeout_ms": 1,
        "delivery_timeout_ms": 1,
        "metadata_max_idle_ms": 5000,
    }
    MOST: ClassVar[Mapping[str, int]] = {"transaction_timeout_ms": (1 << 31) - 1, "buffer_memory": (1 << 63) - 1}
    CHOICES: ClassVar[Mapping[str, Sequence[object]]] = {
        "compression_type": tuple(_CODECS),
        "partition_failover": FAILOVERS,
    }

    def __post_init__(self) -> None:
        if isinstance(self.acks, (bool, float)) or self.acks not in _ACKS:
            raise SettingError(
                f"acks = {self.acks!r} is not possible: choose 'all' (every in-sync replica; the topic's "
                "min.insync.replicas says how many there must be), 1 (the leader) or 0 (nobody)."
            )
        ClientConfig.__post_init__(self)
        check_partitioner(self.partitioner)
        if self.batch_size > self.buffer_memory:
            raise SettingError(
                f"batch_size = {self.batch_size} is greater than buffer_memory = {self.buffer_memory}: no batch could "
                "ever be begun. Lower the one or raise the other."
            )
        for name in ("key_serializer", "value_serializer"):
            given = getattr(self, name)
            if given is not None and not callable(given) and not callable(getattr(given, "serialize", None)):
                raise SettingError(
                    f"{name} = {given!r} must be a function of the value, or have a method serialize(topic, value)."
                )
        least = self.linger_ms + self.request_timeout_ms
        if self.delivery_timeout_ms < least and self.delivery_timeout_ms != _DELIVERY_TIMEOUT_MS:
            raise SettingError(
                f"delivery_timeout_ms = {self.delivery_timeout_ms} is less than linger_ms + request_timeout_ms = "
                f"{least}: a record could expire before its first answer is due. Raise the one or lower the others."
            )
        self._check_idempotence()

    def _check_idempotence(self) -> None:
        if self.transactional_id is not None:
            if not self.transactional_id:
                raise SettingError("transactional_id is empty: give a name that only this producer uses.")
            if self.enable_idempotence is False:
                raise SettingError("enable_idempotence = False contradicts transactional_id: transactions stand on it.")
        if self.enable_idempotence or self.transactional_id is not None:
            what = "transactional_id" if self.transactional_id is not None else "enable_idempotence = True"
            for name, value, need in self._against_idempotence():
                raise SettingError(f"{name} = {value} contradicts {what}, which needs {need}.")

    def _against_idempotence(self) -> list[tuple[str, object, str]]:
        most = self.max_in_flight_requests_per_connection
        found: list[tuple[str, object, str]] = []
        if self.acks_number != -1:
            found.append(("acks", self.acks, "acks = 'all'"))
        if self.retries == 0:
            found.append(("retries", 0, "retries above 0"))
        if most > 5:
            found.append(("max_in_flight_requests_per_connection", most, "at most 5: a broker remembers five batches"))
        return found

    def against_transactions(self) -> list[tuple[str, object, str]]:
        """Return name, value and need of each setting that rules out transactions."""
        off = [("enable_idempotence", False, "it on")] if self.enable_idempotence is False else []
        return [*off, *self._against_idempotence()]

    @property
    def acks_number(self) -> int:
        """-1, 0 or 1."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def batch_bytes(self) -> int:
        """At how large a batch is ready: ``batch_size``, and never more than one request may have."""
        return min(self.batch_size, self.max_request_size)

    @property
    def idempotent(self) -> bool:
        """Whether batches are numbered."""
        if self.enable_idempotence is None:
            return self.transactional_id is not None or not self._against_idempotence()
        return self.enable_idempotence

    @property
    def compression(self) -> Compression:
        """The codec."""
        return _CODECS[self.compression_type]

    @property
    def delivery_timeout_s(self) -> float:
        """The default is raised where ``linger_ms`` and ``request_timeout_ms`` need more."""
        return max(self.delivery_timeout_ms, self.linger_ms + self.request_timeout_ms) / 1000
