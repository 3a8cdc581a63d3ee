"""A replay, by hand: what a transaction holds, what is refused before it, and what an early end says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamlet.base.clock import ManualClock
from streamlet.kafka import ConsumerRecord, TopicPartition
from streamlet.kafka.broker_errors import ProducerFenced
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.producer.errors import RecordTooLarge
from streamlet.spouts.kafka import KafkaHosts, SpoutConfig
from streamlet.spouts.kafka.dead_letters import dead_letter_topic
from streamlet.spouts.kafka.dead_letters.dead_letter import DeadLetter, Fault, GivenUp, RunStamp, headers_of, read
from streamlet.spouts.kafka.dead_letters.dead_letter_topic import (
    TRANSACTION,
    TRANSACTION_BYTES,
    DeadLetterTopic,
    ReplayFailed,
    ReplayTargetTooSmall,
    in_transactions,
)
from streamlet.spouts.kafka.dead_letters.dead_letter_writer import MOST_BYTES
from streamlet.spouts.kafka.schemes.scheme import Record

STAMP = RunStamp("Counts", "run-1", "lines", "0.1.0", None)


def letter(offset: int, partition: int = 0) -> DeadLetter:
    record = Record("lines", partition, offset, 5, None, b"v", [])
    found = read((0, offset), headers_of(GivenUp(record, 0, 3, Fault("count", "ValueError", "no")), STAMP, 9))
    assert found is not None
    return found


class Log:
    """A consumer of one partition: offsets with values, and those before the end that are gone."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.values: dict[int, bytes] = {}
        self.end, self.at, self.silent = 0, 0, False

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None: ...

    def assign(self, tps: object) -> None: ...

    def seek(self, tp: object, offset: int) -> None:
        self.at = offset

    def position(self, tp: object) -> int:
        return self.at

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        self.clock.advance(timeout_ms / 1000)
        if self.silent:
            return {}
        found = [
            SimpleNamespace(offset=o, key=None, value=v, headers=[]) for o, v in self.values.items() if o >= self.at
        ]
        self.at = self.end
        return {TopicPartition("dead", 0): found}


class Sent:
    """A producer that takes records until one it refuses."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.open: list[int] = []
        self.committed: list[int] = []
        self.refused: Callable[[bytes | None], KafkaError | None] = lambda value: None

    def init_transactions(self) -> None: ...

    def begin_transaction(self) -> None:
        self.open = []

    def commit_transaction(self) -> None:
        self.committed.append(len(self.open))

    def send(self, topic: str, value: bytes | None, key: bytes | None, headers: object, partition: int | None) -> None:
        if topic == "lines":
            if (error := self.refused(value)) is not None:
                raise error
            self.open.append(1)


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.log, self.counts = Log(self.clock), {"dead": 1, "lines": 2}
        admin = SimpleNamespace(
            describe_topics=lambda name: {
                name: SimpleNamespace(partitions=[SimpleNamespace(partition=n) for n in range(self.counts[name])])
            },
            config=SimpleNamespace(bootstrap_servers=["127.0.0.1:1"]),
            close=lambda: None,
        )
        monkeypatch.setattr(dead_letter_topic, "connect_admin", lambda *_: admin)
        monkeypatch.setattr(dead_letter_topic, "Consumer", lambda **_: self.log)
        monkeypatch.setattr(dead_letter_topic, "Producer", Sent)
        monkeypatch.setattr(dead_letter_topic, "SystemClock", lambda: self.clock)
        self.topic = DeadLetterTopic(
            SpoutConfig(KafkaHosts("127.0.0.1:1"), "lines", id="x", dead_letter_topic="dead"), print
        )
        self.producer = cast(Any, self.topic.begin_replay())

    def holds(self, count: int, size: int = 1) -> list[DeadLetter]:
        self.log.values, self.log.end = {n: bytes(size) for n in range(count)}, count
        return [letter(n) for n in range(count)]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(monkeypatch)
    with made.topic:
        yield made


def test_a_replay_takes_records_as_large_as_letters_are_written_and_its_killing_blocks_readers_shortly(
    scene: Scene,
) -> None:
    settings = scene.producer.settings
    assert settings["max_request_size"] == settings["buffer_memory"] == MOST_BYTES
    assert settings["transaction_timeout_ms"] <= 15_000


def test_a_transaction_ends_at_so_many_letters_or_bytes(scene: Scene) -> None:
    letters = scene.holds(TRANSACTION + 1)
    assert scene.topic.replay(scene.producer, letters, None) == (letters, [])
    assert scene.producer.committed == [TRANSACTION, 1]
    one = (letter(0), cast(ConsumerRecord, SimpleNamespace(key=None, value=bytes(TRANSACTION_BYTES // 2))))
    assert [len(group) for group in in_transactions([one] * 5)] == [2, 2, 1]
    assert list(in_transactions([])) == []


def test_letters_that_are_gone_when_they_are_read_are_named(scene: Scene) -> None:
    letters = scene.holds(3)
    del scene.log.values[1]
    assert scene.topic.replay(scene.producer, letters, None) == ([letters[0], letters[2]], [letters[1]])


def test_a_letter_of_a_partition_that_its_topic_lacks_is_refused_and_named(scene: Scene) -> None:
    letters = [letter(0), letter(1, 1), letter(7, 2)]
    with pytest.raises(ReplayTargetTooSmall, match=r"letter 0:7 .* partition 2 of 'lines'.* has 2 partitions.*--to"):
        scene.topic.check_targets(letters, None)
    scene.topic.check_targets(letters, "lines")
    scene.topic.check_targets(letters[:2], None)


def test_an_early_end_names_the_letter_and_says_run_again_only_where_that_helps(scene: Scene) -> None:
    letters = scene.holds(3)
    scene.log.values[1] = b"large"
    scene.producer.refused = lambda value: RecordTooLarge("Too large.") if value == b"large" else None
    with pytest.raises(ReplayFailed, match=r"early: letter 0:1: Too large. 0 letters .*leave the letter out") as caught:
        scene.topic.replay(scene.producer, letters, None)
    assert "again" not in caught.value.message
    scene.producer.refused = lambda value: KafkaError("Away.") if value == b"large" else None
    with pytest.raises(ReplayFailed, match=r"letter 0:1: Away. .*Run the command again"):
        scene.topic.replay(scene.producer, letters, None)


def test_a_replay_that_another_took_over_from_names_the_command_and_no_producer(scene: Scene) -> None:
    letters = scene.holds(TRANSACTION + 1)
    scene.log.values[TRANSACTION] = b"late"
    scene.producer.refused = lambda value: ProducerFenced("Writing") if value == b"late" else None
    with pytest.raises(ReplayFailed) as caught:
        scene.topic.replay(scene.producer, letters, None)
    said = caught.value.message
    assert "ended early: another `streamlet dlq replay` of the same dead-letter topic has taken over" in said
    assert f"{TRANSACTION} letters are replayed and marked as such, 1 may not be. Let the other one end" in said
    assert "No letter is replayed twice" in said
    assert "roducer" not in said and "transactional id" not in said and "letter 0:" not in said


def test_a_partition_that_gives_nothing_ends_the_command(scene: Scene) -> None:
    letters = scene.holds(3)
    scene.log.silent = True
    with pytest.raises(ReplayFailed, match=r"Partition 0 of 'dead' cannot be read on from offset 0.*up to 3"):
        scene.topic.replay(scene.producer, letters, None)
