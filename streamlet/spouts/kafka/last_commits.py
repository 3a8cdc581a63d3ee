"""The time that the last commits of a run take in this process: its spouts wait side by side."""

from __future__ import annotations

import threading
import weakref

FINAL_COMMIT_S = 3.0
"""Seconds a stop waits for the last commits, and for dead letters."""

LEAST_S = 0.3
"""Seconds for a spout whose turn comes when others have waited: its own store may answer."""


class LastCommits:
    """The bound that the spouts of one run and one store share."""

    def __init__(self) -> None:
        self._by_s: float | None = None

    def by_s(self, now: float) -> float:
        """Return until when a spout waits that begins to wait now; by its clock."""
        # Rule: spouts of a worker wait for their stores together. Each for itself, four of them took 23 s behind a
        # drain of 3 s, and a worker has a bound for its end, too.
        if self._by_s is None:
            self._by_s = now + FINAL_COMMIT_S
        return max(self._by_s, now + LEAST_S)


_shared: weakref.WeakValueDictionary[tuple[str, str], LastCommits] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def last_commits_of(run: str, store: str) -> LastCommits:
    """Return the bound of a run's spouts here that use a store. Any thread."""
    # Rule: by store. One that answers is given its time, however long another one was waited for.
    with _lock:  # runs of one process may have a thread each
        found = _shared.get((run, store))
        if found is None:
            found = _shared[run, store] = LastCommits()
        return found
