"""Who held the interpreter's lock: the only one that did not ask for it."""

from __future__ import annotations

import pytest

from streamlet import Tuple
from streamlet.runtime.worker.lock_watch import LockWatch, UserCall
from streamlet.runtime.worker.standstill import Stood

LOOP, ONE, OTHER = 10, 11, 12
A, B = Tuple(["a"], "lines", "s", 1, 7), Tuple(["b"], "lines", "s", 1, 8)
ON_LOOP = UserCall(LOOP, 2, "process", 1.0)
ON_ONE = UserCall(ONE, 3, "process", 1.5, A)
ON_OTHER = UserCall(OTHER, 4, "process", 0.5, B)


def stood(calls: list[UserCall], *waited: int, held: bool = True) -> tuple[LockWatch, int | None, list[str]]:
    """Let a process stand still from 1 to 7, and look at 7."""
    told: list[str] = []
    watch = LockWatch(LOOP, 5.0, lambda: calls, lambda task: f"bolt{task}", lambda *words: told.append(words[1]))
    return watch, watch.stood(Stood(1.0, 7.0, held, frozenset(waited))), told


def test_a_call_of_a_pool_is_named_with_its_tuple_where_all_others_asked_for_the_lock() -> None:
    """Not one that began when the lock was free again."""
    late = UserCall(OTHER, 4, "process", 6.9, B)
    watch, holder, (named,) = stood([ON_LOOP, ON_ONE, late], LOOP)
    assert holder == 3 and watch.by_loop_s(0.0, 9.0) == 0.0
    assert named.startswith("bolt3 (task 3) was in process for 6 s on a tuple from lines, ['a'], and for 6 s of that")


def test_of_coroutines_on_one_thread_nobody_knows_which_it_was() -> None:
    _, holder, (named,) = stood([ON_ONE, ON_ONE._replace(tup=B), ON_OTHER], OTHER)
    assert holder == 3 and "bolt3 (task 3) was in process for 6 s on one of 2 tuples, and" in named
    assert "'a'" not in named


def test_a_call_of_the_loop_that_held_it_is_left_to_the_loop_to_tell() -> None:
    watch, holder, told = stood([ON_LOOP, ON_ONE], ONE)
    assert (holder, told) == (2, [])
    assert watch.by_loop_s(2.0, 6.0) == 4.0 and watch.by_loop_s(7.0, 9.0) == 0.0


@pytest.mark.parametrize(
    ("calls", "waited", "said"),
    [
        ([ON_LOOP, ON_ONE, ON_OTHER], [OTHER], "process of bolt2 (task 2), process of bolt3 (task 3). It was"),
        ([ON_LOOP, ON_ONE], [LOOP, ONE], "for the lock: no call of a component. It was"),
    ],
)
def test_where_it_cannot_be_known_nobody_is_named_with_a_tuple(
    calls: list[UserCall], waited: list[int], said: str
) -> None:
    """One that waits for an answer asks for no lock either; and a thread of nobody's may have held it."""
    watch, holder, (told,) = stood(calls, *waited)
    assert holder is None and watch.by_loop_s(0.0, 9.0) == 0.0
    assert told.startswith("For 6 s no thread of this process could run") and said in told and "'a'" not in told


def test_a_process_that_was_stopped_is_nobodys_fault() -> None:
    assert stood([ON_ONE], held=False)[1:] == (None, [])
