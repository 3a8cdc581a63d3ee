"""Clients and a topology on a host, broker on another, and a network between them that fails in each direction."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamlet.devcluster import DevCluster
from streamlet.kafka import Consumer, KafkaError, Producer
from tests.faults.copied_topic import BOUNDS, BROKER, CLIENT, Copying, broker_on, make_topics, servers
from tests.faults.network import FAULTS, Fault, Network, delay_and_loss
from tests.faults.rig import wait_for
from tests.read_back import read_back

pytestmark = pytest.mark.real

RECORDS = 300
FAULT_S = 3.0
"""Seconds that each fault lasts: longer than a request may take."""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(BROKER, CLIENT) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(network: Network) -> Iterator[DevCluster]:
    with broker_on(network) as made:
        yield made


@pytest.fixture
def topic(network: Network, cluster: DevCluster, topic_name: Callable[[], str]) -> Iterator[str]:
    name = topic_name()
    make_topics(network, cluster, name)
    yield name
    network.heal()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_b1_records_sent_over_a_network_that_fails_are_in_the_log_once_and_in_order(
    network: Network, cluster: DevCluster, topic: str, fault: Fault
) -> None:
    with network.inside(CLIENT):
        producer = Producer(bootstrap_servers=servers(network), retry_backoff_ms=50, **BOUNDS)
    numbers = itertools.count()

    def send_for(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            producer.send(topic, b"%d" % next(numbers))
            time.sleep(0.005)

    with producer:
        send_for(1.0)
        fault(network, CLIENT, BROKER)
        send_for(FAULT_S)
        network.heal()
        send_for(0.5)
        producer.flush(60)
    sent = next(numbers)
    with network.inside(BROKER):
        rows = read_back(cluster, topic, sent)
    assert [int(row.value or b"") for row in rows] == list(range(sent))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_b1_records_read_over_a_network_that_fails_come_once_and_in_order(
    network: Network, cluster: DevCluster, topic: str, fault: Fault
) -> None:
    with network.inside(BROKER):
        producer = Producer(bootstrap_servers=servers(network))
    with producer, network.inside(CLIENT):
        consumer = Consumer(
            topic,
            bootstrap_servers=servers(network),
            group_id=topic,
            auto_offset_reset="earliest",
            session_timeout_ms=30_000,
            retry_backoff_ms=50,
            **BOUNDS,
        )
        read: list[int] = []

        def read_until(count: int, seconds: float) -> bool:
            until = time.monotonic() + seconds
            while len(read) < count and time.monotonic() < until:
                rows = consumer.poll(200)
                read.extend(int(row.value) for each in rows.values() for row in each)
            return len(read) >= count

        def write(count: int) -> None:
            for _ in range(count):
                producer.send(topic, b"%d" % next(numbers))
            producer.flush(30)

        numbers = itertools.count()
        try:
            write(RECORDS)
            assert read_until(RECORDS, 60)
            fault(network, CLIENT, BROKER)
            write(1)  # the answer to a question that was asked before
            assert not read_until(RECORDS + 2, 0.5)
            write(RECORDS - 1)
            came = read_until(2 * RECORDS, FAULT_S)
            assert came == (fault is delay_and_loss)
            network.heal()
            write(RECORDS)
            assert read_until(3 * RECORDS, 60), f"{len(read)} of {3 * RECORDS} records came"
            consumer.commit(timeout=30)
        finally:
            network.heal()
            consumer.close(10)
        assert read == list(range(3 * RECORDS))


def test_b2_a_network_that_stays_away_ends_every_call_by_its_time_out(network: Network, topic: str) -> None:
    with network.inside(CLIENT):
        producer = Producer(bootstrap_servers=servers(network), delivery_timeout_ms=3000, linger_ms=0, **BOUNDS)
        consumer = Consumer(
            topic, bootstrap_servers=servers(network), group_id=topic, auto_offset_reset="earliest", **BOUNDS
        )
        producer.send(topic, b"1").get(30)
        until = time.monotonic() + 30
        while not consumer.poll(200):
            assert time.monotonic() < until
        network.black_hole(BROKER, CLIENT)
        since = time.monotonic()
        with pytest.raises(KafkaError):
            producer.send(topic, b"2").get(30)
        assert not consumer.poll(500)
        with pytest.raises(KafkaError):
            consumer.commit(timeout=2)
        consumer.close(2)
        producer.close(2)
        assert time.monotonic() - since < 15


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_b1_a_topology_that_reads_and_writes_over_a_network_that_fails_copies_each_record_once_and_in_order(
    network: Network, cluster: DevCluster, topic: str, tmp_path: Path, fault: Fault
) -> None:
    """By KafkaSpout and KafkaBolt: no tuple fails, no worker is replaced, and the group stands at the end."""
    made = Copying(network, cluster, tmp_path, f"{topic}-numbers")
    try:
        wait_for("the first records to be copied", lambda: made.copied() > 200, told=made.said)
        fault(network, CLIENT, BROKER)
        time.sleep(FAULT_S / 2)  # the fault itself: what was on its way arrives, or not
        before = len(made.seen()), made.copied()
        time.sleep(FAULT_S / 2)
        if fault is delay_and_loss:  # nothing comes for a while when a segment is lost twice
            wait_for("more through the bad network", lambda: (len(made.seen()), made.copied()) > before, told=made.said)
        after = len(made.seen()), made.copied()
        assert (after > before) == (fault is delay_and_loss), "the network was to fail"
        network.heal()
        wait_for("more to be copied", lambda: made.copied() > after[1] + 200, told=made.said)
        made.end()
        made.check()
        assert made.committed() == made.written
    finally:
        network.heal()
        made.close()
