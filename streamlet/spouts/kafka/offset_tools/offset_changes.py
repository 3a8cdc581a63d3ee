"""Decide which stored offsets a command changes, and their new values. Pure: entries and logs come in.

A *wish* says where a partition should go on. ``changes`` checks wishes against the partitions and the logs, and
compares them with the entries of the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from streamlet.base.doubled_keys import DoubledKey, each_once
from streamlet.base.errors import BadInput
from streamlet.spouts.kafka.partition import OffsetRange
from streamlet.spouts.kafka.stores.offset_store import NotAnOffset, StopOffset, read_stop, stop_fields, whole_number

FORMAT = "streamlet-offsets-1"
"""The format of an export."""

MOST_EPOCH = (1 << 31) - 1
"""Kafka's leader epochs have 32 bits with their sign."""

LogPlace = int | datetime | Literal["earliest", "latest"]
"""A place in a log: an offset, a time, its start or its end."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One partition's entry in a store."""

    offset: int
    leader_epoch: int = -1
    """The leader epoch of the record before ``offset``; -1 unknown."""
    topic_id: str | None = None
    owner_epoch: int = 0
    written_by: str = ""
    """The topology that wrote it."""
    metadata: str = ""
    """The whole entry as text."""
    version: int = -1
    """The version of a ZooKeeper node; -1 in a group."""
    stop: StopOffset | None = None
    """Where a bounded read ends."""

    def is_of_another(self, topic_id: str | None) -> bool:
        """Return whether it is of a deleted topic of the same name: a run refuses it."""
        return None not in (self.topic_id, topic_id) and self.topic_id != topic_id


@dataclass(frozen=True, slots=True)
class Wish:
    """The offset a partition should go on at."""

    offset: int
    leader_epoch: int = -1
    stop: StopOffset | None = None
    """Where a bounded read ends; None: where it would have ended."""


@dataclass(frozen=True, slots=True)
class Change:
    """One partition's stored offset, before and after."""

    partition: int
    before: StoredEntry | None
    after: Wish
    needed: bool

    @property
    def difference(self) -> int | None:
        """Records that come again (negative) or are passed over; None without a stored offset."""
        return None if self.before is None else self.after.offset - self.before.offset


@dataclass(frozen=True, slots=True)
class Exported:
    """The content of an export."""

    topic: str
    topic_id: str | None
    wishes: Mapping[int, Wish]


class NoSuchPartition(BadInput):
    """The topic does not have the partition."""


class OffsetOutsideLog(BadInput):
    """An offset is not in the log."""


class AnotherTopic(BadInput):
    """The offsets are of another topic, or of a deleted namesake."""


class NotAnExport(BadInput):
    """A file is not what ``export`` writes."""


# -- what a user gives


def parse_place(text: str) -> LogPlace:
    """Parse ``earliest``, ``latest``, an offset, or a time with its zone. Raises BadInput."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None:
        raise BadInput(
            f"Offsets cannot be set to {text!r}: give earliest, latest, an offset (a whole number), or a time such as "
            "2026-01-31T12:00:00+01:00."
        )
    if time.tzinfo is None:
        raise BadInput(
            f"The time {text!r} has no zone, so it is another moment on another machine: write {time.isoformat()}Z for "
            f"UTC, or its distance from UTC, as {time.isoformat()}+01:00."
        )
    return time


def parse_offsets(pairs: Iterable[str]) -> dict[int, int]:
    """Parse ``PARTITION=OFFSET`` words. Raises BadInput."""
    offsets: dict[int, int] = {}
    for pair in pairs:
        number, _, offset = pair.partition("=")
        if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in (number, offset)):
            raise BadInput(f"{pair!r} sets no offset: write PARTITION=OFFSET, two whole numbers, as 0=1500.")
        if int(number) in offsets:
            raise BadInput(f"Partition {int(number)} is given two offsets: leave one of them out.")
        offsets[int(number)] = int(offset)
    return offsets


# -- the decision


def check_partitions(topic: str, wanted: Iterable[int], there: Iterable[int]) -> None:
    """Raise NoSuchPartition for a partition that the spout does not read."""
    known = set(there)
    strangers = sorted(set(wanted) - known)
    if strangers:
        named = ", ".join(map(str, strangers))
        raise NoSuchPartition(
            f"The spout reads no partition {named} of topic {topic!r}: it reads {_in_words(known)}. Nothing was "
            "changed. Correct the numbers."
        )


def _in_words(numbers: set[int]) -> str:
    if numbers == set(range(len(numbers))):
        return f"0 to {len(numbers) - 1}"
    return ", ".join(map(str, sorted(numbers)))


def moved(
    topic: tuple[str, str | None],
    numbers: Iterable[int],
    by: int,
    stored: Mapping[int, StoredEntry],
    logs: Mapping[int, OffsetRange],
) -> dict[int, Wish]:
    """Return each stored offset moved by so many, within the log. Raises BadInput, AnotherTopic."""
    wanted = sorted(numbers)
    # Rule: a number of a deleted topic is no place to count from. The new one's records before it would never be read.
    for number in wanted:
        if number in stored:
            check_topic(f"Partition {number}", (topic[0], stored[number].topic_id), topic)
    missing = [number for number in wanted if number not in stored]
    if missing:
        raise BadInput(
            f"Partition {', '.join(map(str, missing))} has no stored offset to count from. Nothing was changed. Give "
            "the others with --partition, or a place with --to."
        )
    return {
        number: Wish(min(max(stored[number].offset + by, logs[number].first), logs[number].end)) for number in wanted
    }


def changes(
    topic: str,
    topic_id: str | None,
    wishes: Mapping[int, Wish],
    stored: Mapping[int, StoredEntry],
    logs: Mapping[int, OffsetRange],
) -> list[Change]:
    """Return the change of each wished partition, by number. Raises NoSuchPartition, OffsetOutsideLog.

    ``logs``: of every partition, the first offset and the end.
    """
    check_partitions(topic, wishes, logs)
    for number, wish in sorted(wishes.items()):
        log = logs[number]
        if not log.first <= wish.offset <= log.end:
            raise OffsetOutsideLog(
                f"Offset {wish.offset} of topic {topic!r}, partition {number}, is not in the log: a run can go on from "
                f"{log.first} (the first record there is) to {log.end} (the end). Nothing was changed. Give an offset "
                "between them, or leave this partition out and move it with "
                f"`reset --to earliest --partition {number}`."
            )
    return [_change(number, stored.get(number), wish, topic_id) for number, wish in sorted(wishes.items())]


def _change(number: int, entry: StoredEntry | None, wish: Wish, topic_id: str | None) -> Change:
    if entry is None:
        return Change(number, None, wish, needed=True)
    stale = entry.is_of_another(topic_id)  # it is written also where the number is the same
    # Rule: a bounded read under way stops where it would have, wherever it goes on: its stop was chosen when it began.
    # One that is over, or is set behind its stop, has none: the next run chooses again.
    stop = entry.stop
    lasts = stop is not None and max(entry.offset, wish.offset) < stop.offset and not stale
    after = replace(wish, stop=stop) if lasts and wish.stop is None else wish
    renewed = wish.stop is not None and wish.stop != stop
    return Change(number, entry, after, stale or renewed or entry.offset != after.offset)


def check_topic(what: str, given: tuple[str, str | None], there: tuple[str, str | None]) -> None:
    """Raise AnotherTopic where names differ, or ids that are both known."""
    if given[0] != there[0]:
        raise AnotherTopic(
            f"{what} has the offsets of topic {given[0]!r}, and the spout reads {there[0]!r}: an offset means another "
            "record there. Nothing was changed. To go on by time, use `reset --to TIME`."
        )
    if None not in (given[1], there[1]) and given[1] != there[1]:
        raise AnotherTopic(
            f"{what} has the offsets of a topic {given[0]!r} with id {given[1]}, which was deleted: the topic of this "
            f"name has id {there[1]}, and its records are others. Nothing was changed. Use `reset --to earliest` or "
            "`reset --to TIME`."
        )


# -- exports


def export_document(
    about: Mapping[str, Any], topic: str, topic_id: str | None, stored: Mapping[int, StoredEntry]
) -> dict[str, Any]:
    """Return an export for ``json.dumps``."""
    rows = [
        {
            "partition": number,
            "offset": row.offset,
            "leader_epoch": row.leader_epoch,
            "stop": row.stop and stop_fields(row.stop),
            "metadata": row.metadata,
        }
        for number, row in sorted(stored.items())
    ]
    return {"format": FORMAT, **about, "topic": topic, "topic_id": topic_id, "offsets": rows}


def read_export(text: str, file: str) -> Exported:
    """Read what ``export_document`` gave. Raises NotAnExport."""
    try:
        # Rule: nothing is guessed of a file that somebody has written in. Of a key that stands twice the last would
        # count in silence, and no rows at all would be a success that changes nothing.
        content = json.loads(text, object_pairs_hook=each_once)
        if content.get("format") != FORMAT:
            raise NotAnOffset(f"its format is {content.get('format')!r}, not {FORMAT!r}")
        topic, topic_id = content["topic"], content["topic_id"]
        if not isinstance(topic, str) or not (topic_id is None or isinstance(topic_id, str)):
            raise NotAnOffset("topic and topic_id are not text")
        rows = content["offsets"]
        if not isinstance(rows, list) or not rows:
            raise NotAnOffset("it has no list of offsets, or an empty one")
        wishes = dict(map(_exported_row, rows))
        if len(wishes) != len(rows):
            raise NotAnOffset("a partition stands there twice")
    except (NotAnOffset, DoubledKey) as why:
        raise NotAnExport(_not_an_export(file, str(why))) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise NotAnExport(_not_an_export(file, "its content has another form")) from None
    return Exported(topic, topic_id, wishes)


def _exported_row(row: Mapping[str, Any]) -> tuple[int, Wish]:
    number, offset, epoch = (whole_number(row, key) for key in ("partition", "offset", "leader_epoch"))
    if number is None or offset is None or epoch is None or min(number, offset, epoch + 1) < 0 or epoch > MOST_EPOCH:
        raise NotAnOffset(f"a row has no usable numbers: {str(row)[:80]}")
    return number, Wish(offset, epoch, read_stop(row.get("stop")))


def _not_an_export(file: str, why: str) -> str:
    return f"{file} cannot be imported: {why}. Nothing was changed. Give a file that `streamlet offsets export` wrote."
