"""The process of a Spark session that is only starting."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import java_gateway

from streamlet.backends.spark.masters import parse_master
from streamlet.backends.spark.spark_session import _Opening
from tests.patience import PATIENCE_S


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def launch(opening: _Opening, started: list[subprocess.Popen[bytes]]) -> None:
    """Start a process on the opening's thread, as pyspark does."""

    def run() -> None:
        started.append(java_gateway.Popen(["sleep", "600"], start_new_session=True))

    opening.thread = threading.Thread(target=run)
    with opening._process_noted():
        opening.thread.start()
        opening.thread.join()


@pytest.fixture
def opening(tmp_path: Path) -> _Opening:
    return _Opening(parse_master("local[1]", 1), "t", tmp_path, None)


def test_a_jvm_is_known_before_it_answers(opening: _Opening, started: list[Any]) -> None:
    before = java_gateway.Popen
    launch(opening, started)
    assert [opening.process] == started
    assert java_gateway.Popen is before
    opening.kill()
    assert started[0].wait(PATIENCE_S) == -signal.SIGKILL


def test_a_jvm_that_starts_as_the_run_is_given_up_is_killed(opening: _Opening, started: list[Any]) -> None:
    opening.kill()
    launch(opening, started)
    assert started[0].wait(PATIENCE_S) == -signal.SIGKILL


def test_a_jvm_that_another_thread_starts_is_not_taken_for_it(opening: _Opening, started: list[Any]) -> None:
    with opening._process_noted():
        started.append(java_gateway.Popen(["sleep", "600"]))
    assert opening.process is None
