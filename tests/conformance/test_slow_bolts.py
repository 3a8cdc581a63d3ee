"""Slow bolts: the same promises on every backend, with times scaled down (a time-out of 1 s stands for 30 s)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streamlet.backends.contract import ComponentStatus, RunRequest, RunResult, Stop
from streamlet.backends.outcome import TreesFailed
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.conformance.conftest import backend_named
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

FILE = Path(__file__).with_name("slow_bolts.py")
TIMEOUT_S = 1.0

backends = pytest.mark.parametrize(
    ("backend", "workers"),
    [("inline", 1), ("processes", 1), ("processes", 2)],
    ids=["inline", "one worker", "two workers"],
)


class Ran:
    """A run of one of the topologies, and what its tasks wrote down."""

    def __init__(
        self, folder: Path, backend: str, workers: int, name: str, seconds: float = PATIENCE_S, **more: Any
    ) -> None:
        topology = load_topology(FILE, name)
        own = {"slow.results": str(folder), "streamlet.until.caught.up": True}
        own |= {"topology.message.timeout.secs": TIMEOUT_S, **{key.replace("__", "."): more[key] for key in more}}
        self.watcher = Watcher()
        conf = resolve(topology.config, own)
        caught_up = conf["streamlet.until.caught.up"]
        request = RunRequest(
            topology, conf, file=FILE, attribute=name, workers=workers, seconds=seconds, until_caught_up=caught_up
        )
        self.result: RunResult = backend_named(backend).run(request, self.watcher, Stop())
        lines = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
        self.given = [line["n"] for line in lines if "n" in line]
        self.waits = sorted(line["waited_s"] for line in lines if "n" in line)
        moments = [line["at_s"] for line in lines if "n" in line]
        self.work_s = max(moments) - min(moments)
        """Seconds from the first tuple that the bolt was given to the last."""
        self.failures = [(line["failed"], line["reason"]) for line in lines if "failed" in line]
        self.held = [line["held"] for line in lines if "held" in line]
        """How many tuples a bolt with threads held, at each that it was given."""
        self.batches = [line["batch"] for line in lines if "batch" in line]
        """The sizes of a bolt's batches."""
        self.given_up = [line["given_up"] for line in lines if "given_up" in line]

    @property
    def numbers(self) -> ComponentStatus:
        return self.result.components["numbers"]

    def all_once(self, count: int) -> bool:
        """Whether it caught up, and each number was given to the bolt exactly once."""
        ended = (self.result.reason, self.result.drained) == ("caught_up", True)
        return ended and self.given_up == self.failures == [] and Counter(self.given) == Counter(range(count))


@backends
def test_what_waits_longer_than_the_timeout_is_done_once_and_the_run_goes_on(
    backend: str, workers: int, tmp_path: Path
) -> None:
    """2 000 open trees of 3 ms are 6 s of work: with a time-out of 1 s each would be replayed before its turn came."""
    ran = Ran(tmp_path, backend, workers, "OneSlow", slow__count=1000)
    assert ran.all_once(1000)
    assert ran.numbers.timed_out == 0
    assert ran.waits[len(ran.waits) // 2] < TIMEOUT_S, "the window should keep most tuples from waiting that long"


@backends
def test_a_target_keeps_the_wait_of_tuples_far_below_what_the_timeout_alone_allows(
    backend: str, workers: int, tmp_path: Path
) -> None:
    """A quarter of this time-out is 7.5 s of work, more than there is: without a target all of it is queued."""
    medians = []
    for target in (None, 0.1):
        folder = tmp_path / str(target)
        folder.mkdir()
        settings = {"topology__message__timeout__secs": 30.0, "streamlet__queue__target__secs": target}
        ran = Ran(folder, backend, workers, "OneSlow", slow__count=1000, **settings)
        assert ran.all_once(1000)
        medians.append(ran.waits[len(ran.waits) // 2])
    without, with_target = medians
    assert with_target * 4 < without, medians


@backends
@pytest.mark.parametrize(("each_s", "count"), [(0.15, 30), (1.5, 3)], ids=["1 s for a tuple", "10 s for a tuple"])
def test_a_call_as_long_as_the_timeout_is_no_timeout(
    backend: str, workers: int, each_s: float, count: int, tmp_path: Path
) -> None:
    """Heartbeats come from another thread; a tuple under work is not forgotten."""
    fast = {"streamlet__worker__heartbeat__secs": 0.2, "streamlet__worker__timeout__secs": 1.0}
    ran = Ran(tmp_path, backend, workers, "OneSlow", slow__count=count, slow__secs=each_s, **fast)
    assert ran.all_once(count)


@backends
def test_a_bolt_that_becomes_slow_gets_no_tuple_twice(backend: str, workers: int, tmp_path: Path) -> None:
    """2 000 trees may be open by then; those that wait are not replayed, and fewer are opened from then on."""
    ran = Ran(tmp_path, backend, workers, "Becoming", slow__count=4000)
    assert ran.all_once(4000)


@backends
def test_one_slow_task_of_a_pool_gets_no_tuple_twice(backend: str, workers: int, tmp_path: Path) -> None:
    """What is fast grows the window, what is slow must not be buried under it."""
    ran = Ran(tmp_path, backend, workers, "Pool", slow__count=240, slow__secs=0.002)
    assert ran.all_once(240)
    assert ran.waits[-1] < ran.work_s, "all of the slow task's tuples were queued at once"


@backends
@pytest.mark.parametrize("name", ["Counting", "Ticking"])
def test_a_bolt_that_collects_batches_does_not_starve(backend: str, workers: int, name: str, tmp_path: Path) -> None:
    """It acks nothing before it has 500, or before its tick: the window opens for it."""
    ran = Ran(tmp_path, backend, workers, name, slow__count=2000)
    assert ran.all_once(2000)


@backends
def test_a_batch_of_a_slow_bolt_is_no_larger_than_what_may_wait(backend: str, workers: int, tmp_path: Path) -> None:
    """A batch takes all that waits, so nothing ever seemed to wait: each was twice as large as the one before."""
    settings = {"streamlet__queue__target__secs": 0.4}
    ran = Ran(tmp_path, backend, workers, "SlowByBatch", slow__count=300, slow__secs=0.02, **settings)
    assert ran.all_once(300)
    assert ran.numbers.timed_out == 0
    assert max(ran.batches) <= 20, ran.batches
    assert ran.waits[len(ran.waits) // 2] < 3 * 0.4, "what is open should be done in about the target"


@backends
def test_batches_that_take_as_long_whatever_their_size_grow(backend: str, workers: int, tmp_path: Path) -> None:
    """Each takes longer than the target: kept small, 1 000 numbers would take 150 s or more."""
    settings = {"streamlet__queue__target__secs": 0.1}
    ran = Ran(tmp_path, backend, workers, "Requests", slow__count=1000, slow__secs=0.15, **settings)
    assert ran.all_once(1000)
    assert len(ran.batches) < 60 and max(ran.batches) > 50, ran.batches


@backends
def test_a_pool_of_threads_holds_no_more_than_it_may_and_what_waits_for_it_does_not_time_out(
    backend: str, workers: int, tmp_path: Path
) -> None:
    """500 numbers are 4 s of work: without a bound all would be in the pool, and time out there at 1 s."""
    ran = Ran(tmp_path, backend, workers, "Threads", slow__count=500, slow__secs=0.007)
    assert ran.all_once(500)
    assert ran.numbers.timed_out == 0 and 5 <= max(ran.held) <= 8
    assert ran.waits[len(ran.waits) // 2] < TIMEOUT_S, "the window should keep most tuples from waiting that long"


@backends
def test_a_forgotten_tuple_times_out_is_named_counted_charged_and_replayed(
    backend: str, workers: int, tmp_path: Path
) -> None:
    ran = Ran(tmp_path, backend, workers, "Forgetting", slow__count=250)
    assert sorted(ran.failures) == [(n, "TIMED_OUT") for n in (0, 100, 200)]
    assert ran.numbers.timed_out == ran.numbers.failed == 3
    assert Counter(ran.given) == Counter([*range(250), 0, 100, 200]) and not ran.given_up
    told = [text for text in ran.watcher.texts if "timed out" in text]
    assert told and all("the bolt slow (task 2)" in text and "neither acked nor failed" in text for text in told)


@backends
def test_an_end_by_timeouts_names_the_bolt_that_had_the_tuples(backend: str, workers: int, tmp_path: Path) -> None:
    with pytest.raises(TreesFailed) as caught:
        Ran(tmp_path, backend, workers, "ForgettingForGood", slow__count=250)
    assert caught.value.result.components["numbers"].given_up == 3
    assert "The bolt slow (task 2) was given tuples" in caught.value.message
    assert "No component raised anything" not in caught.value.message


@backends
def test_a_call_of_a_pool_longer_than_the_timeout_is_not_told_as_a_forgotten_tuple(
    backend: str, workers: int, tmp_path: Path
) -> None:
    """No ack is missing, and a smaller max_unacked would not help: the advice was for bolts that ack themselves."""
    with pytest.raises(TreesFailed) as caught:
        Ran(tmp_path, backend, workers, "AwaitingForGood", slow__count=250)
    seen = caught.value.result
    assert seen.components["numbers"].given_up == seen.components["numbers"].timed_out == 3
    assert "The bolt slow (task 2) had been in process for longer than" in caught.value.message
    assert "acked" not in caught.value.message and "auto_ack" not in caught.value.message


@backends
def test_a_run_of_a_slow_bolt_that_is_ended_by_time_leaves_nothing_open(
    backend: str, workers: int, tmp_path: Path
) -> None:
    """A quarter of this time-out is 6 s of work, more than the 4 s of a usual drain."""
    settings = {"topology__message__timeout__secs": 24.0, "streamlet__until__caught__up": False}
    ran = Ran(tmp_path, backend, workers, "OneSlow", 9.0, slow__count=10**6, slow__secs=0.03, **settings)
    assert (ran.result.reason, ran.result.drained) == ("time", True)
    assert len(ran.given) == len(set(ran.given)) == ran.numbers.acked == ran.numbers.emitted


@pytest.mark.spark
def test_a_slow_bolt_on_executors_gets_every_tuple_once_and_soon_where_a_target_is_set(tmp_path: Path) -> None:
    """The same workers, so one case stands for all. All queued at once, half would wait for half of the work."""
    settings = {"topology__message__timeout__secs": 30.0, "streamlet__queue__target__secs": 0.1}
    ran = Ran(tmp_path, "spark", 2, "OneSlow", slow__count=1000, **settings)
    assert ran.all_once(1000)
    assert ran.waits[len(ran.waits) // 2] * 4 < ran.work_s
