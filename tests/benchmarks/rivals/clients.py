"""One client, one job, in a process of its own: ``python -m tests.benchmarks.rivals.clients CLIENT JOB ...``.

Prints one JSON object: records, seconds, microseconds of CPU a record, peak memory in MiB. The clock of a consumer
starts with its first records and stops with the last; that of a producer starts with the first send and stops when all
are acknowledged. Whoever starts this compares the number of records with what the broker has.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import TypeVar

from streamlet.kafka import Consumer, ConsumerRecord, Producer, TopicPartition

LINGER_MS = 5
Polled = TypeVar("Polled", bound=Sized)
PARTITIONS = 2


class Meter:
    """Wall clock and CPU between :meth:`start` and :meth:`stop`."""

    def __init__(self) -> None:
        self.begun = 0.0

    def start(self) -> None:
        """Once; later calls change nothing."""
        if not self.begun:
            self.begun, self.cpu = time.perf_counter(), time.process_time()

    def stop(self, records: int) -> dict[str, float]:
        """What is printed."""
        seconds, cpu = time.perf_counter() - self.begun, time.process_time() - self.cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"records": records, "seconds": seconds, "cpu_us": cpu / records * 1e6, "peak_mib": peak}


class Job:
    """What every client is given."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.servers: str = options.servers
        self.topic: str = options.topic
        self.records: int = options.records
        self.value = bytes(range(97, 123)) * (options.size // 26 + 1)
        self.value = self.value[: options.size]
        self.meter = Meter()


def streamlet_produce(job: Job) -> int:
    """A future for each record."""
    with Producer(bootstrap_servers=job.servers, acks="all", linger_ms=LINGER_MS) as producer:
        producer.partitions_for(job.topic)
        job.meter.start()
        send, topic, value = producer.send, job.topic, job.value
        for _ in range(job.records):
            last = send(topic, value)
        producer.flush()
        assert last.get(timeout=10).offset >= 0
    return job.records


def streamlet_produce_many(job: Job) -> int:
    """Lists of a thousand."""
    with Producer(bootstrap_servers=job.servers, acks="all", linger_ms=LINGER_MS) as producer:
        producer.partitions_for(job.topic)
        job.meter.start()
        values = [job.value] * 1000
        for _ in range(job.records // 1000):
            producer.send_many(job.topic, values)
        producer.flush()
    return job.records // 1000 * 1000


def _consume(job: Job, poll: Callable[..., Mapping[TopicPartition, Polled]], size_of: Callable[[Polled], int]) -> int:
    seen = size = 0
    with Consumer(bootstrap_servers=job.servers, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition(job.topic, number) for number in range(PARTITIONS)])
        while seen < job.records:
            for polled in poll(consumer, timeout_ms=1000, max_records=5000).values():
                job.meter.start()
                size += size_of(polled)
                seen += len(polled)
    assert size == seen * len(job.value)
    return seen


def streamlet_consume(job: Job) -> int:
    """Record objects."""

    def size_of(records: Sequence[ConsumerRecord]) -> int:
        size = 0
        for record in records:
            size += len(record.value)
        return size

    return _consume(job, Consumer.poll, size_of)


def streamlet_consume_columns(job: Job) -> int:
    """Columns: no object a record."""
    return _consume(job, Consumer.poll_columns, lambda columns: sum(map(len, columns.values)))


def aiokafka_produce(job: Job) -> int:
    """``send`` awaited for each record: it gives a future."""
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=job.servers, acks="all", linger_ms=LINGER_MS) as producer:
            await producer.partitions_for(job.topic)
            job.meter.start()
            for _ in range(job.records):
                last = await producer.send(job.topic, job.value)
            await producer.flush()
            await last

    asyncio.run(run())
    return job.records


def aiokafka_consume(job: Job) -> int:
    """``getmany``, its fastest."""
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as Partition

    async def run() -> int:
        seen = size = 0
        consumer = AIOKafkaConsumer(
            bootstrap_servers=job.servers, auto_offset_reset="earliest", enable_auto_commit=False
        )
        async with consumer:
            consumer.assign([Partition(job.topic, number) for number in range(PARTITIONS)])
            while seen < job.records:
                found = await consumer.getmany(timeout_ms=1000, max_records=5000)
                for records in found.values():
                    job.meter.start()
                    for record in records:
                        size += len(record.value)
                    seen += len(records)
        assert size == seen * len(job.value)
        return seen

    return asyncio.run(run())


def kafka_python_produce(job: Job) -> int:
    """A future for each record."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=job.servers, acks="all", linger_ms=LINGER_MS)
    producer.partitions_for(job.topic)
    job.meter.start()
    for _ in range(job.records):
        last = producer.send(job.topic, job.value)
    producer.flush()
    assert last.get(timeout=10).offset >= 0
    producer.close()
    return job.records


def kafka_python_consume(job: Job) -> int:
    """``poll``."""
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Partition

    consumer = KafkaConsumer(bootstrap_servers=job.servers, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([Partition(job.topic, number) for number in range(PARTITIONS)])
    seen = size = 0
    while seen < job.records:
        for records in consumer.poll(timeout_ms=1000, max_records=5000).values():
            job.meter.start()
            for record in records:
                size += len(record.value)
            seen += len(records)
    consumer.close()
    assert size == seen * len(job.value)
    return seen


def confluent_produce(job: Job) -> int:
    """librdkafka, with a callback a record as its own examples have it."""
    from confluent_kafka import Producer as Rdkafka

    settings = {"bootstrap.servers": job.servers, "acks": "all", "linger.ms": LINGER_MS}
    producer = Rdkafka({**settings, "enable.idempotence": True})
    producer.list_topics(job.topic, 10)
    delivered = 0

    def told(error: object, _message: object) -> None:
        nonlocal delivered
        assert error is None, error
        delivered += 1

    job.meter.start()
    for number in range(job.records):
        while True:
            try:
                producer.produce(job.topic, job.value, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.01)
        if not number % 1000:
            producer.poll(0)
    producer.flush()
    return delivered


def confluent_consume(job: Job) -> int:
    """librdkafka, ``consume`` in batches; without its default back-off of a second, which stalls it."""
    from confluent_kafka import Consumer as Rdkafka
    from confluent_kafka import TopicPartition as Partition

    settings = {"bootstrap.servers": job.servers, "group.id": "figures", "enable.auto.commit": False}
    consumer = Rdkafka({**settings, "fetch.queue.backoff.ms": 1})
    consumer.assign([Partition(job.topic, number, 0) for number in range(PARTITIONS)])
    seen = size = 0
    while seen < job.records:
        for message in consumer.consume(5000, 1.0):
            job.meter.start()
            assert message.error() is None, message.error()
            size += len(message.value())
            seen += 1
    consumer.close()
    assert size == seen * len(job.value)
    return seen


JOBS: dict[str, Callable[[Job], int]] = {
    "streamlet-produce": streamlet_produce,
    "streamlet-produce-many": streamlet_produce_many,
    "streamlet-consume": streamlet_consume,
    "streamlet-consume-columns": streamlet_consume_columns,
    "aiokafka-produce": aiokafka_produce,
    "aiokafka-consume": aiokafka_consume,
    "kafka-python-produce": kafka_python_produce,
    "kafka-python-consume": kafka_python_consume,
    "confluent-kafka-produce": confluent_produce,
    "confluent-kafka-consume": confluent_consume,
}


def main() -> None:
    """Run one, print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    options = parser.parse_args()
    job = Job(options)
    seen = JOBS[options.job](job)
    print(json.dumps(job.meter.stop(seen)))


if __name__ == "__main__":
    main()
