"""Checks of the arguments of public calls, made before anything is sent. Pure.

Every client checks here, so that one mistake has one message. A check either returns the argument in the shape that the
client works with, or raises: WrongArgument (also a TypeError) for a wrong type, ValueError for a number out of range,
BadInput for the rest. Each message names the argument and shows a right one.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from typing import TypeGuard, TypeVar

from streamlet.base.errors import BadInput, WrongArgument
from streamlet.kafka.broker_errors import InvalidTopic
from streamlet.kafka.metadata.cluster import TopicPartition

K = TypeVar("K")
V = TypeVar("V")

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NOT_TAKEN = "The record was not taken."


# -- the checks that the others are made of


def is_whole(value: object, least: int, below: int = 1 << 63) -> TypeGuard[int]:
    """Return whether a value is a whole number in ``range(least, below)``."""
    # A bool is an int to Python, and True as a partition or an offset is always a mistake.
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < below


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number, not bool or NaN."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def shortened(value: object) -> str:
    """Return the ``repr`` of a value, at most 60 characters of it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def by_name_only(client: str, misplaced: tuple[object, ...]) -> None:
    """Raise WrongArgument for settings given by position."""
    # Clients of other libraries take their settings in one dict: its user is shown the two stars.
    if misplaced:
        raise WrongArgument(
            f"{client} takes its settings by name: write {client}(bootstrap_servers='host:port', ...), or "
            f"{client}(**settings) where they stand in a dict."
        )


def check_callable(name: str, given: object) -> None:
    """Raise WrongArgument for anything but a function or None."""
    if given is not None and not callable(given):
        raise WrongArgument(f"{name} = {given!r} must be a function, or left out.")


def seconds(timeout: float) -> float:
    """Return a time-out in seconds; a negative one has passed already. Raises WrongArgument."""
    if not is_number(timeout):
        raise WrongArgument(f"timeout = {timeout!r} must be a number of seconds.")
    return timeout


# -- lists and mappings


def several(given: Iterable[V], what: str, example: str, where: str = "") -> Iterable[V]:
    """Return an iterable of items. Raises WrongArgument for a single item."""
    # A str is an iterable of its letters, and a TopicPartition one of its two fields: both are single items here.
    if isinstance(given, (str, bytes, TopicPartition)) or not isinstance(given, Iterable):
        raise WrongArgument(f"{where and where + ': '}{given!r} is not a list of {what}: write {example}.")
    return given


def one_or_several(given: V | Iterable[V], kind: type[V], example: str) -> list[V]:
    """Return one item or several as a list. Raises BadInput for an item of another type."""
    items = [given] if isinstance(given, kind) else list(several(given, kind.__name__, example))  # type: ignore[arg-type]  # what is no V is an iterable: mypy does not see it
    for item in items:
        if not isinstance(item, kind):
            raise BadInput(f"{item!r} is not a {kind.__name__}: write {example}.")
    return items


def mapping(given: Mapping[K, V], key: str, value: str, where: str = "") -> Mapping[K, V]:
    """Return a mapping. Raises WrongArgument, which shows ``key`` and ``value`` as an example."""
    if not isinstance(given, Mapping):
        raise WrongArgument(f"{where and where + ': '}{given!r} is not a mapping: write {{{key}: {value}, ...}}.")
    return given


def partitions_of(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return partitions as a list, in order. Raises WrongArgument."""
    example = "[TopicPartition(topic, number), ...], numbered from 0"
    return [TopicPartition.of(tp) for tp in several(partitions, "partitions", example)]


def by_partition(given: Mapping[TopicPartition, V], what: str) -> dict[TopicPartition, V]:
    """Return a mapping with its keys as TopicPartition. Raises WrongArgument."""
    return {TopicPartition.of(tp): value for tp, value in mapping(given, "TopicPartition(topic, number)", what).items()}


# -- names and places


def check_topic(topic: object, note: str = "") -> None:
    """Raise InvalidTopic for a name that no broker accepts."""
    # Some such names cannot even be encoded into a request: unchecked they would fail later, in another's poll.
    if not isinstance(topic, str) or _TOPIC.fullmatch(topic) is None or topic in (".", ".."):
        remedy = "Give a str of 1 to 249 letters (a-z, A-Z), digits, '.', '_' and '-', other than '.' and '..'."
        raise InvalidTopic(f"topic = {topic!r}", f"{remedy} {note}".rstrip())


def check_name(name: object, what: str = "topic") -> None:
    """Raise BadInput for an empty name; the broker judges the rest of it."""
    if not isinstance(name, str) or not name:
        raise BadInput(f"{name!r} is not a name of a {what}: give a string that is not empty.")


def names_of(given: str | Iterable[str], what: str = "topic") -> list[str]:
    """Return one name or several as a list without duplicates. Raises BadInput."""
    found = [given] if isinstance(given, str) else list(several(given, f"{what}s", "['name', ...]"))
    for name in found:
        check_name(name, what)
    return list(dict.fromkeys(found))


def offset_of(tp: TopicPartition, spec: object, words: str) -> int:
    """Return an offset. Raises BadInput; ``words`` name the words allowed in its place."""
    if not is_whole(spec, 0):
        raise BadInput(f"{tp}: {spec!r} is not an offset: write a whole number from 0, or {words}.")
    return spec


# -- the consumer's calls


def constructor_topics(topics: tuple[object, ...]) -> None:
    """Check the topics of ``Consumer(*topics)``. Raises InvalidTopic, and WrongArgument for a list."""
    for topic in topics:
        if isinstance(topic, Mapping):
            by_name_only("Consumer", (topic,))
        if isinstance(topic, (list, tuple, set, frozenset)):
            raise WrongArgument(f"Consumer takes topics one by one: write Consumer(*{topic!r}, ...).")
        check_topic(topic)


SECONDS_LIKELY = 10.0
"""Milliseconds. A shorter time-out with a decimal point was probably meant as seconds."""


def poll_limits(timeout_ms: object, max_records: object) -> int | None:
    """Check the limits of a poll; return ``max_records``. Raises WrongArgument, ValueError."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, (int, float)):
        raise WrongArgument(f"timeout_ms = {timeout_ms!r} must be a number of milliseconds.")
    if not timeout_ms >= 0:  # so written, it holds for NaN
        raise ValueError(f"timeout_ms = {timeout_ms!r} must be a number of milliseconds, and not negative.")
    if isinstance(timeout_ms, float) and 0 < timeout_ms <= SECONDS_LIKELY and (timeout_ms * 10).is_integer():
        # Rule: seconds are warned of, where the call stands. A confluent-kafka loop that is carried over with its
        # poll(1.0) works, and spins a thousand times a second. What is left of a deadline has more digits.
        warnings.warn(
            f"timeout_ms = {timeout_ms!r} is milliseconds, not seconds: this call waits no longer than that. "
            f"For {timeout_ms:g} seconds write timeout_ms={timeout_ms * 1000:.0f}; for milliseconds, a whole number.",
            RuntimeWarning,
            stacklevel=3,
        )
    if max_records is None:
        return None
    if isinstance(max_records, bool) or not isinstance(max_records, int):
        raise WrongArgument(f"max_records = {max_records!r} must be a whole number, or None.")
    if max_records < 1:
        raise ValueError(f"max_records = {max_records!r} must be at least 1, or None.")
    return max_records


def check_offset(tp: TopicPartition, offset: object, leader_epoch: object) -> None:
    """Check the position of a seek. Raises WrongArgument, ValueError."""
    for what, number, least, most in (("offset", offset, 0, 1 << 63), ("leader_epoch", leader_epoch, -1, 1 << 31)):
        if isinstance(number, bool) or not isinstance(number, int):
            raise WrongArgument(f"seek() in {tp}: {what} = {number!r} must be a whole number.")
        if not least <= number < most:
            raise ValueError(f"seek() in {tp}: {what} = {number!r} must be a whole number from {least} to {most - 1}.")


def check_time(tp: TopicPartition, when: object) -> None:
    """Check a time to look for. Raises WrongArgument, ValueError."""
    remedy = "write whole milliseconds since 1970."
    if isinstance(when, bool) or not isinstance(when, int):
        raise WrongArgument(f"{when!r} is not a time to look for in {tp}: {remedy}")
    if not is_whole(when, 0):
        raise ValueError(f"{when!r} is not a time to look for in {tp}: {remedy}")


# -- the producer's calls


def check_place(topic: object, partition: object) -> None:
    """Check a record's topic and partition. Raises InvalidTopic, ValueError."""
    check_topic(topic, _NOT_TAKEN)
    if partition is not None and not is_whole(partition, 0, 1 << 31):
        raise ValueError(
            f"partition = {partition!r} of a record for topic {topic!r}: give a number from 0 to 2**31 - 1, or None "
            f"to have it chosen. {_NOT_TAKEN}"
        )


def check_timestamp(timestamp_ms: object) -> int:
    """Return milliseconds since 1970 that fit into a record. Raises ValueError."""
    if not is_whole(timestamp_ms, 0, 1 << 62):
        raise ValueError(
            f"timestamp_ms = {timestamp_ms!r}: give whole milliseconds since 1970, or None for now. {_NOT_TAKEN}"
        )
    return timestamp_ms


def listed(what: str, given: Iterable[V]) -> Iterable[V]:
    """Return the values or keys of ``send_many``. Raises WrongArgument for a single one."""
    if isinstance(given, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(given, Iterable):
        raise WrongArgument(
            f"send_many takes {what} in a list, and was given {type(given).__name__} {shortened(given)}: write "
            f"[{what[:-1]}, ...], or use send() for one record. No record was taken."
        )
    return given
