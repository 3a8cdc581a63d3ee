"""The loop of one worker among several, with links the test holds: what it does with marks, losses and long work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streamlet import Batch, Bolt, Spout, Topology, Tuple
from streamlet.base.clock import ManualClock
from streamlet.base.errors import BadEmit, ValueCannotTravel
from streamlet.components.spout import FailReason
from streamlet.model.paused import PausedPart
from streamlet.runtime.links import links as links_module
from streamlet.runtime.links.dialing import Secured
from streamlet.runtime.links.handshake import DATA, Hello
from streamlet.runtime.links.links import Links, SocketLinks, Traffic
from streamlet.runtime.links.wire import FrameReader, FrameWriter, data_payloads, decode_data
from streamlet.runtime.tasks import emitter as routing
from streamlet.runtime.tasks.emitter import WHOLE, Incoming, Outgoing, Run
from streamlet.runtime.tasks.user_errors import ComponentFailed
from streamlet.runtime.worker.loop import BOLTS_S, DRAINING, POLL_S, WorkerLoop
from streamlet.runtime.worker.memory_growth import ResidentMemory
from streamlet.testing import TopologyTester
from streamlet.tracking.census import Answer, Ask
from tests.patience import PATIENCE_S
from tests.worker_contexts import made_context

SPOUT, BOLT = 1, 2
"""Task ids; with two workers the spout is on worker 0, the bolt on worker 1."""


class Numbers(Spout):
    outputs = ["n"]
    descriptor: int | None = None

    def initialize(self, conf: Any, context: Any) -> None:
        self.todo: list[Any] = []
        self.heard: list[Any] = []
        self.reasons: list[Any] = []

    def next_tuple(self) -> None:
        if self.todo:
            self.emit([self.todo.pop(0)], tup_id=len(self.todo))

    def ack(self, tup_id: Any) -> None:
        self.heard.append(("ack", tup_id))

    def fail(self, tup_id: Any) -> None:
        self.heard.append(("fail", tup_id))
        self.reasons.append(self.fail_reason)

    def fileno(self) -> int | None:
        return self.descriptor

    def close(self) -> None:
        self.heard.append("closed")


class Sink(Bolt):
    outputs = ["n"]

    def initialize(self, conf: Any, context: Any) -> None:
        self.seen: list[Any] = []
        self.clock = context.clock
        self.takes_s = 0.0

    def process(self, tup: Tuple) -> None:
        self.seen.append(tup.values[0])
        self.clock.advance(self.takes_s)

    def process_tick(self, tup: Tuple) -> None:
        self.fail(Tuple([0], root=99 << 48, edge=1))


class Pair(Topology):
    numbers = Numbers.spec()
    sink = Sink.spec(inputs=[numbers])


class Held(Links):
    """Links as the test wants them."""

    def __init__(self) -> None:
        self.arrived: list[Incoming] = []
        self.sent: list[Outgoing] = []
        self.up = True
        self.queued = 0

    def attach(self, selector: selectors.BaseSelector) -> None: ...

    def send(self, worker: int, outgoing: Outgoing) -> list[Run] | None:
        if not self.up:
            return None
        self.sent.append(outgoing)
        return []

    def received(self) -> list[Incoming]:
        taken, self.arrived = self.arrived, []
        return taken

    def unsent_bytes(self) -> dict[int, int]:
        return {1: self.queued} if self.queued else {}

    def traffic(self) -> Traffic:
        return {}, {}

    def close(self) -> None: ...


class Rig:
    """Worker ``index`` of ``workers``, initialised and active, on a clock that stands."""

    def __init__(self, index: int, links: Any, workers: int = 2, **conf: Any) -> None:
        self.clock = ManualClock()
        self.reported: list[BaseException] = []
        own = {key.replace("__", "."): value for key, value in conf.items()}
        report: Any = lambda component, task, error, tup, called: self.reported.append(error)  # noqa: E731
        shared = made_context(Pair.__topology__, workers, index, own, clock=self.clock, report=report)
        self.loop = WorkerLoop(shared, links)
        self.loop.initialize()
        for spout in self.loop.spouts.values():
            spout.window.size = shared.conf["topology.max.spout.pending"]
        self.loop.activate()

    @property
    def spout(self) -> Any:
        return self.loop.tasks[SPOUT].component

    @property
    def bolt(self) -> Any:
        return self.loop.tasks[BOLT].component


@contextlib.contextmanager
def rig(index: int, links: Any = None, workers: int = 2, **conf: Any) -> Iterator[Rig]:
    made = Rig(index, links or Held(), workers, **conf)
    try:
        yield made
    finally:
        if made.loop.selector.get_map() is not None:
            made.loop.close(clean=False)


def said(full: list[int], worker: int = 1) -> Incoming:
    return Incoming([], [], [], [], full, worker)


def answered(ask: Ask, worker: int = 1, **of: Any) -> Incoming:
    """What a worker answers that has nothing."""
    answer = Answer(ask.number, 0, 0.0, 0, {}, {}, {}, [], 0.0)._replace(**of)
    return Incoming([], [], [], [], worker=worker, answer=answer)


def one_tuple(values: list[Any]) -> Incoming:
    return Incoming([Run(BOLT, SPOUT, "default", False, [7], [1], [values])], [], [], [], None, 0)


def test_a_mark_among_the_last_words_of_a_lost_link_pauses_nobody() -> None:
    """The word that takes it back is lost with the link: the spouts would stand still for ever."""
    links = Held()
    with rig(0, links) as one:
        links.arrived.append(said([BOLT]))
        one.loop.recover([1])
        one.loop.recovered()
        assert not one.loop.paused


def test_who_is_full_says_so_again_over_a_new_link() -> None:
    """The spouts at its other end took the old word back when they lost the old one."""
    links = Held()
    with rig(1, links, streamlet__inbox__high__water__tuples=10) as one:
        links.arrived += [one_tuple([n]) for n in range(30)]
        one.bolt.takes_s = BOLTS_S
        one.loop.turn()
        assert [out.full for out in links.sent if out.full is not None] == [[BOLT, WHOLE]]
        one.loop.recover([0])
        links.sent.clear()
        one.loop.recovered()
        one.loop.turn()
        assert [out.full for out in links.sent if out.full is not None] == [[BOLT, WHOLE]]


def test_spouts_go_on_in_the_turn_that_wrote_the_link_empty() -> None:
    """Nothing else would wake the loop: an empty link has nothing to write, and its peer perhaps nothing to say."""
    links = Held()
    with rig(0, links, streamlet__link__high__water__bytes=1000) as one:
        links.queued = 1001
        one.spout.todo = [1, 2]
        one.loop.turn()
        one.loop.turn()
        assert "this worker is full" in one.loop.paused
        links.queued = 0
        one.spout.todo = [3]
        one.loop.turn()
        assert not one.loop.paused and not one.spout.todo


def test_many_short_runs_do_not_keep_the_loop_from_reading() -> None:
    """A stop, a tick, a commit and the peers' frames wait for the end of a turn, whatever stands in the inbox."""
    links = Held()
    with rig(1, links) as one:
        links.arrived += [one_tuple([n]) for n in range(100)]
        one.bolt.takes_s = BOLTS_S / 4
        one.loop.turn()
        assert 0 < len(one.bolt.seen) < 20
        while one.loop.inbox:
            one.loop.turn()
        assert one.bolt.seen == list(range(100)) and one.loop.inbox.tuples == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_tuples_of_a_turn_that_outlived_the_right_to_emit_are_taken_back(workers: int) -> None:
    """The process stood still in the middle of the turn; what it emitted is another's now."""
    links = Held()
    with rig(0, links, workers) as one:
        one.spout.may_send = lambda: False
        one.spout.todo = [1]
        one.loop.turn()
        one.loop.turn()
        assert one.spout.heard == [("fail", 0)] and one.spout.reasons == [FailReason.LOST]
        assert not any(out.runs for out in links.sent) and one.loop.idle
        one.spout.may_send = lambda: True
        one.spout.todo = [2]
        one.loop.turn()
        one.loop.turn()
        assert any(out.runs for out in links.sent) or one.bolt.seen == [2]


def test_what_a_tick_failed_goes_home_in_the_next_turn() -> None:
    """Not only when something else wakes the loop."""
    with rig(1, topology__tick__tuple__freq__secs=1.0) as one:
        one.clock.advance(1.0)
        assert one.loop.turn() == 0.0


class Reading(Numbers):
    def pause_parts(self, parts: Any) -> None:
        self.heard.append([str(part) for part in parts])

    def activate(self) -> None:
        self.heard.append("activate")

    def deactivate(self) -> None:
        self.heard.append("deactivate")


class ReadPair(Topology):
    numbers = Reading.spec()
    sink = Sink.spec(inputs=[numbers])


def reading() -> tuple[WorkerLoop, Any]:
    """The loop of a spout that is initialised and not active yet."""
    loop = WorkerLoop(made_context(ReadPair.__topology__, 1, 0, {}, clock=ManualClock()), Held())
    loop.initialize()
    return loop, loop.tasks[SPOUT].component


ALL, ONE = PausedPart("numbers"), PausedPart("numbers", "t", 3)


def test_a_paused_spout_is_asked_for_nothing_until_it_goes_on() -> None:
    loop, spout = reading()
    loop.activate()
    spout.todo = ["a", "b"]
    loop.spouts[SPOUT].window.size = 1
    loop.turn()
    loop.pause_parts([ALL])
    for _ in range(3):
        loop.turn()
    assert spout.heard == ["activate", ("ack", 1), ["numbers"], "deactivate"] and spout.todo == ["b"]
    loop.pause_parts([PausedPart("other")])
    loop.turn()
    assert spout.heard[4:6] == [[], "activate"] and spout.todo == []
    loop.close(clean=True)
    assert spout.heard[-2:] == ["deactivate", "closed"]


def test_a_spout_that_was_paused_before_it_was_active_is_neither_activated_nor_deactivated() -> None:
    loop, spout = reading()
    loop.pause_parts([ALL])
    loop.activate()
    spout.todo = ["a"]
    loop.turn()
    loop.resume("any other pause")
    loop.turn()
    assert spout.todo == ["a"]
    loop.close(clean=True)
    assert spout.heard == [["numbers"], "closed"]


def test_a_paused_partition_is_the_spouts_own_affair() -> None:
    loop, spout = reading()
    loop.activate()
    loop.pause_parts([ONE, PausedPart("other", "t")])
    spout.todo = ["a"]
    loop.turn()
    assert spout.heard[:2] == ["activate", ["numbers t/3"]] and spout.todo == []
    loop.close(clean=False)


def test_what_threads_handed_over_for_a_paused_spout_waits_and_is_not_dropped_by_the_end() -> None:
    for ends in (False, True):
        loop, spout = reading()
        loop.activate()
        loop.pause_parts([ALL])
        thread = threading.Thread(target=lambda spout=spout: spout.emit(["x"], tup_id=1))
        thread.start()
        thread.join(PATIENCE_S)
        loop.turn()
        sink: Any = loop.tasks[BOLT].component
        assert sink.seen == [] and loop.turn() > POLL_S, "for hours, perhaps: not looked at each millisecond"
        if ends:
            loop.pause(DRAINING)
        else:
            loop.pause_parts([])
        for _ in range(3):
            loop.turn()
        assert sink.seen == ["x"]
        loop.close(clean=False)


@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError])
def test_an_initialize_that_raises_or_is_cancelled_is_named(kind: type[BaseException]) -> None:
    class Bad(Sink):
        def initialize(self, conf: Any, context: Any) -> None:
            raise kind("no answer")

    class One(Topology):
        numbers = Numbers.spec()
        bad = Bad.spec(inputs=[numbers])

    with (
        pytest.raises(ComponentFailed, match=f"bad .*{kind.__name__}.*in initialize.*no answer"),
        TopologyTester(One) as tester,
    ):
        tester.run()


def test_a_post_to_a_closed_loop_writes_into_no_other_file() -> None:
    """Dials and handshakes still end when the loop is gone, and the number of its pipe is free for anybody's file."""
    with rig(1) as one:
        one.loop.close(clean=False)
        pipes = [os.pipe2(os.O_NONBLOCK) for _ in range(8)]
        try:
            one.loop.post(lambda: None)
            for read, _ in pipes:
                with pytest.raises(BlockingIOError):
                    os.read(read, 1)
        finally:
            for number in sum(pipes, ()):
                os.close(number)


def test_a_tuple_too_large_for_a_frame_fails_its_tree_and_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer would close the link, all trees would fail, and the replay would do the same again, for ever."""
    monkeypatch.setattr(links_module, "data_payloads", lambda outgoing: data_payloads(outgoing, 1000))
    links = SocketLinks(lambda *lost: None, lambda incoming: None)
    ours, theirs = socket.socketpair()
    with theirs, rig(0, links) as one:
        key, hello = b"k" * 32, Hello(DATA, b"r" * 16, 0, 1, 1, 1)
        links.add(Secured(ours, hello, FrameWriter(key), FrameReader(key, 1000)), 1, 1)
        one.spout.todo = ["small", "x" * 2000, "also small"]
        one.loop.turn()
        reader = FrameReader(key, 1000)
        frames = [decode_data(payload) for payload in reader.feed(theirs.recv(1 << 16))]
        values = [row[0] for frame in frames for run in frame.runs for row in run.values]
        assert values == ["small", "also small"]
        assert one.spout.heard == [("fail", 1)] and one.loop.ledgers.pending() == 2
        (error,) = one.reported
        assert isinstance(error, ValueCannotTravel) and "numbers emitted" in error.message
        assert "its tree has failed" in error.message and one.loop.untracked.look_at_final().lost == {}


def test_an_untracked_tuple_too_large_for_a_frame_is_lost_by_its_emitter_in_memory_that_outlives_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Known to a heartbeat alone, it was forgotten with its worker."""
    monkeypatch.setattr(links_module, "data_payloads", lambda outgoing: data_payloads(outgoing, 1000))
    links = SocketLinks(lambda *lost: None, lambda incoming: None)
    ours, theirs = socket.socketpair()
    with theirs, rig(0, links, topology__acker__executors=0) as one:
        key, hello = b"k" * 32, Hello(DATA, b"r" * 16, 0, 1, 1, 1)
        links.add(Secured(ours, hello, FrameWriter(key), FrameReader(key, 1000)), 1, 1)
        one.spout.todo = ["x" * 2000]
        one.loop.turn()
        (error,) = one.reported
        assert "nobody sends it again" in error.message and "its tree" not in error.message
        assert one.loop.untracked.look_at_final().lost == {SPOUT: 1}


def test_a_spout_hears_why_its_trees_failed() -> None:
    """A bolt's failure may be the message's fault; a lost link is not."""
    links = Held()
    with rig(0, links, topology__message__timeout__secs=5) as one:
        one.spout.todo = [1, 2, 3]
        one.loop.turn()
        one.loop.ledgers.apply_fails([next(iter(one.loop.spouts[SPOUT].ledger.open))])
        assert one.spout.reasons == [FailReason.FAILED]
        one.loop.recover([1])
        assert one.spout.reasons[1:] == [FailReason.LOST] * 2
        one.loop.recovered()
        one.spout.todo = [4]
        one.loop.turn()
        for _ in range(20):
            one.clock.advance(1.0)
            one.loop.turn()
            links.arrived += [answered(out.ask) for out in links.sent if out.ask is not None]
            links.sent.clear()
        assert one.spout.reasons[3:] == [FailReason.TIMED_OUT]
        links.up = False
        one.spout.todo = [5]
        one.loop.turn()
        assert one.spout.reasons[4:] == [FailReason.LOST], "it could not be sent"


@pytest.mark.parametrize("why", ["paused", "at its limit"])
def test_a_descriptor_that_nobody_reads_does_not_keep_the_loop_awake(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spout that may not be asked reads nothing, so what is there stays there: the loop must not look at it."""
    read, write = os.pipe()
    monkeypatch.setattr(Numbers, "descriptor", read)
    try:
        with rig(0, topology__max__spout__pending=1) as one:
            os.write(write, b"x")
            if why == "paused":
                one.loop.pause("test")
            else:
                one.spout.todo = [1, 2]
            while (sleep_s := one.loop.turn()) == 0.0:
                pass
            assert sleep_s > 0 and not [key for key, _ in one.loop.selector.select(0) if key.fd == read]
            if why == "paused":
                one.loop.resume("test")
            else:
                one.loop.recover([1])
                one.loop.recovered()
                one.spout.todo = []
            one.loop.turn()
            assert [key for key, _ in one.loop.selector.select(0) if key.fd == read], "and it does again afterwards"
    finally:
        os.close(read)
        os.close(write)


@contextlib.contextmanager
def silent_descriptor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Gives the spout a descriptor on which nothing ever comes: it wakes nobody."""
    read, write = os.pipe()
    monkeypatch.setattr(Numbers, "descriptor", read)
    try:
        yield
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("tracked", [True, False])
def test_what_a_spout_emits_when_it_hears_of_a_tree_waits_for_no_timer(
    tracked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree is done in the turn in which the spout was asked, and nothing else would wake the loop."""
    own = {} if tracked else {"topology__acker__executors": 0}
    with silent_descriptor(monkeypatch), rig(0, workers=1, **own) as one:

        def emit_next(tup_id: int) -> None:
            one.spout.heard.append(tup_id)
            if tup_id < 5:
                one.spout.emit([tup_id + 1], tup_id=tup_id + 1)

        one.spout.ack = emit_next
        one.spout.todo = [0]
        while one.loop.turn() == 0.0:
            pass
        assert one.spout.heard == one.bolt.seen == [0, 1, 2, 3, 4, 5]


class AtWorkLong(Bolt):
    outputs = ["n"]

    def initialize(self, conf: Any, context: Any) -> None:
        self.clock = context.clock

    def process(self, tup: Tuple) -> None:
        self.clock.advance(2 * BOLTS_S)
        self.emit(tup.values)


class Chain(Topology):
    numbers = Numbers.spec()
    first = AtWorkLong.spec(inputs=[numbers])
    second = AtWorkLong.spec(inputs=[first])
    third = AtWorkLong.spec(inputs=[second])


def test_a_spout_that_has_room_again_waits_for_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tree is done in the turn in which it could not be asked, and nothing else would wake the loop."""
    with silent_descriptor(monkeypatch):
        shared = made_context(Chain.__topology__, conf={"topology.max.spout.pending": 1})
        loop = WorkerLoop(shared, Held())
        loop.initialize()
        loop.activate()
        spout: Any = loop.tasks[SPOUT].component
        spout.todo = [1, 2, 3]
        while loop.turn() == 0.0:
            pass
        assert spout.todo == [] and spout.heard == [("ack", at) for at in (2, 1, 0)]
        loop.close(clean=False)


def test_a_sleep_after_a_long_turn_ends_when_the_next_timer_is_due() -> None:
    """A turn may take as long as its bolts: a tick would be late by that."""
    with rig(1) as one:
        one.bolt.takes_s = 0.3
        called: list[float] = []
        one.loop.timers.every(0.5, lambda: called.append(one.clock.monotonic()), one.clock.monotonic())
        one.loop.links.arrived = [one_tuple([1])]
        sleep_s = one.loop.turn()
        assert one.bolt.seen == [1] and one.clock.monotonic() + sleep_s <= 0.5 and called == []


def test_a_loop_whose_timers_are_late_for_ever_is_at_rest_when_nothing_else_is_to_be_done() -> None:
    """A run has come to its end then, and a drain, too; the next turn follows at once."""
    with rig(1) as one:
        one.loop.timers.every(0.5, lambda: one.clock.advance(0.7), one.clock.monotonic())
        one.clock.advance(0.5)
        one.loop.links.arrived = [one_tuple([1])]
        for _ in range(3):
            assert one.loop.turn() == 0.0
        assert one.bolt.seen == [1] and one.loop.at_rest


class Timed(Numbers):
    timer_interval_s = 0.1

    def on_timer(self) -> None:
        self.heard.append("on_timer")


class TimedPair(Topology):
    numbers = Timed.spec()
    sink = Sink.spec(inputs=[numbers])


@pytest.mark.parametrize("why", ["paused", "at its limit"])
def test_k13_the_timer_of_a_spout_that_may_emit_nothing_runs(why: str) -> None:
    """By it a spout commits: what is done while it stands still would come again."""
    clock = ManualClock()
    loop = WorkerLoop(made_context(TimedPair.__topology__, 2, 0, {}, clock=clock), Held())
    loop.initialize()
    loop.spouts[SPOUT].window.size = 1
    loop.activate()
    spout: Any = loop.tasks[SPOUT].component
    spout.todo = [1, 2]
    if why == "paused":
        loop.pause("test")
    else:
        loop.turn()
    assert loop.spouts[SPOUT].active == (why != "paused") and loop.spouts[SPOUT].full == (why != "paused")
    for calls in (1, 2):
        clock.advance(0.1)
        loop.turn()
        assert spout.heard == ["on_timer"] * calls
    assert len(spout.todo) == (2 if why == "paused" else 1)
    loop.close(clean=False)


def test_a_spout_that_may_emit_nothing_new_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Else a run stands still, and its user reads nothing."""
    with rig(0, workers=1) as one:
        kept = one.loop.weights.most + 1
        one.spout.kept_bytes = lambda: kept
        for _ in range(30):
            one.clock.advance(1.0)
            one.loop.turn()
        (line,) = [record.getMessage() for record in caplog.records]
        assert "numbers (task 1) has emitted nothing new" in line and "streamlet.worker.memory.bytes" in line
        assert one.spout.holds_back
        kept = 0
        one.clock.advance(1.0)
        one.loop.turn()
        assert not one.spout.holds_back


def test_a_spout_that_holds_back_since_the_middle_of_a_turn_is_told_of_too(caplog: pytest.LogCaptureFixture) -> None:
    with rig(0, workers=1) as one:
        one.spout.holds_back = True
        one.spout.kept_bytes = lambda: one.loop.weights.most + 1
        for _ in range(15):
            one.clock.advance(1.0)
            one.loop.turn()
        assert ["emitted nothing new" in record.getMessage() for record in caplog.records] == [True]


def test_what_waits_is_measured_when_the_process_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample may miss the large rows; the memory that they take is seen."""
    with rig(0, workers=1) as one:
        resident, counted = 1 << 30, 0

        def recount() -> None:
            nonlocal counted
            counted += 1

        monkeypatch.setattr(ResidentMemory, "bytes", lambda self: resident)
        monkeypatch.setattr(one.loop.inbox, "recount", recount)
        step = one.loop.growth._step
        for size, wanted in ((1 << 30, 1), (1 << 30, 1), ((1 << 30) + step, 2), (1 << 29, 2), ((1 << 30) + step, 2)):
            resident = size
            one.clock.advance(1.0)
            one.loop.turn()
            assert counted == wanted


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_turn_has_emitted_is_measured_row_by_row_when_the_process_has_grown(
    monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """One row by chance of so many small ones does not see the large one; what leaves, or waits here, is known then."""
    with rig(0, workers=workers) as one:
        grown = False
        live = one.loop.tasks[SPOUT]
        monkeypatch.setattr(one.loop.growth, "look", lambda now: grown)
        monkeypatch.setattr(routing, "uniform", lambda: 0.0)
        for row in ([1], *[["x" * one.loop._turn_bytes]] * 2):
            live.boxes[0].extend((0, 0, row))
        assert not one.loop._emitted_much(live.boxes)
        grown = True
        assert one.loop._emitted_much(live.boxes)
        place = one.loop.inbox if workers == 1 else one.loop.departures
        assert place.sizes.mixed == {(SPOUT, "default")}
        live.boxes[0].take()


def test_what_waits_is_measured_once_the_turn_in_which_the_process_grew_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In its middle the rows that are done still count: measured there, they would be taken off twice."""
    with rig(0, workers=1) as one:
        one.bolt.takes_s = 0.002
        monkeypatch.setattr(one.loop.growth, "look", lambda now: 0 < len(one.bolt.seen) < 9)
        one.loop.growth.looks_at = float("inf")
        rows = [[n] for n in range(200)]
        one.loop.inbox.add(Run(BOLT, SPOUT, "default", False, [0] * 200, [0] * 200, rows))
        while one.loop.inbox:
            one.loop.turn()
            assert one.loop.inbox.bytes >= 0
        assert one.loop.inbox.bytes == 0 and len(one.bolt.seen) >= 200


def from_another_thread(act: Callable[[], object]) -> None:
    """Call it on a thread of its own, to its end."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(act).result(PATIENCE_S)


def test_what_threads_of_a_retired_spout_had_emitted_travels_and_no_more_is_taken() -> None:
    with rig(0, workers=1) as one:
        one.loop.ledgers.retires = True
        from_another_thread(lambda: [one.spout.emit([n]) for n in range(5)])
        one.spout.next_tuple = lambda: 1 / 0
        one.loop.ledgers.guard(one.loop.spouts[SPOUT], "next_tuple", one.spout.next_tuple)
        assert isinstance(one.loop.ledgers.failure, ComponentFailed)
        with pytest.raises(BadEmit, match="after it had raised"):
            from_another_thread(lambda: one.spout.emit([9]))
        one.loop.turn()
        one.loop.turn()
        assert one.bolt.seen == [0, 1, 2, 3, 4]


def test_of_what_threads_had_emitted_only_untracked_tuples_count_as_left() -> None:
    """A tree knows the others, and its spout replays them."""
    with rig(0, workers=1) as one:
        from_another_thread(lambda: one.bolt.emit([1], anchors=[Tuple([0], root=7, edge=1)]))
        from_another_thread(lambda: one.spout.emit([2], tup_id="a"))
        assert one.loop.untracked_waiting() == {}
        from_another_thread(lambda: one.bolt.emit([3]))
        from_another_thread(lambda: one.spout.emit([4]))
        assert sum(one.loop.untracked_waiting().values()) == 2


def test_what_threads_have_handed_over_is_work_that_a_drain_needs_time_for() -> None:
    """Else the user reads of four seconds, and a drain after Ctrl-C, whose time is told, is cut short."""
    with rig(0, workers=1) as one:
        one.loop.tasks[BOLT].task.stats.ran(100, 1.0)
        assert one.loop.census.work_left()[0] == 0.0
        from_another_thread(lambda: [one.spout.emit([n]) for n in range(50)])
        assert one.loop.census.work_left()[0] == pytest.approx(0.5)


def test_open_trees_are_finished_after_an_error_while_some_are_done_or_brokers_answer() -> None:
    """A slow bolt beside the one that ended the run makes progress at each turn, however long one takes."""
    with rig(0, workers=1) as one:
        left, turns = [5], []
        one.loop.ledgers.pending = lambda: left[0]

        def turn(sleep_s: float = 0.0) -> float:
            turns.append(one.clock.monotonic())
            one.clock.advance(0.6)
            left[0] -= len(turns) <= 2
            return 0.0

        one.loop.turn = turn
        one.loop.finish_open_trees()
        assert len(turns) == 3 and left == [3], "two with progress, one without"
        turns.clear()
        one.loop.tasks[BOLT].task.held.batches[Batch([])] = None
        one.loop.finish_open_trees()
        assert len(turns) == 4, "a bolt waits for brokers: two seconds"
        turns.clear()
        left[0], one.loop.tasks[BOLT].task.ended_run = 5, True
        one.loop.finish_open_trees()
        assert len(turns) == 3, "the bolt that ended the run hears no answer"


def test_what_a_spout_emits_when_it_hears_of_a_last_ack_is_counted() -> None:
    with rig(0, workers=1) as one:
        one.loop.ledgers.settle = lambda: one.spout.emit([9])
        assert one.loop.left_over(settled=True, ticks=True) == {"sink": 1}
