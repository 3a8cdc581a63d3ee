"""Reads records and writes them in transactions together with its offsets; dies when its standard input ends.

    python -m tests.faults.producer_child BOOTSTRAP SOURCE TARGET ID PARTITIONS RECORDS

Says ``open`` when a transaction has records and offsets and is not committed, and waits for a line; then ``done``.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, TopicPartition

from streamlet.kafka import OffsetAndMetadata, Producer
from streamlet.kafka import TopicPartition as Partition


def main() -> int:
    bootstrap, source, target, name, partitions, records = sys.argv[1:]
    settings = {"bootstrap.servers": bootstrap, "group.id": name, "enable.auto.commit": False}
    consumer = Consumer(settings | {"isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    try:
        with Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
            producer.init_transactions()  # fences the one before, and settles what it left
            rows = consumer.committed([TopicPartition(source, number) for number in range(int(partitions))], 30)
            for row in rows:
                row.offset = max(row.offset, 0)
            positions = {row.partition: row.offset for row in rows}
            consumer.assign(rows)
            while sum(positions.values()) < int(records):
                messages = [row for row in consumer.consume(200, 0.5) if not row.error()]
                if not messages:
                    continue
                producer.begin_transaction()
                for row in messages:
                    producer.send(target, row.value(), partition=row.partition())
                    positions[row.partition()] = row.offset() + 1
                offsets = {Partition(source, number): OffsetAndMetadata(at) for number, at in positions.items()}
                producer.send_offsets_to_transaction(offsets, name)
                producer.flush(60)
                print("open", flush=True)
                if not sys.stdin.readline():
                    return 1
                producer.commit_transaction()
    finally:
        consumer.close()
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
