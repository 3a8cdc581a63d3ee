"""From a batch of tuples to the records made of it: keys, values, headers and places as columns. Pure.

A source of one of these is a field's name, or a function of the tuple. What cannot be made of a tuple fails that tuple
alone, so each column is tried as a whole first, and tuple by tuple only where that raised.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from streamlet.base.errors import SettingError, text_of
from streamlet.bolts.kafka.errors import RecordNotMade
from streamlet.components.batch import Batch
from streamlet.components.tuples import Tuple

Source = str | Callable[[Tuple], Any]
"""The name of a field, or a function of the tuple."""

T = TypeVar("T")

HeaderRows = list[tuple[str, bytes | None]]

NamedSerializer = Callable[[str, Any], bytes | None]
"""From (topic, value) to bytes; None stays None."""


# -- values as bytes -------------------------------------------------------------------------------------------------


def plain_bytes(value: Any) -> bytes | None:
    """Return bytes or None unchanged, text as UTF-8, the rest as JSON."""
    kind = value.__class__
    if kind is bytes or value is None:
        return value  # type: ignore[no-any-return]  # asked by its class, which is twice as fast as isinstance
    if kind is str:
        return value.encode()  # type: ignore[no-any-return]  # likewise
    if kind is int:  # as json.dumps writes it, in a tenth of the time
        return b"%d" % value
    # Rule: text of a subclass (a StrEnum, numpy's) is text, and bytes of one are bytes, whatever their `str` says. As
    # JSON the key would have quotes, and be in another partition than the one that every other writer gives it.
    if isinstance(value, str):
        return str.encode(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return as_json(value)


def as_json(value: Any) -> bytes | None:
    """Return JSON without blanks, UTF-8; None as None. Raises ValueError for a NaN, which is no JSON."""
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def only_bytes(value: Any) -> bytes | None:
    """Return bytes and None as they are. Raises TypeError for anything else."""
    if value is None or value.__class__ is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"it is a {type(value).__name__}, and the serializer is 'bytes'")


NAMED: Mapping[str, Callable[[Any], bytes | None]] = {"plain": plain_bytes, "json": as_json, "bytes": only_bytes}
"""The serializers that have a name."""


def serializer(name: str, given: object) -> NamedSerializer | None:
    """Return the serializer that a setting names or is; None for the plain one. Raises SettingError."""
    if given is None or given == "plain":
        return None
    if isinstance(given, str) and given in NAMED:
        convert = NAMED[given]
        return lambda _topic, value: convert(value)
    method = getattr(given, "serialize", None)
    if callable(method):
        return lambda topic, value: None if value is None else plain_bytes(method(topic, value))
    if callable(given):
        return lambda _topic, value: None if value is None else plain_bytes(given(value))
    raise SettingError(
        f"{name} cannot be {given!r}: it is one of {', '.join(map(repr, NAMED))}, a function of the value, "
        "or an object with a method serialize(topic, value)."
    )


# -- records ---------------------------------------------------------------------------------------------------------


class MadeRecord(NamedTuple):
    """One record as a test sees it; nothing of it was sent."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    """None: the producer's partitioner would choose."""
    timestamp_ms: int | None = None
    """None: the time of sending."""


@dataclass(slots=True)
class Records:
    """The records of one batch, by column; ``failed`` has tuples without one."""

    count: int
    topics: str | list[str | None] = ""
    """One for all, or one each; None: the tuple is to be skipped."""
    values: list[bytes | None] = field(default_factory=list)
    keys: list[bytes | None] | None = None
    headers: list[HeaderRows] | None = None
    partitions: list[int | None] | None = None
    timestamps: list[int | None] | None = None
    failed: dict[int, Exception] = field(default_factory=dict)
    """Place in the batch -> why there is no record."""
    without_topic: Set[int] = frozenset()
    """Places of tuples that are skipped, or whose topic failed: nothing is made of them."""

    @property
    def is_plain(self) -> bool:
        """Whether a record is only key and value: many fit into one call."""
        return self.headers is None and self.partitions is None and self.timestamps is None

    @property
    def skipped(self) -> int:
        """The number of tuples that are to be skipped."""
        topics = self.topics
        if isinstance(topics, str):
            return 0
        return sum(topic is None and at not in self.failed for at, topic in enumerate(topics))

    def left_out(self) -> list[int]:
        """Return the places of tuples that failed or are skipped."""
        if isinstance(self.topics, str):
            return sorted(self.failed)
        return [at for at, topic in enumerate(self.topics) if topic is None or at in self.failed]

    def each(self) -> Iterator[MadeRecord]:
        """Yield the records one by one, those left out excepted."""
        for _, record in self.placed():
            yield record

    def placed(self) -> Iterator[tuple[int, MadeRecord]]:
        """Yield the records with their places in the batch."""
        left_out = {*self.left_out()}
        for at in range(self.count):
            if at not in left_out:
                yield (
                    at,
                    MadeRecord(
                        self.topics if isinstance(self.topics, str) else str(self.topics[at]),
                        None if self.keys is None else self.keys[at],
                        self.values[at],
                        () if self.headers is None else self.headers[at],
                        None if self.partitions is None else self.partitions[at],
                        None if self.timestamps is None else self.timestamps[at],
                    ),
                )

    def shares(self) -> Iterator[tuple[str, int | None, Sequence[int]]]:
        """Yield topic, partition (None: not named) and the places of their tuples in the batch, in order.

        Tuples that failed or are skipped are left out.
        """
        if isinstance(self.topics, str) and self.partitions is None and not self.failed:
            yield self.topics, None, range(self.count)
            return
        found: dict[tuple[Any, Any], list[int]] = {}
        for at in range(self.count):
            topic = self.topics if isinstance(self.topics, str) else self.topics[at]
            if topic is not None and at not in self.failed:
                partition = None if self.partitions is None else self.partitions[at]
                found.setdefault((topic, partition), []).append(at)
        for (topic, partition), places in found.items():
            yield topic, partition, places


@dataclass(frozen=True, slots=True)
class RecordMaker:
    """Makes the records of batches. ``topic``: one for all; None: ``topics`` says each tuple's.

    ``value`` None: the stream's only field.
    """

    topic: str | None
    topics: Source | None = None
    key: Source | None = None
    value: Source | None = None
    headers: Sequence[tuple[str, Source]] | Callable[[Tuple], Any] | None = None
    partition: Source | None = None
    timestamp: Source | None = None
    key_serializer: NamedSerializer | None = None
    value_serializer: NamedSerializer | None = None

    def make(self, batch: Batch) -> Records:
        """Return the records of a batch. Errors of the user's functions stand in ``failed``."""
        made = Records(len(batch))
        if self.topic is not None:
            made.topics = self.topic
        else:
            made.topics = _topics(batch, self.topics, made)
            # Rule: of a tuple that the topic skips nothing else is made: no function is called, no value converted.
            # A key that it does not have would fail a tuple that the user has filtered out.
            made.without_topic = {at for at, topic in enumerate(made.topics) if topic is None}
        made.values = _as_bytes("value", self.value_serializer, batch, self.value, made)
        if self.key is not None:
            made.keys = _as_bytes("key", self.key_serializer, batch, self.key, made)
        if self.headers is not None:
            made.headers = self._headers(batch, made)
        if self.partition is not None:
            made.partitions = _numbers("partition", batch, self.partition, made)
        if self.timestamp is not None:
            made.timestamps = _numbers("timestamp_ms", batch, self.timestamp, made)
        return made

    def _headers(self, batch: Batch, made: Records) -> list[HeaderRows]:
        if callable(self.headers):
            return _each("headers", _column("headers", batch, self.headers, made), _header_rows, made, [])
        columns = []
        for name, source in self.headers or ():
            raw = _column(f"the header {name!r}", batch, source, made)
            columns.append([(name, value) for value in _each(f"the header {name!r}", raw, plain_bytes, made, None)])
        return [[*row] for row in zip(*columns, strict=True)] if columns else [[] for _ in range(len(batch))]


def _topics(batch: Batch, source: Source | None, made: Records) -> list[str | None]:
    assert source is not None
    return _each("topic", _column("topic", batch, source, made), _topic_name, made, None)


def _topic_name(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and value):
        return value if value is None else str.__str__(value)
    raise TypeError("the name of a topic is a text that is not empty; None skips the tuple")


def _numbers(what: str, batch: Batch, source: Source, made: Records) -> list[int | None]:
    return _each(what, _column(what, batch, source, made), _number, made, None)


def _number(value: Any) -> int | None:
    if value is None or (value.__class__ is int and value >= 0):
        return value
    raise TypeError("it is a whole number from 0, or None to leave it open")


def _header_rows(value: Any) -> HeaderRows:
    rows = value.items() if isinstance(value, Mapping) else value or ()
    found = []
    for name, content in rows:
        if not isinstance(name, str):
            raise TypeError(f"the name of a header is text, and not {name!r:.60}")
        found.append((str.__str__(name), plain_bytes(content)))
    return found


def _column(what: str, batch: Batch, source: Source | None, made: Records) -> list[Any]:
    if source is None:
        return batch.values(0)
    if isinstance(source, str):
        return batch.values(source)
    found: list[Any] = [None] * made.count
    tuples, without = batch.tuples, made.without_topic
    for at in [at for at in range(made.count) if at not in without] if without else range(made.count):
        try:
            found[at] = source(tuples[at])
        except Exception as error:  # noqa: BLE001 - the user's code
            made.failed.setdefault(at, _not_made(f"The function for {what} raised {_said(error)}", error))
    return found


def _as_bytes(
    what: str, serialize: NamedSerializer | None, batch: Batch, source: Source | None, made: Records
) -> list[bytes | None]:
    raw, topics = _column(what, batch, source, made), made.topics
    if serialize is None:
        return _each(what, raw, plain_bytes, made, None)
    if isinstance(topics, str):
        return _each(what, raw, lambda value: serialize(topics, value), made, None)
    with_topic = [*zip(topics, raw, strict=True)]
    return _each(what, with_topic, lambda row: serialize(row[0] or "", row[1]), made, None, itemgetter(1))


def _each(
    what: str,
    raw: Iterable[Any],
    convert: Callable[[Any], T],
    made: Records,
    gap: T,
    value_of: Callable[[Any], Any] | None = None,
) -> list[T]:
    """Convert a column; where a value cannot be, note why and put ``gap`` in its place.

    ``value_of``: from what stands in the column to the value that an error names.
    """
    failed, without = made.failed, made.without_topic
    if not without:
        with contextlib.suppress(Exception):  # which one it was is found out below
            return [convert(value) for value in raw]
    found: list[T] = []
    for at, given in enumerate(raw):
        try:
            found.append(convert(given) if at not in failed and at not in without else gap)
        except Exception as error:  # noqa: BLE001 - the user's code, or a value without bytes
            value = given if value_of is None else value_of(given)
            shown = f"{type(value).__name__} {value!r:.80}"
            failed[at] = _not_made(f"{what} cannot be made of {shown}: {_said(error)}", error)
            found.append(gap)
    return found


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {text_of(error).rstrip('.')}"


def _not_made(text: str, cause: Exception) -> RecordNotMade:
    error = RecordNotMade(f"{text[0].upper()}{text[1:]}.")
    error.__cause__ = cause
    return error
