"""What our producer leaves on a broker's disk, as Kafka's own dump tool and librdkafka see it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from streamlet.devcluster import DevCluster
from streamlet.devcluster.members import data_directory
from streamlet.kafka.producer import Producer
from tests.read_back import Row, read_back

MakeTopic = Callable[..., str]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADERS = [("h", b"1"), ("null", None), ("é", b"")]


def write(producer: Producer, topic: str, start: int, count: int) -> None:
    """Two batches at least: nulls, keys, headers, empty values."""
    for n in range(start, start + count):
        value = None if n % 7 == 0 else b"value %d " % n * (n % 40)
        key = None if n % 3 == 0 else b"k%d" % n
        headers = HEADERS if n % 5 == 0 else None
        producer.send(topic, value, key=key, headers=headers, timestamp_ms=1_700_000_000_000 + n)
    producer.flush(30)


def expected(topic_start: int, count: int, first_offset: int = 0) -> list[Row]:
    """The same, as it is to be read back."""
    return [
        Row(
            0,
            first_offset + n - topic_start,
            None if n % 3 == 0 else b"k%d" % n,
            None if n % 7 == 0 else b"value %d " % n * (n % 40),
            1_700_000_000_000 + n,
            list(HEADERS) if n % 5 == 0 else [],
        )
        for n in range(topic_start, topic_start + count)
    ]


@pytest.mark.parametrize("release", ["kafka39", "kafka4"])
def test_kafkas_dump_tool_finds_every_batch_of_the_producer_valid(
    release: str, request: pytest.FixtureRequest, make_topic: MakeTopic, topic_name: Callable[[], str]
) -> None:
    """Each codec idempotent and not, a committed and an aborted transaction with their markers: checksums verified.

    librdkafka reads the same records; of the transactions the committed one alone, under read_committed.
    """
    cluster: DevCluster = request.getfixturevalue(release)
    # The timestamps are old: retention would take the records away under our hands.
    topic, inside = (make_topic(cluster, configs={"retention.ms": "-1"}) for _ in range(2))
    for number, codec in enumerate(CODECS):
        for idempotent in (True, False):
            with Producer(
                bootstrap_servers=cluster.bootstrap_servers, compression_type=codec, enable_idempotence=idempotent
            ) as producer:
                write(producer, topic, 200 * number + 100 * (not idempotent), 100)
    settings = {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": topic_name()}
    with Producer(**settings) as producer:
        producer.init_transactions()
        for start, end in ((0, producer.commit_transaction), (50, producer.abort_transaction)):
            producer.begin_transaction()
            write(producer, inside, start, 50)
            end()
    assert read_back(cluster, topic, 1000) == expected(0, 1000)
    # What the aborted transaction wrote may still lack its marker for a moment: then reading stops before it.
    assert read_back(cluster, inside, 50) == expected(0, 50)
    everything = read_back(cluster, inside, 100, isolation="read_uncommitted")
    assert everything == expected(0, 50) + expected(50, 50, first_offset=51)

    folder = data_directory(cluster.installation, 0)
    text = cluster.dump_segments([path for name in (topic, inside) for path in (folder / f"{name}-0").glob("*.log")])
    found = {topic: "", inside: ""}
    for name, part in re.findall(r"^Dumping \S+/(\S+)-0/\d+\.log$(.*?)(?=^Dumping|\Z)", text, re.M | re.S):
        found[name] += part  # a log may have several segments
    plain, transactional = found.values()
    for part in (plain, transactional):
        batches = re.findall(r"^baseOffset: .*$", part, flags=re.M)
        assert batches and all("isvalid: true" in batch for batch in batches)
    assert set(re.findall(r"compresscodec: (\w+)", plain)) == set(CODECS)
    sequences = re.findall(r"baseSequence: (-?\d+) lastSequence: -?\d+ producerId: (-?\d+)", plain)
    assert ("-1", "-1") in sequences and sum(first == "0" and int(who) >= 0 for first, who in sequences) == len(CODECS)
    assert len(re.findall(r"^\| offset: ", plain, flags=re.M)) == 1000
    assert plain.count("headerKeys: [h,null,é]") == 200
    assert re.findall(r"endTxnMarker: (\w+)", transactional) == ["COMMIT", "ABORT"]
    assert transactional.count("isTransactional: true isControl: false") >= 2
