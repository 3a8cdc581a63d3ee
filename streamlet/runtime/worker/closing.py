"""Closes a worker's components: ``cleanup`` after a clean end, then every spout. On the loop's thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from streamlet.base.errors import BadEmit
from streamlet.runtime.tasks.building import LiveTask, WorkerContext
from streamlet.runtime.tasks.spout_task import SpoutTask
from streamlet.runtime.tasks.user_errors import ComponentFailed, could_not_close
from streamlet.runtime.worker.hang_watch import stack_of

ClosingCall = tuple[LiveTask, str, Callable[[], None]]
IsOver = Callable[[int, str, float], None]
"""Takes a call that is over: task, method, when it began."""


def close_components(
    tasks: Collection[LiveTask], shared: WorkerContext, clean: bool, is_over: IsOver
) -> list[ComponentFailed]:
    """Close all components; return what they raised. ``cleanup`` is called after a ``clean`` end only."""
    raised = []
    for live in tasks:
        _refuse_emits(live)
    for live, name, act in [*_cleanups(tasks, clean), *_spout_ends(tasks, clean)]:
        shared.in_hand.note_call(live.plan.task_id, name, began := shared.clock.monotonic())
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - every component gets its turn, whatever another does
            if not (isinstance(live.task, SpoutTask) and live.task.retired):  # its first reason counts
                raised.append(could_not_close(live.plan.component, live.plan.task_id, name, error, act))
        is_over(live.plan.task_id, name, began)
    shared.in_hand.clear()
    return raised + (_finish_pools(shared) if clean else [])


def _cleanups(tasks: Collection[LiveTask], clean: bool) -> list[ClosingCall]:
    # Rule: bolts first. A spout's last commit may wait for a store that is gone until the worker is killed, and then no
    # cleanup would run. What a cleanup writes is nowhere else.
    ordered = sorted(tasks, key=lambda live: isinstance(live.task, SpoutTask))
    return [(live, "cleanup", live.component.cleanup) for live in ordered if clean]


def _spout_ends(tasks: Collection[LiveTask], clean: bool) -> list[ClosingCall]:
    spouts = [(live, live.task) for live in tasks if isinstance(live.task, SpoutTask)]
    # All spouts begin to close before the first one is closed: what they give up goes side by side.
    active = [(live, run) for live, run in spouts if clean and not (run.paused or run.retired)]
    return [
        *((live, "deactivate", run.spout.deactivate) for live, run in active),
        *((live, "begin_close", run.spout.begin_close) for live, run in spouts if clean),
        *((live, "close", run.spout.close) for live, run in spouts),
    ]


def _refuse_emits(live: LiveTask) -> None:
    emits = ("emit", "emit_many", "emit_each") if isinstance(live.task, SpoutTask) else ("emit", "emit_many")
    component = live.component
    vars(component).update({name: partial(_emit_after_close, live, getattr(component, name)) for name in emits})


def _emit_after_close(live: LiveTask, emit: Callable[..., Any], *args: Any, **more: Any) -> Any:
    if not live.task.calls.here():  # refused there, and counted
        return emit(*args, **more)
    raise BadEmit("it emitted while it was closed: nothing is delivered any more. Emit while tuples flow")


def _finish_pools(shared: WorkerContext) -> list[ComponentFailed]:
    left = shared.finish_pools()
    # Rule: tell a call under way; it is no error. It may be a listener that ends with its process, or the work of a
    # tuple that was acked too early: nobody but the user knows.
    if left.under_way:
        shared.tell("warning", _calls_under_way(left.under_way), "", 0)
    return [_calls_not_made(left.waiting)] if left.waiting else []


def _calls_not_made(calls: int) -> ComponentFailed:
    return ComponentFailed(
        f"{calls:,} call(s) that components had given to a thread pool had not begun at the end, and the run waits for "
        "them no longer. It waits for tuples that are not acked: set auto_ack = False and ack when such a call is "
        "done, or wait for the pool in cleanup."
    )


def _calls_under_way(threads: Sequence[int]) -> str:
    return (
        f"{len(threads):,} call(s) that components had given to a thread pool were under way when all was closed, and "
        "the run waits for them no longer: what they do is cut off, and what they emit refused. If that is the work of "
        "tuples, set auto_ack = False and ack when it is done, or wait for the pool in cleanup. The first stands at:\n"
        f"{stack_of(threads[0])}"
    )
