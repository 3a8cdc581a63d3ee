"""Dead letters within exactly once on a real broker: each is there once, with the offset behind its record."""

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
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, Record, SpoutConfig
from streamlet.spouts.kafka.dead_letters.dead_letter_choice import LetterFilter, plan_replay
from streamlet.spouts.kafka.dead_letters.dead_letter_topic import DeadLetterTopic
from streamlet.spouts.kafka.errors import NoDeadLetterTopic
from tests.read_back import Row, read_back
from tests.run_observer import Watcher

OWN = "streamlet.dlq."
COUNT = 3000


def decoded(record: Record) -> list[list[Any]]:
    number = int(record.value or b"")
    if number % 100 == 7:
        raise ValueError(f"cannot decode {number}")
    return [[number]]


class Judge(Bolt):
    """Passes numbers on; sends one in 100 to the dead letters, after it has passed it on, and raises on two."""

    outputs = ["number"]

    def process(self, tup: Tuple) -> None:
        number = tup.values[0]
        self.emit([number])
        if number % 100 == 13:
            self.dead_letter(tup, f"not wanted: {number}")
        elif number in (1001, 2500):
            raise ValueError(f"unlucky {number}")


def is_poison(number: int) -> bool:
    return number % 100 in (7, 13) or number in (1001, 2500)


def produce(cluster: DevCluster, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5})
    for at, value in enumerate(values):
        producer.produce(topic, value, b"key " + value[:20], partition=at % 2, headers=[("trace", b"\x00\xff")])
        if at % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def judged(cluster: DevCluster, numbers: str, good: str, letters: str, **config: Any) -> type[Topology]:
    more: dict[str, Any] = {"retry_limit": 1, "retry_initial_delay_ms": 10, "scheme": decoded, **config}
    settings = {"on_poison": "dead-letter", "dead_letter_topic": letters}

    class Judged(Topology):
        config = {"topology.delivery": "exactly-once", "topology.version": "v7"}
        read = KafkaSpout.spec(
            config=SpoutConfig(KafkaHosts(cluster.bootstrap_servers), numbers, id=numbers, **settings, **more),
            outputs=["number"],
        )
        judge = Judge.spec(inputs=[read])
        out = KafkaBolt.spec(inputs=[judge], hosts=cluster.bootstrap_servers, topic=good)

    return Judged


def run(topology: type[Topology]) -> RunResult:
    request = RunRequest(
        topology.__topology__,
        resolve(topology.__topology__.config, {"streamlet.until.caught.up": True}),
        until_caught_up=True,
    )
    return InlineBackend().run(request, Watcher(), Stop())


def own(row: Row) -> dict[str, str]:
    return {name.removeprefix(OWN): (value or b"").decode() for name, value in row.headers if name.startswith(OWN)}


@pytest.fixture
def topics(kafka4: DevCluster, make_topic: Callable[..., str]) -> tuple[str, str, str]:
    return make_topic(kafka4, 2), make_topic(kafka4, 2), make_topic(kafka4, 2)


def test_of_records_of_which_some_are_poison_each_is_in_one_of_the_two_topics_once(
    kafka4: DevCluster, topics: tuple[str, str, str]
) -> None:
    numbers, good, letters = topics
    produce(kafka4, numbers, [b"%d" % number for number in range(COUNT)])
    result = run(judged(kafka4, *topics))
    poison = {*filter(is_poison, range(COUNT))}
    assert result.reason == "caught_up"
    assert Counter(row.value for row in read_back(kafka4, good, COUNT - len(poison))) == Counter(
        b"%d" % number for number in range(COUNT) if number not in poison
    )
    rows = read_back(kafka4, letters, len(poison))
    assert Counter(int(row.value or b"") for row in rows) == Counter(poison)
    read = result.components["read"]
    assert (read.given_up, read.kept) == (len(poison), len(poison))
    for row in rows:
        number, headers = int(row.value or b""), own(row)
        assert (row.key, row.headers[0]) == (b"key %d" % number, ("trace", b"\x00\xff"))
        assert (headers["topic"], headers["partition"], headers["offset"]) == (
            numbers,
            f"{number % 2}",
            f"{number // 2}",
        )
        said = {7: ("read", "ValueError", "cannot decode", "1"), 13: ("judge", "", "not wanted:", "1")}.get(
            number % 100, ("judge", "ValueError", "unlucky", "2")
        )
        found = headers["component"], headers["error.class"], headers["error.text"], headers["tries"]
        assert found == (*said[:2], f"{said[2]} {number}", said[3])
        assert (headers["topology"], headers["code.version"]) == ("Judged", "v7")
    again = run(judged(kafka4, *topics))
    assert again.components["read"].emitted < 10, "the second run finds all committed"
    assert len(read_back(kafka4, letters, len(poison))) == len(poison)
