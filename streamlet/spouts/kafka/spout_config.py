"""The settings of a KafkaSpout. Names are storm-kafka's and Kafka's; every number has its unit in its name."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from streamlet.base.backoff import Backoff
from streamlet.base.errors import SettingError, refuse_all
from streamlet.coordination.ensemble import Ensemble
from streamlet.kafka.arguments import shortened
from streamlet.kafka.settings.security import OBJECTS, SECRETS, SecuritySettings, check_security, security_of
from streamlet.model.stream import DEFAULT_STREAM, Stream
from streamlet.spouts.kafka.chosen_topics import OWNERS, ChosenTopics, named
from streamlet.spouts.kafka.errors import DEAD_LETTER, SKIP, STOP
from streamlet.spouts.kafka.hosts import BrokerHosts, KafkaHosts, StaticHosts, ZkHosts, check_digest, hosts_from_text
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.read_range import (
    EARLIEST,
    LATEST,
    ReadPlace,
    place_in,
    places_given,
    wrong_bounds,
    wrong_place,
)
from streamlet.spouts.kafka.schemes.scheme import Scheme, StringScheme, as_scheme, made_of


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
        if isinstance(self.servers, str) and self.servers:
            Ensemble.parse(self.servers)


@dataclass(frozen=True)
class GroupOffsets:
    """Offsets in a Kafka consumer group, where every lag tool sees them; each task is a member of it.

    ``group`` None: the spout's ``id``. At-least-once. One run at a time: a run that another one takes over from stops
    before that one emits.
    """

    group: str | None = None


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """Where to begin when nothing usable is stored: "earliest", "latest", "timestamp" or "offset"."""

    where: str = "earliest"
    ignore_stored_offset: bool = False
    offset: int = 0
    """The offset to begin at, with "offset"."""


@dataclass(frozen=True)
class SpoutConfig(SecuritySettings):
    """The settings of one KafkaSpout.

    Required are ``hosts``, ``id``, one of ``topic``, ``topics`` and ``topics_pattern``, and ``zk_root`` when the
    offsets live in ZooKeeper.

    **Progress** is kept under ``zk_root/id`` (or in the group ``id``): a restart goes on from there, and two spouts
    need two ids. Raises SettingError for settings that are wrong or contradict each other.

    TLS and SASL: the settings of every Kafka client here, by the same names (``security_protocol`` ...), for each
    connection to a broker, however the brokers are found.
    """

    # Long: a setting a line, and a sentence for each way in which one may be wrong.

    hosts: BrokerHosts
    topic: str = ""
    """The topic to read; or give ``topics``, or ``topics_pattern``."""
    zk_root: str = ""
    id: str = ""

    topics: Sequence[str] = ()
    """The topics to read. Each begins, is stored and shown by itself."""
    topics_pattern: str = ""
    """A regular expression: all topics are read whose whole name it matches, also those that appear during the run."""
    scheme: Any = field(default_factory=StringScheme, hash=False)
    """Turns a record into tuples. The default: one field ``value``, UTF-8 text. A dict gives each of ``topics`` its
    own."""
    streams: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Of ``topics``, those whose tuples go to a stream of another name than the default."""
    offset_store: ZkOffsets | GroupOffsets | None = None
    """None: ZkHosts -> its ZooKeeper, KafkaHosts -> a consumer group; StaticHosts needs one named."""
    start_offset: str | int | datetime | Mapping[Any, Any] = field(default=EARLIEST, hash=False)
    """Where to begin when nothing is stored: "earliest", "latest", or a time (aware datetime, or epoch ms). A dict
    gives partitions their own, an offset, too: ``{("a", 0): 100}``, or ``{0: 100}`` with ``topic``; others begin at
    the earliest."""
    stop_offset: str | int | datetime | Mapping[Any, Any] | None = field(default=None, hash=False)
    """Where to stop, for a bounded read: "latest" as of the start, a time, or a dict as in ``start_offset``, where
    others stop at the latest. Nothing from there on is emitted. None: never."""
    ignore_stored_offset: bool = False
    """True: begin at ``start_offset`` once in every run, whatever is stored (storm-kafka's ignoreZkOffsets)."""
    fail_on_data_loss: bool = True
    """True: stop and name unread records that are gone. False: log and count them, and go on."""
    on_poison: str = STOP
    """For a record that cannot be decoded, gives a tuple that cannot be emitted, or failed more than ``retry_limit``
    times: "stop" the run with its coordinates, "skip" it, logged and counted, or write it to ``dead_letter_topic``
    ("dead-letter")."""
    dead_letter_topic: str = ""
    """The topic for records that were given up, with "dead-letter". It must exist, on the same brokers."""

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
    """Milliseconds of silence after which the group, or ZooKeeper, gives a task's place to others. The next run waits
    as long after a run that was killed whole. A task that gets no answer for 0.9 of it pauses."""
    client_id: str = "streamlet"
    client_rack: str = ""
    """Where the workers stand, as ``broker.rack`` names it: a leader may then name a replica there to read from
    (KIP-392). Empty: records come from leaders."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        "group_id": "id",
        "bootstrap_servers": "hosts, with KafkaHosts around the addresses,",
        "auto_offset_reset": "start_offset",
        "first_poll_offset_strategy": "start_offset",
        "offset_commit_period_ms": "state_update_interval_ms",
        "auto_commit_interval_ms": "state_update_interval_ms",
        "max_poll_records": "records_per_turn",
        "translator": "scheme",
    }
    """What Kafka's clients and storm-kafka-client call some of these settings."""

    def __post_init__(self) -> None:
        self._check_topics()
        self._check_names()
        object.__setattr__(self, "zk_root", self.zk_root.rstrip("/"))
        object.__setattr__(self, "scheme", made_of(self.scheme))
        refuse_all((*self._wrong_numbers(), *self._wrong_choices(), *self._wrong_schemes()))
        for scheme in self.scheme.values() if isinstance(self.scheme, Mapping) else (self.scheme,):
            if not (callable(scheme) or hasattr(scheme, "deserialize")):
                as_scheme(scheme)
        check_security(self)

    def security(self) -> dict[str, Any]:
        """Return ``security_protocol`` and the other security settings, for a client."""
        return security_of(self)

    # -- derived from the settings --------------------------------------------------------------------------

    def choice(self) -> ChosenTopics:
        """Return the topics to read."""
        names = (self.topic,) if self.topic else tuple(self.topics)
        return ChosenTopics(names, self.topics_pattern, several=not self.topic)

    def schemes(self, outputs: Any = None) -> dict[str, Scheme] | Scheme:
        """Return the scheme, or that of each topic. ``outputs``: as in ``KafkaSpout.spec``. Raises SettingError."""
        if not isinstance(self.scheme, Mapping):
            return as_scheme(self.scheme, outputs)
        schemes: dict[str, Scheme] = {}
        for topic, scheme in self.scheme.items():
            stream = self.streams.get(topic, DEFAULT_STREAM)
            schemes[topic] = as_scheme(scheme, _fields_of(stream, outputs))
        return schemes

    def outputs(self, outputs: Any = None) -> list[str] | list[Stream]:
        """Return the tuples' fields, or streams where there are several. Raises SettingError."""
        schemes = self.schemes(outputs)
        fields: dict[str, tuple[str, list[str]]] = {}
        for topic in self.choice().names or ("",):
            stream = self.streams.get(topic, DEFAULT_STREAM)
            mine = list((schemes[topic] if isinstance(schemes, dict) else schemes).outputs)
            other, known = fields.setdefault(stream, (topic, mine))
            if known != mine:
                raise SettingError(
                    f"SpoutConfig for {self.choice()}: tuples of topic {topic!r} have the fields {', '.join(mine)}, "
                    f"those of topic {other!r} have {', '.join(known)}, and both go to one stream. Give their schemes "
                    f"the same fields, or one of the topics a stream of its own: streams={{{topic!r}: 'name'}}."
                )
        if list(fields) == [DEFAULT_STREAM]:
            return fields[DEFAULT_STREAM][1]
        return [Stream(names, name=stream) for stream, (_, names) in fields.items()]

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

    def store_servers(self) -> str:
        """Return a name of the servers that keep the offsets."""
        store = self.offsets()
        return f"ZooKeeper {store.servers}" if isinstance(store, ZkOffsets) else f"Kafka {self.hosts}"

    def start_place(self, partition: Partition) -> ReadPlace:
        """Return where a partition begins when nothing is stored of it."""
        return place_in(self.start_offset, partition, EARLIEST)

    def start_policy(self, partition: Partition) -> StartPolicy:
        """Return ``start_offset`` and ``ignore_stored_offset`` for the start decision."""
        place = self.start_place(partition)
        return StartPolicy(place.where, self.ignore_stored_offset, place.number)

    def stop_place(self, partition: Partition) -> ReadPlace | None:
        """Return where a partition stops; None: never."""
        return None if self.stop_offset is None else place_in(self.stop_offset, partition, LATEST)

    def retry_backoff(self) -> Backoff:
        """Return the pauses between retries, in seconds."""
        return Backoff(self.retry_initial_delay_ms / 1e3, self.retry_delay_max_ms / 1e3, self.retry_delay_multiplier)

    def with_text(self, overrides: Mapping[str, Any]) -> SpoutConfig:
        """Return a copy with settings replaced; values may be text (``-c lines.fetch_size_bytes=65536``)."""
        given = {name: _read(name, value) for name, value in overrides.items()}
        if given.keys() & _TOPIC_KEYS:
            # One way to name topics takes the place of another: the file's own would contradict it.
            given = {"topic": "", "topics": (), "topics_pattern": "", **given}
        if isinstance(given.get("hosts"), str):
            given["hosts"] = hosts_from_text(given["hosts"], self.hosts)
        return dataclasses.replace(self, **given)

    # -- checks ---------------------------------------------------------------------------------------------

    def _check_topics(self) -> None:
        if not isinstance(self.topic, str):
            raise SettingError(f"SpoutConfig: topic is {self.topic!r}; it is the name of the Kafka topic to read.")
        if isinstance(self.topics, str) or not isinstance(self.topics, Sequence):
            raise SettingError(f'SpoutConfig: topics is {self.topics!r}; it is a list of names: topics=["a", "b"].')
        object.__setattr__(self, "topics", tuple(self.topics))
        given = [name for name in ("topic", "topics", "topics_pattern") if getattr(self, name)]
        if not given:
            raise SettingError(
                f"SpoutConfig: topic is {self.topic!r}; it is the name of the Kafka topic to read. Several are read "
                'with topics=["a", "b"], or with topics_pattern="orders-.*".'
            )
        if len(given) > 1:
            raise SettingError(
                f"SpoutConfig: {' and '.join(given)} are given. One of topic, topics and topics_pattern says what to "
                "read: leave the others out."
            )
        odd = next((name for name in self.topics if not isinstance(name, str) or not name), None)
        if odd is not None or len(set(self.topics)) < len(self.topics):
            what = "a name twice" if odd is None else f"{odd!r}"
            raise SettingError(f"SpoutConfig: topics holds {what}; it is a list of different names of Kafka topics.")
        for name in (self.topic,) if self.topic else self.topics:
            if not is_topic_name(name):
                raise SettingError(f"SpoutConfig: {name!r} is a name that no topic of Kafka can have. {TOPIC_NAMES}.")
        try:
            re.compile(self.topics_pattern)
        except (re.error, TypeError) as error:
            raise SettingError(
                f"SpoutConfig: topics_pattern is {self.topics_pattern!r}, which is not a regular expression ({error}). "
                'Write one that matches whole names: topics_pattern="orders-.*".'
            ) from error

    def _check_names(self) -> None:
        if not isinstance(self.hosts, (StaticHosts, ZkHosts, KafkaHosts)):
            raise SettingError(
                f"SpoutConfig: hosts is {self.hosts!r}. It is ZkHosts(...), KafkaHosts(...) or StaticHosts(...)."
            )
        if not isinstance(self.id, str) or not self.id or "/" in self.id or self.id in (".", ".."):
            raise SettingError(
                f"SpoutConfig for {self.choice()}: id is {self.id!r}. Progress is kept under this name, so each "
                "spout needs one of its own: a word without slashes that stays the same from run to run."
            )
        if not isinstance(self.zk_root, str):
            raise SettingError(f'SpoutConfig: zk_root is {self.zk_root!r}; it is a path such as "/streamlet".')
        if isinstance(self.hosts, StaticHosts) and not self.topic:
            raise SettingError(
                f"SpoutConfig for {self.choice()}: StaticHosts names partitions by their numbers, so it is for one "
                "topic. Find the brokers with KafkaHosts or ZkHosts, or give each topic a spout of its own."
            )
        if isinstance(self.hosts, StaticHosts) and self.offset_store is None:
            raise SettingError(
                f"SpoutConfig for {self.choice()}: StaticHosts does not say where offsets are kept. Name it: "
                'offset_store=ZkOffsets("zk1:2181") or offset_store=GroupOffsets().'
            )
        store = self.offsets()
        if isinstance(store, ZkOffsets):
            if not store.servers:
                raise SettingError(
                    f"SpoutConfig for {self.choice()}: the offsets are to live in ZooKeeper, but in which? "
                    'Write offset_store=ZkOffsets("zk1:2181,zk2:2181").'
                )
            segments = self.zk_root.rstrip("/").split("/")[1:]
            if not self.zk_root.startswith("/") or any(part in ("", ".", "..") for part in segments):
                raise SettingError(
                    f"SpoutConfig for {self.choice()}: zk_root is {self.zk_root!r}. The offsets live in "
                    'ZooKeeper under zk_root/id, so it is a path such as "/streamlet".'
                )
            if OWNERS in self.topics:
                raise SettingError(
                    f"SpoutConfig for {self.choice()}: with several topics and offsets in ZooKeeper none can be "
                    f"named {OWNERS!r}, for zk_root/id/{OWNERS} names the tasks that read. Give that topic a spout of "
                    "its own, or keep the offsets in a consumer group: offset_store=GroupOffsets()."
                )

    def _wrong_numbers(self) -> Iterator[str]:
        alone = list(self._numbers_out_of_range())
        yield from alone
        if alone:  # what is compared below has to be numbers
            return
        pace: Any = self.retry_delay_multiplier
        if not isinstance(pace, (int, float)):
            yield self._wrong("retry_delay_multiplier", "it is a number of at least 1")
        elif not pace >= 1:
            yield self._wrong("retry_delay_multiplier", "below 1 the pauses would shrink")
        if self.retry_delay_max_ms < self.retry_initial_delay_ms:
            yield self._wrong("retry_delay_max_ms", f"retry_initial_delay_ms is more: {self.retry_initial_delay_ms}")
        if self.buffer_size_bytes < self.fetch_size_bytes:
            yield self._wrong(
                "buffer_size_bytes", f"it cannot hold one fetch of fetch_size_bytes={self.fetch_size_bytes}"
            )
        if self.fetch_min_bytes > self.fetch_size_bytes:
            yield self._wrong("fetch_min_bytes", f"a fetch brings at most fetch_size_bytes={self.fetch_size_bytes}")
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            yield self._wrong(
                "fetch_max_wait_ms",
                f"a quiet topic would look like a dead broker after request_timeout_ms={self.request_timeout_ms}",
            )

    def _numbers_out_of_range(self) -> Iterator[str]:
        for name, minimum in _LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
                yield self._wrong(name, f"it is a whole number of at least {minimum}")
            elif value > _MOST:
                yield self._wrong(name, f"it is a whole number of at most {_MOST}")

    def _wrong_choices(self) -> Iterator[str]:
        if self.on_poison not in (STOP, SKIP, DEAD_LETTER):
            yield self._wrong("on_poison", f'it is "{STOP}", "{SKIP}" or "{DEAD_LETTER}"')
        letters: Any = self.dead_letter_topic
        if not isinstance(letters, str):
            yield self._wrong("dead_letter_topic", "it is the name of a topic")
        elif self.on_poison == DEAD_LETTER and not letters:
            yield self._wrong("dead_letter_topic", f'on_poison="{DEAD_LETTER}" needs the name of a topic')
        elif letters and not is_topic_name(letters):
            yield self._wrong("dead_letter_topic", f"no topic of Kafka can have that name. {TOPIC_NAMES}")
        elif letters and self.choice().takes(letters):
            reads = "it is the topic that the spout reads" if self.topic else f"the spout reads {self.choice()}"
            yield self._wrong("dead_letter_topic", f"{reads}, and each letter would come back")
        for name in ("client_id", "client_rack"):
            if not isinstance(getattr(self, name), str):
                yield self._wrong(name, "it is a text")
        for name in ("ignore_stored_offset", "fail_on_data_loss"):
            if not isinstance(getattr(self, name), bool):
                yield self._wrong(name, "it is True or False")
        for name, ends in (("start_offset", (EARLIEST, LATEST)), ("stop_offset", (LATEST,))):
            place = getattr(self, name)
            wrong = None if place is None and name == "stop_offset" else wrong_place(place, ends, self.choice())
            if wrong is not None:
                yield self._wrong(name, wrong)
                return
        wrong = wrong_bounds(self.start_offset, self.stop_offset)
        if wrong is not None:
            yield self._wrong("stop_offset", wrong)

    def _wrong_schemes(self) -> Iterator[str]:
        """Yield what does not fit between topics, schemes and streams."""
        names = set(self.topics)
        if isinstance(self.scheme, Mapping):
            if not names:
                yield self._wrong_dict(
                    "needs `topics`: it gives each of `topics` its scheme; any scheme sees record.topic"
                )
            for topic in sorted(names - self.scheme.keys()) if names else ():
                yield self._wrong_dict(f"has none for topic {topic!r}")
            for topic in sorted(self.scheme.keys() - names, key=str) if names else ():
                yield self._wrong_dict(f"has one for topic {topic!r}, and the spout does not read topic {topic!r}")
        streams: Any = self.streams
        if not isinstance(streams, Mapping):
            yield self._wrong("streams", 'it is a dict of topics and names of streams: {"orders": "orders"}')
            return
        for topic, stream in streams.items():
            if topic not in names:
                yield self._wrong("streams", f"{topic!r} is none of `topics`")
            elif not isinstance(stream, str) or not stream:
                yield self._wrong("streams", f"topic {topic!r} has no name of a stream")

    def _wrong_dict(self, why: str) -> str:
        # Without the schemes themselves: most of them show as an address.
        return f"SpoutConfig for {self.choice()}: scheme, a dict for {named(map(str, self.scheme))}, {why}."

    def _wrong(self, name: str, why: str) -> str:
        return f"SpoutConfig for {self.choice()}: {name} cannot be {getattr(self, name)!r}: {why}."


def _fields_of(stream: str, outputs: Any) -> Any:
    """Return the fields that ``KafkaSpout.spec(outputs=...)`` names for a stream."""
    if isinstance(outputs, Sequence) and any(isinstance(one, Stream) for one in outputs):
        return next((list(one.fields) for one in outputs if isinstance(one, Stream) and one.name == stream), None)
    return outputs


TOPIC_NAMES = "A name has at most 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', and is not '.' or '..'"


def is_topic_name(name: str) -> bool:
    """Tell whether a Kafka topic can have a name."""
    return name not in (".", "..") and re.fullmatch("[A-Za-z0-9._-]{1,249}", name) is not None


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

_PLACES = frozenset({"start_offset", "stop_offset"})
"""The settings that name a place in the log."""

_TOPIC_KEYS = frozenset({"topic", "topics", "topics_pattern"})
"""The settings that name topics; one of them is given."""

# No passwords: every user of a machine can read its command lines.
_TEXT_KEYS = (
    frozenset(f.name for f in dataclasses.fields(SpoutConfig))
    - {"scheme", "streams", "offset_store"}
    - SECRETS
    - OBJECTS
)


def topology_names() -> frozenset[str]:
    """Return the other settings, which the topology alone can set."""
    return frozenset(f.name for f in dataclasses.fields(SpoutConfig)) - _TEXT_KEYS


def override_names() -> frozenset[str]:
    """Return the settings that a command line can give as text."""
    return _TEXT_KEYS


def _read(name: str, value: Any) -> Any:
    if name in _PLACES:
        return _read_place(name, value)
    if not isinstance(value, str):
        return value
    kinds = {f.name: f.type for f in dataclasses.fields(SpoutConfig)}
    kind = kinds[name]
    try:
        if kind == "int":
            return int(value)
        if kind == "float":
            return float(value)
    except ValueError:
        wanted = f"a whole number of at least {_LEAST.get(name, 0)}" if kind == "int" else "a number"
        raise SettingError(f"SpoutConfig: {name} cannot be {value!r}: it is {wanted}.") from None
    if name == "topics":
        return tuple(one.strip() for one in value.split(",") if one.strip())
    if kind == "bool":
        if value.lower() not in ("true", "false"):
            raise SettingError(f"SpoutConfig: {name} cannot be {value!r}: it is true or false.")
        return value.lower() == "true"
    return value


def _read_place(name: str, value: Any) -> Any:
    try:
        return places_given(value)
    except (ValueError, RecursionError) as error:
        raise SettingError(
            f"SpoutConfig: {name} cannot be {shortened(value)}: {error}. A dict by partition is JSON here, in quotes "
            'for the shell: \'{"0": 20}\', or \'{"TOPIC": {"0": 20}}\' where there are several topics.'
        ) from None
