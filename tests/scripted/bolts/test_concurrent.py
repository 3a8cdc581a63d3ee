"""Bolts on threads and on an asyncio loop, one at a time: flags, errors, beginnings and ends."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
import time
from typing import Any, ClassVar

import pytest

from streamlet import AsyncBolt, Bolt, ThreadedBolt, Tuple
from streamlet.base.errors import StreamletError
from streamlet.bolts import concurrent
from streamlet.runtime.tasks.user_errors import ComponentFailed
from streamlet.testing import BoltTester


class Threaded(ThreadedBolt):
    outputs = ["v", "thread"]
    threads = 2

    def process(self, tup: Tuple) -> None:
        if tup.values[0] == "bad":
            raise ValueError("it is bad")
        self.emit([tup.values[0], threading.current_thread().name])


class Awaited(AsyncBolt):
    outputs = ["v", "thread"]
    said: ClassVar[list[str]] = []

    async def async_initialize(self) -> None:
        self.said.append("async_initialize")

    async def process(self, tup: Tuple) -> None:
        await asyncio.sleep(0)
        if tup.values[0] == "bad":
            raise ValueError("it is bad")
        self.emit([tup.values[0], threading.current_thread().name])

    async def async_cleanup(self) -> None:
        self.said.append("async_cleanup")

    def cleanup(self) -> None:
        self.said.append("cleanup")


kinds = pytest.mark.parametrize("kind", [Threaded, Awaited])


@kinds
def test_a_tester_waits_for_what_is_under_work(kind: type[Bolt]) -> None:
    with BoltTester(kind, raise_errors=False) as test:
        test.give("a", "bad", "b")
        test.wait()
        assert sorted(test.acked) == [["a"], ["b"]] and test.failed == [["bad"]]
        assert test.fail_reasons == ["ValueError: it is bad"]
        threads = {thread for _, thread in test.emitted()}
        assert sorted(v for v, _ in test.emitted()) == ["a", "b"] and threads.isdisjoint({"MainThread"})
        assert all(thread.startswith(test.bolt.component_name) for thread in threads)


def test_a_loop_begins_before_the_first_tuple_and_ends_before_cleanup() -> None:
    Awaited.said.clear()
    with BoltTester(Awaited) as test:
        assert Awaited.said == ["async_initialize"]
        test.give("a")
        test.wait()
    assert Awaited.said == ["async_initialize", "async_cleanup", "cleanup"]


@kinds
def test_no_thread_is_left_after_the_end(kind: type[Bolt]) -> None:
    ended = type("Ended", (kind,), {})

    def living() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("ended-")]

    with BoltTester(ended) as test:
        test.give("a", "b")
        test.wait()
        assert living()
    deadline = time.monotonic() + 20
    while living():
        assert time.monotonic() < deadline, living()
        time.sleep(0.01)


@kinds
def test_an_error_ends_the_run_where_the_class_says_so(kind: type[Bolt]) -> None:
    strict = type("Strict", (kind,), {"exit_on_exception": True})
    with pytest.raises(StreamletError, match=r"raised ValueError.*it is bad"), BoltTester(strict) as test:
        test.give("bad")
        test.wait()


@kinds
def test_who_acks_by_hand_acks_by_hand(kind: type[Any]) -> None:
    class ByHand(kind):  # type: ignore[misc]  # a class of a parameter
        auto_ack = False

    with BoltTester(ByHand) as test:
        test.give("a")
        deadline = time.monotonic() + 20
        while not test.emitted():
            assert time.monotonic() < deadline
            test.run()
        assert test.acked == []


@kinds
def test_nothing_is_anchored_where_the_class_says_so_or_the_call_names_the_anchors(kind: type[Any]) -> None:
    class Unanchored(kind):  # type: ignore[misc]  # a class of a parameter
        auto_anchor = False

    for made in (kind, Unanchored):
        with BoltTester(made, readers={"reader": 1}) as test:
            test.give("a")
            test.wait()
            assert test.acked == [["a"]]


def test_an_error_before_the_first_tuple_fails_the_start() -> None:
    class Unable(Awaited):
        async def async_initialize(self) -> None:
            raise OSError("no service")

    with pytest.raises(ComponentFailed, match=r"raised OSError in initialize.*no service"), BoltTester(Unable):
        pass


def test_a_thread_that_wants_to_leave_ends_the_run() -> None:
    class Leaves(Threaded):
        def process(self, tup: Tuple) -> None:
            raise SystemExit(3)

    with pytest.raises(SystemExit), BoltTester(Leaves) as test:
        test.give("a")
        test.wait()


class Background(Awaited):
    """What its first tuple begins on the loop ends or stops that, while others are under way."""

    def leave(self) -> None:
        raise SystemExit(3)

    def stop(self) -> None:
        asyncio.get_running_loop().stop()

    async def process(self, tup: Tuple) -> None:
        if act := getattr(self, tup.values[0], None):
            asyncio.get_running_loop().call_soon(act)
        await asyncio.sleep(0.02)
        await super().process(tup)


def test_a_task_on_the_loop_that_wants_to_leave_ends_the_run() -> None:
    """The thread ended without a word, and each tuple from there on failed on a closed loop."""
    with pytest.raises(SystemExit), BoltTester(Background) as test:
        test.give("leave", "b", "c")
        settled(test, 4)


def test_a_loop_that_somebody_stops_goes_on() -> None:
    Background.said.clear()
    with BoltTester(Background) as test:
        for _ in range(3):
            test.give("stop", "b", "c")
            test.wait()
        assert len(test.acked) == 9
    assert Background.said == ["async_initialize", "async_cleanup", "cleanup"]


def test_a_plain_process_on_a_loop_and_a_plain_error_of_it() -> None:
    class Plain(AsyncBolt):
        def process(self, tup: Tuple) -> None:  # type: ignore[override]  # as users may
            if tup.values[0] == "bad":
                raise ValueError("it is bad")

    with BoltTester(Plain, raise_errors=False) as test:
        test.give("a", "bad")
        test.wait()
        assert (test.acked, test.failed) == ([["a"]], [["bad"]])


def settled(test: BoltTester[Any], acked: int) -> None:
    deadline = time.monotonic() + 20
    while len(test.acked) < acked:
        assert time.monotonic() < deadline
        test.run()


@kinds
def test_flags_that_initialize_sets_mean_process(kind: type[Any]) -> None:
    """To ack by hand, or not: whatever it says, no tuple is acked before ``process`` has returned."""

    class ByHand(kind):  # type: ignore[misc]  # a class of a parameter
        def initialize(self, conf: Any, context: Any) -> None:
            self.auto_ack = self.auto_anchor = False

    class ForIt(kind):  # type: ignore[misc]  # a class of a parameter
        auto_ack = False

        def initialize(self, conf: Any, context: Any) -> None:
            self.auto_ack = True

    with BoltTester(ByHand, readers={"reader": 1}) as test:
        test.give("a")
        deadline = time.monotonic() + 20
        while not test.emitted():
            assert time.monotonic() < deadline
            test.run()
        assert test.acked == [] and test.bolt.auto_ack is False
    with BoltTester(ForIt, raise_errors=False) as test:
        test.give("bad", "a")
        test.wait()
        assert (test.acked, test.failed) == ([["a"]], [["bad"]])


@kinds
@pytest.mark.parametrize("value", [0, -1, "8", None, True, 2.5])
def test_a_wrong_number_at_once_is_named_at_the_start(kind: type[Any], value: object) -> None:
    name = "threads" if issubclass(kind, ThreadedBolt) else "at_once"

    class Wrong(kind):  # type: ignore[misc]  # a class of a parameter
        def initialize(self, conf: Any, context: Any) -> None:
            setattr(self, name, value)

    said = rf"has {name} = {re.escape(repr(value))} after initialize.*whole number, 1 or more"
    with pytest.raises(ComponentFailed, match=said), BoltTester(Wrong):
        pass


@kinds
def test_a_bolt_may_bound_what_it_holds_as_any_bolt_may(kind: type[Any]) -> None:
    class Bounded(kind):  # type: ignore[misc]  # a class of a parameter
        def initialize(self, conf: Any, context: Any) -> None:
            self.max_unacked = 3

    with BoltTester(Bounded) as test:
        test.give("a", "b")
        test.wait()
        assert sorted(test.acked) == [["a"], ["b"]] and test.bolt.most_unacked() == 3


@kinds
def test_no_attribute_of_the_users_is_ours(kind: type[Any]) -> None:
    """A class may call what it likes ``_loop``, ``_port``, ``_running`` or ``_waiting``."""

    class Own(kind):  # type: ignore[misc]  # a class of a parameter
        pass

    with BoltTester(Own) as test:
        ours = {name for name in vars(test.bolt) if name.startswith("_")}
        ours |= {name for base in (kind.__mro__[1:]) for name in vars(base) if re.match(r"_[a-z]", name)}
        assert ours == {name for name in vars(Bolt) if re.match(r"_[a-z]", name)} | {
            name for base in Bolt.__mro__ for name in vars(base) if re.match(r"_[a-z]", name)
        }


def test_coroutines_are_cancelled_before_what_they_use_is_closed() -> None:
    said: list[str] = []

    class Endless(AsyncBolt):
        async def async_initialize(self) -> None:
            self.own = asyncio.create_task(self.forever("own"))

        async def forever(self, name: str) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                said.append(name)

        async def process(self, tup: Tuple) -> None:
            said.append("begun")
            await self.forever("process")

        async def async_cleanup(self) -> None:
            said.append("async_cleanup")

    with BoltTester(Endless) as test:
        test.give("a")
        deadline = time.monotonic() + 20
        while not said:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    assert said == ["begun", "process", "async_cleanup", "own"]


def test_an_async_cleanup_without_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent, "CLOSING_S", 0.1)

    class Endless(Awaited):
        async def async_cleanup(self) -> None:
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match=r"async_cleanup.* 0\.1 s"), BoltTester(Endless) as test:
        test.give("a")
        test.wait()


def test_a_plain_beginning_and_end_on_a_loop() -> None:
    class Plain(Awaited):
        def async_initialize(self) -> None:  # type: ignore[override]  # as users may
            self.loop = asyncio.get_running_loop()

        def async_cleanup(self) -> None:  # type: ignore[override]  # as users may
            self.said.append("plain")

        def process(self, tup: Tuple) -> int:  # type: ignore[override]  # as users may
            assert asyncio.get_running_loop() is self.loop
            return 5

    with BoltTester(Plain) as test:
        test.give("a")
        test.wait()
        assert test.acked == [["a"]]
    assert Plain.said[-2:] == ["plain", "cleanup"]


@pytest.mark.filterwarnings("error")
def test_what_still_works_when_the_run_has_closed_says_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its tuple is open: it comes again in the next run."""
    monkeypatch.setattr(concurrent, "LAST_CALLS_S", 0.01)
    may_end, said = threading.Event(), list[str]()

    class Late(ThreadedBolt):
        def process(self, tup: Tuple) -> None:
            may_end.wait(20)

    class LateOnALoop(AsyncBolt):
        async def process(self, tup: Tuple) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                said.append("cancelled")
                raise

    for kind in (Late, LateOnALoop):
        before = threading.active_count()
        with BoltTester(kind) as test:
            test.give("a")
            test.run()
        may_end.set()
        deadline = time.monotonic() + 20
        while threading.active_count() > before:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert test.acked == test.failed == []
    gc.collect()
    assert said == ["cancelled"] and not caplog.records


def test_a_client_is_closed_when_no_thread_uses_it() -> None:
    using = threading.Event()
    used: list[str] = []

    class Uses(ThreadedBolt):
        auto_ack = False

        def process(self, tup: Tuple) -> None:
            self.ack(tup)
            using.set()
            time.sleep(0.1)
            used.append("used")

        def cleanup(self) -> None:
            used.append("closed")

    with BoltTester(Uses) as test:
        test.give("a")
        assert using.wait(20)
        settled(test, 1)
    assert used == ["used", "closed"]


@pytest.mark.parametrize("kind", [ThreadedBolt, AsyncBolt])
def test_a_tuple_that_waits_for_a_thread_is_not_yet_at_work(kind: type[Any]) -> None:
    """Its time-out begins with its call: it would else come again while its first try has not begun."""
    first, second = threading.Event(), threading.Event()

    class One(kind):  # type: ignore[misc]  # a class of a parameter
        threads = 1

        def process(self, tup: Tuple) -> None:
            (first if tup.values[0] == "a" else second).wait(20)

    with BoltTester(One) as test:
        test.give("a", "b")
        run: Any = test._live(test._name)[0].task
        before = dict(run.held.given)
        assert len(before) == 2
        test.clock.advance(5)
        first.set()
        settled(test, 1)
        deadline = time.monotonic() + 20
        while any(run.held.at_work_since(tup, 0.0) == before[tup] for tup in run.held.given):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        second.set()
        settled(test, 2)


@pytest.mark.parametrize("kind", [ThreadedBolt, AsyncBolt])
@pytest.mark.parametrize("how", ["returns", "raises", "acks"])
def test_a_call_that_has_returned_is_over_though_the_loop_has_not_heard_of_it(kind: type[Any], how: str) -> None:
    """The loop is in another bolt's call: neither does this one hang, nor is its pool slow."""
    go = threading.Event()

    class One(kind):  # type: ignore[misc]  # a class of a parameter
        auto_ack = how != "acks"
        max_unacked = 1

        def process(self, tup: Tuple) -> None:
            go.wait(20)
            if how == "raises":
                raise ValueError("bad")
            if how == "acks":
                self.ack(tup)

    with BoltTester(One, raise_errors=False) as test:
        test.give("a")
        held = test._live(test._name)[0].task.held  # type: ignore[union-attr]
        deadline = time.monotonic() + 20
        while not held.calls:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert held.is_full(test.clock.monotonic())
        test.clock.advance(5)
        go.set()
        while held.calls or not held.leaving:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        test.clock.advance(60)
        assert (
            len(held.given) == 1
            and held.at_work(test.clock.monotonic()) == []
            and held.full_s(test.clock.monotonic()) == 5
        )
        assert held.waiting() == [*held.given], "no time-out may take it for forgotten"
        while held.given:
            assert time.monotonic() < deadline
            test.run()
        assert not (held.given or held.leaving or held.calls) and held.full_s(test.clock.monotonic()) == 5


def test_a_coroutine_that_blocks_its_loop_is_told_from_those_that_wait_for_it() -> None:
    entered, leave = threading.Event(), threading.Event()

    class Blocks(AsyncBolt):
        async def process(self, tup: Tuple) -> None:
            await asyncio.sleep(0.01)
            if tup.values[0] == "bad":
                entered.set()
                leave.wait(20)

    with BoltTester(Blocks) as test:
        assert test.bolt.blocks_held() is None
        test.give("a", "bad", "b")
        assert entered.wait(20)
        test.bolt.blocks_held()
        blocker = test.bolt.blocks_held()
        assert blocker is not None and blocker.values == ["bad"]
        leave.set()
        test.wait()
        deadline = time.monotonic() + 20
        while test.bolt.blocks_held() is not None:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_coroutine_that_blocks_its_loop_is_found_at_the_users_line() -> None:
    entered, leave = threading.Event(), threading.Event()

    class Blocks(AsyncBolt):
        async def process(self, tup: Tuple) -> None:
            self.ask()

        def ask(self) -> None:
            entered.set()
            leave.wait(20)

    with BoltTester(Blocks) as test:
        test.give("a")
        assert entered.wait(20)
        live = test._live(test._name)[0]
        (tup,) = live.task.held.given  # type: ignore[union-attr]
        assert "ask" in [frame.name for frame in live.component.where_held(tup)]  # type: ignore[union-attr]
        leave.set()
        settled(test, 1)


def test_where_the_system_gives_no_further_thread_those_that_there_are_do_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without any, each tuple fails; the end waits for none that never began."""
    start, given = threading.Thread.start, []

    def first(thread: threading.Thread) -> None:
        given.append(thread)
        if len(given) != 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    with BoltTester(Threaded, raise_errors=False) as test:
        monkeypatch.setattr(threading.Thread, "start", first)
        test.give("a", "b", "c")
        test.wait()
        assert test.failed == [["a"]] and sorted(test.acked) == [["b"], ["c"]]
