"""What the witness wrote down, read while it is being written, and what must hold of it."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.offset_watcher import Version

WORDS = 3
"""Words a line."""

Line = tuple[int, int]
"""(partition, offset)."""


@dataclass(frozen=True, slots=True)
class Role:
    """A component said hello from this process."""

    name: str
    pid: int
    ns: int


@dataclass
class _Words:
    """When each word of a line was stored for the first time, and how often any was stored again."""

    first: dict[int, int] = field(default_factory=dict)
    times: list[tuple[int, int]] = field(default_factory=list)


class Evidence:
    """Follows the witness's file. ``read`` takes in what is new; times are ns on the monotonic clock."""

    def __init__(self, file: Path, lines_by_partition: dict[int, int]) -> None:
        self.file = file
        self.lines_by_partition = lines_by_partition
        self.total = sum(lines_by_partition.values())
        self.roles: list[Role] = []
        self.seen: dict[Line, list[int]] = defaultdict(list)
        self.done: dict[Line, int] = {}
        """Line -> when the last of its words was stored for the first time."""
        self.failed: list[str] = []
        self.swallowed: list[str] = []
        self.stored: list[tuple[str, int, int]] = []
        """(word id, ns, pid of the spout's worker that read its line)."""
        self._words: dict[Line, _Words] = defaultdict(_Words)
        self._at = 0
        self._rest = b""

    def read(self) -> Evidence:
        """Take in what the witness has written since."""
        fd = os.open(self.file, os.O_RDONLY)
        try:
            os.lseek(fd, self._at, os.SEEK_SET)
            while data := os.read(fd, 1 << 20):
                self._at += len(data)
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    self._take(*line.decode().split(" "))
        finally:
            os.close(fd)
        return self

    def _take(self, kind: str, what: str, ns: str, pid: str) -> None:
        if kind == "w":
            name, _, spout = what.partition("@")
            self.stored.append((name, int(ns), int(spout)))
            partition, offset, place = map(int, name.split("-"))
            self._store((partition, offset), place, int(ns))
        elif kind == "s":
            partition, offset = map(int, what.split("-"))
            self.seen[(partition, offset)].append(int(ns))
        elif kind == "h":
            self.roles.append(Role(what, int(pid), int(ns)))
        elif kind == "f":
            self.failed.append(what)
        elif kind == "x":
            self.swallowed.append(what)

    def _store(self, line: Line, place: int, ns: int) -> None:
        words = self._words[line]
        words.times.append((place, ns))
        if place not in words.first:
            words.first[place] = ns
            if len(words.first) == WORDS:
                self.done[line] = max(words.first.values())

    # -- who is where

    def pid_of(self, role: str, but: int | None = None) -> int:
        """The newest process of that role, other than ``but``."""
        return max((r for r in self.roles if r.name == role and r.pid != but), key=lambda r: r.ns).pid

    def pids(self) -> set[int]:
        """Every process that ever said hello."""
        return {role.pid for role in self.roles}

    # -- counts

    def pending_at(self, ns: int) -> int:
        """Lines that a bolt had seen and that were not wholly stored at ``ns``: their trees were open."""
        return sum(
            1
            for line, times in self.seen.items()
            if times[0] <= ns and not (line in self.done and self.done[line] <= ns)
        )

    def replayed_between(self, at: int, until: int) -> set[Line]:
        """Lines that were wholly stored before ``at`` and were seen by a bolt again before ``until``."""
        return {
            line
            for line, done in self.done.items()
            if done <= at and any(at < time <= until for time in self.seen[line])
        }

    # -- what must hold

    def missing(self) -> list[Line]:
        """Lines of the topic of which not every word was stored."""
        everything = ((p, offset) for p, count in self.lines_by_partition.items() for offset in range(count))
        return [line for line in everything if line not in self.done]

    def check_pace(self, history: dict[int, list[Version]], at: int, window_ns: int) -> None:
        """What could be committed ``window_ns`` before ``at`` was committed by ``at``: all below the first line that
        was open then. Needs ``at`` to be before anything was hurt.
        """
        for partition, count in self.lines_by_partition.items():
            before = [version.offset for version in history.get(partition, ()) if version.written_ns <= at]
            due = self.first_open(partition, count, at - window_ns)
            assert max(before, default=0) >= due, (
                f"partition {partition}: all below {due} was done {window_ns / 1e9:.2f} s before the kill, and only "
                f"{max(before, default=0)} was committed by then"
            )

    def first_open(self, partition: int, count: int, ns: int) -> int:
        """The lowest offset that was not wholly stored at ``ns``."""
        return next((n for n in range(count) if self.done.get((partition, n), ns + 1) > ns), count)

    def replays_allowed(self, at: int, window_ns: int, pending: int) -> int:
        """How many done lines may come again if the ledger of offsets died at ``at``: those of the last window, those
        whose acks were under way, and those done above a line that was open when the last commit was made.
        """
        return sum(at - window_ns < ns <= at for ns in self.done.values()) + 2 * pending

    def check_commits(self, history: dict[int, list[Version]]) -> None:
        """At each commit everything below it had been stored; commits and owner epochs never go back."""
        for partition, versions in history.items():
            when = [self.done.get((partition, offset)) for offset in range(self.lines_by_partition[partition])]
            latest = _running_maximum(when)
            for before, version in zip([None, *versions], versions, strict=False):
                if version.offset:
                    stored_by = latest[version.offset - 1]
                    assert stored_by is not None, f"{version} passes a line that was never stored"
                    assert stored_by <= version.written_ns, (
                        f"{version} passes a line that was stored {(stored_by - version.written_ns) / 1e6:.1f} ms later"
                    )
                if before is not None:
                    assert version.offset >= before.offset, (before, version)
                    assert version.owner_epoch >= before.owner_epoch, (before, version)


def _running_maximum(when: list[int | None]) -> list[int | None]:
    """For each place the latest of all up to there; None from the first unknown on."""
    out: list[int | None] = []
    latest: int | None = 0
    for ns in when:
        latest = None if latest is None or ns is None else max(latest, ns)
        out.append(latest)
    return out
