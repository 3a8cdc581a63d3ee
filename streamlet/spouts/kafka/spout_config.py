"""The settings of a KafkaSpout. Names are storm-kafka's and Kafka's; every number has its unit in its name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from streamlet.base.backoff import Backoff
from streamlet.base.errors import SettingError
from streamlet.kafka.settings.security import SECRETS, SecuritySettings, check_security, security_of
from streamlet.spouts.kafka.errors import SKIP, STOP
from streamlet.spouts.kafka.hosts import BrokerHosts, KafkaHosts, StaticHosts, ZkHosts, check_digest, hosts_from_text
from streamlet.spouts.kafka.scheme import StringScheme, as_scheme

EARLIEST = "earliest"
LATEST = "latest"


@dataclass(frozen=True)
class ZkOffsets:
    """Offsets in ZooKeeper, where storm-kafka keeps them. ``servers`` None: the ZooKeeper of ZkHosts.

    A deposed owner's write fails. At-least-once.
    """

    servers: str | None = None
    digest: tuple[str, str] | None = field(default=None, repr=False)
    """User and password; nodes are then made for that user alone. None: those of ZkHosts, when ``servers`` is None."""

    def __post_init__(self) -> None:
        check_digest("ZkOffsets", self.digest)


@dataclass(frozen=True)
class GroupOffsets:
    """Offsets in a Kafka consumer group, where every lag tool sees them; each task is a member of it.

    ``group`` None: the spout's ``id``. At-least-once. One run at a time: a run that another one takes over from stops
    before that one emits.
    """

    group: str | None = None


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """Where to begin when nothing usable is stored: "earliest", "latest" or "timestamp"."""

    where: str = "earliest"
    ignore_stored_offset: bool = False


@dataclass(frozen=True)
class SpoutConfig(SecuritySettings):
    """The settings of one KafkaSpout.

    Four settings, and only these, are required: ``hosts``, ``topic``, ``id``, and ``zk_root`` when the offsets live in
    ZooKeeper.

    **Progress** is kept under ``zk_root/id`` (or in the group ``id``): a restart goes on from there, and two spouts
    need two ids. Raises SettingError for settings that are wrong or contradict each other.

    TLS and SASL: the settings of every Kafka client here, by the same names (``security_protocol`` ...), for each
    connection to a broker, however the brokers are found.
    """

    hosts: BrokerHosts
    topic: str
    zk_root: str = ""
    id: str = ""

    scheme: Any = field(default_factory=StringScheme)
    """Turns a record into tuples. The default: one field ``value``, UTF-8 text."""
    offset_store: ZkOffsets | GroupOffsets | None = None
    """None: ZkHosts -> its ZooKeeper, KafkaHosts -> a consumer group; StaticHosts needs one named."""
    start_offset: str | int | datetime = EARLIEST
    """Where to begin when nothing is stored: "earliest", "latest", or a time (aware datetime, or epoch ms)."""
    ignore_stored_offset: bool = False
    """True: begin at ``start_offset`` once in every run, whatever is stored (storm-kafka's ignoreZkOffsets)."""
    fail_on_data_loss: bool = True
    """True: stop and name unread records that are gone. False: log and count them, and go on."""
    on_poison: str = STOP
    """For a record that cannot be decoded, gives a tuple that cannot be emitted, or failed more than ``retry_limit``
    times: "stop" the run with its coordinates, or "skip" it, logged and counted."""

    fetch_size_bytes: int = 1 << 20
    """Most bytes asked of one partition at once. A larger record still comes, alone."""
    fetch_max_wait_ms: int = 500
    """Milliseconds a broker may hold a fetch that it cannot answer yet."""
    fetch_min_bytes: int = 1
    """Least bytes a broker answers with before its wait is over; 0 would make an idle spout spin."""
    buffer_size_bytes: int = 8 << 20
    """Most bytes fetched and not yet emitted, for all partitions of a task together, in equal shares for its brokers.
    A record larger than a share still comes, alone."""
    max_unacked_bytes: int = 64 << 20
    """Bytes of open records, in flight or waiting for a retry, above which a partition emits nothing new."""
    max_uncommitted_offsets: int = 1_000_000
    """Most offsets between a partition's last commit and its newest record: bounds the records that come again after
    a kill. Checked once a turn."""
    records_per_turn: int = 256
    """Most records that one partition emits before the next gets its turn."""

    state_update_interval_ms: int = 2000
    """Milliseconds between two commits of progress."""
    retry_initial_delay_ms: int = 100
    """Pause before the first retry of a failed record."""
    retry_delay_multiplier: float = 2.0
    """Factor from each pause to the next ..."""
    retry_delay_max_ms: int = 10_000
    """... up to this pause."""
    retry_limit: int = 20
    """Retries after the first try, about two minutes with these pauses; 0: without end."""

    request_timeout_ms: int = 10_000
    """Milliseconds without an answer after which a broker counts as gone."""
    start_timeout_ms: int = 15_000
    """Milliseconds a start may look for brokers, topic and offsets."""
    session_timeout_ms: int = 10_000
    """With offsets in a group: milliseconds of silence after which the group gives a task's place to others. The next
    run waits as long after a run that was killed whole. A task that hears nothing of the group for 0.9 of it pauses."""
    client_id: str = "streamlet"

    def __post_init__(self) -> None:
        self._check_names()
        object.__setattr__(self, "zk_root", self.zk_root.rstrip("/"))
        if isinstance(self.scheme, type):
            object.__setattr__(self, "scheme", self.scheme())
        self._check_numbers()
        self._check_choices()
        check_security(self)

    def security(self) -> dict[str, Any]:
        """Return ``security_protocol`` and the other security settings, for a client."""
        return security_of(self)

    # -- derived from the settings --------------------------------------------------------------------------

    def offsets(self) -> ZkOffsets | GroupOffsets:
        """Return the offset store in force, its defaults filled in."""
        store = self.offset_store
        if store is None:
            store = ZkOffsets() if isinstance(self.hosts, ZkHosts) else GroupOffsets()
        if isinstance(store, ZkOffsets):
            if store.servers is None and isinstance(self.hosts, ZkHosts):
                return ZkOffsets(self.hosts.broker_zk_str, store.digest or self.hosts.digest)
            return store
        return GroupOffsets(store.group or self.id)

    def start_policy(self) -> StartPolicy:
        """Return ``start_offset`` and ``ignore_stored_offset`` for the start decision."""
        where = self.start_offset if isinstance(self.start_offset, str) else "timestamp"
        return StartPolicy(where, self.ignore_stored_offset)

    def start_timestamp_ms(self) -> int | None:
        """Return the time to begin at, in epoch milliseconds; None for earliest and latest."""
        if isinstance(self.start_offset, datetime):
            return int(self.start_offset.timestamp() * 1000)
        return None if isinstance(self.start_offset, str) else self.start_offset

    def retry_backoff(self) -> Backoff:
        """Return the pauses between retries, in seconds."""
        return Backoff(self.retry_initial_delay_ms / 1e3, self.retry_delay_max_ms / 1e3, self.retry_delay_multiplier)

    def with_text(self, overrides: Mapping[str, Any]) -> SpoutConfig:
        """Return a copy with settings replaced; values may be text (``-c lines.fetch_size_bytes=65536``)."""
        given = {name: _read(name, value) for name, value in overrides.items()}
        if isinstance(given.get("hosts"), str):
            given["hosts"] = hosts_from_text(given["hosts"], self.hosts)
        return dataclasses.replace(self, **given)

    # -- checks ---------------------------------------------------------------------------------------------

    def _check_names(self) -> None:
        if not isinstance(self.hosts, (StaticHosts, ZkHosts, KafkaHosts)):
            raise SettingError(
                f"SpoutConfig: hosts is {self.hosts!r}. It is ZkHosts(...), KafkaHosts(...) or StaticHosts(...)."
            )
        if not isinstance(self.topic, str) or not self.topic:
            raise SettingError(f"SpoutConfig: topic is {self.topic!r}; it is the name of the Kafka topic to read.")
        if not isinstance(self.id, str) or not self.id or "/" in self.id or self.id in (".", ".."):
            raise SettingError(
                f"SpoutConfig for topic {self.topic!r}: id is {self.id!r}. Progress is kept under this name, so each "
                "spout needs one of its own: a word without slashes that stays the same from run to run."
            )
        if isinstance(self.hosts, StaticHosts) and self.offset_store is None:
            raise SettingError(
                f"SpoutConfig for topic {self.topic!r}: StaticHosts does not say where offsets are kept. Name it: "
                'offset_store=ZkOffsets("zk1:2181") or offset_store=GroupOffsets().'
            )
        store = self.offsets()
        if isinstance(store, ZkOffsets):
            if not store.servers:
                raise SettingError(
                    f"SpoutConfig for topic {self.topic!r}: the offsets are to live in ZooKeeper, but in which? "
                    'Write offset_store=ZkOffsets("zk1:2181,zk2:2181").'
                )
            segments = self.zk_root.rstrip("/").split("/")[1:]
            if not self.zk_root.startswith("/") or any(part in ("", ".", "..") for part in segments):
                raise SettingError(
                    f"SpoutConfig for topic {self.topic!r}: zk_root is {self.zk_root!r}. The offsets live in "
                    'ZooKeeper under zk_root/id, so it is a path such as "/streamlet".'
                )

    def _check_numbers(self) -> None:
        for name, minimum in _LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
                raise self._wrong(name, f"it is a whole number of at least {minimum}")
            if value > _MOST:
                raise self._wrong(name, f"it is a whole number of at most {_MOST}")
        if not self.retry_delay_multiplier >= 1:
            raise self._wrong("retry_delay_multiplier", "below 1 the pauses would shrink")
        if self.retry_delay_max_ms < self.retry_initial_delay_ms:
            raise self._wrong("retry_delay_max_ms", f"retry_initial_delay_ms is more: {self.retry_initial_delay_ms}")
        if self.buffer_size_bytes < self.fetch_size_bytes:
            raise self._wrong(
                "buffer_size_bytes", f"it cannot hold one fetch of fetch_size_bytes={self.fetch_size_bytes}"
            )
        if self.fetch_min_bytes > self.fetch_size_bytes:
            raise self._wrong("fetch_min_bytes", f"a fetch brings at most fetch_size_bytes={self.fetch_size_bytes}")
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise self._wrong(
                "fetch_max_wait_ms",
                f"a quiet topic would look like a dead broker after request_timeout_ms={self.request_timeout_ms}",
            )

    def _check_choices(self) -> None:
        if self.on_poison not in (STOP, SKIP):
            raise self._wrong("on_poison", f'it is "{STOP}" or "{SKIP}"')
        for name in ("ignore_stored_offset", "fail_on_data_loss"):
            if not isinstance(getattr(self, name), bool):
                raise self._wrong(name, "it is True or False")
        start = self.start_offset
        if isinstance(start, str):
            usable = start in (EARLIEST, LATEST)
        elif isinstance(start, datetime):
            usable = start.tzinfo is not None
        else:
            usable = isinstance(start, int) and not isinstance(start, bool) and 0 <= start < 1 << 63
        if not usable:
            raise self._wrong(
                "start_offset",
                '"earliest", "latest", a datetime with a time zone, or milliseconds since 1970 are understood',
            )
        if not (callable(self.scheme) or hasattr(self.scheme, "deserialize")):
            as_scheme(self.scheme)

    def _wrong(self, name: str, why: str) -> SettingError:
        return SettingError(f"SpoutConfig for topic {self.topic!r}: {name} cannot be {getattr(self, name)!r}: {why}.")


_MOST = (1 << 31) - 1
"""Most that a whole number may be: the broker gets most of them in 32 bits."""

_LEAST = {
    "fetch_size_bytes": 1,
    "fetch_max_wait_ms": 1,
    "fetch_min_bytes": 1,
    "buffer_size_bytes": 1,
    "max_unacked_bytes": 1,
    "max_uncommitted_offsets": 1,
    "records_per_turn": 1,
    "state_update_interval_ms": 1,
    "retry_initial_delay_ms": 0,
    "retry_delay_max_ms": 0,
    "retry_limit": 0,
    "request_timeout_ms": 1,
    "start_timeout_ms": 1,
    "session_timeout_ms": 100,
}
"""Least that each whole number may be."""

# No passwords: every user of a machine can read its command lines.
_TEXT_KEYS = frozenset(f.name for f in dataclasses.fields(SpoutConfig)) - {"scheme", "offset_store"} - SECRETS


def override_names() -> frozenset[str]:
    """Return the settings that a command line can give as text."""
    return _TEXT_KEYS


def _read(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    kinds = {f.name: f.type for f in dataclasses.fields(SpoutConfig)}
    kind = kinds[name]
    try:
        if kind == "int" or (name == "start_offset" and value.isdigit()):
            return int(value)
        if kind == "float":
            return float(value)
    except ValueError:
        wanted = f"a whole number of at least {_LEAST.get(name, 0)}" if kind == "int" else "a number"
        raise SettingError(f"SpoutConfig: {name} cannot be {value!r}: it is {wanted}.") from None
    if kind == "bool":
        if value.lower() not in ("true", "false"):
            raise SettingError(f"SpoutConfig: {name} cannot be {value!r}: it is true or false.")
        return value.lower() == "true"
    if name == "start_offset" and value not in (EARLIEST, LATEST):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            return value
    return value
