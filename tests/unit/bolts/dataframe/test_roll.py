from __future__ import annotations

import pytest

from streamlet.bolts.dataframe.roll import RollRule, rest_s

RULE = RollRule(max_rows=100, max_bytes=1000, max_age_s=10.0, idle_s=1.0)


@pytest.mark.parametrize(
    ("rows", "size", "first_s", "latest_s", "due"),
    [
        (0, 0, 0.0, 0.0, False),
        (99, 999, 90.5, 99.5, False),
        (100, 1, 99.9, 99.9, True),
        (1, 1000, 99.9, 99.9, True),
        (1, 1, 90.0, 99.9, True),
        (1, 1, 99.0, 99.0, True),
    ],
)
def test_a_file_ends_with_the_first_bound_that_is_reached(
    rows: int, size: int, first_s: float, latest_s: float, due: bool
) -> None:
    assert RULE.due(rows, size, first_s, latest_s, now=100.0) is due


def test_the_rest_after_failures_grows_to_a_bound() -> None:
    assert [rest_s(failures) for failures in (1, 2, 3, 6, 60)] == [1.0, 2.0, 4.0, 30.0, 30.0]
