"""Dead letters within exactly once on a real broker: each is there once, with the offset behind its record."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from threading import Timer
from typing import Any

import pytest
from confluent_kafka import Producer

from streamlet import Bolt, Topology, Tuple
from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.backends.inline import InlineBackend
from streamlet.base.errors import StreamletError
from streamlet.bolts.kafka import KafkaBolt
from streamlet.devcluster import DevCluster
from streamlet.kafka import Admin
from streamlet.model.settings import resolve
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, Record, SpoutConfig
from streamlet.spouts.kafka.dead_letters.dead_letter_choice import LetterFilter, plan_replay
from streamlet.spouts.kafka.dead_letters.dead_letter_topic import DeadLetterTopic
from streamlet.spouts.kafka.errors import CompactedDeadLetterTopic, NoDeadLetterTopic
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
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True})
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
def topics(kafka4: DevCluster, make_topic: Callable[..., str]) -> Iterator[tuple[str, str, str]]:
    yield make_topic(kafka4, 2), make_topic(kafka4, 2), make_topic(kafka4, 2)
    # A run that ended in the middle leaves its producer to the collector. Later its transaction could not be ended.
    gc.collect()


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


class Ints(Bolt):
    """Raises on what is no number."""

    outputs = ["number"]

    def process(self, tup: Tuple) -> None:
        self.emit([int(tup.values[0])])


def test_records_that_fail_side_by_side_are_each_given_up_after_their_tries(
    kafka4: DevCluster, topics: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The letter of the first is in each transaction that the second one has aborted."""
    numbers, good, letters = topics
    bad = {offset for offset in range(60) if offset % 20 in (5, 6, 7)}
    values = [b"bad %d" % offset if offset in bad else b"%d" % offset for offset in range(60)]
    producer = Producer({"bootstrap.servers": kafka4.bootstrap_servers, "enable.idempotence": True})
    for value in values:
        producer.produce(numbers, value, partition=0)
    assert producer.flush(60) == 0
    monkeypatch.setitem(globals(), "Judge", Ints)
    result = run(judged(kafka4, *topics, scheme=lambda record: [[(record.value or b"").decode()]]))
    assert result.reason == "caught_up"
    assert Counter(row.value for row in read_back(kafka4, good, 60 - len(bad))) == Counter(
        value for offset, value in enumerate(values) if offset not in bad
    )
    rows = read_back(kafka4, letters, len(bad))
    assert {int(own(row)["offset"]): own(row)["tries"] for row in rows} == dict.fromkeys(bad, "2")
    read, out = result.components["read"], result.components["out"]
    assert (len(rows), read.given_up, read.kept) == (len(bad), len(bad), len(bad))
    assert out.metrics["transactions_aborted"] <= 2 * len(bad), "at most one for each try"


def test_a_topic_for_letters_that_is_missing_is_named_at_the_start(
    kafka4: DevCluster, topics: tuple[str, str, str], topic_name: Callable[[], str]
) -> None:
    missing = topic_name()
    with pytest.raises(NoDeadLetterTopic, match=missing) as refused:
        run(judged(kafka4, *topics[:2], missing))
    assert refused.value.exit_status == 2


def test_a_topic_for_letters_that_is_compacted_is_refused_at_the_start(
    kafka4: DevCluster, topics: tuple[str, str, str], make_topic: Callable[..., str]
) -> None:
    compacted = make_topic(kafka4, configs={"cleanup.policy": "compact"})
    with pytest.raises(CompactedDeadLetterTopic, match=rf"'{compacted}' .*cleanup\.policy=compact\."):
        run(judged(kafka4, *topics[:2], compacted))


def test_a_letter_that_its_topic_refuses_ends_the_run_and_names_the_record(
    kafka4: DevCluster, topics: tuple[str, str, str], make_topic: Callable[..., str]
) -> None:
    numbers, good, _ = topics
    small = make_topic(kafka4, configs={"max.message.bytes": "2000"})
    produce(kafka4, numbers, [b"0", b"1", b"x" * 3000, b"3"])
    with pytest.raises(StreamletError, match=rf"topic '{numbers}', partition 0, offset 1, was refused by .*'{small}'"):
        run(judged(kafka4, numbers, good, small))
    assert read_back(kafka4, good, 0) == [], "nothing of its transaction"
    assert run(judged(kafka4, *topics)).components["read"].kept == 1, "it comes again"


def test_a_topic_that_is_deleted_ends_the_run(
    kafka4: DevCluster, topics: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers, good, dead = topics
    monkeypatch.setattr("streamlet.bolts.kafka.letters.GONE_S", 2.0)
    produce(kafka4, numbers, [b"%d" % number for number in range(10)])

    class Deletes(Judge):
        def process(self, tup: Tuple) -> None:
            with Admin(bootstrap_servers=kafka4.bootstrap_servers) as admin:
                if dead in admin.list_topics():
                    admin.delete_topics(dead)
            super().process(tup)

    monkeypatch.setitem(globals(), "Judge", Deletes)
    with pytest.raises(StreamletError, match=rf"Dead letters wait for topic '{dead}'.* there is no such topic"):
        run(judged(kafka4, numbers, good, dead))


def test_a_topic_full_of_large_undecodable_records_becomes_letters_bit_by_bit(
    kafka4: DevCluster, topics: tuple[str, str, str]
) -> None:
    numbers, good, letters = topics
    values = [b"%d" % number if number % 50 == 0 else b"%03d" % number + b"x" * 100_000 for number in range(300)]
    produce(kafka4, numbers, values)
    result = run(judged(kafka4, numbers, good, letters))
    assert Counter(row.value for row in read_back(kafka4, good, 6)) == Counter(values[::50])
    assert Counter(row.value for row in read_back(kafka4, letters, 294)) == Counter(values) - Counter(values[::50])
    assert (result.components["read"].given_up, result.components["read"].kept) == (294, 294)


def test_the_commands_see_committed_letters_alone_and_a_replay_waits_for_open_transactions(
    kafka4: DevCluster, topics: tuple[str, str, str]
) -> None:
    """An aborted letter stands before them, an open transaction in the middle, and marks behind that."""
    numbers, _, letters = topics
    produce(kafka4, numbers, [b"%d" % number for number in range(20)])
    writer = Producer({"bootstrap.servers": kafka4.bootstrap_servers, "transactional.id": f"{letters}-open"})
    writer.init_transactions(30)
    for ends in (writer.abort_transaction, None):
        if ends is None:
            run(judged(kafka4, *topics))
        writer.begin_transaction()
        headers = [(OWN + "topic", numbers), (OWN + "partition", "0"), (OWN + "offset", "0")]
        for partition in (0, 1):
            writer.produce(letters, b"never", partition=partition, headers=headers)
        writer.flush(30)
        if ends is not None:
            ends(30)
    settings = SpoutConfig(KafkaHosts(kafka4.bootstrap_servers), numbers, id=numbers, dead_letter_topic=letters)
    with DeadLetterTopic(settings, print) as topic:
        producer = topic.begin_replay()
        found = topic.read().letters
        assert sorted(letter.offset for letter in found) == [3, 6]
        assert topic.find(found[0].place) is not None
        assert topic.replay(producer, found, None).written == found
        producer.close()
        assert plan_replay(topic.read(), LetterFilter(), 3).chosen == found, "their marks stand behind what is open"
        later = Timer(1.0, writer.abort_transaction, [30])
        later.start()
        assert plan_replay(topic.read(whole=True), LetterFilter(), 3).chosen == []
        later.join()
    assert len(read_back(kafka4, numbers, 22)) == 22
