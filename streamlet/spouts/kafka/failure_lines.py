"""Lines of the log that name a record that failed and is tried again."""

from __future__ import annotations

import logging

from streamlet.base.notices import Notices
from streamlet.base.printable import one_line
from streamlet.components.spout import FailureCause
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.retry import NextTry

TELL_AGAIN_S = 10.0
"""Seconds before the next line of a component's errors of one kind; those in between are counted."""


class FailureLines:
    """Names one record for each kind of error, and counts the others.

    The bolt's own line, which has the place in the code, cannot name the record: a bolt is given values, and only the
    spout knows where they came from and when they come again.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: Notices[tuple[str, str]] = Notices(TELL_AGAIN_S)
        """By component and kind of error: what fails each record must not flood the log."""

    def tell(self, partition: Partition, offset: int, cause: FailureCause, coming: NextTry, now_s: float) -> None:
        """Tell or count the failure of a record that comes again."""
        unsaid = self._told.due((cause.component, cause.error), now_s)
        if unsaid is None:
            return
        self._log.warning(
            "topic %s, partition %d, offset %d failed%s%s: try %d%s, the next one in %.3g s%s",
            partition.topic,
            partition.number,
            offset,
            f" in {cause.component}" if cause.component else "",
            _reason(cause),
            coming.tries,
            f" of {coming.most}" if coming.most else "",
            max(0.0, coming.due_s - now_s),
            f" ({unsaid:,} more such failures since the last report)" if unsaid else "",
        )


def _reason(cause: FailureCause) -> str:
    said = one_line(": ".join(filter(None, (cause.error, cause.text.partition("\n")[0]))))
    return f" ({said})" if said else ""
