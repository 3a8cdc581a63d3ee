"""Counts about how many bytes the messages take that a spout keeps until they are acked."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

from streamlet.base.chance import uniform

MESSAGE_BYTES = 430
"""Bytes of a message that is kept, beside its values: ids, times, its row, and their places."""

PARTS = 4096
"""The sample's step is the bound divided by so many: the larger, the exacter, and the more marks there are."""

LEAST_STEP = 1024
"""Least bytes of a step: of a small bound the error is small, too."""


class Marked(Protocol):
    """A message that is kept."""

    @property
    def mark(self) -> int:
        """The number of its mark, 0 for none."""


class KeptBytes:
    """The bytes of kept messages, from a sample by size.

    Each byte is as likely to be hit as any other. A message of a step or more is always hit, and counted as what it
    takes; a smaller one is hit ``2 * size / step`` times in the mean, and stands for half a step each time. So the sum
    is right to about a hundredth of the bound, whatever sizes are mixed, and whichever of them stay longest.

    ``unacked`` returns the messages by id; ``over`` is called when the bound is passed.

    ``left``: bytes until the next hit. A message is kept with the number that ``count`` returns for it.
    """

    # Rule: sampled by bytes, and at random, never by messages. An average over one message in so many does not see a
    # rare large one, nor that large ones fail and small ones are acked. An exact sum would cost a look-up at each ack;
    # a mark is forgotten when marks are looked through, so an ack pays nothing.
    __slots__ = ("_bytes", "_marks", "_number", "_over", "_unacked", "left", "most", "step")

    def __init__(self, unacked: Callable[[], Mapping[Hashable, Marked]], over: Callable[[], None]) -> None:
        self.most: float = float("inf")
        self.step = 32 * LEAST_STEP
        self.left = int(uniform() * self.step)
        self._unacked, self._over = unacked, over
        self._marks: dict[Hashable, tuple[int, int]] = {}
        """Message -> the number of its mark, and the bytes that it stands for."""
        self._number = self._bytes = 0

    def bound(self, most: int) -> None:
        """Set how many bytes may be kept."""
        if most != self.most:
            self.most, self.step = most, max(most // PARTS, LEAST_STEP)
            self.left = min(self.left, self.step - 1)

    def count(self, tup_id: Hashable, size: int) -> int:
        """Count a message that is kept from now on; return the number of its mark, 0 for none."""
        if size <= self.left:
            self.left -= size
            return 0
        return self.mark(tup_id, size)

    def mark(self, tup_id: Hashable, size: int) -> int:
        """Count a message that is hit, being larger than ``left``; return the number of its mark."""
        stands_for = 0
        if size >= self.step:  # it stands for itself, and the others are hit as if it were not there
            stands_for = size
        else:
            self.left -= size
            while self.left < 0:
                self.left += int(uniform() * self.step)
                stands_for += self.step // 2
        self._number += 1
        before = self._marks.get(tup_id)
        self._bytes += stands_for - (0 if before is None else before[1])
        self._marks[tup_id] = self._number, stands_for
        if self._bytes + len(self._unacked()) * MESSAGE_BYTES > self.most and self._look(self._number) > self.most:
            self._over()
        return self._number

    def look(self) -> int:
        """Forget the marks of messages that are kept no longer; return the bytes of those that are."""
        return self._look(0)

    def _look(self, new: int) -> int:
        """Forget such marks, but not ``new``: its message is not yet kept."""
        kept = self._unacked()
        # By the number: an id may have been emitted again since.
        self._marks = {
            tup_id: mark
            for tup_id, mark in self._marks.items()
            if mark[0] == new or ((message := kept.get(tup_id)) is not None and message.mark == mark[0])
        }
        self._bytes = sum(size for _, size in self._marks.values())
        return self._bytes + len(kept) * MESSAGE_BYTES
