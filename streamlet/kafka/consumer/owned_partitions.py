"""The partitions that a group lets this consumer read: taken over, given back or lost, each with the user's listener.

The user's side of a rebalance. When there is one, the :class:`Rebalancer` knows.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from streamlet.base.errors import WrongArgument
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.consumer.commits import COMMIT_BEFORE_JOIN_S, Commits
from streamlet.kafka.consumer.delivery import HandedOut
from streamlet.kafka.consumer.fetcher import Fetcher
from streamlet.kafka.consumer.subscription_state import SubscriptionState
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import TopicPartition

_log = logging.getLogger(__name__)


class ConsumerRebalanceListener:
    """Base of users' listeners. All methods run inside ``poll`` or ``close``, in the caller's thread."""

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Finish with partitions that others will get, and commit. They are still owned while this runs."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Prepare for new partitions; ``seek`` works here. None of them is fetched before this returns."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Drop unfinished work on partitions that others may own already: a commit would be refused."""
        self.on_partitions_revoked(lost)


def checked_listener(given: ConsumerRebalanceListener | None) -> ConsumerRebalanceListener:
    """Return the user's listener, or one that does nothing. Raises WrongArgument."""
    for method in ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost"):
        if given is not None and not callable(getattr(given, method, None)):
            raise WrongArgument(
                f"listener = {given!r} has no {method}: derive its class from ConsumerRebalanceListener."
            )
    # Not `or`: a listener that is also an empty list is one all the same.
    return ConsumerRebalanceListener() if given is None else given


class OwnedPartitions:
    """What the user reads of the group's partitions, and hears of them. User's thread.

    Where a listener raises, the partitions have changed hands all the same.
    """

    def __init__(
        self,
        client: KafkaClient,
        subscriptions: SubscriptionState,
        fetcher: Fetcher,
        handed_out: HandedOut,
        commits: Commits | None,
        group_id: str | None,
    ) -> None:
        self._client = client
        self._subscriptions = subscriptions
        self._fetcher = fetcher
        self._handed_out = handed_out
        self._commits = commits
        self._group_id = group_id
        self.listener = ConsumerRebalanceListener()

    def missing_in(self, share: Collection[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Return the partitions that a share takes from the user."""
        kept = set(share)
        return tuple(tp for tp in self._subscriptions.assigned if tp not in kept)

    def take_over(self, share: tuple[TopicPartition, ...]) -> None:
        """Commit and revoke what the share lacks, then read all of it."""
        assert self._commits is not None
        owned = set(self._subscriptions.assigned)
        added = tuple(tp for tp in share if tp not in owned)
        revoked = self.missing_in(share)
        try:
            if revoked:
                self._commit_revoked(revoked)
                self.revoke(revoked)
        finally:
            self._assign(share, added)
            self._commits.restart_timer()
            self._announce(added)

    def keep(self, kept: tuple[TopicPartition, ...]) -> None:
        """Revoke all others, before a join. Their commit is over."""
        try:
            self.revoke(self.missing_in(kept))
        finally:
            self._assign(kept, ())

    def revoke(self, revoked: Collection[TopicPartition]) -> None:
        """Tell the listener that these go to others."""
        if revoked:
            _log.info("group %r: revoked %s", self._group_id, ", ".join(map(str, sorted(revoked))))
            self.listener.on_partitions_revoked(tuple(revoked))

    def lose(self) -> None:
        """Drop everything: others may own it already."""
        lost = self._subscriptions.assigned
        self._assign((), ())
        if lost:
            self.listener.on_partitions_lost(lost)

    def ask_about_topics(self) -> None:
        """Keep metadata of topics that are read, and of no others."""
        subscriptions = self._subscriptions
        named = subscriptions.topics if subscriptions.pattern is None else frozenset()
        self._client.set_topics(named | {tp.topic for tp in subscriptions.assigned})

    def forget_unassigned(self) -> None:
        """Drop records and topics of partitions that are no longer assigned."""
        self.ask_about_topics()
        self._fetcher.forget_unassigned()
        self._handed_out.keep(self._subscriptions.assigned)

    def _assign(self, tps: tuple[TopicPartition, ...], added: tuple[TopicPartition, ...]) -> None:
        self._subscriptions.assign_from_subscribed(tps, added)
        self.forget_unassigned()

    def _commit_revoked(self, revoked: Collection[TopicPartition]) -> None:
        if self._commits is None or not self._commits.automatic:
            return
        offsets = {tp: row for tp, row in self._handed_out.consumed().items() if tp in revoked}
        try:
            self._commits.commit_sync(offsets, COMMIT_BEFORE_JOIN_S)
        except KafkaError as err:
            _log.warning("the automatic commit of revoked partitions failed: %s", err.message)

    def _announce(self, added: tuple[TopicPartition, ...]) -> None:
        try:
            self.listener.on_partitions_assigned(added)
        finally:
            for tp in added:
                row = self._subscriptions.get(tp)
                if row is not None:
                    row.pending_callback = False
