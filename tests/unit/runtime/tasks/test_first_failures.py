"""The failures that end a run when no tuple has succeeded: counted once, and told apart by who failed them."""

from __future__ import annotations

import pytest

from streamlet.runtime.tasks.first_failures import FirstFailures


def test_the_limit_is_reached_once_also_by_a_batch_that_passes_it() -> None:
    failures = FirstFailures(3)
    failures.note(2)
    assert not failures.at_limit
    failures.note(5)
    assert failures.at_limit
    failures.at_limit = False
    failures.note(5)
    assert not failures.at_limit and failures.count == 12


@pytest.mark.parametrize("tuples", [1, 10_000])
def test_without_a_limit_none_is_reached(tuples: int) -> None:
    failures = FirstFailures(0)
    failures.note(tuples)
    assert not failures.at_limit


def test_what_an_error_is_blamed_for_was_not_failed_by_the_bolt_itself() -> None:
    failures, error = FirstFailures(10), ValueError("x")
    failures.note(4)
    failures.note(3)
    failures.blame(error, before=4)
    assert (failures.by_itself, failures.last_error) == (4, error)


def test_what_was_acked_before_it_raised_counts_as_a_failure_and_is_known() -> None:
    failures = FirstFailures(3)
    failures.note(1)
    failures.note_acked(2)
    assert failures.at_limit and (failures.count, failures.acked) == (3, 2)
