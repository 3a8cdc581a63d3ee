"""KafkaBolt on a real broker: what is in the topics afterwards, by librdkafka."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from streamlet import Bolt, Topology, Tuple
from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.backends.inline import InlineBackend
from streamlet.bolts.kafka import KafkaBolt
from streamlet.devcluster import DevCluster
from streamlet.model.settings import resolve
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig
from tests.marked_processes import REPOSITORY
from tests.patience import PATIENCE_S
from tests.read_back import read_back
from tests.run_observer import Watcher

COUNTS = """
from collections import Counter
from streamlet import Bolt, Grouping, Topology
from streamlet.bolts.kafka import KafkaBolt
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig

class Split(Bolt):
    outputs = ["word"]
    def process(self, tup):
        for word in tup.values[0].split():
            self.emit([word])

class Count(Bolt):
    outputs = ["word", "count"]
    def initialize(self, conf, context):
        self.counts = Counter()
    def process(self, tup):
        self.counts[tup.values[0]] += 1
        self.emit([tup.values[0], self.counts[tup.values[0]]])

class Counts(Topology):
    lines = KafkaSpout.spec(config=SpoutConfig(KafkaHosts("SERVERS"), "LINES", id="COUNTS"), par=2)
    split = Split.spec(inputs=[lines], par=2)
    count = Count.spec(inputs={split: Grouping.fields("word")}, par=2)
    out = KafkaBolt.spec(inputs=[count], hosts="kafka://SERVERS", topic="COUNTS", key="word", value="count", par=2)
"""


def write(cluster: DevCluster, topic: str, *rows: tuple[bytes | None, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True})
    for at, (key, value) in enumerate(rows):
        producer.produce(topic, value, key)
        if at % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def run(topology: type[Topology]) -> tuple[RunResult, Watcher]:
    watch = Watcher()
    conf = resolve({}, {"streamlet.until.caught.up": True})
    result = InlineBackend().run(RunRequest(topology.__topology__, conf, until_caught_up=True), watch, Stop())
    return result, watch


def test_a_word_count_from_topic_to_topic_is_exact_when_nothing_fails(
    kafka4: DevCluster, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """On two workers. The counts of a key are in one partition, in order, each once: 1, 2, 3 ..."""
    lines, counts = make_topic(kafka4, 2), make_topic(kafka4, 3)
    write(kafka4, lines, *((None, f"the word {number % 7} and {number % 11}".encode()) for number in range(5000)))
    text = COUNTS.replace("SERVERS", kafka4.bootstrap_servers).replace("LINES", lines).replace("COUNTS", counts)
    (tmp_path / "counts.py").write_text(text)
    command = [sys.executable, "-m", "streamlet", "run", "counts.py", "--until-caught-up", "--workers", "2"]
    subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(REPOSITORY)}, check=True, timeout=PATIENCE_S)
    truth = Counter(word for n in range(5000) for word in f"the word {n % 7} and {n % 11}".split())
    rows = read_back(kafka4, counts, truth.total())
    assert len(rows) == truth.total()
    for word, count in truth.items():
        of_word = [row for row in rows if row.key == word.encode()]
        assert len({row.partition for row in of_word}) == 1
        assert sorted(int(row.value or b"") for row in of_word) == [*range(1, count + 1)]


class Fields(Bolt):
    """A line to its fields: topic, key, value, partition, time."""

    outputs = ["topic", "key", "value", "partition", "time"]

    def process(self, tup: Tuple) -> None:
        topic, key, value, partition, time_ms = tup.values[0].split(",")
        self.emit([topic or None, key or None, value or None, int(partition) if partition else None, int(time_ms)])


def test_topic_key_headers_partition_and_time_come_of_fields_and_functions_and_none_is_a_tombstone(
    kafka4: DevCluster, make_topic: Callable[..., str]
) -> None:
    lines, one, two = make_topic(kafka4), make_topic(kafka4, 3), make_topic(kafka4, 3)
    rows = [f"{one},k,v,2,1700000000001", f"{two},k,,1,1700000000002", ",skipped,v,0,1", f"{one},,v2,,1700000000003"]
    write(kafka4, lines, *((None, row.encode()) for row in rows))

    class Copied(Topology):
        read = KafkaSpout.spec(config=SpoutConfig(KafkaHosts(kafka4.bootstrap_servers), lines, id=lines))
        fields = Fields.spec(inputs=[read])
        out = KafkaBolt.spec(
            inputs=[fields],
            hosts=kafka4.bootstrap_servers,
            topic_field="topic",
            key="key",
            value=lambda tup: tup.values.value and tup.values.value.upper(),
            headers={"of": "key", "n": lambda tup: tup.values.time % 10},
            partition="partition",
            timestamp_ms="time",
            compression_type="zstd",
        )

    result, _ = run(Copied)
    assert result.reason == "caught_up"
    placed = [row for row in read_back(kafka4, one, 2) if row.key is not None]
    assert [(row.partition, row.key, row.value, row.timestamp, row.headers) for row in placed] == [
        (2, b"k", b"V", 1700000000001, [("of", b"k"), ("n", b"1")])
    ]
    (free,) = [row for row in read_back(kafka4, one, 2) if row.key is None]
    assert (free.value, free.timestamp, free.headers) == (b"V2", 1700000000003, [("of", None), ("n", b"3")])
    (tombstone,) = read_back(kafka4, two, 1)
    assert (tombstone.partition, tombstone.key, tombstone.value) == (1, b"k", None)


def test_what_the_broker_refuses_is_named_and_given_up_and_the_rest_is_written(
    kafka4: DevCluster, make_topic: Callable[..., str]
) -> None:
    """A record beyond the topic's own limit, which only the broker knows."""
    lines, limited = make_topic(kafka4), make_topic(kafka4, configs={"max.message.bytes": "1000"})
    write(kafka4, lines, *((None, b"x" * size) for size in (10, 5000, 20)))

    class Copied(Topology):
        read = KafkaSpout.spec(
            config=SpoutConfig(
                KafkaHosts(kafka4.bootstrap_servers),
                lines,
                id=lines,
                on_poison="skip",
                retry_limit=2,
                retry_initial_delay_ms=10,
            )
        )
        out = KafkaBolt.spec(inputs=[read], hosts=kafka4.bootstrap_servers, topic=limited)

    _, watch = run(Copied)
    assert sorted(len(row.value or b"") for row in read_back(kafka4, limited, 2)) == [10, 20]
    spout = next(row for row in watch.statuses[-1].components if row.name == "read")
    assert spout.given_up == 1
    assert any("could not write a record" in line and "MessageTooLarge" in line for line in watch.texts), watch.texts


def test_a_topic_that_is_missing_keeps_no_other_tuple_of_its_batch_from_being_acked(
    kafka4: DevCluster, make_topic: Callable[..., str]
) -> None:
    """One record in ten goes to it; it fails after ``max_block_ms``, when the others were acked long before."""
    lines, there = make_topic(kafka4), make_topic(kafka4)
    write(
        kafka4, lines, *((None, f"{'missing' if n % 10 == 3 else there},k,{n},,{n + 1}".encode()) for n in range(150))
    )

    class Copied(Topology):
        config = {"topology.max.spout.pending": 60}
        read = KafkaSpout.spec(
            config=SpoutConfig(KafkaHosts(kafka4.bootstrap_servers), lines, id=lines, on_poison="skip", retry_limit=1)
        )
        fields = Fields.spec(inputs=[read])
        out = KafkaBolt.spec(
            inputs=[fields], hosts=kafka4.bootstrap_servers, topic_field="topic", value="value", max_block_ms=2000
        )

    _, watch = run(Copied)
    assert Counter(row.value for row in read_back(kafka4, there, 135)) == Counter(
        b"%d" % n for n in range(150) if n % 10 != 3
    )
    rows = [next(row for row in status.components if row.name == "out") for status in watch.statuses]
    assert max(row.acked for row in rows if not row.failed) >= 135
