"""A cluster of its own for whoever hurts things: tests of other folders share theirs unharmed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamlet.devcluster import DevCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[DevCluster]:
    """One Kafka 3.9 broker and its ZooKeeper, for tests that may stop them but leave them running."""
    with DevCluster("3.9") as made:
        yield made
