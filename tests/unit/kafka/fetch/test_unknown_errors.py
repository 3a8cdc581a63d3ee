"""Answers that a broker did not expect to give: how long they last."""

from __future__ import annotations

from streamlet.kafka.fetch.unknown_errors import UNKNOWN_ERROR_S, UnknownErrors


def test_such_errors_last_from_the_first_in_a_row_by_key() -> None:
    errors: UnknownErrors[str] = UnknownErrors()
    assert [errors.failed("a", now) for now in (100.0, 130.0, 159.0)] == [0.0, 30.0, 59.0]
    assert errors.failed("b", 160.0) == 0.0
    errors.ended("a")
    assert errors.failed("a", 161.0) == 0.0


def test_a_reader_that_did_not_read_for_a_while_counts_again() -> None:
    errors: UnknownErrors[str] = UnknownErrors()
    errors.failed("a", 0.0)
    assert errors.failed("a", UNKNOWN_ERROR_S + 1) == 0.0
