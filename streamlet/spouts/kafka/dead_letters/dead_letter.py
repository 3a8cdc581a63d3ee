"""A dead letter: a record that was given up, with its story in headers. Pure.

Key, value and headers are the record's own. Ours begin with ``streamlet.dlq.``; their values are UTF-8 text, numbers in
decimal. A record that was replayed carries its history (``HISTORY``) and brings it along when it is given up again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from streamlet.spouts.kafka.schemes.scheme import Record

PREFIX = "streamlet.dlq."
TOPIC = PREFIX + "topic"
PARTITION = PREFIX + "partition"
OFFSET = PREFIX + "offset"
LEADER_EPOCH = PREFIX + "leader.epoch"
TIMESTAMP = PREFIX + "timestamp"
TRIES = PREFIX + "tries"
COMPONENT = PREFIX + "component"
ERROR_CLASS = PREFIX + "error.class"
ERROR_TEXT = PREFIX + "error.text"
FAILED_AT = PREFIX + "failed.at"
TOPOLOGY = PREFIX + "topology"
RUN = PREFIX + "run"
VERSION = PREFIX + "streamlet.version"
CODE_VERSION = PREFIX + "code.version"
REPLAYS = PREFIX + "replays"
FIRST_RECORD = PREFIX + "first.record"
FIRST_FAILED_AT = PREFIX + "first.failed.at"
REPLAYED = PREFIX + "replayed"
"""On a marker: the offset of the dead letter, in the marker's partition, that was replayed."""

HISTORY = (REPLAYS, FIRST_RECORD, FIRST_FAILED_AT)
"""What a replayed record carries."""

MOST_ERROR_TEXT = 1000
"""Characters of an error's text that a header takes."""

TIMED_OUT, MISFIT = "TimedOut", "RowDoesNotFit"
"""Classes of errors that no code of the user's has raised."""

RecordHeaders = Sequence[tuple[str, bytes | None]]


class Fault(NamedTuple):
    """Why a record was given up."""

    component: str | None
    """The bolt that could not process it, empty for unknown; None: the spout itself."""
    error: str
    text: str


class LastTry(NamedTuple):
    """The try after which a record is given up, and its fault."""

    fault: Fault
    tries: int


class GivenUp(NamedTuple):
    """A record that was given up, and why."""

    record: Record
    leader_epoch: int
    tries: int
    fault: Fault


class RunStamp(NamedTuple):
    """What all dead letters of one spout's task have in common."""

    topology: str
    run: str
    spout: str
    version: str
    code_version: str | None


def users_headers(headers: RecordHeaders) -> list[tuple[str, bytes | None]]:
    """Return the headers without those of dead letters."""
    return [header for header in headers if not header[0].startswith(PREFIX)]


def headers_of(given_up: GivenUp, stamp: RunStamp, now_ms: int) -> list[tuple[str, bytes | None]]:
    """Return all headers of a dead letter: the record's own, then ours."""
    record, fault = given_up.record, given_up.fault
    known = dict(record.headers)
    here = f"{record.topic}/{record.partition}/{record.offset}"
    values = {
        TOPIC: record.topic,
        PARTITION: record.partition,
        OFFSET: record.offset,
        LEADER_EPOCH: given_up.leader_epoch,
        TIMESTAMP: record.timestamp,
        TRIES: given_up.tries,
        COMPONENT: stamp.spout if fault.component is None else fault.component,
        ERROR_CLASS: fault.error,
        ERROR_TEXT: fault.text[:MOST_ERROR_TEXT],
        FAILED_AT: now_ms,
        TOPOLOGY: stamp.topology,
        RUN: stamp.run,
        VERSION: stamp.version,
        **({} if stamp.code_version is None else {CODE_VERSION: stamp.code_version}),
        REPLAYS: _number(known.get(REPLAYS), 0),
        FIRST_RECORD: _text(known.get(FIRST_RECORD)) or here,
        FIRST_FAILED_AT: _number(known.get(FIRST_FAILED_AT), now_ms),
    }
    return users_headers(record.headers) + _encoded(values.items())


class DeadLetter(NamedTuple):
    """A dead letter's headers, as they are read back; ``place`` is partition and offset in the dead-letter topic."""

    place: tuple[int, int]
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    timestamp_ms: int
    tries: int
    component: str
    error: str
    text: str
    failed_at_ms: int
    topology: str
    run: str
    version: str
    code_version: str | None
    replays: int
    first_record: str
    first_failed_at_ms: int


def read(place: tuple[int, int], headers: RecordHeaders) -> DeadLetter | None:
    """Read a dead letter's headers; None: the record is none."""
    known = dict(headers)
    topic = _text(known.get(TOPIC))
    partition, offset = _number(known.get(PARTITION), -1), _number(known.get(OFFSET), -1)
    if not topic or partition < 0 or offset < 0:
        return None
    failed_at = _number(known.get(FAILED_AT), 0)
    return DeadLetter(
        place,
        topic,
        partition,
        offset,
        _number(known.get(LEADER_EPOCH), -1),
        _number(known.get(TIMESTAMP), -1),
        _number(known.get(TRIES), 0),
        _text(known.get(COMPONENT)),
        _text(known.get(ERROR_CLASS)),
        _text(known.get(ERROR_TEXT)),
        failed_at,
        _text(known.get(TOPOLOGY)),
        _text(known.get(RUN)),
        _text(known.get(VERSION)),
        _text(known[CODE_VERSION]) if CODE_VERSION in known else None,
        _number(known.get(REPLAYS), 0),
        _text(known.get(FIRST_RECORD)),
        _number(known.get(FIRST_FAILED_AT), failed_at),
    )


def replayed_headers(letter: DeadLetter, headers: RecordHeaders) -> list[tuple[str, bytes | None]]:
    """Return the headers of the record that a replay writes: its own, and its history."""
    values = (letter.replays + 1, letter.first_record, letter.first_failed_at_ms)
    return users_headers(headers) + _encoded(zip(HISTORY, values, strict=True))


def marker_headers(offset: int) -> list[tuple[str, bytes | None]]:
    """Return the headers of a marker: the dead letter at this offset of its partition was replayed."""
    return _encoded([(REPLAYED, offset)])


def marked_offset(headers: RecordHeaders) -> int | None:
    """Return the offset that a marker names; None: the record is no marker."""
    number = _number(dict(headers).get(REPLAYED), -1)
    return None if number < 0 else number


def _encoded(values: Iterable[tuple[str, object]]) -> list[tuple[str, bytes | None]]:
    return [(name, str(value).encode("utf-8", "backslashreplace")) for name, value in values]


def _text(value: bytes | None) -> str:
    return "" if value is None else bytes(value).decode("utf-8", "backslashreplace")


def _number(value: bytes | None, otherwise: int) -> int:
    # Anybody can write these headers. A number beyond what Kafka has would fail far from here, at a seek.
    try:
        number = -1 if value is None else int(bytes(value))
    except ValueError:
        return otherwise
    return number if 0 <= number < 1 << 63 else otherwise
