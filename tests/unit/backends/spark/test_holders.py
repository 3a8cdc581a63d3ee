"""Why slots of a run wait, in words. A scripted session."""

from __future__ import annotations

import pytest

from streamlet.backends.spark import holders
from streamlet.backends.spark.holders import held_up
from streamlet.backends.spark.spark_session import Executor
from streamlet.runtime.supervision.worker_states import HeldUp
from tests.unit.backends.spark.test_backend import ScriptedSession


def test_slots_of_a_run_that_wait_are_told_with_who_holds_the_cores_and_those_that_start_are_not() -> None:
    """A slot that has its task imports the topology: cores are not what it lacks."""
    session = ScriptedSession("spark://h:7077", [[Executor("0", 1, 1)]])
    session.placed = {"streamlet-ab-0.1"}
    slots = {(0, 1): "streamlet-ab-0.1", (1, 2): "streamlet-ab-1.2"}
    held = held_up(session, slots, "streamlet-ab-")  # type: ignore[arg-type]
    assert (held.workers, held.lacks) == ({(1, 2)}, "waits for a task slot of spark://h:7077")
    assert "1 by etl of ann (app-0)" in held.why
    assert session.asked_without == ["streamlet-ab-"], "its own slots hold nothing that it lacks"
    session.placed |= {"streamlet-ab-1.2"}
    assert held_up(session, slots, "streamlet-ab-") == HeldUp()  # type: ignore[arg-type]


def test_slots_of_a_run_whose_master_is_away_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ScriptedSession("spark://h:7077", [[]])
    monkeypatch.setattr(session, "cluster", lambda: None)
    monkeypatch.setattr(holders.preflight, "silent_addresses", lambda master: "h:7077 (Connection refused)")
    held = held_up(session, {(1, 2): "streamlet-ab-1.2"}, "streamlet-ab-")  # type: ignore[arg-type]
    assert "The master does not answer at h:7077 (Connection refused)" in held.why


def test_without_any_reason_the_executors_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ScriptedSession("yarn", [[]])
    monkeypatch.setattr(session, "cluster", lambda: None)
    monkeypatch.setattr(session, "running_jobs", lambda without: [])
    held = held_up(session, {(0, 1): "streamlet-ab-0.1"}, "streamlet-ab-")  # type: ignore[arg-type]
    assert held.why == "Spark's application has 0 executors and 0 task slots: see what its cluster manager says of it."


def test_slots_that_wait_for_executors_which_spark_has_excluded_are_told_so_first() -> None:
    one, other = Executor("0", 1, 1), Executor("1", 1, 0, excluded=True)
    session = ScriptedSession("spark://h:7077", [[one, other]])
    held = held_up(session, {(1, 2): "streamlet-ab-1.2"}, "streamlet-ab-")  # type: ignore[arg-type]
    assert held.why.startswith("Spark has excluded executor 1 after failed tasks (spark.excludeOnFailure.*)")
    assert "spark.excludeOnFailure.timeout" in held.why and "1 by etl of ann (app-0)" in held.why
    assert "have reported" not in held.why, "the excluded one has reported its cores"
    assert holders.slots_of([one, other]) == (1, 1)
    assert holders.executors_text([one, other]) == "2 executors (1 excluded by Spark) and 1 task slot"
