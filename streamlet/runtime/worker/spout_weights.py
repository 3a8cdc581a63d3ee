"""Lets spouts that keep too much emit nothing new, and names one that does so for long. On the loop's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

from streamlet.runtime.tasks.spout_task import SpoutTask

logger = logging.getLogger("streamlet")

WEIGH_S = 0.02
"""Seconds between two looks at what spouts keep."""

TELL_HELD_S = 10.0
"""Seconds without anything new after which a warning names the spout that keeps too much ..."""

TELL_HELD_AGAIN_S = 60.0
"""Seconds from there to the next one."""


class SpoutWeights:
    """Weighs what a worker's spouts keep against equal parts of a bound."""

    def __init__(self, most: int, weigh: Callable[[SpoutTask, int], Any], name_of: Callable[[int], str]) -> None:
        """Begin. ``most`` bytes for all spouts together; ``weigh`` asks a spout, and answers for its errors."""
        self.most = most
        self._weigh = weigh
        self._name_of = name_of
        self._due = 0.0
        self._holds_back_since: dict[int, float] = {}

    def look_if_due(self, spouts: Collection[SpoutTask], now: float) -> bool:
        """Weigh each spout, unless that was just done; return whether it was due."""
        # Not at each turn: a KafkaSpout counts all its partitions.
        if now < self._due:
            return False
        self._due = now + WEIGH_S
        part = self.most // max(1, len(spouts))
        for spout in spouts:
            self._weigh(spout, part)
            # It may hold back since its last turn.
            if not spout.spout.holds_back:
                self._holds_back_since.pop(spout.task_id, None)
            elif now - self._holds_back_since.setdefault(spout.task_id, now) >= TELL_HELD_S:
                self._holds_back_since[spout.task_id] = now + TELL_HELD_AGAIN_S
                self._tell(spout)
        return True

    def _tell(self, spout: SpoutTask) -> None:
        logger.warning(
            "%s (task %d) has emitted nothing new for %d s: the messages that it keeps until they are acked, in flight "
            "or waiting to be sent again, take %d MiB. Find out why they fail or are slow, or raise "
            "streamlet.worker.memory.bytes.",
            self._name_of(spout.task_id),
            spout.task_id,
            TELL_HELD_S,
            spout.kept_bytes >> 20,
        )
