"""Transactions that other writers leave open: what lies behind one is kept from each reader, and is told."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from streamlet.base.notices import Notices
from streamlet.spouts.kafka.partition import Partition

OPEN_S = 60.0
"""Seconds after which an open transaction is told: the time-out of a producer's transaction, by default."""

TELL_AGAIN_S = 600.0
"""Seconds before a topic's next line."""

LOOK_S = 1.0
"""Seconds between looks at all partitions."""


class HeldBack(NamedTuple):
    """What the oldest open transaction keeps from readers."""

    offset: int
    """The first offset of the transaction: the last stable one of the log (KIP-98)."""
    size: int
    """Offsets from there to the end of the log."""
    since_s: float
    """When an answer said so first."""
    seen_s: float
    """When the last one did."""

    @property
    def open_s(self) -> float:
        """Seconds that the transaction has been open, at least."""
        return self.seen_s - self.since_s


def held_back(before: HeldBack | None, last_stable: int, log_end: int, now_s: float) -> HeldBack | None:
    """Return how much is held back by an answer; None: nothing."""
    if not 0 <= last_stable < log_end:
        return None
    since_s = before.since_s if before is not None and before.offset == last_stable else now_s
    return HeldBack(last_stable, log_end - last_stable, since_s, now_s)


class KeptFrom(Protocol):
    """A partition as its reader has it."""

    partition: Partition
    held_back: HeldBack | None


class OpenTransactionLines:
    """Tells of transactions that stay open, and of their end.

    A topic has one line, whatever its partitions.
    """

    # Rule: what no reader can get is said. Behind a transaction whose producer hangs the log ends for its readers: the
    # lag is 0 and all is caught up, while the topic grows.

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: dict[Partition, HeldBack] = {}
        self._lines: Notices[str] = Notices(TELL_AGAIN_S)
        self._look_s = float("-inf")

    def poll(self, readers: Iterable[KeptFrom], now_s: float) -> None:
        """Tell of the task's partitions those that are due."""
        if now_s - self._look_s < LOOK_S:
            return
        self._look_s = now_s
        found = {each.partition: each.held_back for each in readers}
        self._tell_of_ends(found)
        for topic, held in _long_open(found).items():
            if self._lines.due(topic, now_s) is not None:
                self._tell(held)

    def _tell(self, held: Mapping[Partition, HeldBack]) -> None:
        self._told.update(held)
        partition, oldest = max(held.items(), key=lambda item: item[1].open_s)
        others = f", and {len(held) - 1} more of its partitions so" if len(held) > 1 else ""
        self._log.warning(
            "%s: a transaction has been open at offset %d for %.0f s at least%s. The %d offsets from there to the end "
            "of the log can be read when it has ended; they count neither as lag nor as time behind. If its producer "
            "hangs: `kafka-transactions.sh find-hanging` of Kafka names it, and `abort` ends it.",
            *(partition, oldest.offset, oldest.open_s, others),
            sum(each.size for each in held.values()),
        )

    def _tell_of_ends(self, found: Mapping[Partition, HeldBack | None]) -> None:
        for partition, told in list(self._told.items()):
            held = found.get(partition)
            if held is not None and held.offset == told.offset:
                continue
            del self._told[partition]
            if partition in found:
                self._log.info("%s: the transaction at offset %d has ended; reading goes on", partition, told.offset)


def _long_open(found: Mapping[Partition, HeldBack | None]) -> dict[str, dict[Partition, HeldBack]]:
    topics: dict[str, dict[Partition, HeldBack]] = {}
    for partition, held in found.items():
        if held is not None and held.open_s >= OPEN_S:
            topics.setdefault(partition.topic, {})[partition] = held
    return topics
