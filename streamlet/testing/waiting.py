"""Rules of a wait in real time: for tuples that threads may have, and for none that wait for a tick."""

from __future__ import annotations

from collections.abc import Sequence

from streamlet.base.errors import BadInput, WrongArgument
from streamlet.components.batching import BatchingBolt
from streamlet.model.plan import TICK_PERIOD
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.tasks.building import LiveTask
from streamlet.runtime.worker.loop import WorkerLoop


def no_thread_has_any(loop: WorkerLoop, named: Sequence[str]) -> bool:
    """Tell whether open tuples all wait for ticks, or in named bolts."""
    # Rule: what a thread may have is waited for. A bolt with ticks may have threads besides, so only a tuple that is in
    # a batch is known to wait for a tick. Another thread's emit is taken before the ack behind it, so a bolt that holds
    # nothing has nothing under way.
    holding = _holding(loop)
    return loop.stands and bool(holding) and all(live.plan.component in named or _for_tick(live) for live in holding)


def let_more_in(loop: WorkerLoop) -> bool:
    """Let spouts emit more where bolts keep all that may be open; tell whether one may."""
    # In a run the census finds that, and it takes time: here the clock stands still, and a batch would be as small as a
    # window is at first.
    full = [spout for spout in loop.spouts.values() if spout.full]
    before = [spout.window.size for spout in full]
    for spout in full:
        spout.window.measured(len(spout.pending), 0.0, starved=True)
    return [spout.window.size for spout in full] != before


def in_vain(loop: WorkerLoop, seconds: float, who: str, which: str) -> str:
    """Say which bolts hold open tuples, and the remedy."""
    names = [*dict.fromkeys(live.plan.component for live in _holding(loop))]
    have = f" {' and '.join(names)} {'has' if len(names) == 1 else 'have'} them." if names else ""
    return (
        f"{who} still open after {seconds:g} s of waiting for threads{which}.{have} If a bolt waits for a tick or a "
        "time-out, call advance(): the tester's clock stands still here. Where other bolts have threads, wait for "
        f"those before, wait(until_held_by=[{', '.join(map(repr, names[-1:]))}]). Else look at what should have acked "
        "or failed it."
    )


def check_bolts(loop: WorkerLoop, names: object) -> None:
    """Refuse names of other things than bolts. Raises BadInput."""
    bolts = [*dict.fromkeys(live.plan.component for live in loop.tasks.values() if isinstance(live.task, BoltTask))]
    if isinstance(names, str) or not isinstance(names, Sequence):
        example = names if isinstance(names, str) else bolts[0] if bolts else "count"
        raise WrongArgument(f"until_held_by= is {names!r}: give the names of bolts, [{example!r}].")
    for name in names:
        if name not in bolts:
            raise BadInput(f"There is no bolt {name!r}. There are: {', '.join(map(repr, bolts)) or 'none'}.")


def _holding(loop: WorkerLoop) -> list[LiveTask]:
    """Return the bolts that hold open tuples."""
    return [
        live
        for live in loop.tasks.values()
        if isinstance(live.task, BoltTask) and (live.task.held or live.task.held.batches)
    ]


def _for_tick(live: LiveTask) -> bool:
    """Tell whether all that a bolt holds waits for its tick."""
    bolt, task = live.component, live.task
    if not isinstance(bolt, BatchingBolt) or not isinstance(task, BoltTask) or not live.conf[TICK_PERIOD]:
        return False
    return not task.held.batches and bolt.waits_for_tick(task.held.given)
