"""Kafka as a table of handlers over one state: logs of topics, offsets of groups, ids of producers.

Each test sets the state, overrides single answers (``cluster.broker.on(...)``), and looks at the state afterwards.
Absent on purpose: sessions of fetches (each is answered whole), rebalances of groups (each member is alone in a
generation of its own; librdkafka's mock cluster plays groups), isolation of transactions, replication. The first broker
coordinates, and leads what ``leaders`` gives to no other.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from streamlet.kafka.protocol.messages.fetch import (
    EARLIEST_TIMESTAMP,
    EpochEndOffsetPartition,
    EpochEndOffsetTopic,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochResponse,
)
from streamlet.kafka.protocol.messages.groups import (
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from streamlet.kafka.protocol.messages.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from streamlet.kafka.protocol.messages.offsets import (
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResponse,
)
from streamlet.kafka.protocol.messages.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from streamlet.kafka.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from streamlet.kafka.protocol.schema import ApiKey
from streamlet.kafka.records.record_batch import HEADER, ReadOptions, read_batches
from tests.scripted.fake_broker import FakeBroker
from tests.whole_batches import BatchFields, NewRecord, encode_batch

OUT_OF_RANGE, UNKNOWN_PRODUCER, FENCED, UNKNOWN_EPOCH, UNKNOWN_TOPIC_ID = 1, 59, 74, 75, 100


@dataclass
class Log:
    """One partition: its batches as (first offset, next offset, bytes), and where each leader epoch began."""

    start: int = 0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    open_from: int | None = None
    """Where an open transaction begins."""
    faults: dict[int, list[int]] = field(default_factory=dict)
    """Errors that fetches from an offset are answered with, each once."""

    @classmethod
    def of(cls, data: bytes) -> Log:
        """Return the log that these bytes of a segment are, its offsets with their holes."""
        log = cls()
        while data:
            base, size = int.from_bytes(data[:8], "big"), 12 + int.from_bytes(data[8:12], "big")
            log.batches.append((base, base + int.from_bytes(data[23:27], "big") + 1, data[:size]))
            data = data[size:]
        return log

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else 0

    @property
    def epoch(self) -> int:
        return self.epochs[-1][0]

    def append(self, raw: bytes) -> int:
        """Take a batch as a leader does, with its offset and epoch; return the offset."""
        base, count = self.end, HEADER.unpack_from(raw)[12]
        # Offset and epoch stand before what the checksum covers.
        raw = base.to_bytes(8, "big") + raw[8:12] + self.epoch.to_bytes(4, "big") + raw[16:]
        self.batches.append((base, base + count, raw))
        return base

    def elect(self, keeps: int) -> None:
        """Give it another leader, whose log ended at ``keeps``."""
        self.batches = [batch for batch in self.batches if batch[1] <= keeps]
        self.epochs = [row for row in self.epochs if row[1] < keeps] + [(self.epoch + 1, keeps)]

    def values(self) -> list[bytes | None]:
        """Return the value of every record."""
        options = ReadOptions("", 0, 0, False, True, 1 << 26)
        data = b"".join(raw for _base, _after, raw in self.batches)
        return [value for batch in read_batches(memoryview(data), options, ()) for value in batch.values]


class FakeCluster:
    """Brokers over one state; a context manager that starts and stops them. Handlers run on the brokers' threads."""

    def __init__(self, topics: Mapping[str, int] | None = None, brokers: int = 1, transaction_version: int = 1) -> None:
        self.topics = {name: [Log() for _ in range(count)] for name, count in (topics or {}).items()}
        self.topic_ids: dict[str, str] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        """(topic, partition) -> the broker that leads it; the first one where nothing stands here."""
        self.answers: list[Any] = []
        """For Produce, used up one a partition: an error, or (act, whether it is written first). Then 0."""
        self.produced: list[ProduceRequest] = []
        self.arrived = threading.Event()
        self.batches: list[tuple[int, int, int, int]] = []
        """(producer id, epoch, first sequence, count) of each batch written, over all partitions."""
        self.asked: list[dict[int, int]] = []
        """Offset by partition of each fetch."""
        self.fetching = self.most_fetching = 0
        self.committed: dict[tuple[str, str, int], Any] = {}
        """(group, topic, partition) -> the row of its last commit."""
        self.commits: list[dict[int, int]] = []
        """Offset by partition of each commit."""
        self.producers: dict[str, tuple[int, int]] = {}
        """Transactional id -> (producer id, epoch)."""
        self.ids = itertools.count(7)
        self.changed = threading.Condition()
        self.brokers = [FakeBroker(node_id=number) for number in range(1, brokers + 1)]
        for broker in self.brokers:
            broker.cluster = self
            broker.defaults = dict(self.table())
            broker.ranges[ApiKey.FETCH] = (10, 12)  # by topic id from 13 on
        self.finalize(transaction_version)

    def table(self) -> dict[ApiKey, Callable[[Any], Any]]:
        """Return what answers what."""
        return {
            ApiKey.METADATA: self.metadata,
            ApiKey.PRODUCE: self.produce,
            ApiKey.FETCH: self.fetch,
            ApiKey.LIST_OFFSETS: self.bounds,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self.epoch_end,
            ApiKey.FIND_COORDINATOR: self.coordinator,
            ApiKey.OFFSET_COMMIT: self.commit,
            ApiKey.OFFSET_FETCH: self.stored,
            ApiKey.JOIN_GROUP: self.join,
            ApiKey.SYNC_GROUP: self.sync,
            ApiKey.HEARTBEAT: lambda _request: HeartbeatResponse(error_code=0),
            ApiKey.LEAVE_GROUP: lambda _request: LeaveGroupResponse(error_code=0),
            ApiKey.INIT_PRODUCER_ID: self.init_producer,
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions,
            ApiKey.END_TXN: self.end,
            ApiKey.TXN_OFFSET_COMMIT: self.store,
        }

    @property
    def broker(self) -> FakeBroker:
        """The coordinator, and the leader of what ``leaders`` does not name."""
        return self.brokers[0]

    def __enter__(self) -> FakeCluster:
        for broker in self.brokers:
            broker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers:
            broker.stop()

    # -- what a test does to it

    def log(self, topic: str, partition: int) -> Log:
        """Return the log of a partition, made on first use."""
        logs = self.topics.setdefault(topic, [])
        logs += [Log() for _ in range(len(logs), partition + 1)]
        return logs[partition]

    def fill(self, topic: str, *ends: int) -> FakeCluster:
        """Write so many records to each partition, ten a batch, each its offset as text."""
        for partition, end in enumerate(ends):
            for base in range(0, end, 10):
                self.log(topic, partition).append(batch(base, min(10, end - base)))
        return self

    def finalize(self, transaction_version: int) -> None:
        """Give the transactions of all brokers this version, which new connections are told."""
        for broker in self.brokers:
            broker.features = {"transaction.version": transaction_version}
            broker.features_epoch += 1

    def write(self, topic: str, *values: str) -> None:
        """Write records to partition 0, a batch each."""
        with self.changed:
            for value in values:
                self.log(topic, 0).append(encode_batch([NewRecord(value.encode())], BatchFields()))
            self.changed.notify_all()

    @property
    def values(self) -> dict[tuple[str, int], list[bytes | None]]:
        """The records of every partition that has some."""
        return {
            (topic, number): log.values()
            for topic, logs in self.topics.items()
            for number, log in enumerate(logs)
            if log.batches
        }

    # -- what its brokers answer

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = list(self.topics) if request.topics is None else [row.name or "" for row in request.topics]
        members = [MetadataBroker(node_id=one.node_id, host="127.0.0.1", port=one.port) for one in self.brokers]
        return MetadataResponse(
            brokers=tuple(members),
            cluster_id="fake",
            controller_id=self.broker.node_id,
            topics=tuple(self._topic(name) for name in names),
        )

    def _topic(self, name: str) -> MetadataTopic:
        if name not in self.topics:
            return MetadataTopic(error_code=3, name=name)
        rows = tuple(
            MetadataPartition(
                error_code=0,
                partition_index=number,
                leader_id=self.leaders.get((name, number), self.broker.node_id),
                leader_epoch=log.epoch,
                replica_nodes=tuple(one.node_id for one in self.brokers),
            )
            for number, log in enumerate(self.topics[name])
        )
        return MetadataTopic(error_code=0, name=name, topic_id=self.topic_ids.get(name), partitions=rows)

    def produce(self, request: ProduceRequest) -> Any:
        self.produced.append(request)
        instead = None
        topics = []
        for topic in request.topic_data:
            rows = []
            for part in topic.partition_data:
                answer = self.answers.pop(0) if self.answers else 0
                code, act, written = (answer, None, answer == 0) if isinstance(answer, int) else (0, *answer)
                instead = act or instead
                offset = -1
                if written:
                    raw = bytes(part.records or b"")
                    self.batches.append(HEADER.unpack_from(raw)[9:13])  # type: ignore[arg-type]
                    offset = self.log(topic.name, part.index).append(raw)
                lost = 1000 if code == UNKNOWN_PRODUCER else -1  # retention took what it knew the producer by
                rows.append(
                    ProducePartitionResponse(
                        index=part.index, error_code=code, base_offset=offset, log_start_offset=lost
                    )
                )
            topics.append(ProduceTopicResponse(name=topic.name, partition_responses=tuple(rows)))
        self.arrived.set()
        return ProduceResponse(responses=tuple(topics)) if instead is None else instead

    def fetch(self, request: FetchRequest) -> FetchResponse:
        """Give a batch of each partition; when there is none, wait as long as is asked for."""
        with self.changed:
            self.fetching += 1
            self.most_fetching = max(self.most_fetching, self.fetching)
            self.asked.append({row.partition: row.fetch_offset for topic in request.topics for row in topic.partitions})
            found: FetchResponse | None = None

            def something() -> bool:
                nonlocal found
                found = self._found(request)
                return any(row.records or row.error_code for topic in found.topics for row in topic.partitions)

            self.changed.wait_for(something, request.max_wait_ms / 1000)
            self.fetching -= 1
        assert found is not None
        return found

    def _found(self, request: FetchRequest) -> FetchResponse:
        names = {number: name for name, number in self.topic_ids.items()}
        topics = []
        for topic in request.topics:
            name = topic.topic or names.get(topic.topic_id or "")
            rows = [self._rows(name, row) for row in topic.partitions]
            topics.append(FetchTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=tuple(rows)))
        return FetchResponse(session_id=0, topics=tuple(topics))

    def _rows(self, topic: str | None, row: Any) -> FetchPartitionResponse:
        log, code, data = self.log(topic, row.partition) if topic else Log(), 0, b""
        if topic is None:
            code = UNKNOWN_TOPIC_ID
        elif row.current_leader_epoch not in (-1, log.epoch):
            code = FENCED if row.current_leader_epoch < log.epoch else UNKNOWN_EPOCH
        elif not log.start <= row.fetch_offset <= log.end:
            code = OUT_OF_RANGE
        elif log.faults.get(row.fetch_offset):
            code = log.faults[row.fetch_offset].pop(0)
        else:
            data = next((raw for _base, after, raw in log.batches if after > row.fetch_offset), b"")
        return FetchPartitionResponse(
            partition_index=row.partition,
            error_code=code,
            high_watermark=log.end,
            last_stable_offset=log.end if log.open_from is None else log.open_from,
            log_start_offset=log.start,
            records=memoryview(data),
        )

    def bounds(self, request: Any) -> ListOffsetsResponse:
        def end(log: Log) -> int:
            stable = request.isolation_level and log.open_from is not None
            return log.open_from or 0 if stable else log.end

        topics = []
        for topic in request.topics:
            logs = [(row, self.log(topic.name, row.partition_index)) for row in topic.partitions]
            rows = tuple(
                ListOffsetsPartitionResponse(
                    partition_index=row.partition_index,
                    error_code=0,
                    offset=log.start if row.timestamp == EARLIEST_TIMESTAMP else end(log),
                )
                for row, log in logs
            )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return ListOffsetsResponse(topics=tuple(topics))

    def epoch_end(self, request: Any) -> OffsetForLeaderEpochResponse:
        """As Kafka's LeaderEpochFileCache answers."""
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                log = self.log(topic.topic, row.partition)
                higher = [start for epoch, start in log.epochs if epoch > row.leader_epoch]
                known, code = row.leader_epoch <= log.epoch, 0
                if row.current_leader_epoch not in (-1, log.epoch):
                    known, code = False, FENCED if row.current_leader_epoch < log.epoch else UNKNOWN_EPOCH
                rows.append(
                    EpochEndOffsetPartition(
                        error_code=code,
                        partition=row.partition,
                        leader_epoch=row.leader_epoch if known else -1,
                        end_offset=min(higher, default=log.end) if known else -1,
                    )
                )
            topics.append(EpochEndOffsetTopic(topic=topic.topic, partitions=tuple(rows)))
        return OffsetForLeaderEpochResponse(topics=tuple(topics))

    def coordinator(self, _request: object = None) -> FindCoordinatorResponse:
        here = self.broker
        return FindCoordinatorResponse(error_code=0, node_id=here.node_id, host="127.0.0.1", port=here.port)

    def join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        """Let it lead a generation in which it is alone."""
        number = next(self.ids)
        member = request.member_id or f"member-{number}"
        chosen = request.protocols[0]
        row = JoinGroupMember(
            member_id=member, group_instance_id=request.group_instance_id, metadata=bytes(chosen.metadata)
        )
        return JoinGroupResponse(
            error_code=0,
            generation_id=number,
            protocol_type=request.protocol_type,
            protocol_name=chosen.name,
            leader=member,
            member_id=member,
            members=(row,),
        )

    def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        given = {row.member_id: bytes(row.assignment) for row in request.assignments}
        return SyncGroupResponse(error_code=0, assignment=given.get(request.member_id, b""))

    def commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        self.commits.append(
            {row.partition_index: row.committed_offset for topic in request.topics for row in topic.partitions}
        )
        topics = []
        for topic in request.topics:
            for row in topic.partitions:
                self.committed[request.group_id, topic.name, row.partition_index] = row
            rows = [
                OffsetCommitPartitionResponse(partition_index=row.partition_index, error_code=0)
                for row in topic.partitions
            ]
            topics.append(OffsetCommitTopicResponse(name=topic.name, partitions=tuple(rows)))
        return OffsetCommitResponse(topics=tuple(topics))

    def stored(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        topics = []
        for topic in request.topics or ():
            rows = []
            for number in topic.partition_indexes:
                kept = self.committed.get((request.group_id, topic.name, number))
                rows.append(
                    OffsetFetchPartitionResponse(
                        partition_index=number,
                        committed_offset=-1 if kept is None else kept.committed_offset,
                        committed_leader_epoch=-1 if kept is None else kept.committed_leader_epoch,
                        metadata="" if kept is None else kept.committed_metadata,
                        error_code=0,
                    )
                )
            topics.append(OffsetFetchTopicResponse(name=topic.name, partitions=tuple(rows)))
        return OffsetFetchResponse(topics=tuple(topics))

    def init_producer(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """Give a new id, or the next epoch of a transactional one."""
        name = request.transactional_id
        number, epoch = self.producers.get(name or "", (None, -1))
        made = (next(self.ids) if number is None else number, epoch + 1)
        if name is not None:
            self.producers[name] = made
        return InitProducerIdResponse(error_code=0, producer_id=made[0], producer_epoch=made[1])

    def end(self, request: EndTxnRequest) -> EndTxnResponse:
        """End it; with version 2 give the next epoch, to a second request like to the first."""
        if self.broker.seen(ApiKey.END_TXN)[-1].version < 5:
            return EndTxnResponse(error_code=0)
        made = (request.producer_id, request.producer_epoch + 1)
        self.producers[request.transactional_id] = made
        return EndTxnResponse(error_code=0, producer_id=made[0], producer_epoch=made[1])

    def store(self, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        topics = []
        for topic in request.topics:
            for row in topic.partitions:
                self.committed[request.group_id, topic.name, row.partition_index] = row
            rows = [
                TxnOffsetCommitResponsePartition(partition_index=row.partition_index, error_code=0)
                for row in topic.partitions
            ]
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=tuple(rows)))
        return TxnOffsetCommitResponse(topics=tuple(topics))

    def add_partitions(self, request: Any) -> AddPartitionsToTxnResponse:
        topics = tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=0)
                    for number in topic.partitions
                ),
            )
            for topic in request.v3_and_below_topics
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


def batch(base: int, count: int, epoch: int = 0) -> bytes:
    """Return a batch of records, each its offset as text."""
    rows = [NewRecord(b"%d" % (base + index)) for index in range(count)]
    return encode_batch(rows, BatchFields(base_offset=base, partition_leader_epoch=epoch))
