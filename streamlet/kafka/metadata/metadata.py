"""When to ask for metadata, and what to believe of an answer (M1, M3-M6; Java: ``Metadata``). Pure.

The shell asks :meth:`Metadata.time_to_next_update`, sends :meth:`Metadata.next_request`, and brings back
either :meth:`Metadata.update` or :meth:`Metadata.failed_update`. Time is given in seconds of a monotonic
clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType

from streamlet.base.backoff import Backoff, no_jitter
from streamlet.kafka.broker_errors import error_class
from streamlet.kafka.metadata.cluster import (
    UNKNOWN_EPOCH,
    Broker,
    Cluster,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)
from streamlet.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)

_log = logging.getLogger(__name__)

MAX_AGE_S = 300.0
REFRESH_BACKOFF = Backoff(initial=0.1, maximum=1.0)


@dataclass(frozen=True, slots=True)
class MetadataAsk:
    """A request to send, with what must come back beside the answer."""

    request: MetadataRequest
    request_version: int
    partial: bool


class Metadata:
    """The cluster as known, and the policy of its refresh. One thread."""

    def __init__(
        self,
        refresh_backoff: Backoff = REFRESH_BACKOFF,
        max_age_s: float = MAX_AGE_S,
        uniform: Callable[[], float] = no_jitter,
        allow_auto_topic_creation: bool = False,
        topic_idle_s: float | None = None,
    ) -> None:
        self._backoff = refresh_backoff
        self._max_age_s = max_age_s
        self._uniform = uniform
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self.cluster = Cluster()
        self.update_version = 0
        """+1 for every accepted answer: what waiting for an update compares."""
        self.request_version = 0
        """+1 for every new topic.

        An answer asked for before it does not settle the request for that topic.
        """
        self.last_refresh_s: float | None = None
        """The last answer, good or failed. None: the next request may go at once."""
        self.last_success_s: float | None = None
        """The last accepted answer about everything; age is counted from here."""
        self._need_full = True
        self._need_partial = False
        self._failures = 0
        self._equivalent = 0
        self._wait_s = 0.0
        self._topic_idle_s = topic_idle_s
        self._all_topics = False
        self._topics: dict[str, float] = {}
        """Each topic of interest, and when it was named last."""
        self._new_topics: set[str] = set()
        self._epochs: dict[TopicPartition, int] = {}
        self._ids: dict[str, str] = {}
        """The last id of each topic, also of one that is missing for a while."""
        self._listeners: list[Callable[[Cluster], None]] = []

    @property
    def topics(self) -> frozenset[str]:
        """The topics asked about."""
        return frozenset(self._topics)

    @property
    def update_requested(self) -> bool:
        """Whether an update was asked for and has not come yet (``needUpdate``)."""
        return self._need_full or self._need_partial

    def add_listener(self, listener: Callable[[Cluster], None]) -> None:
        """Call ``listener`` with the new cluster after each accepted answer, in the thread that polls."""
        self._listeners.append(listener)

    def add_topic(self, topic: str, now_s: float = 0.0) -> bool:
        """Be interested in a topic. A new one is asked for at once, and alone. True when it was new.

        Where topics expire (M5), naming one again renews it: ``now_s`` is when. A topic that has not been answered
        for yet does not expire.
        """
        known = topic in self._topics
        self._topics[topic] = now_s
        if known:
            return False
        self._new_topics.add(topic)
        self.request_version += 1
        self._need_partial = True
        self.last_refresh_s = None
        return True

    def remove_topic(self, topic: str) -> None:
        """Ask about it no longer; it leaves the cluster with the next full answer."""
        self._topics.pop(topic, None)
        self._new_topics.discard(topic)
        self._forget_epochs(topic)

    @property
    def all_topics(self) -> bool:
        """Whether every topic of the cluster is asked about (M5), as a pattern subscription needs."""
        return self._all_topics

    def set_all_topics(self, wanted: bool) -> None:
        """Ask about every topic of the cluster from now on, or again only about those added. Asks at once."""
        if wanted != self._all_topics:
            self._all_topics = wanted
            self.request_version += 1
            self._need_full = True
            self.last_refresh_s = None

    def request_update(self, *, reset_equivalent: bool = True) -> int:
        """Ask for an update; returns the version that the update will be greater than.

        ``reset_equivalent`` is False where an error made us ask: answers that tell nothing new then come ever
        more slowly (KIP-580), so that an election under way does not draw a storm of requests.
        """
        self._need_full = True
        if reset_equivalent:
            self._equivalent = 0
        return self.update_version

    def time_to_next_update(self, now_s: float) -> float:
        """Seconds until an update is due *and* allowed; 0 for now."""
        allowed = 0.0
        if self.last_refresh_s is not None:
            allowed = self.last_refresh_s + self._wait_s - now_s
        if self.update_requested or self.last_success_s is None:
            due = 0.0
        else:
            due = self.last_success_s + self._max_age_s - now_s
        return max(due, allowed, 0.0)

    def next_request(self) -> MetadataAsk:
        """What to ask now: only the new topics when nothing else is wanted, else all topics of interest."""
        partial = self._need_partial and not self._need_full and self.last_success_s is not None
        wanted = self._new_topics if partial else self._topics
        topics: tuple[MetadataRequestTopic, ...] | None
        if self._all_topics:
            partial, topics = False, None
        else:
            topics = tuple(MetadataRequestTopic(name=name) for name in sorted(wanted))
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=self._allow_auto_topic_creation)
        return MetadataAsk(request, self.request_version, partial)

    def failed_update(self, now_s: float) -> None:
        """No usable answer came: keep what is known and back off."""
        self.last_refresh_s = now_s
        self._failures += 1
        self._draw_wait()

    def update(self, ask: MetadataAsk, response: MetadataResponse, now_s: float) -> bool:
        """Take in an answer. One without brokers is a failed update (M6): False, and nothing is forgotten."""
        if not response.brokers:
            self.failed_update(now_s)
            return False
        self.last_refresh_s = now_s
        self._failures = 0
        self._equivalent += 1
        self.update_version += 1
        self._expire_topics(now_s)
        asked_before_newest_topic = ask.request_version != self.request_version
        if not asked_before_newest_topic:
            self._new_topics.clear()
            self._need_partial = False
        if not ask.partial and (ask.request.topics is None) is self._all_topics:
            self._need_full = False
            self.last_success_s = now_s
        self.cluster = self._merge(ask, response)
        self._draw_wait()
        self._tell_listeners()
        return True

    def update_leader(self, tp: TopicPartition, leader: int, epoch: int, brokers: Iterable[Broker] = ()) -> bool:
        """Take in a leader that a Produce or Fetch answer names beside its error (KIP-951); True when it was news.

        ``brokers``: the endpoints that came with it. Believed only with a newer epoch, of a known partition and a
        known broker. It is no update: who waits for one goes on waiting; listeners are told.
        """
        topic = self.cluster.topics.get(tp.topic)
        known = None if topic is None else topic.partitions.get(tp.partition)
        nodes = dict(self.cluster.brokers) | {broker.node_id: broker for broker in brokers}
        if topic is None or known is None or leader not in nodes:
            return False
        if epoch <= max(known.leader_epoch, self._epochs.get(tp, UNKNOWN_EPOCH)):
            return False
        self._epochs[tp] = epoch
        self._equivalent = 0
        partitions = {**topic.partitions, tp.partition: replace(known, leader=leader, leader_epoch=epoch, error=None)}
        topics = {**self.cluster.topics, tp.topic: replace(topic, partitions=MappingProxyType(partitions))}
        self.cluster = Cluster.of(nodes.values(), topics.values(), self.cluster.cluster_id, self.cluster.controller_id)
        self._tell_listeners()
        return True

    def _tell_listeners(self) -> None:
        for listener in self._listeners:
            try:
                listener(self.cluster)
            except Exception:  # noqa: BLE001 - a listener is foreign code, and its fault must not cost the update
                _log.exception("a listener of metadata updates raised; the update stands")

    def _expire_topics(self, now_s: float) -> None:
        if self._topic_idle_s is None:
            return
        for name, used_s in list(self._topics.items()):
            if name not in self._new_topics and now_s - used_s >= self._topic_idle_s:
                _log.debug("topic %s was not used for %.0f s: its metadata is kept no longer", name, now_s - used_s)
                del self._topics[name]
                self._forget_epochs(name)

    def _retains(self, topic: str) -> bool:
        return self._all_topics or topic in self._topics

    def _draw_wait(self) -> None:
        longest = max(self._failures, self._equivalent, 1)
        self._wait_s = self._backoff.delay(longest, self._uniform)

    def _merge(self, ask: MetadataAsk, response: MetadataResponse) -> Cluster:
        topics: dict[str, TopicInfo] = {}
        if ask.partial or ask.request_version != self.request_version:
            topics.update((name, info) for name, info in self.cluster.topics.items() if self._retains(name))
        for row in response.topics:
            if row.name is not None and self._retains(row.name):
                topics[row.name] = self._topic(row.name, row)
        brokers = [Broker(row.node_id, row.host, row.port, row.rack) for row in response.brokers]
        return Cluster.of(brokers, topics.values(), response.cluster_id, response.controller_id)

    def _topic(self, name: str, row: MetadataTopic) -> TopicInfo:
        error = error_class(row.error_code)
        known = self.cluster.topics.get(name)
        if error is not None:
            if error.retriable or error.stale_metadata:
                self.request_update(reset_equivalent=False)
            # A leader election is no reason to forget how many partitions there are.
            if known is not None and known.partitions and error.retriable and error.code != 3:
                return TopicInfo(name, known.topic_id, known.partitions, error, known.is_internal)
            return TopicInfo(name, row.topic_id, {}, error, row.is_internal)
        if row.topic_id is not None and self._ids.get(name) != row.topic_id:
            self._ids[name] = row.topic_id
            self._forget_epochs(name)  # a topic made anew begins with epoch 0
        partitions: dict[int, PartitionInfo] = {}
        for part in row.partitions:
            fault = error_class(part.error_code)
            if fault is not None and fault.stale_metadata:
                self.request_update(reset_equivalent=False)
            fresh = PartitionInfo(
                name,
                part.partition_index,
                part.leader_id,
                part.leader_epoch,
                part.replica_nodes,
                part.isr_nodes,
                part.offline_replicas,
                fault,
            )
            partitions[part.partition_index] = self._newer(fresh, known)
        return TopicInfo(name, row.topic_id, partitions, None, row.is_internal)

    def _newer(self, fresh: PartitionInfo, known: TopicInfo | None) -> PartitionInfo:
        """``fresh``, unless a broker that lags gave it: its epoch is older than one seen before."""
        tp = fresh.topic_partition
        seen = self._epochs.get(tp, UNKNOWN_EPOCH)
        if fresh.leader_epoch == UNKNOWN_EPOCH:
            return fresh
        if fresh.leader_epoch < seen:
            old = known.partitions.get(fresh.partition) if known is not None else None
            return fresh if old is None else old
        if fresh.leader_epoch > seen:
            self._epochs[tp] = fresh.leader_epoch
            self._equivalent = 0
        return fresh

    def _forget_epochs(self, topic: str) -> None:
        for tp in [tp for tp in self._epochs if tp.topic == topic]:
            del self._epochs[tp]

    def known_epochs(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """The highest leader epoch seen of each partition of ``topics``."""
        wanted = set(topics)
        return {tp: epoch for tp, epoch in self._epochs.items() if tp.topic in wanted}
