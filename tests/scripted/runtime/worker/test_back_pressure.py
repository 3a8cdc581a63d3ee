"""Several workers in one thread, with tiny marks and links that lag: whatever the topology, every tuple is processed.

Topologies are drawn: diamonds, fan-outs, cycles, self-loops, any spread over workers. A bolt emits to each of its
streams while a tuple has hops left.
"""

from __future__ import annotations

import random
import selectors
from collections import deque
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streamlet import Bolt, Grouping, Spout, Topology, Tuple
from streamlet.base.clock import ManualClock
from streamlet.model.topology import TopologySpec
from streamlet.runtime.links.links import Links, Traffic
from streamlet.runtime.links.wire import decode_data, encode_data
from streamlet.runtime.tasks.emitter import Incoming, Outgoing, Run
from streamlet.runtime.worker.loop import LEAVING, WorkerLoop
from tests.worker_contexts import made_context

MOST_TURNS = 30_000
"""Far more turns of all workers than any of these takes; a lock takes for ever."""


class Source(Spout):
    outputs = ["hops", "fan", "key"]

    def initialize(self, conf: Any, context: Any) -> None:
        self.left = self.acked = 0

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.emit([3, 3, self.left], tup_id=self.left)

    def ack(self, tup_id: Any) -> None:
        self.acked += 1


class Relay(Bolt):
    outputs = ["hops", "fan", "key"]

    def initialize(self, conf: Any, context: Any) -> None:
        self.clock, self.uniform = context.clock, context.uniform

    def process(self, tup: Tuple) -> None:
        self.clock.advance(0.0005 * self.uniform())
        hops, fan, key = tup.values
        if hops:
            for n in range(fan):
                self.emit([hops - 1, fan, key * 31 + n])


def topology(reads: list[list[int]], par: list[int]) -> TopologySpec:
    """Bolt ``n`` reads the bolts in ``reads[n]`` (any, itself too); the first reads the spout as well."""
    lines: dict[str, Any] = {"source": Source.spec(par=2)}
    for n, sources in enumerate(reads):
        inputs = {f"bolt{source}": Grouping.fields("key") for source in sources}
        inputs |= {"source": Grouping.SHUFFLE} if n == 0 or not sources else {}
        lines[f"bolt{n}"] = Relay.spec(inputs=inputs, par=par[n])
    return type("Drawn", (Topology,), lines).__topology__  # type: ignore[attr-defined,no-any-return]


class Wire(Links):
    """One worker's ends of the links: what is sent arrives later, as much at a time as the rig moves."""

    def __init__(self) -> None:
        self.out: dict[int, deque[bytes]] = {}
        self.arrived: list[Incoming] = []
        self.counts: Traffic = ({}, {})

    def attach(self, selector: selectors.BaseSelector) -> None: ...

    def send(self, worker: int, outgoing: Outgoing) -> list[Run] | None:
        self.out.setdefault(worker, deque()).append(encode_data(outgoing))
        self.counted(0, worker)
        return []

    def received(self) -> list[Incoming]:
        taken, self.arrived = self.arrived, []
        return taken

    def unsent_bytes(self) -> dict[int, int]:
        return {worker: sum(map(len, queue)) for worker, queue in self.out.items() if queue}

    def traffic(self) -> Traffic:
        return self.counts

    def counted(self, way: int, worker: int) -> None:
        counts: dict[int, int] = self.counts[way]  # type: ignore[assignment]
        counts[worker] = counts.get(worker, 0) + 1

    def close(self) -> None: ...


class Workers:
    """The loops of a whole plan, on one clock."""

    def __init__(self, spec: TopologySpec, workers: int, seed: int, **conf: Any) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.wires = [Wire() for _ in range(workers)]
        self.loops = [
            WorkerLoop(
                made_context(
                    spec,
                    workers,
                    worker,
                    conf,
                    clock=self.clock,
                    rng=random.Random(self.rng.random()),
                    report=lambda *error: pytest.fail(str(error)),
                ),
                wire,
            )
            for worker, wire in enumerate(self.wires)
        ]
        for loop in self.loops:
            loop.initialize()
        for loop in self.loops:
            loop.activate()

    @property
    def sources(self) -> list[Any]:
        return [spout.spout for loop in self.loops for spout in loop.spouts.values()]

    def turn(self) -> None:
        """One worker does a turn, or one link moves a frame."""
        worker = self.rng.randrange(len(self.loops))
        queues = [(to, queue) for to, queue in self.wires[worker].out.items() if queue]
        if queues and self.rng.random() < 0.5:
            to, queue = self.rng.choice(queues)
            incoming = decode_data(queue.popleft())
            incoming.worker = worker
            self.wires[to].arrived.append(incoming)
            self.wires[to].counted(1, worker)
        else:
            self.loops[worker].turn()

    def turns_until_done(self) -> Iterable[int]:
        for turn in range(MOST_TURNS):
            if not any(loop.ledgers.pending() for loop in self.loops) and not any(s.left for s in self.sources):
                return
            self.turn()
            yield turn
        held = [[(work.run.target, work.left) for work in loop.inbox] for loop in self.loops]
        pytest.fail(f"nothing moves: {held}, {[loop.inbox.waits for loop in self.loops]}")

    def close(self) -> None:
        for loop in self.loops:
            loop.close(clean=False)


@st.composite
def drawn(draw: st.DrawFn) -> tuple[TopologySpec, int]:
    bolts = draw(st.integers(1, 5))
    reads = [sorted(draw(st.sets(st.integers(0, bolts - 1), max_size=2))) for _ in range(bolts)]
    par = [draw(st.integers(1, 2)) for _ in range(bolts)]
    return topology(reads, par), draw(st.integers(1, 3))


@settings(
    deadline=None,
    max_examples=60,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a lock shrinks for minutes
    suppress_health_check=[HealthCheck.too_slow],
)
@given(drawn(), st.integers(0, 1 << 30), st.sampled_from([1, 4, 20]))
def test_every_tuple_is_processed_in_any_topology_however_small_the_marks(
    one: tuple[TopologySpec, int], seed: int, tuples: int
) -> None:
    """Cycles and diamonds too: a bolt waits only for deeper ones, so the deepest that has work waits for nobody."""
    workers = Workers(
        *one,
        seed,
        **{
            "streamlet.inbox.high.water.tuples": tuples,
            "streamlet.link.high.water.bytes": 50,
            "topology.message.timeout.secs": 1e6,
            "topology.max.spout.pending": 5,
        },
    )
    try:
        for source in workers.sources:
            source.left = 6
        for _ in workers.turns_until_done():
            pass
        assert [source.acked for source in workers.sources] == [6, 6]
        assert all(not loop.inbox for loop in workers.loops)
    finally:
        workers.close()


CHAIN = topology([[], [0], [1]], [1, 1, 1])


def rows(target: int, count: int) -> list[Run]:
    """Tuples of the spout on worker 1, which lead to three others each."""
    values = [[1, 3, n] for n in range(count)]
    return [Run(target, 2, "default", False, [2 << 48 | 1] * count, list(range(count)), values)]


def test_a_bolt_waits_while_what_it_emits_to_on_another_worker_is_full() -> None:
    """Its own worker holds nothing: only the word of the other one can stop it."""
    rig = Workers(CHAIN, 2, 1)
    try:
        loop, wire = rig.loops[0], rig.wires[0]
        wire.arrived.append(Incoming(rows(3, 5), [], [], [], full=[4], worker=1))
        assert loop.turn() > 0, "it sleeps meanwhile"
        assert loop.inbox.tuples == 5 and not wire.out
        wire.arrived.append(Incoming([], [], [], [], full=[5], worker=1))
        loop.turn()
        assert not loop.inbox and [len(run.roots) for run in decode_data(wire.out[1][0]).runs] == [15]
    finally:
        rig.close()


def test_a_bolt_waits_while_the_link_to_those_it_emits_to_is_clogged() -> None:
    """A worker that does not read says nothing; what waits for it does."""
    rig = Workers(CHAIN, 2, 1, **{"streamlet.link.high.water.bytes": 2000})
    try:
        loop, wire = rig.loops[0], rig.wires[0]
        for _ in range(30):
            wire.arrived.append(Incoming(rows(3, 100), [], [], [], worker=1))
            loop.turn()
        before = loop.inbox.tuples
        assert before > 2000 and wire.unsent_bytes()[1] < 20_000
        for _ in range(3):
            loop.turn()
        assert loop.inbox.tuples == before
        for _ in range(30):
            wire.out.clear()
            loop.turn()
        assert 0 < loop.inbox.tuples < before and wire.unsent_bytes()[1] > 0
    finally:
        rig.close()


def sent(wire: Wire) -> list[list[Run]]:
    """Take what waits on the link to worker 1, frame by frame."""
    frames = [decode_data(frame).runs for frame in wire.out.get(1, ())]
    wire.out.clear()
    return frames


def test_what_one_call_emits_leaves_in_pieces_as_the_link_empties_and_in_order() -> None:
    """2 000 tuples of one turn, and a link of 20 kB: no frame has more than a piece, and the rest stays at home."""
    rig = Workers(CHAIN, 2, 1, **{"streamlet.link.high.water.bytes": 20_000})
    try:
        loop, wire = rig.loops[0], rig.wires[0]
        loop.departures.add(1, [Run(4, 3, "default", False, [0] * 2000, [0] * 2000, [[1, 3, n] for n in range(2000)])])
        arrived: list[int] = []
        for _ in range(1000):
            loop.turn()
            for runs in sent(wire):
                assert sum(len(run.roots) for run in runs) < 60
                arrived += [values[2] for run in runs for values in run.values]
            if len(arrived) == 2000:
                break
            assert loop.paused == {LEAVING} and not loop.idle
            assert loop.untracked_waiting() == {"bolt1": 2000 - len(arrived)}
        loop.turn()
        assert arrived == list(range(2000)) and not loop.paused and loop.idle
    finally:
        rig.close()


def test_what_one_call_emits_stays_at_home_while_the_task_it_is_for_is_full() -> None:
    """The receiver could not but take it. Tuples for its other tasks, acks and failures are not held up."""
    rig = Workers(CHAIN, 2, 1, **{"streamlet.link.high.water.bytes": 2000})
    try:
        loop, wire = rig.loops[0], rig.wires[0]
        wire.arrived.append(Incoming([], [], [], [], full=[4], worker=1))
        loop.departures.add(1, [Run(4, 3, "default", False, [7] * 99, [7] * 99, [[1, 3, n] for n in range(99)])])
        loop.departures.add(1, [Run(6, 3, "default", False, [7], [7], [[1, 3, 0]])])
        loop.departures.to(1).fails.append(5)
        loop.turn()
        frames = [decode_data(frame) for frame in wire.out.pop(1)]
        assert [run.target for frame in frames for run in frame.runs] == [6]
        assert [root for frame in frames for root in frame.fails] == [5]
        assert loop.departures.held == {4} and 3 in loop.inbox.waits
        wire.arrived.append(Incoming([], [], [], [], full=[], worker=1))
        while not loop.idle:
            loop.turn()
            assert all(run.target == 4 for runs in sent(wire) for run in runs)
        assert not loop.inbox.waits
    finally:
        rig.close()


def test_of_what_stays_at_home_only_the_untracked_outlives_the_link() -> None:
    """The trees of the others have failed with the link, and are replayed under other roots."""
    rig = Workers(CHAIN, 2, 1, **{"streamlet.link.high.water.bytes": 2000})
    try:
        loop, wire = rig.loops[0], rig.wires[0]
        wire.arrived.append(Incoming([], [], [], [], full=[4], worker=1))
        roots = [0, 1 << 48 | 9] * 50
        loop.departures.add(1, [Run(4, 3, "default", False, roots, roots, [[1, 3, n] for n in range(100)])])
        loop.turn()
        loop.recover([1])
        assert [values for run in loop.departures.staying() for values in run.values] == [
            [1, 3, n] for n in range(0, 100, 2)
        ]
        loop.recovered()
        while not loop.idle:
            loop.turn()
            assert all(root == 0 for runs in sent(wire) for run in runs for root in run.roots)
    finally:
        rig.close()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_fan_out_holds_no_more_than_its_marks_and_what_was_on_its_way(workers: int) -> None:
    """Of 30 x 9 tuples that lead to 27 each, few are there at once, in any worker."""
    rig = Workers(
        CHAIN,
        workers,
        1,
        **{
            "streamlet.inbox.high.water.tuples": 40,
            "streamlet.link.high.water.bytes": 500,
            "topology.message.timeout.secs": 1e6,
        },
    )
    try:
        for source in rig.sources:
            source.left = 60
        most = max(max(loop.inbox.tuples for loop in rig.loops) for _ in rig.turns_until_done())
        assert [source.acked for source in rig.sources] == [60, 60]
        assert most < 400
    finally:
        rig.close()
