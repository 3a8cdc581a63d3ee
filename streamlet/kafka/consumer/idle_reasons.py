"""Why a poll brings nothing, where that is no quiet topic: told in the log, for an empty answer looks the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.consumer.subscription_state import SubscriptionState

_log = logging.getLogger(__name__)

TOLD_AFTER_S = 3.0
"""How long no broker may answer before that is told."""
TOLD_AGAIN_S = 30.0
LOOKED_AGAIN_S = 0.5
"""A caller may poll without waiting, thousands of times a second."""


class IdleReasons:
    """One consumer's: looked at when a poll returns without records. One thread."""

    def __init__(self, client: KafkaClient, subscriptions: SubscriptionState, now_s: float) -> None:
        self._client = client
        self._subscriptions = subscriptions
        self._began_s = now_s
        self._next_s = now_s + TOLD_AFTER_S
        self._told: dict[str, str] = {}
        self._look_s = now_s

    def look(self, now_s: float) -> None:
        """Warn of a cluster that does not answer, now and then; of what is not there (a topic, a partition), once."""
        if not self._client.metadata.update_version:
            if now_s >= self._next_s:
                self._next_s = now_s + TOLD_AGAIN_S
                _log.warning(
                    "no Kafka broker has answered for %.0f s at bootstrap_servers, so nothing can be read. %s Check "
                    "that the broker runs, and host and port; this client goes on trying.",
                    now_s - self._began_s,
                    self._client.connections(),
                )
            return
        if now_s < self._look_s:
            return
        self._look_s = now_s + LOOKED_AGAIN_S
        found = dict(self._missing())
        for name, text in found.items():
            if self._told.get(name) != text:
                _log.warning("%s", text)
        self._told = found

    def _missing(self) -> Iterator[tuple[str, str]]:
        cluster, metadata, pattern = self._client.cluster, self._client.metadata, self._subscriptions.pattern
        known_all = metadata.all_topics and not metadata.update_requested
        if pattern is not None and known_all and not self._subscriptions.topics:
            yield (
                "the pattern",
                f"The pattern {pattern.pattern!r} matches none of the {len(cluster.topics)} topics that may be read: "
                "it must match the whole name, so write 'lines.*' for all that begin so. This client goes on looking.",
            )
        assigned = self._subscriptions.assigned
        for topic in {*self._subscriptions.topics, *(tp.topic for tp in assigned)}:
            info = cluster.topics.get(topic)
            if info is not None and info.error is not None:
                problem = info.error(
                    f"Topic {topic!r} cannot be read", "Create it, or correct its name; this client goes on looking."
                )
                yield topic, problem.message
        for tp in assigned:
            count = cluster.partition_count(tp.topic)
            if count is not None and tp.partition >= count:
                yield (
                    str(tp),
                    f"Partition {tp.partition} of topic {tp.topic!r} cannot be read: the topic has {count} partitions, "
                    "numbered from 0. This client goes on looking.",
                )
