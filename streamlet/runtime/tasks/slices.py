"""How many tuples a bolt is given between two looks at the clock. Pure."""

from __future__ import annotations

from streamlet.runtime.tasks.batch_bound import BatchBound

SLICE = 64
"""Most tuples between two looks at the clock; a slow bolt gets fewer, down to one."""

SLICE_S = 0.002
"""Seconds that a slice should take.

Then acks leave, and a stop, a timer or a peer is noticed, though a bolt is slow: with a fixed number of tuples, a bolt
of 0.2 s a tuple would let no ack leave for 13 s, and be killed as hanging when the run ends.
"""


class SliceSize:
    """The most tuples of a bolt's next slice or batch: ``size``.

    A bolt begins with one tuple and gets twice as many after each slice that was quick. One that takes batches begins
    with the most that it wants.
    """

    __slots__ = ("_batch_s", "_by_batch", "_usual", "batches", "careful_until", "is_slow", "most", "notes_each", "size")

    def __init__(self, batch_size: int | None, longest_wait_s: float) -> None:
        """Take the ``batch_size`` of a bolt that takes batches, else None."""
        self._by_batch = batch_size is not None
        self._usual = self.most = SLICE if batch_size is None else batch_size
        """``most`` is the bound of ``size``: as usual, or 1 while one tuple may be deadly."""
        self.size = 1 if batch_size is None else batch_size
        self.is_slow = False
        """Whether the latest slice took too long though it had one tuple."""
        self.careful_until: float | None = None
        """The end of that time, by the monotonic clock."""
        self.notes_each = False
        """Whether a tuple that is alone in its slice is noted in full: the bolt has been slow."""
        self.batches = BatchBound(self._usual, longest_wait_s)
        self._batch_s = 0.0
        """Seconds of the latest batch that took long."""

    def grow(self, now: float) -> None:
        """Let the next slice be larger, as far as it may: this one was quick."""
        self.is_slow = False
        if self.size < self.most:
            self.size = min(2 * self.size, self.most)
        elif self.careful_until is not None and now >= self.careful_until:
            self.most, self.careful_until = self._usual, None

    def halve(self) -> None:
        """Let the next slice be half as large; not a batch."""
        if not self._by_batch:
            self.size = max(1, self.size // 2)

    def was_slow(self, given: int, took_s: float, now: float) -> None:
        """Take note of a slice of ``given`` tuples that took too long."""
        # Rule: a batch takes no longer than tuples may wait, where it is its tuples that cost. It takes all that waits,
        # so nothing seems to wait behind it, and each would be twice as large as the one before.
        if self._by_batch:
            self.grow(now)
            self._batch_s = took_s
            self.size = min(self.size, self.batches.took(given, took_s))
        else:
            self.size = max(1, int(given * SLICE_S / max(SLICE_S, took_s)))
            self.notes_each = True
            self.is_slow = given == 1

    def be_careful(self, until: float) -> None:
        """Let slices have one tuple until then: one has killed a worker."""
        self.size = self.most = 1
        self.notes_each = True
        self.careful_until = until

    def call_s(self, pace_s: float) -> float:
        """Return the seconds that one call may take; ``pace_s``: that a tuple lately took."""
        batch_s = min(self._batch_s, pace_s * self._usual) if self._by_batch else 0.0
        return max(pace_s, batch_s)
