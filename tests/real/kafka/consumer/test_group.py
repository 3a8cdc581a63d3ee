"""Groups on real brokers: rebalances, members of other clients, commits and their timers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from streamlet.devcluster import DevCluster
from streamlet.kafka import (
    Consumer,
    ConsumerRebalanceListener,
    ConsumerRecord,
    KafkaError,
    OffsetAndMetadata,
    TopicPartition,
)
from streamlet.kafka.consumer.errors import CommitFailed, ConcurrentUse, ConsumerWakeup, MembershipFenced
from tests.brokers import ONE_BROKER
from tests.consumers import Told, take, until
from tests.patience import PATIENCE_S

Make = Callable[..., Consumer]
QUICK = {"heartbeat_interval_ms": 100, "session_timeout_ms": 6000}


def test_c5_eager_rebalance_gives_everything_back_first(
    cluster: DevCluster, make_topic: Callable[..., str], make_consumer: Make
) -> None:
    """With range alone: the listener hears revoked before assigned, and each partition has one owner."""
    topic = make_topic(cluster, partitions=4)
    told = Told()
    first = make_consumer(cluster, group_id=topic, partition_assignment_strategy=["range"], **QUICK)
    first.subscribe([topic], listener=told)
    until([first], lambda: len(first.assignment()) == 4)
    second = make_consumer(cluster, topic, group_id=topic, partition_assignment_strategy=["range"], **QUICK)
    until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 2)
    assert not first.assignment() & second.assignment()
    second.close()
    until([first], lambda: len(first.assignment()) == 4)
    assert told.events[0] == ("assigned", [0, 1, 2, 3])
    assert told.events[1] == ("revoked", [0, 1, 2, 3])
    assert [what for what, _ in told.events[::2]] == ["assigned"] * len(told.events[::2])


def test_c5_cooperative_rebalance_keeps_what_stays(
    cluster: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """Only what moves is revoked, and what stays is read on meanwhile."""
    topic = make_topic(cluster, partitions=4)
    told = Told()
    names = {"group_id": topic, "partition_assignment_strategy": ["cooperative-sticky"], **QUICK}
    first = make_consumer(cluster, **names)
    first.subscribe([topic], listener=told)
    until([first], lambda: len(first.assignment()) == 4)
    second = make_consumer(cluster, topic, **names)
    held: list[int] = []

    def settled() -> bool:
        assert not first.assignment() & second.assignment()
        held.append(len(first.assignment()))
        return len(first.assignment()) == len(second.assignment()) == 2

    until([first, second], settled)
    assert min(held) == 2, "it never gave everything back"
    revoked = [rows for what, rows in told.events if what == "revoked"]
    assert len(revoked) == 1
    assert len(revoked[0]) == 2


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_c5_a_group_shares_partitions_out_with_librdkafka_members(
    strategy: str,
    cluster: DevCluster,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    make_consumer: Make,
) -> None:
    """Whoever leads: the partitions are shared out, every record is read once, and what one leaves the other takes."""
    topic = make_topic(cluster, partitions=4)
    theirs = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": strategy,
            "heartbeat.interval.ms": 100,
            "session.timeout.ms": 6000,
        }
    )
    theirs.subscribe([topic])
    read: list[str] = []

    def their_poll() -> None:
        message = theirs.poll(0.01)
        while message is not None:
            if message.error() is None:
                read.append(message.value().decode())
            message = theirs.poll(0.0)

    ours = make_consumer(cluster, topic, group_id=topic, partition_assignment_strategy=[strategy], **QUICK)

    def both(reached: Callable[[], bool]) -> Callable[[], bool]:
        def turn() -> bool:
            their_poll()
            return reached()

        return turn

    try:
        until([ours], both(lambda: len(ours.assignment()) == len(theirs.assignment()) == 2))
        for number in range(4):
            produce(cluster, topic, [b"%d-%d" % (number, i) for i in range(25)], number)
        until(
            [ours],
            both(lambda: len(read) >= 100),
            lambda _who, rows: read.extend(row.value.decode() for row in rows),
        )
        assert sorted(read) == sorted(f"{number}-{i}" for number in range(4) for i in range(25))
    finally:
        theirs.close()
    until([ours], lambda: len(ours.assignment()) == 4)


def test_c5_a_listener_that_raises_leaves_a_consumer_that_reads(
    cluster: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """Its error comes out of poll; the partitions are fetched all the same afterwards."""
    topic = make_topic(cluster)
    produce(cluster, topic, [b"x"])

    class Bad(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            raise OSError("no disk")

    consumer = make_consumer(cluster, group_id=topic)
    consumer.subscribe([topic], listener=Bad())
    with pytest.raises(OSError, match="no disk"):
        take(consumer, 1)
    assert take(consumer, 1)[0].value == b"x"


def test_c5_a_static_member_comes_back_without_a_rebalance(
    cluster: DevCluster, make_topic: Callable[..., str], make_consumer: Make
) -> None:
    """It does not leave when it closes, and gets its partitions again; a second one with its id fences the first."""
    topic = make_topic(cluster, partitions=2)
    names = {"group_id": topic, **QUICK}
    static = make_consumer(cluster, topic, group_instance_id="a", **names)
    other = make_consumer(cluster, topic, **names)
    until([static, other], lambda: len(static.assignment()) == len(other.assignment()) == 1)
    mine, generation = static.assignment(), other.group_metadata().generation_id
    static.close()
    again = make_consumer(cluster, topic, group_instance_id="a", **names)
    until([again, other], lambda: bool(again.assignment()))
    assert again.assignment() == mine
    assert other.group_metadata().generation_id == generation
    usurper = make_consumer(cluster, topic, group_instance_id="a", **names)
    until([usurper, other], lambda: bool(usurper.assignment()))
    with pytest.raises(MembershipFenced, match="group_instance_id 'a'"):
        until([again], lambda: False)


def test_c6_a_slow_user_is_told_which_setting_to_change(
    cluster: DevCluster,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    make_consumer: Make,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Heartbeats go on while it works, but not for ever: past max_poll_interval_ms it has left, and says why.

    On a starved machine it may leave between two polls as well, and read again: offsets are counted, not records.
    """
    topic = make_topic(cluster)
    produce(cluster, topic, [b"x"] * 3)
    told = Told()
    names = {"group_id": topic, "enable_auto_commit": False, **QUICK}
    slow = make_consumer(cluster, max_poll_interval_ms=1000, **names)
    slow.subscribe([topic], listener=told)
    taken: dict[Consumer, set[int]] = {slow: set()}

    def note(who: Consumer, rows: list[ConsumerRecord]) -> None:
        taken[who].update(row.offset for row in rows)

    until([slow], lambda: len(taken[slow]) == 3, note)
    heir = make_consumer(cluster, topic, **names)
    taken[heir] = set()
    until([heir], lambda: len(taken[heir]) == 3, note)
    with pytest.raises(CommitFailed, match="max_poll_interval_ms"):
        slow.commit()
    until([slow, heir], lambda: ("lost", [0]) in told.events)
    assert "poll() was not called for" in caplog.text
    assert "Raise max_poll_interval_ms" in caplog.text


@pytest.mark.parametrize("cluster", ONE_BROKER, indirect=True)
def test_c6_heartbeats_go_on_while_the_user_works(
    cluster: DevCluster, make_topic: Callable[..., str], make_consumer: Make
) -> None:
    """A member that does not poll for longer than its session stays a member."""
    topic = make_topic(cluster)
    consumer = make_consumer(cluster, topic, group_id=topic, **QUICK)
    until([consumer], lambda: len(consumer.assignment()) == 1)
    generation = consumer.group_metadata()
    worked_until = time.monotonic() + 7.0
    while time.monotonic() < worked_until:
        time.sleep(0.1)  # the work
    consumer.poll(200)
    consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(0)})
    assert consumer.group_metadata() == generation


def test_c7_the_timer_commits_in_poll_and_only_what_was_handed_out_before(
    cluster: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """Nothing is committed while nobody polls; the poll after the interval commits what earlier polls gave."""
    topic = make_topic(cluster)
    tp = TopicPartition(topic, 0)
    produce(cluster, topic, [b"x"] * 10)
    consumer = make_consumer(cluster, topic, group_id=topic, auto_commit_interval_ms=300, **QUICK)
    assert len(take(consumer, 10)) == 10
    worked_until = time.monotonic() + 0.5
    while time.monotonic() < worked_until:
        time.sleep(0.05)  # the work
    assert consumer.committed(tp) == {}
    deadline = time.monotonic() + PATIENCE_S
    while consumer.committed(tp) != {tp: OffsetAndMetadata(10, 0)}:
        assert time.monotonic() < deadline
        consumer.poll(50)


def test_c7_callbacks_come_in_the_order_of_the_commits(
    cluster: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """In polls, one after the other; a synchronous commit has those before it told first."""
    topic = make_topic(cluster)
    tp = TopicPartition(topic, 0)
    consumer = make_consumer(cluster, topic, group_id=topic, enable_auto_commit=False, **QUICK)
    until([consumer], lambda: len(consumer.assignment()) == 1)
    told: list[tuple[int, KafkaError | None]] = []
    for offset in range(1, 8):
        consumer.commit_async(
            {tp: OffsetAndMetadata(offset)}, lambda offsets, error: told.append((offsets[tp].offset, error))
        )
    consumer.commit({tp: OffsetAndMetadata(9, metadata="note")})
    assert told == [(offset, None) for offset in range(1, 8)]
    assert consumer.committed(tp) == {tp: OffsetAndMetadata(9, -1, "note")}


def test_c7_close_commits_what_was_handed_out(
    cluster: DevCluster, make_topic: Callable[..., str], produce: Callable[..., None], make_consumer: Make
) -> None:
    """With automatic commits, closing is one."""
    topic = make_topic(cluster)
    produce(cluster, topic, [b"x"] * 10)
    with make_consumer(cluster, topic, group_id=topic) as consumer:
        assert len(take(consumer, 10)) == 10
    witness = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic})
    try:
        assert witness.committed([confluent_kafka.TopicPartition(topic, 0)], 20)[0].offset == 10
    finally:
        witness.close()


def test_a_second_thread_is_told_and_wakeup_is_heard(
    cluster: DevCluster, make_topic: Callable[..., str], make_consumer: Make
) -> None:
    """Only wakeup may come from another thread."""
    topic = make_topic(cluster)
    consumer = make_consumer(cluster)
    consumer.assign([TopicPartition(topic, 0)])
    ended: list[type[BaseException]] = []

    def poll() -> None:
        try:
            consumer.poll(60_000)
        except ConsumerWakeup as err:
            ended.append(type(err))

    thread = threading.Thread(target=poll)
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            consumer.poll(0)
        except ConcurrentUse as err:
            assert "Only wakeup() may be called from another" in err.message
            break
        assert time.monotonic() < deadline
    consumer.wakeup()
    thread.join(PATIENCE_S)
    assert ended == [ConsumerWakeup]


def test_c10_the_coordinator_knows_members_and_owners_without_a_zookeeper(
    cluster: DevCluster, make_topic: Callable[..., str], make_consumer: Make
) -> None:
    """Registration, owners and their changes, told to librdkafka's admin client.

    Kafka 4 has no ZooKeeper; where a broker lives in one, nothing of the group stands there.
    """
    topic = make_topic(cluster, partitions=2)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

    def owners() -> dict[str, list[int]]:
        group = admin.describe_consumer_groups([topic])[topic].result(20)
        return {one.client_id: sorted(tp.partition for tp in one.assignment.topic_partitions) for one in group.members}

    first = make_consumer(cluster, topic, group_id=topic, client_id="first", **QUICK)
    until([first], lambda: len(first.assignment()) == 2)
    assert owners() == {"first": [0, 1]}
    second = make_consumer(cluster, topic, group_id=topic, client_id="second", **QUICK)
    until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 1)
    told = owners()
    assert {"first": told["first"], "second": told["second"]} == {
        "first": [tp.partition for tp in first.assignment()],
        "second": [tp.partition for tp in second.assignment()],
    }
    first.close()
    until([second], lambda: len(second.assignment()) == 2)
    assert owners() == {"second": [0, 1]}
    if cluster.zookeeper is not None:
        zookeeper = KazooClient(hosts=cluster.zookeeper)
        zookeeper.start(PATIENCE_S)
        try:
            assert zookeeper.get_children("/consumers") == []
        finally:
            zookeeper.stop()
            zookeeper.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_c5_a_listener_may_ask_for_the_positions_of_its_new_partitions(
    cluster: DevCluster,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    make_consumer: Make,
    strategy: str,
) -> None:
    """Committed ones and those by the reset policy, before it returns, as Java's and aiokafka's clients answer."""
    topic = make_topic(cluster, partitions=2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for partition in (0, 1):
        produce(cluster, topic, [b"a", b"b", b"c"], partition=partition)
    consumer = make_consumer(
        cluster, group_id=topic, partition_assignment_strategy=[strategy], auto_offset_reset="latest", **QUICK
    )
    found: dict[TopicPartition, int] = {}

    class Asks(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            found.update({tp: consumer.position(tp, timeout=PATIENCE_S) for tp in assigned})

    consumer.commit({zero: OffsetAndMetadata(1)})
    consumer.subscribe([topic], listener=Asks())
    until([consumer], lambda: len(consumer.assignment()) == 2)
    assert found == {zero: 1, one: 3}
