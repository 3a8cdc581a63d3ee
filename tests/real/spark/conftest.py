from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import streamlet.spark
from streamlet.backends.spark.masters import DEFAULT_MASTER, parse_master
from streamlet.backends.spark.spark_session import Session, open_session
from streamlet.base.environment import environment
from streamlet.devcluster.errors import JarsUnavailable
from tests.spark_connector import connector


@pytest.fixture(scope="session")
def session() -> Iterator[Session]:
    """One Spark application for all tests here: it takes seconds to start.

    With Spark's own connector, where it can be had: ``test_same_as_the_jar.py`` compares with it, and says where not.
    """
    jars: list[Path] = []
    with contextlib.suppress(JarsUnavailable):
        _version, jars = connector()
    others = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    with environment({"PYSPARK_SUBMIT_ARGS": f"--jars {','.join(map(str, jars))} {others}"} if jars else {}):
        session = open_session(parse_master(DEFAULT_MASTER, 1), "tests", debug=False, cancelled=lambda: False)
    streamlet.spark.register(session.spark)
    yield session
    session.close()


@pytest.fixture
def spark(session: Session) -> Iterator[Any]:
    yield session.spark
    for query in session.spark.streams.active:  # of a test that failed: it would go on beside the next ones
        query.stop()
