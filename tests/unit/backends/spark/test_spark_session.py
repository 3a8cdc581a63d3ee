"""The end of a session's JVM; the session itself is held by the real rung."""

from __future__ import annotations

import subprocess

import pytest

from streamlet.backends.spark import spark_session


def test_the_group_of_a_jvm_is_killed_before_its_number_may_be_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True)
    killed: list[int | None] = []
    monkeypatch.setattr(spark_session, "_kill_group", lambda one: killed.append(one.returncode))
    spark_session._stop(None, process)
    assert killed == [None], "it had been reaped"
    assert process.returncode == 0
