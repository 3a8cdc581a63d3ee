"""Links between workers are cut while tuples are on them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from streamlet.devcluster import DevCluster
from tests.faults.inside import Inside, Proxied
from tests.faults.rig import MAX_PENDING, rig

pytestmark = pytest.mark.real


def test_cut_links_fail_their_trees_at_once_and_are_made_again(cluster: DevCluster, tmp_path: Path) -> None:
    """No worker is restarted, nothing waits for a timeout (here: 15 minutes), nothing is lost."""
    with rig(cluster, tmp_path, 12_000, seed=3) as made:
        run = Inside(made, 3, Proxied)
        coordinator, cuts = run.coordinator, []
        assert isinstance(coordinator, Proxied)
        with run:
            for share in (0.2, 0.4, 0.6):
                made.wait_for_done(share, run.told)
                at = time.monotonic_ns()
                cuts.append(coordinator.cut())
                assert cuts[-1] >= 2
                assert made.evidence.read().pending_at(at) > 0
            result = run.finish()
        assert result.reason == "caught_up"
        assert [worker["epoch"] for worker in result.status.workers] == [1, 1, 1]
        made.check()
        (lines,) = (row for row in result.status.components if row.name == "lines")
        # What the first broken link fails is sent again at once, perhaps over another that was cut with it.
        assert 0 < lines.failed <= sum(cuts) * MAX_PENDING
