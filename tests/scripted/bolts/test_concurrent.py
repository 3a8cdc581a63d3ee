"""Bolts on threads and on an asyncio loop, one at a time: flags, errors, beginnings and ends."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, ClassVar

import pytest

from streamlet import AsyncBolt, Bolt, ThreadedBolt, Tuple
from streamlet.base.errors import StreamletError
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


def test_a_plain_process_on_a_loop_and_a_plain_error_of_it() -> None:
    class Plain(AsyncBolt):
        def process(self, tup: Tuple) -> None:  # type: ignore[override]  # as users may
            if tup.values[0] == "bad":
                raise ValueError("it is bad")

    with BoltTester(Plain, raise_errors=False) as test:
        test.give("a", "bad")
        test.wait()
        assert (test.acked, test.failed) == ([["a"]], [["bad"]])
