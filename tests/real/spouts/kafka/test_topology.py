"""KafkaSpout in a running topology: the runtime's own trees, acks and failures, on a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from streamlet import Bolt, Topology, Tuple
from streamlet.backends.contract import RunRequest, Stop
from streamlet.backends.inline import InlineBackend
from streamlet.base.log_line import LogLine
from streamlet.devcluster import DevCluster
from streamlet.model.settings import resolve
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, Record, SpoutConfig

SEEN: Counter[str] = Counter()


class Quiet:
    """An observer that keeps the last look."""

    def on_status(self, status: Any) -> None:
        self.status = status

    def on_event(self, line: LogLine) -> None: ...


class FailsOnce(Bolt):
    """Fails the word ``bad`` the first time it comes."""

    auto_ack = False

    def process(self, tup: Tuple) -> None:
        word = tup.values[0]
        SEEN[word] += 1
        if word == "bad" and SEEN[word] == 1:
            self.fail(tup)
        else:
            self.ack(tup)


def words(record: Record) -> list[list[str]]:
    return [[word] for word in str(record.value, "utf-8").split()]


def test_k6_a_record_comes_again_with_all_its_tuples_when_one_fails_and_is_committed_when_all_are_acked(
    kafka4: DevCluster, witness4: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(kafka4)
    witness4.produce(topic, ["one two", "three bad four", "", "five"])
    hosts = KafkaHosts(kafka4.bootstrap_servers)

    class Words(Topology):
        lines = KafkaSpout.spec(
            config=SpoutConfig(hosts, topic, id=topic, scheme=words, retry_initial_delay_ms=20), outputs=["word"]
        )
        sink = FailsOnce.spec(inputs=[lines])

    SEEN.clear()
    conf = resolve({}, {"streamlet.until.caught.up": True})
    request = RunRequest(Words.__topology__, conf, until_caught_up=True)
    result = InlineBackend().run(request, Quiet(), Stop())
    assert result.reason == "caught_up"
    assert SEEN == {"one": 1, "two": 1, "three": 2, "bad": 2, "four": 2, "five": 1}
    (row,) = kafka4.describe_groups(topic)
    assert (row.committed, row.lag) == (4, 0)
