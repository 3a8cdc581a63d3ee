"""The end of a run in which a worker has died: the others work off what they hold, and wait for nothing of the dead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streamlet import Bolt, Grouping, Spout, Topology, Tuple
from streamlet.runtime.tasks.emitter import Incoming, Run
from streamlet.runtime.worker.loop import DRAINING, WorkerLoop
from tests.scripted.runtime.worker.test_loop import Held
from tests.worker_contexts import made_context

NUMBERS, SINK, RELAY = 1, 2, 3
"""Task ids: of two workers the second has the sink, the first all else."""


class Numbers(Spout):
    outputs = ["n"]

    def next_tuple(self) -> None: ...


class Relay(Bolt):
    outputs = ["n"]

    def initialize(self, conf: Any, context: Any) -> None:
        self.seen: list[Any] = []

    def process(self, tup: Tuple) -> None:
        self.seen.append(tup.values[0])
        self.emit(tup.values)


class Sink(Bolt):
    def process(self, tup: Tuple) -> None: ...


class Chain(Topology):
    numbers = Numbers.spec()
    sink = Sink.spec(inputs={"relay": Grouping.SHUFFLE})
    relay = Relay.spec(inputs=[numbers])


@pytest.fixture
def loop() -> Iterator[WorkerLoop]:
    """The first worker in a drain. It has no link to the second any more."""
    links = Held()
    links.up = False
    made = WorkerLoop(made_context(Chain.__topology__, 2), links)  # type: ignore[attr-defined]
    made.initialize()
    made.activate()
    made.pause(DRAINING)
    made.recover([1])
    yield made
    made.close(clean=False)


def give(loop: WorkerLoop, *numbers: int, root: int = 0) -> list[Any]:
    """Let these reach the relay; what it has seen after a few turns."""
    for n in numbers:
        links: Any = loop.links
        links.arrived.append(Incoming([Run(RELAY, NUMBERS, "default", False, [root], [1], [[n]])], [], [], []))
        loop.turn()
    for _ in range(3):
        loop.turn()
    relay: Any = loop.tasks[RELAY].component
    return relay.seen  # type: ignore[no-any-return]


def test_a_bolt_works_off_its_queue_though_what_it_emits_reaches_nobody(loop: WorkerLoop) -> None:
    """It would wait for a link that never comes, and the drain for it."""
    loop.write_off([1])
    assert give(loop, 1, 2, 3) == [1, 2, 3]
    assert loop.idle and not loop.inbox.waits and loop.untracked_waiting() == {"sink": 3}
    assert not list(loop.departures.staying()), "counted, not kept: nothing bounds what is emitted meanwhile"


def test_what_stayed_for_a_worker_before_it_was_written_off_is_counted(loop: WorkerLoop) -> None:
    assert give(loop, 1) == [1]
    assert give(loop, 2, 3) == [1], "a link may come again: what it is to carry is not to grow"
    assert not loop.idle
    loop.write_off([1])
    assert give(loop) == [1, 2, 3]
    assert loop.idle and loop.untracked_waiting() == {"sink": 3}


def test_trees_with_a_tuple_for_the_dead_count_as_no_untracked_ones(loop: WorkerLoop) -> None:
    loop.write_off([1])
    assert give(loop, 1, root=NUMBERS << 48 | 1) == [1]
    assert loop.idle and loop.untracked_waiting() == {}
