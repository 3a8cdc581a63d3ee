"""Numbers known at some offsets, for questions about those between: times of records, times of emits. Pure."""

from __future__ import annotations

from bisect import bisect_right

MOST = 1024
"""Marks that are kept; of more, every second one is dropped."""


class OffsetMarks:
    """Numbers by offset, ascending. An offset has the number of the last mark at or below it."""

    # One for each batch or turn, never for each record, and bounded: what stands still while much is read (a record
    # that waits for its retries) would keep them all. Fewer marks only make answers coarser, for older offsets too low.

    __slots__ = ("_numbers", "_offsets")

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._numbers: list[float] = []

    def note(self, offset: int, number: float) -> None:
        """Note a number at an offset.

        Marks at this offset and above are dropped.
        """
        if self._offsets and offset <= self._offsets[-1]:
            # A log that was cut, or records that are fetched again.
            at = bisect_right(self._offsets, offset - 1)
            del self._offsets[at:], self._numbers[at:]
        self._offsets.append(offset)
        self._numbers.append(number)
        if len(self._offsets) > MOST:
            del self._offsets[1:-1:2], self._numbers[1:-1:2]

    def at(self, offset: int) -> float | None:
        """Return the number at an offset; None: no mark is so low."""
        place = bisect_right(self._offsets, offset)
        return self._numbers[place - 1] if place else None

    def forget_below(self, offset: int) -> None:
        """Drop marks that no offset from here on asks for."""
        place = bisect_right(self._offsets, offset) - 1
        if place > 0:
            del self._offsets[:place], self._numbers[:place]
