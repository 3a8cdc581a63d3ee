"""Requests to partitions' leaders: records, offsets by time, ends of epochs.

Each function queues one request and returns a future of a dict by partition. An error of one partition does not fail
the others: it is in that partition's row, and where it says that the metadata is stale an update is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from streamlet.kafka.broker_errors import error_class, forces_update
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.errors import BrokerError, CorruptRecord
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import UNKNOWN_EPOCH, Broker, TopicPartition
from streamlet.kafka.protocol.messages import fetch as wire
from streamlet.kafka.records.record_batch import DECOMPRESSED_LIMIT, ReadOptions, RecordBatch, read_batches

V = TypeVar("V")
P = TypeVar("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """The offset to read next, with the epochs that check it.

    ``current_leader_epoch`` (of the metadata) fences an old leader; ``last_fetched_epoch`` (of the last batch
    read) lets a leader from Kafka 2.7 on say where its log and ours part.
    """

    offset: int
    current_leader_epoch: int = UNKNOWN_EPOCH
    last_fetched_epoch: int = UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Settings of a fetch; Kafka's names and defaults, but read_committed."""

    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 1024 * 1024
    max_partition_fetch_bytes: int = 1024 * 1024
    read_committed: bool = True
    check_crcs: bool = True
    decompressed_limit: int = DECOMPRESSED_LIMIT
    client_rack: str = ""


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """One partition in a fetch's answer; offsets are -1 where an error omits them.

    ``diverging_epoch`` (epoch, its end offset) says that the log was truncated below our position.
    ``new_leader`` (node id, epoch) is the leader by the broker's newer knowledge.
    """

    topic_partition: TopicPartition
    position: int
    error: type[BrokerError] | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: tuple[int, int] | None
    new_leader: tuple[int, int] | None
    preferred_read_replica: int
    records: memoryview
    aborted: tuple[tuple[int, int], ...]
    settings: FetchSettings

    def batches(self) -> Iterator[RecordBatch]:
        """Yield the batches, unpacked one by one; continue at the last ``next_offset``.

        Raises the partition's error if it has one, and the errors of
        :func:`streamlet.kafka.records.record_batch.read_batches`.
        """
        topic, partition = self.topic_partition
        if self.error is not None:
            raise self.error(f"Fetching topic {topic!r}, partition {partition}, from offset {self.position}")
        options = ReadOptions(
            topic,
            partition,
            self.position,
            self.settings.read_committed,
            self.settings.check_crcs,
            self.settings.decompressed_limit,
        )
        batches = read_batches(self.records, options, self.aborted)
        first = [*islice(batches, 1)]
        if not first and len(self.records):
            # A broker sends at least the first batch whole, however large. Taking these bytes for an empty answer would
            # ask for the same ones for ever.
            raise CorruptRecord(
                f"Topic {topic!r}, partition {partition}: the broker sent {len(self.records)} bytes from "
                f"offset {self.position} on, which hold not one whole batch. The log is damaged there."
            )
        # Rule: nothing here refers to a batch that was given. It would stay in memory, unpacked, until the next one is
        # asked for, and a partition that waits asks for none.
        while first:
            yield first.pop()
        yield from batches


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset by time; -1: no record is so late."""

    offset: int
    timestamp: int
    leader_epoch: int
    error: type[BrokerError] | None


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The end of an epoch, or a lower one that both share.

    ``leader_epoch`` is -1 for none.
    """

    leader_epoch: int
    end_offset: int
    error: type[BrokerError] | None


def fetch(
    client: KafkaClient,
    broker: Broker,
    positions: Mapping[TopicPartition, FetchPosition],
    settings: FetchSettings | None = None,
) -> RequestFuture[dict[TopicPartition, FetchedPartition]]:
    """Fetch records from these positions on; the answer is filled in their order."""
    ids = {tp.topic: client.cluster.topic_id(tp.topic) for tp in positions}
    part = SessionPart(positions, positions, ids)
    return fetch_in_session(client, broker, part, settings or FetchSettings()).then(lambda answer: answer.partitions)


@dataclass(frozen=True, slots=True)
class SessionPart:
    """A request of a fetch session (KIP-227), by default of none.

    ``send`` and ``forget`` change the partitions that the broker remembers; ``wanted`` are all it may answer for.
    Without a session everything is sent, and nothing is remembered.
    """

    wanted: Mapping[TopicPartition, FetchPosition]
    send: Mapping[TopicPartition, FetchPosition]
    topic_ids: Mapping[str, str | None]
    session_id: int = 0
    epoch: int = -1
    forget: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionAnswer:
    """The answer of one broker; a session omits partitions without news."""

    session_id: int
    error: type[BrokerError] | None
    partitions: dict[TopicPartition, FetchedPartition]
    throttled: bool = False
    """Whether the broker holds records back, for a quota: an empty answer tells nothing then."""


def fetch_in_session(
    client: KafkaClient, broker: Broker, part: SessionPart, settings: FetchSettings
) -> RequestFuture[SessionAnswer]:
    """Fetch records within a session.

    An error of the session as a whole is in the answer; without a session it fails the future.
    """
    # A topic that was deleted and created again has another id by now. The broker may still answer with the id of the
    # session, or already with that of the metadata: both lead to the name.
    wanted = part.wanted
    names = {topic_id: topic for topic, topic_id in part.topic_ids.items() if topic_id is not None}
    for tp in wanted:
        topic_id = client.cluster.topic_id(tp.topic)
        if topic_id is not None:
            names.setdefault(topic_id, tp.topic)

    def read(response: wire.FetchResponse) -> SessionAnswer:
        fault = error_class(response.error_code)
        # An error of the session is the caller's matter, who begins a new session. Without one there is nobody to take
        # it.
        if fault is not None:
            note_error(client, fault)
            if part.epoch < 0:
                raise fault(f"Fetching from {broker}")
        found: dict[TopicPartition, FetchedPartition] = {}
        for topic in response.topics:
            name = topic.topic if topic.topic_id is None else names.get(topic.topic_id, "")
            for row in topic.partitions:
                tp = TopicPartition(name, row.partition_index)
                # Rows that were not asked for are left out, and so is a topic whose id no name is known for.
                if tp in wanted:
                    found[tp] = _fetched(tp, row, wanted[tp].offset, settings)
                    note_error(client, found[tp].error)
        return SessionAnswer(response.session_id, fault, found, throttled=response.throttle_time_ms > 0)

    # The broker's own waiting comes on top of the time that an answer may take.
    timeout_ms = client.config.request_timeout_ms + settings.fetch_max_wait_ms
    return client.send(_fetch_request(part, settings), broker, timeout_ms / 1000).then(read)


def _fetch_request(part: SessionPart, settings: FetchSettings) -> wire.FetchRequest:
    ids = part.topic_ids
    return wire.FetchRequest(
        max_wait_ms=settings.fetch_max_wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=settings.fetch_max_bytes,
        isolation_level=wire.READ_COMMITTED if settings.read_committed else wire.READ_UNCOMMITTED,
        session_id=part.session_id,
        session_epoch=part.epoch,
        rack_id=settings.client_rack,
        topics=by_topic(
            part.send,
            lambda number, row: wire.FetchPartition(
                partition=number,
                current_leader_epoch=row.current_leader_epoch,
                fetch_offset=row.offset,
                last_fetched_epoch=row.last_fetched_epoch,
                partition_max_bytes=settings.max_partition_fetch_bytes,
            ),
            lambda topic, rows: wire.FetchTopic(topic=topic, topic_id=ids[topic], partitions=rows),
        ),
        forgotten_topics_data=by_topic(
            dict.fromkeys(part.forget),
            lambda number, _: number,
            lambda topic, numbers: wire.ForgottenTopic(topic=topic, topic_id=ids[topic], partitions=numbers),
        ),
    )


def _fetched(
    tp: TopicPartition, row: wire.FetchPartitionResponse, position: int, settings: FetchSettings
) -> FetchedPartition:
    diverging, leader = row.diverging_epoch, row.current_leader
    return FetchedPartition(
        tp,
        position,
        error_class(row.error_code),
        row.high_watermark,
        row.last_stable_offset,
        row.log_start_offset,
        None if diverging.end_offset < 0 else (diverging.epoch, diverging.end_offset),
        None if leader.leader_id < 0 else (leader.leader_id, leader.leader_epoch),
        row.preferred_read_replica,
        row.records if row.records is not None else memoryview(b""),
        tuple((gone.producer_id, gone.first_offset) for gone in row.aborted_transactions or ()),
        settings,
    )


def list_offsets_request(timestamps: Mapping[TopicPartition, int], *, read_committed: bool) -> wire.ListOffsetsRequest:
    """Return a request for one leader's partitions."""
    return wire.ListOffsetsRequest(
        isolation_level=1 if read_committed else 0,
        topics=by_topic(
            timestamps,
            lambda number, timestamp: wire.ListOffsetsPartition(partition_index=number, timestamp=timestamp),
            lambda topic, rows: wire.ListOffsetsTopic(name=topic, partitions=rows),
        ),
    )


def list_offsets(
    client: KafkaClient,
    broker: Broker,
    timestamps: Mapping[TopicPartition, int],
    *,
    read_committed: bool = True,
) -> RequestFuture[dict[TopicPartition, ListedOffset]]:
    """Ask for the first offsets at or after a time in ms.

    Or at EARLIEST_TIMESTAMP or LATEST_TIMESTAMP. The latest one under ``read_committed`` is the last stable offset: no
    open transaction lies before it.
    """
    request = list_offsets_request(timestamps, read_committed=read_committed)

    def read(response: wire.ListOffsetsResponse) -> dict[TopicPartition, ListedOffset]:
        found: dict[TopicPartition, ListedOffset] = {}
        for tp, row in partition_rows(response.topics):
            fault = error_class(row.error_code)
            note_error(client, fault)
            found[tp] = ListedOffset(row.offset, row.timestamp, row.leader_epoch, fault)
        return found

    return client.send(request, broker).then(read)


def offsets_for_leader_epoch(
    client: KafkaClient, broker: Broker, epochs: Mapping[TopicPartition, tuple[int, int]]
) -> RequestFuture[dict[TopicPartition, EpochEnd]]:
    """Ask where epochs end in the leaders' logs.

    ``epochs``: by partition, the leader epoch of the last record read, and that of the metadata.
    """
    request = wire.OffsetForLeaderEpochRequest(
        topics=by_topic(
            epochs,
            lambda number, row: wire.OffsetForLeaderPartition(
                partition=number, leader_epoch=row[0], current_leader_epoch=row[1]
            ),
            lambda topic, rows: wire.OffsetForLeaderTopic(topic=topic, partitions=rows),
        )
    )

    def read(response: wire.OffsetForLeaderEpochResponse) -> dict[TopicPartition, EpochEnd]:
        found: dict[TopicPartition, EpochEnd] = {}
        for topic in response.topics:
            for row in topic.partitions:
                fault = error_class(row.error_code)
                note_error(client, fault)
                tp = TopicPartition(topic.topic, row.partition)
                found[tp] = EpochEnd(row.leader_epoch, row.end_offset, fault)
        return found

    return client.send(request, broker).then(read)


def by_topic(
    rows: Mapping[TopicPartition, V], partition: Callable[[int, V], P], topic: Callable[[str, tuple[P, ...]], T]
) -> tuple[T, ...]:
    """Return rows as requests have them, grouped by topic; the order is kept.

    ``partition`` makes the entry of one number, ``topic`` that of one name with its partitions.
    """
    found: dict[str, list[P]] = {}
    for tp, value in rows.items():
        found.setdefault(tp.topic, []).append(partition(tp.partition, value))
    return tuple(topic(name, tuple(entries)) for name, entries in found.items())


def partition_rows(topics: Iterable[Any]) -> Iterator[tuple[TopicPartition, Any]]:  # Any: rows of several answers
    """Yield each partition's row in an answer that is grouped by topic."""
    for topic in topics:
        for row in topic.partitions:
            yield TopicPartition(topic.name, row.partition_index), row


def note_error(client: KafkaClient, fault: type[BrokerError] | None) -> None:
    """Ask for metadata when a partition's error calls for it."""
    if fault is not None and forces_update(fault):
        client.metadata.request_update(reset_equivalent=False)
