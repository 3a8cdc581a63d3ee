"""When a task looks for its partitions again, and what a look changes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.base.clock import ManualClock
from streamlet.base.errors import StreamletError
from streamlet.kafka.broker_errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
    UnknownLeaderEpoch,
    UnknownServerError,
)
from streamlet.kafka.errors import BrokerError, Disconnected
from streamlet.spouts.kafka.activity import Activity, NextPoll, Steps
from streamlet.spouts.kafka.broker_connections import DynamicPartitionConnections
from streamlet.spouts.kafka.coordinator import (
    TOPIC_GONE_GRACE_S,
    PartitionCoordinator,
    StaticCoordinator,
    Task,
    ZkCoordinator,
)
from streamlet.spouts.kafka.epoch_ends import LastLook
from streamlet.spouts.kafka.errors import NoSuchTopic, PartitionsMissing, StaticLeaderMoved, TopicsDeleted
from streamlet.spouts.kafka.partition import (
    Broker,
    FoundTopics,
    GlobalPartitionInformation,
    OffsetRange,
    Partition,
)
from streamlet.spouts.kafka.partition_counters import PartitionCounters
from streamlet.spouts.kafka.spout_fetcher import FailedFetch

A, B = Broker("a"), Broker("b")
P0, P1, P2 = (Partition("t", number) for number in range(3))


class Reader:
    """Answers with what it is told, at once; counts the looks."""

    def __init__(self, leaders: dict[int, Broker | None], by_position: bool = False) -> None:
        self.leaders = leaders
        self.by_position = by_position
        self.topic_id: str | None = None
        self.error: StreamletError | None = None
        self.looks = 0
        self.leader_epoch = -1
        self.polls = 0
        """Polls that a look takes."""

    def get_current_brokers(self) -> Steps[FoundTopics]:
        self.looks += 1
        for _ in range(self.polls):
            yield NextPoll()
        if isinstance(self.error, NoSuchTopic):
            return FoundTopics(missing={"t": self.error})
        if self.error is not None:
            raise self.error
        epochs = dict.fromkeys(self.leaders, self.leader_epoch)
        info = GlobalPartitionInformation("t", dict(self.leaders), self.by_position, self.topic_id, epochs)
        return FoundTopics({"t": info})


class Made(SimpleNamespace):
    """A manager, as far as the coordinator knows it."""

    def end_reading(self) -> None:
        self.ending = True

    def close(self) -> None:
        self.closed = True

    def validate(self) -> None:
        self.validating = True

    def validated(self) -> None:
        self.validating = False


class Opener:
    """Opens at once, and remembers."""

    def __init__(self) -> None:
        self.opened: list[tuple[Partition, bool]] = []
        self.resets: list[Any] = []
        self.judged_by: list[str | None] = []
        self.last_error: StreamletError | None = None
        self.gone: list[tuple[Partition, OffsetRange | None]] = []
        self.is_slow = False
        """Whether what begins now waits, with the topic id of its beginning."""

    def refuse_strangers(self, topics: Iterable[GlobalPartitionInformation]) -> None: ...

    def note(self, error: StreamletError) -> None:
        self.last_error = error

    def open(self, partition: Partition, look: LastLook, appeared: bool) -> Steps[Any]:
        known = look.topic_id()
        while self.is_slow:
            yield NextPoll()
        self.opened.append((partition, appeared))
        return self.made(partition, known)

    def topic_gone(self, partition: Partition, unread: OffsetRange | None) -> None:
        self.gone.append((partition, unread))

    def made(self, partition: Partition, topic_id: str | None) -> Any:
        return Made(
            partition=partition,
            closed=False,
            ending=False,
            is_finished=True,
            unread=None,
            spoiled=None,
            topic_id=topic_id,
            ledger=SimpleNamespace(counts=PartitionCounters()),
        )

    def reset(self, manager: Any, look: LastLook) -> Steps[Any]:
        known = look.topic_id()
        while self.is_slow:
            yield NextPoll()
        self.resets.append(manager.partition)
        self.judged_by.append(known)
        if known == manager.topic_id:
            return None
        manager.end_reading()
        return self.made(manager.partition, known)


class Rig:
    def __init__(self, reader: Reader, kind: type[PartitionCoordinator] = ZkCoordinator, **keys: Any) -> None:
        self.clock = ManualClock()
        self.reader, self.opener, self.closed = reader, Opener(), []
        self.connections = DynamicPartitionConnections(SimpleNamespace(disconnect=lambda broker: None))  # type: ignore[arg-type]
        keys.setdefault("several", isinstance(reader, TopicsReader))
        keys.setdefault("refresh_interval_s", 60.0) if kind is not StaticCoordinator else None
        self.it = kind(
            Task(keys.pop("index", 0), keys.pop("count", 1)),
            reader,
            self.connections,
            self.opener,  # type: ignore[arg-type]
            self.clock,
            self.closed.append,
            **keys,
        )

    def start(self) -> Rig:
        activity = Activity(self.it.start())
        for _ in range(200):
            if activity.poll():
                activity.take()
                return self
            self.clock.advance(0.05)
        raise AssertionError(self.it.waiting_for())

    def poll(self, seconds: float) -> None:
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            self.clock.advance(0.05)
            self.it.poll()

    def mine(self) -> list[Partition]:
        return [manager.partition for manager in self.it.get_my_managed_partitions()]


@pytest.mark.parametrize(
    ("index", "owned"), [(0, "task 1 of 3 owns partitions: 0"), (1, "task 2 of 3 owns partitions: none")]
)
def test_k3_k11_the_start_logs_each_tasks_share_and_the_first_task_warns_of_idle_ones(
    index: int, owned: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once: a later look says nothing of it again, and the other tasks leave the warning to the first."""
    with caplog.at_level(logging.INFO):
        rig = Rig(Reader({0: A}), index=index, count=3).start()
        rig.poll(61)
    said = [(row.levelname, row.getMessage()) for row in caplog.records]
    assert [text for level, text in said if level == "INFO" and "owns" in text] == [f"topic t: {owned}"]
    warnings = [text for level, text in said if level == "WARNING"]
    assert len(warnings) == (index == 0)
    assert all("more tasks (3) than partitions of topic 't' (1): 2 of them will be idle" in text for text in warnings)
    assert rig.reader.looks == 2


def test_k4_a_look_is_due_when_the_last_is_old() -> None:
    rig = Rig(Reader({0: A, 1: A})).start()
    assert rig.mine() == [P0, P1]
    rig.poll(59)
    assert rig.reader.looks == 1
    rig.poll(2)
    assert rig.reader.looks == 2


def test_k4_a_leader_move_keeps_the_manager_and_changes_the_connection() -> None:
    """Its ledger and everything pending live on (STORM-2296)."""
    rig = Rig(Reader({0: A})).start()
    rig.connections.register(P0, A)
    before = rig.it.get_manager(P0)
    rig.reader.leaders = {0: B}
    rig.it.fetch_failed([FailedFetch(P0, NotLeaderOrFollower("x"))])
    rig.poll(1)
    assert rig.it.get_manager(P0) is before
    connection = rig.connections.get_connection(P0)
    assert connection is not None and connection.broker == B
    assert rig.it.leader(P0) == B


def test_k4_failed_fetches_look_again_with_a_pause_between() -> None:
    rig = Rig(Reader({0: A})).start()
    for _ in range(100):
        rig.it.fetch_failed([FailedFetch(P0, Disconnected("x"))])
        rig.it.fetch_failed([FailedFetch(P0, NotLeaderOrFollower("x"))])
        rig.poll(0.05)
    assert 10 < rig.reader.looks < 60


def test_a_broker_of_an_older_leader_epoch_is_a_reason_to_look_again() -> None:
    """It is behind for a moment, or holds another log under this topic: only a look tells which."""
    rig = Rig(Reader({0: A})).start()
    rig.it.fetch_failed([FailedFetch(P0, UnknownLeaderEpoch("x"))])
    rig.poll(1)
    assert rig.reader.looks == 2


def test_k4_what_came_is_opened_and_what_left_is_closed() -> None:
    rig = Rig(Reader({0: A, 1: A})).start()
    rig.connections.register(P0, A)
    rig.reader.leaders = {1: A, 2: B}
    rig.it.refresh()
    version = rig.it.version
    rig.poll(1)
    assert rig.mine() == [P1, P2]
    assert rig.opener.opened == [(P0, False), (P1, False), (P2, True)]
    assert [manager.partition for manager in rig.closed] == [P0] and rig.closed[0].closed
    assert rig.it.version > version
    assert rig.connections.get_connection(P0) is None


def test_k3_only_the_tasks_own_partitions_are_opened() -> None:
    assert Rig(Reader({0: A, 1: A, 2: A, 3: A}), index=1, count=2).start().mine() == [P1, Partition("t", 3)]
    assert Rig(Reader({0: A}), index=1, count=2).start().mine() == []


@pytest.mark.parametrize(("index", "mine"), [(0, [1, 4]), (1, [3])])
def test_k3_tasks_of_static_hosts_share_the_list_that_was_written_by_position(index: int, mine: list[int]) -> None:
    """In turn, and none of the partitions that the topic has beside them."""
    written, known = Reader({1: A, 3: A, 4: A}, by_position=True), Reader(dict.fromkeys(range(5), A))
    rig = Rig(written, StaticCoordinator, asked_after_failure=known, index=index, count=2).start()
    assert [partition.number for partition in rig.mine()] == mine


def test_k4_what_is_known_stays_while_looks_fail() -> None:
    rig = Rig(Reader({0: A})).start()
    rig.reader.error = Disconnected("all brokers are down")
    rig.it.refresh()
    rig.poll(30)
    assert rig.mine() == [P0]
    assert 5 < rig.reader.looks < 40
    rig.reader.error, rig.reader.leaders = None, {0: B}
    rig.poll(3)
    assert rig.it.leader(P0) == B


def test_k4_a_partition_without_a_leader_waits_and_the_others_go_on() -> None:
    rig = Rig(Reader({0: A, 1: None}))
    activity = Activity(rig.it.start())
    activity.poll()
    assert rig.it.waiting_for() == "partitions 1 have no leader"
    rig = Rig(Reader({0: A, 1: A})).start()
    rig.reader.leaders = {0: A, 1: None}
    rig.it.refresh()
    rig.poll(5)
    assert rig.mine() == [P0, P1]
    assert 3 < rig.reader.looks < 30, "it is looked for, with pauses"


def test_a_leader_that_is_elected_during_the_start_is_found() -> None:
    class Waits(Opener):
        def open(self, partition: Partition, look: LastLook, appeared: bool) -> Steps[Any]:
            while look.leader() is None:
                yield NextPoll()
            return (yield from super().open(partition, look, appeared))

    rig = Rig(Reader({0: A, 1: None}))
    rig.opener = rig.it._opener = Waits()  # type: ignore[assignment]
    activity = Activity(rig.it.start())
    assert not activity.poll()
    rig.reader.leaders[1] = B
    for _ in range(100):
        rig.clock.advance(0.05)
        activity.poll()
    assert rig.mine() == [P0, P1] and rig.opener.opened == [(P0, False), (P1, False)]


@pytest.mark.parametrize("epoch", [8, 4])
def test_under_another_leader_epoch_the_position_is_checked_before_anything_is_fetched(epoch: int) -> None:
    """Also under an older one: of a topic without an id nothing else tells that its log is another one."""
    reader = Reader({0: A})
    reader.leader_epoch = 6
    rig = Rig(reader).start()
    (manager,) = rig.it.get_my_managed_partitions()
    manager.buffer = SimpleNamespace(leader_epoch=5)
    rig.it.refresh()
    rig.poll(1)
    assert rig.opener.resets == []
    rig.opener.is_slow, reader.leader_epoch = True, epoch
    rig.it.refresh()
    rig.poll(1)
    assert manager.validating and manager.current_leader_epoch == epoch
    rig.opener.is_slow = False
    rig.poll(1)
    assert rig.opener.resets == [P0] and not manager.validating


def test_a_leader_that_changes_during_a_reset_is_asked_after_it_and_nothing_is_fetched_before() -> None:
    """The reset may have asked the leader of before."""
    reader = Reader({0: A})
    reader.leader_epoch = 6
    rig = Rig(reader).start()
    (manager,) = rig.it.get_my_managed_partitions()
    manager.buffer = SimpleNamespace(leader_epoch=5)
    rig.opener.is_slow = True
    rig.it.fetch_failed([FailedFetch(P0, OffsetOutOfRange("x"))])
    rig.poll(1)
    reader.leader_epoch = 7
    rig.it.refresh()
    rig.poll(1)
    assert manager.validating
    rig.opener.is_slow = False
    rig.it.poll()
    assert rig.opener.resets == [P0] and manager.validating
    rig.poll(1)
    assert rig.opener.resets == [P0, P0] and not manager.validating


def test_a_topic_that_is_gone_is_an_error_after_a_while() -> None:
    rig = Rig(Reader({0: A})).start()
    rig.reader.error = NoSuchTopic("t", "says a")
    rig.it.refresh()
    rig.poll(TOPIC_GONE_GRACE_S - 1)
    assert rig.mine() == [P0]
    (manager,) = rig.it.get_my_managed_partitions()
    manager.unread = OffsetRange(3, 7)
    with pytest.raises(
        TopicsDeleted, match=r"The topic .* was deleted during the run \('t'\).* t-0 \[3, 6\] \(4 offsets\)"
    ):
        rig.poll(5)
    assert manager.ledger.counts.lost == 4


def test_a_topic_that_is_not_there_at_the_start_is_an_error_at_once() -> None:
    reader = Reader({})
    reader.error = NoSuchTopic("t", "says a")
    with pytest.raises(NoSuchTopic, match="does not exist"):
        Rig(reader).start()


def test_another_topic_id_resets_every_partition() -> None:
    reader = Reader({0: A, 1: A})
    reader.topic_id = "old"
    rig = Rig(reader).start()
    reader.topic_id = "new"
    rig.it.refresh()
    rig.poll(1)
    assert rig.opener.resets == [P0, P1]


def test_an_offset_out_of_range_resets_that_partition_once() -> None:
    rig = Rig(Reader({0: A, 1: A})).start()
    for _ in range(3):
        rig.it.fetch_failed([FailedFetch(P1, OffsetOutOfRange("x"))])
    rig.poll(1)
    assert rig.opener.resets == [P1]


def test_an_offset_out_of_range_is_judged_by_a_look_that_is_newer() -> None:
    """The log of a topic that was made again is shorter, too: it is not one that was cut."""
    reader = Reader({0: A})
    reader.topic_id = "old"
    rig = Rig(reader).start()
    reader.topic_id = "new"
    rig.it.fetch_failed([FailedFetch(P0, OffsetOutOfRange("x"))])
    rig.poll(1)
    assert rig.opener.judged_by == ["new"] and rig.reader.looks == 2


@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize("error", [Disconnected("x"), NoSuchTopic("t", "says a")])
def test_an_offset_out_of_range_is_judged_once_a_look_succeeds(is_static: bool, error: StreamletError) -> None:
    """The look that is under way fails, and nobody but the reset asks again."""
    reader = Reader({0: A})
    reader.topic_id = "old"
    keys: dict[str, Any] = {"kind": StaticCoordinator, "asked_after_failure": reader} if is_static else {}
    rig = Rig(reader, **keys).start()
    reader.polls = 4
    rig.it.refresh()
    rig.poll(0.1)
    reader.error = error
    rig.it.fetch_failed([FailedFetch(P0, OffsetOutOfRange("x"))])
    rig.poll(2)
    reader.error, reader.topic_id = None, "new"
    rig.poll(5)
    assert rig.opener.judged_by == ["new"] and rig.reader.looks < 20


def test_an_offset_out_of_range_is_not_judged_by_a_look_that_misses_the_topic() -> None:
    reader = TopicsReader({"t": {0: A}, "u": {0: A}})
    reader.topic_ids = {"t": "old"}
    rig = Rig(reader).start()
    gone = reader.topics.pop("t")
    rig.it.fetch_failed([FailedFetch(P0, OffsetOutOfRange("x"))])
    rig.poll(3)
    assert not rig.opener.judged_by
    reader.topics["t"], reader.topic_ids = gone, {"t": "new"}
    rig.poll(3)
    assert rig.opener.judged_by == ["new"]


def test_a_topic_made_again_while_a_partition_of_it_is_opened_is_noticed_once_it_is_open() -> None:
    reader = Reader({0: A})
    reader.topic_id = "old"
    rig = Rig(reader).start()
    rig.opener.is_slow = True
    reader.leaders = {0: A, 1: A}
    rig.it.refresh()
    rig.poll(1)
    reader.topic_id = "new"
    rig.it.refresh()
    rig.poll(1)
    rig.opener.is_slow = False
    rig.poll(1)
    assert [manager.topic_id for manager in rig.it.get_my_managed_partitions()] == ["new", "new"]


def test_a_topic_made_again_twice_is_noticed_though_the_first_reset_is_under_way() -> None:
    reader = Reader({0: A})
    reader.topic_id = "one"
    rig = Rig(reader).start()
    rig.opener.is_slow = True
    for reader.topic_id in ("two", "three"):
        rig.it.refresh()
        rig.poll(1)
    rig.opener.is_slow = False
    rig.poll(1)
    assert rig.opener.judged_by == ["two", "three"]
    assert [manager.topic_id for manager in rig.it.get_my_managed_partitions()] == ["three"]


def test_a_broker_that_still_knows_an_earlier_topic_of_the_name_is_not_believed() -> None:
    """It lags behind: the positions would be reset by its answer, and once more by the next one."""
    reader = Reader({0: A})
    rig = Rig(reader)
    for reader.topic_id in ("one", "two", "one"):
        rig.it.refresh() if rig.it.topics else rig.start()
        rig.poll(1)
    assert rig.opener.judged_by == ["two"] and rig.it.complete
    looks, reader.topic_id = reader.looks, "two"
    rig.poll(5)
    assert reader.looks > looks, "it is looked again soon, not only at the next regular refresh"
    assert rig.opener.judged_by == ["two"]
    assert [manager.topic_id for manager in rig.it.get_my_managed_partitions()] == ["two"]


def test_what_is_open_of_a_topic_made_again_with_fewer_partitions_is_finished_and_the_rest_counts_as_lost() -> None:
    reader = Reader({0: A, 1: A})
    reader.topic_id = "old"
    rig = Rig(reader).start()
    open_one = rig.it.get_manager(P1)
    assert open_one is not None
    vars(open_one).update(is_finished=False, unread=OffsetRange(5, 9))
    reader.topic_id, reader.leaders = "new", {0: A}
    rig.it.refresh()
    rig.poll(1)
    assert open_one.ending and not open_one.closed and rig.opener.gone == [(P1, OffsetRange(5, 9))]
    assert rig.mine() == [P0, P1]


def test_what_time_does_not_mend_is_raised() -> None:
    rig = Rig(Reader({0: A})).start()
    with pytest.raises(TopicAuthorizationFailed):
        rig.it.fetch_failed([FailedFetch(P0, TopicAuthorizationFailed("x"))])


def test_an_error_that_a_broker_did_not_expect_is_raised_when_a_minute_brings_no_other_answer() -> None:
    rig = Rig(Reader({0: A})).start()
    for first, seconds in ((True, 40), (False, 0), (True, 50), (False, 0)):
        rig.it.fetch_failed([FailedFetch(P0, UnknownServerError("x"), first)])
        rig.clock.advance(seconds)
    rig.clock.advance(10)
    with pytest.raises(UnknownServerError, match="Each fetch of the last 60 s ended so"):
        rig.it.fetch_failed([FailedFetch(P0, UnknownServerError("x"), False)])


def test_such_errors_that_come_between_others_that_pass_end_no_run() -> None:
    rig = Rig(Reader({0: A})).start()
    for _ in range(100):
        rig.it.fetch_failed([FailedFetch(P0, UnknownServerError("x"), False)])
        rig.clock.advance(1)
        rig.it.fetch_failed([FailedFetch(P0, UnknownLeaderEpoch("x"), False)])
        rig.clock.advance(1)


def test_a_look_that_meets_an_error_that_a_broker_did_not_expect_is_made_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(Reader({0: A})).start()
    rig.reader.error = UnknownServerError("x")
    rig.it.refresh()
    rig.poll(3)
    looks = rig.reader.looks
    rig.reader.error, rig.reader.leaders = None, {0: A, 1: A}
    rig.poll(3)
    assert looks > 2 and rig.mine() == [P0, P1]
    assert "going on with what is known" in caplog.text


def test_looks_that_fail_alike_are_told_once_a_minute_and_their_end_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that was away for 25 s gave the same line 22 times, and none when it was back."""
    caplog.set_level(logging.INFO)
    rig = Rig(Reader({0: A})).start()
    rig.reader.error = Disconnected("all brokers are down")
    rig.it.refresh()
    rig.poll(30)
    assert caplog.text.count("could not be looked up") == 1
    rig.poll(40)
    assert caplog.text.count("could not be looked up") == 2 and "like this were left out" in caplog.text
    rig.reader.error = None
    rig.poll(3)
    assert "Partitions and leaders are looked up again, after 7" in caplog.text


# -- static hosts -----------------------------------------------------------------------------------------------


def static(leader_now: Broker | None, count: int = 1) -> Rig:
    later = Reader(dict.fromkeys(range(count), leader_now))
    rig = Rig(Reader({0: A}, by_position=True), StaticCoordinator, asked_after_failure=later)
    rig.later = later  # type: ignore[attr-defined]
    return rig.start()


def test_k4_static_hosts_are_never_looked_up_again() -> None:
    rig = static(B)
    rig.poll(500)
    assert rig.reader.looks == 1
    assert rig.later.looks == 1, "the one at the start, for epochs"  # type: ignore[attr-defined]


def test_t13_a_static_leader_that_moved_stops_with_the_new_leader_and_both_remedies() -> None:
    rig = static(A)
    rig.later.leaders = {0: B}  # type: ignore[attr-defined]
    rig.it.fetch_failed([FailedFetch(P0, NotLeaderOrFollower("x"))])
    with pytest.raises(StaticLeaderMoved) as stopped:
        rig.poll(1)
    for part in ("a:9092 leads topic 't', partition 0", "b:9092 leads it now", "correct the list", "KafkaHosts(...)"):
        assert part in stopped.value.message


def test_t13_without_a_leader_at_the_moment_it_asks_again() -> None:
    rig = static(A)
    rig.later.leaders = {0: None}  # type: ignore[attr-defined]
    rig.it.fetch_failed([FailedFetch(P0, NotLeaderOrFollower("x"))])
    rig.poll(3)
    rig.later.leaders = {0: B}  # type: ignore[attr-defined]
    with pytest.raises(StaticLeaderMoved):
        rig.poll(3)


def test_t13_a_static_broker_that_restarts_is_waited_for() -> None:
    """While it is away a moment nobody is asked; the others may know it by another spelling of its address."""
    rig = static(A)
    for _ in range(20):
        rig.it.fetch_failed([FailedFetch(P0, Disconnected("x"))])
        rig.poll(0.2)
    assert rig.later.looks == 1  # type: ignore[attr-defined]
    rig.later.leaders = {0: B}  # type: ignore[attr-defined]
    with pytest.raises(StaticLeaderMoved):
        for _ in range(20):
            rig.it.fetch_failed([FailedFetch(P0, Disconnected("x"))])
            rig.poll(0.2)


def test_t13_another_spelling_of_the_same_address_is_no_move() -> None:
    rig = static(Broker("a.example.org"))
    rig.it.fetch_failed([FailedFetch(P0, NotLeaderOrFollower("an election that it won again"))])
    rig.poll(3)
    assert rig.later.looks == 2  # type: ignore[attr-defined]
    assert rig.mine() == [P0]


@pytest.mark.parametrize(
    ("error", "goes_on"), [(FencedLeaderEpoch("leads under 5"), True), (NotLeaderOrFollower("no"), False)]
)
def test_a_look_while_a_static_partition_is_opened_believes_the_other_spelling_unless_its_broker_denies(
    error: BrokerError, goes_on: bool
) -> None:
    class Refused(Opener):
        def open(self, partition: Partition, look: LastLook, appeared: bool) -> Steps[Any]:
            yield NextPoll()
            self.last_error = error
            look.again()
            for _ in range(5):
                yield NextPoll()
            return self.made(partition, look.topic_id())

    later = Reader({0: Broker("a.example.org")})
    rig = Rig(Reader({0: A}, by_position=True), StaticCoordinator, asked_after_failure=later)
    rig.opener = rig.it._opener = Refused()  # type: ignore[assignment]
    if goes_on:
        rig.start()
        rig.poll(3)
        assert rig.mine() == [P0]
    else:
        with pytest.raises(StaticLeaderMoved):
            rig.start()
            rig.poll(3)


def test_a_static_partition_the_topic_does_not_have_is_named() -> None:
    with pytest.raises(PartitionsMissing, match="names partition 0"):
        static(A, count=0)


def test_a_partition_that_came_between_two_attempts_is_read_from_its_start_in_each() -> None:
    rig = Rig(Reader({0: A}), opens_later=True).start()
    rig.it.reopen()
    rig.poll(0.1)
    rig.it.hold()
    rig.reader.leaders[1] = A
    rig.poll(61)
    for _ in range(2):
        rig.opener.opened.clear()
        rig.it.reopen()
        rig.poll(0.1)
        assert rig.opener.opened == [(P0, False), (P1, True)]
        rig.it.hold()


def test_an_attempt_ends_when_a_refresh_leaves_out_a_partition_of_it() -> None:
    rig = Rig(Reader({0: A, 1: A}), opens_later=True).start()
    parted = []

    def hold() -> None:
        parted.append(rig.mine())
        rig.it.hold()

    rig.it.on_parted(hold)
    rig.it.reopen()
    rig.poll(0.1)
    del rig.reader.leaders[1]
    rig.poll(61)
    assert parted == [[P0]]
    rig.reader.leaders[1] = A
    rig.poll(61)
    rig.it.reopen()
    rig.poll(0.1)
    assert rig.mine() == [P0, P1] and len(parted) == 1


def test_the_first_attempt_of_a_replacement_begins_at_start_offset_where_nothing_is_stored() -> None:
    """With attempts nothing is stored before the run began, though all partitions were there."""
    rig = Rig(Reader({0: A}), opens_later=True, run_began=True).start()
    rig.it.reopen()
    rig.poll(0.1)
    assert rig.opener.opened == [(P0, False)]


def test_a_topic_made_again_between_two_looks_is_read_from_its_start_in_the_next_attempt() -> None:
    reader = Reader({0: A})
    reader.topic_id = "old"
    rig = Rig(reader, opens_later=True).start()
    rig.it.on_parted(rig.it.hold)
    rig.it.reopen()
    rig.poll(0.1)
    reader.topic_id = "new"
    rig.it.refresh()
    rig.poll(1)
    rig.it.hold()
    rig.it.reopen()
    rig.poll(0.1)
    assert rig.opener.opened == [(P0, False), (P0, True)]


def test_an_attempt_whose_logs_have_parted_ends_once() -> None:
    """The resets of its other partitions end with it."""

    class Parts(Opener):
        def reset(self, manager: Any, look: LastLook) -> Steps[Any]:
            yield from ()
            self.resets.append(manager.partition)
            manager.close()

    rig = Rig(Reader({0: A, 1: A}), opens_later=True).start()
    rig.opener = rig.it._opener = Parts()  # type: ignore[assignment]
    rig.it.reopen()
    rig.poll(0.1)
    parted = []

    def hold() -> None:
        parted.append(rig.mine())
        rig.it.hold()

    rig.it.on_parted(hold)
    rig.it.fetch_failed([FailedFetch(each, OffsetOutOfRange("x")) for each in (P0, P1)])
    rig.poll(1)
    assert rig.opener.resets == [P0] and len(parted) == 1


# -- several topics --------------------------------------------------------------------------------------------------


class TopicsReader(Reader):
    """Answers for several topics: name -> leaders."""

    def __init__(self, topics: dict[str, dict[int, Broker | None]], named: tuple[str, ...] = ()) -> None:
        super().__init__({})
        self.topics, self.named = topics, named
        self.unclear: dict[str, StreamletError] = {}
        self.topic_ids: dict[str, str] = {}

    def get_current_brokers(self) -> Steps[FoundTopics]:
        yield from ()
        self.looks += 1
        if self.error is not None:
            raise self.error
        found = {
            name: GlobalPartitionInformation(name, leaders, topic_id=self.topic_ids.get(name))
            for name, leaders in self.topics.items()
        }
        gone = [name for name in self.named if name not in found and name not in self.unclear]
        return FoundTopics(found, {name: NoSuchTopic(name, "says a", "topics") for name in gone}, self.unclear)


def names(rig: Rig) -> list[str]:
    return [str(partition) for partition in rig.mine()]


def test_a_topic_that_appears_is_opened_as_one_that_came_during_the_run() -> None:
    reader = TopicsReader({"a": {0: A}})
    heard: list[list[str]] = []
    rig = Rig(reader, on_topics=lambda topics: heard.append(list(topics))).start()
    reader.topics["b"] = {0: A, 1: B}
    rig.poll(61)
    assert names(rig) == ["a-0", "b-0", "b-1"]
    assert rig.opener.opened == [(Partition("a", 0), False), (Partition("b", 0), True), (Partition("b", 1), True)]
    assert heard == [["a"], ["a", "b"]]


def test_no_topic_yet_is_waited_for() -> None:
    reader = TopicsReader({})
    rig = Rig(reader).start()
    assert rig.it.complete and names(rig) == []
    reader.topics["a"] = {0: A}
    rig.poll(61)
    assert rig.opener.opened == [(Partition("a", 0), True)]


@pytest.mark.parametrize(("reader", "seen"), [(TopicsReader({"a": {0: A}}), Partition("a", 0)), (Reader({0: A}), P0)])
def test_the_replacement_of_a_worker_takes_a_partition_it_sees_first_for_one_that_came_during_the_run(
    reader: Reader, seen: Partition
) -> None:
    """Where nothing is stored of it: else start_offset="latest" would pass over what was written meanwhile. A worker
    that died before the run began had nothing to store, and nothing was emitted.
    """
    assert Rig(reader, run_began=True).start().opener.opened == [(seen, True)]
    assert Rig(reader).start().opener.opened == [(seen, False)]


def test_a_topic_named_in_a_list_must_be_there_at_the_start() -> None:
    with pytest.raises(NoSuchTopic, match=r"'b' does not exist .* correct `topics`"):
        Rig(TopicsReader({"a": {0: A}}, ("a", "b"))).start()


def test_a_topic_whose_metadata_is_not_there_yet_is_waited_for_at_the_start() -> None:
    reader = TopicsReader({"a": {0: A}}, ("a", "b"))
    reader.unclear = {"b": NotLeaderOrFollower("b")}
    rig = Rig(reader)
    activity = Activity(rig.it.start())
    assert not activity.poll()
    reader.unclear, reader.topics["b"] = {}, {0: B}
    for _ in range(20):
        rig.clock.advance(0.1)
        activity.poll()
    assert names(rig) == ["a-0", "b-0"]


def test_a_topic_that_is_missing_for_a_moment_or_unclear_keeps_its_partitions() -> None:
    reader = TopicsReader({"a": {0: A}, "b": {0: A}})
    rig = Rig(reader).start()
    gone = reader.topics.pop("b")
    rig.it.refresh()
    rig.poll(TOPIC_GONE_GRACE_S - 1)
    assert names(rig) == ["a-0", "b-0"] and rig.reader.looks > 3
    reader.topics["b"] = gone
    rig.poll(5)
    looks = rig.reader.looks
    rig.poll(30)
    assert rig.reader.looks == looks, "looked for it on and on although it is back"
    reader.topics.pop("b")
    reader.unclear = {"b": NotLeaderOrFollower("b")}
    rig.it.refresh()
    rig.poll(3 * TOPIC_GONE_GRACE_S)
    assert names(rig) == ["a-0", "b-0"]


def test_a_look_to_which_every_topic_is_unclear_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    """As one that nobody answered: what is known stays, the log says so, and the next look comes soon."""
    reader = TopicsReader({"a": {0: A}})
    rig = Rig(reader).start()
    gone = reader.topics.pop("a")
    reader.unclear = {"a": NotLeaderOrFollower("a")}
    rig.it.refresh()
    rig.poll(3)
    assert names(rig) == ["a-0"] and 3 < rig.reader.looks < 10 and "going on with what is known" in caplog.text
    reader.topics["a"], reader.unclear = gone, {}
    rig.poll(3)
    looks = rig.reader.looks
    rig.poll(30)
    assert rig.reader.looks == looks


def test_a_deleted_topics_partition_is_closed_once_what_is_open_is_finished(caplog: pytest.LogCaptureFixture) -> None:
    reader = TopicsReader({"a": {0: A}, "b": {0: A, 1: A}})
    rig = Rig(reader).start()
    open_one = rig.it.get_manager(Partition("b", 1))
    for number, finished in ((0, True), (1, False)):
        vars(rig.it.get_manager(Partition("b", number)) or rig).update(is_finished=finished)
    del reader.topics["b"]
    rig.it.refresh()
    rig.poll(TOPIC_GONE_GRACE_S + 2)
    assert names(rig) == ["a-0", "b-1"] and open_one.ending  # type: ignore[union-attr]
    assert rig.connections.get_connection(Partition("b", 1)) is None
    vars(open_one).update(is_finished=True)
    rig.poll(0.1)
    assert names(rig) == ["a-0"] and open_one in rig.closed
    assert caplog.text.count("topic 'b' is not there any more") == 1
    reader.topics["b"] = {0: A}
    rig.poll(61)
    assert rig.opener.opened[-1] == (Partition("b", 0), True)


def test_what_was_not_read_of_a_deleted_topic_is_counted_as_lost(caplog: pytest.LogCaptureFixture) -> None:
    reader = TopicsReader({"a": {0: A}, "b": {0: A}})
    rig = Rig(reader).start()
    b = rig.it.get_manager(Partition("b", 0))
    assert b is not None
    vars(b).update(unread=OffsetRange(3, 7))
    del reader.topics["b"]
    rig.it.refresh()
    rig.poll(TOPIC_GONE_GRACE_S + 2)
    assert rig.opener.gone == [(b.partition, OffsetRange(3, 7))]
    assert "b-0: its topic was deleted; at least offsets [3, 6] (4 offsets) are lost" in caplog.text


def test_what_was_damaged_of_a_deleted_topic_counts_as_lost_once_the_rest_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = TopicsReader({"a": {0: A}, "b": {0: A}})
    rig = Rig(reader).start()
    b = rig.it.get_manager(Partition("b", 0))
    assert b is not None
    vars(b).update(spoiled=OffsetRange(3, 7))
    del reader.topics["b"]
    rig.it.refresh()
    rig.poll(TOPIC_GONE_GRACE_S + 2)
    assert b.closed and b.ledger.counts.lost == 4
    assert "b-0: offsets [3, 6] (4 offsets) came damaged, and their topic is gone: they are lost" in caplog.text


def test_an_attempt_that_ends_with_a_deleted_topic_counts_what_was_not_read_of_it() -> None:
    """Of a partition that a look leaves out for a moment nothing is gone."""
    reader = TopicsReader({"a": {0: A, 1: A}, "b": {0: A}})
    rig = Rig(reader, opens_later=True).start()
    rig.it.on_parted(rig.it.hold)
    rig.it.reopen()
    rig.poll(0.1)
    for manager in rig.it.get_my_managed_partitions():
        vars(manager).update(unread=OffsetRange(3, 7))
    del reader.topics["b"], reader.topics["a"][1]
    rig.it.refresh()
    rig.poll(TOPIC_GONE_GRACE_S + 2)
    assert names(rig) == ["a-0"] and rig.opener.gone == [(Partition("b", 0), OffsetRange(3, 7))]


def test_a_list_of_which_every_topic_is_gone_stops_the_spout() -> None:
    reader = TopicsReader({"a": {0: A}}, ("a",))
    rig = Rig(reader).start()
    reader.topics.clear()
    rig.it.refresh()
    with pytest.raises(TopicsDeleted, match=r"deleted during the run \('a'\)\. All that was known of it had been read"):
        rig.poll(TOPIC_GONE_GRACE_S + 2)


def test_two_tasks_share_several_topics_out() -> None:
    topics: dict[str, dict[int, Broker | None]] = {"a": dict.fromkeys(range(3), A), "b": dict.fromkeys(range(4), A)}
    shares = [set(names(Rig(TopicsReader(dict(topics)), index=index, count=2).start())) for index in (0, 1)]
    assert shares[0].isdisjoint(shares[1]) and len(shares[0] | shares[1]) == 7


def test_a_topic_that_is_made_again_before_its_open_records_are_done_is_opened_beside_them() -> None:
    """They are acked, failed and sent again under their own slot, until the last is done."""
    reader = TopicsReader({"a": {0: A}, "b": {0: A}})
    rig = Rig(reader).start()
    old, b = rig.it.get_manager(Partition("b", 0)), Partition("b", 0)
    assert old is not None
    vars(old).update(is_finished=False)
    del reader.topics["b"]
    rig.it.refresh()
    rig.poll(TOPIC_GONE_GRACE_S + 2)
    assert old.ending and rig.closed == [old], "nothing is stored any more"
    reader.topics["b"] = {0: B}
    rig.it.refresh()
    rig.poll(1)
    new = rig.it.get_manager(b)
    assert new is not old and [new, old] == rig.it.get_my_managed_partitions()[1:] and not old.closed
    vars(old).update(is_finished=True)
    version = rig.it.version
    rig.poll(1)
    assert old.closed and old not in rig.it.get_my_managed_partitions() and rig.it.version > version
    assert rig.it.get_manager(b) is new and not new.closed and rig.it.leader(b) == B
    assert rig.opener.opened[-1] == (b, True) and rig.it.complete


def test_a_topic_of_several_that_may_not_be_read_any_more_stops_the_spout() -> None:
    reader = TopicsReader({"a": {0: A}, "b": {0: A}}, ("a", "b"))
    rig = Rig(reader).start()
    reader.topics.pop("b")
    reader.unclear = {"b": TopicAuthorizationFailed("b")}
    rig.it.refresh()
    with pytest.raises(TopicAuthorizationFailed):
        rig.poll(1)
