"""Options of the format, under the names of Spark's own Kafka connector. Pure."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any

from streamlet.base.errors import BadInput
from streamlet.kafka.admin.admin import AdminConfig
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.producer.producer_config import ProducerConfig
from streamlet.kafka.settings.client_config import ClientConfig

FORMAT = "streamlet-kafka"
EARLIEST = -2
LATEST = -1
_LONG_MAX = (1 << 63) - 1


class Use(Enum):
    """What a DataFrame's reader or writer is asked to do."""

    BATCH_READ = "read"
    STREAM_READ = "readStream"
    BATCH_WRITE = "write"
    STREAM_WRITE = "writeStream"


_READS = (Use.BATCH_READ, Use.STREAM_READ)
_WRITES = (Use.BATCH_WRITE, Use.STREAM_WRITE)
_ALL = tuple(Use)

OPTIONS: Mapping[str, tuple[Use, ...]] = {
    "assign": _READS,
    "subscribe": _READS,
    "subscribePattern": _READS,
    "startingTimestamp": _READS,
    "startingOffsetsByTimestamp": _READS,
    "startingOffsets": _READS,
    "startingOffsetsByTimestampStrategy": _READS,
    "endingTimestamp": (Use.BATCH_READ,),
    "endingOffsetsByTimestamp": (Use.BATCH_READ,),
    "endingOffsets": (Use.BATCH_READ,),
    "failOnDataLoss": _READS,
    "kafkaConsumer.pollTimeoutMs": _READS,
    "maxOffsetsPerTrigger": (Use.STREAM_READ,),
    "minOffsetsPerTrigger": (Use.STREAM_READ,),
    "maxTriggerDelay": (Use.STREAM_READ,),
    "minPartitions": _READS,
    "maxRecordsPerPartition": _READS,
    "includeHeaders": _ALL,
    "groupIdPrefix": _ALL,
    "kafka.group.id": _READS,
    "topic": _WRITES,
}
"""Each option beside ``kafka.*``, and where it is taken; `streamlet docs spark-options` has their meaning."""

REFUSED: Mapping[str, str] = {
    "fetchOffset.numRetries": "offsets are looked up again until kafka.default.api.timeout.ms is over; set that one",
    "fetchOffset.retryIntervalMs": "pauses between two look-ups are kafka.retry.backoff.ms; set that one",
    "path": "a topic is named by subscribe, subscribePattern or assign for reading, by topic for writing",
    "kafka.auto.offset.reset": "where to begin is said by startingOffsets",
    "kafka.key.deserializer": "keys are always bytes: cast the column",
    "kafka.value.deserializer": "values are always bytes: cast the column",
    "kafka.key.serializer": "keys are always bytes or text: cast the column",
    "kafka.value.serializer": "values are always bytes or text: cast the column",
    "kafka.enable.auto.commit": "offsets are kept in the query's checkpoint, and none are committed to a group",
    "kafka.interceptor.classes": "Java classes cannot be loaded here",
    "kafka.partitioner.class": "Java classes cannot be loaded here; kafka.partitioner takes 'murmur2' and other names",
    "kafka.transactional.id": "a stream's transactions are named after query and partition; see groupIdPrefix",
}
"""Options that another connector has, or that would break this one, with what to do instead."""

_OF_SPARK = ("checkpointlocation", "queryname", "outputmode", "triggerinterval", "sourcename")
"""Options of Spark's own writers that reach a data source beside its own."""


@dataclass(frozen=True, slots=True)
class PlaceInLogs:
    """Where to begin or end: one word, offset or time for all partitions, or one for each.

    ``everywhere``: EARLIEST, LATEST or, ``by_time``, ms since 1970; None: only ``partitions`` counts.
    """

    everywhere: int | None = None
    partitions: Mapping[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    by_time: bool = False
    option: str = ""


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """The partitions that are read; exactly one of the three is given."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Checked options of a read. ``client``: settings of our consumer by name."""

    topics: TopicChoice
    start: PlaceInLogs
    end: PlaceInLogs
    time_strategy: str
    fail_on_data_loss: bool
    poll_timeout_ms: int
    max_offsets: int | None
    min_offsets: int | None
    max_delay_s: float
    min_partitions: int | None
    max_records: int | None
    include_headers: bool
    client: Mapping[str, Any] = dataclasses.field(repr=False)

    @property
    def admin(self) -> dict[str, Any]:
        """The client settings that an administrator takes too."""
        return {name: value for name, value in self.client.items() if name in _names(AdminConfig)}

    @property
    def isolation_level(self) -> str:
        """The consumer's isolation level, by default Kafka's own."""
        return str(self.client.get("isolation_level", "read_uncommitted"))


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Checked options of a write. ``client``: settings of our producer by name."""

    topic: str | None
    include_headers: bool
    prefix: str
    client: Mapping[str, Any] = dataclasses.field(repr=False)


def read_options(given: Mapping[str, str], use: Use) -> SourceOptions:
    """Return the options of a read. Raises BadInput, naming the first wrong one."""
    options = _checked(given, use)
    topics = _topics(options)
    start = _starting(options, use)
    end = _ending(options)
    if use is Use.BATCH_READ:
        _refuse_latest(start)
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise BadInput(f"startingOffsetsByTimestampStrategy = {strategy!r} is not possible: write 'error' or 'latest'.")
    most, least = _whole(options, "maxOffsetsPerTrigger", 1), _whole(options, "minOffsetsPerTrigger", 1)
    if most is not None and least is not None and least > most:
        raise BadInput(
            f"minOffsetsPerTrigger = {least} is more than maxOffsetsPerTrigger = {most}, so no batch could have both: "
            "lower the first or raise the second."
        )
    client = client_settings(given, ConsumerConfig, "reading")
    return SourceOptions(
        topics,
        start,
        end,
        strategy,
        _flag(options, "failOnDataLoss", True),
        _whole(options, "kafkaConsumer.pollTimeoutMs", 1) or 120_000,
        most,
        least,
        duration_s(options.get("maxtriggerdelay", "15m"), "maxTriggerDelay"),
        _whole(options, "minPartitions", 1),
        _whole(options, "maxRecordsPerPartition", 1),
        _flag(options, "includeHeaders", False),
        client,
    )


def write_options(given: Mapping[str, str], use: Use) -> SinkOptions:
    """Return the options of a write. Raises BadInput, naming the first wrong one."""
    options = _checked(given, use)
    topic = options["topic"].strip() if "topic" in options else None
    if topic == "":
        raise BadInput("topic = '' names no topic: give a name, or leave it out and have a column `topic`.")
    client = client_settings(given, ProducerConfig, "writing")
    if use is Use.STREAM_WRITE:
        _refuse_without_transactions(client)
    return SinkOptions(
        topic, _flag(options, "includeHeaders", False), options.get("groupidprefix", "streamlet-spark"), client
    )


# -- names -----------------------------------------------------------------------------------------------------------


def _checked(given: Mapping[str, str], use: Use) -> dict[str, str]:
    """Return the options by lower-case name, as Spark hands them on. Refuses others."""
    known = {name.lower(): name for name in OPTIONS}
    refused = {name.lower(): name for name in REFUSED}
    found: dict[str, str] = {}
    for written, value in given.items():
        low = written.lower()
        if low in refused:
            raise BadInput(f"{refused[low]!r} is not an option of {FORMAT!r}: {REFUSED[refused[low]]}.")
        if low in known:
            uses = OPTIONS[known[low]]
            if use not in uses:
                where = " and ".join(each.value for each in uses)
                raise BadInput(
                    f"{known[low]!r} is an option of {where}, and this is {use.value}: leave it out here. "
                    f"`streamlet docs spark-options` lists them all."
                )
            found[low] = value
        elif not low.startswith("kafka.") and low not in _OF_SPARK:
            near = get_close_matches(written, OPTIONS, 1, 0.7)
            nearest = f"the nearest one is {near[0]!r}" if near else "a Kafka setting is written kafka.NAME"
            raise BadInput(
                f"Unknown option {written!r} of format {FORMAT!r}: {nearest}. `streamlet docs spark-options` lists "
                "them all."
            )
    return found


def _topics(options: Mapping[str, str]) -> TopicChoice:
    names = ("assign", "subscribe", "subscribePattern")
    given = [name for name in names if name.lower() in options]
    if len(given) != 1:
        said = f"{' and '.join(given)} are given" if given else "none is given"
        raise BadInput(f"Exactly one of assign, subscribe and subscribePattern says what is read, and {said}.")
    text = options[given[0].lower()]
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise BadInput(f"subscribe = {text!r} names no topic: write 'lines', or 'lines,words'.")
        return TopicChoice(names=topics)
    if given[0] == "subscribePattern":
        pattern = text.strip()
        if not pattern:
            raise BadInput(f"subscribePattern = {text!r} is empty: write 'lines', or '^lines-[0-9]+$'.")
        try:
            re.compile(pattern)
        except re.error as error:
            raise BadInput(f"subscribePattern = {text!r} is not a regular expression of Python's: {error}.") from None
        return TopicChoice(pattern=pattern)
    rows = _json(text, "assign", '{"lines":[0,1]}')
    assigned: list[tuple[str, int]] = []
    for topic, numbers in rows.items():
        if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
            raise BadInput(
                f"assign = {text!r}: write a list of partition numbers for each topic, " + '{"lines":[0,1]}.'
            )
        assigned += [(topic, number) for number in numbers]
    if not assigned:
        raise BadInput(f"assign = {text!r} names no partition: write " + '{"lines":[0,1]}.')
    return TopicChoice(assigned=tuple(dict.fromkeys(assigned)))


# -- where to begin and to end ---------------------------------------------------------------------------------------


def _starting(options: Mapping[str, str], use: Use) -> PlaceInLogs:
    # Spark's order: a time for all goes before a time for each, that before offsets.
    default = EARLIEST if use is Use.BATCH_READ else LATEST
    words = {"earliest": EARLIEST, "latest": LATEST}
    return _place(options, "starting", words, default, (LATEST, EARLIEST))


def _ending(options: Mapping[str, str]) -> PlaceInLogs:
    return _place(options, "ending", {"latest": LATEST}, LATEST, (LATEST,))


def _refuse_latest(start: PlaceInLogs) -> None:
    """Refuse a batch that begins where it ends. Raises BadInput."""
    if start.by_time:
        return
    if start.everywhere == LATEST:
        raise BadInput("startingOffsets = 'latest' would read nothing in a batch: write 'earliest', or JSON.")
    for (topic, number), offset in start.partitions.items():
        if offset == LATEST:
            raise BadInput(
                f"startingOffsets: -1 (the latest) would read nothing of partition {number} of topic {topic!r} in a "
                "batch: write -2 for the earliest, or an offset."
            )


def _place(
    options: Mapping[str, str], which: str, words: Mapping[str, int], default: int, special: tuple[int, ...]
) -> PlaceInLogs:
    by_time, by_times, by_offset = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    if (moment := _whole(options, by_time, 0)) is not None:
        return PlaceInLogs(everywhere=moment, by_time=True, option=by_time)
    if (text := options.get(by_times.lower())) is not None:
        return PlaceInLogs(partitions=_by_partition(text, by_times, 0, ()), by_time=True, option=by_times)
    text = options.get(by_offset.lower())
    if text is None:
        return PlaceInLogs(everywhere=default, option=by_offset)
    if (word := words.get(text.strip().lower())) is not None:
        return PlaceInLogs(everywhere=word, option=by_offset)
    if not text.lstrip().startswith("{"):
        raise BadInput(
            f"{by_offset} = {text!r} is not possible: write {' or '.join(words)}, or " + '{"lines":{"0":23}}.'
        )
    return PlaceInLogs(partitions=_by_partition(text, by_offset, 0, special), option=by_offset)


def _by_partition(text: str, option: str, least: int, special: tuple[int, ...]) -> dict[tuple[str, int], int]:
    """Return numbers by (topic, partition) from ``{"lines":{"0":23}}``."""
    found: dict[tuple[str, int], int] = {}
    example = '{"lines":{"0":23}}'
    for topic, rows in _json(text, option, example).items():
        if not isinstance(rows, dict):
            raise BadInput(f"{option} = {text!r}: write {example}, a number for each partition of {topic!r}.")
        for number, value in rows.items():
            if not number.isdigit() or type(value) is not int or not (least <= value <= _LONG_MAX or value in special):
                allowed = "".join(f", or {code} for {_WORD[code]}" for code in special)
                raise BadInput(
                    f"{option}: {number!r}: {value!r} of topic {topic!r} is not possible: write the partition's number "
                    f"and a whole number from {least}{allowed}."
                )
            found[topic, int(number)] = value
    return found


_WORD = {EARLIEST: "the earliest", LATEST: "the latest"}


def _json(text: str, option: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{option} = {text!r} is not JSON ({error}): write {example}.") from None
    if not isinstance(found, dict):
        raise BadInput(f"{option} = {text!r} is not a JSON object: write {example}.")
    return found


# -- values ----------------------------------------------------------------------------------------------------------


def _whole(options: Mapping[str, str], name: str, least: int) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < least:
        raise BadInput(f"{name} = {text!r} must be a whole number of at least {least}.")
    return int(text)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise BadInput(f"{name} = {text!r} must be true or false.")
    return text == "true"


_UNITS_S = {
    "ms": 0.001, "": 0.001, "us": 0.000_001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0,
}  # fmt: skip
"""Seconds of each unit."""


def duration_s(text: str, option: str) -> float:
    """Return the seconds of a duration as Spark writes it: ``15m``, ``90s``; no unit: ms."""
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if found is None or found[2] not in _UNITS_S:
        units = ", ".join(unit for unit in _UNITS_S if unit)
        raise BadInput(f"{option} = {text!r} is not a duration: write a whole number with one of {units}, as in 15m.")
    return int(found[1]) * _UNITS_S[found[2]]


# -- kafka.* ---------------------------------------------------------------------------------------------------------

_JAAS = re.compile(r"\s*[\w.]*\.(?:Plain|Scram|OAuthBearer)LoginModule\s+\w+\s+(.*?);?\s*", re.DOTALL)
_JAAS_ENTRY = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'|([^\s;]+))', re.DOTALL)
_GRANT = {
    "clientId": "sasl.oauthbearer.client.credentials.client.id",
    "clientSecret": "sasl.oauthbearer.client.credentials.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
"""Entries of OAuthBearerLoginModule, and the settings that took their place (KIP-1139)."""
_JAAS_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
"""Characters after a backslash, as Java's StreamTokenizer reads them. Others stand for themselves."""


def client_settings(given: Mapping[str, str], kind: type[ClientConfig], doing: str) -> dict[str, Any]:
    """Return the ``kafka.*`` options as settings of ``kind``, by name.

    Java's names for PEM files and for SASL's JAAS text are translated. Raises SettingError as that client does,
    BadInput where the addresses are missing.
    """
    raw = {name[len("kafka.") :].lower(): value for name, value in given.items() if name.lower().startswith("kafka.")}
    if "bootstrap.servers" not in raw:
        raise BadInput(
            f"kafka.bootstrap.servers is missing: {doing} needs at least one host:port of the cluster, as "
            '.option("kafka.bootstrap.servers", "host:9092").'
        )
    raw.pop("group.id", None)  # nothing is committed, and no group is joined
    kinds = {field.name: str(field.type) for field in dataclasses.fields(kind)}
    settings = {
        name: _typed(name, text, kinds.get(name.replace(".", "_"), "str")) for name, text in _own_names(raw).items()
    }
    _refuse_java_stores(raw)
    kind.of(settings)  # with the names as they were written, for its errors
    found = {name.replace(".", "_"): value for name, value in settings.items()}
    if kind is ConsumerConfig:
        found["auto_offset_reset"] = "none"  # a lost offset is told as lost data, never passed over in silence
    return found


def _refuse_without_transactions(client: Mapping[str, Any]) -> None:
    """Raise BadInput for a setting that rules out transactions."""
    # Rule: before the query has a task, by the name that was given. The producer of an epoch would refuse it for the
    # sake of a transactional id, which the user has not set and may not set.
    found = ProducerConfig.of(client).against_transactions()
    if found:
        name, value, need = found[0]
        raise BadInput(
            f"kafka.{name.replace('_', '.')} = {str(value).lower()} is not possible in {Use.STREAM_WRITE.value}: each "
            f"epoch is written in one transaction, which needs {need}. Leave the option out. A batch takes it: "
            "df.write, also within foreachBatch, which writes at least once."
        )


def _refuse_java_stores(raw: Mapping[str, str]) -> None:
    """Raise BadInput for a store in Java's own form."""
    for store in ("truststore", "keystore"):
        form = raw.get(f"ssl.{store}.type", "JKS").upper()
        if f"ssl.{store}.location" in raw and form != "PEM":
            raise BadInput(
                f"kafka.ssl.{store}.location names a store of type {form}, which only Java can read. Write it as PEM "
                f"(keytool and openssl do that), and say kafka.ssl.{store}.type = PEM."
            )


def _own_names(raw: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with Java's security names replaced by ours."""
    found = dict(raw)
    for store, name in (("truststore", "ssl.cafile"), ("keystore", "ssl.certfile")):
        form = found.pop(f"ssl.{store}.type", "JKS")
        if f"ssl.{store}.location" in found and form.upper() == "PEM":
            found[name] = found.pop(f"ssl.{store}.location")
    if "ssl.key.password" in found:
        found["ssl.password"] = found.pop("ssl.key.password")
    if "ssl.endpoint.identification.algorithm" in found:
        checks = bool(found.pop("ssl.endpoint.identification.algorithm").strip())
        found["ssl.check.hostname"] = str(checks).lower()
    # Java's own handler of client credentials: what it does is done here by itself.
    if found.get("sasl.login.callback.handler.class", "").endswith(".OAuthBearerLoginCallbackHandler"):
        del found["sasl.login.callback.handler.class"]
    if (text := found.pop("sasl.jaas.config", None)) is not None:
        module = _JAAS.fullmatch(text)
        entries = {} if module is None else _jaas_entries(module[1])
        if found.get("sasl.mechanism") == "OAUTHBEARER" and module is not None:
            found.update((_GRANT[name], value) for name, value in entries.items() if name in _GRANT)
            return found
        if not {"username", "password"} <= entries.keys():
            raise BadInput(
                "kafka.sasl.jaas.config cannot be used: only PlainLoginModule and ScramLoginModule with username and "
                "password are known here. Write org.apache.kafka.common.security.scram.ScramLoginModule required "
                'username="..." password="...";'
            )
        found["sasl.plain.username"], found["sasl.plain.password"] = entries["username"], entries["password"]
    return found


def _jaas_entries(text: str) -> dict[str, str]:
    """Return a login module's values by name, without quotes and escapes."""
    return {
        name: bare or re.sub(r"\\(.)", lambda found: _JAAS_ESCAPES.get(found[1], found[1]), double or single)
        for name, double, single, bare in _JAAS_ENTRY.findall(text)
    }


def _typed(name: str, text: str, annotation: str) -> Any:  # Any: as the setting's annotation says
    read: Callable[[str], Any] = str
    first = annotation.partition(" | ")[0]
    if first == "int" and annotation in ("int", "int | None", "int | str"):
        read = int
    elif first == "bool":
        read = _BOOLEANS.__getitem__
    try:
        return read(text.strip().lower()) if read is not str else text
    except (ValueError, KeyError):
        if annotation == "int | str":
            return text
        wanted = "a whole number" if read is int else "true or false"
        raise BadInput(f"kafka.{name} = {text!r} must be {wanted}.") from None


_BOOLEANS = {"true": True, "false": False}


def _names(kind: type[ClientConfig]) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(kind))
