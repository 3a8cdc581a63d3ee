"""Tuples that kill their worker: found in a few deaths, given up under their own name, and all others processed."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlet.backends.outcome import TreesFailed
from tests.faults.deadly_runs import COUNT, deaths, done, run

pytestmark = pytest.mark.faults


@pytest.mark.parametrize(("how", "said"), [("segfault", "was killed by SIGSEGV"), ("leave", "ended with status 7")])
def test_a_tuple_that_kills_its_worker_is_given_up_by_name(tmp_path: Path, how: str, said: str) -> None:
    """The spout lives in another worker, the bolt has two tasks in two: all others are processed, none is charged."""
    watcher, ended = run(tmp_path, how, workers=4, par=2)
    assert isinstance(ended, TreesFailed) and ended.result.reason == "caught_up"
    assert (tmp_path / "given_up").read_text() == "1234 CRASHED\n"
    seen = done(tmp_path)
    assert set(seen) == set(range(1, COUNT + 1)) - {1234}
    told = deaths(watcher)
    assert 3 <= len(told) <= 5, told
    assert all(said in text for text in told)
    assert sum("on the tuple [1234, 'number 1234']" in text for text in told) == 3
    assert any("gave up tuple 1234" in text and said in text for text in watcher.texts)


def test_a_tuple_that_kills_its_spout_too_is_not_sent_again(tmp_path: Path) -> None:
    """Everything in one worker: the replacement reads from the beginning, and leaves out what it died of."""
    watcher, ended = run(tmp_path, "segfault", workers=1)
    assert isinstance(ended, TreesFailed) and ended.result.reason == "caught_up"
    assert (tmp_path / "given_up").read_text() == "1234 CRASHED\n"
    assert set(done(tmp_path)) == set(range(1, COUNT + 1)) - {1234}
    assert 3 <= len(deaths(watcher)) <= 5
    assert sum("of message 1234" in text for text in deaths(watcher)) == 3


def test_a_tuple_that_hangs_is_given_up_where_the_user_chose_so(tmp_path: Path) -> None:
    # Longer than a disk or a busy machine holds up a call that only writes a line.
    conf = {"streamlet.task.hang.secs": 2, "streamlet.task.hang.action": "replace"}
    watcher, ended = run(tmp_path, "hang", workers=2, **conf)
    assert isinstance(ended, TreesFailed) and ended.result.reason == "caught_up"
    assert (tmp_path / "given_up").read_text() == "1234 CRASHED\n"
    assert set(done(tmp_path)) == set(range(1, COUNT + 1)) - {1234}
    told = deaths(watcher)
    once = "was replaced because it has been in one call for 2 s at work in deadly (task 3) on the tuple [1234, "
    # Found in a slice of many its message is not known, so the first time does not count: its spout died with it.
    assert len(told) == 4 and all(once in text and text.count("1234, ") == 1 for text in told), told
    assert ["of message 1234" in text for text in told] == [False, True, True, True]


def test_a_limit_of_the_spouts_own_holds_too(tmp_path: Path) -> None:
    """With no limit of deaths it is one of max_fails = 3 replays."""
    watcher, ended = run(tmp_path, "kill", workers=4, **{"streamlet.tuple.crashes.max": 0})
    assert isinstance(ended, TreesFailed) and ended.result.reason == "caught_up"
    assert (tmp_path / "given_up").read_text() == "1234 CRASHED\n"
    assert sum("on the tuple [1234, 'number 1234']" in text for text in deaths(watcher)) == 4
