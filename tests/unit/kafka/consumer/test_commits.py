"""Automatic commits: what is committed when, without a broker."""

from __future__ import annotations

from typing import Any

from streamlet.base.clock import ManualClock
from streamlet.kafka.broker_errors import CoordinatorLoadInProgress
from streamlet.kafka.client.group_requests import OffsetAndMetadata
from streamlet.kafka.consumer.commits import STORED_AGAIN_S, Commits
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.consumer.metrics import ConsumerMetrics
from streamlet.kafka.consumer.subscription_state import SubscriptionState
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import TopicPartition

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


class Rig:
    """Commits whose requests end as told."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        config = ConsumerConfig.of({"bootstrap_servers": "b:1", "group_id": "g"})
        client: Any = None
        self.subscriptions = SubscriptionState()
        self.subscriptions.assign_from_user([TP, OTHER])
        self.commits = Commits(
            client, self.subscriptions, config, self.clock.monotonic, lambda tps: False, lambda: None, ConsumerMetrics()
        )
        self.sent: list[dict[TopicPartition, OffsetAndMetadata]] = []
        self.error: Any = None
        self.open: list[RequestFuture[Any]] | None = None
        """A list: requests are left open in it."""
        self.commits._offsets = self  # type: ignore[assignment]

    def commit(self, offsets: Any, member: Any) -> RequestFuture[Any]:
        self.sent.append(dict(offsets))
        future: RequestFuture[Any] = RequestFuture()
        if self.open is None:
            future.complete(dict.fromkeys(offsets, self.error))
        else:
            self.open.append(future)
        return future

    def after(self, seconds: float, **consumed: int) -> int:
        """Poll's look at the timer; how many partitions were committed."""
        self.clock.advance(seconds)
        before = len(self.sent)
        offsets = {TopicPartition("t", int(name[1:])): OffsetAndMetadata(offset) for name, offset in consumed.items()}
        self.commits.maybe_auto_commit(lambda: offsets)
        return len(self.sent[-1]) if len(self.sent) > before else 0


def test_c12_what_has_not_moved_is_not_committed_again() -> None:
    """An idle consumer sends long polls and heartbeats, and nothing else."""
    rig = Rig()
    assert rig.after(5, p0=10, p1=7) == 2
    assert rig.after(5, p0=10, p1=7) == 0
    assert rig.after(5, p0=11, p1=7) == 1
    assert rig.sent[-1] == {TP: OffsetAndMetadata(11)}


def test_what_has_not_moved_is_committed_before_it_expires() -> None:
    rig = Rig()
    rig.after(5, p0=10)
    assert rig.after(STORED_AGAIN_S + 1, p0=10) == 1


def test_a_rewound_position_and_a_commit_of_the_users_own_count() -> None:
    """What is compared is the last commit, whoever made it."""
    rig = Rig()
    rig.after(5, p0=10)
    assert rig.after(5, p0=4) == 1
    rig.commits.send({TP: OffsetAndMetadata(2)})
    assert rig.after(5, p0=4) == 1


def test_what_failed_was_not_committed() -> None:
    rig = Rig()
    rig.error = CoordinatorLoadInProgress
    rig.after(5, p0=10)
    rig.error = None
    assert rig.after(5, p0=10) == 1


def test_after_a_new_assignment_nothing_is_known() -> None:
    rig = Rig()
    rig.after(5, p0=10)
    rig.commits.restart_timer()
    assert rig.after(5, p0=10) == 1


def test_c7_an_automatic_commit_never_begins_before_the_last_one_has_ended() -> None:
    """However many intervals its answer takes; the next one comes an interval after that answer, with the newest."""
    rig = Rig()
    rig.open = []
    assert rig.after(5, p0=10) == 1
    assert [rig.after(5, p0=offset) for offset in (11, 12, 13)] == [0, 0, 0] and len(rig.open) == 1
    assert rig.commits.next_wake_s(rig.clock.monotonic()) == float("inf"), "poll need not wake for it"
    rig.open[0].complete({TP: None})
    rig.commits.run_callbacks()
    assert rig.after(4.9, p0=14) == 0
    assert rig.after(0.1, p0=15) == 1
    assert rig.sent == [{TP: OffsetAndMetadata(10)}, {TP: OffsetAndMetadata(15)}]


def test_c7_waiting_for_earlier_commits_is_within_the_time_given() -> None:
    """Not after it, once more."""
    rig = Rig()

    class Client:
        def poll(self, timeout_s: float) -> None:
            rig.clock.advance(max(timeout_s, 0.001))

        def wait(self, future: RequestFuture[Any], timeout_s: float) -> Any:
            rig.clock.advance(9.0)
            return future.value

    rig.commits._client = Client()  # type: ignore[assignment]
    open_one: RequestFuture[None] = RequestFuture()
    rig.commits._order.append((open_one, {}, None))
    begun = rig.clock.monotonic()
    rig.commits.commit_sync({TP: OffsetAndMetadata(1)}, 10.0)
    assert rig.clock.monotonic() - begun < 10.1


def test_c2_what_was_committed_and_what_the_group_answered_is_in_the_partitions_state() -> None:
    """A refused commit is not, and neither is one of a partition that is not assigned."""
    rig = Rig()
    row = rig.subscriptions.require(TP)
    assert row.committed is None
    assert rig.after(5, p0=10, p7=1) == 2
    assert row.committed == OffsetAndMetadata(10) and TopicPartition("t", 7) not in rig.subscriptions
    rig.error = CoordinatorLoadInProgress
    rig.after(5, p0=11)
    assert row.committed == OffsetAndMetadata(10)
    answer: RequestFuture[Any] = RequestFuture()
    rig.fetch = lambda tps, require_stable: answer  # type: ignore[attr-defined]
    rig.commits.fetch([TP, OTHER])
    answer.complete({OTHER: OffsetAndMetadata(4, metadata="by another")})
    assert rig.subscriptions.require(OTHER).committed == OffsetAndMetadata(4, metadata="by another")
