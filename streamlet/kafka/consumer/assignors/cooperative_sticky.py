"""Cooperative sticky: a partition changes hands in two rounds, so that nobody else need stop (KIP-429)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from streamlet.kafka.consumer.assignors.base import PartitionAssignor, RebalanceProtocol
from streamlet.kafka.consumer.assignors.sticky import balance
from streamlet.kafka.consumer.group_protocol import Subscription
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.protocol.primitives import INT32


class CooperativeStickyAssignor(PartitionAssignor):
    """A partition that somebody else still owns is given to nobody in this round: its owner gives it back, which starts
    the round in which it is given away. So it never has two owners.
    """

    name: ClassVar[str] = "cooperative-sticky"
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset(
        {RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE}
    )

    def user_data(self, owned: tuple[TopicPartition, ...], generation_id: int) -> bytes | None:
        """The generation; what is owned stands in the subscription itself."""
        return INT32.pack(generation_id)

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See the class."""
        claims = {member: (_generation(row), row.owned) for member, row in subscriptions.items()}
        shares = balance(partition_counts, subscriptions, claims)
        owners: dict[TopicPartition, set[str]] = {}
        for member, row in subscriptions.items():
            for tp in row.owned:
                owners.setdefault(tp, set()).add(member)
        return {
            member: [tp for tp in share if not owners.get(tp, set()) - {member}] for member, share in shares.items()
        }


def _generation(subscription: Subscription) -> int:
    """Of the user data where an older member has none in its subscription."""
    if subscription.generation_id >= 0 or len(subscription.user_data or b"") != INT32.size:
        return subscription.generation_id
    generation: int = INT32.unpack(subscription.user_data or b"")[0]
    return generation
