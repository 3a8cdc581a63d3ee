"""Results of many slices, added up: the table, the histogram, and whether everything held. Pure but for its file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BUCKETS_S = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0, math.inf)
KILLED_P99_S = 3.0
"""A worker that was killed, and nothing else hurt: until its successor processes."""
FENCED_P99_S = 10.5
"""A worker that stands still: the time-out of ten seconds, and a look of the coordinator's."""


def load(path: Path) -> list[dict[str, Any]]:
    """The slices so far."""
    return json.loads(path.read_text())["slices"] if path.exists() else []


def add(path: Path, made: dict[str, Any]) -> list[dict[str, Any]]:
    """Add a slice, or replace it if it is there with the same ``id``; all of them."""
    slices = [one for one in load(path) if one["id"] != made["id"]] + [made]
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps({"slices": slices}, indent=1))
    os.replace(new, path)
    return slices


def percentile(values: Sequence[float], share: float) -> float:
    """By nearest rank; nan of nothing."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else math.nan


def table(slices: Sequence[dict[str, Any]]) -> str:
    """All slices that came to their end, as text."""
    whole = [one for one in slices if one["figures"]]
    faults = [fault for one in whole for fault in one["faults"]]
    lines = [
        f"{'fault':<20}{'times':>6}{'pending':>9}{'p50 s':>8}{'p99 s':>8}{'max s':>8}   0 - .25 .5 1 2 3 5 10 20 60 -"
    ]
    for kind in sorted({fault["fault"] for fault in faults}):
        rows = [fault for fault in faults if fault["fault"] == kind]
        times = [row["recovery_s"] for row in rows if row["recovery_s"] is not None]
        pending = sorted(row["pending"] for row in rows)[len(rows) // 2]
        shares = "".join(f"{percentile(times, share):>8.2f}" for share in (0.5, 0.99, 1.0))
        lines.append(f"{kind:<20}{len(rows):>6}{pending:>9}{shares}   {' '.join(map(str, histogram(times)))}")
    sums = {name: sum(one["figures"][name] for one in whole) for name in SUMMED} if whole else {}
    killed, fenced = killed_s(whole), fenced_s(whole)
    lines += [
        f"{len(faults)} faults in {len(whole)} slices, {sum(one['seconds'] for one in whole) / 60:.0f} min; "
        f"{len(slices) - len(whole)} slices without an end are not counted",
        ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in sums.items()),
        f"worker killed (alone) to processing: {len(killed)} times, p50 {percentile(killed, 0.5):.2f} s, "
        f"p99 {percentile(killed, 0.99):.2f} s, max {max(killed, default=math.nan):.2f} s",
        f"stopped worker to fenced, time-out 10 s: {len(fenced)} times, p99 {percentile(fenced, 0.99):.2f} s",
        f"memory: peak {max((one['figures']['memory']['peak'] for one in whole), default=0)} MiB, most growth "
        f"{max((one['figures']['memory']['most_growth'] for one in whole), default=0)} MiB in "
        f"{sum(one['figures']['memory']['long_lived'] for one in whole)} processes that lived for two minutes",
        f"violations: {sum(len(one['violations']) for one in slices)}",
    ]
    return "\n".join(lines)


SUMMED = (
    "tuples", "lines", "with_replays", "replayed", "lost", "too_early", "by_the_deposed", "commits", "owners",
    "refused", "runs",
)  # fmt: skip


def histogram(times: Sequence[float]) -> list[int]:
    """How many are in each bucket."""
    counts, last = [], -math.inf
    for bound in BUCKETS_S:
        counts.append(sum(last < time <= bound for time in times))
        last = bound
    return counts


def killed_s(slices: Sequence[dict[str, Any]]) -> list[float]:
    """Recovery times of workers that were killed while nothing else was hurt."""
    return [
        fault["recovery_s"]
        for one in slices
        for fault in one["faults"]
        if fault["fault"] == "kill worker" and fault["alone"] and fault["recovery_s"] is not None
    ]


def fenced_s(slices: Sequence[dict[str, Any]]) -> list[float]:
    """Times from SIGSTOP of a worker to its end for the coordinator, with the time-out that is the default."""
    return [
        fault["fenced_s"]
        for one in slices
        for fault in one["faults"]
        if fault["fenced_s"] is not None and one.get("timeout_s", 10.0) == 10.0
    ]


def verdict(slices: Sequence[dict[str, Any]], judge_times: bool) -> list[str]:
    """What did not hold."""
    out = [f"slice {one['id']}: {text.splitlines()[0][:200]}" for one in slices for text in one["violations"]]
    whole = [one for one in slices if one["figures"]]
    for what, times, bound in (
        ("a killed worker's successor processes after", killed_s(whole), KILLED_P99_S),
        ("a stopped worker is fenced after", fenced_s(whole), FENCED_P99_S),
    ):
        if judge_times and times and percentile(times, 0.99) > bound:
            out.append(f"{what} {percentile(times, 0.99):.2f} s (p99), more than {bound:g} s")
    return out
