from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import streamlet.spark
from streamlet.backends.spark.masters import DEFAULT_MASTER, parse_master
from streamlet.backends.spark.spark_session import Session, open_session


@pytest.fixture(scope="session")
def session() -> Iterator[Session]:
    """One Spark application for all tests here: it takes seconds to start."""
    session = open_session(parse_master(DEFAULT_MASTER, 1), "tests", debug=False, cancelled=lambda: False)
    streamlet.spark.register(session.spark)
    yield session
    session.close()


@pytest.fixture
def spark(session: Session) -> Iterator[Any]:
    yield session.spark
    for query in session.spark.streams.active:  # of a test that failed: it would go on beside the next ones
        query.stop()
