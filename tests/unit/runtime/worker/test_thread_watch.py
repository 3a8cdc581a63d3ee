"""Which emits of components' own threads a run tells of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from streamlet import Bolt, ReliableSpout
from streamlet.runtime.tasks.other_threads import ENDED, FULL, WRONG, RefusedEmits
from streamlet.runtime.worker.thread_watch import TELL_AGAIN, ThreadWatch


class ByHand(Bolt):
    auto_ack = False


class Answering(ByHand):
    """As ThreadedBolt and AsyncBolt, which fail the tuple of a call that raised."""

    answers_for_untracked = True


class Calls:
    """What a task's threads did."""

    def __init__(self) -> None:
        self.used = self.emitted = True
        self.refused: list[RefusedEmits] = []

    def note_refused_taken(self) -> None:
        pass

    def take_refused(self) -> list[RefusedEmits]:
        taken, self.refused = self.refused, []
        return taken


class Watched:
    """One task, and what is told of it."""

    def __init__(self, component: Any) -> None:
        self.texts: list[str] = []
        self.given_up: list[RefusedEmits] = []
        self.calls = Calls()
        self.stats = SimpleNamespace(lost=0)
        emits = SimpleNamespace(give_up_refused=self.given_up.append)
        run = SimpleNamespace(calls=self.calls, stats=self.stats, bolt_emits=emits)
        plan = SimpleNamespace(component="work", task_id=2)
        self.live: Any = SimpleNamespace(component=component, task=run, plan=plan)
        self.watch = ThreadWatch(lambda level, text, component, task: self.texts.append(text))

    def look(self, *refused: RefusedEmits) -> list[str]:
        self.calls.refused += refused
        self.texts.clear()
        self.watch.look([self.live])
        return [*self.texts]


def refused(kind: str, rows: int = 1, gone: int = 1) -> RefusedEmits:
    return RefusedEmits(kind, rows, gone, ValueError("why it was"))


def test_a_bolt_with_auto_ack_whose_threads_emit_is_told_once() -> None:
    watched = Watched(Bolt())
    assert len(watched.look()) == 1 and not watched.look()


def test_no_other_bolt_is_told_that() -> None:
    assert not Watched(ByHand()).look()
    assert not Watched(Answering()).look()
    silent = Watched(Bolt())
    silent.calls.emitted = False
    assert not silent.look()


def test_a_refused_emit_of_a_bolt_is_given_up_by_its_task() -> None:
    watched, wrong = Watched(ByHand()), refused(WRONG)
    assert not watched.look(wrong) and watched.given_up == [wrong]


def test_a_bolt_that_answers_for_its_calls_has_told_it_itself() -> None:
    watched = Watched(Answering())
    assert not watched.look(refused(WRONG)) and not watched.given_up


def test_what_comes_after_the_end_is_lost_and_told() -> None:
    watched = Watched(ByHand())
    (text,) = watched.look(refused(ENDED, rows=5, gone=3))
    assert watched.stats.lost == 3 and "5 tuple(s)" in text and "why it was" in text


def test_who_finds_no_room_is_told_and_nothing_is_counted() -> None:
    watched = Watched(ByHand())
    assert watched.look(refused(FULL, gone=0)) and watched.stats.lost == 0


def test_refusals_that_go_on_are_told_again_each_time_that_there_are_ten_times_as_many() -> None:
    watched = Watched(ByHand())
    told = [bool(watched.look(refused(FULL, gone=0))) for _ in range(TELL_AGAIN**2)]
    assert [number for number, was_told in enumerate(told, 1) if was_told] == [1, TELL_AGAIN, TELL_AGAIN**2]


def test_a_spouts_thread_that_the_end_refuses_is_told_nothing_more() -> None:
    watched = Watched(ReliableSpout())
    assert not watched.look(refused(ENDED, gone=0))
    assert watched.look(refused(WRONG, gone=0))
