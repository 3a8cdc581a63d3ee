"""Lines of the log that name a record on its way to the dead letters."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from streamlet.base.notices import Notices
from streamlet.base.printable import one_line
from streamlet.spouts.kafka.dead_letters.dead_letter import GivenUp
from streamlet.spouts.kafka.partition import Partition

TELL_AGAIN_S = 60.0
"""Seconds until the log names another letter with the same bolt and kind of error."""

LOOK_S = 1.0
"""Seconds between two looks for counts that nobody has read."""


class LetterLines:
    """Names one record for each bolt and error; counts the others."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: Notices[tuple[str | None, str]] = Notices(TELL_AGAIN_S)
        self._look_s = 0.0
        """When to look for counts that nobody has read."""

    def tell(self, partition: Partition, given_up: GivenUp, now_s: float) -> None:
        """Tell or count a record that goes to the dead letters."""
        component, error, text = given_up.fault
        unsaid = self._told.due((component, error), now_s)
        if unsaid is not None:
            self._log.warning(
                "%s offset %d goes to the dead letters at try %d: %s%s%s%s",
                partition,
                given_up.record.offset,
                given_up.tries,
                f"{component}: " if component else "",
                f"{error}: " if error else "",
                one_line(text),
                f" ({unsaid} more for such errors since the last report)" if unsaid else "",
            )

    def look(self, now_s: float) -> None:
        """Tell counts that have waited for their next line. Cheap at each turn."""
        # Rule: tell a burst when its time has come, and not with the next error of its kind: that may be next week.
        if now_s >= self._look_s:
            self._look_s = now_s + LOOK_S
            self._tell_counts(self._told.take_overdue(now_s))

    def close(self) -> None:
        """Tell what no line of the log has told yet."""
        self._tell_counts(self._told.take_left_out())

    def _tell_counts(self, counts: Mapping[tuple[str | None, str], int]) -> None:
        for (component, error), count in counts.items():
            who = ": ".join(part for part in (component, error) if part)
            self._log.warning("%d more %s to the dead letters (%s)", count, "goes" if count == 1 else "go", who)
