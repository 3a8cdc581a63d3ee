"""The producer on real brokers; what it wrote is read back by librdkafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamlet.devcluster import DevCluster
from streamlet.kafka.producer import Producer
from tests.read_back import read_back

MakeTopic = Callable[..., str]


@pytest.fixture(params=["kafka39", "kafka4"])
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_sent_is_read_by_librdkafka(cluster: DevCluster, make_topic: MakeTopic, codec: str) -> None:
    """Every codec, keys, nulls, headers and times, singly and as a list; offsets are those of the log."""
    topic = make_topic(cluster, partitions=1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, compression_type=codec) as producer:
        futures = [
            producer.send(
                topic, b"v%d" % n * (n % 40), key=b"k%d" % n if n % 2 else None, timestamp_ms=1_700_000_000_000 + n
            )
            for n in range(500)
        ]
        futures.append(producer.send(topic, None, key=b"gone", headers=[("h", b"1"), ("null", None), ("é", b"")]))
        futures += producer.send_many(topic, [b"m%d" % n for n in range(500)])
        producer.flush(30)
        assert [future.get(0).offset for future in futures] == list(range(1001))
    rows = read_back(cluster, topic, 1001)
    assert [row.value for row in rows[:500]] == [b"v%d" % n * (n % 40) for n in range(500)]
    assert [row.key for row in rows[:500]] == [b"k%d" % n if n % 2 else None for n in range(500)]
    assert [row.timestamp for row in rows[:500]] == [1_700_000_000_000 + n for n in range(500)]
    assert (rows[500].value, rows[500].key) == (None, b"gone")
    assert rows[500].headers == [("h", b"1"), ("null", None), ("é", b"")]
    assert [row.value for row in rows[501:]] == [b"m%d" % n for n in range(500)]


def test_a_transaction_is_seen_when_it_is_committed_and_never_when_aborted(
    cluster: DevCluster, make_topic: MakeTopic, topic_name: Callable[[], str]
) -> None:
    """read_committed readers see the committed records alone; read_uncommitted ones see all."""
    topic = make_topic(cluster, partitions=2)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic_name()) as producer:
        producer.init_transactions()
        for turn in range(4):
            producer.begin_transaction()
            producer.send_many(topic, [b"%s %d" % (b"aborted" if turn % 2 else b"kept", n) for n in range(50)])
            producer.flush(20)
            if turn % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    kept = sorted(b"kept %d" % n for n in range(50) for _ in range(2))
    assert sorted(row.value for row in read_back(cluster, topic, 100)) == kept
    assert len(read_back(cluster, topic, 200, isolation="read_uncommitted")) == 200
