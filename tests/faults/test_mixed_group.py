"""Small rounds of the mixed groups; ``long_group.py`` plays many."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from streamlet.devcluster import DevCluster
from tests.faults.mixed_group import play


@pytest.mark.real
@pytest.mark.parametrize("newer", [False, True], ids=["classic", "newer"])
def test_c5_ours_librdkafkas_and_javas_members_share_one_group(kafka4: DevCluster, tmp_path: Path, newer: bool) -> None:
    """Every record is read, no partition has two owners, no change leaves the group stuck."""
    seed = int(os.environ.get("STREAMLET_SEED", random.SystemRandom().getrandbits(32)))
    print(f"STREAMLET_SEED={seed}")
    print(play(kafka4, tmp_path, seed, changes=3, newer=newer))
