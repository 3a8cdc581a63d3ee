"""The script that watches memory says nothing good of what it did not compare."""

from __future__ import annotations

import sys

import pytest

from tests.soak import long_memory


def test_arguments_of_a_run_shorter_than_its_first_minute_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is started, with status 2."""
    monkeypatch.setattr(sys, "argv", ["long_memory", "--records", "20000", "--sleep", "5"])
    with pytest.raises(SystemExit) as ended:
        long_memory.main()
    assert ended.value.code == 2
    assert "promise a run of 7 s" in capsys.readouterr().err


def test_a_worker_without_a_second_minute_is_a_fault() -> None:
    """Neither its absence nor its early end is taken for a good figure."""
    assert long_memory.faults_in({}) == ["no worker was seen"]
    (fault,) = long_memory.faults_in({7: (40.0, 0.0), 8: (40.0, 100.0)})
    assert "worker 7" in fault and "nothing was compared" in fault


def test_growth_beyond_what_is_allowed_is_a_fault() -> None:
    """64 MiB above the first minute."""
    assert long_memory.faults_in({7: (40.0, 104.0)}) == []
    assert long_memory.faults_in({7: (40.0, 105.0)}) == ["worker 7 grew by 65 MiB, 64 are allowed"]
