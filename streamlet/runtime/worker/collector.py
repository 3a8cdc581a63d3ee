"""When to look for garbage in reference cycles: by memory, and not only by the number of allocations.

Python looks for cycles after so many allocations of containers. Tuples have none and go by reference count, so a worker
lets Python look rarely. But a few thousand objects of a user's may hold gigabytes: parsed documents, for example, whose
nodes know their parents. So a worker reads its resident memory every few milliseconds, and collects when that has grown
by a step: young objects first, then all.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable

from streamlet.runtime.worker.memory_growth import ResidentMemory

PAUSE_S = 0.01
"""Seconds between two looks at resident memory; a look takes two microseconds."""

SHARE_OF_MEMORY = 4
"""Garbage may take one part in so many of a worker's memory (``streamlet.worker.memory.bytes``)."""

LEAST_STEP_BYTES, MOST_STEP_BYTES = 4 << 20, 64 << 20

YOUNG, ALL = 1, 2
"""Oldest generation to collect: objects that have outlived one collection at most, or all."""

REST = 20
"""Times its own length that nothing is collected after a collection that found little ..."""

REST_FOUND = 3
"""... and after one that found much, times what it took beyond freeing the garbage."""

FREE_S = 0.5e-6
"""Seconds that one object of garbage takes: no loss, for somebody must free it."""

MUCH_FOUND = 500
"""Objects in cycles that a collection finds where cycles are what grows."""

RAISED = (10_000, 20, 100)
"""Thresholds of ``gc`` for a worker whose user has set none."""

LEAST_ALLOCATIONS = 200
"""Least that the first of them becomes while garbage grows."""

CALM_S = 5.0
"""Seconds without a collection after which Python's own looks become rarer again."""

USUAL = gc.get_threshold()
"""The interpreter's own thresholds: read before any code of users runs."""


class GarbageWatch:
    """Decides when to collect. Pure: sizes in bytes, times in seconds on a monotonic clock.

    ``allocations`` is after how many of them Python itself should look: fewer while garbage is what grows, for one call
    of a user's may make gigabytes of it before anybody asks here again.
    """

    def __init__(self, resident: int, step: int) -> None:
        self.allocations = RAISED[0]
        self._step = step
        self._floor = {YOUNG: resident, ALL: resident}
        self._all_step = step
        self._not_before = {YOUNG: 0.0, ALL: 0.0}
        self._changed = 0.0
        self._young_failed = False
        self._found_none = 0

    def due(self, resident: int, now: float) -> int | None:
        """Return the generation to collect, or None."""
        floor = self._floor
        for generation in (YOUNG, ALL):
            floor[generation] = min(floor[generation], resident)
        young = resident - floor[YOUNG] >= self._step and now >= self._not_before[YOUNG]
        grown = resident - floor[ALL]
        # One step more ends the rest: garbage may have begun to grow just after a look that found none.
        much = grown >= self._all_step + self._step
        every = grown >= self._all_step and (now >= self._not_before[ALL] or much)
        # Young ones first: they are few. But what outlives that is old from then on, and garbage among it later: it
        # may grow by a part of each round, while the young ones give back the rest.
        if every and (self._young_failed or not young or much):
            return ALL
        if young:
            return YOUNG
        if self.allocations < RAISED[0] and now - self._changed >= CALM_S:
            self.allocations, self._changed = min(2 * self.allocations, RAISED[0]), now
        return None

    def seems_used(self, generation: int, found: int, after: int) -> bool:
        """Tell whether memory seems in use though a collection freed it."""
        return found >= MUCH_FOUND and after - self._floor[generation] >= self._step // 4

    def collected(self, generation: int, found: int, before: int, after: int, took_s: float, now: float) -> None:
        """Note how many objects a collection found, and how long it took.

        ``before`` and ``after`` are the resident bytes then.
        """
        gave_back = before - after >= self._step // 4
        if gave_back or found >= MUCH_FOUND:
            self._not_before[generation] = now + REST_FOUND * max(0.0, took_s - found * FREE_S)
        else:
            self._not_before[generation] = now + REST * took_s
        if found >= MUCH_FOUND and not gave_back:
            # It was garbage, and its places are used again. So the floor hardly rises: or each round would add a step.
            after = min(after, self._floor[generation] + self._step // 8)
        self._floor[YOUNG] = after
        self._young_failed = generation == YOUNG and not gave_back
        if generation == ALL:
            self._floor[ALL] = after
            # What grows and is no garbage is the user's. Looking at it takes longer each time, so it is done less.
            # Garbage that was found need not make resident memory smaller: its places are used again.
            if gave_back or found >= MUCH_FOUND:
                self._all_step, self._found_none = self._step, 0
            else:
                self._found_none += 1
                self._all_step *= 2 if self._found_none > 1 else 1
        if gave_back:
            self.allocations, self._changed = max(LEAST_ALLOCATIONS, self.allocations // 2), now


class Collector:
    """Python's collector in a worker process. On the loop's thread."""

    def __init__(self, memory_bytes: int) -> None:
        """Settle what exists by now; ``memory_bytes`` is the worker's setting."""
        # With the interpreter's own 700 allocations a collection, cycles are searched for a hundred times a second,
        # among objects that have none: a sixth of the time a tuple takes. What exists by now stays, so it is frozen.
        gc.collect()
        gc.freeze()
        # Who has set thresholds in `initialize`, or turned the collector off, knows why.
        self._ours = gc.get_threshold() in (USUAL, RAISED)
        if self._ours:
            gc.set_threshold(*RAISED)
        self._resident = ResidentMemory()
        step = min(max(memory_bytes // SHARE_OF_MEMORY, LEAST_STEP_BYTES), MOST_STEP_BYTES)
        self._watch = GarbageWatch(self._resident.bytes(), step)
        self._looks_at = 0.0
        self._trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def collect_if_due(self) -> None:
        """Collect if memory has grown; nearly free when it was looked at just before."""
        now = time.monotonic()
        if now < self._looks_at:
            return
        self._looks_at = now + PAUSE_S
        watch, resident = self._watch, self._resident.bytes()
        if not resident:
            return  # nobody can tell: there is no free descriptor
        before = watch.allocations
        generation = watch.due(resident, now)
        if generation is not None and gc.isenabled():
            began = time.thread_time()  # not the wall's: others may have the processor meanwhile
            found = gc.collect(generation)
            after = self._resident.bytes()
            # The allocator keeps what is free between other things: resident memory then seems to be in use, and the
            # garbage that takes its place is not seen. A part of it given back says nothing of the rest.
            if self._trim is not None and watch.seems_used(generation, found, after):
                self._trim(0)
                after = self._resident.bytes()
            took_s = time.thread_time() - began
            watch.collected(generation, found, resident, after, took_s, time.monotonic())
        if self._ours and watch.allocations != before:
            gc.set_threshold(watch.allocations, *RAISED[1:])

    def close(self) -> None:
        """Close what the looks read."""
        self._resident.close()
