"""The settings of a KafkaBolt: what a record is made of, and the producer's own by their names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from streamlet.base.errors import SettingError, refuse_all
from streamlet.bolts.kafka.record_maker import RecordMaker, serializer
from streamlet.kafka.arguments import check_topic
from streamlet.kafka.broker_errors import InvalidTopic
from streamlet.kafka.producer import ProducerConfig
from streamlet.kafka.settings.security import OBJECTS, SECRETS

_OTHERS = {
    "bootstrap_servers": 'the bolt\'s brokers are its hosts: hosts="kafka://kafka1:9092,kafka2:9092"',
}
"""Settings of a producer that a KafkaBolt refuses, and why."""

_SERIALIZERS = ("key_serializer", "value_serializer")


@dataclass(frozen=True)
class KafkaBoltConfig:
    """The settings of one KafkaBolt, as ``KafkaBolt.spec`` takes them. Raises SettingError for a wrong one.

    Where a record gets something from is the name of a field, or a function of the tuple.
    """

    hosts: Any = None
    """Bootstrap servers: ``"kafka://kafka1:9092,kafka2:9092"``, the same without ``kafka://``, or a KafkaHosts."""
    topic: Any = None
    """The topic's name, or a function of the tuple that gives it; None from it skips the tuple."""
    topic_field: str | None = None
    """The field that has the topic's name, in place of ``topic``."""
    key: Any = None
    """None: no key."""
    value: Any = None
    """None: the stream's only field. A value that is None is written as a tombstone."""
    headers: Any = None
    """``{"name": field or function}``, a list of such pairs, or a function that returns a dict or pairs."""
    partition: Any = None
    """None: the producer's partitioner chooses."""
    timestamp_ms: Any = None
    """Milliseconds since 1970. None: the time of sending."""
    key_serializer: Any = None
    value_serializer: Any = None
    """"plain" (bytes as they are, text as UTF-8, anything else as JSON), "json", "bytes", or a function."""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)  # there may be a password among them
    """The producer's settings but for those above."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", dict(self.settings))
        refuse_all(f"KafkaBolt: {problem}" for problem in self._problems())

    # -- derived from the settings --------------------------------------------------------------------------

    @property
    def servers(self) -> tuple[str, ...]:
        """The bootstrap servers. Raises SettingError."""
        given = getattr(self.hosts, "bootstrap_servers", self.hosts)
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, Sequence) or not texts or not all(isinstance(text, str) for text in texts):
            raise SettingError(
                f"hosts is {self.hosts!r}. It is the brokers to write to: "
                'hosts="kafka://kafka1:9092,kafka2:9092"; one that answers is enough. A ZooKeeper names no brokers to '
                "a producer."
            )
        return tuple(text.removeprefix("kafka://") for text in texts)

    def producer_settings(self, transactional_id: str | None = None) -> dict[str, Any]:
        """Return the producer's settings; ``transactional_id``: for one that has none of its user's."""
        own = {} if transactional_id is None else {"transactional_id": transactional_id}
        return {**own, **self.settings, "bootstrap_servers": list(self.servers)}

    def producer_config(self, transactional_id: str | None = None) -> ProducerConfig:
        """Return the producer's settings, checked. Raises SettingError."""
        try:
            return ProducerConfig.of(self.producer_settings(transactional_id))
        except SettingError as error:
            raise SettingError(f"KafkaBolt: {error.message}") from None

    @property
    def where(self) -> str:
        """Return what the bolt writes to, for a message."""
        if isinstance(self.topic, str):
            return f"topic {self.topic!r}"
        return "the topics that " + (
            f"the field {self.topic_field!r} names" if self.topic_field else "a function names"
        )

    def record_maker(self) -> RecordMaker:
        """Return what makes records by these settings."""
        return RecordMaker(
            topic=self.topic if isinstance(self.topic, str) else None,
            topics=self.topic_field or (self.topic if callable(self.topic) else None),
            key=self.key,
            value=self.value,
            headers=self.headers if self.headers is None or callable(self.headers) else _pairs(self.headers),
            partition=self.partition,
            timestamp=self.timestamp_ms,
            key_serializer=serializer("key_serializer", self.key_serializer),
            value_serializer=serializer("value_serializer", self.value_serializer),
        )

    def fields_named(self) -> Iterator[tuple[str, str]]:
        """Yield (setting, field) of each field that a record is made of."""
        for name in ("topic_field", "key", "value", "partition", "timestamp_ms"):
            if isinstance(getattr(self, name), str):
                yield name, getattr(self, name)
        for header, source in () if callable(self.headers) else _pairs(self.headers):
            if isinstance(source, str):
                yield f"the header {header!r}", source

    def with_text(self, overrides: Mapping[str, Any]) -> KafkaBoltConfig:
        """Return a copy with settings replaced; values may be text (``-c out.linger_ms=5``)."""
        own = {name: value for name, value in overrides.items() if name in _OWN_KEYS}
        if "topic" in own:
            own.setdefault("topic_field", None)
        elif "topic_field" in own:
            own["topic"] = None
        more = {name: _read(name, value) for name, value in overrides.items() if name not in _OWN_KEYS}
        return dataclasses.replace(self, **own, settings={**self.settings, **more})

    # -- checks ---------------------------------------------------------------------------------------------

    def _problems(self) -> Iterator[str]:
        yield from self._topic_problems()
        yield from self._source_problems()
        for name in _SERIALIZERS:
            yield from _refusal(partial(serializer, name, getattr(self, name)))
        for name, why in _OTHERS.items():
            if name in self.settings:
                yield f"{name} cannot be set: {why}."
        wrong_hosts = list(_refusal(lambda: self.servers))
        yield from wrong_hosts
        servers = ["127.0.0.1:9092"] if wrong_hosts else list(self.servers)
        yield from _producer_problems({name: self.settings[name] for name in self.settings.keys() - _OTHERS}, servers)

    def _topic_problems(self) -> Iterator[str]:
        if (self.topic is None) == (self.topic_field is None):
            both = "both topic and topic_field are" if self.topic is not None else "neither topic nor topic_field is"
            yield (
                f'{both} given. Write topic="counts" for one topic, topic_field="where" for the field that has each '
                "tuple's, or topic=a_function of the tuple."
            )
        if not callable(self.topic) and (self.topic == "" or not isinstance(self.topic, (str, type(None)))):
            yield f"topic is {self.topic!r}; it is the name of a topic, or a function."
        elif isinstance(self.topic, str):
            try:
                check_topic(self.topic)
            except InvalidTopic as error:
                yield error.message

    def _source_problems(self) -> Iterator[str]:
        for name in ("topic_field", "key", "value", "partition", "timestamp_ms"):
            given = getattr(self, name)
            if not (given is None or (isinstance(given, str) and given) or (callable(given) and name != "topic_field")):
                wanted = _WANTED if name != "topic_field" else "it is the name of a field; a function goes into `topic`"
                yield f"{name} is {given!r}; {wanted}."
        headers = self.headers
        if headers is None or callable(headers):
            return
        rows = _pairs(headers)
        if not isinstance(rows, (list, tuple)) or not all(map(_is_header, rows)):
            yield (
                f'headers is {headers!r}; it is a dict such as {{"source": "name of a field"}}, a list of such pairs, '
                "or a function of the tuple that returns one of the two with the headers' values."
            )


def _refusal(act: Callable[[], object]) -> Iterator[str]:
    try:
        act()
    except SettingError as error:
        yield error.message


def _producer_problems(settings: dict[str, Any], servers: list[str]) -> Iterator[str]:
    """Yield each problem of a producer's settings; it tells one at a time."""
    removed: set[str] = set()
    while found := list(_refusal(partial(ProducerConfig.of, {**settings, "bootstrap_servers": servers}))):
        words = set(re.findall(r"\w+", found[0]))
        # A setting that was taken out has its default now: what is said of it with that is not true.
        if words & removed:
            return
        yield found[0]
        named = words & settings.keys()
        if not named:
            return
        removed |= named
        settings = {name: value for name, value in settings.items() if name not in named}


_WANTED = "it is the name of a field, or a function of the tuple"


def _pairs(headers: Any) -> Any:
    return list(headers.items()) if isinstance(headers, Mapping) else headers or ()


def _is_header(row: object) -> bool:
    if not isinstance(row, (list, tuple)) or len(row) != 2 or not isinstance(row[0], str):
        return False
    return isinstance(row[1], str) or callable(row[1])


# -- the command line ------------------------------------------------------------------------------------------------

_OWN_KEYS = frozenset(f.name for f in dataclasses.fields(KafkaBoltConfig)) - {"headers", "settings"}
_KINDS = {f.name: str(f.type) for f in dataclasses.fields(ProducerConfig)}
# No passwords: every user of a machine can read its command lines.
_PRODUCER_KEYS = frozenset(_KINDS) - {"partitioner", *_OTHERS, *_SERIALIZERS} - SECRETS - OBJECTS


def override_names() -> frozenset[str]:
    """Return the settings that a command line can give as text."""
    return _OWN_KEYS | _PRODUCER_KEYS


def topology_names() -> frozenset[str]:
    """Return the other settings, which the topology alone can set."""
    return frozenset({"headers", *_KINDS}) - {*_OTHERS} - override_names()


def _read(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    kind, _, optional = _KINDS[name].partition(" | ")
    if optional == "None" and value.lower() == "none":
        return None if kind != "str" or name != "compression_type" else value
    if kind == "int" and value.lstrip("-").isdigit():
        return int(value)
    if kind == "bool" and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return value


def wrong_fields(config: KafkaBoltConfig, sources: Sequence[tuple[str, Sequence[str]]]) -> Iterator[tuple[str, str]]:
    """Yield (problem, remedy) for each field that a stream does not have."""
    for name, fields in sources:
        has = ", ".join(map(repr, fields)) or "none"
        for setting, wanted in config.fields_named():
            if wanted not in fields:
                yield (
                    f"{setting} is the field {wanted!r}, and {name} has no such field. It has: {has}.",
                    f"Name one of its fields, or give {setting.removesuffix('_field')} a function of the tuple.",
                )
        if config.value is None and len(fields) != 1:
            yield (
                f"value is not given, and {name} has {len(fields)} fields: {has}.",
                'Say which one is the record\'s value, as in value="count", or give a function of the tuple.',
            )
