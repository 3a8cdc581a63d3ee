"""Counts the failures of a bolt, and the errors behind them, until one tuple succeeds. Pure."""

from __future__ import annotations


class FirstFailures:
    """The failures of a bolt's tuples: ``process`` raised, or the bolt failed them by itself; each counts once."""

    # Rule: a run whose first thousand tuples all fail ends. A typing error fails every tuple alike, and so does a
    # client that is set up wrong, whose errors the bolt catches. With retries such a run would take minutes to say so;
    # one success, and the errors are taken to be the tuples' own.

    __slots__ = ("_raised", "acked", "allowed", "at_limit", "count", "last_error")

    def __init__(self, allowed: int) -> None:
        """Count from nought; ``allowed`` may come without a success, 0: any number."""
        self.allowed = allowed
        self.count = 0
        self._raised = 0
        self.acked = 0
        """Those that the bolt had acked before it raised."""
        self.at_limit = False
        """Whether the last that was allowed has come, and nobody has judged it yet."""
        self.last_error: BaseException | None = None

    def note(self, tuples: int) -> None:
        """Note tuples that failed."""
        before, self.count = self.count, self.count + tuples
        if before < self.allowed <= self.count:
            self.at_limit = True

    def note_acked(self, tuples: int) -> None:
        """Note tuples that a bolt acked, and then raised on."""
        # Rule: an ack before the work is no success. A typing error behind it fails every tuple as well, and a run
        # whose every emit was refused ended well.
        self.acked += tuples
        self.note(tuples)

    def blame(self, error: BaseException, before: int) -> None:
        """Say what those behind the first ``before`` failed for."""
        self.last_error = error
        self._raised += self.count - before

    @property
    def by_itself(self) -> int:
        """How many the bolt failed without an error."""
        return self.count - self._raised
