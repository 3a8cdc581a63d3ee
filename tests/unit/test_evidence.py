"""The checks of the fault rounds can fail: each gets evidence of a run that breaks its rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.evidence import WORDS, Evidence
from tests.faults.offset_watcher import Version
from tests.faults.rig import MAX_PENDING, WINDOW_NS
from tests.faults.zookeeper_log import CREATE, SET_DATA, Transaction, without_forgotten

LINES = 6000
MS = 1_000_000
AT = LINES * MS
"""A line is done each millisecond; the kill comes after the last of them."""


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    """Of one partition, all of it done in order."""
    file = tmp_path / "witness"
    words = (f"w 0-{n}-{place}@1 {n * MS} 7" for n in range(LINES) for place in range(WORDS))
    file.write_text("\n".join(words) + "\n")
    return Evidence(file, {0: LINES}).read()


def commits(every_ms: int, until_ms: int = LINES) -> dict[int, list[Version]]:
    """Everything done is committed so often."""
    return {0: [Version(0, n, ms, 1, 1, ms * MS, True) for n, ms in enumerate(range(every_ms, until_ms, every_ms))]}


def test_commits_at_their_interval_keep_pace(evidence: Evidence) -> None:
    """Four a second, with a window of the interval and its margin."""
    evidence.check_pace(commits(250), AT, WINDOW_NS)


@pytest.mark.parametrize("history", [{0: []}, commits(600_000), commits(250, until_ms=4000)])
def test_commits_that_stop_or_come_too_rarely_are_noticed(
    evidence: Evidence, history: dict[int, list[Version]]
) -> None:
    """None at all, an interval of 600 s, and a last one two seconds before the kill."""
    with pytest.raises(AssertionError, match="before the kill"):
        evidence.check_pace(history, AT, WINDOW_NS)


def test_an_early_kill_demands_no_commit(evidence: Evidence) -> None:
    """Within the first interval nothing is due."""
    evidence.check_pace({0: []}, WINDOW_NS - 1, WINDOW_NS)


def test_an_open_line_holds_back_what_is_due(evidence: Evidence) -> None:
    """Above it nothing can be committed, below it all must be."""
    del evidence.done[(0, 1000)]
    evidence.check_pace({0: [Version(0, 0, 1000, 1, 1, 1100 * MS, True)]}, AT, WINDOW_NS)
    with pytest.raises(AssertionError):
        evidence.check_pace({0: [Version(0, 0, 999, 1, 1, 1100 * MS, True)]}, AT, WINDOW_NS)


def test_replays_are_bounded_by_one_window_and_what_was_pending(evidence: Evidence) -> None:
    """However long ago the last commit was."""
    allowed = evidence.replays_allowed(AT, WINDOW_NS, MAX_PENDING)
    assert allowed < WINDOW_NS // MS + 2 * MAX_PENDING + 2 < LINES


def test_what_a_deposed_leader_of_zookeeper_alone_had_proposed_is_no_write() -> None:
    """Its log keeps that where it learns the state of the others whole."""

    def written(epoch: int, number: int, version: int, path: str = "/offsets") -> Transaction:
        return Transaction(7, epoch << 32 | number, 0, SET_DATA, path, b"%d.%d" % (epoch, number), version)

    made = Transaction(7, 1, 0, CREATE, "/offsets")
    kept = [made, written(0, 2, 1), written(0, 3, 2), written(0, 4, 1, "/other")]
    forgotten = [written(0, 5, 3), written(0, 6, 4)]
    later = [written(1, 1, 3), written(1, 2, 2, "/other")]
    assert without_forgotten([*kept, *forgotten, *later]) == [*kept, *later]
    again = [Transaction(7, 1 << 32 | 3, 0, CREATE, "/offsets"), written(1, 4, 1)]
    assert without_forgotten([*kept, *later, *again]) == [*kept, *later, *again]
