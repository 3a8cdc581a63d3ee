"""The consumer on real brokers: what it reads, and how far it says it has read."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from streamlet.devcluster import DevCluster
from streamlet.kafka import Consumer, OffsetAndMetadata, Producer, TopicPartition
from streamlet.kafka.consumer.errors import IllegalSubscription, NoOffsetForPartition, RecordDeserializationFailed
from tests.consumers import take, until
from tests.patience import PATIENCE_S

Make = Callable[..., Consumer]


@pytest.fixture(params=["3.9", "4"])
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    """Both brokers, one after the other."""
    found: DevCluster = request.getfixturevalue("kafka39" if request.param == "3.9" else "kafka4")
    return found


def test_c1_assign_reads_what_was_written(
    cluster: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """Without a group: every record with offset, time, key and value; the same as records and as columns."""
    topic = make_topic(cluster, partitions=2)
    for number in (0, 1):
        produce(cluster, topic, [b"%d-%d" % (number, i) for i in range(700)], number, b"k")
    tps = [TopicPartition(topic, number) for number in (0, 1)]
    consumer = make_consumer(cluster, value_deserializer=bytes.decode)
    consumer.assign(tps)
    records = take(consumer, 1400)
    for tp in tps:
        mine = [record for record in records if record.partition == tp.partition]
        assert [record.offset for record in mine] == list(range(700))
        assert [record.value for record in mine] == [f"{tp.partition}-{i}" for i in range(700)]
        assert {record.key for record in mine} == {b"k"}
        assert all(abs(record.timestamp / 1000 - time.time()) < 600 for record in mine)
        assert consumer.position(tp) == 700
        assert consumer.lag(tp) == 0
    consumer.seek_to_beginning()
    values: dict[TopicPartition, list[str]] = {tp: [] for tp in tps}
    while sum(map(len, values.values())) < 1400:
        for tp, columns in consumer.poll_columns(5000).items():
            assert list(columns.offsets) == list(range(len(values[tp]), len(values[tp]) + len(columns)))
            values[tp] += columns.values
    assert values == {tp: [f"{tp.partition}-{i}" for i in range(700)] for tp in tps}


def test_c1_subscribe_and_assign_exclude_each_other(
    kafka4: DevCluster, make_topic: Callable[..., str], make_consumer: Make
) -> None:
    """The second is refused until unsubscribe; a subscription needs a group."""
    topic = make_topic(kafka4)
    consumer = make_consumer(kafka4, group_id=topic)
    consumer.assign([TopicPartition(topic, 0)])
    with pytest.raises(IllegalSubscription, match=r"unsubscribe\(\) first"):
        consumer.subscribe([topic])
    consumer.unsubscribe()
    consumer.subscribe([topic])
    with pytest.raises(IllegalSubscription, match="exclude one another"):
        consumer.assign([TopicPartition(topic, 0)])
    with pytest.raises(IllegalSubscription, match="no group_id"):
        make_consumer(kafka4, topic)


def test_c1_a_group_is_a_queue_and_several_groups_are_a_broadcast(
    cluster: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """Two members of one group share the records out, a second group gets all of them too."""
    topic = make_topic(cluster, partitions=2)
    members = [make_consumer(cluster, topic, group_id=f"{topic}-q", heartbeat_interval_ms=200) for _ in range(2)]
    other = make_consumer(cluster, topic, group_id=f"{topic}-b")
    until(members, lambda: all(len(member.assignment()) == 1 for member in members))
    for number in (0, 1):
        produce(cluster, topic, [b"%d" % i for i in range(50)], number)
    seen: list[tuple[Consumer, tuple[int, int]]] = []
    until(
        members,
        lambda: len(seen) >= 100,
        lambda who, rows: seen.extend((who, (row.partition, row.offset)) for row in rows),
    )
    written = [(number, offset) for number in (0, 1) for offset in range(50)]
    assert sorted(place for _, place in seen) == written
    assert {who for who, _ in seen} == set(members)
    assert sorted((row.partition, row.offset) for row in take(other, 100)) == written


def test_c1_a_pattern_finds_topics_that_come_later(
    kafka4: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """The group is joined again when a topic that matches appears."""
    first = make_topic(kafka4)
    consumer = make_consumer(kafka4, group_id=first, metadata_max_age_ms=300)
    consumer.subscribe(pattern=f"{first}(-more)?")
    until([consumer], lambda: len(consumer.assignment()) == 1)
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": kafka4.bootstrap_servers})
    admin.create_topics([NewTopic(f"{first}-more", 1, 1)], operation_timeout=20)[f"{first}-more"].result(30)
    until([consumer], lambda: len(consumer.assignment()) == 2)
    produce(kafka4, f"{first}-more", [b"x"])
    assert take(consumer, 1)[0].topic == f"{first}-more"


def test_c2_seek_pause_and_resume_move_and_hold_what_is_read(
    cluster: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """Positions are the user's to move; a paused partition keeps its records; beginning, end and times are told."""
    topic = make_topic(cluster, partitions=2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(cluster, topic, [b"a"] * 10, 0)
    between = int(time.time() * 1000) + 1
    while time.time() * 1000 <= between + 1:
        pass
    produce(cluster, topic, [b"b"] * 10, 0)
    produce(cluster, topic, [b"c"] * 5, 1)
    consumer = make_consumer(cluster)
    consumer.assign([zero, one])
    assert consumer.beginning_offsets([zero, one]) == {zero: 0, one: 0}
    assert consumer.end_offsets([zero, one]) == {zero: 20, one: 5}
    found = consumer.offsets_for_times({zero: between, one: between + 3_600_000})
    assert found[zero] is not None
    assert found[zero].offset == 10
    assert found[one] is None
    consumer.pause(one)
    assert {record.partition for record in take(consumer, 20)} == {0}
    consumer.seek(zero, 15)
    assert consumer.position(zero) == 15
    assert [record.offset for record in take(consumer, 5)] == [15, 16, 17, 18, 19]
    consumer.resume(one)
    assert [record.value for record in take(consumer, 5)] == [b"c"] * 5
    consumer.seek_to_end(zero)
    assert consumer.position(zero) == 20
    assert consumer.partitions_for_topic(topic) == {0, 1}


def test_c2_without_a_policy_a_missing_position_is_an_error(
    kafka4: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """auto_offset_reset none: no offset committed, and an offset out of range, are told by name."""
    from streamlet.kafka.consumer.errors import PositionOutOfRange

    topic = make_topic(kafka4)
    produce(kafka4, topic, [b"x"] * 3)
    tp = TopicPartition(topic, 0)
    consumer = make_consumer(kafka4, auto_offset_reset="none", group_id=topic)
    consumer.assign([tp])
    with pytest.raises(NoOffsetForPartition, match=topic):
        take(consumer, 1)
    consumer.seek(tp, 1000)
    with pytest.raises(PositionOutOfRange, match="Offset 1000 is not in the log") as info:
        take(consumer, 1)
    assert info.value.offsets == {tp: 1000}
    consumer.seek(tp, 1)
    assert [record.offset for record in take(consumer, 2)] == [1, 2]


def test_c2_an_offset_out_of_range_is_reset_by_the_policy_and_told(
    kafka4: DevCluster,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    make_consumer: Make,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A reset is never silent: a warning says from where to where."""
    topic = make_topic(kafka4)
    produce(kafka4, topic, [b"x"] * 3)
    consumer = make_consumer(kafka4)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), 1000)
    assert [record.offset for record in take(consumer, 3)] == [0, 1, 2]
    assert "offset 1000 is not in the log" in caplog.text


def test_a_deserializer_that_raises_keeps_the_position(
    kafka4: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """What stands before comes first; then the error names record and setting, again and again until it is passed."""
    topic = make_topic(kafka4)
    produce(kafka4, topic, [b"1", None, b"3", b"bad", b"5"])
    tp = TopicPartition(topic, 0)
    consumer = make_consumer(kafka4, value_deserializer=int, group_id=topic)
    consumer.assign([tp])
    assert [record.value for record in take(consumer, 3)] == [1, None, 3]
    for _ in range(2):
        with pytest.raises(RecordDeserializationFailed, match=r"value_deserializer \(int\) raised ValueError") as info:
            take(consumer, 1)
        assert (info.value.topic_partition, info.value.offset) == (tp, 3)
        assert consumer.position(tp) == 3
    consumer.commit()
    assert consumer.committed(tp)[tp].offset == 3
    consumer.seek(tp, 4)
    assert [record.value for record in take(consumer, 1)] == [5]


def test_c7_a_commit_inside_an_iteration_covers_what_was_given(
    cluster: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """Hundreds of records may wait behind the one that is worked on; their offsets are not committed."""
    topic = make_topic(cluster)
    produce(cluster, topic, [b"x"] * 100)
    tp = TopicPartition(topic, 0)
    consumer = make_consumer(cluster, topic, group_id=topic, enable_auto_commit=False)
    for record in consumer:
        if record.offset == 9:
            break
    consumer.commit()
    assert consumer.position(tp) == 10
    assert consumer.committed(tp) == {tp: OffsetAndMetadata(10, 0)}
    assert [row.offset for row in take(consumer, 90)] == list(range(10, 100))


def test_read_committed_hands_out_nothing_of_aborted_or_open_transactions(
    cluster: DevCluster, make_topic: Callable[..., str], make_consumer: Make
) -> None:
    """And positions pass the markers; read_uncommitted hands out all."""
    from confluent_kafka import Producer

    topic = make_topic(cluster)
    tp = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for what in ("kept", "dropped", "kept", "open"):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(topic, what.encode(), partition=0)
        producer.flush(20)
        if what == "kept":
            producer.commit_transaction(20)
        elif what == "dropped":
            producer.abort_transaction(20)
    strict = make_consumer(cluster, isolation_level="read_committed")
    loose = make_consumer(cluster)
    for consumer in (strict, loose):
        consumer.assign([tp])
    assert [row.value for row in take(strict, 20)] == [b"kept"] * 20
    assert strict.poll(100) == {}
    assert strict.end_offsets([tp]) == {tp: 33}, "the last stable offset"
    assert strict.position(tp) == 33
    assert len(take(loose, 40)) == 40
    producer.commit_transaction(20)
    assert [row.value for row in take(strict, 10)] == [b"open"] * 10


@pytest.mark.parametrize("sessions", [True, False])
def test_the_end_of_a_partition_is_told_once_each_time_it_is_reached(
    sessions: bool, cluster: DevCluster, make_topic: Callable[..., str], make_consumer: Make
) -> None:
    """After growth, after a seek back, behind a transaction's marker, and at an open one with read_committed."""
    topic, servers = make_topic(cluster), cluster.bootstrap_servers
    tp, ends, seen = TopicPartition(topic, 0), list[int](), list[int]()
    consumer = make_consumer(
        cluster, isolation_level="read_committed", fetch_max_wait_ms=100, enable_fetch_sessions=sessions
    )

    def told(of: TopicPartition, offset: int) -> None:
        assert of == tp and seen and seen[-1] < offset
        ends.append(offset)

    def read_until(count: int) -> int:
        deadline = time.monotonic() + PATIENCE_S
        while len(ends) < count:
            assert time.monotonic() < deadline
            seen.extend(row.offset for rows in consumer.poll(100).values() for row in rows)
        for _ in range(5):  # the same end is not told again
            assert consumer.poll(100) == {}
        assert len(ends) == count
        return ends[-1]

    consumer.assign([tp])
    consumer.on_partition_end(told)
    with Producer(bootstrap_servers=servers) as producer:
        for count in (1, 2):
            producer.send(topic, b"x", partition=0).get(timeout=PATIENCE_S)
            assert read_until(count) == count
    consumer.seek(tp, 0)
    seen.clear()
    assert read_until(3) == 2 and seen == [0, 1]
    with Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"y", partition=0).get(timeout=PATIENCE_S)
        assert read_until(3) == 2  # reading stops before an open transaction: the same end
        producer.commit_transaction()
    assert read_until(4) == 4 and seen[-1] == 2  # offset 3 is the marker


def test_headers_keys_and_nulls_come_as_they_were_written(
    kafka4: DevCluster, make_topic: Callable[..., str], make_consumer: Make
) -> None:
    """Compressed, with headers on some records; in records and in columns."""
    from confluent_kafka import Producer

    topic = make_topic(kafka4)
    producer = Producer(
        {
            "bootstrap.servers": kafka4.bootstrap_servers,
            "enable.idempotence": True,
            "compression.type": "zstd",
            "linger.ms": 50,
        }
    )
    for number in range(20):
        headers = [("n", b"%d" % number), ("none", None)] if number % 5 == 0 else None
        producer.produce(topic, None if number % 7 == 0 else b"v", None if number % 2 else b"k", 0, headers=headers)
    assert producer.flush(20) == 0
    consumer = make_consumer(kafka4)
    consumer.assign([TopicPartition(topic, 0)])
    records = take(consumer, 20)
    consumer.seek_to_beginning()
    columns = consumer.poll_columns(10_000)[TopicPartition(topic, 0)]
    assert columns.has_headers()
    for number, record in enumerate(records[: len(columns)]):
        assert record.value == columns.values[number] == (None if number % 7 == 0 else b"v")
        assert record.key == columns.keys[number] == (None if number % 2 else b"k")
        wanted = (("n", b"%d" % number), ("none", None)) if number % 5 == 0 else ()
        assert record.headers == columns.headers(number) == wanted
        assert record.timestamp == columns.timestamps[number]


def test_an_iteration_ends_where_it_was_told_to(
    kafka4: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """consumer_timeout_ms without a record; more may be asked for afterwards."""
    topic = make_topic(kafka4)
    produce(kafka4, topic, [b"1", b"2"])
    consumer = make_consumer(kafka4, topic, group_id=topic, consumer_timeout_ms=3000)
    assert [record.value for record in consumer] == [b"1", b"2"]
    produce(kafka4, topic, [b"3"])
    assert next(consumer).value == b"3"


def test_c4_what_waits_stays_below_the_byte_limits(
    kafka4: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """Less than twice fetch_max_bytes a broker, however slow the user and however much there is."""
    topic = make_topic(kafka4, partitions=4)
    for number in range(4):
        produce(kafka4, topic, [b"x" * 1000] * 1000, number, batch_size=20_000)
    limits = {"fetch_max_bytes": 250_000, "max_partition_fetch_bytes": 200_000}
    consumer = make_consumer(kafka4, max_poll_records=20, **limits)
    consumer.assign([TopicPartition(topic, number) for number in range(4)])
    most, seen = 0, 0
    deadline = time.monotonic() + PATIENCE_S
    while seen < 4000:
        assert time.monotonic() < deadline
        seen += sum(map(len, consumer.poll(1000).values()))
        most = max(most, consumer._fetcher.buffered_bytes)
    assert 0 < most < 2 * 250_000
