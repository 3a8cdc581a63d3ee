"""What the witness has written, in a few bytes a line, and what must hold of it. Pure."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.evidence import WORDS
from tests.faults.offset_watcher import Version

_ALL = (1 << WORDS) - 1


@dataclass(frozen=True, slots=True)
class Late:
    """A word that a deposed worker sent and another one stored, after the deposed one had woken up."""

    word: str
    spout: int
    ns: int


@dataclass
class Lines:
    """Lines of one partition, by offset: when each was seen first, when its last word was stored (0: not yet)."""

    seen: array[int] = field(default_factory=lambda: array("q"))
    done: array[int] = field(default_factory=lambda: array("q"))
    words: bytearray = field(default_factory=bytearray)

    def reach(self, offset: int) -> None:
        """Make room for an offset."""
        if offset >= len(self.words):
            more = max(1024, offset + 1 - len(self.words))
            self.seen.frombytes(bytes(8 * more))
            self.done.frombytes(bytes(8 * more))
            self.words.extend(bytes(more))


class Tally:
    """Follows the witness's file: ``feed`` takes its bytes as they come. Times are ns on the monotonic clock."""

    def __init__(self, partitions: int) -> None:
        self.lines = [Lines() for _ in range(partitions)]
        self.seen = self.done = self.again = self.events = 0
        """Lines seen, lines done, lines seen again, words and lines in all."""
        self.newest: dict[str, int] = {}
        """Role -> the process that took it last."""
        self.began: dict[int, int] = {}
        """Process -> its first word, line, or word of a line that it read."""
        self.woken: dict[int, int] = {}
        """Deposed process -> when it was woken up."""
        self.late: list[Late] = []
        self._rest = b""
        self._mark = 1 << 62
        self.marked: dict[int, int] = {}
        """Partition -> when the first of its lines was done that had been seen after the mark."""

    @property
    def pending(self) -> int:
        """Lines that a bolt has seen and that are not wholly stored: their trees are open."""
        return self.seen - self.done

    def mark(self, ns: int) -> None:
        """Look out for the first line of each partition that is seen after ``ns`` and done: ``marked``."""
        self._mark, self.marked = ns, {}

    def through(self) -> int | None:
        """When every partition had been processed again since the mark; None: not yet."""
        return max(self.marked.values()) if len(self.marked) == len(self.lines) else None

    def feed(self, data: bytes) -> None:
        """Take in what the witness has written since."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            kind, what, ns, pid = line.decode().split(" ")
            if kind == "w":
                self._stored(what, int(ns), int(pid))
            elif kind == "s":
                self._saw(what, int(ns), int(pid))
            elif kind == "h":
                self.newest[what] = int(pid)

    def _saw(self, line: str, ns: int, pid: int) -> None:
        partition, _, number = line.partition("-")
        lines, offset = self.lines[int(partition)], int(number)
        lines.reach(offset)
        self.events += 1
        self.began.setdefault(pid, ns)
        if lines.seen[offset]:
            self.again += 1
        else:
            lines.seen[offset] = ns
            self.seen += 1

    def _stored(self, what: str, ns: int, pid: int) -> None:
        name, _, spout = what.partition("@")
        partition, offset, place = map(int, name.split("-"))
        lines, sender = self.lines[partition], int(spout)
        self.events += 1
        self.began.setdefault(pid, ns)
        self.began.setdefault(sender, ns)
        if sender in self.woken and sender != pid and ns >= self.woken[sender]:
            self.late.append(Late(name, sender, ns))
        lines.reach(offset)
        before = lines.words[offset]
        lines.words[offset] = before | 1 << place
        if before != _ALL and lines.words[offset] == _ALL:
            lines.done[offset] = ns
            self.done += 1
            if not lines.seen[offset]:  # the word overtook the line that its bolt reported
                lines.seen[offset] = ns
                self.seen += 1
            if lines.seen[offset] > self._mark:
                self.marked.setdefault(partition, ns)

    # -- what must hold

    def missing(self, produced: Mapping[int, int]) -> list[tuple[int, int]]:
        """Lines of the topic of which not every word was stored."""
        out = []
        for partition, count in produced.items():
            lines = self.lines[partition]
            lines.reach(max(0, count - 1))
            out += [(partition, offset) for offset in range(count) if not lines.done[offset]]
        return out

    def too_early(self, history: Mapping[int, Sequence[Version]]) -> list[Version]:
        """Commits that passed a line that was not wholly stored then."""
        out = []
        for partition, versions in history.items():
            done, at, latest = self.lines[partition].done, 0, 0
            for version in sorted(versions, key=lambda version: version.offset):
                for offset in range(at, min(version.offset, len(done))):
                    latest = max(latest, done[offset] or 1 << 62)
                at = max(at, version.offset)
                if version.offset > len(done) or latest > version.written_ns:
                    out.append(version)
        return out


def by_the_deposed(history: Mapping[int, Sequence[Version]]) -> list[Version]:
    """Writes of an owner after a newer one had raised the epoch, and commits that went back."""
    out = []
    for versions in history.values():
        for before, version in itertools.pairwise(versions):
            if version.owner_epoch < before.owner_epoch or version.offset < before.offset:
                out.append(version)
    return out


def owners(history: Mapping[int, Sequence[Version]]) -> int:
    """How many owners the partitions have had together."""
    return sum(len({version.owner_epoch for version in versions}) for versions in history.values())
