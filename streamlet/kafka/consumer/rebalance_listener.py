"""What a user may want to do when partitions come and go (Java: ``ConsumerRebalanceListener``)."""

from __future__ import annotations

from collections.abc import Collection

from streamlet.kafka.arguments import check_methods
from streamlet.kafka.metadata.cluster import TopicPartition


class ConsumerRebalanceListener:
    """Derive and override. All run inside ``poll`` (or ``close``), in the caller's thread, never two at once."""

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """These will belong to others: finish with them and commit, here and now. Still ours while this runs."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """These are new. ``seek`` works here; nothing of them is fetched before this returns."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """These belong to others already, perhaps: a commit would be refused. Drop what is unfinished."""
        self.on_partitions_revoked(lost)


def checked(given: ConsumerRebalanceListener | None) -> ConsumerRebalanceListener:
    """Return the user's listener, or one that does nothing. Raises WrongArgument."""
    methods = ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost")
    if given is not None:
        check_methods("listener", given, methods, "derive its class from ConsumerRebalanceListener.")
    return given or ConsumerRebalanceListener()
