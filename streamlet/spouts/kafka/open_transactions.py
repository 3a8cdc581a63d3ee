"""Tells of transactions that other writers leave open, and counts the offsets behind them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from streamlet.base.printable import many
from streamlet.spouts.kafka.partition import Partition

OPEN_S = 60.0
"""Seconds before a line on an open transaction: by then a producer's has timed out, by default."""

TELL_AGAIN_S = 600.0
"""Seconds before a topic's next line on the same transactions."""

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

    # Rule: say how much no reader can get. Behind a transaction whose producer hangs the log ends for its readers: the
    # lag is 0 and all is caught up, while the topic grows.

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: dict[str, dict[Partition, int]] = {}
        """Topic -> partitions whose transaction was told and is open -> its offset."""
        self._told_s: dict[str, float] = {}
        self._look_s = float("-inf")

    def poll(self, readers: Iterable[KeptFrom], now_s: float) -> None:
        """Tell of the task's partitions those that are due."""
        if now_s - self._look_s < LOOK_S:
            return
        self._look_s = now_s
        found = {each.partition: each.held_back for each in readers}
        held = _long_open(found)
        for topic, told in list(self._told.items()):
            self._tell_of_ends(topic, told, found, held.get(topic, {}))
        for topic, now_open in held.items():
            # Rule: tell another transaction soon, though the topic was told before. After the line on the end of the
            # first, readers of the log would think that they get everything.
            is_new = not now_open.keys() <= self._told.get(topic, {}).keys()
            if now_s - self._told_s.get(topic, float("-inf")) >= (OPEN_S if is_new else TELL_AGAIN_S):
                self._told_s[topic] = now_s
                self._tell(topic, now_open)

    def _tell(self, topic: str, held: Mapping[Partition, HeldBack]) -> None:
        self._told[topic] = {partition: each.offset for partition, each in held.items()}
        partition, oldest = max(held.items(), key=lambda item: item[1].open_s)
        size = sum(each.size for each in held.values())
        self._log.warning(
            "%s: a transaction has been open at offset %d for %.0f s at least%s. The %s from there to the end "
            "of the log can be read when it has ended; %s neither as lag nor as time behind. If its producer "
            "hangs: `kafka-transactions.sh find-hanging` of Kafka names it, and `abort` ends it.",
            *(partition, oldest.offset, oldest.open_s),
            f", and {len(held) - 1} more of its partitions so" if len(held) > 1 else "",
            *(many(size, "offset"), "it counts" if size == 1 else "they count"),
        )

    def _tell_of_ends(
        self,
        topic: str,
        told: dict[Partition, int],
        found: Mapping[Partition, HeldBack | None],
        still: Mapping[Partition, HeldBack],
    ) -> None:
        over = {
            partition: offset
            for partition, offset in told.items()
            if (held := found.get(partition)) is None or held.offset != offset
        }
        for partition in over:
            del told[partition]
        if not told:
            del self._told[topic]
        # Of one that another task reads by now nobody here knows.
        if ended := sorted(partition for partition in over if partition in found):
            self._log.info(
                "%s: the transaction at offset %d has ended%s; reading goes on%s",
                *(ended[0], over[ended[0]]),
                f", and those of {many(len(ended) - 1, 'more partition')}" if len(ended) > 1 else "",
                f". In {len(still)} of its partitions one is open for long" if still else "",
            )


def _long_open(found: Mapping[Partition, HeldBack | None]) -> dict[str, dict[Partition, HeldBack]]:
    topics: dict[str, dict[Partition, HeldBack]] = {}
    for partition, held in found.items():
        if held is not None and held.open_s >= OPEN_S:
            topics.setdefault(partition.topic, {})[partition] = held
    return topics
