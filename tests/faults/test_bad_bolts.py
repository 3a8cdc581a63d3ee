"""Bolts that fail tuples, and one that forgets some."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlet.devcluster import DevCluster
from tests.faults.rig import rig

pytestmark = pytest.mark.real

SWALLOWED = ("0-700-1", "0-2100-0", "0-4200-2", "1-900-0", "1-1800-1", "1-4500-2")


def test_failed_and_forgotten_tuples_are_replayed_and_hold_the_commit_back(cluster: DevCluster, tmp_path: Path) -> None:
    """One tuple in a hundred is failed, a few are swallowed without an ack: the offset waits for each."""
    with rig(cluster, tmp_path, 12_000, seed=4) as made:
        file = made.topology(fail_every=100, swallow=SWALLOWED)
        run = made.start(file, topology_message_timeout_secs=3.0)
        result = run.finish()
        made.check()
        evidence, history = made.evidence, made.watcher.history()
        assert len(evidence.failed) >= 200
        assert sorted(evidence.swallowed) == sorted(SWALLOWED)
        for word in [*evidence.failed, *evidence.swallowed]:
            partition, offset, _ = map(int, word.split("-"))
            assert len(evidence.seen[(partition, offset)]) >= 2, f"{word} was not replayed"
        failed_lines = {word.rpartition("-")[0] for word in evidence.failed}
        # A line of which another word was failed is replayed soon, whatever became of the forgotten one.
        only_forgotten = [word for word in SWALLOWED if word.rpartition("-")[0] not in failed_lines]
        assert len(only_forgotten) >= 2
        for word in only_forgotten:
            partition, offset, _ = map(int, word.split("-"))
            replayed = evidence.done[(partition, offset)]
            overtaken = evidence.done[(partition, offset + MAX_AHEAD)]
            assert replayed - overtaken > 1e9, "the forgotten tuple held nobody up: that proves nothing"
            during = {version.offset for version in history[partition] if version.written_ns < replayed}
            assert max(during) <= offset, f"{word} was still open, and {max(during)} was committed"
        for versions in history.values():
            assert len({version.offset for version in versions}) > 3, "the offset did not advance during the run"
        (lines,) = (row for row in result["components"] if row["name"] == "lines")
        assert lines["failed"] >= len(failed_lines | {word.rpartition("-")[0] for word in SWALLOWED})


MAX_AHEAD = 200
"""A line so far behind the forgotten one is surely done long before that is replayed."""
