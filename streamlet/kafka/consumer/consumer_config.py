"""The consumer's settings: Kafka's names in snake case, Java's defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from streamlet.base.errors import SettingError
from streamlet.kafka.consumer.assignors import AssignorLike, CooperativeStickyAssignor, RangeAssignor, resolve_assignor
from streamlet.kafka.consumer.delivery import DeserializerLike
from streamlet.kafka.settings.client_config import ClientConfig, ClientSettings

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
CLASSIC_PROTOCOL, CONSUMER_PROTOCOL = "classic", "consumer"
"""Values of ``group_protocol``."""
_CLASSIC_ONLY = {
    "partition_assignment_strategy": "the coordinator shares out; group_remote_assignor names its assignor",
    "session_timeout_ms": "the broker says it, by its group.consumer.session.timeout.ms",
    "heartbeat_interval_ms": "the broker says it, by its group.consumer.heartbeat.interval.ms",
}
"""Settings that the newer protocol has no place for, and what stands in theirs."""
_OTHER_WORDS = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest"}
"""Words of Kafka 0.8 and librdkafka for ``auto_offset_reset``."""


class ConsumerSettings(ClientSettings, total=False):
    """The names and types of :class:`ConsumerConfig`, for editors and type checkers."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["classic", "consumer"]
    group_remote_assignor: str | None
    auto_offset_reset: Literal["earliest", "latest", "none"]
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    isolation_level: Literal["read_uncommitted", "read_committed"]
    key_deserializer: DeserializerLike
    value_deserializer: DeserializerLike
    max_poll_records: int
    max_poll_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    check_crcs: bool
    enable_fetch_sessions: bool
    client_rack: str
    partition_assignment_strategy: Sequence[AssignorLike]
    exclude_internal_topics: bool
    allow_auto_create_topics: bool
    default_api_timeout_ms: int
    consumer_timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class ConsumerConfig(ClientConfig):
    """Settings of a consumer beside those of a client. Raises SettingError."""

    group_id: str | None = None
    """Group that shares topics out and keeps offsets; None: ``assign`` only, no commits."""
    group_instance_id: str | None = None
    """Name of a static member (KIP-345), which may be away for the session time-out."""
    group_protocol: str = CLASSIC_PROTOCOL
    """``classic``, or ``consumer``: the newer one (KIP-848, Kafka 4.0), where the coordinator shares out."""
    group_remote_assignor: str | None = None
    """The coordinator's assignor, ``uniform`` or ``range``; None: its first. With ``group_protocol`` ``consumer``."""
    auto_offset_reset: str = "latest"
    """Where to read without a position: ``earliest``, ``latest``, or ``none`` for an error."""
    enable_auto_commit: bool = True
    """Without a ``group_id`` nothing is committed."""
    auto_commit_interval_ms: int = 5_000
    isolation_level: str = READ_UNCOMMITTED
    key_deserializer: DeserializerLike = None
    value_deserializer: DeserializerLike = None
    max_poll_records: int = 500
    max_poll_interval_ms: int = 300_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 * 1024 * 1024
    max_partition_fetch_bytes: int = 1024 * 1024
    check_crcs: bool = True
    enable_fetch_sessions: bool = True
    """Incremental fetch requests (KIP-227). Java has no switch for it."""
    client_rack: str = ""
    """Place of this client: brokers may name a replica nearer to it (KIP-392)."""
    partition_assignment_strategy: Sequence[AssignorLike] = (RangeAssignor, CooperativeStickyAssignor)
    """Assignors by class, object or name, the preferred first."""
    exclude_internal_topics: bool = True
    allow_auto_create_topics: bool = True
    default_api_timeout_ms: int = 60_000
    consumer_timeout_ms: int | None = None
    """Milliseconds without a record that end an iteration; None: never (kafka-python's name)."""

    CLIENT: ClassVar[str] = "Consumer"
    LEAST: ClassVar[Mapping[str, int]] = {
        "default_api_timeout_ms": 1,
        "max_poll_records": 1,
        "max_poll_interval_ms": 1,
        "session_timeout_ms": 1,
        "heartbeat_interval_ms": 1,
        "fetch_max_bytes": 1,
        "max_partition_fetch_bytes": 1,
    }
    MOST: ClassVar[Mapping[str, int]] = dict.fromkeys(
        ("session_timeout_ms", "max_poll_interval_ms", "fetch_max_wait_ms"), (1 << 31) - 1
    )
    ORDERED: ClassVar[Sequence[tuple[str, str]]] = (("fetch_max_bytes", "receive_message_max_bytes"),)
    CHOICES: ClassVar[Mapping[str, Sequence[object]]] = {
        "auto_offset_reset": ("earliest", "latest", "none"),
        "isolation_level": (READ_UNCOMMITTED, READ_COMMITTED),
        "group_protocol": (CLASSIC_PROTOCOL, CONSUMER_PROTOCOL),
    }

    @classmethod
    def check_given(cls, given: Mapping[str, object]) -> None:
        """Refuse settings of the classic protocol beside the newer one. Raises SettingError."""
        # By what was given and not by values: a default must not be refused, and one that is given is meant.
        if given.get("group_protocol") != CONSUMER_PROTOCOL:
            return
        for name, instead in _CLASSIC_ONLY.items():
            if name in given:
                raise SettingError(
                    f"{name} = {given[name]!r} has no place in group_protocol = 'consumer': {instead}. Leave it out, "
                    "or set group_protocol='classic'."
                )

    def __post_init__(self) -> None:
        if isinstance(self.auto_offset_reset, str) and self.auto_offset_reset in _OTHER_WORDS:
            right = _OTHER_WORDS[self.auto_offset_reset]
            raise SettingError(f"auto_offset_reset = {self.auto_offset_reset!r} is called {right!r} here.")
        ClientConfig.__post_init__(self)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise SettingError(
                f"heartbeat_interval_ms = {self.heartbeat_interval_ms} must be below session_timeout_ms = "
                f"{self.session_timeout_ms}, by a factor of three or more: otherwise one late heartbeat ends the "
                "membership."
            )
        if self.group_id == "":
            raise SettingError("group_id = '' is not a name of a group: give a name, or None to read without a group.")
        if self.group_remote_assignor is not None and self.group_protocol != CONSUMER_PROTOCOL:
            raise SettingError(
                f"group_remote_assignor = {self.group_remote_assignor!r} is for group_protocol = 'consumer', where the "
                "coordinator shares out. In a classic group a member does: name its partition_assignment_strategy."
            )
        if self.group_remote_assignor == "":
            raise SettingError("group_remote_assignor = '' is not a name of an assignor: give one, or None.")
        if self.group_instance_id is not None and self.group_id is None:
            raise SettingError(f"group_instance_id = {self.group_instance_id!r} needs a group_id.")
        for name in ("key_deserializer", "value_deserializer"):
            value = getattr(self, name)
            if value is not None and not callable(value) and not hasattr(value, "deserialize"):
                raise SettingError(
                    f"{name} = {value!r} must be a function of bytes, as bytes.decode is, or an object with "
                    "deserialize(topic, data)."
                )
        if not isinstance(self.partition_assignment_strategy, (list, tuple)):
            one = self.partition_assignment_strategy
            wanted = [one] if isinstance(one, str) else ["range", "cooperative-sticky"]
            raise SettingError(f"partition_assignment_strategy = {one!r} must be a list: write {wanted!r}.")
        if not self.partition_assignment_strategy:
            raise SettingError("partition_assignment_strategy is empty: name at least one assignor.")
        for assignor in self.partition_assignment_strategy:
            resolve_assignor(assignor)
