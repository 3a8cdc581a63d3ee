"""One rule, one body: a scripted cluster, a Kafka 3.9 and a Kafka 4.x as far ends of the same test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.brokers import BROKERS
from tests.consumers import make_consumer
from tests.far_ends import FarEnd, RealFarEnd, ScriptedFarEnd
from tests.scripted.fake_cluster import FakeCluster

__all__ = ["make_consumer"]


@pytest.fixture(params=["scripted", *(pytest.param(name, marks=pytest.mark.real) for name in BROKERS)])
def far_end(request: pytest.FixtureRequest) -> Iterator[FarEnd]:
    """A cluster that nobody hurts."""
    if request.param == "scripted":
        with FakeCluster() as cluster:
            yield ScriptedFarEnd(cluster)
    else:
        yield RealFarEnd(request.getfixturevalue(request.param), request.getfixturevalue("make_topic"))
