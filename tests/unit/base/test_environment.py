"""Environment variables for the time of a run."""

from __future__ import annotations

import os
import time

import pytest

from streamlet.base.environment import environment


def test_variables_are_set_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMLET_TEST_HAD", "before")
    monkeypatch.delenv("STREAMLET_TEST_NEW", raising=False)
    with pytest.raises(OSError), environment({"STREAMLET_TEST_HAD": "in it", "STREAMLET_TEST_NEW": "1"}):
        assert (os.environ["STREAMLET_TEST_HAD"], os.environ["STREAMLET_TEST_NEW"]) == ("in it", "1")
        raise OSError
    assert os.environ["STREAMLET_TEST_HAD"] == "before" and "STREAMLET_TEST_NEW" not in os.environ


@pytest.mark.parametrize("before", ["OLD+3", None])
def test_the_time_zone_is_taken_and_put_back_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    """The C library reads it once: a clock of this process went on in the zone of its start."""
    at_first = time.tzname
    try:
        with environment({"TZ": before} if before else {}):
            outside = time.tzname
            with environment({"TZ": "NEW+5"}):
                assert (time.tzname[0], time.timezone) == ("NEW", 5 * 3600)
            assert time.tzname == outside
        assert time.tzname == at_first
    finally:
        monkeypatch.undo()
        time.tzset()
