"""Tuples that kill their worker after ``process`` took them: in a batch of ticks, or on a thread of the bolt's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamlet.backends.contract import RunResult
from streamlet.backends.outcome import TreesFailed
from tests.faults.deadly_runs import COUNT, deaths, done, run
from tests.run_observer import Watcher

pytestmark = pytest.mark.faults

BY_TICKS = """
class Deadly(TicklessBatchingBolt, Records):
    secs_between_batches = 0.2
    def process_batch(self, key, tups):
        for tup in tups:
            self.work_on(tup)
"""

BY_THREADS = """
class Deadly(Records):
    outputs = ["n", "text"]
    auto_ack = False
    def initialize(self, conf, context):
        super().initialize(conf, context)
        self.pool = ThreadPoolExecutor(8)
    def process(self, tup):
        self.pool.submit(self.finish, tup)
    def finish(self, tup):
        self.work_on(tup)
        self.emit(tup.values, anchors=[tup])
        self.ack(tup)

class Behind(Bolt):
    def process(self, tup):
        pass
"""

ON_THREADS = """
class Deadly(ThreadedBolt, Records):
    threads = 4
    def process(self, tup):
        self.work_on(tup)
"""

ON_A_LOOP = """
class Deadly(AsyncBolt, Records):
    async def process(self, tup):
        self.work_on(tup)
"""

BY_FIFTIES = """
class Deadly(Records):
    auto_ack = False
    config = {"topology.tick.tuple.freq.secs": 4}
    def initialize(self, conf, context):
        super().initialize(conf, context)
        self.kept = []
    def process(self, tup):
        self.kept.append(tup)
        if len(self.kept) == 50:
            self.process_tick(None)
    def process_tick(self, tup):
        for one in self.kept:
            self.work_on(one)
            self.ack(one)
        self.kept.clear()
"""

ALL_BUT_IT = set(range(1, COUNT + 1)) - {1234}


def check_found(folder: Path, watcher: Watcher, ended: RunResult | TreesFailed, most_named: int = 3) -> None:
    """It alone was given up, under its name, in a few deaths."""
    assert isinstance(ended, TreesFailed) and ended.result.reason == "caught_up"
    assert (folder / "given_up").read_text() == "1234 CRASHED\n"
    assert set(done(folder)) == ALL_BUT_IT
    told = deaths(watcher)
    assert 3 <= len(told) <= 6, told
    assert 3 <= sum("the tuple [1234, 'number 1234']" in text for text in told) <= most_named


@pytest.mark.parametrize(("how", "workers"), [("segfault", 1), ("leave", 4)])
def test_a_tuple_that_kills_its_worker_in_a_batch_of_ticks_is_given_up_by_name(
    tmp_path: Path, how: str, workers: int
) -> None:
    """With one worker its spout dies too: the replacement leaves out what it died of."""
    watcher, ended = run(tmp_path, how, workers, par=min(workers, 2), deadly=BY_TICKS)
    check_found(tmp_path, watcher, ended)
    assert any("in process_tick of deadly" in text and " tuples" in text for text in deaths(watcher))


@pytest.mark.parametrize(("how", "workers"), [("segfault", 1), ("leave", 4)])
def test_a_tuple_that_kills_its_worker_on_a_thread_of_the_bolts_is_given_up_by_name(
    tmp_path: Path, how: str, workers: int
) -> None:
    """The loop is elsewhere when it dies, in another bolt or asleep: no other tuple is charged with it."""
    watcher, ended = run(tmp_path, how, workers, par=min(workers, 2), deadly=BY_THREADS)
    check_found(tmp_path, watcher, ended)


@pytest.mark.parametrize("deadly", [ON_THREADS, ON_A_LOOP], ids=["ThreadedBolt", "AsyncBolt"])
def test_a_tuple_that_kills_its_worker_in_a_bolt_made_to_work_elsewhere_is_given_up_by_name(
    tmp_path: Path, deadly: str
) -> None:
    check_found(tmp_path, *run(tmp_path, "segfault", workers=2, deadly=deadly))


def test_a_tuple_that_hangs_in_a_batch_of_ticks_is_given_up_where_the_user_chose_so(tmp_path: Path) -> None:
    conf: dict[str, Any] = {"streamlet.task.hang.secs": 2, "streamlet.task.hang.action": "replace"}
    watcher, ended = run(tmp_path, "hang", workers=2, deadly=BY_TICKS, **conf)
    check_found(tmp_path, watcher, ended)


@pytest.mark.parametrize("deadly", [ON_THREADS.replace("= 4", "= 1"), ON_A_LOOP], ids=["ThreadedBolt", "AsyncBolt"])
def test_a_pool_of_which_nothing_goes_on_is_replaced_where_the_user_chose_so(tmp_path: Path, deadly: str) -> None:
    """The tuple that it hangs on is charged, and those that wait for it are not."""
    conf: dict[str, Any] = {"streamlet.task.hang.secs": 2, "streamlet.task.hang.action": "replace"}
    watcher, ended = run(tmp_path, "hang", workers=2, deadly=deadly, **conf)
    check_found(tmp_path, watcher, ended, most_named=4)


def test_a_bolt_that_settles_no_single_tuple_goes_on_after_a_death(tmp_path: Path) -> None:
    """Alone, each tuple would wait for 49 others, and those of two tasks in one worker for each other."""
    watcher, ended = run(tmp_path, "leave_once", workers=2, par=4, deadly=BY_FIFTIES)
    assert not isinstance(ended, TreesFailed) and ended.reason == "caught_up"
    assert set(done(tmp_path)) == ALL_BUT_IT | {1234}
    assert not any("timed out" in text for text in watcher.texts)
