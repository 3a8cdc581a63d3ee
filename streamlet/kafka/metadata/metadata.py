"""When to ask for metadata, and which answers to believe (Java: ``Metadata``). Pure.

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
from streamlet.kafka.broker_errors import UnknownTopicOrPartition, error_class, may_pass
from streamlet.kafka.metadata.cluster import (
    UNKNOWN_EPOCH,
    Broker,
    Cluster,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)
from streamlet.kafka.metadata.topic_ids import TopicIds
from streamlet.kafka.protocol.messages.metadata import (
    MetadataPartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)

_log = logging.getLogger(__name__)

MAX_AGE_S = 300.0
"""Seconds before metadata is asked for again without a cause."""
REFRESH_BACKOFF = Backoff(initial=0.1, maximum=1.0)


@dataclass(frozen=True, slots=True)
class MetadataAsk:
    """A request to send; it must come back beside its answer."""

    request: MetadataRequest
    request_version: int
    partial: bool


class Metadata:
    """The known cluster, and the policy of its refresh. One thread."""

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
        """Counts accepted answers; a caller that waits for an update compares it."""
        self.full_updates = 0
        """Counts accepted answers about all topics of interest; others are about new topics alone."""
        self.request_version = 0
        """Counts new topics; an answer asked for before does not settle the request for the newest."""
        self.last_refresh_s: float | None = None
        """Time of the last answer, good or failed; None: the next request may go at once."""
        self.last_success_s: float | None = None
        """Time of the last accepted answer about all topics; the age is counted from here."""
        self._need_full = True
        self._need_partial = False
        self._failures = 0
        self._equivalent = 0
        self._wait_s = 0.0
        self._topic_idle_s = topic_idle_s
        self._all_topics = False
        self._topics: dict[str, float] = {}
        """Each topic of interest, and the time when it was named last."""
        self._new_topics: set[str] = set()
        self._epochs: dict[TopicPartition, int] = {}
        self._ids = TopicIds()
        self._listeners: list[Callable[[Cluster], None]] = []

    @property
    def topics(self) -> frozenset[str]:
        """The topics asked about."""
        return frozenset(self._topics)

    @property
    def update_requested(self) -> bool:
        """Whether an update was asked for and has not come yet."""
        return self._need_full or self._need_partial

    def add_listener(self, listener: Callable[[Cluster], None]) -> None:
        """Call ``listener`` with the new cluster after each accepted answer.

        It runs in the thread that polls.
        """
        self._listeners.append(listener)

    def add_topic(self, topic: str, now_s: float = 0.0) -> bool:
        """Keep metadata of a topic; return whether the topic is new.

        A new one is asked for at once, and alone. Where topics expire, naming one again at ``now_s`` renews it. A topic
        without an answer does not expire.
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
        """Drop a topic; it leaves the cluster with the next full answer."""
        self._topics.pop(topic, None)
        self._new_topics.discard(topic)
        self._forget_epochs(topic)

    def set_topics(self, topics: Iterable[str], now_s: float = 0.0) -> None:
        """Keep metadata of these topics, and of no others."""
        # Rule: who reads a topic no longer asks about it no more. One that is deleted would be asked for each second,
        # without end, and a broker that creates topics would make it again.
        wanted = frozenset(topics)
        for topic in self.topics - wanted:
            self.remove_topic(topic)
        for topic in sorted(wanted):
            self.add_topic(topic, now_s)

    @property
    def all_topics(self) -> bool:
        """Whether every topic of the cluster is asked about."""
        return self._all_topics

    def set_all_topics(self, wanted: bool) -> None:
        """Ask about every topic from now on, or only about those added."""
        if wanted != self._all_topics:
            self._all_topics = wanted
            self.request_version += 1
            self._need_full = True
            self.last_refresh_s = None

    def request_update(self, *, reset_equivalent: bool = True) -> int:
        """Ask for an update; return the version that the update will exceed.

        ``reset_equivalent``: False where an error is the cause.
        """
        # After errors, while answers bring no news, it asks ever more slowly (KIP-580): an election under way must not
        # draw a storm of requests from all its clients.
        self._need_full = True
        if reset_equivalent:
            self._equivalent = 0
        return self.update_version

    def time_to_next_update(self, now_s: float) -> float:
        """Return the seconds until an update is due *and* allowed."""
        allowed = 0.0
        if self.last_refresh_s is not None:
            allowed = self.last_refresh_s + self._wait_s - now_s
        if self.update_requested or self.last_success_s is None:
            due = 0.0
        else:
            due = self.last_success_s + self._max_age_s - now_s
        return max(due, allowed, 0.0)

    def next_request(self) -> MetadataAsk:
        """Return the request to send: the new topics alone, or all topics."""
        # A new topic is asked for alone: with thousands of topics, each answer about all of them has megabytes.
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
        """Note that no usable answer came: keep the cluster and back off."""
        self.last_refresh_s = now_s
        self._failures += 1
        self._draw_wait()

    def update(self, ask: MetadataAsk, response: MetadataResponse, now_s: float) -> bool:
        """Take an answer; return whether it was accepted."""
        # An answer without brokers comes from a broker that has just started and knows nothing yet. It is a failed
        # update: the known brokers are kept, for without them there would be no one to ask.
        if not response.brokers:
            self.failed_update(now_s)
            return False
        self.last_refresh_s = now_s
        self._failures = 0
        self._equivalent += 1
        self.update_version += 1
        self._expire_topics(now_s)
        # The answer to a request that went out before the newest topic was named says nothing of that topic: the
        # request for it stays open, and topics that are not in the answer are kept.
        asked_before_newest_topic = ask.request_version != self.request_version
        if not asked_before_newest_topic:
            self._new_topics.clear()
            self._need_partial = False
        if not ask.partial and (ask.request.topics is None) is self._all_topics:
            self._need_full = False
            self.last_success_s = now_s
            self.full_updates += 1
        self.cluster = self._merge(ask, response)
        self._draw_wait()
        self._tell_listeners()
        return True

    def update_leader(self, tp: TopicPartition, leader: int, epoch: int, brokers: Iterable[Broker] = ()) -> bool:
        """Take a leader that an error in an answer names (KIP-951); return whether it is new.

        ``brokers``: the endpoints that came with it. Believed only with a newer epoch, of a known partition and a
        known broker. It counts as no update: callers that wait for one go on waiting. Listeners run.
        """
        topic = self.cluster.topics.get(tp.topic)
        known = None if topic is None else topic.partitions.get(tp.partition)
        nodes = dict(self.cluster.brokers) | {broker.node_id: broker for broker in brokers}
        if topic is None or known is None or leader not in nodes:
            return False
        # Only a newer epoch is news: answers of several brokers cross, and an older one names a leader that was.
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

    # Filtered by name in every merge: an answer may hold topics that were dropped while it was under way.
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
            if may_pass(error) or error.stale_metadata:
                self.request_update(reset_equivalent=False)
            # The number of partitions is kept through a leader election: a producer chooses partitions by it.
            if known is not None and known.partitions and may_pass(error) and error is not UnknownTopicOrPartition:
                return TopicInfo(name, known.topic_id, known.partitions, error, known.is_internal)
            return TopicInfo(name, row.topic_id, {}, error, row.is_internal)
        if self._ids.is_replaced(name, row.topic_id):
            self.request_update(reset_equivalent=False)
            return known or TopicInfo(name, None, {}, UnknownTopicOrPartition, row.is_internal)
        if self._ids.note(name, row.topic_id):
            # Another id is another topic of the same name, whose epochs begin with 0: judged by the old ones, all its
            # leaders would be out of date.
            self._forget_epochs(name)
        partitions: dict[int, PartitionInfo] = {}
        for part in row.partitions:
            fresh = partition_info(name, part)
            if fresh.error is not None and fresh.error.stale_metadata:
                self.request_update(reset_equivalent=False)
            partitions[part.partition_index] = self._newer(fresh, known)
        return TopicInfo(name, row.topic_id, partitions, None, row.is_internal)

    def _newer(self, fresh: PartitionInfo, known: TopicInfo | None) -> PartitionInfo:
        # A broker that lags behind answers with an older epoch than one seen before: it is not believed.
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


def partition_info(topic: str, row: MetadataPartition) -> PartitionInfo:
    """Return a partition as an answer describes it."""
    return PartitionInfo(
        topic,
        row.partition_index,
        row.leader_id,
        row.leader_epoch,
        row.replica_nodes,
        row.isr_nodes,
        row.offline_replicas,
        error_class(row.error_code),
    )
