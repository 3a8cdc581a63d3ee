"""Calls of other threads for a task: in order, bounded, refused at the end, and what the loop takes of them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from streamlet.base.errors import BadEmit, NoRoom
from streamlet.runtime.tasks.in_hand import InHand
from streamlet.runtime.tasks.other_threads import OtherThreads, TaskCalls
from streamlet.runtime.tasks.untracked_counts import cells_apart
from tests.patience import PATIENCE_S

ROW = [["n"]]


def elsewhere(act: Callable[[], bool]) -> bool:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act).result(PATIENCE_S)


def nothing() -> None: ...


def test_only_the_thread_that_made_it_is_here() -> None:
    others = OtherThreads()
    assert others.here() and not elsewhere(others.here)


def test_the_calls_of_each_thread_keep_their_order() -> None:
    calls, made = TaskCalls(OtherThreads(), "bolt"), list[tuple[int, int]]()

    def put(thread: int) -> None:
        for n in range(2000):
            calls.put(partial(made.append, (thread, n)), "emit", ROW)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while len(made) < 8000:
        for call in calls.take(64, emits=True):
            call.act()
    for number in range(4):
        assert [n for thread, n in made if thread == number] == list(range(2000))


def test_an_emit_waits_for_room_and_goes_on_when_there_is() -> None:
    calls = TaskCalls(OtherThreads(most=1, wait_s=PATIENCE_S), "bolt")
    calls.put(nothing, "emit", ROW)
    waiting = threading.Thread(target=calls.put, args=(nothing, "emit", ROW))
    waiting.start()
    assert len(calls) == 1
    assert len(calls.take(10, emits=True)) == 1
    waiting.join(PATIENCE_S)
    assert len(calls) == 1


def test_room_is_given_in_the_order_of_those_who_wait_for_it() -> None:
    """Each of eight threads that emit all the time gets its turn: none waits while another emits twice."""
    calls, waiting, emitted = TaskCalls(OtherThreads(most=1, wait_s=PATIENCE_S), "bolt"), set[int](), list[int]()

    def waits(anchors: Sequence[object]) -> Callable[[], None]:
        waiting.add(threading.get_ident())
        return partial(waiting.discard, threading.get_ident())

    def emits(number: int) -> None:
        with contextlib.suppress(BadEmit):
            while True:
                calls.put(partial(emitted.append, number), "emit", ROW)

    calls.waits = waits
    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(emits, number) for number in range(8)]
        deadline = time.monotonic() + PATIENCE_S
        for _ in range(400):
            while not (len(waiting) == 8 and len(calls)) and time.monotonic() < deadline:
                time.sleep(0)
            for call in calls.take(1, emits=True):
                call.act()
        calls.refuse("at the end")
    assert [one.result() for one in done] == [None] * 8
    assert len(emitted) == 400 and emitted[16:] == emitted[8:-8]


def test_no_emit_overtakes_one_that_waits_for_room() -> None:
    """One that comes just when there is room."""
    calls, waiting = TaskCalls(OtherThreads(most=1, wait_s=PATIENCE_S), "bolt"), list[object]()
    calls.waits = lambda anchors: waiting.append(anchors) or (lambda: None)
    made = list[str]()
    for name in ("there", "first", "second"):
        if name == "second":
            calls.take(1, emits=True)  # room; the first has still to wake up
        put = partial(calls.put, partial(made.append, name), "emit", ROW)
        thread = threading.Thread(target=put)
        thread.start()
        if name == "first":
            while not waiting:
                time.sleep(0.001)
    for _ in range(2):
        while not len(calls):
            time.sleep(0.001)
        (call,) = calls.take(1, emits=True)
        call.act()
    assert made == ["first", "second"]


def test_an_emit_that_may_not_wait_is_refused_by_name_and_acks_always_have_room() -> None:
    calls = TaskCalls(OtherThreads(most=1, wait_s=0.0), "store")
    calls.put(nothing, "emit", ROW)
    with pytest.raises(
        NoRoom, match=r"store called emit on a thread of its own, and 1 tuples of such calls.*not taken"
    ):
        calls.put(nothing, "emit", ROW)
    calls.put(nothing, "ack")
    assert len(calls) == 2


def test_the_wait_for_room_runs_only_while_the_loop_goes_on() -> None:
    """In one call of another bolt nobody can make room. One of the same bolt may wait for the thread: there it runs."""
    in_hand = InHand()
    others = OtherThreads(most=1, wait_s=0.2, in_hand=in_hand)
    calls, heard = TaskCalls(others, "bolt", task_id=2), list[object]()
    calls.put(nothing, "emit", ROW)

    def put() -> None:
        try:
            calls.put(nothing, "emit", ROW)
        except NoRoom as error:
            heard.append(error)

    def waits() -> threading.Thread:
        thread = threading.Thread(target=put)
        thread.start()
        return thread

    in_hand.note_call(3, "process", 0.0)
    waiting = waits()
    waiting.join(1.0)
    assert waiting.is_alive() and not heard
    calls.take(1, emits=True)
    waiting.join(PATIENCE_S)
    assert len(calls) == 1 and not heard, "there was room when the loop went on"
    for goes_on in (lambda: in_hand.note_call(2, "process_tick", 0.0), in_hand.clear):
        in_hand.note_call(3, "process", 0.0)
        waiting = waits()
        waiting.join(0.5)
        assert waiting.is_alive()
        goes_on()
        waiting.join(PATIENCE_S)
        assert isinstance(heard.pop(), NoRoom)
    in_hand.note_call(3, "process", 0.0)
    waiting = waits()
    while waiting.is_alive():  # calls of others, one after the other
        others.turns += 1
        time.sleep(0.01)
    assert isinstance(heard.pop(), NoRoom)


def test_who_waits_for_room_says_so_from_the_beginning_to_the_end() -> None:
    calls, said = TaskCalls(OtherThreads(most=1, wait_s=PATIENCE_S), "bolt"), list[object]()

    def waits(anchors: Sequence[object]) -> Callable[[], None]:
        said.append(anchors)
        return partial(said.append, "over")

    calls.waits = waits
    calls.put(nothing, "emit", ROW, anchors=["not"])
    waiting = threading.Thread(target=calls.put, args=(nothing, "emit", ROW), kwargs={"anchors": ["one"]})
    waiting.start()
    while not said:
        time.sleep(0.001)
    assert said == [["one"]]
    calls.take(1, emits=True)
    waiting.join(PATIENCE_S)
    assert said == [["one"], "over"]


def test_above_the_marks_acks_are_taken_and_emits_are_left_in_their_order() -> None:
    calls, made = TaskCalls(OtherThreads(), "bolt"), list[str]()
    for name, rows in (("ack", ()), ("emit", ROW), ("fail", ())):
        calls.put(partial(made.append, name), name, rows)
    for emits in (False, True):
        for call in calls.take(10, emits):
            call.act()
        assert made == (["ack"] if not emits else ["ack", "emit", "fail"])


def test_untracked_rows_that_were_taken_count_until_they_are_counted_elsewhere() -> None:
    """Another call came in between, and a worker that was killed then had them nowhere."""
    cells = cells_apart()
    calls = TaskCalls(OtherThreads(), "numbers", cells)
    calls.put(nothing, "emit_many", ROW * 5)
    calls.take(1, emits=True)
    assert cells.handed[0] == 5
    calls.put(nothing, "emit", ROW)
    calls.put(nothing, "ack")
    assert cells.handed[0] == 6
    calls.take(1, emits=True)
    calls.note_taken()
    assert cells.handed[0] == 0


def test_refused_rows_that_were_taken_count_until_they_are_counted_elsewhere() -> None:
    cells = cells_apart()
    calls = TaskCalls(OtherThreads(), "work", cells)
    calls.note_refused(ValueError("wrong"), 3, has_open_anchor=False)
    assert len(calls.take_refused()) == 1 and cells.refused[0] == 3
    calls.note_refused(ValueError("wrong"), 1, has_open_anchor=False)
    assert cells.refused[0] == 4
    calls.note_refused_taken()
    assert cells.refused[0] == 1


def test_what_a_forked_child_is_refused_is_not_counted_on_the_page_that_it_shares() -> None:
    others, cells = OtherThreads(), cells_apart()
    calls = TaskCalls(others, "work", cells)
    others.forked()
    calls.note_refused(BadEmit("forked"), 1, has_open_anchor=False)
    assert cells.refused[0] == 0 and calls.take_refused() == []


def test_calls_that_were_taken_and_not_made_come_first_again() -> None:
    others, cells = OtherThreads(), cells_apart()
    calls = TaskCalls(others, "work", cells)
    for rows in (ROW, ROW * 2, (), ROW * 3):
        calls.put(nothing, "emit", rows)
    taken = calls.take(3, emits=True)
    calls.give_back(taken[1:])
    assert (calls.rows, calls.untracked, others.waiting) == (5, 5, 3)
    calls.note_taken()
    assert cells.handed[0] == 5
    assert [call.rows for call in calls.take(9, emits=True)] == [2, 0, 3] and others.waiting == 0


def test_the_loop_is_woken_by_the_first_call_of_a_task() -> None:
    woken = list[bool]()
    others = OtherThreads(wake=lambda: woken.append(True))
    one, two = TaskCalls(others, "one"), TaskCalls(others, "two")
    for calls in (one, one, two):
        calls.put(nothing, "emit", ROW)
    assert len(woken) == 2 and others.waiting == 3
    one.take(1, emits=True)
    one.take(1, emits=True)
    one.put(nothing, "emit", ROW)
    assert len(woken) == 3


def test_what_waits_for_room_is_refused_when_the_run_ends_and_what_is_queued_is_still_taken() -> None:
    calls, heard = TaskCalls(OtherThreads(most=1, wait_s=PATIENCE_S), "bolt"), list[str]()
    calls.put(nothing, "emit", ROW)

    def put() -> None:
        with pytest.raises(BadEmit) as caught:
            calls.put(nothing, "emit", ROW)
        heard.append(str(caught.value))

    waiting = threading.Thread(target=put)
    waiting.start()
    calls.refuse("after the run had closed.")
    waiting.join(PATIENCE_S)
    assert heard == ["bolt called emit on a thread of its own after the run had closed."]
    with pytest.raises(BadEmit):
        calls.put(nothing, "ack")
    assert len(calls.take(10, emits=True)) == 1


def test_rows_are_bounded_by_their_number_and_by_their_bytes() -> None:
    calls = TaskCalls(OtherThreads(most=100, wait_s=0.0, most_bytes=10_000), "store")
    calls.put(nothing, "emit", [["x" * 20_000]])  # one has room, however large
    with pytest.raises(NoRoom):
        calls.put(nothing, "emit", ROW)
    assert calls.rows == 1 and calls.take(1, emits=True) and calls.rows == 0
    calls.put(nothing, "emit_many", ROW * 100)
    with pytest.raises(NoRoom):
        calls.put(nothing, "emit", ROW)
