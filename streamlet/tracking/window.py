"""How many trees a spout task may have open, steered by how long tuples wait. Pure."""

from __future__ import annotations

GROWTH = 4
"""Times its size that a window may grow to between two measurements."""

SAME = 1.25
"""Two limits that differ by no more than this factor are alike."""


class PendingWindow:
    """The number of trees that may be open: from 1 up to ``most``, so that tuples wait ``target_s`` at most.

    It begins at 1 and grows by one for each tree that is done, which doubles it each round trip. Growth beyond GROWTH
    times the last measured size waits for the next measurement: some bolts may be fast, and one behind them slow.
    """

    __slots__ = ("_limit", "_most", "size", "target_s")

    def __init__(self, most: int, target_s: float) -> None:
        self._most = most
        self.target_s = target_s
        self.size = 1
        self._limit = min(GROWTH, most)

    def done(self, trees: int, were_open: int) -> None:
        """Grow by the trees that are done, if the window was used."""
        # Half of it unused says nothing about what a bolt can take: a source that was slow for an hour and then has
        # thousands at once would fill a queue that nobody has tried.
        if self.size < self._limit and were_open * 2 >= self.size:
            self.size = min(self.size + trees, self._limit)

    def measured(self, were_open: int, wait_s: float, starved: bool) -> bool | None:
        """Set size and limit by a measurement: True: they rose; False: fell; None: changed little.

        ``were_open`` trees gave queues that take ``wait_s`` to work off. ``starved``: all that may be open is open, no
        tuple waits anywhere, and none was done meanwhile. So a bolt holds them, and may wait for more to come.
        """
        before, most = self._limit, self._most
        if starved:
            self.size = min(2 * self.size, most)
        allowed = most if wait_s <= 0 else int(max(min(were_open * self.target_s / wait_s, most), 1))
        if wait_s > self.target_s:
            self.size = min(self.size, allowed)
        else:  # a spout with few open trees beside one with many: the wait is the other's, and short enough
            allowed = max(allowed, self.size)
        self._limit = min(GROWTH * self.size, allowed)
        if self._limit > before * SAME:
            return True
        return False if self._limit * SAME < before else None
