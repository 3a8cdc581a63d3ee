"""Storm-kafka's known traps, and what goes wrong with data, on real brokers. One named test each."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streamlet.base.errors import StreamletError
from streamlet.devcluster import DevCluster
from streamlet.spouts.kafka import KafkaHosts, Record, SpoutConfig, ZkHosts, coordinator, open_transactions
from streamlet.spouts.kafka.errors import (
    Deposed,
    NoBrokers,
    NoSuchTopic,
    OffsetsLost,
    PoisonRecord,
    RunDeposed,
    SchemeNotReady,
    TopicsDeleted,
    UnusableOffset,
)
from tests.patience import PATIENCE_S

Make = Callable[..., Any]
UNTIL = {"streamlet.until.caught.up": True}
AT_2: dict[str, Any] = {"start_offset": {0: 2}}


class Place(NamedTuple):
    """A cluster, another client's view of it, and a topic of the test's own there."""

    kafka: DevCluster
    witness: Any
    topic: str


@pytest.fixture(params=["kafka39", "kafka4"])
def place(request: pytest.FixtureRequest, make_topic: Make) -> Place:
    kafka = request.getfixturevalue(request.param)
    witness = request.getfixturevalue("witness" + request.param.removeprefix("kafka"))
    return Place(kafka, witness, make_topic(kafka))


def zk_config(cluster: DevCluster, topic: str, **more: Any) -> SpoutConfig:
    hosts = ZkHosts(cluster.zookeeper or "", refresh_freq_secs=1.0)
    quick: dict[str, Any] = {"state_update_interval_ms": 100, "retry_initial_delay_ms": 20}
    return SpoutConfig(hosts, topic, "/streamlet", topic, **{**quick, **more})


def group_config(cluster: DevCluster, topic: str, **more: Any) -> SpoutConfig:
    hosts = KafkaHosts(cluster.bootstrap_servers, refresh_freq_secs=1.0)
    quick: dict[str, Any] = {"state_update_interval_ms": 100, "retry_initial_delay_ms": 20}
    return SpoutConfig(hosts, topic, **{"id": topic, **quick, **more})


def admin(cluster: DevCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


def delete_before(cluster: DevCluster, topic: str, offset: int) -> None:
    row = TopicPartition(topic, 0, offset)
    client = admin(cluster)
    for future in client.delete_records([row]).values():
        future.result(20)


def re_create(cluster: DevCluster, topic: str) -> None:
    client = admin(cluster)
    client.delete_topics([topic], operation_timeout=20)[topic].result(20)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            client.create_topics([NewTopic(topic, 1, 1)], operation_timeout=20)[topic].result(20)
            return
        except Exception:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def stored(witness: Any, topic: str, partition: int = 0) -> dict[str, Any]:
    with witness.zookeeper() as zk:
        return json.loads(zk.get(f"/streamlet/{topic}/partition_{partition}")[0])  # type: ignore[no-any-return]


def group_offset(cluster: DevCluster, topic: str) -> int:
    wanted = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0)])
    client = admin(cluster)
    answer = client.list_consumer_group_offsets([wanted])[topic].result(20)
    return int(answer.topic_partitions[0].offset)


def rest(spout: Any) -> None:
    """Until no fetch is in flight: what is written then is not on its way already."""
    spout.until(lambda: all(state.answer is None for state in spout.spout._parts.fetcher._brokers.values()))


def read_all(spout: Any, last: str) -> list[str]:
    """Ack everything until ``last`` was seen and committed."""
    seen: list[str] = []

    def reached() -> bool:
        seen.extend(values[0] for values in spout.values())
        spout.ack_all()
        return last in seen and all(row["lag"] == 0 for row in spout.spout.partition_status())

    spout.until(reached)
    return seen


# -- where reading begins ---------------------------------------------------------------------------------------


def test_t01_what_was_written_before_the_first_start_is_read(
    kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(kafka39)
    witness39.produce(topic, ["a", "b"])
    assert read_all(harness(zk_config(kafka39, topic)), "b") == ["a", "b"]


def test_t04_the_start_is_stored_before_the_first_emit(
    kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    """A crash before the first commit must not ask the policy again: "latest" would skip what came in between."""
    topic = make_topic(kafka39)
    config = zk_config(kafka39, topic, start_offset="latest")
    spout = harness(config)
    assert stored(witness39, topic)["offset"] == 0
    assert spout.tuples == []
    witness39.produce(topic, ["a"])
    assert read_all(harness(config, topology_id="run-2"), "a") == ["a"]


@pytest.mark.parametrize("mode", [zk_config, group_config])
def test_k8_where_a_run_begins_is_decided_once_though_a_task_is_killed_before_its_first_commit(
    mode: Make, kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    """Its replacement reads what came since, also of a partition that nobody had noticed. The one that is killed makes
    no call any more.
    """
    topic = make_topic(kafka39)
    witness39.produce(topic, ["before"])
    config = mode(kafka39, topic, start_offset="latest", state_update_interval_ms=3_600_000)
    harness(config)
    witness39.add_partitions(topic, 2)
    witness39.produce(topic, ["a"])
    witness39.produce(topic, ["b"], partition=1)
    replacement = harness(config, epoch=2, run_began=True)
    assert sorted(values[0] for values, _ in replacement.take(2)) == ["a", "b"]


@pytest.mark.parametrize("mode", [zk_config, group_config])
def test_t02_k9_6_a_stored_offset_that_is_gone_stops_with_the_exact_range(
    mode: Make, kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(kafka39)
    witness39.produce(topic, [str(i) for i in range(10)])
    spout = harness(mode(kafka39, topic))
    first = spout.take(10)
    spout.spout.ack_many([tup_id for _, tup_id in first[:4]])
    spout.until(spout.committed(4))
    spout.spout.close()
    delete_before(kafka39, topic, 7)
    with pytest.raises(OffsetsLost) as refused:
        harness(mode(kafka39, topic))
    for part in (f"Topic '{topic}', partition 0", "offset 4", "[4, 6] (3 offsets)", "fail_on_data_loss=False"):
        assert part in refused.value.message
    assert refused.value.exit_status == 1
    assert read_all(harness(mode(kafka39, topic, fail_on_data_loss=False)), "9") == ["7", "8", "9"]


def test_t03_a_failed_record_that_is_gone_is_retried_and_what_was_lost_unread_is_said(
    kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(kafka39)
    witness39.produce(topic, [str(i) for i in range(5)])
    spout = harness(group_config(kafka39, topic, fail_on_data_loss=False, max_uncommitted_offsets=5))
    first = spout.take(5)
    rest(spout)
    witness39.produce(topic, [str(i) for i in range(5, 10)])
    delete_before(kafka39, topic, 8)
    spout.spout.fail(first[0][1])
    spout.spout.ack_many([tup_id for _, tup_id in first[1:]])
    assert read_all(spout, "9")[:1] == ["0"]
    status = spout.status()
    assert (status["committed"], status["lost"]) == (10, 3)
    assert group_offset(kafka39, topic) == 10


def test_while_running_a_loss_stops_the_spout(
    kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(kafka39)
    witness39.produce(topic, ["0"])
    spout = harness(group_config(kafka39, topic, max_uncommitted_offsets=1))
    (first,) = spout.take(1)
    rest(spout)
    witness39.produce(topic, ["1", "2", "3"])
    delete_before(kafka39, topic, 3)
    spout.spout.ack(first[1])
    with pytest.raises(OffsetsLost, match=r"\[1, 2\] \(2 offsets\)"):
        spout.until(lambda: False)


def test_a_topic_re_created_while_stopped_is_not_taken_for_the_old_one(place: Place, harness: Make) -> None:
    kafka, witness, topic = place
    witness.produce(topic, ["old-0", "old-1"])
    spout = harness(group_config(kafka, topic))
    read_all(spout, "old-1")
    spout.spout.close()
    # The group keeps no offsets of a deleted topic: they are put back, as an operator's backup would.
    re_create(kafka, topic)
    witness.produce(topic, [f"new-{i}" for i in range(5)])
    if kafka.zookeeper:
        config = zk_config(kafka, topic)
        body = {"offset": 2, "topic": topic, "partition": 0, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}
        with witness.zookeeper() as zk:
            zk.create(f"/streamlet/{topic}/partition_0", json.dumps(body).encode(), makepath=True)
        with pytest.raises(OffsetsLost, match="deleted and created again"):
            harness(config)
        again = harness(zk_config(kafka, topic, fail_on_data_loss=False))
    else:
        again = harness(group_config(kafka, topic))
    assert read_all(again, "new-4") == [f"new-{i}" for i in range(5)]


def test_a_topic_re_created_while_running_begins_again_or_stops(place: Place, harness: Make) -> None:
    kafka, witness, topic = place
    witness.produce(topic, ["old-0", "old-1"])
    strict = harness(group_config(kafka, topic, id=topic + "-strict"))
    spout = harness(group_config(kafka, topic, fail_on_data_loss=False))
    read_all(strict, "old-1")
    read_all(spout, "old-1")
    re_create(kafka, topic)
    witness.produce(topic, [f"new-{i}" for i in range(5)])
    assert read_all(spout, "new-4") == [f"new-{i}" for i in range(5)]
    with pytest.raises(OffsetsLost, match="deleted and created again") as raised:
        strict.until(lambda: False)
    assert "Kafka has forgotten the offset" in str(raised.value) and "ignore_stored" not in str(raised.value)
    strict.spout.close()
    after = harness(group_config(kafka, topic, id=topic + "-strict"))
    assert read_all(after, "new-4") == [f"new-{i}" for i in range(5)], "as the error says"


# -- where to start, and what is stored -------------------------------------------------------------------------


def test_k8_a_start_is_latest_by_time_or_forced_and_what_is_stored_wins(
    kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(kafka39)
    producer = Producer({"bootstrap.servers": kafka39.bootstrap_servers, "enable.idempotence": True})
    for i in range(6):
        producer.produce(topic, f"v{i}", partition=0, timestamp=1_700_000_000_000 + i * 1000)
    producer.flush(20)

    def first(**more: Any) -> int:
        spout = harness(group_config(kafka39, topic, **more), topology_id=more.get("id", "run-1"))
        position = spout.status()["position"]
        spout.spout.close()
        return int(position)

    assert first(id="latest", start_offset="latest") == 6
    assert first(id="time", start_offset=1_700_000_002_500) == 3
    assert first(id="future", start_offset=1_900_000_000_000) == 6
    assert first(id="latest") == 6, "what is stored wins"
    forced = group_config(kafka39, topic, id="latest", ignore_stored_offset=True)
    assert harness(forced, topology_id="another run").status()["position"] == 0


def test_k8_a_forced_start_holds_once_a_run(
    kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(kafka39)
    witness39.produce(topic, ["a", "b", "c"])
    config = group_config(kafka39, topic, ignore_stored_offset=True)
    spout = harness(config, topology_id="run-1")
    read_all(spout, "c")
    spout.spout.close()
    assert harness(config, topology_id="run-1").status()["position"] == 3, "a restarted worker of the same run goes on"


# -- fetching ---------------------------------------------------------------------------------------------------


def test_t10_an_idle_spout_asks_seldom(kafka39: DevCluster, make_topic: Make, harness: Make) -> None:
    """The broker holds a fetch it cannot answer: a quiet topic costs two requests a second, not thousands."""
    spout = harness(group_config(kafka39, make_topic(kafka39)))
    fetcher = spout.spout._parts.fetcher
    asked, real = [], fetcher._ask
    fetcher._ask = lambda *args: asked.append(args) or real(*args)
    began = time.monotonic()
    spout.until(lambda: time.monotonic() - began > 1.6)
    assert 2 <= len(asked) <= 5


def test_t12_a_record_larger_than_the_fetch_size_comes(
    kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(kafka39, configs={"max.message.bytes": "4000000"})
    big = "x" * 3_000_000
    witness39.produce(topic, ["small", big, "last"], **{"message.max.bytes": 4_000_000, "linger.ms": 0})
    config = group_config(kafka39, topic, fetch_size_bytes=10_000, buffer_size_bytes=10_000)
    assert read_all(harness(config), "last") == ["small", big, "last"]


def test_t14_k9_3_what_is_fetched_ahead_is_bounded(
    kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(kafka39, partitions=4)
    for partition in range(4):
        witness39.produce(topic, ["x" * 1000] * 2000, partition, **{"batch.size": 16_000})
    spout = harness(group_config(kafka39, topic, fetch_size_bytes=100_000, buffer_size_bytes=200_000))
    spout.take(1)
    most, quiet = 0, 0
    deadline = time.monotonic() + PATIENCE_S
    while quiet < 20:
        assert time.monotonic() < deadline
        before = most
        spout.spout.on_timer()
        most = max(most, sum(manager.buffer.size_bytes for manager in spout.spout._managers))
        quiet = quiet + 1 if most == before else 0
        time.sleep(0.01)
    assert 100_000 <= most <= 200_000 + 20_000, "the budget, and one batch that always comes whole"


def squeeze(witness: Any, topic: str, partition: int) -> None:
    """Produce a batch of a thousand records, a megabyte in all and a few kilobytes on the wire."""
    sizes = {"batch.size": 4_000_000, "message.max.bytes": 4_000_000}
    witness.produce(topic, [str(partition).ljust(1000)] * 1000, partition, **sizes, **{"compression.type": "zstd"})


class Away:
    """A scheme that waits for a registry."""

    outputs = ("number",)
    away = True

    def deserialize(self, record: Record) -> list[list[str]]:
        if self.away:
            raise SchemeNotReady("the registry is away.")
        return [[str(record.value, "utf-8")]]


def test_what_is_unpacked_and_not_emitted_is_bounded(
    kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    """Twelve batches of a megabyte each, which are a few kilobytes on the wire, in turns of ten records."""
    topic = make_topic(kafka39, partitions=12)
    for partition in range(12):
        squeeze(witness39, topic, partition)
    config = {"fetch_size_bytes": 100_000, "buffer_size_bytes": 200_000, "records_per_turn": 10}
    spout = harness(group_config(kafka39, topic, **config))
    most = emitted = 0
    while emitted < 12_000:
        taken = spout.take(1)
        emitted += len(taken)
        spout.spout.ack_many([tup_id for _values, tup_id in taken])
        most = max(most, sum(manager.buffer.unpacked_bytes for manager in spout.spout._managers))
    assert 200_000 <= most <= 200_000 + 1_000_000, "the budget, and one batch"


def test_what_is_unpacked_beside_stuck_records_is_bounded_and_holds_up_no_other_partition(
    kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    """Each of eleven partitions may go no further than five hundred offsets past a record that is never acked."""
    topic = make_topic(kafka39, partitions=12)
    for partition in range(12):
        squeeze(witness39, topic, partition)
        squeeze(witness39, topic, partition)
    config = {"fetch_size_bytes": 100_000, "buffer_size_bytes": 200_000, "records_per_turn": 10}
    spout = harness(group_config(kafka39, topic, max_uncommitted_offsets=500, **config))
    most, emitted, stuck, deadline = 0, Counter[int](), [], time.monotonic() + PATIENCE_S

    def take_some() -> None:
        nonlocal most
        assert time.monotonic() < deadline, emitted
        spout.spout.on_timer()
        for _ in range(20):
            spout.spout.next_tuple()
        for values, tup_id in spout.tuples:
            number = int(values[0])
            emitted[number] += 1
            if number != 11 and tup_id[1] == 0:
                stuck.append(tup_id)
            else:
                spout.spout.ack(tup_id)
        spout.tuples.clear()
        most = max(most, sum(manager.buffer.unpacked_bytes for manager in spout.spout._managers))

    while emitted[11] < 2000 or len(stuck) < 11 or min(emitted.values()) < 500:
        take_some()
    assert 800_000 <= most <= 800_000 + 1_000_000, "four times the budget, and one batch"
    spout.spout.ack_many(stuck)
    while emitted.total() < 12 * 2000:
        take_some()
    assert {*emitted.values()} == {2000} and most <= 800_000 + 1_000_000


def test_what_is_unpacked_while_a_registry_is_away_is_bounded_and_nothing_is_lost(
    kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    """Each of twelve partitions unpacks a batch before its scheme says that it must wait."""
    topic = make_topic(kafka39, partitions=12)
    for partition in range(12):
        squeeze(witness39, topic, partition)
    scheme, most, emitted = Away(), 0, Counter[int]()
    config = {"fetch_size_bytes": 100_000, "buffer_size_bytes": 200_000, "scheme": scheme}
    spout = harness(group_config(kafka39, topic, **config))
    began = time.monotonic()
    while emitted.total() < 12_000:
        assert time.monotonic() < began + PATIENCE_S, emitted
        scheme.away = time.monotonic() < began + 3.0
        spout.spout.on_timer()
        spout.spout.next_tuple()
        emitted.update(int(values[0]) for values, _ in spout.tuples)
        spout.ack_all()
        most = max(most, sum(manager.buffer.unpacked_bytes for manager in spout.spout._managers))
    assert {*emitted.values()} == {1000}
    assert 800_000 <= most <= 800_000 + 1_000_000, "four times the budget, and one batch"


def with_open_transaction(kafka: DevCluster, topic: str) -> Producer:
    """Return a producer in whose transaction one record is written."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush(20)
    return producer


def test_k9_7_gaps_of_transactions_hold_nothing_up(place: Place, harness: Make) -> None:
    """Aborted records never come; an open transaction is waited for; markers at the end leave no lag."""
    kafka, witness, topic = place
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(20)
    for number, commits in enumerate([True, False, True]):
        producer.begin_transaction()
        for i in range(3):
            producer.produce(topic, f"{number}-{i}", partition=0)
        producer.flush(20)
        producer.commit_transaction(20) if commits else producer.abort_transaction(20)
    spout = harness(group_config(kafka, topic))
    assert read_all(spout, "2-2") == [f"{n}-{i}" for n in (0, 2) for i in range(3)]
    assert spout.status()["committed"] == 12
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush(20)
    witness.produce(topic, ["behind it"])
    began = time.monotonic()
    spout.until(lambda: time.monotonic() - began > 0.7)
    assert spout.tuples == []
    producer.commit_transaction(20)
    assert read_all(spout, "behind it") == ["open", "behind it"]
    assert group_offset(kafka, topic) == 15


def test_a_run_that_ends_by_itself_says_what_it_leaves_behind_an_open_transaction(
    place: Place, harness: Make, caplog: pytest.LogCaptureFixture
) -> None:
    kafka, witness, topic = place
    witness.produce(topic, ["a", "b"])
    producer = with_open_transaction(kafka, topic)
    witness.produce(topic, ["behind"] * 9)
    for ends, lines in (UNTIL, 1), ({}, 0):
        caplog.clear()
        spout = harness(group_config(kafka, topic, id=f"{topic}-{lines}"), conf=ends)
        assert read_all(spout, "b") == ["a", "b"]
        told = [line for line in caplog.messages if "a transaction is open at offset 2" in line]
        assert len(told) == lines and all("The 10 offsets from there on" in line for line in told)
    producer.abort_transaction(20)


def test_a_run_that_goes_on_says_what_an_open_transaction_keeps_from_it(
    place: Place, harness: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_transactions, "OPEN_S", 1.0)
    caplog.set_level(logging.INFO)
    kafka, witness, topic = place
    witness.produce(topic, ["a"])
    producer = with_open_transaction(kafka, topic)
    witness.produce(topic, ["behind"] * 9)
    spout = harness(group_config(kafka, topic))
    assert read_all(spout, "a") == ["a"]
    told = "a transaction has been open at offset 1 for "
    spout.until(lambda: any(told in line and "The 10 offsets from there" in line for line in caplog.messages))
    status = spout.status()
    assert (status["end"], status["lag"], status["held_back"]) == (1, 0, 10)
    producer.commit_transaction(20)
    assert read_all(spout, "behind") == ["open", *["behind"] * 9]
    spout.until(lambda: any("the transaction at offset 1 has ended" in line for line in caplog.messages))
    assert spout.status()["held_back"] == 0


def test_an_offset_behind_an_open_transaction_is_no_loss(place: Place, harness: Make) -> None:
    """Of a consumer that reads what is not committed, and of the settings."""
    kafka, witness, topic = place
    witness.produce(topic, ["a"])
    producer = with_open_transaction(kafka, topic)
    witness.produce(topic, ["b", "c"])
    client, as_kept = admin(kafka), ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 4)])
    while client.alter_consumer_group_offsets([as_kept])[topic].result(20).topic_partitions[0].error is not None:
        time.sleep(0.1)  # a fresh coordinator loads
    stored, written = harness(group_config(kafka, topic)), harness(group_config(kafka, topic, id=f"{topic}-2", **AT_2))
    assert (stored.status()["committed"], written.status()["committed"]) == (4, 2)
    producer.commit_transaction(20)
    witness.produce(topic, ["d"])
    assert read_all(stored, "d") == ["d"]
    assert read_all(written, "d") == ["b", "c", "d"]


# -- progress ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [zk_config, group_config])
def test_k7_a_restart_goes_on_where_the_commit_was(
    mode: Make, kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(kafka39)
    witness39.produce(topic, [str(i) for i in range(100)])
    killed = harness(mode(kafka39, topic))
    taken = killed.take(100)
    killed.spout.ack_many([tup_id for _, tup_id in taken[:30] + taken[31:60]])
    killed.until(killed.committed(30))
    again = harness(mode(kafka39, topic), topology_id="run-2")
    assert read_all(again, "99") == [str(i) for i in range(30, 100)]


def test_k13_progress_is_committed_while_nobody_asks_for_tuples(
    kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(kafka39)
    witness39.produce(topic, ["a", "b"])
    spout = harness(zk_config(kafka39, topic))
    taken = spout.take(2)
    spout.spout.ack_many([tup_id for _, tup_id in taken])
    deadline = time.monotonic() + PATIENCE_S
    while stored(witness39, topic)["offset"] != 2:
        assert time.monotonic() < deadline
        spout.spout.on_timer()


@pytest.mark.parametrize("mode", [zk_config, group_config])
def test_k7_close_commits_what_is_done(
    mode: Make, kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(kafka39)
    witness39.produce(topic, ["a", "b"])
    spout = harness(mode(kafka39, topic, state_update_interval_ms=3_600_000))
    taken = spout.take(2)
    spout.spout.ack(taken[0][1])
    spout.spout.begin_close()
    spout.spout.close()
    offset = stored(witness39, topic)["offset"] if mode is zk_config else group_offset(kafka39, topic)
    assert offset == 1


@pytest.mark.parametrize("mode", [zk_config, group_config])
def test_a_former_owner_commits_nothing_and_stops(
    mode: Make, kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(kafka39)
    witness39.produce(topic, [str(i) for i in range(10)])
    old = harness(mode(kafka39, topic))
    taken = old.take(10)
    new = harness(mode(kafka39, topic), topology_id="run-2")
    old.spout.ack_many([tup_id for _, tup_id in taken])
    # In ZooKeeper the newer run's name is read first, in a group its claim on the partition.
    with pytest.raises((Deposed, RunDeposed), match=f"took over topic '{topic}'"):
        old.until(lambda: False)
    offset = stored(witness39, topic)["offset"] if mode is zk_config else group_offset(kafka39, topic)
    assert offset == 0
    with contextlib.suppress(StreamletError):
        old.spout.close()
    assert read_all(new, "9") == [str(i) for i in range(10)]


@pytest.mark.parametrize("data", [b"\x00garbage", b'{"offset": 3, "topic": "another", "partition": 0}'])
def test_a_foreign_node_is_refused(
    data: bytes, kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(kafka39)
    path = f"/streamlet/{topic}/partition_0"
    with witness39.zookeeper() as zk:
        zk.create(path, data, makepath=True)
        with pytest.raises(UnusableOffset, match=path):
            harness(zk_config(kafka39, topic))
        assert zk.get(path)[0] == data


# -- partitions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [zk_config, group_config])
def test_k4_added_partitions_are_read_from_their_start(
    mode: Make, kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    """Even with start_offset "latest": what was written before the partition was noticed counts too."""
    topic = make_topic(kafka39)
    spout = harness(mode(kafka39, topic, start_offset="latest"))
    witness39.add_partitions(topic, 3)
    for partition in (0, 1, 2):
        witness39.produce(topic, [f"p{partition}"], partition)
    spout.until(lambda: len(spout.tuples) == 3)
    assert sorted(values[0] for values in spout.values()) == ["p0", "p1", "p2"]


def test_k3_two_tasks_share_a_topic_out(kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make) -> None:
    topic = make_topic(kafka39, partitions=5)
    for partition in range(5):
        witness39.produce(topic, [f"p{partition}"], partition)
    config = zk_config(kafka39, topic)
    tasks = [harness(config, task_index=index, task_count=2) for index in (0, 1)]
    tasks[0].until(lambda: len(tasks[0].tuples) == 3)
    tasks[1].until(lambda: len(tasks[1].tuples) == 2)
    assert sorted(values[0] for values in tasks[0].values()) == ["p0", "p2", "p4"]
    assert sorted(values[0] for values in tasks[1].values()) == ["p1", "p3"]


def test_more_tasks_than_partitions_leaves_one_idle(kafka39: DevCluster, make_topic: Make, harness: Make) -> None:
    spout = harness(zk_config(kafka39, make_topic(kafka39)), conf=UNTIL, task_index=1, task_count=2)
    spout.turn()
    assert spout.spout.partition_status() == []
    assert spout.spout.caught_up()


# -- errors -----------------------------------------------------------------------------------------------------


def test_an_undecodable_record_stops_with_its_coordinates(
    kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(kafka39)
    witness39.produce(topic, ["good", b"\xff\xfe", "good too"])
    spout = harness(zk_config(kafka39, topic))
    with pytest.raises(PoisonRecord) as stopped:
        spout.until(lambda: False)
    assert f"topic '{topic}', partition 0, offset 1 cannot be decoded by StringScheme" in stopped.value.message
    spout.ack_all()
    spout.spout.close()
    assert stored(witness39, topic)["offset"] == 1


def test_a_topic_that_is_not_there_is_said(kafka39: DevCluster, harness: Make, topic_name: Make) -> None:
    for config in (zk_config(kafka39, topic_name()), group_config(kafka39, topic_name())):
        with pytest.raises(NoSuchTopic, match="does not exist") as refused:
            harness(config)
        assert refused.value.exit_status == 2


def test_a_topic_that_is_deleted_while_it_is_read_is_said_with_what_was_never_read(
    kafka39: DevCluster, witness39: Any, make_topic: Make, harness: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a wrong name: created again as that error says, the topic would hide the loss."""
    monkeypatch.setattr(coordinator, "TOPIC_GONE_GRACE_S", 0.3)
    for config in (zk_config, group_config):
        topic = make_topic(kafka39)
        for _ in range(50):  # batches: a fetch brings whole ones
            witness39.produce(topic, ["x" * 1000] * 10)
        spout = harness(
            config(kafka39, topic, fetch_size_bytes=10_000, buffer_size_bytes=20_000, max_unacked_bytes=20_000)
        )
        spout.until(lambda spout=spout: len(spout.tuples) >= 10)
        client = admin(kafka39)  # it must outlive its call
        client.delete_topics([topic])[topic].result(20)
        with pytest.raises(TopicsDeleted) as stopped:
            spout.until(lambda: False)
        (first, last) = re.search(rf"{topic}-0 \[(\d+), (\d+)\]", stopped.value.message).groups()
        (row,) = spout.spout.partition_status()
        assert int(first) >= 10 and last == "499" and row["lost"] == 500 - int(first)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_no_broker_and_no_zookeeper_are_said(kafka39: DevCluster, harness: Make) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with pytest.raises(StreamletError, match=nobody) as refused:
        harness(SpoutConfig(KafkaHosts(nobody), "t", id="x", start_timeout_ms=1000))
    assert refused.value.exit_status == 2
    with pytest.raises(StreamletError, match=nobody):
        harness(SpoutConfig(ZkHosts(nobody), "t", "/s", "x", start_timeout_ms=1000))
    elsewhere = ZkHosts(kafka39.zookeeper or "", broker_zk_path="/nothing/brokers")
    with pytest.raises(NoBrokers, match="/nothing/brokers/ids"):
        harness(SpoutConfig(elsewhere, "t", "/s", "x", start_timeout_ms=1000))
