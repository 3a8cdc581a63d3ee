"""Environment variables for the time of a run."""

from __future__ import annotations

import os

import pytest

from streamlet.base.environment import environment


def test_variables_are_set_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMLET_TEST_HAD", "before")
    monkeypatch.delenv("STREAMLET_TEST_NEW", raising=False)
    with pytest.raises(OSError), environment({"STREAMLET_TEST_HAD": "in it", "STREAMLET_TEST_NEW": "1"}):
        assert (os.environ["STREAMLET_TEST_HAD"], os.environ["STREAMLET_TEST_NEW"]) == ("in it", "1")
        raise OSError
    assert os.environ["STREAMLET_TEST_HAD"] == "before" and "STREAMLET_TEST_NEW" not in os.environ
