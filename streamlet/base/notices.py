"""Limits of notices: those that repeat are counted, a slow block is reported once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Notices(Generic[K]):
    """Choice among like notices of each key: one in ``again_s`` seconds.

    Those in between are counted, so that the next one can say how many they were. The caller brings the time, in
    seconds, and a lock where it has threads.
    """

    def __init__(self, again_s: float) -> None:
        self._again_s = again_s
        self._given: dict[K, tuple[float, int]] = {}
        """Key -> when its last notice was given, and how many were left out since."""

    def __contains__(self, key: K) -> bool:
        """Return whether a notice of this key was given."""
        return key in self._given

    def due(self, key: K, now_s: float) -> int | None:
        """Return the number left out before this notice; None: leave it out."""
        given_s, left_out = self._given.get(key, (float("-inf"), 0))
        if now_s - given_s < self._again_s:
            self._given[key] = given_s, left_out + 1
            return None
        self._given[key] = now_s, 0
        return left_out

    def take_overdue(self, now_s: float) -> dict[K, int]:
        """Return the notices left out whose time has come, by key; they count as given now."""
        overdue = {
            key: left_out
            for key, (given_s, left_out) in self._given.items()
            if left_out and now_s - given_s >= self._again_s
        }
        self._given.update(dict.fromkeys(overdue, (now_s, 0)))
        return overdue

    def take_left_out(self) -> dict[K, int]:
        """Return the notices left out, by key, and forget all keys."""
        given, self._given = self._given, {}
        return {key: left_out for key, (_given_s, left_out) in given.items() if left_out}


@contextlib.contextmanager
def told_if_slow(after_s: float, tell: Callable[[], object]) -> Iterator[None]:
    """Call ``tell`` once when the block takes longer than so many seconds."""
    # By a timer's thread: the block's own may be in the very wait that the notice is about.
    timer = threading.Timer(after_s, tell)
    timer.daemon = True
    try:
        with contextlib.suppress(RuntimeError):  # while the interpreter ends it starts no more threads
            timer.start()
        yield
    finally:
        timer.cancel()
