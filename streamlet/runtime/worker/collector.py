"""The cycle collector of a process that moves tuples."""

from __future__ import annotations

import gc


def settle_collector() -> None:
    """What exists by now stays for good, and tuples are freed by reference count: collect cycles less often.

    With the interpreter's own 700 allocations a collection, cycles are searched for a hundred times a second
    among objects that have none: a sixth of the time a tuple takes.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)
