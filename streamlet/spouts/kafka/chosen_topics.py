"""Which topics a spout reads, and which of its tasks reads a partition. Pure.

One topic by name (``topic=``), several (``topics=``), or all whose whole name matches (``topics_pattern=``). Where
there may be several, each has a *shift* of its own, made of its name: partition p is read by task (shift + p) modulo
tasks. So a topic that appears or goes moves no partition of another, and topics of one partition do not all fall to
task 0.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own topics, for a source that does not mark them. No pattern matches them."""

OWNERS = "owners"
"""The node beside the topics' offsets in ZooKeeper that names the tasks which read."""

NAMED = 4
"""Topics that a message names; more are counted."""


@dataclass(frozen=True, slots=True)
class ChosenTopics:
    """The topics of one spout. ``several``: given as a list or a pattern, which may be of one."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    several: bool = False

    def takes(self, topic: str) -> bool:
        """Return whether the spout reads a topic of this name."""
        if not self.pattern:
            return topic in self.names
        return topic not in INTERNAL and re.fullmatch(self.pattern, topic) is not None

    @property
    def setting(self) -> str:
        """The setting of the SpoutConfig that names them."""
        return "topics" if self.several else "topic"

    def __str__(self) -> str:
        if self.pattern:
            return f"the topics that match {self.pattern!r}"
        return named(self.names)


def named(topics: Iterable[str]) -> str:
    """Return topics in words: ``topic 'a'``, or ``topics 'a', 'b'``."""
    names = list(topics)
    listed = ", ".join(map(repr, names[:NAMED])) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    return f"topic{'s' * (len(names) != 1)} {listed or '(none)'}"


def shift_of(topic: str) -> int:
    """Return a topic's shift, which is the same in every process."""
    return zlib.crc32(topic.encode())


def share(numbers: Iterable[int], tasks: int, task: int, shift: int = 0) -> list[int]:
    """Return the partitions of a topic that a task (from 0) reads."""
    return [number for number in numbers if (number + shift) % tasks == task]
