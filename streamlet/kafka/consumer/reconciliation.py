"""The share of a member of the newer protocol, by the names of its topics. Pure.

What Java's ``maybeReconcile`` finds out; the :class:`Rebalancer` acts on it. The coordinator names topics by id. The
share it gives is kept, and compared with the partitions taken whenever share, metadata or subscription change. So a
name that is unknown yet, or a topic that is unsubscribed and subscribed again, needs no further word of the
coordinator, which tells a share only when it changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from streamlet.kafka.consumer.membership import PartitionsById
from streamlet.kafka.metadata.cluster import Cluster, TopicPartition


@dataclass(frozen=True, slots=True)
class NamedShare:
    """All that is to be read from now on; ``unnamed``: ids of topics whose names are unknown yet.

    ``given``: the share that it is of, the same object as in the news.
    """

    partitions: tuple[TopicPartition, ...]
    by_id: PartitionsById
    unnamed: tuple[str, ...]
    given: PartitionsById


@dataclass(slots=True)
class Reconciliation:
    """The share of one member, and the part that it reads. User's thread."""

    _given: PartitionsById | None = None
    """The share that the coordinator gave last; None: no member."""
    _taken: PartitionsById | None = None
    """The partitions read, of it or of the one before; None before the first share is taken."""
    _names: dict[str, str] = field(default_factory=dict)
    """Topics of the share by id: metadata may lose one that is still read."""
    _seen: tuple[object, ...] = ()
    """Share, cluster and topics that were compared last."""
    unanswered: bool = False
    """Whether the coordinator is still to hear of the share that was given last."""

    def give(self, share: PartitionsById) -> None:
        """Take in another share; it replaces the last."""
        self._given = share
        self._seen = ()
        self.unanswered = True

    def take(self, share: NamedShare) -> bool:
        """Note that this share is read from now on; False: its membership has ended."""
        # Rule: looked at after the listener, which may have unsubscribed. What ended meanwhile is not read: taken all
        # the same, the share of the next membership would look like it, and nobody would read it.
        if share.given is not self._given:
            return False
        self._taken = share.by_id
        self.unanswered = False
        return True

    def forget(self) -> None:
        """Forget the share of a membership that has ended."""
        self._given = self._taken = None
        self.unanswered = False
        self._names.clear()

    def due(self, cluster: Cluster, topics: frozenset[str], matches: Callable[[str], bool]) -> NamedShare | None:
        """Return the share as it is now, None without a change.

        ``topics`` and ``matches``: the subscription. The share may be the one that was taken: with unnamed topics, or
        given again.
        """
        # Rule: by identity, since this is asked in every poll. All three are replaced, never changed.
        seen = (self._given, cluster, topics)
        if self._given is None or (len(self._seen) == 3 and all(map(_same, seen, self._seen))):
            return None
        self._seen = seen
        self._names = self._named(cluster)
        by_id = {one: numbers for one, numbers in self._given.items() if one in self._names}
        by_id = {one: numbers for one, numbers in by_id.items() if matches(self._names[one])}
        unnamed = tuple(sorted(self._given.keys() - self._names.keys()))
        if by_id == self._taken and not unnamed and not self.unanswered:
            return None
        partitions = {TopicPartition(self._names[one], number) for one, numbers in by_id.items() for number in numbers}
        return NamedShare(tuple(sorted(partitions)), by_id, unnamed, self._given)

    def nothing_named(self, share: NamedShare) -> bool:
        """Return whether no topic of a first share has a name yet."""
        # It is no empty share: a listener would hear of nothing, and then of all of it.
        return not share.by_id and bool(share.unnamed) and self._taken is None

    def is_taken(self, share: NamedShare) -> bool:
        """Return whether all of this share that has names is read."""
        return share.by_id == self._taken

    def _named(self, cluster: Cluster) -> dict[str, str]:
        assert self._given is not None
        known = {info.topic_id: name for name, info in cluster.topics.items() if info.topic_id is not None}
        named = {one: known.get(one) or self._names.get(one) for one in self._given}
        return {one: name for one, name in named.items() if name is not None}


def _same(one: object, other: object) -> bool:
    return one is other
