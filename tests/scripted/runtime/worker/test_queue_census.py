"""One worker's part of a census, with links the test holds: what it asks, what it answers, what it concludes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from traceback import FrameSummary
from typing import Any

import pytest

from streamlet import Bolt, Spout, Topology, Tuple
from streamlet.base.clock import ManualClock
from streamlet.components.spout import FailReason
from streamlet.runtime.links.links import NoLinks, Traffic
from streamlet.runtime.tasks.batch_bound import BatchBound
from streamlet.runtime.tasks.emitter import Incoming, Outgoing, Run
from streamlet.runtime.tasks.shuffle import CALM
from streamlet.runtime.worker.loop import BOLTS_S, WorkerLoop
from streamlet.tracking.census import Answer, Ask
from streamlet.tracking.roots import STEP
from tests.worker_contexts import made_context

SPOUT, BOLT = 1, 2
"""Task ids: the spout is on worker 0, the bolt on worker 1."""

ROOT = 1 << 48 | 4
"""A root of the spout task."""


class Numbers(Spout):
    outputs = ["n"]

    def initialize(self, conf: Any, context: Any) -> None:
        self.next, self.heard = 0, []

    def next_tuple(self) -> None:
        self.next += 1
        self.emit([self.next], tup_id=self.next)

    def fail(self, tup_id: Any) -> None:
        self.heard.append((tup_id, self.fail_reason))


class Holds(Bolt):
    auto_ack = False

    def initialize(self, conf: Any, context: Any) -> None:
        self.clock, self.takes_s, self.given = context.clock, 0.0, []

    def process(self, tup: Tuple) -> None:
        self.given.append(tup)
        self.clock.advance(self.takes_s)


class Pair(Topology):
    numbers = Numbers.spec()
    holds = Holds.spec(inputs=[numbers])


class Wire(NoLinks):
    def __init__(self) -> None:
        self.arrived: list[Incoming] = []
        self.sent: list[Outgoing] = []

    def send(self, worker: int, outgoing: Outgoing) -> list[Run] | None:
        self.sent.append(outgoing)
        return []

    def received(self) -> list[Incoming]:
        taken, self.arrived = self.arrived, []
        return taken

    def traffic(self) -> Traffic:
        return {1: 7}, {1: 8}


class Rig:
    def __init__(self, index: int, workers: int = 2, **conf: Any) -> None:
        self.clock, self.wire = ManualClock(), Wire()
        self.told: list[str] = []
        shared = made_context(
            Pair.__topology__,
            workers,
            index,
            {key.replace("__", "."): value for key, value in conf.items()},
            clock=self.clock,
            tell=lambda level, text, *where: self.told.append(text),
        )
        self.loop = WorkerLoop(shared, self.wire)
        self.loop.initialize()
        self.loop.activate()

    @property
    def bolt(self) -> Any:
        return self.loop.tasks[BOLT].component

    @property
    def spout(self) -> Any:
        return self.loop.tasks[SPOUT].component

    def arrives(self, *roots: int, ask: Ask | None = None) -> None:
        run = Run(BOLT, SPOUT, "default", False, [*roots], [3] * len(roots), [[1]] * len(roots))
        self.wire.arrived.append(Incoming([run] if roots else [], [], [], [], worker=0, ask=ask))

    def answer(self) -> Answer:
        """The one answer that was sent since the last look."""
        (answer,) = [out.answer for out in self.wire.sent if out.answer is not None]
        self.wire.sent.clear()
        return answer

    def ask(self) -> Ask | None:
        """The question that was sent since the last look."""
        asks = [out.ask for out in self.wire.sent if out.ask is not None]
        self.wire.sent.clear()
        return asks[0] if asks else None

    def hears(self, seconds: float = 60.0, **of: Any) -> None:
        """Go on for so long, with the same answer of the other worker to each question."""
        for _ in range(int(seconds * 4)):
            self.clock.advance(0.25)
            self.loop.turn()
            ask = self.ask()
            if ask is not None:
                answer = Answer(ask.number, 0, 0.0, 0, {}, {}, {}, [], 0.0)._replace(**of)
                self.wire.arrived.append(Incoming([], [], [], [], worker=1, answer=answer))


@contextlib.contextmanager
def rig(index: int, workers: int = 2, **conf: Any) -> Iterator[Rig]:
    made = Rig(index, workers, **conf)
    try:
        yield made
    finally:
        made.loop.close(clean=False)


def test_an_answer_counts_what_arrived_before_the_question() -> None:
    """In one frame, too; what the bolt was given before is held and not queued."""
    with rig(1) as one:
        one.arrives(ROOT)
        one.loop.turn()
        one.clock.advance(2.0)
        one.arrives(ROOT + STEP, ROOT + 2 * STEP, ask=Ask(9, [ROOT], [ROOT + 2 * STEP], []))
        one.loop.turn()
        answer = one.answer()
        assert (answer.number, answer.queued, answer.sent, answer.received) == (9, 2, {1: 7}, {1: 8})
        assert answer.waiting == {ROOT + STEP: BOLT}, "ROOT + 2 * STEP is not below the bound"
        assert [[*held] for held in answer.held] == [[ROOT, BOLT, 2.0]]


def test_an_answer_counts_what_stays_here_until_another_worker_has_room() -> None:
    """It is queued, though in no inbox: its tree has not timed out."""
    with rig(0, streamlet__link__high__water__bytes=100) as one:
        run = Run(BOLT, SPOUT, "default", False, [ROOT, *[ROOT + STEP] * 99], [3] * 100, [[1]] * 100)
        one.loop.departures.add(1, [run])
        one.wire.arrived.append(Incoming([], [], [], [], full=[BOLT], worker=1))
        one.loop.turn()
        one.wire.arrived.append(Incoming([], [], [], [], worker=1, ask=Ask(9, [ROOT], [ROOT + STEP], [])))
        one.loop.turn()
        answer = one.answer()
        assert (answer.queued, answer.waiting, answer.slowest) == (100, {ROOT: BOLT}, 0)


def test_an_answer_estimates_how_long_the_queue_takes() -> None:
    with rig(1) as one:
        one.bolt.takes_s = BOLTS_S
        one.arrives(*range(ROOT, ROOT + 10 * STEP, STEP))
        one.loop.turn()
        one.arrives(ask=Ask(9, [ROOT], [], []))
        one.loop.turn()
        answer = one.answer()
        assert 0 < answer.queued < 10 and answer.slowest == BOLT and answer.waiting == {}
        assert 0.9 < answer.wait_s / (answer.queued * BOLTS_S) < 1.1


def test_an_answer_leaves_out_what_a_call_with_a_batch_costs_by_itself() -> None:
    """A second for one tuple as for two, then a tenth more for each: no smaller window makes a call of it shorter."""
    with rig(1) as one:
        one.bolt.takes_s = BOLTS_S
        one.arrives(*range(ROOT, ROOT + 10 * STEP, STEP))
        one.loop.turn()
        for number, last_s, each_s in ((9, 1.0, 0.0), (10, 1.1, 0.1)):
            batches = one.loop.tasks[BOLT].task.slices.batches = BatchBound(1024, target_s=1.0)
            batches.took(1, 1.0)
            batches.took(2, last_s)
            one.arrives(ask=Ask(number, [ROOT], [], []))
            one.loop.turn()
            answer = one.answer()
            assert answer.queued > 0 and answer.wait_s == pytest.approx(answer.queued * each_s)


def test_tuples_of_closed_trees_are_held_no_longer() -> None:
    """A tree that failed elsewhere; a bolt that forgets would keep them for ever."""
    with rig(1) as one:
        one.arrives(ROOT, ROOT + STEP)
        one.loop.turn()
        one.arrives(ask=Ask(9, [ROOT + STEP], [ROOT + 9 * STEP], []))
        one.loop.turn()
        assert [held[0] for held in one.answer().held] == [ROOT + STEP]
        assert len(one.loop.tasks[BOLT].task.held) == 1  # type: ignore[union-attr]


def test_a_tuple_of_a_closed_tree_keeps_its_place_while_a_thread_is_in_its_call() -> None:
    """A pool whose threads all hang would else be given tuples that nobody works on, and that time out."""
    with rig(1) as one:
        one.arrives(ROOT, ROOT + STEP)
        one.loop.turn()
        calls = {ROOT}
        one.bolt.where_held = lambda tup: [FrameSummary("users.py", 7, "ask")] if tup.root in calls else []
        for left in (1, 0):
            one.arrives(ask=Ask(9, [ROOT + 9 * STEP], [ROOT + 9 * STEP], []))
            one.loop.turn()
            assert one.answer().held == [] and len(one.loop.tasks[BOLT].task.held) == left  # type: ignore[union-attr]
            calls.clear()


def test_nobody_asks_while_nothing_is_open() -> None:
    with rig(0) as one:
        one.loop.pause("test")
        for _ in range(100):
            one.clock.advance(1.0)
            one.loop.turn()
        assert one.wire.sent == []


def test_a_busy_worker_that_does_not_answer_ends_nothing() -> None:
    with rig(0) as one:
        for _ in range(600):
            one.clock.advance(1.0)
            one.loop.turn()
        assert one.spout.heard == [] and len([out for out in one.wire.sent if out.ask is not None]) == 1


def test_the_window_opens_for_a_worker_that_has_nothing_queued_and_acks_nothing() -> None:
    with rig(0, topology__max__spout__pending=300) as one:
        one.hears()
        assert one.spout.next == 300


def test_the_window_opens_for_trees_that_are_done_in_the_turn_that_opened_them() -> None:
    """With all tasks in one worker nothing is open between two turns, whenever it asks."""
    with rig(0, workers=1, topology__max__spout__pending=100) as one:
        one.bolt.auto_ack = True
        for _ in range(20):
            one.loop.turn()
        before = one.spout.next
        one.loop.turn()
        assert one.spout.next == before + 100 and not one.loop.ledgers.pending()


def test_a_long_queue_keeps_the_window_narrow_and_is_told_with_the_bolt() -> None:
    with rig(0) as one:
        one.hears(queued=4, wait_s=30.0, slowest=BOLT)
        assert one.spout.next < 10
        assert any("wait for holds take about 30.0 s" in text and "the spout numbers" in text for text in one.told)


def test_a_wait_that_the_next_measurements_take_back_is_told_to_nobody() -> None:
    """A bolt's time for a tuple follows from a few: one that was held up makes a full queue look long."""
    with rig(0) as one:
        for wait_s in (0.5, 30.0, 1.0) * 20:
            one.hears(0.5, queued=4, wait_s=wait_s, slowest=BOLT)
        assert not [text for text in one.told if "to work off" in text]
        one.hears(3.0, queued=4, wait_s=8.0, slowest=BOLT)
        assert [text for text in one.told if "wait for holds take about 8.0 s" in text]


def test_what_no_worker_has_times_out_and_is_told() -> None:
    with rig(0, topology__max__spout__pending=1) as one:
        one.hears(received={0: 99})
        assert one.spout.heard == [(1, FailReason.TIMED_OUT)]
        assert [text for text in one.told if "no worker has a tuple of theirs" in text]


def test_a_lost_link_ends_a_round_and_the_next_one_is_asked_when_trees_are_open_again() -> None:
    with rig(0) as one:
        one.loop.turn()
        one.loop.turn()
        first = one.ask()
        assert first is not None
        one.loop.recover([1])
        one.loop.recovered()
        one.wire.arrived.append(
            Incoming([], [], [], [], worker=1, answer=Answer(first.number, 0, 0.0, 0, {}, {}, {}, [], 0.0))
        )
        one.loop.turn()
        one.loop.turn()
        second = one.ask()
        assert second is not None and second.number > first.number


def test_an_answer_has_the_share_of_its_time_in_which_the_worker_was_awake() -> None:
    """At least over a tenth of a second: of less, it says what it last said."""
    with rig(1) as one:
        for _ in range(4):
            one.clock.advance(0.05)  # busy: this clock stands still while the loop sleeps
            one.loop.turn()
        one.wire.arrived.append(Incoming([], [], [], [], worker=0, ask=Ask(1, [ROOT], [], [])))
        one.loop.turn()
        assert one.answer().load == 1.0
        one.clock.advance(0.05)
        one.wire.arrived.append(Incoming([], [], [], [], worker=0, ask=Ask(2, [ROOT], [], [])))
        one.loop.turn()
        assert one.answer().load == 1.0


def test_every_worker_hears_the_loads_that_the_last_round_found() -> None:
    """Also one without spouts: its bolts shuffle, too."""
    with rig(0) as one:
        one.loop.turn()
        one.loop.turn()
        first = one.ask()
        assert first is not None and [*first.loads] == []
        answer = Answer(first.number, 0, 0.0, 0, {}, {}, {}, [], 0.75)
        one.wire.arrived.append(Incoming([], [], [], [], worker=1, answer=answer))
        one.loop.turn()
        one.clock.advance(1.0)
        one.loop.turn()
        second = one.ask()
        assert second is not None and [*second.loads] == [0.0, 0.75], (
            "the first answer of its own came before a tenth of a second"
        )


def test_a_worker_whose_bolt_rests_is_full_and_one_whose_bolt_holds_tuples_is_not_calm() -> None:
    """The loop sleeps meanwhile: threads of the bolt, or a producer, are at work."""

    def load(one: Rig, number: int) -> float:
        one.wire.arrived.append(Incoming([], [], [], [], worker=0, ask=Ask(number, [ROOT], [], [])))
        one.loop.turn()
        return one.answer().load

    with rig(1) as one:
        sleeps = one.loop.census._load._slept_s = lambda: one.clock.monotonic()  # all the time
        assert sleeps() >= 0
        one.clock.advance(1.0)
        assert load(one, 1) == 0.0
        one.arrives(ROOT)
        one.loop.turn()
        one.clock.advance(0.2)
        assert load(one, 2) == CALM
        one.loop.shared.resting.add(BOLT)
        assert load(one, 3) == 1.0


def test_nobody_is_asked_before_all_links_stand() -> None:
    """A question to a worker without a link would be lost: no answer, no wider window, no time-out, ever."""
    with rig(0) as one:
        one.loop.recover([1])
        one.wire.sent.clear()
        one.spout.emit([1], tup_id="early")
        for _ in range(3):
            one.loop.turn()
            one.clock.advance(0.1)
        assert one.ask() is None
        one.loop.recovered()
        one.loop.turn()
        one.clock.advance(0.1)
        one.loop.turn()
        assert one.ask() is not None
