"""KafkaBolt in a running topology, on scripted brokers: what is acked, failed, kept back and said."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from streamlet import Batch, Bolt, Grouping, Topology, TopologyContext, Tuple
from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.backends.inline import InlineBackend
from streamlet.base.errors import StreamletError
from streamlet.bolts.kafka import KafkaBolt
from streamlet.bolts.kafka.errors import OutputTopicMissing
from streamlet.kafka.broker_errors import TopicAuthorizationFailed
from streamlet.kafka.protocol.schema import ApiKey
from streamlet.model.settings import resolve
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig
from tests.run_observer import Watcher
from tests.scripted.fake_broker import SILENCE
from tests.scripted.fake_cluster import FakeCluster


def run(topology: type[Topology], *, until_caught_up: bool = True, **settings: Any) -> tuple[RunResult, Watcher]:
    watch = Watcher()
    conf = resolve({}, {"streamlet.until.caught.up": until_caught_up, **settings})
    request = RunRequest(topology.__topology__, conf, until_caught_up=until_caught_up)
    return InlineBackend().run(request, watch, Stop()), watch


class Count(Bolt):
    outputs = ["word", "count"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: Counter[str] = Counter()

    def process(self, tup: Tuple) -> None:
        self.counts[tup.values[0]] += 1
        self.emit([tup.values[0], self.counts[tup.values[0]]])


class Same(Bolt):
    """Passes each line on."""

    outputs = ["line"]

    def process(self, tup: Tuple) -> None:
        self.emit(tup.values)


def copying(cluster: FakeCluster, *, on_poison: str = "stop", retry_limit: int = 20, **bolt: Any) -> type[Topology]:
    hosts = KafkaHosts(cluster.broker.address)

    class Copying(Topology):
        lines = KafkaSpout.spec(
            config=SpoutConfig(
                hosts, "lines", id="copying", retry_initial_delay_ms=10, on_poison=on_poison, retry_limit=retry_limit
            )
        )
        same = Same.spec(inputs=[lines])
        out = KafkaBolt.spec(**{"inputs": [same], "hosts": hosts, "topic": "out", **bolt})

    return Copying


def written(cluster: FakeCluster, topic: str = "out") -> list[bytes | None]:
    return [value for (name, _), values in sorted(cluster.values.items()) if name == topic for value in values]


def row(watch: Watcher, name: str) -> Any:
    return next(row for row in watch.statuses[-1].components if row.name == name)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_each_tuple_is_a_record_and_acked_when_it_is_written() -> None:
    with FakeCluster({"counts": 3}) as cluster:
        cluster.fill("lines", 50, 50)
        hosts = KafkaHosts(cluster.broker.address)

        class Counts(Topology):
            lines = KafkaSpout.spec(config=SpoutConfig(hosts, "lines", id="counts"))
            count = Count.spec(inputs={lines: Grouping.fields("value")})
            out = KafkaBolt.spec(inputs=[count], hosts=hosts, topic="counts", key="word", value="count")

        result, watch = run(Counts)
        assert result.reason == "caught_up"
        assert sorted(written(cluster, "counts")) == [b"1"] * 50 + [b"2"] * 50  # type: ignore[type-var]
        assert cluster.committed["counts", "lines", 0].committed_offset == 50
        assert (row(watch, "out").acked, row(watch, "out").failed) == (100, 0)


def test_no_offset_is_committed_before_its_record_is_acknowledged() -> None:
    with FakeCluster({"out": 1}) as cluster:
        cluster.fill("lines", 20)
        looks: list[tuple[int, int]] = []

        def late(request: Any) -> Any:
            time.sleep(0.5)  # longer than it takes to commit what is acked
            offset = max((one.committed_offset for one in cluster.committed.values()), default=0)
            looks.append((offset, len(written(cluster))))
            return cluster.produce(request)

        cluster.broker.on(ApiKey.PRODUCE, late)
        result, _ = run(copying(cluster))
        assert result.reason == "caught_up"
        assert all(offset <= count for offset, count in looks)
        assert sorted(written(cluster)) == sorted(numbers(20))  # type: ignore[type-var]


def test_a_record_that_the_broker_refuses_fails_its_tuple_with_the_brokers_error_and_comes_again() -> None:
    with FakeCluster({"out": 1}) as cluster:
        cluster.fill("lines", 10)
        cluster.answers = [29]
        result, watch = run(copying(cluster))
        assert result.reason == "caught_up"
        assert sorted(written(cluster)) == sorted(numbers(10))  # type: ignore[type-var]
        assert row(watch, "out").failed >= 1
        said = next(line for line in watch.texts if "could not write" in line)
        assert said.startswith("out could not write a record to topic 'out': ")
        assert "TopicAuthorizationFailed" in said
        assert said.endswith("Its tuple has failed, and its spout was informed.")


def test_what_is_under_way_longer_than_the_timeout_is_not_timed_out() -> None:
    """The producer's own delivery_timeout_ms bounds it."""
    with FakeCluster({"out": 1}) as cluster:
        cluster.fill("lines", 10)

        def late(request: Any) -> Any:
            time.sleep(3.0)
            return cluster.produce(request)

        cluster.broker.on(ApiKey.PRODUCE, late, cluster.produce)
        result, watch = run(copying(cluster), **{"topology.message.timeout.secs": 1})
        assert result.reason == "caught_up"
        assert row(watch, "lines").timed_out == 0
        assert sorted(written(cluster)) == sorted(numbers(10))  # type: ignore[type-var]


def test_a_full_memory_holds_tuples_back_and_nothing_fails() -> None:
    """A slow broker, and room for two batches: the loop never waits, spouts pause, and all is written once."""
    with FakeCluster({"out": 2}) as cluster:
        cluster.fill("lines", 3000)

        def slow(request: Any) -> Any:
            time.sleep(0.02)
            return cluster.produce(request)

        cluster.broker.on(ApiKey.PRODUCE, slow)
        result, watch = run(copying(cluster, buffer_memory=2048, batch_size=1024, max_block_ms=100))
        assert result.reason == "caught_up"
        assert Counter(written(cluster)) == Counter(numbers(3000))
        assert (row(watch, "out").failed, row(watch, "lines").failed) == (0, 0)


def test_a_record_that_is_too_large_fails_alone_and_is_given_up_by_the_spouts_policy() -> None:
    with FakeCluster({"out": 1}) as cluster:
        cluster.write("lines", "small", "x" * 3000, "small, too")
        _, watch = run(copying(cluster, max_request_size=2000, on_poison="skip", retry_limit=1))
        assert written(cluster) == [b"small", b"small, too"]
        assert row(watch, "lines").given_up == 1
        assert any("max_request_size is 2000: send a smaller record" in line for line in watch.texts)
        # The bolt's user gave no list: words about one would say that the others were not sent.
        assert not [line for line in watch.texts if "records were taken" in line or "values[" in line]


class Checks(Bolt):
    """Raises on a batch with a bad line."""

    outputs = ["line"]

    def process_batch(self, batch: Batch) -> None:
        if bad := [line for line in batch.values("value") if int(line) % 100 == 7]:
            raise ValueError(f"{bad} are bad")
        self.emit_many([[line] for line in batch.values("value")])


def test_a_bad_record_of_a_batch_takes_no_good_one_along_to_where_it_is_given_up() -> None:
    """The batch fails whole, its records are tried again together, and each alone before it is given up."""
    with FakeCluster({"out": 1}) as cluster:
        cluster.fill("lines", 1000)
        hosts = KafkaHosts(cluster.broker.address)
        tries = {"retry_initial_delay_ms": 10, "retry_limit": 2, "on_poison": "skip"}

        class Checked(Topology):
            lines = KafkaSpout.spec(config=SpoutConfig(hosts, "lines", id="checked", **tries))
            checks = Checks.spec(inputs=[lines])
            out = KafkaBolt.spec(inputs=[checks], hosts=hosts, topic="out")

        result, watch = run(Checked)
        assert result.reason == "caught_up"
        assert Counter(written(cluster)) == Counter(line for line in numbers(1000) if int(line) % 100 != 7)
        assert row(watch, "lines").given_up == 10
        assert row(watch, "lines").failed > 100, "no batch failed with others"


def test_a_topic_that_does_not_exist_ends_the_start_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamlet.bolts.kafka.bolt.START_S", 0.3)
    with FakeCluster({}) as cluster:
        cluster.fill("lines", 10)
        with pytest.raises(OutputTopicMissing, match="the topic 'out' does not exist"):
            run(copying(cluster))


def test_tuples_that_are_not_tracked_are_written_before_the_run_ends() -> None:
    with FakeCluster({"out": 1}) as cluster:
        cluster.fill("lines", 500)

        def late(request: Any) -> Any:
            time.sleep(0.5)
            return cluster.produce(request)

        cluster.broker.on(ApiKey.PRODUCE, late)
        result, _ = run(copying(cluster), **{"topology.acker.executors": 0})
        assert result.reason == "caught_up"
        assert Counter(written(cluster)) == Counter(numbers(500))


def test_a_run_that_leaves_records_of_untracked_tuples_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamlet.bolts.kafka.bolt.CLOSE_S", 0.3)
    with FakeCluster({"out": 1}) as cluster:
        cluster.fill("lines", 10)
        cluster.broker.on(ApiKey.PRODUCE, SILENCE)
        with pytest.raises(
            StreamletError, match="10 of these tuples are not tracked: their records may not be written"
        ):
            run(copying(cluster), **{"topology.acker.executors": 0})


def test_a_broker_that_is_away_is_waited_for_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """For longer than the time-out of tuples and max_block_ms; the spout reads of another cluster meanwhile."""
    with FakeCluster() as source, FakeCluster({"out": 1}) as cluster:
        source.fill("lines", 5000)
        bounds = {"buffer_memory": 4096, "batch_size": 1024, "max_block_ms": 100, "reconnect_backoff_max_ms": 100}
        topology = copying(source, hosts=cluster.broker.address, **bounds)

        def away() -> None:
            while not cluster.produced:
                time.sleep(0.01)
            cluster.broker.stop()
            time.sleep(4.0)
            cluster.broker.start()

        stops = threading.Thread(target=away)
        stops.start()
        caplog.set_level("INFO", "streamlet")
        result, watch = run(topology, **{"topology.message.timeout.secs": 1})
        stops.join()
        assert result.reason == "caught_up"
        assert {*written(cluster)} == {*numbers(5000)}
        assert (row(watch, "out").failed, row(watch, "lines").timed_out) == (0, 0)
        assert caplog.text.count("waits with records for topic 'out': buffer_memory") == 1
        assert caplog.text.count("goes on writing to topic 'out'") == 1


def test_a_topic_of_each_tuple_that_appears_later_is_named_while_it_is_waited_for_and_written_to_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "streamlet")
    with FakeCluster({"out": 1}) as cluster:
        cluster.fill("lines", 10)
        topology = copying(cluster, topic=lambda tup: "late" if tup.values.line == "3" else "out")

        def appear() -> None:
            while len(written(cluster)) < 9 or "waits with records for topic 'late': the brokers" not in caplog.text:
                time.sleep(0.01)
            cluster.log("late", 0)

        makes = threading.Thread(target=appear)
        makes.start()
        result, _ = run(topology)
        makes.join()
        assert result.reason == "caught_up"
        assert written(cluster, "late") == [b"3"]


def test_a_record_whose_outcome_is_unknown_fails_its_tuple_which_says_so() -> None:
    with FakeCluster({"out": 1}) as cluster:
        cluster.fill("lines", 10)
        cluster.answers = [(SILENCE, True)]
        bounds = {"request_timeout_ms": 300, "delivery_timeout_ms": 300, "retries": 0, "enable_idempotence": False}
        result, watch = run(copying(cluster, **bounds))
        assert result.reason == "caught_up"
        assert {*written(cluster)} == {*numbers(10)}
        assert len(written(cluster)) > 10, "those of the first answer are there twice"
        said = next(line for line in watch.texts if "could not write" in line)
        assert "Whether the record was written is not known: sent again, it may be there twice." in said


def test_a_topic_that_may_not_be_written_ends_the_start_with_the_brokers_error() -> None:
    with FakeCluster({"out": 1}) as cluster:
        cluster.fill("lines", 10)

        def refusing(request: Any) -> Any:
            found = cluster.metadata(request)
            rows = (replace(row, error_code=29, partitions=()) if row.name == "out" else row for row in found.topics)
            return replace(found, topics=tuple(rows))

        cluster.broker.on(ApiKey.METADATA, refusing)
        with pytest.raises(TopicAuthorizationFailed, match="Topic 'out'"):
            run(copying(cluster))


def test_what_waits_and_what_is_skipped_is_reported() -> None:
    with FakeCluster({"out": 1}) as cluster:
        cluster.fill("lines", 10)
        result, watch = run(copying(cluster, topic=lambda tup: "out" if tup.values.line in "357" else None))
        assert result.reason == "caught_up"
        assert sorted(written(cluster)) == [b"3", b"5", b"7"]  # type: ignore[type-var]
        assert row(watch, "out").acked == 10
        assert result.status.components[2].metrics == {
            "records_waiting": 0.0,
            "records_under_way": 0.0,
            "tuples_skipped": 7.0,
        }
