"""The spouts of one run in one process share the time for their last commits; those of another have their own."""

from __future__ import annotations

from streamlet.spouts.kafka.last_commits import FINAL_COMMIT_S, LEAST_S, LastCommits, last_commits_of


def test_who_comes_later_has_what_is_left_and_a_moment_at_least() -> None:
    shared = LastCommits()
    assert shared.by_s(10.0) == 10.0 + FINAL_COMMIT_S
    assert shared.by_s(11.0) == 10.0 + FINAL_COMMIT_S
    assert shared.by_s(60.0) == 60.0 + LEAST_S


def test_runs_and_stores_share_nothing_and_leave_nothing_behind() -> None:
    one, other = last_commits_of("one", "zk"), last_commits_of("other", "zk")
    assert last_commits_of("one", "zk") is one is not other
    assert last_commits_of("one", "another zk") is not one
    one.by_s(1.0)
    del one
    assert last_commits_of("one", "zk").by_s(100.0) == 100.0 + FINAL_COMMIT_S
