"""The end of a session's JVM; the session itself is held by the real rung."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest
from py4j.clientserver import ClientServer
from py4j.java_gateway import JavaGateway

from streamlet.backends.spark import spark_session


def test_the_group_of_a_jvm_is_killed_before_its_number_may_be_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True)
    killed: list[int | None] = []
    monkeypatch.setattr(spark_session, "_kill_group", lambda one: killed.append(one.returncode))
    spark_session._stop(None, process)
    assert killed == [None], "it had been reaped"
    assert process.returncode == 0


def test_a_session_tells_whether_each_thread_has_one_of_the_jvms() -> None:
    """By the gateway that pyspark has made: the variable may have been set since."""
    for kind, pins in ((ClientServer, True), (JavaGateway, False)):
        context = SimpleNamespace(_gateway=kind.__new__(kind))
        session = spark_session.Session(SimpleNamespace(sparkContext=context), True, None, None)
        assert session.pins_threads() is pins
