"""Exactly once from topic to topic on a real broker: what a reader of read_committed finds, by librdkafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from streamlet import Bolt, Topology, Tuple
from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.backends.inline import InlineBackend
from streamlet.base.errors import StreamletError
from streamlet.bolts.kafka import KafkaBolt
from streamlet.devcluster import DevCluster
from streamlet.model.settings import resolve
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig
from tests.read_back import read_back
from tests.run_observer import Watcher

LINES = 3000


class Same(Bolt):
    """Passes each line on."""

    outputs = ["line"]

    def process(self, tup: Tuple) -> None:
        self.emit(tup.values)


class Flaky(Bolt):
    """Passes each line on, twice; fails now and then, after the first of the two."""

    outputs = ["line"]
    calls = 0

    def process(self, tup: Tuple) -> None:
        Flaky.calls += 1
        self.emit([f"{tup.values[0]} a"])
        if Flaky.calls % 257 == 0:
            raise ValueError("now and then")
        self.emit([f"{tup.values[0]} b"])


class Never(Same):
    """Fails for two lines."""

    def process(self, tup: Tuple) -> None:
        self.emit(tup.values)
        if tup.values[0] in ("000010", "000501"):
            raise ValueError("never")


class Unanchored(Same):
    def process(self, tup: Tuple) -> None:
        self.emit(tup.values, anchors=[])


def write(cluster: DevCluster, topic: str, lines: int = LINES, partitions: int = 2) -> list[bytes]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True})
    values = [b"%06d" % number for number in range(lines)]
    for at, value in enumerate(values):
        producer.produce(topic, value, partition=at % partitions)
        if at % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    return values


def run(topology: type[Topology], *, delivery: str = "exactly-once", **settings: Any) -> tuple[RunResult, Watcher]:
    watch = Watcher()
    given = {"streamlet.until.caught.up": True, "topology.delivery": delivery, **settings}
    request = RunRequest(topology.__topology__, resolve({}, given), until_caught_up=True)
    return InlineBackend().run(request, watch, Stop()), watch


def copying(
    cluster: DevCluster,
    lines: str,
    copy: str,
    bolt: type[Bolt] = Same,
    par: int = 1,
    timeout_ms: Any = None,
    **config: Any,
) -> type[Topology]:
    more = {"retry_initial_delay_ms": 10, **config}

    out_settings = {} if timeout_ms is None else {"transaction_timeout_ms": timeout_ms}

    class Copying(Topology):
        read = KafkaSpout.spec(
            config=SpoutConfig(KafkaHosts(cluster.bootstrap_servers), lines, id=lines, **more), par=par
        )
        same = bolt.spec(inputs=[read])
        out = KafkaBolt.spec(inputs=[same], hosts=cluster.bootstrap_servers, topic=copy, **out_settings)

    return Copying


@pytest.mark.parametrize(("release", "tasks"), [("kafka4", 1), ("kafka4", 2), ("kafka39", 1)])
def test_each_line_is_copied_once_and_its_offset_is_committed_with_it(
    release: str, tasks: int, request: pytest.FixtureRequest, make_topic: Callable[..., str]
) -> None:
    """In transactions of version 2, which Kafka 4 has, and of version 1."""
    cluster: DevCluster = request.getfixturevalue(release)
    lines, copy = make_topic(cluster, 2), make_topic(cluster, 2)
    truth = write(cluster, lines)
    result, _ = run(copying(cluster, lines, copy, par=tasks))
    assert result.reason == "caught_up"
    assert Counter(row.value for row in read_back(cluster, copy, LINES)) == Counter(truth)
    again, _ = run(copying(cluster, lines, copy, par=tasks))
    assert again.components["read"].emitted < 10, "the second run finds all committed"
    assert len(read_back(cluster, copy, LINES)) == LINES


def test_a_bolt_that_fails_now_and_then_leaves_no_record_twice(
    kafka4: DevCluster, make_topic: Callable[..., str]
) -> None:
    lines, copy = make_topic(kafka4, 2), make_topic(kafka4, 2)
    truth = Counter(b"%b %b" % (line, end) for line in write(kafka4, lines) for end in (b"a", b"b"))
    result, _ = run(copying(kafka4, lines, copy, Flaky))
    assert result.reason == "caught_up"
    assert result.components["same"].failed > 5
    assert Counter(row.value for row in read_back(kafka4, copy, 2 * LINES)) == truth


def test_a_run_that_is_stopped_commits_what_it_has_done(kafka4: DevCluster, make_topic: Callable[..., str]) -> None:
    """Its only epoch would last for ten minutes."""
    lines, copy = make_topic(kafka4, 2), make_topic(kafka4, 2)
    truth = write(kafka4, lines, 500)
    given = {"topology.delivery": "exactly-once", "topology.commit.interval.ms": 600_000}
    topology = copying(kafka4, lines, copy).__topology__
    result = InlineBackend().run(RunRequest(topology, resolve({}, given), seconds=8.0), Watcher(), Stop())
    assert (result.reason, result.drained) == ("time", True)
    assert Counter(row.value for row in read_back(kafka4, copy, 500)) == Counter(truth)
    again, _ = run(copying(kafka4, lines, copy))
    assert again.components["read"].emitted < 10


def test_a_record_that_always_fails_is_passed_over_and_all_others_are_there_once(
    kafka4: DevCluster, make_topic: Callable[..., str]
) -> None:
    lines, copy = make_topic(kafka4, 2), make_topic(kafka4, 2)
    truth = [line for line in write(kafka4, lines, 1000) if line not in (b"000010", b"000501")]
    result, _ = run(copying(kafka4, lines, copy, Never, retry_limit=3, on_poison="skip"))
    assert result.components["read"].given_up == 2
    assert Counter(row.value for row in read_back(kafka4, copy, 998)) == Counter(truth)


def test_a_record_that_the_broker_refuses_is_found_and_all_others_are_there_once(
    kafka4: DevCluster, make_topic: Callable[..., str]
) -> None:
    """The broker refuses the batch that it is in, and with it the transaction."""
    lines, limited = make_topic(kafka4, 2), make_topic(kafka4, configs={"max.message.bytes": "1000"})
    producer = Producer({"bootstrap.servers": kafka4.bootstrap_servers, "enable.idempotence": True})
    values = [b"%03d %b" % (number, b"x" * (5000 if number == 40 else 10)) for number in range(100)]
    for number, value in enumerate(values):
        producer.produce(lines, value, partition=number % 2)
    assert producer.flush(60) == 0
    result, _ = run(copying(kafka4, lines, limited, retry_limit=2, on_poison="skip"))
    assert result.components["read"].given_up == 1
    assert Counter(row.value for row in read_back(kafka4, limited, 99)) == Counter(values[:40] + values[41:])


def test_a_transaction_timeout_that_the_brokers_do_not_allow_is_named_with_bolt_and_setting(
    kafka4: DevCluster, make_topic: Callable[..., str]
) -> None:
    lines, copy = make_topic(kafka4, 2), make_topic(kafka4, 2)
    with pytest.raises(
        StreamletError, match=rf"KafkaBolt out \(topic '{copy}'\) has transaction_timeout_ms = 3600000, "
    ):
        run(copying(kafka4, lines, copy, timeout_ms=3_600_000))


def test_a_tuple_of_no_record_ends_the_run_and_names_who_emitted_it(
    kafka4: DevCluster, make_topic: Callable[..., str]
) -> None:
    lines, copy = make_topic(kafka4, 2), make_topic(kafka4, 2)
    write(kafka4, lines, 10)
    with pytest.raises(StreamletError, match="same emitted a tuple on stream 'default' that belongs to no record"):
        run(copying(kafka4, lines, copy, Unanchored))
    assert read_back(kafka4, copy, 0) == []
