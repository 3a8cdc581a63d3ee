"""Which tuple a worker died of: the bolt after one death, the tuple after the next, and nobody who was not at work."""

from __future__ import annotations

from dataclasses import replace

from streamlet.runtime.supervision.blame import CAREFUL_S, MOST_REMEMBERED, NAMED_WEIGHT, Blame, DeathVerdict
from streamlet.runtime.tasks.in_hand import HOLDS, Holding, message_key

TASKS = {1: "lines", 2: "count", 3: "count"}
ROOT = 1 << 48
KEY = message_key(("t", 0, 7))


def held(count: int = 1, call: str = "process", task: int = 2, messages: bool = False) -> Holding:
    named = ((ROOT, KEY, "('t', 0, 7)"),) if messages else ()
    return Holding(task, call, count, 1.0, (ROOT,) if count == 1 else (), named, "['x']" if count == 1 else "")


def test_a_death_among_many_tuples_names_the_bolt_and_makes_all_its_tasks_careful() -> None:
    blame = Blame(TASKS)
    verdict = blame.judge(held(64), 10.0)
    assert verdict.roots == () and verdict.careful == (2, 3) and verdict.weight == 1.0
    assert " at work in count (task 2) on one of 64 tuples" in verdict.text
    assert blame.careful(10.0 + CAREFUL_S - 1) == [2, 3] and blame.careful(10.0 + CAREFUL_S) == []


def test_a_death_at_one_tuple_names_it_and_weighs_less() -> None:
    blame = Blame(TASKS)
    verdict = blame.judge(held(), 10.0)
    assert verdict == DeathVerdict(" at work in count (task 2) on the tuple ['x']", (ROOT,), (2, 3), NAMED_WEIGHT)
    assert blame.deaths_of([1]) == {}, "its spout lives, and counts"


def test_what_a_dead_spout_has_to_know_is_counted_for_it() -> None:
    blame = Blame(TASKS)
    for _ in range(2):
        assert "of message ('t', 0, 7)" in blame.judge(held(messages=True), 10.0).text
    assert blame.deaths_of([1, 5]) == {1: {KEY: 2}} and blame.deaths_of([5]) == {}


def test_a_tuple_that_nobody_gives_up_weighs_in_full_in_the_end() -> None:
    """A spout without a policy sends it for ever."""
    blame = Blame(TASKS, 3)
    assert [blame.judge(held(), 1.0).weight for _ in range(5)] == [NAMED_WEIGHT] * 3 + [1.0] * 2


def test_a_tuple_nobody_tracks_is_named_and_weighs_in_full() -> None:
    verdict = Blame(TASKS).judge(Holding(2, "process", 1, 1.0, (), (), "['x']"), 1.0)
    assert verdict == DeathVerdict(" at work in count (task 2) on the tuple ['x']", (), (2, 3), 1.0)
    unseen = Blame(TASKS).judge(Holding(2, "process", 1, 1.0), 1.0)
    assert unseen.text == " at work in count (task 2) on a tuple"


def test_other_calls_and_idle_loops_accuse_no_tuple() -> None:
    blame = Blame(TASKS)
    assert blame.judge(None, 1.0) == DeathVerdict()
    assert blame.judge(held(call="process_tick", count=0), 1.0) == DeathVerdict(" in process_tick of count (task 2)")
    assert blame.judge(held(task=77), 1.0) == DeathVerdict(), "a page that was torn"
    assert blame.careful(1.0) == []


def beside(task: int, count: int = 1, has_threads: bool = True) -> Holding:
    """What a bolt held."""
    one = count == 1
    return Holding(task, HOLDS, count, 0.0, (ROOT + 9,) if one else (), (), "['y']" if one else "", has_threads)


def test_a_second_death_in_a_call_about_held_tuples_makes_the_bolt_careful_and_the_third_names_the_tuple() -> None:
    """The first may have come from outside, and a batch is as quick as its tuples are many."""
    blame = Blame(TASKS)
    first, second = (blame.judge(held(500, "process_tick"), now) for now in (10.0, 20.0))
    assert first == DeathVerdict(" in process_tick of count (task 2), which held 500 tuples")
    assert second.text == f"{first.text}, which now come one by one until it is known which, for two minutes at most"
    assert second.careful == (2, 3) and second.roots == () and second.weight == 1.0
    verdict = blame.judge(held(1, "process_tick"), 21.0)
    assert verdict.text == " in process_tick of count (task 2), which held the tuple ['x']"
    assert verdict.roots == (ROOT,) and verdict.weight == NAMED_WEIGHT


def test_deaths_that_are_far_apart_make_nobody_careful() -> None:
    blame = Blame(TASKS)
    many = beside(2, 12)
    for hour in range(3):
        verdict = blame.judge(replace(many, beside=(many,)), 3600.0 * hour)
        assert verdict == DeathVerdict(" while count (task 2) held 12 tuples")


def test_a_bolt_that_was_handing_tuples_to_its_threads_gets_them_one_by_one_from_the_second_death_on() -> None:
    """Its `process` takes microseconds, and a kill from outside hits it now and then: its pool would stand still."""
    blame = Blame(TASKS)
    handing = replace(held(16), beside=(beside(2, 40),))
    first, second = (blame.judge(handing, now) for now in (10.0, 20.0))
    assert first == DeathVerdict(" at work in count (task 2) on one of 16 tuples")
    assert second.careful == (2, 3) and "one by one" in second.text
    # It is known by then to have threads, though none of them holds a tuple.
    assert blame.judge(held(16), 500.0).careful == ()


def test_a_death_in_no_call_is_one_of_the_bolt_with_threads_that_held_tuples() -> None:
    blame = Blame(TASKS)
    many, one = beside(2, 12), beside(2)
    for now in (10.0, 11.0):
        verdict = blame.judge(replace(many, beside=(many,)), now)
    assert verdict.careful == (2, 3) and verdict.roots == () and " while count (task 2) held 12 tuples" in verdict.text
    assert blame.judge(replace(one, beside=(one,)), 12.0).roots == (ROOT + 9,)
    # Its replacement may die before a thread of it has called.
    unknown = replace(one, has_threads=False)
    assert blame.judge(replace(unknown, beside=(unknown,)), 13.0).roots == (ROOT + 9,)


def test_a_bolt_that_only_waits_for_more_is_no_suspect() -> None:
    blame = Blame(TASKS)
    many = beside(2, 12, has_threads=False)
    for now in (10.0, 11.0, 12.0):
        assert blame.judge(replace(many, beside=(many,)), now) == DeathVerdict(" while count (task 2) held 12 tuples")


def test_two_that_may_be_why_are_both_given_one_tuple_at_a_time_and_nobody_is_charged() -> None:
    """One was in the loop's call, the other in the hands of threads. One without threads is no suspect."""
    blame = Blame({**TASKS, 4: "pool", 5: "join"})
    call = replace(held(), beside=(beside(4), beside(5, 70, has_threads=False)))
    assert blame.judge(call, 9.0).careful == (2, 3), "what threads hold counts from the second death on"
    verdict = blame.judge(call, 10.0)
    assert verdict.roots == () and verdict.careful == (2, 3, 4) and verdict.weight == 1.0
    assert " on the tuple ['x'], beside threads of pool (task 4), which now come one by one" in verdict.text
    assert blame.careful(11.0) == [2, 3, 4]
    # A bolt may be in its own call beside its own threads.
    (_, own) = (blame.judge(replace(held(), beside=(beside(2),)), now) for now in (11.5, 12.0))
    assert own.roots == () and own.careful == (2, 3)
    # In a call about no tuple it can only be the threads.
    tick = blame.judge(replace(held(0, "process_tick", task=1), beside=(beside(4),)), 13.0)
    assert tick.roots == (ROOT + 9,)


def test_a_tuple_is_named_at_the_end_only_where_nothing_else_can_be_why() -> None:
    blame = Blame({**TASKS, 4: "pool", 5: "join"})
    assert blame.names_one(held()) and not blame.names_one(held(64))
    assert not blame.names_one(replace(held(), beside=(beside(4),))), "a thread may be why"
    assert blame.names_one(replace(held(), beside=(beside(5, 70, has_threads=False),)))


def test_what_is_remembered_is_bounded() -> None:
    blame = Blame(TASKS)
    for number in range(MOST_REMEMBERED + 5):
        key = message_key(number)
        blame.judge(Holding(2, "process", 1, 0.0, (ROOT,), ((ROOT, key, str(number)),), ""), 1.0)
    assert len(blame.deaths_of([1])[1]) == MOST_REMEMBERED
