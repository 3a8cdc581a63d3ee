"""Three real brokers: connections counted from outside, leaders that move, a broker that dies."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from streamlet.coordination.zookeeper import SESSION_TIMEOUT_S
from streamlet.devcluster import DevCluster
from streamlet.spouts.kafka import GroupOffsets, KafkaHosts, SpoutConfig, StaticHosts, ZkHosts, ZkOffsets
from streamlet.spouts.kafka.errors import OffsetsLost, StaticLeaderMoved
from streamlet.spouts.kafka.ownership.emit_gate import BEAT_SHARE, LEASE_SHARE
from tests.patience import PATIENCE_S
from tests.replicas import await_follower, partitions_of
from tests.spout_harness import read_all

Make = Callable[..., Any]
QUICK: dict[str, Any] = {"state_update_interval_ms": 100, "retry_initial_delay_ms": 20}


@pytest.fixture(scope="module")
def three() -> Iterator[DevCluster]:
    """Three brokers of Kafka 3.9 in a ZooKeeper, each in a rack of its own."""
    settings = {
        "log.cleaner.backoff.ms": 100,
        "broker.rack": ("red", "green", "blue"),
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }
    with DevCluster("3.9", brokers=3, broker_settings=settings) as cluster:
        yield cluster


def leaders(cluster: DevCluster, topic: str) -> dict[int, int]:
    """Partition -> broker id, as librdkafka sees it."""
    return {number: row.leader for number, row in partitions_of(cluster.bootstrap_servers, topic).items()}


def await_leader(cluster: DevCluster, topic: str, broker: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while leaders(cluster, topic)[0] != broker:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def produce(cluster: DevCluster, topic: str, values: list[str], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(20) == 0


def broker_address(cluster: DevCluster, broker: int) -> str:
    return cluster.bootstrap_servers.split(",")[broker]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def my_connections(cluster: DevCluster) -> Counter[int]:
    """Established connections of this process by broker port, from the kernel's table."""
    ports = {port_of(address) for address in cluster.bootstrap_servers.split(",")}
    mine = set()
    for fd in Path(f"/proc/{os.getpid()}/fd").iterdir():
        try:
            target = os.readlink(fd)
        except OSError:
            continue
        if target.startswith("socket:["):
            mine.add(target[8:-1])
    found: Counter[int] = Counter()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        row = line.split()
        port = int(row[2].rpartition(":")[2], 16)
        if row[3] == "01" and row[9] in mine and port in ports:
            found[port] += 1
    return found


def test_k2_three_brokers_and_twelve_partitions_are_three_connections(
    three: DevCluster, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(three, partitions=12)
    assert len(set(leaders(three, topic).values())) == 3
    for partition in range(12):
        produce(three, topic, [f"p{partition}"], partition)
    deadline = time.monotonic() + PATIENCE_S
    while my_connections(three):
        assert time.monotonic() < deadline, "those of librdkafka end a moment after their owners"
        time.sleep(0.05)
    config = SpoutConfig(ZkHosts(three.zookeeper or ""), topic, "/streamlet", topic, **QUICK)
    spout = harness(config)
    spout.take(12)
    counted = my_connections(three)
    assert len(counted) == 3
    assert set(counted.values()) == {1}
    spout.spout.close()
    assert not my_connections(three)


@pytest.mark.parametrize("kind", ["zk", "kafka"])
def test_k2_k4_a_leader_move_keeps_what_is_pending_and_replays_nothing(
    kind: str, three: DevCluster, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(three, replication=3)
    produce(three, topic, [f"a{i}" for i in range(10)])
    if kind == "zk":
        config = SpoutConfig(ZkHosts(three.zookeeper or ""), topic, "/streamlet", topic, **QUICK)
    else:
        config = SpoutConfig(KafkaHosts(three.bootstrap_servers), topic, id=topic, **QUICK)
    spout = harness(config)
    before = spout.take(10)
    old = leaders(three, topic)[0]
    new = (old + 1) % 3
    three.move_leader(topic, 0, new)
    await_leader(three, topic, new)
    produce(three, topic, [f"b{i}" for i in range(10)])
    after = spout.take(10)
    assert [values[0] for values, _ in after] == [f"b{i}" for i in range(10)]
    spout.spout.ack_many([tup_id for _, tup_id in before + after])
    spout.until(spout.committed(20))
    assert spout.tuples == []
    leader = spout.status()["leader"]
    assert leader == broker_address(three, new)
    if kind == "zk":
        # Those of librdkafka end a moment after their owners. With a group, its coordinator may be any of the three.
        spout.until(lambda: my_connections(three)[port_of(broker_address(three, old))] == 0)
        assert my_connections(three)[port_of(leader)] == 1
        from kazoo.client import KazooClient

        zk = KazooClient(three.zookeeper)
        zk.start(10)
        node = json.loads(zk.get(f"/streamlet/{topic}/partition_0")[0])
        zk.stop()
        zk.close()
        assert node["offset"] == 20
        assert f"{node['broker']['host']}:{node['broker']['port']}" == leader
        assert node["leader_epoch"] >= 1


def test_records_come_from_the_rack_of_the_workers_while_the_leader_stands_still(
    three: DevCluster, make_topic: Make, harness: Make
) -> None:
    """200 records of 20 000 bytes, ten a fetch: the leader names the replica, and is needed for none of them."""
    topic = make_topic(three, replication=3)
    values = [f"{number:05d}" * 4000 for number in range(200)]
    producer = Producer({"bootstrap.servers": three.bootstrap_servers, "enable.idempotence": True, "acks": "all"})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0
    leader = leaders(three, topic)[0]
    rack = ("red", "green", "blue")[(leader + 1) % 3]
    await_follower(three.bootstrap_servers, topic, rack, 200)
    hosts = StaticHosts({0: broker_address(three, leader)})
    store = ZkOffsets(three.zookeeper)
    small: dict[str, Any] = {"fetch_size_bytes": 200_000, "buffer_size_bytes": 400_000}
    spout = harness(SpoutConfig(hosts, topic, "/streamlet", topic, offset_store=store, client_rack=rack, **small))
    first = spout.take(20)
    (told,) = spout.spout.partition_status()
    assert (told["leader"], told["read_from"]) == tuple(broker_address(three, (leader + one) % 3) for one in (0, 1))
    three.pause(leader)
    try:
        rest = spout.take(160)
        others = ",".join(broker_address(three, (leader + one) % 3) for one in (1, 2))
        assert partitions_of(others, topic)[0].leader == leader  # nobody was elected meanwhile
    finally:
        three.resume(leader)
    rest += spout.take(20)
    assert [row[0] for row, _ in first + rest] == values


def test_t13_static_hosts_stop_when_their_leader_moved(three: DevCluster, make_topic: Make, harness: Make) -> None:
    topic = make_topic(three, replication=3)
    produce(three, topic, ["a"])
    old = leaders(three, topic)[0]
    hosts = StaticHosts({0: broker_address(three, old)})
    spout = harness(SpoutConfig(hosts, topic, id=topic, offset_store=GroupOffsets(), **QUICK))
    spout.take(1)
    new = (old + 1) % 3
    three.move_leader(topic, 0, new)
    await_leader(three, topic, new)
    with pytest.raises(StaticLeaderMoved) as stopped:
        spout.until(lambda: False)
    assert f"{broker_address(three, new)} leads it now" in stopped.value.message
    assert stopped.value.partition.number == 0


def test_t13_static_hosts_that_never_led_are_said_at_the_start(
    three: DevCluster, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(three, replication=3)
    leader = leaders(three, topic)[0]
    hosts = StaticHosts({0: broker_address(three, (leader + 1) % 3)})
    with pytest.raises(StaticLeaderMoved, match=f"{broker_address(three, leader)} leads it now"):
        harness(SpoutConfig(hosts, topic, id=topic, offset_store=GroupOffsets(), **QUICK))


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
}


def visible(cluster: DevCluster, topic: str) -> list[tuple[int, str]]:
    """Offsets and values as librdkafka reads them, up to the end as it is now."""
    settings = {"group.id": "witness", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            consumer.close()
            return found
        found.append((message.offset(), message.value().decode()))


def test_k9_7_t08_a_compacted_topic_holds_nothing_up(three: DevCluster, make_topic: Make, harness: Make) -> None:
    """Holes where records were compacted away, one of them failed and waiting for its retry."""
    topic = make_topic(three, configs=COMPACTED)
    producer = Producer({"bootstrap.servers": three.bootstrap_servers, "enable.idempotence": True})

    def write(round_number: int) -> None:
        for key in range(5):
            producer.produce(topic, f"{key}-{round_number}", str(key), partition=0)
        assert producer.flush(20) == 0

    write(0)
    config = SpoutConfig(ZkHosts(three.zookeeper or ""), topic, "/streamlet", topic, **QUICK)
    running = harness(config)
    early = running.take(5)
    deadline = time.monotonic() + PATIENCE_S
    for number in range(1, 1000):
        write(number)
        if len(left := visible(three, topic)) < number * 5:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert left[0][0] > 0, "the first records are gone"
    running.spout.fail(early[0][1])
    running.spout.ack_many([tup_id for _, tup_id in early[1:]])
    seen = []

    def all_committed() -> bool:
        seen.extend(values[0] for values in running.values())
        running.ack_all()
        return bool(running.status()["committed"] == left[-1][0] + 1)

    running.until(all_committed)
    assert "0-0" in seen, "the failed record came again, though the log has it no more"
    running.spout.close()

    other = SpoutConfig(KafkaHosts(three.bootstrap_servers), topic, id=topic, **QUICK)
    fresh = harness(other)
    expected = visible(three, topic)
    taken = fresh.take(len(expected))
    assert [(tup_id[1], values[0]) for values, tup_id in taken] == expected
    fresh.spout.ack_many([tup_id for _, tup_id in taken])
    fresh.until(fresh.committed(expected[-1][0] + 1))


@pytest.mark.faults
def test_d2_after_an_expired_session_progress_is_written_by_a_new_one(
    three: DevCluster, make_topic: Make, harness: Make
) -> None:
    """What fences owners is the version of the node, not the session: the same owner goes on."""
    topic = make_topic(three)
    produce(three, topic, ["a", "b"])
    spout = harness(SpoutConfig(ZkHosts(three.zookeeper or ""), topic, "/streamlet", topic, **QUICK))
    (_, first), (_, second) = spout.take(2)
    spout.spout.ack(first)
    spout.until(spout.committed(1))
    (nodes,) = spout.spout._parts.held._nodes.values()
    old = nodes.session_id
    three.expire_session(old, nodes._client.client_id[1])
    spout.until(lambda: nodes.session_id not in (None, old))
    spout.spout.ack(second)
    spout.until(spout.committed(2))


@pytest.mark.faults
def test_d6_k7_without_zookeeper_reading_goes_on_to_a_bound_and_progress_is_written_afterwards(
    three: DevCluster, make_topic: Make, harness: Make
) -> None:
    topic = make_topic(three)
    hosts = ZkHosts(three.zookeeper or "", refresh_freq_secs=0.5)
    config = SpoutConfig(hosts, topic, "/streamlet", topic, max_uncommitted_offsets=40, records_per_turn=10, **QUICK)
    spout = harness(config)
    produce(three, topic, ["a"])
    ((_, first),) = spout.take(1)
    spout.spout.ack(first)
    three.pause_zookeeper()
    try:
        produce(three, topic, [str(i) for i in range(100)])
        began = time.monotonic()
        seen = 0
        while time.monotonic() - began < 2.5:
            spout.turn()
            seen += len(spout.tuples)
            spout.ack_all()
        assert 30 <= seen <= 50, "the bound, to within a turn"
    finally:
        three.resume_zookeeper()

    def all_acked() -> bool:
        spout.ack_all()
        return bool(spout.status()["committed"] == 101)

    spout.until(all_acked)


@pytest.mark.faults
def test_d1_d6_without_zookeeper_a_spout_emits_while_its_lease_lasts_then_pauses_and_goes_on_when_it_answers(
    three: DevCluster, make_topic: Make, harness: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Acked records do not stop it: the lease does, before the session is over and another run may have the topic."""
    caplog.set_level("INFO")
    topic, paused = make_topic(three), "nothing is emitted. ZooKeeper"
    config = SpoutConfig(ZkHosts(three.zookeeper or ""), topic, "/streamlet", topic, records_per_turn=5, **QUICK)
    produce(three, topic, [str(n) for n in range(10_000)])
    spout = harness(config)

    def take() -> int:
        seen.extend(values[0] for values in spout.values())
        spout.ack_all()
        return len(seen)

    seen = read_all(spout, 20)
    three.pause_zookeeper()
    began, emitted = time.monotonic(), list[float]()
    try:
        while (since := time.monotonic() - began) < SESSION_TIMEOUT_S + 2:
            if spout.turn():
                emitted.append(since)
                take()
            select.select([spout.spout.fileno()], [], [], 0.02)
    finally:
        three.resume_zookeeper()
    lease_s = LEASE_SHARE * SESSION_TIMEOUT_S
    assert lease_s - BEAT_SHARE * SESSION_TIMEOUT_S - 1 < emitted[-1] < lease_s + 0.5, "it counts from the last answer"
    assert [record.levelname for record in caplog.records if paused in record.getMessage()] == ["WARNING"]
    assert spout.status()["committed"] == 20
    before = len(seen)
    spout.until(lambda: take() >= before + 500)
    assert seen == [str(n) for n in range(len(seen))], "in order, none twice"
    spout.until(spout.committed(len(seen)))


@pytest.mark.faults
def test_t11_k9_4_a_dead_broker_stops_only_its_own_partitions_until_another_leads(
    three: DevCluster, make_topic: Make, harness: Make
) -> None:
    """Killed with SIGKILL: the others' records go on coming, then its own from the new leader, none twice."""
    topic = make_topic(three, partitions=3, replication=3)
    spout = harness(SpoutConfig(KafkaHosts(three.bootstrap_servers), topic, id=topic, **QUICK))
    for partition in range(3):
        produce(three, topic, [f"a{partition}"], partition)
    seen = [values[0] for values, _ in spout.take(3)]
    led = leaders(three, topic)
    dead = led[0]
    assert {led[1], led[2]} != {dead}
    three.kill(dead)
    try:
        alive = [number for number in (1, 2) if led[number] != dead]
        for partition in alive:
            produce(three, topic, [f"b{partition}"], partition)
        seen += [values[0] for values, _ in spout.take(len(alive))]
        for partition in sorted({0, 1, 2} - set(alive)):
            produce(three, topic, [f"b{partition}"], partition)
        seen += [values[0] for values, _ in spout.take(3 - len(alive))]
    finally:
        three.restart(dead, graceful=False)
    assert sorted(seen) == sorted(f"{letter}{n}" for letter in "ab" for n in range(3))


@pytest.mark.faults
def test_d4_an_unclean_election_is_noticed_though_the_offset_is_in_the_log_again(
    three: DevCluster, make_topic: Make, harness: Make
) -> None:
    """A follower that was away is elected, and its shorter log written on past where the spouts stand: a running one,
    and one that starts again. Offsets 10 to 19 are other records now, which nobody has read.
    """
    topic = make_topic(three, replication=2, configs={"unclean.leader.election.enable": "true"})
    hosts = ZkHosts(three.zookeeper or "", refresh_freq_secs=0.5)
    config = SpoutConfig(hosts, topic, "/streamlet", topic, **QUICK)
    other = SpoutConfig(hosts, topic, "/streamlet", topic + "-again", **QUICK)
    produce(three, topic, [f"old {n}" for n in range(10)])
    row = partitions_of(three.bootstrap_servers, topic)[0]
    leader = row.leader
    (follower,) = set(row.replicas) - {leader}
    running, stopped = harness(config), harness(other)
    three.kill(follower)
    down = {follower}
    try:
        produce(three, topic, [f"old {n}" for n in range(10, 20)])
        for spout in (running, stopped):
            spout.spout.ack_many([tup_id for _, tup_id in spout.take(20)])
            spout.until(spout.committed(20))
        stopped.spout.close()
        three.kill(leader)
        down.add(leader)
        three.restart(follower, graceful=False)
        down.discard(follower)
        await_leader(three, topic, follower)
        produce(three, topic, [f"new {n}" for n in range(10, 25)])
        with pytest.raises(OffsetsLost, match=r"from offset 10 on .* \[10, 19\] \(10 offsets\)"):
            running.until(lambda: bool(running.tuples))
        with pytest.raises(OffsetsLost, match=r"offset 20, .* from offset 10 on .* \[10, 19\] \(10 offsets\)"):
            harness(other)
        accepting = harness(dataclasses.replace(other, fail_on_data_loss=False))
        assert [values[0] for values, _ in accepting.take(15)] == [f"new {n}" for n in range(10, 25)]
    finally:
        for broker in down:
            three.restart(broker, graceful=False)
