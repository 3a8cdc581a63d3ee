"""A replay, by hand: what a transaction holds, what is refused before it, and what an early end says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamlet.base.clock import ManualClock
from streamlet.kafka import ConsumerRecord, TopicPartition
from streamlet.kafka.broker_errors import (
    InvalidRecord,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TopicAuthorizationFailed,
)
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.producer.errors import PartitionOutOfRange, RecordTooLarge, TransactionFailed
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


class Outcome:
    """A record's future: what the brokers say of it when its transaction ends."""

    error: KafkaError | None = None

    def get(self) -> None:
        if self.error is not None:
            raise self.error


class Sent:
    """A producer that takes records until one it refuses; brokers refuse batches of ``batch`` for one of theirs."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.open: list[tuple[bytes | None, Outcome]] = []
        self.committed: list[int] = []
        self.refused: Callable[[bytes | None], KafkaError | None] = lambda value: None
        self.rejected: Callable[[bytes | None], KafkaError | None] = lambda value: None
        self.batch, self.aborted = 1, 0
        self.hasty = False
        """Whether a batch's refusal is known before the next call."""

    def init_transactions(self) -> None: ...

    def begin_transaction(self) -> None:
        self.open = []

    def commit_transaction(self) -> None:
        failed = None
        for first in range(0, len(self.open), self.batch):
            batch = self.open[first : first + self.batch]
            error = next((error for value, _ in batch if (error := self.rejected(value)) is not None), None)
            if error is None and failed is not None:
                error = OutOfOrderSequenceNumber("Writing")
            for _, outcome in batch:
                outcome.error = error
            failed = failed or error
        if failed is not None:
            raise TransactionFailed(f"A batch failed: {failed} Call abort_transaction().") from failed
        self.committed.append(len(self.open))

    def abort_transaction(self) -> None:
        self.aborted += 1

    def send(
        self, topic: str, value: bytes | None, key: bytes | None, headers: object, partition: int | None
    ) -> Outcome:
        outcome = Outcome()
        if topic == "lines":
            if (error := self.refused(value)) is not None:
                raise error
            self.open.append((value, outcome))
        elif self.hasty and (error := self.rejected(self.open[-1][0])) is not None:
            self.open[-1][1].error = error
            raise TransactionFailed(f"A batch failed: {error} Call abort_transaction().") from error
        return outcome


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
    assert scene.topic.replay(scene.producer, letters, None) == (letters, [], [], [])
    assert scene.producer.committed == [TRANSACTION, 1]
    one = (letter(0), cast(ConsumerRecord, SimpleNamespace(key=None, value=bytes(TRANSACTION_BYTES // 2))))
    assert [len(group) for group in in_transactions([one] * 5)] == [2, 2, 1]
    assert list(in_transactions([])) == []


def test_letters_that_are_gone_when_they_are_read_are_named(scene: Scene) -> None:
    letters = scene.holds(3)
    del scene.log.values[1]
    assert scene.topic.replay(scene.producer, letters, None) == ([letters[0], letters[2]], [letters[1]], [], [])


def test_a_letter_of_a_partition_that_its_topic_lacks_is_refused_and_named(scene: Scene) -> None:
    letters = [letter(0), letter(1, 1), letter(7, 2)]
    with pytest.raises(ReplayTargetTooSmall, match=r"letter 0:7 .* partition 2 of 'lines'.* has 2 partitions.*--to"):
        scene.topic.check_targets(letters, None)
    scene.topic.check_targets(letters, "lines")
    scene.topic.check_targets(letters[:2], None)


def test_an_early_end_names_the_letter_and_says_run_again_only_where_that_helps(scene: Scene) -> None:
    letters = scene.holds(3)
    scene.log.values[1] = b"large"
    scene.producer.refused = lambda value: PartitionOutOfRange("Gone.") if value == b"large" else None
    with pytest.raises(ReplayFailed, match=r"early: letter 0:1: Gone. 0 letters .*leave the letter out") as caught:
        scene.topic.replay(scene.producer, letters, None)
    assert "again" not in caught.value.message
    scene.producer.refused = lambda value: KafkaError("Away.") if value == b"large" else None
    with pytest.raises(ReplayFailed, match=r"letter 0:1: Away. .*Run the command again"):
        scene.topic.replay(scene.producer, letters, None)


@pytest.mark.parametrize("batch", [1, 2, 10])
def test_letters_that_their_topic_refuses_are_named_and_the_others_replayed(scene: Scene, batch: int) -> None:
    """Brokers refuse a whole batch for one record: the others of it are refused once, and written then."""
    letters = scene.holds(10)
    scene.log.values[3], scene.log.values[7] = b"bad", b"far too large"
    scene.producer.batch = batch
    scene.producer.rejected = lambda value: (
        InvalidRecord("Writing")
        if value == b"bad"
        else MessageTooLarge("Writing")
        if value == b"far too large"
        else None
    )
    replayed = scene.topic.replay(scene.producer, letters, None)
    assert sum(scene.producer.committed) == 8 and scene.producer.aborted
    assert sorted(one.place[1] for one in replayed.written) == [0, 1, 2, 4, 5, 6, 8, 9] and replayed.missing == []
    bad, large = sorted(replayed.refused)
    assert bad.letter == letters[3] and "refuses a record as not valid" in bad.why
    assert large == (letters[7], "'lines' takes no record of 13 bytes. Raise its max.message.bytes, or write it "
                     "elsewhere with --to.")  # fmt: skip


def test_a_letter_that_is_refused_before_its_mark_is_sent_is_the_one_that_is_named(scene: Scene) -> None:
    letters = scene.holds(3)
    scene.log.values[1] = b"large"
    scene.producer.hasty = True
    scene.producer.rejected = lambda value: MessageTooLarge("Writing") if value == b"large" else None
    replayed = scene.topic.replay(scene.producer, letters, None)
    assert replayed.written == [letters[0], letters[2]] and [one.letter for one in replayed.refused] == [letters[1]]


def test_a_letter_that_the_producer_does_not_take_is_set_aside_too(scene: Scene) -> None:
    letters = scene.holds(3)
    scene.log.values[1] = b"large"
    scene.producer.refused = lambda value: RecordTooLarge("Too large.") if value == b"large" else None
    replayed = scene.topic.replay(scene.producer, letters, None)
    assert replayed == ([letters[0], letters[2]], [], [(letters[1], "Too large.")], [])


def test_a_replay_that_is_interrupted_ends_behind_a_transaction_and_says_what_is_left(scene: Scene) -> None:
    letters = scene.holds(3 * TRANSACTION)
    replayed = scene.topic.replay(scene.producer, letters, None, lambda: len(scene.producer.committed) == 2)
    assert scene.producer.committed == [TRANSACTION, TRANSACTION] and scene.producer.aborted == 0
    assert replayed == (letters[: 2 * TRANSACTION], [], [], letters[2 * TRANSACTION :])


def test_a_transaction_that_fails_for_another_reason_ends_the_replay_in_words_for_its_user(scene: Scene) -> None:
    """No letter is at fault; nor is there a transaction that its user could abort."""
    letters = scene.holds(3)
    scene.producer.rejected = lambda value: TopicAuthorizationFailed("Writing")
    with pytest.raises(ReplayFailed, match="ended early: Writing: not allowed") as caught:
        scene.topic.replay(scene.producer, letters, None)
    assert "abort_transaction" not in caught.value.message and "letter 0:" not in caught.value.message


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
