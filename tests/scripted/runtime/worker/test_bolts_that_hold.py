"""Bolts that give batches to somebody else and ack later: what a time-out, a rest, a timer and a late error do."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from streamlet import Batch, Bolt, ReliableSpout, Topology, Tuple
from streamlet.components.component import BoltPort
from streamlet.runtime.tasks.user_errors import ComponentFailed
from streamlet.testing import TopologyTester


class Numbers(ReliableSpout):
    outputs = ["n"]

    def next_tuple(self) -> None: ...


class Holds(Bolt):
    """Keeps its batches until the test says what becomes of them."""

    auto_ack = False
    answers_for_held = True
    batch_size = 2
    rests_after: ClassVar[int] = 1000

    def bind(self, port: BoltPort) -> None:
        super().bind(port)
        self.port = port

    def initialize(self, conf: Any, context: Any) -> None:
        self.kept: list[Batch] = []
        self.looks = 0

    def process_batch(self, batch: Batch) -> None:
        self.kept.append(batch)
        self.port.rest(len(self.kept) >= self.rests_after)

    def on_timer(self) -> None:
        self.looks += 1


class HoldsUnanswered(Holds):
    answers_for_held = False


class RestsAfterOne(Holds):
    rests_after = 1
    timer_interval_s = 0.5


class HoldsThree(Bolt):
    auto_ack = False

    def initialize(self, conf: Any, context: Any) -> None:
        self.max_unacked = 3  # type: ignore[misc]  # as users may
        self.kept: list[Tuple] = []

    def process(self, tup: Tuple) -> None:
        self.kept.append(tup)


def rig(kind: type[Bolt], **settings: Any) -> TopologyTester:
    class Kept(Topology):
        numbers = Numbers.spec()
        hold = kind.spec(inputs=[numbers])

    return TopologyTester(Kept, {"numbers": []}, settings=settings)


def holding(test: TopologyTester) -> Holds:
    found: Holds = test.instances("hold")[0]
    return found


@pytest.mark.parametrize(("kind", "timed_out"), [(Holds, 0), (HoldsUnanswered, 1)])
def test_a_bolt_that_answers_for_what_it_holds_has_no_timeout(kind: type[Holds], timed_out: int) -> None:
    with rig(kind, **{"topology.message.timeout.secs": 5}) as test:
        test.give("numbers", [1])
        test.run()
        test.advance(8)
        assert test.status("numbers").timed_out == timed_out
        holding(test).ack(holding(test).kept[0])
        test.run()
        assert (test.open_trees, len(test.acked("numbers"))) == ((0, 1) if not timed_out else (1, 0))


def test_what_waits_for_a_bolt_that_rests_stays_in_its_queue_until_it_goes_on() -> None:
    with rig(RestsAfterOne) as test:
        test.give("numbers", *[[n] for n in range(6)])
        test.advance(5)  # the window opens by and by
        hold = holding(test)
        assert len(hold.kept) == 1
        hold.rests_after = 1000  # type: ignore[misc]  # of this one alone
        hold.port.hand_over(lambda: hold.port.rest(False))
        test.advance(5)
        assert sum(map(len, hold.kept)) == 6


def test_a_bolt_holds_no_more_tuples_than_it_may_and_gets_the_next_when_one_is_settled() -> None:
    """Set when the task begins, by then it may know its pool. Untracked tuples are not held by anybody."""
    with rig(HoldsThree) as test:
        hold = test.instances("hold")[0]
        assert isinstance(hold, HoldsThree)
        test.give("numbers", *[[n] for n in range(10)])
        test.advance(5)
        assert [tup.values for tup in hold.kept] == [[0], [1], [2]]
        hold.ack(hold.kept.pop(0))
        hold.fail(hold.kept.pop(0))
        test.advance(5)
        assert [tup.values for tup in hold.kept] == [[2], [3], [4]]
        test.wait(until_held_by=["hold"])  # it names who goes on holding, though others wait for it


def test_what_waits_for_a_bolt_that_is_full_does_not_time_out() -> None:
    with rig(HoldsThree, **{"topology.message.timeout.secs": 5}) as test:
        test.give("numbers", *[[n] for n in range(10)])
        test.advance(4)
        hold = test.instances("hold")[0]
        assert isinstance(hold, HoldsThree)
        for _ in range(3):
            hold.ack(hold.kept.pop(0))
        test.advance(4)
        assert test.status("numbers").timed_out == 0 and len(hold.kept) == 3
        test.advance(4)
        assert test.status("numbers").timed_out == 3, "those that it holds do"


@pytest.mark.parametrize("most", [0, True, 2.5, "8"])
def test_a_wrong_bound_that_is_set_when_a_task_begins_is_told(most: Any) -> None:
    class Wrong(HoldsThree):
        def initialize(self, conf: Any, context: Any) -> None:
            self.max_unacked = most  # type: ignore[misc]  # as users may

    with pytest.raises(ComponentFailed, match=f"bolt hold has max_unacked = {most!r} after initialize"), rig(Wrong):
        pass


def test_a_timer_of_a_bolt_comes_while_it_rests() -> None:
    with rig(RestsAfterOne) as test:
        test.give("numbers", [1])
        test.run()
        test.advance(2.1)
        assert holding(test).looks == 4


def test_an_error_that_is_told_later_counts_and_fails_nothing_by_itself() -> None:
    test = rig(Holds)
    with pytest.raises(ValueError, match="refused"), test:
        test.give("numbers", [1])
        test.run()
        hold = holding(test)
        hold.port.complain(ValueError("refused"), hold.kept[0].tuples[0])
        assert test.status("hold").errors == 1
        assert test.open_trees == 1
        test.run()


def test_an_error_of_a_call_that_was_handed_over_is_told_like_that_of_a_tick() -> None:
    test = rig(Holds)
    with pytest.raises(ZeroDivisionError), test:
        holding(test).port.hand_over(lambda: print(1 / 0))
        test.run()
