"""The rows about partitions that a run shows, as its workers told them last. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

COUNTERS = ("failed", "given_up", "lost")
"""Numbers of a row that count from the start of the run."""

PartitionRow = Mapping[str, Any]


class PartitionRows:
    """By worker, the rows of its last heartbeat. They outlive it, and so do their counters."""

    def __init__(self) -> None:
        self._rows: dict[int, list[PartitionRow]] = {}
        self._ended: dict[tuple[str, ...], Counter[str]] = {}
        """Partition -> counters of workers that are gone."""

    def heard(self, worker: int, rows: Iterable[PartitionRow]) -> None:
        """Take a worker's rows."""
        self._rows[worker] = list(rows)

    def gone(self, worker: int) -> None:
        """Keep the counters of a worker that died: its replacement counts from 0."""
        rows = self._rows.get(worker, [])
        for row in rows:
            counted = _counted(row)
            if any(counted.values()):
                self._ended.setdefault(_key(row), Counter()).update(counted)
        self._rows[worker] = [{**row, **dict.fromkeys(_counted(row), 0)} for row in rows]

    def all(self) -> tuple[PartitionRow, ...]:
        """Return the rows of all workers."""
        return tuple(self._whole(row) for rows in self._rows.values() for row in rows)

    def _whole(self, row: PartitionRow) -> PartitionRow:
        ended = self._ended.get(_key(row))
        if ended is None:
            return row
        return {**row, **{name: number + ended[name] for name, number in _counted(row).items()}}


def _counted(row: PartitionRow) -> dict[str, int]:
    return {name: row[name] for name in COUNTERS if isinstance(row.get(name), int)}


def _key(row: PartitionRow) -> tuple[str, ...]:
    return tuple(str(row.get(name)) for name in ("component", "topic", "partition"))
