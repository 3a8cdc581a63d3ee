"""Offsets of a batch, its ranges, and verdicts on lost data. Pure.

Offsets of all partitions are kept as ``{("lines", 0): 23}`` here and as ``{"lines": {"0": 23}}`` in Spark's checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamlet.base.errors import BadInput, StreamletError
from streamlet.spark.options import EARLIEST, LATEST, PlaceInLogs

PartitionKey = tuple[str, int]
PartitionOffsets = Mapping[PartitionKey, int]

_FIRST = "first batch"
"""Key beside the topics in an offset: of the initial one True, of the first batch's end its start.

No topic's name has a blank.
"""
_IDS = "topic ids"
"""Key beside the topics in an offset, of Kafka's id of each: one that was made again has another."""


class DataLost(StreamletError):
    """Records that the query has not read are gone."""


@dataclass(frozen=True, slots=True)
class TaskRange:
    """Offsets ``start`` to ``end`` (exclusive) of one partition: one Spark task."""

    topic: str
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Logs:
    """Where each log ends; the topics' ids, from brokers that have them."""

    ends: PartitionOffsets
    ids: Mapping[str, str] = field(default_factory=dict)

    def with_missing(self, start: Mapping[str, Any]) -> Logs:
        """Add the partitions that only an offset names: they end there."""
        return Logs({**begun(start, self), **self.ends}, {**start.get(_IDS, {}), **self.ids})


# -- offsets as Spark keeps them -------------------------------------------------------------------------------------


def to_json(offsets: PartitionOffsets) -> dict[str, Any]:
    """Return offsets as they stand in a checkpoint, in a fixed order: Spark compares their text."""
    found: dict[str, Any] = {}
    for (topic, number), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(number)] = offset
    return found


def from_json(text: Mapping[str, Any]) -> dict[PartitionKey, int]:
    """Return the offsets of a checkpoint's entry."""
    return {
        (topic, int(number)): offset
        for topic, rows in text.items()
        if topic not in (_FIRST, _IDS)
        for number, offset in rows.items()
    }


def initial(offsets: PartitionOffsets, ids: Mapping[str, str] = {}) -> dict[str, Any]:
    """Return a stream's initial offset, marked as such."""
    return {_FIRST: True, **_with_ids(ids), **to_json(offsets)}


def _with_ids(ids: Mapping[str, str]) -> dict[str, Any]:
    return {_IDS: dict(sorted(ids.items()))} if ids else {}


def made_again(start: Mapping[str, Any], ids: Mapping[str, str]) -> list[str]:
    """Return the topics whose id is another one than in an offset."""
    known = start.get(_IDS, {})
    return sorted(topic for topic in ids if known.get(topic, ids[topic]) != ids[topic])


def begun(start: Mapping[str, Any], logs: Logs) -> dict[PartitionKey, int]:
    """Return a batch's start without the topics that were made again."""
    others = made_again(start, logs.ids)
    return {tp: offset for tp, offset in from_json(start).items() if tp[0] not in others}


def batch_end(start: Mapping[str, Any], end: PartitionOffsets, ids: Mapping[str, str] = {}) -> dict[str, Any]:
    """Return a batch's end for the checkpoint; without news, ``start``."""
    # Rule: the end of the first batch carries its start. Spark writes down ends only: after a stop in the first batch
    # it asks again for the initial offset, and "latest" would then lie behind the records of that very batch.
    first = begun(start, Logs(end, ids))
    if all(end.get(tp, offset) == offset for tp, offset in first.items()) and end.keys() <= first.keys():
        return dict(start)
    found = {**_with_ids(ids), **to_json(end)}
    return {_FIRST: to_json(first), **found} if start.get(_FIRST) is True else found


def batch_start(start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[PartitionKey, int]:
    """Return where a batch begins; what its end says about the start goes first."""
    # Rule: of a first batch, only the end tells the start. Spark asks twice for the initial offset of one batch, and
    # "latest" moves in between. An end that still is an initial offset is its own start: the batch is empty.
    first = end.get(_FIRST)
    if first is True:
        return from_json(end)
    return from_json(first) if isinstance(first, Mapping) else begun(start, Logs({}, end.get(_IDS, {})))


# -- places ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Questions:
    """Questions to the brokers by partition; offsets that are known without asking."""

    fixed: dict[PartitionKey, int] = field(default_factory=dict)
    ask: dict[PartitionKey, str | int] = field(default_factory=dict)
    """"earliest", "latest", or ms since 1970."""


def look_up(place: PlaceInLogs, partitions: Iterable[PartitionKey]) -> Questions:
    """Return the questions about a place in each partition.

    Raises BadInput unless the option names them all.
    """
    wanted = Questions()
    partitions = sorted(partitions)
    if place.everywhere is None:
        named, there = set(place.partitions), set(partitions)
        if named != there:
            missing, foreign = sorted(there - named), sorted(named - there)
            what = f"does not name {_shown(missing)}" if missing else f"names {_shown(foreign)}, which is not read"
            remedy = (
                ""
                if place.by_time
                else " Write -2 for earliest, and in a stream also -1 for latest."
                if place.option.startswith("starting")
                else " Write -1 for latest."
            )
            raise BadInput(f"{place.option} {what}: it must name every partition that is read, and no other.{remedy}")
    for tp in partitions:
        value = place.partitions[tp] if place.everywhere is None else place.everywhere
        if place.by_time:
            wanted.ask[tp] = value
        elif value in _WORDS:
            wanted.ask[tp] = _WORDS[value]
        else:
            wanted.fixed[tp] = value
    return wanted


_WORDS = {EARLIEST: "earliest", LATEST: "latest"}


def refuse_no_match(place: PlaceInLogs, tp: PartitionKey) -> BadInput:
    """Return the error for a time after a partition's last record."""
    return BadInput(
        f"{place.option}: topic {tp[0]!r}, partition {tp[1]} has no record at or after the time that is asked for. "
        "Give an earlier time, or startingOffsetsByTimestampStrategy = 'latest' to begin at such a partition's end."
    )


def refuse_backwards(start: PartitionOffsets, end: PartitionOffsets, begin: PlaceInLogs, until: PlaceInLogs) -> None:
    """Refuse a batch that begins behind its end. Raises BadInput."""
    # Whatever failOnDataLoss says: the options contradict each other or the log, and an empty batch would hide it.
    for (topic, number), offset in sorted(start.items()):
        if offset > end[topic, number]:
            raise BadInput(
                f"Topic {topic!r}, partition {number}: the batch begins at offset {offset} ({begin.option}), behind "
                f"its end at {end[topic, number]} ({until.option}): give an earlier beginning or a later end. Where "
                "the end is the log's own, the offset is of another topic, or of this one before it was cut or made "
                "again; where the beginning is the log's own, retention has deleted what the batch was to read."
            )


# -- batches of a stream ---------------------------------------------------------------------------------------------


def limited(start: PartitionOffsets, end: PartitionOffsets, most: int) -> dict[PartitionKey, int]:
    """Return an end at most ``most`` offsets away, shared out by size.

    Every partition with something gets one offset at least, so the sum may be a little above.
    """
    sizes = {tp: end[tp] - start.get(tp, 0) for tp in end if end[tp] > start.get(tp, 0)}
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    return {tp: start.get(tp, 0) + max(most * sizes[tp] // total, 1) if tp in sizes else end[tp] for tp in end}


def too_few(start: PartitionOffsets, end: PartitionOffsets, least: int) -> bool:
    """Return whether fewer than ``least`` offsets are new."""
    return sum(max(end[tp] - start.get(tp, 0), 0) for tp in end) < least


def losses(start: Mapping[str, Any], logs: Logs) -> Iterator[str]:
    """Yield a paragraph about each loss since an offset."""
    others = made_again(start, logs.ids)
    for topic in others:
        yield (
            f"Topic {topic!r} was deleted and made again: its id is {logs.ids[topic]}, and was {start[_IDS][topic]}. "
            "What the old one had and the query has not read is lost; the new one is read from its beginning."
        )
    told: list[str] = []
    batch_ranges(begun(start, logs), logs.ends, told.append)
    yield from told


def batch_ranges(
    start: PartitionOffsets,
    end: PartitionOffsets,
    report: Callable[[str], None],
) -> list[TaskRange]:
    """Return each partition's range between two offsets, without empty ones.

    A partition that appeared meanwhile is read from 0. ``report`` takes a paragraph about lost data; it raises where
    the query must fail.
    """
    gone = sorted(tp for tp in start if tp not in end)
    if gone:
        report(
            f"{_shown(gone)} of the query's offsets is no longer there: the topic was deleted or is no longer matched."
        )
    found: list[TaskRange] = []
    for (topic, number), until in sorted(end.items()):
        begin = start.get((topic, number), 0)
        if until < begin:
            report(
                f"Topic {topic!r}, partition {number} ends at offset {until}, and was read to {begin} already: its log "
                "was cut, or the topic was deleted and made again. What came in between is lost."
            )
        elif until > begin:
            found.append(TaskRange(topic, number, begin, until))
    return found


def split(ranges: list[TaskRange], min_partitions: int | None, max_records: int | None) -> list[TaskRange]:
    """Cut large ranges, so that there are enough and none is long.

    The rule is that of Spark's connector: a range gets its share of ``min_partitions`` by its size, at least one. The
    same arguments give the same cut.
    """
    if max_records is not None:
        ranges = [piece for each in ranges for piece in _cut(each, math.ceil(len(each) / max_records))]
    if min_partitions is None or len(ranges) >= min_partitions:
        return ranges
    total = sum(map(len, ranges))
    whole = [each for each in ranges if _share(len(each), total, min_partitions) == 1]
    left = total - sum(map(len, whole))
    wanted = max(min_partitions - len(whole), 1)
    kept = set(whole)
    return [
        piece for each in ranges for piece in ([each] if each in kept else _cut(each, _share(len(each), left, wanted)))
    ]


def _share(size: int, total: int, wanted: int) -> int:
    return max(math.floor(size / total * wanted + 0.5), 1)  # Java's rounding: halves go up


def _cut(whole: TaskRange, parts: int) -> list[TaskRange]:
    found: list[TaskRange] = []
    start = whole.start
    for part in range(parts):
        end = start + (whole.end - start) // (parts - part)
        if end > start:
            found.append(TaskRange(whole.topic, whole.partition, start, end))
        start = end
    return found


def _shown(partitions: Iterable[PartitionKey]) -> str:
    rows = [f"{topic}-{number}" for topic, number in partitions]
    return ", ".join(rows[:5]) + (f" and {len(rows) - 5} more" if len(rows) > 5 else "")
