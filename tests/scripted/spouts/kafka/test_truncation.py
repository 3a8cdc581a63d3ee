"""A log that was truncated and written anew under a stored or a running position (KIP-320), by a scripted broker."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamlet.devcluster.fake_broker import FakeBroker
from streamlet.kafka.protocol.api import ApiKey
from streamlet.kafka.protocol.messages.fetch import (
    EARLIEST_TIMESTAMP,
    EpochEndOffsetPartition,
    EpochEndOffsetTopic,
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochResponse,
)
from streamlet.kafka.protocol.messages.groups import FindCoordinatorResponse
from streamlet.kafka.protocol.messages.metadata import MetadataPartition, MetadataResponse, MetadataTopic
from streamlet.kafka.protocol.messages.offsets import (
    OffsetCommitPartitionResponse,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchResponse,
    OffsetFetchTopicResponse,
)
from streamlet.kafka.records.writing import BatchFields, NewRecord, encode_batch
from streamlet.spouts.kafka import KafkaHosts, SpoutConfig
from streamlet.spouts.kafka.errors import OffsetsLost

TOPIC = "lines"
FENCED, UNKNOWN_EPOCH, UNAUTHORIZED = 74, 75, 31


class Log:
    """A partition's log on a broker of its own: (value, leader epoch) by offset. Group offsets are kept, too."""

    def __init__(self, broker: FakeBroker) -> None:
        self.records: list[tuple[str, int]] = []
        self.epoch = 0
        self.starts = [(0, 0)]
        self.committed: dict[str, Any] = {}
        self.errors: list[int] = []
        self.broker = broker
        broker.topics = {TOPIC: 1}
        broker.on(ApiKey.METADATA, self.metadata).on(ApiKey.FETCH, self.fetch).on(ApiKey.LIST_OFFSETS, self.bounds)
        broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, self.epoch_end).on(ApiKey.OFFSET_FETCH, self.stored)
        broker.on(ApiKey.FIND_COORDINATOR, self.coordinator).on(ApiKey.OFFSET_COMMIT, self.commit)

    # -- what happens to it

    def append(self, *values: str) -> None:
        self.records += [(value, self.epoch) for value in values]

    def elect(self, keeps: int) -> None:
        """Another leader, whose log ended at ``keeps``."""
        del self.records[keeps:]
        self.epoch += 1
        self.starts = [(epoch, start) for epoch, start in self.starts if start < keeps] + [(self.epoch, keeps)]

    # -- what its broker answers

    def metadata(self, request: Any) -> MetadataResponse:
        answer = self.broker.metadata(request)
        partition = MetadataPartition(
            error_code=0, partition_index=0, leader_id=self.broker.node_id, leader_epoch=self.epoch, replica_nodes=(1,)
        )
        return MetadataResponse(
            brokers=answer.brokers,
            cluster_id="fake",
            controller_id=self.broker.node_id,
            topics=(MetadataTopic(error_code=0, name=TOPIC, partitions=(partition,)),),
        )

    def fetch(self, request: Any) -> FetchResponse:
        (row,) = request.topics[0].partitions
        error, data = 0, b""
        if row.current_leader_epoch not in (-1, self.epoch):
            error = FENCED if row.current_leader_epoch < self.epoch else UNKNOWN_EPOCH
        elif row.fetch_offset > len(self.records):
            error = 1
        elif row.fetch_offset < len(self.records):
            for offset in range(row.fetch_offset, len(self.records)):
                value, epoch = self.records[offset]
                data += encode_batch([NewRecord(value.encode())], BatchFields(offset, partition_leader_epoch=epoch))
        end = len(self.records)
        found = FetchPartitionResponse(
            partition_index=0, error_code=error, high_watermark=end, last_stable_offset=end, records=memoryview(data)
        )
        return FetchResponse(topics=(FetchTopicResponse(topic=TOPIC, partitions=(found,)),))

    def bounds(self, request: Any) -> ListOffsetsResponse:
        (row,) = request.topics[0].partitions
        offset = 0 if row.timestamp == EARLIEST_TIMESTAMP else len(self.records)
        found = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=offset)
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name=TOPIC, partitions=(found,)),))

    def epoch_end(self, request: Any) -> OffsetForLeaderEpochResponse:
        """As Kafka's LeaderEpochFileCache answers."""
        (row,) = request.topics[0].partitions
        error = self.errors.pop(0) if self.errors else 0
        higher = [start for epoch, start in self.starts if epoch > row.leader_epoch]
        if row.leader_epoch > self.epoch or error:
            known, end = -1, -1
        else:
            known, end = row.leader_epoch, min(higher, default=len(self.records))
        found = EpochEndOffsetPartition(error_code=error, partition=0, leader_epoch=known, end_offset=end)
        return OffsetForLeaderEpochResponse(topics=(EpochEndOffsetTopic(topic=TOPIC, partitions=(found,)),))

    def coordinator(self, request: Any) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            error_code=0, node_id=self.broker.node_id, host="127.0.0.1", port=self.broker.port
        )

    def stored(self, request: Any) -> OffsetFetchResponse:
        kept = self.committed.get(request.group_id)
        found = OffsetFetchPartitionResponse(
            partition_index=0,
            committed_offset=-1 if kept is None else kept.committed_offset,
            committed_leader_epoch=-1 if kept is None else kept.committed_leader_epoch,
            metadata="" if kept is None else kept.committed_metadata,
            error_code=0,
        )
        return OffsetFetchResponse(topics=(OffsetFetchTopicResponse(name=TOPIC, partitions=(found,)),))

    def commit(self, request: Any) -> OffsetCommitResponse:
        (self.committed[request.group_id],) = request.topics[0].partitions
        found = OffsetCommitPartitionResponse(partition_index=0, error_code=0)
        return OffsetCommitResponse(topics=(OffsetCommitTopicResponse(name=TOPIC, partitions=(found,)),))


@pytest.fixture
def log() -> Iterator[Log]:
    with FakeBroker() as broker:
        yield Log(broker)


@pytest.fixture
def spout(log: Log, harness: Callable[..., Any]) -> Callable[..., Any]:
    def start(name: str = "demo", **settings: Any) -> Any:
        quick = {"state_update_interval_ms": 50, "fetch_max_wait_ms": 20, "start_timeout_ms": 5000, **settings}
        return harness(SpoutConfig(KafkaHosts(log.broker.address), TOPIC, id=name, **quick))

    return start


def read_all(one: Any, count: int) -> list[str]:
    """Read, ack, commit; the values."""
    taken = one.take(count)
    one.spout.ack_many([tup_id for _, tup_id in taken])
    one.until(one.committed(one.status()["position"]))
    return [values[0] for values, _ in taken]


def test_a_stored_offset_is_kept_with_the_epoch_of_the_record_before_it(log: Log, spout: Any) -> None:
    """Also by a run that has read nothing: what it found is what it leaves."""
    log.append("a", "b")
    log.elect(keeps=2)
    log.append("c")
    one = spout()
    assert read_all(one, 3) == ["a", "b", "c"]
    one.spout.close()
    for _ in range(2):
        kept = log.committed["demo"]
        assert (kept.committed_offset, kept.committed_leader_epoch) == (3, 1)
        assert json.loads(kept.committed_metadata)["leader_epoch"] == 1
        again = spout()
        again.turn()
        again.spout.close()


@pytest.mark.parametrize("running", [True, False])
def test_a_log_written_anew_below_the_position_stops_the_spout_with_the_exact_range(
    log: Log, spout: Any, running: bool
) -> None:
    """The position is inside the log again, so nothing is out of range: only the epochs tell."""
    log.append(*"abcdef")
    one = spout()
    read_all(one, 6)
    if not running:
        one.spout.close()
    log.elect(keeps=4)
    log.append(*"EFGH")
    with pytest.raises(OffsetsLost, match=r"partition 0: .* offset 6, .* from offset 4 on .* \[4, 5\] \(2 offsets\)"):
        one.until(lambda: False) if running else spout()
    assert log.committed["demo"].committed_offset == 6, "nothing was changed"


@pytest.mark.parametrize("running", [True, False])
def test_where_loss_is_accepted_what_was_written_anew_is_read_and_the_loss_counted(
    log: Log, spout: Any, running: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """From where the logs parted on: nobody has read what stands there now."""
    log.append(*"abcdef")
    one = spout(fail_on_data_loss=False)
    read_all(one, 6)
    if not running:
        one.spout.close()
    log.elect(keeps=4)
    log.append(*"EFGH")
    with caplog.at_level(logging.ERROR):
        one = one if running else spout(fail_on_data_loss=False)
        assert read_all(one, 4) == list("EFGH")
    assert "offsets [4, 5] (2 offsets) are lost, going on at 4" in caplog.text
    assert one.spout._parts.coordinator._opener.lost_offsets == 2


def test_an_election_that_lost_nothing_changes_nothing(log: Log, spout: Any) -> None:
    """It is asked, and reading goes on: no record twice, none left out."""
    log.append(*"abc")
    one = spout()
    read_all(one, 3)
    log.elect(keeps=3)
    log.append(*"de")
    assert read_all(one, 2) == ["d", "e"]
    (asked,) = log.broker.seen(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    (row,) = asked.request.topics[0].partitions
    assert (row.leader_epoch, row.current_leader_epoch) == (0, 1)


def test_while_it_cannot_be_said_it_is_asked_again_and_nothing_is_read(log: Log, spout: Any) -> None:
    """A leader that does not know yet that it is one."""
    log.append(*"abc")
    one = spout()
    read_all(one, 3)
    log.errors = [UNKNOWN_EPOCH] * 3
    log.elect(keeps=2)
    log.append(*"CDE")
    with pytest.raises(OffsetsLost, match=r"\[2, 2\] \(1 offsets\)"):
        one.until(lambda: bool(one.tuples))
    assert not log.errors and not one.tuples


def test_where_it_may_not_be_asked_reading_goes_on(log: Log, spout: Any, caplog: pytest.LogCaptureFixture) -> None:
    """As without the question; a warning says so."""
    log.append(*"abc")
    one = spout()
    read_all(one, 3)
    log.errors = [UNAUTHORIZED]
    log.elect(keeps=3)
    log.append("d")
    with caplog.at_level(logging.WARNING):
        assert read_all(one, 1) == ["d"]
    assert "whether its log was truncated cannot be asked" in caplog.text
