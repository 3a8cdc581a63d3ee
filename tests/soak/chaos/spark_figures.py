"""Faults on Spark: which comes when, from a seed, and what all runs together show. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from tests.soak.chaos.figures import histogram, percentile

KINDS = (
    "kill python", "kill executor", "stop executor", "lose machine", "restart master", "kill driver", "cancel job",
    "cut links",
)  # fmt: skip
BOUNDS_S = {"kill python": 3.0, "kill executor": 8.0}
"""What a recovery may take (p99)."""


def schedule(seed: int, only: str | None = None) -> Iterator[str]:
    """Kinds without end. Each comes once before any comes twice; the same seed gives the same order."""
    chance = random.Random(seed)
    while True:
        deck = [only] if only else list(KINDS)
        chance.shuffle(deck)
        yield from deck


def times(runs: Sequence[dict[str, Any]], kind: str) -> list[float]:
    """Recovery times of one kind."""
    return [row["recovery_s"] for one in runs for row in one["faults"] if row["fault"] == kind]


def table(runs: Sequence[dict[str, Any]]) -> str:
    """All runs that came to their end, as text."""
    whole = [one for one in runs if one["figures"]]
    lines = [f"{'fault':<16}{'times':>6}{'pending':>9}{'p50 s':>8}{'p99 s':>8}   0 - .25 .5 1 2 3 5 10 20 60 -"]
    for kind in KINDS:
        rows = [row for one in whole for row in one["faults"] if row["fault"] == kind]
        if rows:
            took = times(whole, kind)
            pending = sorted(row["pending"] for row in rows)[len(rows) // 2]
            shares = "".join(f"{percentile(took, share):>8.2f}" for share in (0.5, 0.99))
            lines.append(f"{kind:<16}{len(rows):>6}{pending:>9}{shares}   {' '.join(map(str, histogram(took)))}")
    names = ("tuples", "lines", "lost", "again", "runs", "left", "folders", "miscounts")
    sums = {name: sum(one["figures"][name] for one in whole) for name in names}
    lines += [
        f"{sum(len(one['faults']) for one in whole)} faults, {sum(one['seconds'] for one in whole) / 60:.0f} min; "
        f"{len(runs) - len(whole)} runs without an end are not counted",
        f"{sums['tuples']:,} tuples ({sums['lines']:,} lines), lost {sums['lost']}, lines seen again "
        f"{sums['again']:,}; the run was started {sums['runs']} times",
        f"left behind: {sums['left']} processes, {sums['folders']} folders; Spark's master counted an executor twice "
        f"{sums['miscounts']} times",
        f"violations: {sum(len(one['violations']) for one in runs)}",
    ]
    return "\n".join(lines)


def verdict(runs: Sequence[dict[str, Any]], judge_times: bool) -> list[str]:
    """What did not hold."""
    out = [f"seed {one['seed']}: {text.splitlines()[0][:200]}" for one in runs for text in one["violations"]]
    for kind, bound in BOUNDS_S.items():
        took = times(runs, kind)
        if judge_times and took and percentile(took, 0.99) > bound:
            out.append(f"{kind}: recovery after {percentile(took, 0.99):.2f} s (p99), more than {bound:g} s")
    return out
