"""A topology on a host that copies a topic, which another host goes on writing to, through KafkaSpout and KafkaBolt."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as RdKafkaTopic

from streamlet.devcluster import DevCluster
from tests.faults.network import Network
from tests.faults.rig import wait_for
from tests.marked_processes import Marked, streamlet
from tests.patience import PATIENCE_S
from tests.read_back import read_back

BROKER, CLIENT = "broker", "client"
PORT = 9092
BOUNDS = {"request_timeout_ms": 1500, "socket_connection_setup_timeout_ms": 1500}


@contextlib.contextmanager
def broker_on(network: Network) -> Iterator[DevCluster]:
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


def servers(network: Network) -> str:
    return f"{network.address(BROKER)}:{PORT}"


def make_topics(network: Network, cluster: DevCluster, *names: str) -> None:
    with network.inside(BROKER):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for future in admin.create_topics([RdKafkaTopic(name, 1, 1) for name in names]).values():
            future.result(30)


COPIED = """
from streamlet import Bolt, Topology
from streamlet.bolts.kafka import KafkaBolt
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig, ZkOffsets

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
        request_timeout_ms=1500, {more}
    ))
    same = Same.spec(inputs=[numbers])
    out = KafkaBolt.spec(inputs=[same], hosts="{servers}", topic="{copy}", **{bounds})
"""


class Copying:
    """``more``: further settings of the spout. Each record is numbered, by its value."""

    def __init__(self, network: Network, cluster: DevCluster, folder: Path, topic: str, more: str = "") -> None:
        self.network, self.cluster, self.folder = network, cluster, folder
        self.topic, self.copy = topic, f"{topic}-copy"
        make_topics(network, cluster, topic, self.copy)
        names = {"servers": servers(network), "topic": topic, "copy": self.copy, "bounds": BOUNDS, "more": more}
        (folder / "copied.py").write_text(COPIED.format(**names))
        self.written, self._enough = 0, threading.Event()
        with network.inside(BROKER):
            self._writer = threading.Thread(target=self._write)
            self._writer.start()
        command = ["run", "copied.py", "--workers", "2", "--json"]
        with (folder / "log").open("w") as log, network.inside(CLIENT):
            self.run: Marked = streamlet(command, {"TMPDIR": str(folder)}, cwd=folder, stdout=log, stderr=log)

    def _write(self) -> None:
        # Idempotent: a batch that a broker new to its topic refuses is else sent again behind its successors.
        settings = {"bootstrap.servers": self.cluster.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True}
        producer = confluent_kafka.Producer(settings)
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

    def check(self, may_be_taken_back: bool = False) -> None:
        """Each record was copied once and in order; no tuple failed, and no worker was replaced.

        ``may_be_taken_back``: a lease was over, maybe in the middle of a turn, whose tuples the spout then sends again.
        """
        with self.network.inside(BROKER):
            rows = read_back(self.cluster, self.copy, self.written)
        wanted = list(range(self.written))
        self._compare(self.seen(), wanted)
        self._compare([int(row.value or b"") for row in rows], wanted)
        result: dict[str, Any] = json.loads((self.folder / "log").read_text().splitlines()[-1])
        assert result["drained"] and [worker["epoch"] for worker in result["workers"]] == [1, 1], self.said()
        spouts = {"spout"} if may_be_taken_back else set()
        failed = [(row["kind"] not in spouts and row["failed"], row["timed_out"]) for row in result["components"]]
        assert failed == [(0, 0)] * 3, self.said()

    def _compare(self, numbers: list[int], wanted: list[int]) -> None:
        if numbers != wanted:
            pairs = enumerate(itertools.zip_longest(numbers, wanted))
            at = next(place for place, (number, expected) in pairs if number != expected)
            around = f"from place {at} on {numbers[at : at + 10]} of {len(numbers)}, {len(wanted)} wanted"
            pytest.fail(f"{around}: {self.said()}")
