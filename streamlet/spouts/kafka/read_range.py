"""Where reading of a partition begins and stops, as a user gives it: one place for all, or one by partition. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streamlet.base.doubled_keys import each_once
from streamlet.spouts.kafka.chosen_topics import ChosenTopics
from streamlet.spouts.kafka.partition import Partition

EARLIEST = "earliest"
LATEST = "latest"
TIMESTAMP = "timestamp"
OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class ReadPlace:
    """A place in a log: ``where`` is one of its ends, or a time or an offset with its number."""

    where: str
    number: int = 0

    @property
    def timestamp_ms(self) -> int | None:
        """The time to ask a broker for; None: none."""
        return self.number if self.where == TIMESTAMP else None

    def __str__(self) -> str:
        return f"{self.where} {self.number}" if self.where in (TIMESTAMP, OFFSET) else self.where


def place_of(given: Any, *, whole_number: str = TIMESTAMP) -> ReadPlace | None:
    """Return the place that a setting names; None where it is not understood."""
    if isinstance(given, str):
        return ReadPlace(given) if given in (EARLIEST, LATEST) else None
    if isinstance(given, datetime):
        # As `kafka.admin.topics.timestamp_of`: a time before 1970 is no other place by mistake.
        return ReadPlace(TIMESTAMP, max(0, int(given.timestamp() * 1000))) if given.tzinfo is not None else None
    usable = isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 1 << 63
    return ReadPlace(whole_number, given) if usable else None


def places_given(value: Any) -> Any:
    """Return places that a run was given, as a topology writes them.

    They are text, JSON or a table of TOML. ValueError, or RecursionError, for JSON that is none.
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = json.loads(value, object_pairs_hook=each_once)
    if not isinstance(value, Mapping):
        return _of_text(value)
    # Rule: by their values keys are told apart: that of a dict is a topic, and any other a partition. JSON and TOML
    # have texts alone as keys, and a topic may be named by a number, too.
    found: dict[Any, Any] = {}
    for key, own in value.items():
        if isinstance(own, Mapping) and own:
            found |= {(key, _number(number)): _of_text(place) for number, place in own.items()}
        else:
            found[_number(key)] = _of_text(own)
    return found


def _number(key: Any) -> Any:
    return int(key) if isinstance(key, str) and re.fullmatch("0|[1-9][0-9]{0,9}", key) else key


def _of_text(place: Any) -> Any:
    if not isinstance(place, str) or place in (EARLIEST, LATEST):
        return place
    try:
        return int(place) if place.isdigit() else datetime.fromisoformat(place)
    except ValueError:
        return place  # refused with the other settings


def place_in(given: Any, partition: Partition, others: str) -> ReadPlace:
    """Return the place for one partition. ``others``: the place of those that a dict does not name."""
    found = place_of(given)
    if isinstance(given, Mapping):
        key = (partition.topic, partition.number)
        own = given.get(key, given.get(partition.number))
        found = ReadPlace(others) if own is None else place_of(own, whole_number=OFFSET)
    assert found is not None, "checked with the settings"
    return found


def partitions_in(given: Any, chosen: ChosenTopics) -> list[Partition]:
    """Return the partitions that a setting names, which was checked."""
    if not isinstance(given, Mapping):
        return []
    return [Partition(*key) if isinstance(key, tuple) else Partition(chosen.names[0], key) for key in given]


EARLIEST_TIME_MS = 10_000_000_000
"""Milliseconds below which a time, of April 1970, was meant as an offset."""


def wrong_bounds(start: Any, stop: Any) -> str | None:
    """Return why no record lies between two places that were checked; None: some may."""
    # Rule: a read that can give nothing is refused. Bounds in the wrong order ended at once, with everything "caught
    # up" and status 0. Not equal ones, and not one partition of several: a partition in which nothing came is that.
    if isinstance(start, Mapping) and isinstance(stop, Mapping):
        both = start.keys() & stop.keys()
        behind = {
            _is_behind(place_of(start[key], whole_number=OFFSET), place_of(stop[key], whole_number=OFFSET))
            for key in both
        }
    else:
        behind = {_is_behind(place_of(start), place_of(stop))}
    if behind - {None} != {True}:
        return None
    return f"start_offset is {start!r}, which is behind it: nothing lies between the two. Was one meant for the other?"


def _is_behind(start: ReadPlace | None, stop: ReadPlace | None) -> bool | None:
    """Tell whether a read would begin behind its stop; None: who knows."""
    if start is None or stop is None or start.where != stop.where or start.where not in (TIMESTAMP, OFFSET):
        return None
    return start.number > stop.number


def wrong_place(given: Any, ends: tuple[str, ...], chosen: ChosenTopics) -> str | None:
    """Return why a setting names no place; None: it does. ``ends``: those of the log that it may name."""
    words = " or ".join(f'"{end}"' for end in ends)
    if not isinstance(given, Mapping):
        place = place_of(given)
        if place is None or place.where not in (*ends, TIMESTAMP):
            return (
                f"{words}, a datetime with a time zone, milliseconds since 1970, or a dict by partition are understood"
            )
        # Rule: a small number is an offset by mistake. As a time it lies before every record, and a read that was to
        # stop at offset 5 ended at once, with nothing read and status 0.
        if isinstance(given, int) and (given > 0 or EARLIEST not in ends) and given < EARLIEST_TIME_MS:
            return (
                "a whole number is a time here, milliseconds since 1970, and this one is of that year. An offset is "
                f"given by partition: {{0: {given}}}"
            )
        return None
    return next(_wrong_in(given, ends, words, chosen), None)


def _wrong_in(given: Mapping[Any, Any], ends: tuple[str, ...], words: str, chosen: ChosenTopics) -> Iterator[str]:
    for key, value in given.items():
        topic, number = (
            key if isinstance(key, tuple) and len(key) == 2 else (chosen.names[0] if chosen.names else "", key)
        )
        if isinstance(number, bool) or not isinstance(number, int) or number < 0 or not isinstance(topic, str):
            yield (
                f'{key!r} names no partition: a key is ("topic", number), or a number where there is one topic; on '
                'the command line and in a file it is {"TOPIC": {"0": ...}}, or {"0": ...}'
            )
        elif key is number and chosen.several:
            yield (
                f"{key!r} names a partition without its topic, and the spout may read several: write (topic, {key}), "
                f'or outside of Python {{"TOPIC": {{"{key}": ...}}}}'
            )
        elif not chosen.takes(topic):
            yield f"{key!r} is of a topic that the spout does not read"
        place = place_of(value, whole_number=OFFSET)
        if place is None or place.where not in (*ends, TIMESTAMP, OFFSET):
            yield f"of {key!r} it is {value!r}; {words}, an offset, or a datetime with a time zone are understood"
