"""A tester waits for the threads of bolts, and for no ticks."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streamlet import BadInput, BatchingBolt, Bolt, StreamletError, Topology, Tuple
from streamlet.testing import BoltTester, TopologyTester
from tests.unit.testing.tested import Orders


class Pooled(Bolt):
    outputs = ["word"]
    auto_ack = False
    takes_s = 0.02

    def initialize(self, conf: Any, context: Any) -> None:
        self.pool = ThreadPoolExecutor(4)

    def process(self, tup: Tuple) -> None:
        self.pool.submit(self.work, tup)

    def work(self, tup: Tuple) -> None:
        time.sleep(self.takes_s)
        if tup.values[0] != "never":
            self.emit([tup.values[0].upper()], anchors=[tup])
            self.ack(tup)

    def cleanup(self) -> None:
        self.pool.shutdown()


class Pooling(Topology):
    orders = Orders.spec()
    pooled = Pooled.spec(inputs=[orders])


def test_a_tester_waits_for_a_bolts_threads() -> None:
    with BoltTester(Pooled) as pooled:
        pooled.give("a", "b", "c")
        pooled.wait()
        assert sorted(pooled.acked) == [["a"], ["b"], ["c"]] and sorted(pooled.emitted()) == [["A"], ["B"], ["C"]]
    with TopologyTester(Pooling, {"orders": ["a", "b"]}) as pooling:
        pooling.wait()
        assert sorted(pooling.acked("orders")) == [["a"], ["b"]]


def test_a_wait_in_vain_names_what_is_open() -> None:
    with BoltTester(Pooled) as pooled:
        pooled.give("never")
        with pytest.raises(StreamletError, match=r"1 tuple is still open after 0.1 s.* threads: \['never'\]"):
            pooled.wait(0.1)
    with TopologyTester(Pooling, {"orders": ["never"]}) as pooling:
        with pytest.raises(StreamletError, match=r"1 message of a spout is still open after 0.1 s"):
            pooling.wait(0.1)
        with pytest.raises(BadInput, match="a number of seconds"):
            pooling.wait("long")  # type: ignore[arg-type]


class TwoSeconds(BatchingBolt):
    outputs = ["sum"]
    config = {"topology.tick.tuple.freq.secs": 2}

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        self.emit(["".join(sorted(tup.values[0] for tup in tups))])


class PoolingThenBatching(Topology):
    orders = Orders.spec()
    pooled = Pooled.spec(inputs=[orders])
    batches = TwoSeconds.spec(inputs=[pooled])


def test_a_wait_for_threads_ends_where_a_batch_waits_for_its_tick() -> None:
    with TopologyTester(PoolingThenBatching, {"orders": ["a", "b", "c"]}) as tester:
        tester.run()
        tester.wait()
        assert tester.emitted("batches") == [] and tester.open_trees == 3
        tester.advance(2)
        assert tester.emitted("batches") == [["ABC"]] and tester.open_trees == 0


def test_a_wait_lets_all_rows_into_a_batch_that_may_be_open() -> None:
    for most, batches in ((2000, [["A" * 70]]), (5, [["A" * 5]])):
        settings = {"topology.max.spout.pending": most}
        with TopologyTester(PoolingThenBatching, {"orders": ["a"] * 70}, settings=settings) as tester:
            tester.wait()
            tester.advance(2)
            assert tester.emitted("batches") == batches


def test_a_wait_ends_not_while_a_thread_has_a_tuple_beside_a_batch() -> None:
    said = "2 messages of spouts are still open after 0.2 s"
    with (
        TopologyTester(PoolingThenBatching, {"orders": ["a", "never"]}) as t,
        pytest.raises(StreamletError, match=said),
    ):
        t.wait(0.2)


def test_a_wait_ends_not_while_threads_have_the_tuples_of_a_batch() -> None:
    """Only a batch waits for its tick: what a batching bolt hands to threads does not."""

    class PooledBatches(TwoSeconds):
        auto_ack = False

        def initialize(self, conf: Any, context: Any) -> None:
            self.pool = ThreadPoolExecutor(4)

        def process_batch(self, key: Any, tups: list[Tuple]) -> None:
            for tup in tups:
                self.pool.submit(self.work, tup)

        def work(self, tup: Tuple) -> None:
            time.sleep(0.02)
            self.ack(tup)

        def cleanup(self) -> None:
            self.pool.shutdown()

    with BoltTester(PooledBatches) as batches:
        batches.give("a", "b")
        batches.wait()
        assert batches.acked == []
        batches.tick()
        batches.wait()
        assert sorted(batches.acked) == [["a"], ["b"]]


class Holds(Bolt):
    """Keeps tuples for its tick, without being a BatchingBolt."""

    auto_ack = False
    config = {"topology.tick.tuple.freq.secs": 2}

    def initialize(self, conf: Any, context: Any) -> None:
        self.held: list[Tuple] = []

    def process(self, tup: Tuple) -> None:
        self.held.append(tup)

    def process_tick(self, tup: Tuple) -> None:
        while self.held:
            self.ack(self.held.pop())


class PoolingThenHolding(Topology):
    orders = Orders.spec()
    pooled = Pooled.spec(inputs=[orders])
    holds = Holds.spec(inputs=[pooled])


def test_a_wait_ends_where_only_the_bolts_that_it_names_have_tuples() -> None:
    with TopologyTester(PoolingThenHolding, {"orders": ["a", "b"]}) as tester:
        tester.wait(until_held_by=["holds"])
        assert len(tester.instances("holds")[0].held) == 2
        with pytest.raises(StreamletError, match=r"holds has them.*until_held_by=\['holds'\]"):
            tester.wait(0.1)
        tester.advance(2)
        assert tester.open_trees == 0


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("holds", r"until_held_by= is 'holds'.*\['holds'\]"),
        (["hold"], r"no bolt 'hold'.*'pooled', 'holds'"),
        (["orders"], "no bolt 'orders'"),
        (3, "until_held_by= is 3"),
    ],
)
def test_a_wait_for_bolts_that_are_not_there_is_refused(names: Any, text: str) -> None:
    with TopologyTester(PoolingThenHolding, {"orders": []}) as tester, pytest.raises(BadInput, match=text):
        tester.wait(until_held_by=names)
