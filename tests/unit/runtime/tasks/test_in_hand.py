"""What is under work stands on a page that somebody else can read at any moment."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet import Bolt, Tuple
from streamlet.runtime.tasks.in_hand import (
    HOLDS,
    MOST_HOLDERS,
    PAGE_BYTES,
    Holding,
    InHand,
    holding,
    message_key,
    shortened,
    with_tuple,
)
from tests.unit.runtime.tasks.bolt_rig import Rig


def test_a_slice_of_one_names_its_tuple_and_a_longer_one_only_the_task() -> None:
    seen: list[Holding | None] = []

    class Looks(Bolt):
        def process(self, tup: Tuple) -> None:
            seen.append(holding(page))
            rig.clock.advance(0.2)

    page = bytearray(PAGE_BYTES)
    rig = Rig(Looks())
    rig.task.task_id = 7
    rig.task.in_hand = InHand(page, lambda root: ("topic", 0, 12) if root == 41 else None)
    rig.run((41, ["long"]), (42, [b"x" * 4000]))
    assert [held and (held.task, held.call, held.count) for held in seen] == [(7, "process", 2)] * 2, (
        "those that are there"
    )
    seen.clear()
    rig.run((41, ["slow"]), (42, [b"x" * 4000]), (0, [None]))
    rig.run((1, ["both"]), multi=[[41, 42]])
    assert [held and (held.count, held.roots, held.values) for held in seen] == [
        (1, (41,), "['slow']"),
        (1, (42,), "[b'" + "x" * 60 + "'... (4,000 long)]"),
        (1, (), "[None]"),
        (1, (41, 42), "['both']"),
    ]
    key = message_key(("topic", 0, 12))
    assert [held and held.messages for held in seen] == [
        ((41, key, "('topic', 0, 12)"),), (), (), ((41, key, "('topic', 0, 12)"),)
    ]  # fmt: skip
    began = [held.began for held in seen if held]
    assert began == sorted(set(began))
    rig.task.in_hand.clear()
    assert holding(page) is None


def test_a_call_without_a_tuple_is_named() -> None:
    page = bytearray(PAGE_BYTES)
    hand = InHand(page)
    hand.note_tuple(3, 9, ["a"], 1.0)
    hand.note_call(2, "process_tick", 5.5)
    assert holding(page) == Holding(2, "process_tick", 0, 5.5)
    hand.note_call(2, "some_day", 5.5)
    assert holding(page) == Holding(2, "its own call", 0, 5.5)


def test_what_a_bolt_holds_stands_beside_the_call_and_alone_when_there_is_none() -> None:
    page = bytearray(PAGE_BYTES)
    hand = InHand(page, lambda root: "m" if root == 41 else None)
    one, two = Tuple(["a"], "c", "s", 1, 41), Tuple(["b"], "c", "s", 1, 42)
    hand.note_held(7, [one, two], has_threads=True, in_full=False)
    hand.note_held(9, [two], has_threads=False, in_full=True)
    hand.note_call(3, "process_tick", 5.5, [one])
    found = holding(page)
    assert found is not None and (found.task, found.count, found.roots, found.values) == (3, 1, (41,), "['a']")
    assert found.messages == ((41, message_key("m"), "'m'"),)
    assert [(each.task, each.count, each.has_threads, each.values) for each in found.beside] == [
        (7, 2, True, ""),
        (9, 1, False, "['b']"),
    ]
    hand.clear()
    idle = holding(page)
    assert idle is not None and (idle.task, idle.call, idle.count, len(idle.beside)) == (7, HOLDS, 2, 2)
    for task in (7, 9):
        hand.note_held(task, [], has_threads=True, in_full=True)
    assert holding(page) is None
    for task in range(100, 100 + 2 * MOST_HOLDERS):
        hand.note_held(task, [one], has_threads=True, in_full=False)
    many = holding(page)
    assert many is not None and len(many.beside) == MOST_HOLDERS - 2, "two places belong to the first two"


def test_a_bolt_that_is_made_to_work_elsewhere_has_threads_before_one_of_them_has_called() -> None:
    """The first tuple that it gets may be the deadly one."""

    class Keeps(Bolt):
        auto_ack = False

        def process(self, tup: Tuple) -> None:
            pass

    class Elsewhere(Keeps):
        answers_for_untracked = True

    for kind, has_threads in ((Keeps, False), (Elsewhere, True)):
        page = bytearray(PAGE_BYTES)
        rig = Rig(kind())
        rig.task.task_id, rig.task.in_hand = 7, InHand(page)
        rig.run((41, ["a"]))
        rig.task.note_held()
        rig.task.in_hand.clear()
        held = holding(page)
        assert held is not None and (held.task, held.call, held.has_threads) == (7, HOLDS, has_threads)


def test_a_call_that_was_handed_over_is_named_while_it_runs() -> None:
    """It may hang like any other, and no tuple is at work then."""
    page = bytearray(PAGE_BYTES)
    rig = Rig(Bolt())
    rig.task.task_id = 7
    rig.task.in_hand = InHand(page)
    seen: list[Holding | None] = []
    rig.task.hand_over(lambda: seen.append(holding(page)))
    for call in rig.task.calls.take(1, emits=True):
        call.act()
    (held,) = seen
    assert held is not None and (held.task, held.call, held.count) == (7, "its own call", 0)
    assert holding(page) is None


def test_a_worker_that_says_which_tuple_of_a_slice_it_hangs_in_is_believed() -> None:
    """Unless its page names the tuple itself: that knows the messages of its spouts, too."""
    named = Holding(3, "process", 1, 5.5, (8, 9), (), "['a']")
    assert with_tuple(Holding(3, "process", 40, 5.5), 3, [8, 9], "['a']") == named
    assert with_tuple(Holding(3, "process", 1, 5.5, (1,), (), "['b']"), 3, [8, 9], "['a']") == named
    page = Holding(3, "process", 1, 5.5, (8,), ((8, b"k", "m"),), "['a']")
    assert with_tuple(page, 3, [8, 9], "['a']") is page
    assert with_tuple(None, 3, [8, 9], "['a']") == Holding(3, "process", 1, 0.0, (8, 9), (), "['a']")


def test_a_page_that_was_left_half_written_is_read_all_the_same() -> None:
    page = bytearray(PAGE_BYTES)
    InHand(page).note_tuple(3, 9, ["a" * 300], 1.0)
    for at in range(128, 400):
        torn = bytearray(page)
        torn[at] = 0xC1
        held = holding(torn)
        assert held is not None and (held.task, held.count) == (3, 1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (["a", 1, 2.5, None, True], "['a', 1, 2.5, None, True]"),
        ([{"a": 1}, [1, [2]]], "[<dict of 1>, [1, [2]]]"),
        (list(range(20)), "[0, 1, 2, 3, 4, 5, 6, 7, ... (20 values)]"),
        ([1 << 4000], "[<int>]"),
        (["\udce9\x1b"], r"['\udce9\x1b']"),
    ],
)
def test_values_are_shown_short(value: Any, text: str) -> None:
    assert shortened(value) == text
    assert len(shortened(["x" * 10_000] * 8)) <= 200


@pytest.mark.parametrize(("one", "other"), [((0, 5), (0, 5)), ("a", "a"), (frozenset({1}), frozenset({1}))])
def test_equal_ids_have_one_key(one: Any, other: Any) -> None:
    assert message_key(one) == message_key(other) != message_key("else")
