"""``streamlet consume --group``: what is committed when, and when a member of a group is at the end."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable
from typing import cast

import pytest

from streamlet.cli import consume, interrupts
from streamlet.cli.consume import Reading, Wanted
from streamlet.cli.interrupts import interrupts_to
from streamlet.cli.record_format import Lines
from streamlet.kafka import Consumer, ConsumerConfig, TopicPartition
from streamlet.kafka.broker_errors import NotCoordinator
from streamlet.kafka.consumer import ConsumerRebalanceListener
from streamlet.kafka.consumer.errors import LogTruncated, NoOffsetForPartition, PositionOutOfRange
from streamlet.kafka.errors import KafkaError
from tests.scripted.cli.test_consume import record


class Group:
    """A consumer in a group: three records, one a poll, then nothing; commits are answered as ``fault`` says."""

    def __init__(self, fault: Exception | None = None, assigned: int = 1, protocol: str = "classic") -> None:
        self.config = ConsumerConfig.of({"bootstrap_servers": "h:1", "group_id": "g", "group_protocol": protocol})
        self.fault = fault
        self.tp = TopicPartition("t", 0)
        self.assigned = assigned
        self.position_now = 0
        self.sent: list[int] = []
        self.stored: list[int] = []
        self.answered = 0
        self.answers: list[Callable[[], None]] = []
        self.listener: ConsumerRebalanceListener | None = None

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 3)

    def subscribe(self, topics: list[str], listener: ConsumerRebalanceListener) -> None:
        self.listener = listener

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset({self.tp} if self.assigned else ())

    def position(self, tp: TopicPartition) -> int:
        return self.position_now if self.answered >= 3 else 0  # not done before each commit has its answer

    def poll(self, timeout_ms: int, most: int) -> dict[TopicPartition, list[object]]:
        if self.listener is not None:
            self.listener.on_partitions_assigned(tuple(self.assignment()))
            self.listener = None
        while self.answers:
            self.answers.pop()()
            self.answered += 1
        if not self.assigned or self.position_now == 3:
            return {}
        self.position_now += 1
        return {self.tp: [record(b"v")]}

    def commit_async(self, callback: Callable[[object, Exception | None], None]) -> None:
        position = self.position_now
        self.sent.append(position)
        self.answers.append(lambda: callback({}, self.fault))

    def commit(self) -> None:
        self.stored.append(self.position_now)


def group_reading(consumer: Group) -> Reading:
    wanted = Wanted("t", (), "g", False, None, True, None)
    reading = Reading(cast(Consumer, consumer), wanted, Lines(False, False), io.BytesIO())
    reading.begin([consumer.tp])
    return reading


@pytest.mark.parametrize(("fault", "at_the_end"), [(None, []), (NotCoordinator("moved"), [3])])
def test_a_commit_that_failed_is_made_up_for_at_the_end(
    monkeypatch: pytest.MonkeyPatch, fault: Exception | None, at_the_end: list[int]
) -> None:
    """Sent is not stored: a coordinator that moved has refused it, and nothing more may come."""
    monkeypatch.setattr("streamlet.cli.consume._COMMIT_S", 0.0)
    consumer = Group(fault)
    group_reading(consumer).read()
    assert consumer.sent[:3] == [1, 2, 3] and consumer.stored == at_the_end


def test_what_was_shown_is_committed_before_a_partition_goes() -> None:
    """Else its next owner shows up to a second of it again; of one that is lost nothing can be."""
    consumer = Group()
    reading = group_reading(consumer)
    reading.shown, consumer.position_now = 2, 2
    reading.on_partitions_lost([consumer.tp])
    reading.on_partitions_revoked([consumer.tp])
    assert consumer.stored == []
    reading.shown, consumer.position_now = 3, 3
    reading.on_partitions_revoked([consumer.tp])
    reading.on_partitions_revoked([consumer.tp])
    assert consumer.stored == [3]


def test_what_could_not_be_written_is_never_committed() -> None:
    """The disk was full: the consumer that closes then gives its partitions back, and commits nothing there."""

    class Full(io.BytesIO):
        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    consumer = Group()
    reading = Reading(cast(Consumer, consumer), Wanted("t", (), "g", False, None, True, None), Lines(), Full())
    reading.begin([consumer.tp])
    with pytest.raises(OSError, match="No space"):
        reading.read()
    reading.on_partitions_revoked([consumer.tp])
    assert reading.shown == 1 and consumer.stored == consumer.sent == []


def test_a_member_that_is_given_nothing_is_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others hold every partition; before the group's round is over nobody knows that."""
    monkeypatch.setitem(consume._NOTHING_LEFT_S, "classic", 0.0)
    consumer = Group(assigned=0)
    reading = group_reading(consumer)
    assert not reading._done()
    reading.read()
    assert reading.left_out and reading.shown == 0


def test_a_member_of_the_newer_protocol_is_patient_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others hear a heartbeat later that they are to give up something, and it hears of that another one later."""
    monkeypatch.setitem(consume._NOTHING_LEFT_S, "classic", 0.0)
    reading = group_reading(Group(assigned=0, protocol="consumer"))
    reading.on_partitions_assigned(())
    assert not reading._done() and not reading.left_out


def test_a_member_that_waits_for_a_partition_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else it looks like a topic that is quiet."""
    monkeypatch.setitem(consume._NOTHING_LEFT_S, "classic", 0.0)
    consumer = Group(assigned=0)
    reading = Reading(cast(Consumer, consumer), Wanted("t", (), "g", False, None, False, None), Lines(), io.BytesIO())
    for _ in range(3):
        assert not reading._done()
        reading.on_partitions_assigned([])
    assert capsys.readouterr().err.splitlines() == [
        "Other members of group 'g' hold every partition of t: waiting until one is given to this one. Ctrl-C ends."
    ]


def test_a_ctrl_c_that_a_launcher_passes_on_does_not_break_off_the_last_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = group_reading(Group())
    with interrupts_to(reading.end.came):
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        assert reading.end.number == signal.SIGINT
        monkeypatch.setattr(interrupts, "SAME_S", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


class Placed(Group):
    """A consumer that has lost its place, or has none, as its first poll says; a log from 4 to 9."""

    def __init__(self, error: KafkaError, until_end: bool = False) -> None:
        super().__init__()
        self.errors, self.until_end = [error], until_end
        self.sought: list[int | str] = []

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 9)

    def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 4)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.sought.append(offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self.sought += ["beginning"] * len(partitions)

    def poll(self, timeout_ms: int, most: int) -> dict[TopicPartition, list[object]]:
        if self.errors:
            raise self.errors.pop()
        return {self.tp: [record(b"v")]}


TP = TopicPartition("t", 0)
CUT = "The place that was reached in t-0 is not in its log any more: the topic was made again, or a new leader lacks " \
      "what came last. Going on at {}."  # fmt: skip


@pytest.mark.parametrize(
    ("error", "sought", "said"),
    [
        (
            PositionOutOfRange("", {TP: 1}),
            [4],
            "Records 1 to 3 of t-0 were deleted before they were read: going on at 4.",
        ),
        (PositionOutOfRange("", {TP: 3}), [4], "Record 3 of t-0 was deleted before it was read: going on at 4."),
        (PositionOutOfRange("", {TP: 12}), [4], CUT.format(4)),
        (LogTruncated("", {TP: 7}, TP), [7], CUT.format(7)),
        (LogTruncated("", {}, TP), [4], CUT.format(4)),
        (LogTruncated("", {}, TopicPartition("t", 1)), [], ""),  # given away since
        (NoOffsetForPartition("", (TP, TopicPartition("t", 1))), [9], ""),
    ],
)
def test_a_reader_without_a_place_in_the_log_goes_on_at_the_first_record_and_names_the_gap(
    capsys: pytest.CaptureFixture[str], error: KafkaError, sought: list[int], said: str
) -> None:
    """The end is only for a group that has stored nothing, and is that of the command's own start."""
    consumer = Placed(error)
    wanted = Wanted("t", (), "g", False, None, False, 1)
    reading = Reading(cast(Consumer, consumer), wanted, Lines(), io.BytesIO())
    reading.begin([TP])
    reading.read()
    assert consumer.sought == sought and capsys.readouterr().err.strip() == said


@pytest.mark.parametrize(("from_beginning", "until_end"), [(True, False), (False, True)])
def test_a_new_group_that_wants_all_begins_with_the_first_record(from_beginning: bool, until_end: bool) -> None:
    consumer = Placed(NoOffsetForPartition("", (TP,)))
    wanted = Wanted("t", (), "g", from_beginning, None, until_end, 1)
    reading = Reading(cast(Consumer, consumer), wanted, Lines(), io.BytesIO())
    reading.begin([TP])
    reading.read()
    assert consumer.sought == ["beginning"]


def test_the_end_of_a_log_that_is_shorter_now_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """The old one's may never be reached."""
    consumer = Placed(PositionOutOfRange("", {TP: 12}))
    reading = group_reading(consumer)
    reading._ends[TP] = 20
    reading._find_place(consumer.errors[0])  # type: ignore[arg-type]
    assert reading._ends == {TP: 9} and capsys.readouterr().err.strip() == CUT.format(4)
