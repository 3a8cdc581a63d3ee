"""What users ask of a log: where it begins and ends, and which offset a time has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from streamlet.base.errors import WrongArgument
from streamlet.kafka.arguments import by_partition, partitions_of
from streamlet.kafka.broker_errors import LeaderNotAvailable, UnknownTopicOrPartition
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.leader_requests import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListedOffset, list_offsets
from streamlet.kafka.consumer.consumer_config import READ_COMMITTED, ConsumerConfig
from streamlet.kafka.errors import ClientTimeout, KafkaError, NoLeader
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import Broker, TopicPartition

_ABSENT_S = 1.0
"""A topic that is not there is asked for again for so long: a broker that has just started knows of none."""


class OffsetAndTimestamp(NamedTuple):
    """A record found by time."""

    offset: int
    timestamp: int
    leader_epoch: int


class OffsetQueries:
    """Waits for its answers, trying again what may succeed later. One thread."""

    def __init__(self, client: KafkaClient, config: ConsumerConfig, now_s: Callable[[], float]) -> None:
        self._client = client
        self._now_s = now_s
        self._read_committed = config.isolation_level == READ_COMMITTED

    def partitions(self, topic: str, timeout_s: float) -> frozenset[int] | None:
        """A topic's partitions; None when it is not there."""
        start, quick = self._now_s(), min(timeout_s, _ABSENT_S)
        try:
            try:
                self._client.wait_on_metadata(topic, quick)
            except (ClientTimeout, LeaderNotAvailable):  # no answer yet, or it is being made
                if quick == timeout_s:
                    raise
                self._client.wait_on_metadata(topic, max(start + timeout_s - self._now_s(), 0.0))
        except UnknownTopicOrPartition:
            return None
        return frozenset(info.partition for info in self._client.cluster.partitions_for(topic))

    def beginnings(self, partitions: Iterable[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        """First offsets."""
        rows = self._ask(dict.fromkeys(partitions_of(partitions), EARLIEST_TIMESTAMP), timeout_s)
        return {tp: row.offset for tp, row in rows.items()}

    def ends(self, partitions: Iterable[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        """Offsets behind the last record."""
        rows = self._ask(dict.fromkeys(partitions_of(partitions), LATEST_TIMESTAMP), timeout_s)
        return {tp: row.offset for tp, row in rows.items()}

    def by_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """First records at or after a time."""
        wanted = by_partition(timestamps, "milliseconds")
        for tp, when in wanted.items():
            if isinstance(when, bool) or not isinstance(when, int) or not 0 <= when < 1 << 63:
                raise WrongArgument(f"{when!r} is no time to look for in {tp}: write whole milliseconds since 1970.")
        rows = self._ask(wanted, timeout_s)
        return {
            tp: None if row.offset < 0 else OffsetAndTimestamp(row.offset, row.timestamp, row.leader_epoch)
            for tp, row in rows.items()
        }

    def _ask(self, wanted: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, ListedOffset]:
        client, deadline = self._client, self._now_s() + timeout_s
        found: dict[TopicPartition, ListedOffset] = {}
        for tp in wanted:
            client.wait_on_metadata(tp.topic, max(deadline - self._now_s(), 0.0), tp.partition)
        if wanted:
            client.wait_retrying(lambda: self._round(wanted, found), max(deadline - self._now_s(), 0.0))
        return found

    def _round(
        self, wanted: Mapping[TopicPartition, int], found: dict[TopicPartition, ListedOffset]
    ) -> RequestFuture[None]:
        """Ask the leaders of what is not found yet, all at once."""
        by_leader: dict[Broker, dict[TopicPartition, int]] = {}
        result: RequestFuture[None] = RequestFuture()
        for tp, timestamp in wanted.items():
            if tp in found:
                continue
            leader = self._client.cluster.leader_for(tp)
            if leader is None:
                result.fail(NoLeader(f"Partition {tp} has no leader at the moment."))
                return result
            by_leader.setdefault(leader, {})[tp] = timestamp
        left = len(by_leader)
        errors: list[KafkaError] = []

        def answered(done: RequestFuture[dict[TopicPartition, ListedOffset]]) -> None:
            nonlocal left
            left -= 1
            if done.exception is not None:
                errors.append(done.exception)
            else:
                for tp, row in done.value.items():
                    if row.error is not None:
                        errors.append(row.error(f"Asking for an offset of {tp}"))
                    else:
                        found[tp] = row
            if left == 0:
                if errors:
                    result.fail(errors[0])
                else:
                    result.complete(None)

        for leader, rows in by_leader.items():
            asked = list_offsets(self._client, leader, rows, read_committed=self._read_committed)
            asked.settle(result, answered)
        return result
