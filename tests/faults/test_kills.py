"""kill -9 at seeded moments, with trees pending: every line reaches the witness, no commit is ahead of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from streamlet.devcluster import DevCluster
from tests.faults import rounds

pytestmark = pytest.mark.real

LINES = 12_000


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("kind", ["count", "spout", "run"])
def test_k7_a_kill_loses_nothing(cluster: DevCluster, tmp_path: Path, kind: str, number: int) -> None:
    """Of the counting worker, of the spout's worker, of the whole run (then started again)."""
    rounds.play(cluster, tmp_path, kind, random.SystemRandom().getrandbits(32), LINES)
