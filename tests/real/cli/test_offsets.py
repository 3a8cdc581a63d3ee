"""``streamlet offsets`` on real stores: what it moves is where the next run goes on, and nothing moves during one."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from streamlet.devcluster import DevCluster
from streamlet.spouts.kafka import GroupOffsets, KafkaHosts, SpoutConfig, ZkOffsets
from streamlet.spouts.kafka.offset_tools.offset_changes import Wish, changes
from streamlet.spouts.kafka.offset_tools.stored_offsets import OffsetsMoved, SpoutOffsets, StillRunning, refuse_running
from tests.brokers import ON_KAFKA_2_1
from tests.command_line import Streamlet
from tests.patience import PATIENCE_S
from tests.spout_harness import Harness, harness

__all__ = ["harness"]

TOPOLOGY = """
import os
import time
from streamlet import Bolt, Topology
from streamlet.spouts.kafka import GroupOffsets, KafkaHosts, KafkaSpout, SpoutConfig, ZkOffsets


class Note(Bolt):
    def process(self, tup):
        time.sleep(float(os.environ.get("WORK_S", "0")))
        with open(os.environ["SEEN"], "a") as seen:
            print(tup.values[0], file=seen)


class Noting(Topology):
    lines = KafkaSpout.spec(config=SpoutConfig(
        KafkaHosts({servers!r}), {topic!r}, {root!r}, {id!r}, offset_store={store}, state_update_interval_ms=50,
        session_timeout_ms=6000,
    ))
    note = Note.spec(inputs=[lines])
"""

BEGAN_MS = int(time.time() * 1000) - 3_600_000
"""The time of the first record of each partition; the others follow by a second each."""


@dataclass
class Site:
    """A topic of two partitions, and a topology for each store."""

    streamlet: Streamlet
    cluster: DevCluster
    topic: str
    zk: Path = field(init=False)
    group: Path = field(init=False)
    ends: list[int] = field(default_factory=lambda: [0, 0])

    def __post_init__(self) -> None:
        # Kafka 4 has no ZooKeeper: there nothing connects to the one that this names.
        self.zk = self.write("zk.py", f"ZkOffsets({self.cluster.zookeeper or '127.0.0.1:1'!r})")
        self.group = self.write("group.py", "GroupOffsets()")

    def write(self, name: str, store: str, topic: str | None = None) -> Path:
        servers, root = self.cluster.bootstrap_servers, f"/{self.topic}"
        text = TOPOLOGY.format(servers=servers, topic=topic or self.topic, root=root, id=self.topic, store=store)
        return self.streamlet.write(text, name)

    @property
    def seen(self) -> Path:
        return self.streamlet.folder / "seen.txt"

    def produce(self, count: int) -> None:
        """``count`` records more in each partition, ``PARTITION-OFFSET``."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "enable.idempotence": True})
        for partition in (0, 1):
            for offset in range(self.ends[partition], self.ends[partition] + count):
                value, at_ms = f"{partition}-{offset}", BEGAN_MS + 1000 * offset
                producer.produce(self.topic, value, partition=partition, timestamp=at_ms)
            self.ends[partition] += count
        assert producer.flush(30) == 0

    def run(self, file: Path, *options: str) -> list[str]:
        """Run until caught up; what it read, in order."""
        self.seen.unlink(missing_ok=True)
        done = self.streamlet("run", file, "--backend", "inline", "--until-caught-up", *options, SEEN=str(self.seen))
        assert done.returncode == 0, done.stderr
        return sorted(self.seen.read_text().split()) if self.seen.exists() else []

    def records(self, *first: int) -> list[str]:
        """The records from these offsets to the ends."""
        return sorted(f"{p}-{offset}" for p in (0, 1) for offset in range(first[p], self.ends[p]))

    def offsets(self, command: str, file: Path, *arguments: object) -> str:
        done = self.streamlet("offsets", command, file, *arguments, "--debug")
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def in_group(self) -> list[int]:
        """The group's offsets, by librdkafka."""
        witness = Consumer({"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": self.topic})
        try:
            found = witness.committed([TopicPartition(self.topic, number) for number in (0, 1)], timeout=20)
            return [row.offset for row in found]
        finally:
            witness.close()

    def in_zookeeper(self) -> list[int]:
        """The nodes' offsets, by kazoo."""
        client = KazooClient(self.cluster.zookeeper)
        client.start(20)
        try:
            path = f"/{self.topic}/{self.topic}/partition_%d"
            return [json.loads(client.get(path % number)[0])["offset"] for number in (0, 1)]
        finally:
            client.stop()
            client.close()


@pytest.fixture
def site(streamlet: Streamlet, kafka39: DevCluster, make_topic: Callable[..., str]) -> Site:
    return Site(streamlet, kafka39, make_topic(kafka39, 2))


def test_offsets_moved_from_zookeeper_to_a_group_and_back_are_where_each_run_goes_on(site: Site) -> None:
    site.produce(10)
    assert site.run(site.zk) == site.records(0, 0)
    site.produce(5)
    assert "2 partitions would be written" in site.offsets("copy", site.group, "--from", place_in_zookeeper(site))
    assert site.in_group() == [-1001, -1001]
    site.offsets("copy", site.group, "--from", place_in_zookeeper(site), "--yes")
    assert site.in_group() == [10, 10]
    assert {row.partition: row.lag for row in site.cluster.describe_groups(site.topic)} == {0: 5, 1: 5}
    assert site.run(site.group) == site.records(10, 10)
    assert site.in_group() == [15, 15]
    site.produce(3)
    site.offsets("copy", site.group, "--to", place_in_zookeeper(site), "--yes")
    assert site.in_zookeeper() == [15, 15]
    assert site.run(site.zk) == site.records(15, 15)


def place_in_zookeeper(site: Site) -> str:
    return f"zk://{site.cluster.zookeeper}/{site.topic}/{site.topic}"


@pytest.mark.parametrize("store", ["zk", "group"])
def test_after_a_reset_by_time_a_run_reads_from_that_time_on(site: Site, store: str) -> None:
    file = getattr(site, store)
    site.produce(10)
    assert site.run(file) == site.records(0, 0)
    at = datetime.fromtimestamp((BEGAN_MS + 6500) / 1000, UTC).isoformat()
    shown = site.offsets("reset", file, "--to", at)
    assert shown.splitlines()[3].split() == ["0", "10", "7", "-3"]
    assert site.run(file) == []
    site.offsets("reset", file, "--to", at, "--yes")
    assert site.run(file) == site.records(7, 7)
    how = ("--to", "4") if store == "zk" else ("--by", "-6")
    site.offsets("reset", file, *how, "--partition", "1", "--yes")
    assert site.run(file) == site.records(10, 4)
    site.offsets("reset", file, "--to", "earliest", "--yes")
    assert site.run(file) == site.records(0, 0)
    site.offsets("set", file, "0=8", "1=9", "--yes")
    assert site.run(file) == site.records(8, 9)
    site.produce(2)
    site.offsets("reset", file, "--to", "latest", "--yes")
    assert site.run(file) == []
    in_store = site.in_zookeeper() if store == "zk" else site.in_group()
    assert in_store == [12, 12]


@pytest.mark.parametrize("store", ["zk", "group"])
def test_after_an_import_a_run_reads_from_the_exported_offsets_on(site: Site, store: str) -> None:
    file, export = getattr(site, store), site.streamlet.folder / "export.json"
    site.produce(4)
    site.run(file)
    site.offsets("export", file, "-o", export)
    content = json.loads(export.read_text())
    assert [(row["partition"], row["offset"]) for row in content["offsets"]] == [(0, 4), (1, 4)]
    assert content["topic"] == site.topic and content["topic_id"]
    assert {row["leader_epoch"] for row in content["offsets"]} == {0}
    site.produce(6)
    assert site.run(file) == site.records(4, 4)
    site.offsets("import", file, export, "--yes")
    assert site.run(file) == site.records(4, 4)


@pytest.mark.parametrize("store", ["zk", "group"])
def test_a_bounded_read_that_is_moved_ends_where_it_would_have(site: Site, store: str) -> None:
    """Its stop is the end of the log as it was when the read began."""
    file, bounded = getattr(site, store), ("-c", "lines.stop_offset=latest", "-c", "topology.max.spout.pending=2")
    site.produce(20)
    ends = [*site.ends]
    begun = site.streamlet("run", file, "--backend", "inline", "-t", "2", *bounded, SEEN=str(site.seen), WORK_S="0.2")
    assert "not caught up; everything that was emitted is done" in begun.stdout, begun.stderr
    site.produce(5)
    told = site.offsets("reset", file, "--by", "-2", "--yes")
    assert told.count("stops at offset 20, with stop_offset as it was.") == 2
    stored = site.in_zookeeper() if store == "zk" else site.in_group()
    assert min(stored) < 18
    site.ends = ends
    assert site.run(file, *bounded) == site.records(*stored)


def running(site: Site, file: Path, *options: str) -> subprocess.Popen[str]:
    """A run that goes on, once it has read everything."""
    process = site.streamlet.start("run", file, "--workers", "1", "-t", "600", *options, SEEN=str(site.seen))
    deadline = time.monotonic() + PATIENCE_S
    while not site.seen.exists() or sorted(site.seen.read_text().split()) != site.records(0, 0):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("store", ["zk", "group"])
def test_while_a_run_reads_offsets_are_shown_and_never_changed(
    site: Site, store: str, refused: Callable[..., str]
) -> None:
    """Refused with the task's name; once the run has ended the same command is carried out."""
    file, export = getattr(site, store), site.streamlet.folder / "export.json"
    site.produce(4)
    process = running(site, file)
    (spout,) = json.loads(site.offsets("show", file, "--json"))["spouts"]
    assert len(spout["running"]) == 1 and "lines-0" in spout["running"][0]
    site.offsets("export", file, "-o", export)
    other = f"zk://{site.cluster.zookeeper}/{site.topic}/other"
    site.offsets("copy", file, "--to", other, "--yes")
    shown = site.offsets("reset", file, "--to", "earliest")
    assert "Nothing was changed. A run has these offsets (" in shown and "lines-0" in shown
    for command in (
        ("reset", file, "--to", "earliest", "--yes"),
        ("set", file, "0=1", "--yes"),
        ("import", file, export, "--yes"),
        ("copy", file, "--from", other, "--yes"),
    ):
        said = refused("offsets", *command)
        assert "in use" in said and "lines-0" in said and "Nothing was changed" in said
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    site.offsets("reset", file, "--to", "earliest", "--yes")
    assert site.run(file) == site.records(0, 0)


def test_lag_is_that_of_kafkas_own_tool(site: Site) -> None:
    site.produce(4)
    site.run(site.group)
    site.produce(3)
    (row,) = json.loads(site.offsets("lag", site.group, "--json"))["spouts"]
    told = {str(each.partition): each.lag for each in site.cluster.describe_groups(site.topic)}
    assert row["partitions"] == told == {"0": 3, "1": 3} and row["lag"] == 6


def test_a_partition_without_a_stored_offset_has_no_lag_and_neither_has_the_sum(site: Site) -> None:
    (row,) = json.loads(site.offsets("lag", site.group, "--json"))["spouts"]
    assert row["partitions"] == {"0": 0, "1": 0} and row["lag"] == 0, "there is nothing to read"
    site.produce(3)
    site.offsets("set", site.group, "0=1", "--yes")
    (row,) = json.loads(site.offsets("lag", site.group, "--json"))["spouts"]
    assert row["partitions"] == {"0": 2, "1": None} and row["lag"] is None
    assert site.offsets("lag", site.group).splitlines()[-1].split() == ["all", "none"]


def test_of_a_list_written_by_hand_the_partitions_that_it_names_are_shown_and_moved(site: Site) -> None:
    """The others of the topic have no offset here, and the sum would never be known."""
    servers = repr(site.cluster.bootstrap_servers)
    text = site.group.read_text().replace(f"KafkaHosts({servers})", f"StaticHosts({{1: {servers}}})")
    listed = site.streamlet.write(text.replace("KafkaHosts, ", "StaticHosts, "), "listed.py")
    site.produce(4)
    assert site.run(listed) == [f"1-{offset}" for offset in range(4)]
    site.produce(3)
    (row,) = json.loads(site.offsets("lag", listed, "--json"))["spouts"]
    assert row["partitions"] == {"1": 3} and row["lag"] == 3
    refused = site.streamlet("offsets", "set", listed, "0=1", "--yes")
    assert refused.returncode == 2 and "reads no partition 0" in refused.stderr and "it reads 1." in refused.stderr
    site.offsets("reset", listed, "--to", "2", "--yes")
    assert site.run(listed) == [f"1-{offset}" for offset in range(2, 7)]
    listed.write_text(listed.read_text().replace("{1: ", "{7: "))
    missing = site.streamlet("offsets", "lag", listed)
    assert missing.returncode == 2 and "StaticHosts names partition 7" in missing.stderr


def test_an_offset_of_a_topic_that_was_made_again_is_told_and_nothing_is_counted_from_it(
    site: Site, refused: Callable[..., str]
) -> None:
    """The new topic's records before it would never be read."""
    site.produce(4)
    site.run(site.zk)
    admin = AdminClient({"bootstrap.servers": site.cluster.bootstrap_servers})
    admin.delete_topics([site.topic])[site.topic].result(20)
    deadline = time.monotonic() + PATIENCE_S
    while site.topic in admin.list_topics(timeout=20).topics:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    site.cluster.create_topic(site.topic, 2)
    site.ends = [0, 0]
    site.produce(9)
    (row,) = json.loads(site.offsets("lag", site.zk, "--json"))["spouts"]
    assert row["partitions"] == {"0": None, "1": None} and row["lag"] is None
    told = f"What is stored for partition 0, 1 is of a topic {site.topic!r} that was deleted: a run refuses it."
    assert told in site.offsets("show", site.zk)
    assert "which was deleted" in refused("offsets", "reset", site.zk, "--by", "-1", "--yes")
    site.offsets("reset", site.zk, "--to", "earliest", "--yes")
    assert site.run(site.zk) == site.records(0, 0)


def test_what_cannot_be_is_refused_in_one_paragraph_and_changes_nothing(
    site: Site, refused: Callable[..., str], topic_name: Callable[[], str]
) -> None:
    site.produce(4)
    site.run(site.zk)

    def no(*arguments: Any) -> str:
        return refused("offsets", *arguments)

    assert "can go on from 0 (the first record there is) to 4 (the end)" in no("set", site.zk, "0=5", "--yes")
    assert "reads no partition 7 of topic" in no("set", site.zk, "7=0", "--yes")
    assert "reads no partition 2" in no("reset", site.zk, "--to", "earliest", "--partition", "2")
    assert "has no zone" in no("reset", site.zk, "--to", "2026-01-01T00:00:00")
    assert "give earliest, latest" in no("reset", site.zk, "--to", "yesterday")
    assert "PARTITION=OFFSET" in no("set", site.zk, "0:5")
    assert "no KafkaSpout 'other'" in no("show", site.zk, "--component", "other")
    assert "does not exist" in no("show", site.write("missing.py", "GroupOffsets()", topic_name()))
    assert "not a place of offsets" in no("copy", site.zk, "--from", "zk://somewhere")
    assert "written once, after the last server" in no("copy", site.zk, "--from", "zk://a:1/x,b:1/x/id")
    assert "Give one of --from and --to" in no("copy", site.zk)
    assert "no offsets of topic" in no("copy", site.zk, "--from", f"group:{topic_name()}")
    export = site.streamlet.folder / "export.json"
    assert "cannot be read" in no("import", site.zk, export)
    export.write_text("{}")
    assert "that `streamlet offsets export` wrote" in no("import", site.zk, export)
    site.offsets("export", site.zk, "-o", export)
    content = json.loads(export.read_text())
    export.write_text(json.dumps({**content, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}))
    assert "which was deleted" in no("import", site.zk, export, "--yes")
    export.write_text(json.dumps({**content, "topic": "another"}))
    assert "an offset means another record there" in no("import", site.zk, export, "--yes")
    assert site.in_zookeeper() == [4, 4]


def test_overrides_hold_as_in_a_run(site: Site) -> None:
    """The offsets under another id are others."""
    site.produce(4)
    site.run(site.group)
    other = ("-c", f"lines.id={site.topic}-other")
    (spout,) = json.loads(site.offsets("show", site.group, "--json", *other))["spouts"]
    assert [row["offset"] for row in spout["partitions"]] == [None, None]
    site.offsets("copy", site.group, *other, "--from", f"group:{site.topic}", "--yes")
    (spout,) = json.loads(site.offsets("show", site.group, "--json", *other))["spouts"]
    assert [row["offset"] for row in spout["partitions"]] == [4, 4]


@pytest.mark.parametrize("store", [ZkOffsets, GroupOffsets])
def test_a_run_that_starts_between_look_and_write_is_not_overwritten(
    site: Site, store: Any, harness: Callable[..., Harness]
) -> None:
    """It keeps its claim and commits on; the command's write is refused."""
    site.produce(4)
    place = ZkOffsets(site.cluster.zookeeper) if store is ZkOffsets else GroupOffsets()
    hosts = KafkaHosts(site.cluster.bootstrap_servers)
    config = SpoutConfig(
        hosts, site.topic, f"/{site.topic}", site.topic, offset_store=place, state_update_interval_ms=50
    )
    with SpoutOffsets("words", "lines", config, lambda text: None) as offsets:
        logs = offsets.logs()
        first = changes(site.topic, offsets.topic_id, {0: Wish(2), 1: Wish(3)}, {}, logs)
        offsets.place.write(first, offsets.topic_id)
        stored = offsets.place.read([0, 1])
        later = changes(site.topic, offsets.topic_id, {0: Wish(0), 1: Wish(0)}, stored, logs)
        refuse_running(offsets.place)
        spout = harness(config)
        with pytest.raises(OffsetsMoved, match="Nothing was"):
            offsets.place.write(later, offsets.topic_id)
        assert sorted(row[0] for row, _ in spout.take(3)) == ["0-2", "0-3", "1-3"]
        with pytest.raises(StillRunning):
            refuse_running(offsets.place)


@pytest.mark.faults
@pytest.mark.parametrize("store", ["zk", "group"])
def test_a_run_that_slept_through_a_change_commits_nothing_and_stops(site: Site, store: str) -> None:
    file = getattr(site, store)
    site.produce(4)
    process = running(site, file, "--backend", "inline")
    committed = site.in_zookeeper if store == "zk" else site.in_group
    deadline = time.monotonic() + PATIENCE_S
    while committed() != [4, 4]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGSTOP)
    while True:
        done = site.streamlet("offsets", "set", file, "0=1", "1=2", "--yes")
        if done.returncode == 0:
            break
        assert "in use" in done.stderr and time.monotonic() < deadline, done
        time.sleep(0.5)
    process.send_signal(signal.SIGCONT)
    site.produce(2)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and "took over" in said, said
    assert committed() == [1, 2]
    assert site.run(file) == site.records(1, 2)


@pytest.mark.skipif(ON_KAFKA_2_1, reason="needs a Kafka 4")
def test_on_kafka_4_too_a_group_with_members_is_refused_ordinary_consumers_as_well(
    streamlet: Streamlet, kafka4: DevCluster, make_topic: Callable[..., str], refused: Callable[..., str]
) -> None:
    """Members under the newer group protocol, which have no description, count too."""
    site = Site(streamlet, kafka4, make_topic(kafka4, 2))
    site.produce(4)
    assert site.run(site.group) == site.records(0, 0)
    site.offsets("reset", site.group, "--to", "2", "--yes")
    assert site.run(site.group) == site.records(2, 2)
    site.offsets("reset", site.group, "--to", "earliest", "--yes")
    servers = {"bootstrap.servers": kafka4.bootstrap_servers, "group.id": site.topic, "enable.auto.commit": False}
    member = Consumer({**servers, "group.protocol": "consumer"})
    try:
        member.subscribe([site.topic])
        deadline = time.monotonic() + PATIENCE_S
        while len(member.assignment()) < 2:
            assert time.monotonic() < deadline
            member.poll(0.2)
        assert "ordinary consumers" in refused("offsets", "set", site.group, "0=3", "--yes")
    finally:
        member.close()
    site.offsets("set", site.group, "0=3", "1=1", "--yes")
    assert site.in_group() == [3, 1]


def test_of_several_topics_each_is_shown_and_one_by_name_is_moved(site: Site, make_topic: Callable[..., str]) -> None:
    """With offsets in ZooKeeper, where a run over one topic has stored before: they count."""
    other = Site(site.streamlet, site.cluster, make_topic(site.cluster, 2))
    site.__post_init__()  # the files are of the last site that was made
    site.produce(4)
    assert site.run(site.zk) == site.records(0, 0)
    site.produce(1)
    other.produce(2)
    several = ("-c", f"lines.topics={site.topic},{other.topic}")
    assert rows_of(site.offsets("show", site.zk, "--json", *several)) == {
        (site.topic, 0): (4, 1),
        (site.topic, 1): (4, 1),
        (other.topic, 0): (None, None),
        (other.topic, 1): (None, None),
    }
    site.seen.unlink()
    done = site.streamlet("run", site.zk, "--backend", "inline", "--until-caught-up", *several, SEEN=str(site.seen))
    assert done.returncode == 0, done.stderr
    assert sorted(site.seen.read_text().split()) == sorted([*site.records(4, 4), *other.records(0, 0)])
    refused = site.streamlet("offsets", "reset", site.zk, "--to", "1", "--yes", *several)
    assert refused.returncode == 2 and "say which one is meant with --topic" in refused.stderr
    refused = site.streamlet("offsets", "lag", site.zk, "--topic", "no", *several)
    assert refused.returncode == 2 and "topic 'no' is none of" in refused.stderr
    for command in (("reset", "--to", "0", "--yes"), ("export",), ("show",)):
        empty = site.streamlet("offsets", command[0], site.zk, *command[1:], "--topic", "", *several)
        assert (empty.returncode, empty.stdout) == (2, "") and "topic '' is none of" in empty.stderr
    site.offsets("reset", site.zk, "--to", "1", "--topic", other.topic, "--yes", *several)
    assert rows_of(site.offsets("show", site.zk, "--json", *several)) == {
        (site.topic, 0): (5, 0),
        (site.topic, 1): (5, 0),
        (other.topic, 0): (1, 1),
        (other.topic, 1): (1, 1),
    }


def rows_of(said: str) -> dict[tuple[str, int], tuple[int | None, int | None]]:
    """Offset and lag by topic and partition, of ``show --json``."""
    return {
        (spout["topic"], row["partition"]): (row["offset"], row["lag"])
        for spout in json.loads(said)["spouts"]
        for row in spout["partitions"]
    }
