"""The resident memory of a run's processes, taken every two seconds; whether it stays flat."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

EVERY_S = 2.0
WARM_S = 30.0
"""A process has imported, filled its queues and been collected by then."""
LONG_S = 120.0
"""Of a process that lives shorter, growth says nothing."""
MOST_GROWTH_MIB = 32.0


class Memory:
    """``look`` whenever there is time; ``grown`` and ``figures`` at the end."""

    def __init__(self) -> None:
        self._samples: dict[int, list[tuple[float, float]]] = {}
        self._next_s = 0.0

    def look(self, pids: Iterable[int]) -> None:
        """Take the memory of those that live."""
        now = time.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + EVERY_S
        for pid in pids:
            try:
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except (OSError, IndexError):
                continue
            self.take(pid, now, pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20))

    def take(self, pid: int, now: float, mib: float) -> None:
        """Note one sample."""
        self._samples.setdefault(pid, []).append((now, mib))

    def growth(self) -> dict[int, float]:
        """Process -> MiB between its time after the start and its last half minute, of those that lived for long."""
        out = {}
        for pid, samples in self._samples.items():
            first, last = samples[0][0], samples[-1][0]
            if last - first >= LONG_S:
                early = [mib for at, mib in samples if WARM_S <= at - first <= 2 * WARM_S]
                late = [mib for at, mib in samples if last - at <= WARM_S]
                if early and late:
                    out[pid] = statistics.median(late) - statistics.median(early)
        return out

    def grown(self) -> list[str]:
        """What is not flat."""
        return [
            f"process {pid} grew by {mib:.0f} MiB, more than {MOST_GROWTH_MIB:.0f}"
            for pid, mib in self.growth().items()
            if mib > MOST_GROWTH_MIB
        ]

    def figures(self) -> dict[str, Any]:
        """Peaks and growth in MiB."""
        growth = self.growth().values()
        return {
            "peak": round(max((mib for samples in self._samples.values() for _, mib in samples), default=0.0), 1),
            "long_lived": len(growth),
            "most_growth": round(max(growth, default=0.0), 1),
        }
