"""Calls of a loop's components that take long: which part of that time is their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from streamlet import Bolt, Spout, Topology, Tuple
from streamlet.base.clock import ManualClock
from streamlet.runtime.links.links import NoLinks
from streamlet.runtime.worker.long_calls import LongCalls
from streamlet.runtime.worker.loop import WorkerLoop
from tests.worker_contexts import made_context

LOOKS_S = 1.0


class Silent(Spout):
    outputs = ["n"]

    def next_tuple(self) -> None: ...


class Slow(Bolt):
    def process(self, tup: Tuple) -> None: ...


class SlowPair(Topology):
    silent = Silent.spec()
    slow = Slow.spec(inputs=[silent])


Beside = Callable[[Callable[[], None]], None]


@pytest.fixture
def beside() -> Iterator[Beside]:
    """Runs a call on a thread that is not the loop's, and lives as long."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(time.sleep, 0.001).result()  # it has woken up once: the system counts that
        yield lambda act: pool.submit(act).result()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def told() -> list[Any]:
    return []


@pytest.fixture
def calls(clock: ManualClock, told: list[Any], beside: Beside) -> Any:
    tell: Any = lambda *line: told.append(line)  # noqa: E731
    loop = WorkerLoop(made_context(SlowPair.__topology__, 1, 0, {}, clock=clock, tell=tell), NoLinks())
    loop.initialize()
    beside(partial(loop.long_calls.look, LOOKS_S))
    yield loop.long_calls
    loop.close(clean=False)


def test_a_call_counts_whole_while_somebody_could_look(
    clock: ManualClock, calls: LongCalls, told: list[Any], beside: Beside
) -> None:
    began = clock.monotonic()
    for _ in range(60):
        clock.advance(LOOKS_S / 2)
        beside(partial(calls.look, LOOKS_S))
    assert calls.look_back(2, "process", began, "") == 0.0 and told == []


def test_a_call_does_not_count_while_the_process_was_stopped_and_nobody_is_named(
    clock: ManualClock, calls: LongCalls, told: list[Any]
) -> None:
    """In no time of its own the process has woken up for nothing: it was not the lock."""
    clock.advance(LOOKS_S / 2)
    began = clock.monotonic()
    clock.advance(60.0)
    assert calls.look_back(2, "process", began, "") == 60.0 and told == []


def test_without_bolts_that_work_elsewhere_nothing_hangs_there(calls: LongCalls) -> None:
    assert calls.rows() == [] and calls.stuck() is None


def test_the_thread_of_the_loop_is_never_the_one_that_looks_often(
    clock: ManualClock, calls: LongCalls, beside: Beside
) -> None:
    """It may hold the lock itself, and would wake up as seldom as one of a process that was stopped."""
    beside(partial(calls.look, LOOKS_S))
    calls.look(LOOKS_S / 100)  # of a last heartbeat that the loop sends itself
    clock.advance(LOOKS_S / 2)
    calls.look(LOOKS_S)
    assert calls.standstill.kept_s(0, 0.0, clock.monotonic()) == 0.0
