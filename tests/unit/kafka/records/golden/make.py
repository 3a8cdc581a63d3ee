"""Write the golden logs: what Java's producer and librdkafka's put into a real broker, byte for byte.

``python tests/unit/kafka/records/golden/make.py [NAME ...]`` from the top of the checkout, which must be on PYTHONPATH;
needs a JDK (``Write.java`` is run from its source). With names, only those logs are written again. Each ``NAME.log`` is
the partition's segment as the broker has it on disk; ``expected.json`` has what librdkafka's consumer reads of it (all
of it, and read_committed) and the aborted transactions of the broker's own index. The cluster is thrown away.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streamlet.devcluster import DevCluster

HERE = Path(__file__).parent
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS: dict[str, dict[str, str]] = {
    **{f"java-{codec}": {} for codec in CODECS},
    "java-headers": {},
    "java-append-time": {"message.timestamp.type": "LogAppendTime"},
    "java-transactions": {},
    "java-compacted": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": "2000",
        "delete.retention.ms": "3600000",
    },
    **{f"rdkafka-{codec}": {} for codec in CODECS},
    "rdkafka-emptied": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": "2000",
        "delete.retention.ms": "3600000",
    },
}
TXN_ENTRY = struct.Struct(">hqqqq")
SETTINGS = {"log.cleaner.backoff.ms": 200, "transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}


def rdkafka(servers: str, codec: str) -> None:
    """The same kind of records as Write.java's, by librdkafka."""
    config = {"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 200, "batch.num.messages": 150}
    producer = Producer(config)
    for n in range(150):
        producer.produce(
            f"rdkafka-{codec}",
            None if n % 50 == 41 else f"line {n} ".encode() * (n % 40),
            key=None if n % 3 == 0 else f"k{n}".encode(),
            partition=0,
            timestamp=1_700_000_000_000 + 7 * n,
            headers=[("h", b"v"), ("null", None)] if n % 100 == 0 else None,
        )
    assert producer.flush(30) == 0


def emptied(servers: str) -> None:
    """Batches of producers that wrote no more, all of whose keys others wrote later.

    The cleaner takes their records and keeps the last batch of each, for its producer's sequence.
    """
    for turn in range(12):
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        for key in (b"a", b"b"):
            producer.produce("rdkafka-emptied", b"%d " % turn * 150, key=key, partition=0, timestamp=1_700_000_000_000)
        assert producer.flush(30) == 0


def consume(servers: str, topic: str, isolation: str) -> list[dict[str, Any]]:
    """Every record that librdkafka hands out."""
    config = {
        "bootstrap.servers": servers,
        "group.id": "golden",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "check.crcs": True,
    }
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    rows: list[dict[str, Any]] = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            break
        key, value = message.key(), message.value()
        rows.append(
            {
                "offset": message.offset(),
                "timestamp": message.timestamp()[1],
                "key": None if key is None else key.hex(),
                "value": None if value is None else [len(value), zlib.crc32(value)],
                "headers": [[n, None if v is None else v.hex()] for n, v in message.headers() or []],
            }
        )
    consumer.close()
    return rows


def segments(cluster: DevCluster, topic: str, suffix: str) -> list[Path]:
    """The partition's files, oldest first."""
    return sorted((cluster.directory / "broker-0" / "data" / f"{topic}-0").glob(f"*.{suffix}"))


def wait_for_compaction(cluster: DevCluster, topic: str, below: int | None = None) -> None:
    """Until the cleaner has been over all closed segments: fewer bytes (than ``below``), and no more change."""
    before = sum(path.stat().st_size for path in segments(cluster, topic, "log"))
    deadline, sizes = time.monotonic() + 90, [before]
    while sizes[-1] >= (below or before) or len(set(sizes[-15:])) > 1 or len(sizes) < 15:
        assert time.monotonic() < deadline, "the log cleaner did nothing"
        time.sleep(0.2)
        sizes.append(sum(path.stat().st_size for path in segments(cluster, topic, "log")))


def main() -> None:
    """Start a cluster, write, copy."""
    names = sys.argv[1:] or list(TOPICS)
    expected = json.loads((HERE / "expected.json").read_text()) if sys.argv[1:] else {}
    with DevCluster("3.9", broker_settings=SETTINGS) as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        # The timestamps are fixed and old: retention would take the records away under our hands.
        topics = [NewTopic(name, 1, 1, config={"retention.ms": "-1", **config}) for name, config in TOPICS.items()]
        for future in admin.create_topics(topics, operation_timeout=30).values():
            future.result(30)
        command = ["java", "-cp", f"{cluster.installation.jars}/*", str(HERE / "Write.java"), servers]
        subprocess.run(command, check=True, timeout=120)
        for codec in CODECS:
            rdkafka(servers, codec)
        if "java-compacted" in names:
            wait_for_compaction(cluster, "java-compacted")
        if "rdkafka-emptied" in names:
            emptied(servers)
            wait_for_compaction(cluster, "rdkafka-emptied", below=6000)
        for name in names:
            raw = b"".join(path.read_bytes() for path in segments(cluster, name, "log"))
            index = b"".join(path.read_bytes() for path in segments(cluster, name, "txnindex"))
            (HERE / f"{name}.log").write_bytes(raw)
            expected[name] = {
                "aborted": [[row[1], row[2]] for row in TXN_ENTRY.iter_unpack(index)],
                "all": consume(servers, name, "read_uncommitted"),
                "committed": consume(servers, name, "read_committed"),
            }
            if expected[name]["committed"] == expected[name]["all"]:
                del expected[name]["committed"]
    text = json.dumps(expected, indent=None, separators=(",", ":"), ensure_ascii=True)
    (HERE / "expected.json").write_text(text.replace('},{"offset"', '},\n{"offset"') + "\n")


if __name__ == "__main__":
    main()
