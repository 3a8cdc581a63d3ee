"""Dead letters on a real broker: what the topic has afterwards, read by librdkafka."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from streamlet import Bolt, Topology, Tuple
from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.backends.inline import InlineBackend
from streamlet.base.errors import StreamletError
from streamlet.components.batch import Batch
from streamlet.devcluster import DevCluster
from streamlet.kafka import Admin, ConfigResource
from streamlet.model.settings import resolve
from streamlet.model.topology import TopologySpec
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, Record, SpoutConfig
from streamlet.spouts.kafka.errors import CompactedDeadLetterTopic, NoDeadLetterTopic
from tests.command_line import ROOT, Streamlet, streamlet
from tests.read_back import Row, read_back
from tests.run_observer import Watcher

__all__ = ["streamlet"]

OWN = "streamlet.dlq."
TOPOLOGY = ROOT / "tests" / "topologies" / "poison.py"


def number_of(record: Record) -> list[list[Any]]:
    return [[int(record.value or b"")]]


class Refuses(Bolt):
    """Raises on 13, sends 14 to the dead letters at once, and has all others."""

    outputs = ["number"]

    def process(self, tup: Tuple) -> None:
        number = tup.values[0]
        if number == 13:
            raise ValueError(f"unlucky {number}")
        if number == 14:
            self.dead_letter(tup, "not for us")
            return
        self.emit([number])


class Sink(Bolt):
    def process_batch(self, batch: Batch) -> None:
        for tup in batch.tuples:
            if tup.values[0] == 15:
                self.dead_letter(tup, "the sink has enough")


def write(cluster: DevCluster, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, f"key {value}", headers=[("trace", b"\x00\xff"), ("none", None)])
    assert producer.flush(20) == 0


def topology(cluster: DevCluster, topic: str, letters: str, **settings: Any) -> TopologySpec:
    class Numbers(Topology):
        numbers = KafkaSpout.spec(
            config=SpoutConfig(
                KafkaHosts(cluster.bootstrap_servers),
                topic,
                id=topic,
                scheme=number_of,
                on_poison="dead-letter",
                dead_letter_topic=letters,
                **{"retry_limit": 2, "retry_initial_delay_ms": 20, **settings},
            ),
            outputs=["number"],
        )
        refuses = Refuses.spec(inputs=[numbers])
        sink = Sink.spec(inputs=[refuses])

    return Numbers.__topology__


def run(spec: TopologySpec, backend: Any = None, **conf: Any) -> RunResult:
    settings = resolve({}, {"streamlet.until.caught.up": True, **conf})
    request = RunRequest(spec, settings, until_caught_up=True)
    return (backend or InlineBackend()).run(request, Watcher(), Stop())


def poison(cluster: DevCluster, topic: str, letters: str, streamlet: Streamlet) -> dict[str, str]:
    """The environment of tests/topologies/poison.py."""
    names = ("SERVERS", "TOPIC", "LETTERS", "DONE")
    values = (cluster.bootstrap_servers, topic, letters, str(streamlet.folder))
    return {f"POISON_{name}": value for name, value in zip(names, values, strict=True)}


def own(row: Row) -> dict[str, str]:
    return {name.removeprefix(OWN): (value or b"").decode() for name, value in row.headers if name.startswith(OWN)}


def test_each_record_that_is_given_up_is_in_the_topic_once_with_its_own_headers_and_ours(
    kafka4: DevCluster, make_topic: Callable[..., str]
) -> None:
    topic, letters = make_topic(kafka4), make_topic(kafka4)
    write(kafka4, topic, *map(str, range(20)), "twenty")
    result = run(topology(kafka4, topic, letters), **{"topology.version": "v7"})
    assert result.reason == "caught_up"
    kept = read_back(kafka4, letters, 4)
    rows = {row.value: row for row in kept}
    assert len(kept) == 4 and sorted(rows) == [b"13", b"14", b"15", b"twenty"]
    for value, row in rows.items():
        assert (row.key, row.headers[:2]) == (b"key " + value, [("trace", b"\x00\xff"), ("none", None)])
    raised, sent, from_batch, undecodable = (own(rows[value]) for value in sorted(rows))
    assert raised["topic"] == topic and (raised["partition"], raised["offset"]) == ("0", "13")
    assert (raised["component"], raised["error.class"], raised["error.text"]) == ("refuses", "ValueError", "unlucky 13")
    assert (raised["tries"], raised["replays"], raised["leader.epoch"]) == ("3", "0", "0")
    assert (raised["topology"], raised["code.version"], len(raised["run"]) > 8) == ("Numbers", "v7", True)
    assert raised["first.record"] == f"{topic}/0/13" and raised["first.failed.at"] == raised["failed.at"]
    assert (sent["component"], sent["error.class"], sent["error.text"]) == ("refuses", "", "not for us")
    assert sent["tries"] == "1", "past all retries"
    assert (from_batch["component"], from_batch["error.text"]) == ("sink", "the sink has enough")
    assert (undecodable["component"], undecodable["error.class"]) == ("numbers", "ValueError")
    (committed,) = kafka4.describe_groups(topic)
    assert (committed.committed, committed.lag) == (21, 0), "acknowledged letters are done"


def test_a_reason_travels_home_from_another_worker(
    kafka4: DevCluster, make_topic: Callable[..., str], streamlet: Streamlet
) -> None:
    topic, letters = make_topic(kafka4), make_topic(kafka4)
    write(kafka4, topic, *map(str, range(200)))
    done = streamlet(
        "run", TOPOLOGY, "--until-caught-up", "--workers", "3", **poison(kafka4, topic, letters, streamlet)
    )
    assert done.returncode == 0, done.stderr
    said = Counter((own(row)["component"], own(row)["error.text"]) for row in read_back(kafka4, letters, 4))
    assert said == {
        ("numbers", "cannot decode 7"): 1,
        ("refuse", "unlucky 13"): 1,
        ("refuse", "unlucky 113"): 1,
        ("done", "not wanted: 99"): 1,
    }


def test_a_missing_topic_is_named_before_anything_is_emitted(
    kafka4: DevCluster, make_topic: Callable[..., str], topic_name: Callable[[], str]
) -> None:
    topic, letters = make_topic(kafka4), topic_name()
    with pytest.raises(NoDeadLetterTopic, match=letters) as refused:
        run(topology(kafka4, topic, letters))
    assert refused.value.exit_status == 2
    with Admin(bootstrap_servers=kafka4.bootstrap_servers) as admin:
        assert letters not in admin.list_topics(), "a spout creates no topic"


@pytest.mark.parametrize("release", ["kafka4", "kafka39"])
def test_a_topic_for_letters_that_is_compacted_is_refused_before_anything_is_emitted(
    release: str, request: pytest.FixtureRequest, make_topic: Callable[..., str]
) -> None:
    cluster: DevCluster = request.getfixturevalue(release)
    topic, letters = make_topic(cluster), make_topic(cluster, configs={"cleanup.policy": "compact,delete"})
    with pytest.raises(
        CompactedDeadLetterTopic, match=rf"spout 'numbers' .*'{letters}' .*cleanup\.policy=compact,delete\."
    ) as refused:
        run(topology(cluster, topic, letters))
    assert refused.value.exit_status == 2


def test_a_topic_that_is_compacted_meanwhile_ends_the_run_at_a_letter_without_a_key(
    kafka4: DevCluster,
    make_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic, letters = make_topic(kafka4), make_topic(kafka4)
    producer = Producer({"bootstrap.servers": kafka4.bootstrap_servers, "enable.idempotence": True})
    producer.produce(topic, b"14")
    assert producer.flush(20) == 0

    class Compacts(Refuses):
        def process(self, tup: Tuple) -> None:
            compact(kafka4, letters)
            super().process(tup)

    monkeypatch.setitem(globals(), "Refuses", Compacts)
    with pytest.raises(StreamletError, match=rf"offset 0, was refused .*set cleanup\.policy=delete for '{letters}'"):
        run(topology(kafka4, topic, letters))
    assert "dead letter waits" not in caplog.text, "the run ends"


def compact(cluster: DevCluster, topic: str) -> None:
    """Have a topic compacted, and wait until its leader acts on it."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.alter_configs({ConfigResource.topic(topic): {"cleanup.policy": "compact"}})
    probe = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    refused: list[Any] = []
    deadline = time.monotonic() + 20
    while not any(refused) and time.monotonic() < deadline:
        probe.produce(topic, b"probe", on_delivery=lambda error, _: refused.append(error))
        probe.flush(20)
    assert any(refused)
