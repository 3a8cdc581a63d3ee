"""A few rounds of what ``long_producer`` plays for long."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from streamlet.devcluster import DevCluster
from tests.faults import producer_rounds

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    """Three brokers of this module's own."""
    with DevCluster("4", brokers=3) as cluster:
        yield cluster


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("scenario", "records", "rounds"),
    [
        ("idempotent", 20_000, 2),
        ("transactions", 2_000, 2),
        ("read_process_write", 2_000, 2),
    ],
)
def test_records_arrive_exactly_once_and_in_order(
    cluster: DevCluster, scenario: str, records: int, rounds: int
) -> None:
    """Brokers killed, paused and moved; a process killed with its transaction open. The seed is printed."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"python -m tests.soak.long_producer --only {scenario} --seed {seed}")
    found = getattr(producer_rounds, scenario)(cluster, records, rounds, seed)
    assert found.records >= records
