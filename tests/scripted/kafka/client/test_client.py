"""The client against librdkafka's mock cluster: another hand's protocol, leaders that move, errors on demand."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Producer

from streamlet.kafka import ClientConfig, KafkaClient, TopicPartition
from streamlet.kafka.broker_errors import NotLeaderOrFollower
from streamlet.kafka.client.group_requests import GroupOffsetCalls, OffsetAndMetadata
from streamlet.kafka.client.leader_requests import FetchPosition, FetchSettings, fetch
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S


class MockCluster:
    """librdkafka's mock cluster, in this process and over real sockets."""

    def __init__(self, brokers: int) -> None:
        package = Path(confluent_kafka.__file__).parent
        (library,) = [
            *package.parent.glob("confluent_kafka.libs/librdkafka-*.so*"),
            *package.glob(".dylibs/librdkafka*.dylib"),
        ]
        self._lib = lib = ctypes.CDLL(str(library))
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(lib, name).restype = ctypes.c_void_p
        lib.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        text = ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(lib.rd_kafka_conf_new())
        self._rk = ctypes.c_void_p(lib.rd_kafka_new(0, conf, text, 512))
        self._cluster = ctypes.c_void_p(lib.rd_kafka_mock_cluster_new(self._rk, brokers))
        self.bootstrap_servers = lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create_topic(self, topic: str, partitions: int) -> None:
        assert not self._lib.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1)

    def set_leader(self, topic: str, partition: int, broker: int) -> None:
        found = self._lib.rd_kafka_mock_partition_set_leader(self._cluster, topic.encode(), partition, broker)
        assert not found

    def push_errors(self, api: ApiKey, *codes: int) -> None:
        """The next answers of this API carry these errors."""
        array = (ctypes.c_int * len(codes))(*codes)
        self._lib.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(api), ctypes.c_size_t(len(codes)), array
        )

    def close(self) -> None:
        self._lib.rd_kafka_mock_cluster_destroy(self._cluster)
        self._lib.rd_kafka_destroy(self._rk)


@pytest.fixture
def mock() -> Iterator[MockCluster]:
    cluster = MockCluster(3)
    cluster.create_topic("lines", 3)
    yield cluster
    cluster.close()


@pytest.fixture
def client(mock: MockCluster) -> Iterator[KafkaClient]:
    with KafkaClient(ClientConfig(mock.bootstrap_servers)) as client:
        client.bootstrap(PATIENCE_S)
        client.wait_on_metadata("lines", PATIENCE_S)
        yield client


def read(client: KafkaClient, tp: TopicPartition) -> list[bytes | None]:
    """What the partition's present leader gives from the start."""
    leader = client.cluster.leader_for(tp)
    assert leader is not None
    position = {tp: FetchPosition(0, client.cluster.leader_epoch(tp))}
    part = client.wait(fetch(client, leader, position, FetchSettings(fetch_max_wait_ms=100)), PATIENCE_S)[tp]
    return [value for batch in part.batches() for value in batch.values]


def produce(mock: MockCluster, partition: int, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": mock.bootstrap_servers, "enable.idempotence": True})
    for value in values:
        producer.produce("lines", value, partition=partition)
    assert producer.flush(20) == 0


def test_each_partition_is_read_from_its_own_leader(mock: MockCluster, client: KafkaClient) -> None:
    """Each partition is read from its own leader."""
    assert set(client.cluster.brokers) == {1, 2, 3}
    for partition in range(3):
        mock.set_leader("lines", partition, partition + 1)
        produce(mock, partition, b"p%d" % partition)
    version = client.request_update()
    while client.metadata.update_version == version:
        client.poll(0.1)
    for partition in range(3):
        tp = TopicPartition("lines", partition)
        leader = client.cluster.leader_for(tp)
        assert leader is not None and leader.node_id == partition + 1
        assert read(client, tp) == [b"p%d" % partition]


def test_m4_a_leader_that_moved_is_found_by_the_error_it_gives(mock: MockCluster, client: KafkaClient) -> None:
    """The old leader refuses, that asks for metadata, and the new leader answers."""
    tp = TopicPartition("lines", 0)
    produce(mock, 0, b"a", b"b")
    old = client.cluster.leader_for(tp)
    assert old is not None
    moved = old.node_id % 3 + 1
    mock.set_leader("lines", 0, moved)
    version = client.metadata.update_version
    with pytest.raises(NotLeaderOrFollower, match=r"'lines', partition 0, from offset 0"):
        read(client, tp)
    while client.metadata.update_version == version:
        client.poll(0.1)
    leader = client.cluster.leader_for(tp)
    assert leader is not None and leader.node_id == moved
    assert read(client, tp) == [b"a", b"b"]


def test_a_coordinator_that_moves_is_looked_for_again(mock: MockCluster, client: KafkaClient) -> None:
    """NOT_COORDINATOR forgets it; the next try finds it and succeeds."""
    store = GroupOffsetCalls(client, "g")
    offsets = {TopicPartition("lines", 0): OffsetAndMetadata(5, 0)}
    client.wait_retrying(lambda: store.commit(offsets), PATIENCE_S)
    assert store.coordinator is not None
    mock.push_errors(ApiKey.OFFSET_FETCH, 16)
    assert client.wait_retrying(lambda: store.fetch(offsets), PATIENCE_S) == offsets
    mock.push_errors(ApiKey.OFFSET_COMMIT, 16)
    assert client.wait(store.commit(offsets), PATIENCE_S) != dict.fromkeys(offsets)
    assert store.coordinator is None
    assert client.wait(store.commit(offsets), PATIENCE_S) == dict.fromkeys(offsets)
