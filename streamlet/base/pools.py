"""Knows the threads of pools (``concurrent.futures.ThreadPoolExecutor``), and waits for their calls at an end.

The interpreter makes the calls that pools were given before it ends. A process that ends by ``os._exit`` has to ask for
it. Pools are found where that part of the interpreter finds them: in a table of the module's own.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import thread
from queue import SimpleQueue
from types import FrameType
from typing import Any, NamedTuple

STILL_S = 1.0
"""Seconds without a call that begins or ends after which the end of a run waits for pools no longer ..."""

MOST_S = 3.0
"""Seconds of the longest such wait: less than a close may take after Ctrl-C."""

LOOK_S = 0.02
"""Seconds between two looks at the calls that are left."""


def _queues() -> dict[threading.Thread, Any]:
    """Return the queue of calls of each pool's thread."""
    while True:
        try:
            return dict(vars(thread).get("_threads_queues", {}))
        except RuntimeError:  # a pool has started a thread meanwhile
            continue


class PoolCalls(NamedTuple):
    """Calls that pools have been given and not made."""

    waiting: int
    """Those that have not begun."""
    under_way: tuple[int, ...]
    """The threads of those that have, by number."""

    @property
    def total(self) -> int:
        """How many calls there are."""
        return self.waiting + len(self.under_way)


NO_CALLS = PoolCalls(0, ())


class _Pool(NamedTuple):
    """The queue of calls of a pool, and its threads."""

    queue: SimpleQueue[object]
    threads: list[threading.Thread]

    def waiting(self) -> int:
        """Return how many calls have not begun."""
        # Rule: an end mark in the queue is no call. `shutdown` leaves one, and a pool that nobody holds any more one a
        # thread: a bolt that ended its pool as it should would seem to leave a call. A thread ends at a mark, and marks
        # lie behind all calls.
        if not all(one.is_alive() for one in self.threads):
            return 0
        arguments = getattr(self.threads[0], "_args", ())
        owner = arguments[0]() if arguments else None
        marks = len(self.threads) if owner is None else int(owner._shutdown)
        return max(0, self.queue.qsize() - marks)

    def under_way(self, frames: Mapping[int, FrameType]) -> tuple[int, ...]:
        """Return the threads that make a call now, by number."""
        # One that waits for its next call stands in the pool's own function, and has none at hand.
        code = vars(thread)["_worker"].__code__
        at = {one.ident: frames.get(one.ident) for one in self.threads if one.ident is not None}
        return tuple(
            ident
            for ident, frame in at.items()
            if frame is not None and (frame.f_code is not code or frame.f_locals.get("work_item") is not None)
        )


def _pools(but: Collection[threading.Thread] = ()) -> list[_Pool]:
    """Return all pools that have threads. ``but``: threads of those that do not count."""
    found: dict[int, _Pool] = {}
    for one, queue in _queues().items():
        if one not in but:
            found.setdefault(id(queue), _Pool(queue, [])).threads.append(one)
    return [*found.values()]


def is_pools() -> bool:
    """Tell whether the calling thread belongs to a pool."""
    # By what it runs: a thread comes into the table after its first call has begun.
    runs = vars(thread).get("_worker")
    return runs is not None and getattr(threading.current_thread(), "_target", None) is runs


def calls_left(but: Collection[threading.Thread] = ()) -> PoolCalls:
    """Return the calls that pools have not made. ``but``: threads of pools that do not count."""
    return _left(_pools(but), 0)


def _left(pools: Sequence[_Pool], end_marks: int) -> PoolCalls:
    """Return unmade calls of pools that have ``end_marks`` more a thread."""
    frames = sys._current_frames()
    waiting = sum(max(0, pool.waiting() - end_marks * len(pool.threads)) for pool in pools)
    return PoolCalls(waiting, tuple(ident for pool in pools for ident in pool.under_way(frames)))


def pool_threads() -> frozenset[threading.Thread]:
    """Return the threads of all pools there are."""
    return frozenset(_queues())


def wait_for_pools(but: Collection[threading.Thread], still_s: float, most_s: float) -> PoolCalls:
    """Wait until pools have made their calls; return those left. They go on.

    ``but``: threads of pools that are another's. Waits ``still_s`` while no call begins or ends, ``most_s`` at most.
    """
    _wait_while(lambda: calls_left(but).total > 0, time.sleep, lambda: calls_left(but), still_s, most_s)
    return calls_left(but)


def finish_pools(still_s: float, most_s: float) -> PoolCalls:
    """Let all pools make their calls; return those that they have not made.

    They take no more. Waits ``still_s`` while no call begins or ends, ``most_s`` at most. For the end of a process.
    """
    pools = _pools()
    finish: Callable[[], None] = vars(thread)["_python_exit"]  # the interpreter's own; it joins every thread of a pool
    ending = threading.Thread(target=finish, name="pools-end", daemon=True)
    ending.start()
    # It puts one end mark for each thread behind the calls.
    _wait_while(ending.is_alive, ending.join, lambda: _left(pools, 1), still_s, most_s)
    return _left(pools, 1) if ending.is_alive() else NO_CALLS


def _wait_while(
    going: Callable[[], bool],
    pause: Callable[[float], object],
    look: Callable[[], PoolCalls],
    still_s: float,
    most_s: float,
) -> None:
    """Wait while calls are made: ``still_s`` without one that begins or ends, ``most_s`` at most."""
    began = changed = time.monotonic()
    left = look()
    while going() and (now := time.monotonic()) - began < most_s and now - changed < still_s:
        pause(LOOK_S)
        if (seen := look()) != left:
            left, changed = seen, time.monotonic()
