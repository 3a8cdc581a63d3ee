"""Which dead letters a command means, and which of them can be deleted. Pure.

A replayed letter is known by its *marker*: a record of the dead-letter topic, in the letter's own partition, so the
letter is always deleted before its marker, by retention and by a purge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from streamlet.base.errors import BadInput
from streamlet.spouts.kafka.dead_letters.dead_letter import DeadLetter, RecordHeaders, marked_offset, read

LetterPlace = tuple[int, int]
"""Partition and offset in the dead-letter topic."""


@dataclass(slots=True)
class LetterLog:
    """The records of a dead-letter topic, partition by partition, in order."""

    letters: list[DeadLetter] = field(default_factory=list)
    replayed: set[LetterPlace] = field(default_factory=set)
    foreign: list[LetterPlace] = field(default_factory=list)
    """Records that are neither letters nor markers: left alone."""
    ends: dict[int, int] = field(default_factory=dict)
    """The end of each partition as of the look."""

    def add(self, place: LetterPlace, headers: RecordHeaders) -> None:
        """Take in a record."""
        marked = marked_offset(headers)
        letter = None if marked is not None else read(place, headers)
        if marked is not None:
            self.replayed.add((place[0], marked))
        elif letter is not None:
            self.letters.append(letter)
        else:
            self.foreign.append(place)

    def mark(self, letters: Iterable[DeadLetter]) -> None:
        """Take in that letters are replayed; their markers came after the look."""
        self.replayed.update(letter.place for letter in letters)

    def state(self, letter: DeadLetter) -> str:
        """Return "open" or "replayed"."""
        return "replayed" if letter.place in self.replayed else "open"


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """A choice of letters; an empty one chooses all. Times are milliseconds since 1970."""

    topics: Collection[str] = ()
    partitions: Collection[int] = ()
    offsets: tuple[int, int] | None = None
    """The first and the last offset of records, in their own topic."""
    errors: Collection[str] = ()
    components: Collection[str] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    """Letters of this moment are not chosen any more."""
    topology: str | None = None
    """The name of the topology whose letters are meant; None: of every one."""
    reads: Callable[[str], bool] | None = None
    """Whether the meant spout reads a topic; None: any topic will do."""

    def takes(self, letter: DeadLetter) -> bool:
        """Tell whether a letter is chosen."""
        first, last = self.offsets or (letter.offset, letter.offset)
        return (
            (not self.topics or letter.topic in self.topics)
            and (self.reads is None or self.reads(letter.topic))
            and (not self.partitions or letter.partition in self.partitions)
            and first <= letter.offset <= last
            and (not self.errors or letter.error in self.errors)
            and (not self.components or letter.component in self.components)
            and (self.topology is None or letter.topology == self.topology)
            and (self.since_ms is None or letter.failed_at_ms >= self.since_ms)
            and (self.until_ms is None or letter.failed_at_ms < self.until_ms)
        )


def parse_offsets_range(text: str) -> tuple[int, int]:
    """Parse ``FIRST-LAST`` or one offset. Raises BadInput."""
    first, dash, last = text.partition("-")
    words = (first, last) if dash else (first, first)
    if not all(word.isascii() and word.isdigit() and len(word) < 19 for word in words) or int(words[0]) > int(words[1]):
        raise BadInput(f"{text!r} names no range of offsets: write FIRST-LAST, as 100-250, or one offset.")
    return int(words[0]), int(words[1])


def parse_letter(text: str) -> LetterPlace:
    """Parse ``PARTITION:OFFSET`` of a letter. Raises BadInput."""
    partition, _, offset = text.partition(":")
    if not all(word.isascii() and word.isdigit() and len(word) < 19 for word in (partition, offset)):
        raise BadInput(
            f"{text!r} names no dead letter: write PARTITION:OFFSET in the dead-letter topic, as `streamlet dlq list` "
            "shows it in its first column."
        )
    return int(partition), int(offset)


def repeated(letters: Iterable[DeadLetter]) -> int:
    """Count the letters of records that have an earlier one among them."""
    records = [(letter.topic, letter.partition, letter.offset) for letter in letters]
    return len(records) - len(set(records))


def oldest(letters: Sequence[DeadLetter], most: int | None) -> list[DeadLetter]:
    """Return at most so many letters, those given up first; in the order given.

    None: all. Of each partition the ones with the lowest offsets, whatever the clocks of their workers said.
    """
    if most is None:
        return list(letters)
    age: dict[LetterPlace, tuple[int, LetterPlace]] = {}
    latest: dict[int, int] = {}
    for letter in sorted(letters, key=lambda one: one.place):
        partition = letter.place[0]
        latest[partition] = max(latest.get(partition, 0), letter.failed_at_ms)
        age[letter.place] = (latest[partition], letter.place)
    taken = set(sorted(age, key=age.__getitem__)[:most])
    return [letter for letter in letters if letter.place in taken]


class ReplayPlan(NamedTuple):
    """The letters to replay, and those that are not."""

    chosen: list[DeadLetter]
    exhausted: list[DeadLetter]
    """Replayed too often."""
    later: int
    """How many more there are that a limit leaves."""


def plan_replay(log: LetterLog, wanted: LetterFilter, most_replays: int, most: int | None = None) -> ReplayPlan:
    """Choose the open letters to replay, at most ``most``: the oldest."""
    # Rule: a record that was replayed so often is not replayed again. One that fails each time would
    # circle between the two topics for ever, and a job that replays each night would never empty the topic.
    chosen: list[DeadLetter] = []
    exhausted: list[DeadLetter] = []
    for letter in log.letters:
        if letter.place not in log.replayed and wanted.takes(letter):
            (chosen if letter.replays < most_replays else exhausted).append(letter)
    now = oldest(chosen, most)
    return ReplayPlan(now, exhausted, len(chosen) - len(now))


class PurgePlan(NamedTuple):
    """What a purge deletes, and what stays though it is chosen."""

    before: dict[int, int]
    """Partition -> records below this offset are deleted."""
    deleted: list[DeadLetter]
    stays: list[tuple[DeadLetter, int]]
    """Chosen letters behind one that is not, with the offset of that one."""
    later: int
    """How many that could be deleted a limit leaves."""


def plan_purge(log: LetterLog, wanted: LetterFilter, *, unreplayed: bool, most: int | None = None) -> PurgePlan:
    """Decide up to where each partition can be deleted: Kafka deletes from the beginning only.

    Chosen are replayed letters, and with ``unreplayed`` open ones too; of those that can be deleted the oldest, where
    there are more than ``most``.
    """
    kept: dict[int, int] = {}
    chosen: list[DeadLetter] = []
    by_partition: dict[int, list[tuple[int, DeadLetter | None]]] = defaultdict(list)
    records: Iterable[tuple[LetterPlace, DeadLetter | None]] = (
        *((letter.place, letter) for letter in log.letters),
        *((place, None) for place in log.foreign),
    )
    for (partition, offset), letter in records:
        by_partition[partition].append((offset, letter))
    for partition, rows in by_partition.items():
        for offset, letter in sorted(rows, key=lambda row: row[0]):
            is_due = letter is not None and (unreplayed or letter.place in log.replayed)
            if letter is not None and is_due and wanted.takes(letter):
                chosen.append(letter)
            else:
                kept.setdefault(partition, offset)
    before = {
        partition: kept.get(partition, log.ends.get(partition, 0))
        for partition in dict.fromkeys(letter.place[0] for letter in chosen)
    }
    able = [letter for letter in chosen if letter.place[1] < before[letter.place[0]]]
    stays = [(letter, kept[letter.place[0]]) for letter in chosen if letter.place[1] >= before[letter.place[0]]]
    deleted = oldest(able, most)
    for partition, offset in sorted({letter.place for letter in able} - {letter.place for letter in deleted}):
        before[partition] = min(before[partition], offset)
    ends = {partition: before[partition] for partition in dict.fromkeys(one.place[0] for one in deleted)}
    return PurgePlan(ends, deleted, stays, len(able) - len(deleted))
