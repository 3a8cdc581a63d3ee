"""Knows the threads of pools (``concurrent.futures.ThreadPoolExecutor``), and waits for their calls at an end.

The interpreter makes the calls that pools were given before it ends. A process that ends by ``os._exit`` has to ask for
it. Pools are found where that part of the interpreter finds them: in a table of the module's own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import thread
from queue import SimpleQueue
from typing import Any, NamedTuple

STILL_S = 1.0
"""Seconds without a call that begins after which the end of a run waits for pools no longer ..."""

MOST_S = 3.0
"""Seconds of the longest such wait: less than a close may take after Ctrl-C."""

LOOK_S = 0.02
"""Seconds between two looks at the calls that wait."""


def _queues() -> dict[threading.Thread, Any]:
    """Return the queue of calls of each pool's thread."""
    while True:
        try:
            return dict(vars(thread).get("_threads_queues", {}))
        except RuntimeError:  # a pool has started a thread meanwhile
            continue


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


def waiting_calls(but: Collection[threading.Thread] = ()) -> int:
    """Return how many calls pools have been given and not begun. ``but``: threads of pools that do not count."""
    return sum(pool.waiting() for pool in _pools(but))


def pool_threads() -> frozenset[threading.Thread]:
    """Return the threads of all pools there are."""
    return frozenset(_queues())


def wait_for_pools(but: Collection[threading.Thread], still_s: float, most_s: float) -> int:
    """Wait until pools have begun all their calls; return how many they have not. They go on.

    ``but``: threads of pools that are another's. Waits ``still_s`` while no call begins, ``most_s`` at most.
    """
    _wait_while(lambda: waiting_calls(but) > 0, time.sleep, lambda: waiting_calls(but), still_s, most_s)
    return waiting_calls(but)


def finish_pools(still_s: float, most_s: float) -> int:
    """Let all pools make their calls; return how many have not begun.

    They take no more. Waits ``still_s`` while no call begins, ``most_s`` at most. For the end of a process.
    """
    pools = _pools()
    finish: Callable[[], None] = vars(thread)["_python_exit"]  # the interpreter's own; it joins every thread of a pool
    ending = threading.Thread(target=finish, name="pools-end", daemon=True)
    ending.start()

    def waiting() -> int:
        # It puts one end mark for each thread behind the calls.
        return sum(max(0, pool.waiting() - len(pool.threads)) for pool in pools)

    _wait_while(ending.is_alive, ending.join, waiting, still_s, most_s)
    return waiting()


def _wait_while(
    going: Callable[[], bool],
    pause: Callable[[float], object],
    waiting: Callable[[], int],
    still_s: float,
    most_s: float,
) -> None:
    """Wait while calls begin: ``still_s`` without one, ``most_s`` at most."""
    began = changed = time.monotonic()
    left = waiting()
    while going() and (now := time.monotonic()) - began < most_s and now - changed < still_s:
        pause(LOOK_S)
        if (seen := waiting()) < left:
            left, changed = seen, time.monotonic()
