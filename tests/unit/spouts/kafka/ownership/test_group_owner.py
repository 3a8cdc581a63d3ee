"""The gate before every emit, in group mode: who may open it and when it must be shut. The group's thread is played."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from streamlet.base.clock import ManualClock
from streamlet.kafka.broker_errors import GroupAuthorizationFailed, InconsistentGroupProtocol, InvalidSessionTimeout
from streamlet.kafka.consumer.assignors.base import decode_subscription, encode_assignment
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.consumer.errors import MembershipFenced
from streamlet.kafka.consumer.membership import Fatal, Generation, Joined, MembershipLost, News, RejoinNeeded
from streamlet.kafka.errors import KafkaError, UnsupportedVersion
from streamlet.spouts.kafka.activity import NextPoll, Steps
from streamlet.spouts.kafka.chosen_topics import ChosenTopics
from streamlet.spouts.kafka.errors import Deposed, ForeignMembers, NotAMember, RunDeposed, SessionRefused, TaskReplaced
from streamlet.spouts.kafka.ownership import group_owner
from streamlet.spouts.kafka.ownership.emit_gate import FLUSH_S, LEASE_SHARE
from streamlet.spouts.kafka.ownership.group_owner import GroupOwner
from streamlet.spouts.kafka.ownership.newest_run import NEWCOMER, Claim, Verdict, decode_claim
from streamlet.spouts.kafka.partition import Partition

SESSION_S = 10.0


class PlayedThread:
    """Stands for the group's thread: joins are noted, news is what the test tells."""

    def __init__(
        self, config: Any, membership: Any, assignors: Any, heard: Callable[[], None], clock: Any, *, join_told_s: float
    ) -> None:
        assert join_told_s == math.inf, "the start says what it waits for"
        self.membership, self.heard = membership, heard
        self.joins: list[Claim] = []
        self.news: list[News] = []
        self.leaves = self.stopped = False

    def start(self) -> None: ...

    def join(self, protocols: tuple[tuple[str, bytes], ...]) -> None:
        claim = decode_claim(decode_subscription(protocols[0][1]).user_data)
        assert claim is not None
        self.joins.append(claim)

    def next_news(self) -> News | None:
        return self.news.pop(0) if self.news else None

    def begin_stop(self, timeout_s: float) -> None:
        self.leaves = True

    def stop(self, timeout_s: float) -> None:
        self.stopped = True

    def tell(self, news: News) -> None:
        self.news.append(news)
        self.heard()

    def give(self, generation: int, run: str = "run-1", since: int = NEWCOMER, members: int = 1) -> None:
        """A share of a new generation; its request was sent just now."""
        told = Verdict(run, "words", since, members).encode()
        self.tell(Joined(Generation(generation, "m-1", "streamlet"), encode_assignment((), told), False))


class Scene:
    """An owner, its played thread, and what its check and flush do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int = 1) -> None:
        monkeypatch.setattr(group_owner, "classic_thread", PlayedThread)
        self.clock = ManualClock()
        config = ConsumerConfig.of(
            {
                "bootstrap_servers": "127.0.0.1:1",
                "group_id": "demo",
                "group_instance_id": "run-1-lines-0",
                "session_timeout_ms": int(SESSION_S * 1e3),
                "heartbeat_interval_ms": 1_000,
            }
        )
        claim = Claim("run-1", "words", 0, count, 0)
        self.woken = 0
        self.owner = GroupOwner(config, ChosenTopics(("lines",)), claim, self.wake, self.clock)
        self.thread: PlayedThread = self.owner._thread  # type: ignore[assignment]
        self.checks = self.flushes = 0
        self.finding: Exception | None = None
        self.flushed = True
        self.owner.gate.check, self.owner.gate.flush = self.check, self.flush

    def wake(self) -> None:
        self.woken += 1

    def check(self) -> Steps[None]:
        self.checks += 1
        yield NextPoll()
        if self.finding is not None:
            raise self.finding

    def flush(self) -> Steps[None]:
        self.flushes += 1
        again = NextPoll()
        yield again
        while not self.flushed:
            yield again

    def beat(self) -> None:
        """A heartbeat sent now was answered well."""
        self.thread.membership.granted_s = self.clock.monotonic()

    def poll(self, times: int = 4) -> bool:
        """Poll, then say whether tuples may be emitted."""
        for _ in range(times):
            self.owner.gate.poll(self.clock.monotonic())
        return self.owner.gate.may_emit(self.clock.monotonic())

    def opened(self) -> Scene:
        self.beat()
        self.thread.give(7)
        assert self.poll()
        return self


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_nothing_is_emitted_before_the_share_is_there_and_the_store_was_looked_at(scene: Scene) -> None:
    assert not scene.poll() and scene.owner.member is None
    scene.beat()
    scene.thread.give(7)
    assert scene.owner.member is not None and scene.owner.member.generation_id == 7
    assert not scene.owner.gate.may_emit(0.0), "nobody has looked yet whether another run was there"
    assert scene.poll() and scene.checks == 1


def test_a_lease_lasts_from_the_answered_request_on_and_is_over_before_the_session(scene: Scene) -> None:
    scene.opened()
    scene.clock.advance(LEASE_SHARE * SESSION_S - 0.01)
    assert scene.poll()
    scene.clock.advance(0.02)
    assert not scene.poll() and LEASE_SHARE < 1
    scene.beat()
    assert scene.poll(), "the same generation: nobody else can have had the place"


def test_once_another_process_has_the_place_nothing_is_emitted_whatever_the_group_answers(scene: Scene) -> None:
    """A heartbeat may be answered between the refused commit and the poll that raises."""
    scene.opened()
    scene.owner.fenced()
    scene.beat()
    assert not scene.owner.gate.may_emit(scene.clock.monotonic())
    with pytest.raises(TaskReplaced):
        scene.poll()


def test_a_silent_group_is_told_once_and_its_return_too(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.opened()
    scene.clock.advance(9.5)
    scene.poll()
    scene.poll()
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith(
        "topic 'lines': nothing is emitted. The coordinator of group 'demo' has not answered for 9.5 s"
    )
    scene.beat()
    with caplog.at_level("INFO"):
        scene.poll()
    assert "emitting again" in caplog.text


def test_in_a_rebalance_it_stops_emitting_commits_and_only_then_joins_again(scene: Scene) -> None:
    scene.opened().flushed = False
    scene.thread.tell(RejoinNeeded("another member came"))
    assert len(scene.thread.joins) == 1, "tuples are still being emitted: the loop has to stop first"
    assert not scene.poll()
    assert (scene.flushes, len(scene.thread.joins)) == (1, 1) and scene.owner.member is not None
    scene.flushed = True
    assert not scene.poll()
    assert len(scene.thread.joins) == 2 and scene.thread.joins[1].since == 7
    scene.beat()
    scene.thread.give(8, since=7)
    assert scene.poll() and scene.checks == 2


def test_a_commit_that_takes_too_long_does_not_hold_the_rebalance_up(scene: Scene) -> None:
    scene.opened().flushed = False
    scene.thread.tell(RejoinNeeded("another member came"))
    scene.poll()
    scene.clock.advance(FLUSH_S)
    scene.poll()
    assert len(scene.thread.joins) == 2


def test_a_task_that_emits_nothing_yet_joins_again_without_the_loop(scene: Scene) -> None:
    """The loop may still start the other tasks of its worker, and they wait for this one."""
    scene.beat()
    scene.thread.give(7)
    scene.thread.tell(RejoinNeeded("another member came"))
    assert len(scene.thread.joins) == 2 and scene.owner.member is None
    assert not scene.poll(), "the look at the store was for a generation that is over"


def test_a_rebalance_during_the_look_at_the_store_keeps_the_gate_shut(scene: Scene) -> None:
    scene.beat()
    scene.thread.give(7)
    scene.poll(1)
    scene.thread.tell(RejoinNeeded("another member came"))
    assert not scene.poll()
    scene.thread.give(8)
    assert scene.poll() and scene.checks == 2


def test_a_membership_that_is_lost_shuts_the_gate_and_is_sought_again(scene: Scene) -> None:
    scene.opened()
    scene.thread.membership.granted_s = -float("inf")
    scene.thread.tell(MembershipLost("a test"))
    assert not scene.owner.gate.may_emit(0.0) and scene.owner.member is None
    scene.poll(1)
    assert len(scene.thread.joins) == 2, "nothing can be committed, so nothing is waited for"
    scene.beat()
    scene.thread.give(9, since=7)
    assert scene.poll() and scene.checks == 2


def test_a_run_that_had_the_topic_meanwhile_and_is_gone_again_is_found_in_the_store(scene: Scene) -> None:
    scene.opened()
    scene.thread.tell(MembershipLost("a test"))
    scene.finding = Deposed(Partition("lines", 0), "group 'demo'", "run-1", 1, {"owner_epoch": 2})
    scene.poll(1)
    scene.beat()
    scene.thread.give(9)
    with pytest.raises(Deposed):
        scene.poll()
    assert not scene.owner.gate.may_emit(0.0)


def test_a_look_at_the_store_that_fails_for_a_moment_is_made_again(scene: Scene) -> None:
    scene.finding = NotAMember("a test")
    scene.beat()
    scene.thread.give(7)
    assert not scene.poll()
    scene.finding = None
    assert scene.poll()


def test_a_newer_run_stops_this_one_and_the_error_names_both(scene: Scene) -> None:
    scene.opened()
    scene.thread.tell(RejoinNeeded("another member came"))
    scene.poll()
    scene.thread.give(8, run="run-2", since=NEWCOMER)
    with pytest.raises(
        RunDeposed, match=r"Run run-2 of topology 'words' took over topic 'lines' in consumer group 'demo'"
    ):
        scene.poll()
    with pytest.raises(RunDeposed, match="give each its own `id`"):
        scene.poll()
    assert not scene.owner.gate.may_emit(0.0) and scene.owner.member is None


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        (MembershipFenced("a test"), TaskReplaced, "taken for dead and replaced"),
        (InconsistentGroupProtocol("a test"), ForeignMembers, "ordinary consumers among its members"),
        (InvalidSessionTimeout("a test"), SessionRefused, "refuses session_timeout_ms=10000"),
        (GroupAuthorizationFailed("Joining group 'demo'"), GroupAuthorizationFailed, "demo"),
    ],
)
def test_what_ends_a_membership_for_good_is_said_in_words(
    scene: Scene, said: KafkaError, kind: type[Exception], text: str
) -> None:
    scene.opened()
    scene.thread.tell(Fatal(said))
    with pytest.raises(kind, match=text):
        scene.poll()


def test_a_broker_that_knows_no_static_members_has_a_dynamic_one(scene: Scene) -> None:
    scene.thread.tell(Fatal(UnsupportedVersion("too old")))
    assert len(scene.thread.joins) == 2
    assert scene.thread.membership.settings.group_instance_id is None
    scene.beat()
    scene.thread.give(7)
    assert scene.poll()
    assert scene.owner.member is not None and scene.owner.member.group_instance_id is None


def test_heartbeats_are_quick_only_until_all_tasks_of_the_run_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, count=2)
    scene.beat()
    scene.thread.give(7, members=1)
    assert scene.thread.membership.settings.heartbeat_interval_s < 1.0
    scene.thread.give(8, members=2)
    assert scene.thread.membership.settings.heartbeat_interval_s == 1.0
    scene.thread.give(9, members=1)
    assert scene.thread.membership.settings.heartbeat_interval_s == 1.0


def test_a_spout_that_leaves_emits_no_more_and_does_not_wait(scene: Scene) -> None:
    scene.opened().owner.leave()
    assert scene.thread.leaves and not scene.thread.stopped and not scene.owner.gate.may_emit(0.0)


def test_a_spout_that_closes_emits_no_more_and_leaves(scene: Scene) -> None:
    scene.opened().owner.close()
    assert scene.thread.stopped and not scene.owner.gate.may_emit(0.0)
