"""When a call counts as hanging: by looks, once a heartbeat, at what is under work."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from streamlet import Bolt, Stream
from streamlet.components.columns import Columns
from streamlet.runtime.tasks.in_hand import TASK
from streamlet.runtime.worker.hang_watch import Hang, HangWatch, Look, call_text, present_call, stack_in_call, stack_of
from tests.unit.runtime.tasks.bolt_rig import Rig

ROW, OTHER = ["a"], ["a"]


def process(began: float, held: list[str] | None = ROW, task: int = 3) -> Look:
    return Look(task, "process", began, held)


def test_a_call_that_takes_too_long_is_told_once_and_its_end_too() -> None:
    watch = HangWatch(5.0)
    assert watch.observe(process(0.5), 1.0) is None
    assert watch.observe(process(0.5), 5.4) is None
    first = watch.observe(process(0.5), 5.6)
    assert first is not None and first.first and first.seconds == 5.1
    again = watch.observe(process(0.5), 9.0)
    assert again is not None and not again.first and again.seconds == 8.5
    assert watch.over is None
    assert watch.observe(process(9.5), 10.0) is None
    assert watch.over is not None and watch.over.seconds == 8.5
    assert watch.observe(process(9.5), 11.0) is None and watch.over is None


def test_a_slice_of_many_slow_tuples_hangs_in_none_of_them() -> None:
    """A slice has one beginning; equal values are not the same tuple."""
    watch = HangWatch(3.0)
    for second in range(1, 20):
        assert watch.observe(process(0.0, ROW if second % 2 else OTHER), float(second)) is None


def test_one_of_many_that_hangs_counts_from_when_it_was_seen_first() -> None:
    watch = HangWatch(3.0)
    assert watch.observe(process(0.0, OTHER), 1.0) is None
    assert [watch.observe(process(0.0), float(second)) is not None for second in (2, 3, 4, 5)] == [False] * 3 + [True]


def test_a_process_that_was_stopped_hangs_in_nothing() -> None:
    """The time in which nobody could look counts for no call; what counted before still does."""
    watch = HangWatch(5.0, gap_s=2.0)
    assert watch.observe(process(0.5), 1.0) is None
    assert watch.observe(process(0.5), 3.0) is None
    assert watch.observe(process(0.5), 63.0) is None
    assert watch.observe(process(0.5), 65.0) is None
    hang = watch.observe(process(0.5), 66.0)
    assert hang is not None and hang.first and hang.seconds == 5.5


def test_a_call_that_began_while_nobody_could_look_counts_from_the_first_look() -> None:
    """It may be what held the lock, or what came after it: the stack of now says nothing of that time."""
    watch = HangWatch(5.0, gap_s=2.0)
    assert watch.observe(process(0.5), 1.0) is None
    assert watch.observe(process(1.1, OTHER), 61.0) is None
    assert [watch.observe(process(1.1, OTHER), now) for now in (63.0, 65.0)] == [None, None]
    hang = watch.observe(process(1.1, OTHER), 66.0)
    assert hang is not None and hang.first and hang.seconds == 5.0


def test_a_stack_is_shown_only_of_a_call_that_still_goes_on() -> None:
    rig = Rig(Bolt())
    in_hand, tasks, me = rig.task.in_hand, {7: SimpleNamespace(task=rig.task)}, threading.get_ident()
    in_hand.note_call(7, "process_tick", 1.0)
    look, _ = present_call(in_hand, tasks)  # type: ignore[arg-type]
    assert "test_a_stack_is_shown" in stack_in_call(me, look, in_hand, tasks)  # type: ignore[arg-type]
    in_hand.note_call(7, "process_tick", 2.0)
    assert stack_in_call(me, look, in_hand, tasks) == ""  # type: ignore[arg-type]


def test_an_idle_loop_does_not_hang() -> None:
    watch = HangWatch(3.0)
    assert not any(watch.observe(Look(0, "process", 0.0, None), float(second)) for second in range(20))


def test_calls_without_a_tuple_are_known_by_their_beginning() -> None:
    watch = HangWatch(3.0)
    looks = [
        watch.observe(Look(1, "next_tuple", begun, None), now) for begun, now in ((0, 1), (2, 4), (2, 4.9), (2, 5))
    ]
    assert [hang is not None for hang in looks] == [False, False, False, True]


def test_a_stack_begins_at_the_users_code() -> None:
    waits, go = threading.Event(), threading.Event()

    def lock_that_nobody_opens() -> None:
        waits.set()
        go.wait()

    thread = threading.Thread(target=lock_that_nobody_opens)
    thread.start()
    waits.wait()
    assert thread.ident is not None
    text = stack_of(thread.ident)
    go.set()
    thread.join()
    assert "lock_that_nobody_opens" in text and text.lstrip().startswith("File")
    assert stack_of(thread.ident) == ""


def test_a_look_at_a_batch_leaves_it_as_it_is() -> None:
    """It is taken by another thread, at each heartbeat: the bolt may be reading the batch's columns."""
    looks: list[Any] = []

    class Looks(Bolt):
        def process_batch(self, batch: Any) -> None:
            batch._rows = Columns([[*batch.values(0)]])
            looks.extend(present_call(rig.task.in_hand, {7: SimpleNamespace(task=rig.task)}) for _ in range(2))  # type: ignore[dict-item]
            (first, tup), (second, _) = looks
            assert first.held is second.held is tup is batch
            assert call_text(Hang(first, 3.0, True), tup, "looks") == (
                "process of looks for 3 s on a batch of 2 tuples from source, [['a'], ['b']]"
            )
            assert isinstance(batch._rows, Columns)

    rig = Rig(Looks(), (Stream(["v"]),))
    rig.task.task_id = 7
    rig.run((0, ["a"]), (0, ["b"]))
    assert len(looks) == 2 and not rig.reported and rig.task.in_hand.words[TASK] == 7
