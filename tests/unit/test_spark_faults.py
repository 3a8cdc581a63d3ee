"""The judges of ``tests.soak.spark_faults``: every kind has its turn, and what did not hold is said."""

from __future__ import annotations

import itertools
from typing import Any

from tests.soak.chaos.spark_figures import KINDS, schedule, table, verdict


def run(*faults: tuple[str, float], **more: Any) -> dict[str, Any]:
    rows = [{"fault": kind, "recovery_s": took, "pending": 5} for kind, took in faults]
    figures = {"tuples": 40, "lines": 10, "lost": 0, "again": 1, "runs": 2, "left": 0, "folders": 0, "miscounts": 0}
    return {"id": "1", "seed": 7, "faults": rows, "violations": [], "figures": figures, "seconds": 60.0, **more}


def test_every_kind_of_fault_comes_once_before_any_comes_twice_and_a_seed_repeats_the_order() -> None:
    first = list(itertools.islice(schedule(5), 2 * len(KINDS)))
    assert sorted(first[: len(KINDS)]) == sorted(first[len(KINDS) :]) == sorted(KINDS)
    assert first == list(itertools.islice(schedule(5), 2 * len(KINDS)))
    assert first != list(itertools.islice(schedule(6), 2 * len(KINDS)))
    assert list(itertools.islice(schedule(5, "cut links"), 3)) == ["cut links"] * 3


def test_a_recovery_that_takes_too_long_is_not_held_unless_the_machine_is_busy() -> None:
    runs = [run(("kill python", 2.9), ("kill executor", 8.5))]
    assert verdict(runs, judge_times=True) == ["kill executor: recovery after 8.50 s (p99), more than 8 s"]
    assert verdict(runs, judge_times=False) == []


def test_a_violation_counts_also_in_a_run_that_broke_off() -> None:
    broken = run(("kill python", 1.0), figures=None, violations=["3 lines were lost\nmore"])
    assert verdict([broken], judge_times=False) == ["seed 7: 3 lines were lost"]
    assert "1 runs without an end" in table([broken, run(("kill python", 1.0))])


def test_the_table_has_each_kind_with_its_times_and_what_was_lost() -> None:
    said = table([run(("kill python", 1.0), ("cut links", 0.3)), run(("kill python", 2.0))])
    (row,) = [line for line in said.splitlines() if line.startswith("kill python")]
    assert row.split()[2:6] == ["2", "5", "1.00", "2.00"]
    assert "3 faults, 2 min" in said and "80 tuples (20 lines), lost 0" in said and "kill driver" not in said
