"""A scripted broker: what the consumer asks, when, and what it makes of bad answers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from streamlet.base.errors import SettingError
from streamlet.kafka import Consumer, KafkaError, OffsetAndMetadata, TopicPartition
from streamlet.kafka.broker_errors import TopicAuthorizationFailed
from streamlet.kafka.consumer.assignors import RangeAssignor
from streamlet.kafka.consumer.errors import CommitFailed, ConsumerClosed, GroupThreadDied
from streamlet.kafka.consumer.membership import Membership
from streamlet.kafka.errors import ClientClosed, ForeignProtocol
from streamlet.kafka.protocol.messages.groups import FindCoordinatorResponse, JoinGroupResponse
from streamlet.kafka.protocol.messages.metadata import (
    MetadataBroker,
    MetadataResponse,
    MetadataTopic,
)
from streamlet.kafka.protocol.schema import ApiKey
from tests.scripted.fake_broker import SILENCE, FakeBroker
from tests.scripted.kafka.consumer.scripted import ONE, PATIENCE_S, ZERO, poll_until


def test_c3_nothing_is_asked_before_the_first_poll_and_a_poll_ends_at_its_time_out(
    broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """Making and subscribing connect to nothing; 0 comes back at once, though nobody answers."""
    broker.on(ApiKey.FIND_COORDINATOR, SILENCE)
    consumer = consumer_of(group_id="g")
    consumer.subscribe(["t"])
    assert broker.connections == 0
    for timeout_ms in (0, 200):
        begun = time.monotonic()
        assert consumer.poll(timeout_ms) == {}
        assert timeout_ms / 1000 <= time.monotonic() - begun < timeout_ms / 1000 + 5


@pytest.mark.parametrize("deaf", [ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.FETCH, ApiKey.METADATA])
def test_close_ends_whatever_is_never_answered(
    deaf: ApiKey, broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """Whatever is never answered, and when it is called twice."""
    broker.on(deaf, SILENCE)
    consumer = consumer_of(group_id="g")
    consumer.subscribe(["t"])
    deadline = time.monotonic() + PATIENCE_S
    while not broker.seen(deaf) and not (deaf is ApiKey.FETCH and broker.seen(ApiKey.JOIN_GROUP)):
        assert time.monotonic() < deadline
        consumer.poll(20)
    begun = time.monotonic()
    consumer.close(1)
    assert time.monotonic() - begun < 5
    consumer.close(1)


@pytest.mark.parametrize(("instance", "told"), [(None, 1), ("i", 0)])
def test_c5_c11_a_close_tells_the_coordinator_and_that_of_a_static_member_does_not(
    instance: str | None, told: int, broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """The others need not wait for the session's end; a static member comes back to its share."""
    consumer = consumer_of(group_id="g", group_instance_id=instance)
    consumer.subscribe(["t"])
    poll_until(consumer, lambda: consumer.assignment() == {ZERO, ONE})
    consumer.close()
    assert len(broker.seen(ApiKey.LEAVE_GROUP)) == told


def test_a_failed_join_that_stays_is_raised(broker: FakeBroker, consumer_of: Callable[..., Consumer]) -> None:
    """No right to use the group."""
    broker.on(ApiKey.FIND_COORDINATOR, FindCoordinatorResponse(error_code=30, node_id=-1, host="", port=-1))
    consumer = consumer_of(group_id="g")
    consumer.subscribe(["t"])
    with pytest.raises(KafkaError, match="GroupAuthorizationFailed"):
        poll_until(consumer, lambda: False)


@pytest.mark.parametrize("step", ["coordinator_found", "join_failed"], ids=["at once", "later"])
def test_c6_a_mistake_of_ours_in_an_answer_ends_the_membership_and_is_told(
    step: str, broker: FakeBroker, consumer_of: Callable[..., Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A future logs what its listener raises; the membership must not wait for ever for what the listener had to do."""

    def mistaken(*_: object) -> None:
        raise ValueError("a slip")

    monkeypatch.setattr(Membership, step, mistaken)
    broker.on(ApiKey.JOIN_GROUP, JoinGroupResponse(error_code=15))
    consumer = consumer_of(group_id="g")
    consumer.subscribe(["t"])
    with pytest.raises(GroupThreadDied, match=r"'g' ended with ValueError: a slip\. Close this consumer"):
        poll_until(consumer, lambda: False)


class Leaves(RangeAssignor):
    name = "leaves"

    def assign(self, counts: Any, subscriptions: Any) -> Any:
        raise SystemExit("its configuration is missing")


def test_an_assignor_that_wants_to_leave_is_told_by_each_poll(broker: FakeBroker) -> None:
    """It ended the group's thread without a word, and each poll after it returned nothing."""
    settings: dict[str, Any] = {"bootstrap_servers": broker.address, "group_id": "g"}
    with Consumer("t", **settings, partition_assignment_strategy=[Leaves()]) as consumer:
        with pytest.raises(GroupThreadDied, match="SystemExit: its configuration is missing"):
            poll_until(consumer, lambda: False)
        with pytest.raises(GroupThreadDied):
            consumer.poll(0)


def test_a_group_thread_that_the_system_refuses_is_told_and_tried_again(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Consumer("t", bootstrap_servers=broker.address, group_id="g") as consumer:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuses)
            for _ in range(2):
                with pytest.raises(KafkaError, match=r"could not be started: can't start new thread\. Raise the limit"):
                    consumer.poll(0)
        poll_until(consumer, lambda: len(consumer.assignment()) == 2)


def test_a_forked_child_makes_no_member_of_its_copy(broker: FakeBroker) -> None:
    """It held partitions that nobody read, until its membership timed out."""
    with Consumer("t", bootstrap_servers=broker.address, group_id="g") as consumer:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            said = "nothing"
            try:
                consumer.poll(200)
            except ClientClosed as error:
                said = error.message
            finally:
                threads = [thread.name for thread in threading.enumerate() if "streamlet-group" in thread.name]
                os.write(writer, f"{said} {threads}".encode())
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        assert "is a fork of it" in said and said.endswith("[]")
        assert not broker.seen(ApiKey.JOIN_GROUP)


def test_a_topic_that_may_not_be_read_is_told(broker: FakeBroker, consumer_of: Callable[..., Consumer]) -> None:
    """Metadata says so; nothing would ever come of it."""
    refused = MetadataResponse(
        brokers=(MetadataBroker(node_id=1, host="127.0.0.1", port=broker.port),),
        topics=(MetadataTopic(error_code=29, name="t"),),
    )
    broker.on(ApiKey.METADATA, refused)
    consumer = consumer_of()
    consumer.assign([ZERO])
    with pytest.raises(TopicAuthorizationFailed, match="Topic 't' cannot be read"):
        poll_until(consumer, lambda: False)


def test_each_poll_raises_an_error_of_its_own(broker: FakeBroker, consumer_of: Callable[..., Consumer]) -> None:
    """A loop that logs and polls on would else keep the frames of all its polls in one traceback."""
    broker.greeting = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    consumer = consumer_of()
    consumer.assign([ZERO])
    raised = []
    for _again in range(3):
        with pytest.raises(ForeignProtocol) as info:
            poll_until(consumer, lambda: False)
        raised.append(info)
    assert len({id(info.value) for info in raised}) == 3
    assert len({len(info.traceback) for info in raised}) == 1


def test_c7_a_commit_before_the_first_poll_says_what_is_missing(
    broker: FakeBroker, consumer_of: Callable[..., Consumer]
) -> None:
    """A member that has not joined owns nothing."""
    consumer = consumer_of(group_id="g")
    consumer.subscribe(["t"])
    with pytest.raises(CommitFailed, match="is not in group 'g' yet"):
        consumer.commit({ZERO: OffsetAndMetadata(1)}, timeout=5)


def test_unknown_settings_are_refused_with_the_nearest(broker: FakeBroker) -> None:
    """And contradictory ones with what to change."""
    for settings, words in (
        ({"auto_offset_rest": "latest"}, "auto_offset_reset"),
        ({"auto_offset_reset": "first"}, "earliest, latest, none"),
        ({"session_timeout_ms": 3000, "heartbeat_interval_ms": 3000}, "must be below session_timeout_ms"),
        ({"partition_assignment_strategy": ["rnage"]}, "rnage"),
        ({"group_instance_id": "a"}, "needs a group_id"),
        ({"value_deserializer": "utf-8"}, "bytes.decode"),
    ):
        with pytest.raises(SettingError, match=words):
            Consumer(bootstrap_servers=broker.address, **settings)


@pytest.mark.parametrize(
    "view",
    [
        lambda consumer: consumer.subscription(),
        lambda consumer: consumer.assignment(),
        lambda consumer: consumer.paused(),
        lambda consumer: consumer.lag(TopicPartition("t", 0)),
        lambda consumer: consumer.group_metadata(),
    ],
    ids=["subscription", "assignment", "paused", "lag", "group_metadata"],
)
def test_c1_no_view_of_a_closed_consumer_answers_as_if_it_were_open(view: Callable[[Consumer], object]) -> None:
    """A closed member's identity in a transaction would commit for a group that it has left."""
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g")
    consumer.assign([TopicPartition("t", 0)])
    view(consumer)
    consumer.close(0)
    with pytest.raises(ConsumerClosed):
        view(consumer)
