"""What a producer keeps of topics that nobody sends to any more: what its broker still checks, and nothing else."""

from __future__ import annotations

import time

from streamlet.base.backoff import Backoff
from streamlet.kafka import Consumer
from streamlet.kafka.metadata.cluster import Broker, Cluster, PartitionInfo, TopicInfo, TopicPartition
from streamlet.kafka.producer.accumulator import AccumulatorSettings, BufferPool, RecordAccumulator, Topics
from streamlet.kafka.producer.producer_batch import ProducerBatch, Sequences
from streamlet.kafka.producer.producer_config import ProducerConfig
from streamlet.kafka.protocol.schema import ApiKey
from tests.scripted.kafka.producer.scripted import scripted, until

BUSY, IDLE = TopicPartition("busy", 0), TopicPartition("idle", 0)


def cluster(*topics: str) -> Cluster:
    rows = [TopicInfo(name, None, {0: PartitionInfo(name, 0, 1, 0)}) for name in topics]
    return Cluster.of([Broker(1, "h", 1)], rows)


class Kept:
    """A producer's tables, without its thread."""

    def __init__(self) -> None:
        self.sequences = Sequences(False)
        self.sequences.set_id(7, 0)
        settings = AccumulatorSettings(200, 0.0, 10.0, Backoff(0.1, 1.0))
        self.accumulator = RecordAccumulator(settings, BufferPool(4000), self.sequences, lambda: 0.5)
        config = ProducerConfig.of({"bootstrap_servers": "127.0.0.1:1"})
        self.topics = Topics(config, self.accumulator, lambda: 0.5)
        self.topics.take_cluster(cluster("busy", "idle"))

    def put(self, tp: TopicPartition) -> ProducerBatch:
        assert self.accumulator.pool.try_take(200)
        batch = self.accumulator.open_batch(self.accumulator.queue(tp), 200, 0, 0.0)
        batch.append(b"x" * 20, 0)
        return batch

    def written(self, tp: TopicPartition) -> ProducerBatch:
        batch = self.put(tp)
        assert self.accumulator.drain([self.accumulator.queue(tp)], cluster("busy", "idle")) == [batch]
        batch.answered()
        batch.complete(0, -1)
        self.sequences.acked(batch)
        self.accumulator.forget(batch)
        self.accumulator.release(batch)
        return batch


def test_a_topic_that_is_not_used_any_more_leaves_nothing_behind() -> None:
    """Neither its queues nor the size its batches may have; its sequences when they are of an earlier epoch."""
    kept = Kept()
    kept.written(IDLE)
    kept.accumulator._largest["idle"] = 200
    kept.sequences._to_bump.add(BUSY)
    assert kept.sequences.bump_epoch()
    kept.topics.take_cluster(cluster("busy"))
    assert kept.topics.get("idle") is None and list(kept.accumulator._queues) == [BUSY]
    assert not kept.accumulator._largest and IDLE not in kept.sequences._partitions
    kept.topics.take_cluster(cluster("busy", "idle"))
    again = kept.written(IDLE)
    assert (again.producer_epoch, again.base_sequence) == (1, 0)


def test_sequences_that_the_broker_checks_are_not_forgotten() -> None:
    """Counted from 0 again under the same epoch, the next records would be refused, or taken for copies and lost."""
    kept = Kept()
    kept.written(IDLE)
    kept.topics.take_cluster(cluster("busy"))
    assert kept.topics.get("idle") is None
    kept.topics.take_cluster(cluster("busy", "idle"))
    again = kept.written(IDLE)
    assert (again.producer_epoch, again.base_sequence) == (0, 1)


def test_what_is_queued_or_on_its_way_keeps_its_topic() -> None:
    """Until it has its end; a partition that waits for an answer to what expired, too."""
    kept = Kept()
    queued = kept.put(IDLE)
    kept.topics.take_cluster(cluster("busy"))
    assert kept.topics.get("idle") is not None and kept.accumulator.queue(IDLE).batches[0] is queued
    assert kept.accumulator.drain([kept.accumulator.queue(IDLE)], cluster("idle")) == [queued]
    kept.topics.take_cluster(cluster("busy"))
    assert kept.topics.get("idle") is not None
    kept.accumulator.forget(queued)
    kept.accumulator.queue(IDLE).muted = True
    kept.topics.take_cluster(cluster("busy"))
    assert kept.topics.get("idle") is not None
    kept.accumulator.mute(IDLE, False)
    kept.topics.take_cluster(cluster("busy"))
    assert kept.topics.get("idle") is None
    kept.accumulator.mute(IDLE, False)
    assert list(kept.accumulator._queues) == [BUSY], "an answer that comes later makes no queue again"


def test_a_queue_that_was_forgotten_during_a_wait_for_memory_is_not_filled() -> None:
    """Its partition would have two, and no order."""
    kept = Kept()
    old = kept.accumulator.queue(IDLE)
    kept.topics.take_cluster(cluster("busy"))
    assert kept.accumulator.pool.try_take(200)
    batch = kept.accumulator.open_batch(old, 200, 0, 0.0)
    assert kept.accumulator.queue(IDLE) is not old
    assert kept.accumulator.queue(IDLE).open is batch and not old.batches


def test_m5_a_producers_topics_expire_after_its_setting_and_a_consumers_never() -> None:
    """As their metadata is told; what it does with that has tests of its own."""
    with scripted({"t": 1}, metadata_max_idle_ms=7000) as (broker, _log, producer):
        assert producer._sender.client.metadata._topic_idle_s == 7.0
        with Consumer(bootstrap_servers=broker.address) as consumer:
            assert consumer._client.metadata._topic_idle_s is None


def test_m5_each_send_renews_its_topic() -> None:
    """So that what is in use does not expire; a topic that is known is not asked for again."""
    with scripted({"t": 1}, metadata_max_age_ms=600_000) as (broker, _log, producer):
        producer.send("t", b"x").get(10)
        metadata = producer._sender.client.metadata
        used_s, asked = metadata._topics["t"], len(broker.seen(ApiKey.METADATA))
        until(lambda: time.monotonic() > used_s)
        producer.send("t", b"y").get(10)
        assert metadata._topics["t"] > used_s and len(broker.seen(ApiKey.METADATA)) == asked


def test_only_partitions_with_a_gap_are_looked_at_each_turn() -> None:
    """Idle ones cost nothing, however many there are."""
    sequences = Sequences(False)
    sequences.set_id(7, 0)
    batches = [ProducerBatch(TopicPartition("t", number), 0, 0.0) for number in range(3)]
    for batch in batches:
        batch.record_count = 1
        sequences.assign(batch)
    sequences.acked(batches[0])
    sequences.failed(batches[1], None)
    assert list(sequences._unresolved) == [batches[1].topic_partition]
    assert sequences.settle_unresolved() == [batches[1].topic_partition] and not sequences._unresolved


def test_long_keys_are_not_remembered() -> None:
    """Thousands of them would be held outside of buffer_memory."""
    topics = Kept().topics
    state = topics.get("busy")
    assert state is not None
    for key in (b"k" * 64, b"k" * 65):
        assert topics.keyed(state, key) == 0
    assert list(state.keys) == [b"k" * 64]


def test_a_topic_that_was_forgotten_is_used_again() -> None:
    """Its first record waits for metadata, like the first of all, and goes on in the same sequence."""
    with scripted({"t": 1}) as (_broker, log, producer):
        producer.send("t", b"x").get(10)
        metadata = producer._sender.client.metadata
        with producer._lock:
            del metadata._topics["t"]
        producer._sender.client.request_update()
        producer._sender.client.wakeup()
        until(lambda: producer._appender.topics.get("t") is None)
        assert not producer._sender.accumulator._queues
        assert producer.send("t", b"y").get(10).offset == 1
        assert [row[1:3] for row in log.batches] == [(0, 0), (0, 1)]
