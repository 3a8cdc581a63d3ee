"""Calls of a loop's components that take long: which part of that time is their own."""

from __future__ import annotations

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


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def told() -> list[Any]:
    return []


@pytest.fixture
def calls(clock: ManualClock, told: list[Any]) -> Any:
    tell: Any = lambda *line: told.append(line)  # noqa: E731
    loop = WorkerLoop(made_context(SlowPair.__topology__, 1, 0, {}, clock=clock, tell=tell), NoLinks())
    loop.initialize()
    loop.long_calls.look(LOOKS_S)
    yield loop.long_calls
    loop.close(clean=False)


def test_a_call_counts_whole_while_somebody_could_look(clock: ManualClock, calls: LongCalls, told: list[Any]) -> None:
    began = clock.monotonic()
    for _ in range(60):
        clock.advance(LOOKS_S / 2)
        calls.look(LOOKS_S)
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
