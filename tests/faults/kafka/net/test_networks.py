"""Clients and a topology on a host, broker on another, and a network between them that fails in each direction."""

from __future__ import annotations

import itertools
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as RdKafkaTopic

from streamlet.devcluster import DevCluster
from streamlet.kafka import Consumer, KafkaError, Producer
from tests.faults.network import FAULTS, Fault, Network, delay_and_loss
from tests.faults.rig import wait_for
from tests.marked_processes import Marked, streamlet
from tests.patience import PATIENCE_S
from tests.read_back import read_back

pytestmark = pytest.mark.real

BROKER, CLIENT = "broker", "client"
PORT = 9092
RECORDS = 300
FAULT_S = 3.0
"""Seconds that each fault lasts: longer than a request may take."""
BOUNDS = {"request_timeout_ms": 1500, "socket_connection_setup_timeout_ms": 1500}


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(BROKER, CLIENT) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(network: Network) -> Iterator[DevCluster]:
    """One broker that others reach at the address of its host."""
    listeners = f"PLAINTEXT://0.0.0.0:{PORT},CONTROLLER://127.0.0.1:9093"
    settings = {"advertised.listeners": f"PLAINTEXT://{network.address(BROKER)}:{PORT}", "listeners": listeners}
    settings |= {"controller.quorum.voters": "0@127.0.0.1:9093"}
    with network.inside(BROKER):
        made = DevCluster("4", broker_settings=settings, preferred_ports=(2181, PORT)).start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def topic(network: Network, cluster: DevCluster, topic_name: Callable[[], str]) -> Iterator[str]:
    name = topic_name()
    with network.inside(BROKER):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([RdKafkaTopic(name, 1, 1)])[name].result(30)
    yield name
    network.heal()


def servers(network: Network) -> str:
    return f"{network.address(BROKER)}:{PORT}"


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


COPIED = """
from streamlet import Bolt, Topology
from streamlet.bolts.kafka import KafkaBolt
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig

class Same(Bolt):
    outputs = ["number"]
    def initialize(self, conf, context):
        self.seen = open("seen", "a", buffering=1)
    def process(self, tup):
        self.seen.write(f"{{tup.values[0]}}\\n")
        self.emit(tup.values)

class Copied(Topology):
    numbers = KafkaSpout.spec(config=SpoutConfig(
        KafkaHosts("{servers}"), "{topic}", id="{topic}", state_update_interval_ms=200, start_timeout_ms=60_000,
        request_timeout_ms=1500,
    ))
    same = Same.spec(inputs=[numbers])
    out = KafkaBolt.spec(inputs=[same], hosts="{servers}", topic="{copy}", **{bounds})
"""


class Copying:
    """A topology on the client's host that copies a topic, which the broker's host goes on writing to."""

    def __init__(self, network: Network, cluster: DevCluster, folder: Path, topic: str, copy: str) -> None:
        self.network, self.cluster, self.folder, self.topic, self.copy = network, cluster, folder, topic, copy
        names = {"servers": servers(network), "topic": topic, "copy": copy, "bounds": BOUNDS}
        (folder / "copied.py").write_text(COPIED.format(**names))
        self.written, self._enough = 0, threading.Event()
        with network.inside(BROKER):
            self._writer = threading.Thread(target=self._write)
            self._writer.start()
        command = ["run", "copied.py", "--workers", "2", "--json"]
        with (folder / "log").open("w") as log, network.inside(CLIENT):
            self.run: Marked = streamlet(command, {"TMPDIR": str(folder)}, cwd=folder, stdout=log, stderr=log)

    def _write(self) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "linger.ms": 5})
        while not self._enough.wait(0.005):
            producer.produce(self.topic, b"%d" % self.written, partition=0)
            self.written += 1
            producer.poll(0)
        assert producer.flush(30) == 0

    def seen(self) -> list[int]:
        """What the bolt between was given."""
        file = self.folder / "seen"
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []

    def copied(self) -> int:
        """How many records the copy has, by its end."""
        return self._ask(lambda consumer, at: int(consumer.get_watermark_offsets(at, 20)[1]), self.copy)

    def committed(self) -> int:
        """Where the group of the spout stands."""
        return self._ask(lambda consumer, at: int(consumer.committed([at], 20)[0].offset), self.topic)

    def _ask(self, ask: Callable[[confluent_kafka.Consumer, confluent_kafka.TopicPartition], int], topic: str) -> int:
        settings = {"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": self.topic}
        with self.network.inside(BROKER):
            consumer = confluent_kafka.Consumer(settings)
            try:
                return ask(consumer, confluent_kafka.TopicPartition(topic, 0))
            except confluent_kafka.KafkaException:  # a broker knows a topic a moment after it was made
                return 0
            finally:
                consumer.close()

    def said(self) -> str:
        return (self.folder / "log").read_text()[-3000:]

    def end(self) -> None:
        """Write no more, and let the run drain."""
        self._enough.set()
        self._writer.join()
        wait_for("all to be copied", lambda: self.copied() >= self.written, told=self.said)
        self.run.process.send_signal(signal.SIGINT)
        assert self.run.process.wait(PATIENCE_S) == 130, self.said()

    def close(self) -> None:
        self._enough.set()
        self._writer.join()
        self.run.end()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_b1_a_topology_that_reads_and_writes_over_a_network_that_fails_copies_each_record_once_and_in_order(
    network: Network, cluster: DevCluster, topic: str, tmp_path: Path, fault: Fault
) -> None:
    """By KafkaSpout and KafkaBolt: no tuple fails, no worker is replaced, and the group stands at the end."""
    copy = f"{topic}-copy"
    with network.inside(BROKER):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([RdKafkaTopic(copy, 1, 1)])[copy].result(30)
    made = Copying(network, cluster, tmp_path, topic, copy)
    try:
        wait_for("the first records to be copied", lambda: made.copied() > 200, told=made.said)
        fault(network, CLIENT, BROKER)
        time.sleep(FAULT_S / 2)  # the fault itself: what was on its way arrives, or not
        before = len(made.seen()), made.copied()
        time.sleep(FAULT_S / 2)
        after = len(made.seen()), made.copied()
        assert (after > before) == (fault is delay_and_loss), "the network was to fail"
        network.heal()
        wait_for("more to be copied", lambda: made.copied() > after[1] + 200, told=made.said)
        made.end()
        with network.inside(BROKER):
            rows = read_back(cluster, copy, made.written)
        assert [int(row.value or b"") for row in rows] == made.seen() == list(range(made.written))
        assert made.committed() == made.written
        result = json.loads((tmp_path / "log").read_text().splitlines()[-1])
        assert result["drained"] and [worker["epoch"] for worker in result["workers"]] == [1, 1]
        assert [(row["failed"], row["timed_out"]) for row in result["components"]] == [(0, 0)] * 3
    finally:
        network.heal()
        made.close()
