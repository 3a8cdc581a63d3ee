"""One spout over several topics while its workers are killed: no record of any topic is lost."""

from __future__ import annotations

import signal
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streamlet.devcluster import DevCluster
from tests.marked_processes import REPOSITORY, Marked, streamlet
from tests.patience import PATIENCE_S
from tests.worker_pids import kill_worker

pytestmark = pytest.mark.real

TOPOLOGY = REPOSITORY / "tests" / "topologies" / "several_topics.py"


class Rig:
    """Topics of two partitions, a run over them, and what its last bolt wrote down."""

    def __init__(self, cluster: DevCluster, folder: Path) -> None:
        self.servers, self.folder = cluster.bootstrap_servers, folder
        self.id = f"several-{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": self.servers})
        self.ends: Counter[str] = Counter()
        """Records of each partition, by topic."""

    def make(self, name: str) -> str:
        topic = f"{self.id}-{name}"
        self.admin.create_topics([NewTopic(topic, 2)])[topic].result(20)
        return topic

    def produce(self, topic: str, count: int) -> None:
        """So many records in each partition."""
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5, "enable.idempotence": True})
        for number in range(2 * count):
            producer.produce(topic, str(number), partition=number % 2)
        assert producer.flush(60) == 0
        self.ends[topic] += count

    def start(self, *options: str, **about: str) -> Marked:
        names = {"SERVERS": self.servers, "DONE": str(self.folder), "ID": self.id, **about}
        environment = {f"SEVERAL_{name}": value for name, value in names.items()}
        command = ["run", str(TOPOLOGY), "--workers", "2", "--json", *options]
        with (self.folder / "log").open("a") as log:
            return streamlet(
                command, {"TMPDIR": str(self.folder), **environment}, cwd=self.folder, stdout=log, stderr=log
            )

    def said(self) -> str:
        return (self.folder / "log").read_text()

    def done(self) -> Counter[str]:
        # The last line of a worker that was killed may be cut.
        texts = [file.read_text().rpartition("\n")[0] for file in self.folder.glob("done.*")]
        return Counter(line for text in texts for line in text.splitlines())

    def written(self) -> set[str]:
        return {f"{topic} {p} {offset}" for topic, end in self.ends.items() for p in (0, 1) for offset in range(end)}

    def until_done(self, wanted: set[str], share: float, run: Marked) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(self.done().keys() & wanted) < share * len(wanted):
            assert time.monotonic() < deadline and run.process.poll() is None, self.said()
            time.sleep(0.05)

    def committed(self) -> dict[tuple[str, int], int]:
        wanted = [TopicPartition(topic, number) for topic in self.ends for number in (0, 1)]
        asked = [ConsumerGroupTopicPartitions(self.id, wanted)]
        found = self.admin.list_consumer_group_offsets(asked)[self.id].result(20)
        return {(row.topic, row.partition): row.offset for row in found.topic_partitions}

    def all_ends(self) -> dict[tuple[str, int], int]:
        return {(topic, number): end for topic, end in self.ends.items() for number in (0, 1)}


def test_killed_workers_lose_no_record_of_two_topics_on_two_streams(cluster: DevCluster, tmp_path: Path) -> None:
    rig = Rig(cluster, tmp_path)
    topics = [rig.make("a"), rig.make("b")]
    for topic in topics:
        rig.produce(topic, 15_000)
    run = rig.start("--until-caught-up", TOPICS=",".join(topics))
    try:
        for share, worker in ((0.1, 0), (0.4, 1)):
            rig.until_done(rig.written(), share, run)
            kill_worker(rig.folder, worker, run)
        run.process.wait(PATIENCE_S)
        assert run.process.returncode == 0, rig.said()
    finally:
        run.end()
    assert rig.done().keys() == rig.written()
    assert rig.committed() == rig.all_ends()


def test_a_topic_that_appears_while_workers_are_killed_is_read_from_its_start(
    cluster: DevCluster, tmp_path: Path
) -> None:
    """With start_offset="latest", in a run over a pattern that matches nothing at first."""
    rig = Rig(cluster, tmp_path)
    run = rig.start(PATTERN=f"{rig.id}-.*")
    try:
        deadline = time.monotonic() + PATIENCE_S
        # Not before the run has begun: until then "latest" is where the last worker that starts finds the end.
        while "no topic yet that matches" not in rig.said() or '"state": "running"' not in rig.said():
            assert time.monotonic() < deadline and run.process.poll() is None, rig.said()
            time.sleep(0.05)
        first = rig.make("first")
        kill_worker(rig.folder, 0, run)
        rig.produce(first, 3000)
        rig.until_done(rig.written(), 0.2, run)
        second = rig.make("second")
        rig.produce(second, 3000)
        kill_worker(rig.folder, 1, run)
        rig.until_done(rig.written(), 1.0, run)
        run.process.send_signal(signal.SIGINT)
        run.process.wait(PATIENCE_S)
        assert run.process.returncode == 130, rig.said()
    finally:
        run.end()
    assert rig.done().keys() == rig.written()
    assert rig.committed() == rig.all_ends()


def test_a_backfill_keeps_its_stop_over_restarts_and_killed_workers_and_ends_by_itself(
    cluster: DevCluster, tmp_path: Path
) -> None:
    """Without --until-caught-up. Its "latest" is the end when it began, also to its second half."""
    rig = Rig(cluster, tmp_path)
    topics = [rig.make("a"), rig.make("b")]
    for topic in topics:
        rig.produce(topic, 8_000)
    wanted, ends = rig.written(), rig.all_ends()
    about = ("-c", "places.stop_offset=latest", "-c", "topology.max.spout.pending=500")
    first = rig.start(*about, TOPICS=",".join(topics))
    try:
        rig.until_done(wanted, 0.2, first)
        first.process.send_signal(signal.SIGINT)
        first.process.wait(PATIENCE_S)
    finally:
        first.end()
    assert len(wanted - rig.done().keys()) > 0
    for topic in topics:
        rig.produce(topic, 500)
    second = rig.start(*about, TOPICS=",".join(topics))
    try:
        rig.until_done(wanted, 0.6, second)
        kill_worker(rig.folder, 0, second)
        second.process.wait(PATIENCE_S)
        assert second.process.returncode == 0, rig.said()
    finally:
        second.end()
    assert rig.done().keys() == wanted
    assert rig.committed() == ends
