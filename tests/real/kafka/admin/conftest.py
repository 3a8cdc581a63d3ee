"""An administrator of each release, and librdkafka's beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from streamlet.devcluster import DevCluster
from streamlet.kafka import Admin


@pytest.fixture(params=["kafka39", "kafka4"])
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    return request.getfixturevalue(request.param)


@pytest.fixture
def admin(cluster: DevCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def witness(cluster: DevCluster) -> AdminClient:
    """librdkafka's administrator."""
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
