"""Clusters that fail, move, grow, lie and throttle, as scripted brokers play them.

The names begin with the fault in docs/evidence (f1 to f27) or the mechanism (p3, p7, p11, p12).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from streamlet.kafka import Broker, ClientConfig, KafkaClient, TopicPartition
from streamlet.kafka.errors import (
    KafkaError,
    RequestTimedOut,
    UnsupportedVersion,
)
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from streamlet.kafka.protocol.messages.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import CLOSE, SILENCE, FakeBroker
from tests.scripted.kafka.net.polled_client import make, until

FOUND = FindCoordinatorResponse(error_code=0, node_id=1, host="h", port=1)
TP = TopicPartition("lines", 0)


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    """Three of them, ids 1 to 3; each names all three, and itself the leader of nothing."""
    rows = [FakeBroker(node_id=number) for number in (1, 2, 3)]
    for row in rows:
        row.on(ApiKey.FIND_COORDINATOR, FOUND)
        row.start()
    cluster(rows, rows)
    yield rows
    for row in rows:
        row.stop()


def cluster(
    told_by: list[FakeBroker],
    members: list[FakeBroker],
    leader: int = 1,
    epoch: int = 0,
    partitions: int = 1,
    topic_id: str | None = None,
    listed: list[MetadataBroker] | None = None,
) -> None:
    """Let these brokers give this cluster as their metadata."""
    named = listed if listed is not None else [member(row) for row in members]
    parts = tuple(
        MetadataPartition(error_code=0 if leader >= 0 else 5, partition_index=n, leader_id=leader, leader_epoch=epoch)
        for n in range(partitions)
    )

    def metadata(request: MetadataRequest) -> MetadataResponse:
        names = [] if request.topics is None else [row.name for row in request.topics]
        topics = [MetadataTopic(error_code=0, name=n, topic_id=topic_id, partitions=parts) for n in names]
        return MetadataResponse(brokers=tuple(named), cluster_id="c", controller_id=1, topics=tuple(topics))

    for row in told_by:
        row.on(ApiKey.METADATA, metadata)


def member(row: FakeBroker) -> MetadataBroker:
    return MetadataBroker(node_id=row.node_id, host="127.0.0.1", port=row.port)


def refreshed(client: KafkaClient) -> None:
    version = client.request_update()
    until(client, lambda: client.metadata.update_version > version)


def leader_id(client: KafkaClient) -> int | None:
    leader = client.cluster.leader_for(TP)
    return None if leader is None else leader.node_id


def ask(client: KafkaClient, broker: Broker | None = None) -> FindCoordinatorResponse:
    request = FindCoordinatorRequest(key="g")
    return client.wait_retrying(lambda: client.send(request, broker), PATIENCE_S)


def test_p3_one_living_entry_of_the_list_is_enough_wherever_it_stands(brokers: list[FakeBroker]) -> None:
    """Also where the first entry is dead; the list is shuffled for each client; brokers outside of it are used."""
    first, second, third = brokers
    second.stop()
    with make(second, first) as client:
        client.bootstrap(PATIENCE_S)
        assert ask(client, client.cluster.brokers[3]) == FOUND and third.connections == 1
    asked: set[int] = set()
    second.start()
    for draw in range(20):
        settings = {"bootstrap_servers": tuple(row.address for row in brokers)}
        draws = iter([(draw * 7 + n * 3) % 10 / 10 for n in range(3)])
        with KafkaClient(ClientConfig.of(settings), uniform=lambda draws=draws: next(draws, 0.0)) as client:
            before = {row.node_id: row.connections for row in brokers}
            client.bootstrap(PATIENCE_S)
            asked |= {row.node_id for row in brokers if row.connections > before[row.node_id]}
    assert asked == {1, 2, 3}


def test_p7_brokers_and_partitions_that_come_later_are_used_and_no_healthy_connection_is_made_again(
    brokers: list[FakeBroker],
) -> None:
    """By age alone, without an error; as many refreshes as there are, each broker is connected to once."""
    first, second, _third = brokers
    cluster(brokers, [first, second])
    with make(first, metadata_max_age_ms=100) as client:
        client.bootstrap(PATIENCE_S)
        client.wait_on_metadata("lines", PATIENCE_S)
        assert set(client.cluster.brokers) == {1, 2} and client.cluster.partition_count("lines") == 1
        assert ask(client, client.cluster.brokers[2]) == FOUND
        cluster(brokers, brokers, leader=3, epoch=1, partitions=4)
        until(client, lambda: client.cluster.partition_count("lines") == 4 and leader_id(client) == 3)
        assert ask(client, client.cluster.leader_for(TP)) == FOUND
        version = client.metadata.update_version
        until(client, lambda: client.metadata.update_version > version + 5)
        assert [row.connections for row in brokers] == [1, 1, 1] and client.counts.connections_lost == 0


def test_p7_an_interval_of_minus_one_refreshes_only_after_a_failure(brokers: list[FakeBroker]) -> None:
    """``metadata_max_age_ms = -1``."""
    with make(brokers[0], metadata_max_age_ms=-1) as client:
        client.bootstrap(PATIENCE_S)
        assert client.metadata.time_to_next_update(1e12) == float("inf")
        version = client.metadata.update_version
        brokers[0].drop_connections()
        until(client, lambda: client.metadata.update_version > version)


def test_p11_a_failed_refresh_hurts_no_request_and_is_counted(brokers: list[FakeBroker]) -> None:
    """Answers without brokers again and again: what is known stays, requests go on, the counts tell."""
    (first, *_others) = brokers
    cluster([first], [first])
    with make(first, metadata_max_age_ms=50) as client:
        client.bootstrap(PATIENCE_S)
        known = client.cluster
        first.on(ApiKey.METADATA, MetadataResponse(brokers=(), topics=()))
        before = client.counts
        deadline = time.monotonic() + PATIENCE_S
        while client.counts.failed_metadata_updates < 3:
            assert time.monotonic() < deadline
            assert client.wait(client.send(FindCoordinatorRequest(key="g"), first.broker), PATIENCE_S) == FOUND
        after = client.counts
        assert after.metadata_updates == before.metadata_updates
        assert after.failed_requests == 0 and after.connections_lost == 0 and client.cluster is known
        first.on(ApiKey.FIND_COORDINATOR, CLOSE, FOUND)
        ask(client, first.broker)
        assert client.counts.failed_requests == 1 and client.counts.requests > after.requests


def test_p12_a_broker_that_went_away_and_came_back_is_used_again(brokers: list[FakeBroker]) -> None:
    """At its old address, and at another under its old id; meanwhile the others serve."""
    first, second, third = brokers
    cluster(brokers, brokers, leader=2)
    with make(first) as client:
        client.bootstrap(PATIENCE_S)
        client.wait_on_metadata("lines", PATIENCE_S)
        assert ask(client, client.cluster.leader_for(TP)) == FOUND
        second.stop()
        with pytest.raises(KafkaError) as caught:
            client.wait(client.send(FindCoordinatorRequest(key="g"), client.cluster.brokers[2]), PATIENCE_S)
        assert caught.value.retriable and ask(client) == FOUND
        second.start()
        assert ask(client, client.cluster.brokers[2]) == FOUND
        with FakeBroker(node_id=2) as moved:
            moved.on(ApiKey.FIND_COORDINATOR, FOUND)
            cluster([first, third], [first, moved, third], leader=2, epoch=1)
            second.stop()
            until(client, lambda: client.cluster.brokers[2].port == moved.port)
            assert ask(client, client.cluster.leader_for(TP)) == FOUND and moved.seen(ApiKey.FIND_COORDINATOR)


def test_fault_f4_p3_all_brokers_come_back_on_new_ports(brokers: list[FakeBroker]) -> None:
    """Known ones are gone for good: the bootstrap list is tried again, though its own port was another one's."""
    first, second, third = brokers
    cluster([first], [second, third])
    with make(first) as client:
        client.bootstrap(PATIENCE_S)
        assert set(client.cluster.brokers) == {2, 3}
        for row in brokers:
            row.stop()
        future = client.send(FindCoordinatorRequest(key="g"), timeout_s=0.5)
        with pytest.raises(RequestTimedOut, match="any broker"):
            client.wait(future, PATIENCE_S)
        assert set(client.cluster.brokers) == {2, 3}, "what was known is kept while nobody answers"
        with FakeBroker(node_id=2) as third:
            third.on(ApiKey.FIND_COORDINATOR, FOUND)
            first.start()
            cluster([first, third], [third])
            until(client, lambda: [b.port for b in client.cluster.brokers.values()] == [third.port])
            assert ask(client, client.cluster.brokers[2]) == FOUND


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
def test_fault_f4_p3_known_brokers_that_answer_nothing_are_given_up_for_the_bootstrap_list(
    brokers: list[FakeBroker], strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-1102: they can be connected to and give no metadata (another cluster by now, a broken network)."""
    first, second, third = brokers
    cluster([first], [second, third])
    for row in (second, third):
        row.on(ApiKey.METADATA, MetadataResponse(brokers=(), topics=()))
    recovery = {"metadata_recovery_strategy": strategy, "metadata_recovery_rebootstrap_trigger_ms": 300}
    with make(first, **recovery) as client:
        client.bootstrap(PATIENCE_S)
        client.disconnect(first.broker)
        cluster([first], [first])
        client.request_update()
        if strategy == "rebootstrap":
            until(client, lambda: set(client.cluster.brokers) == {1})
            assert client.counts.failed_metadata_updates
            assert f"beginning again with {first.address}" in caplog.text
        else:
            until(client, lambda: client.counts.failed_metadata_updates > 4)
            assert set(client.cluster.brokers) == {2, 3}


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ({ApiKey.API_VERSIONS: (0, 3)}, "does not offer the API METADATA at all"),
        ({ApiKey.API_VERSIONS: (0, 3), ApiKey.METADATA: (100, 32767)}, "is too new for this client"),
        ({ApiKey.API_VERSIONS: (0, 3), ApiKey.METADATA: (0, 1)}, "is too old for this client"),
        ({}, "does not offer the API METADATA at all"),
    ],
)
def test_fault_f17_versions_that_do_not_meet_are_told_at_once(
    ranges: dict[ApiKey, tuple[int, int]], words: str
) -> None:
    """A key that is missing, a least beyond ours, a most below it, no keys at all."""
    with FakeBroker(ranges=ranges) as broker, make(broker) as client:
        broker.on(ApiKey.API_VERSIONS, broker._api_versions(3) if ApiKey.API_VERSIONS in ranges else _no_versions())
        start = time.monotonic()
        with pytest.raises(UnsupportedVersion) as caught:
            client.bootstrap(PATIENCE_S)
        assert words in caught.value.message and broker.address in caught.value.message
        assert time.monotonic() - start < 10


def _no_versions() -> object:
    from streamlet.kafka.protocol.messages.api_versions_and_sasl import ApiVersionsResponse

    return ApiVersionsResponse(error_code=0, api_keys=())


def test_fault_f17_an_error_code_of_the_future_has_its_number_in_the_text(brokers: list[FakeBroker]) -> None:
    """It becomes an error of its own, and crashes nothing."""
    first = brokers[0]

    def strange(request: MetadataRequest) -> MetadataResponse:
        topics = tuple(MetadataTopic(error_code=4711, name=row.name) for row in request.topics or ())
        return MetadataResponse(brokers=(member(first),), topics=topics)

    first.on(ApiKey.METADATA, strange)
    with make(first) as client:
        client.bootstrap(PATIENCE_S)
        with pytest.raises(KafkaError, match="4711"):
            client.wait_on_metadata("lines", 1.0)


def test_fault_f22_throttled_requests_wait_and_their_time_outs_with_them(brokers: list[FakeBroker]) -> None:
    """KIP-219: nothing is sent meanwhile, another broker is used at once, and the wait counts towards no time-out."""
    first, second, _third = brokers
    slow = FindCoordinatorResponse(throttle_time_ms=700, error_code=0, node_id=1, host="h", port=1)
    first.on(ApiKey.FIND_COORDINATOR, slow, SILENCE)
    with make(first) as client:
        client.bootstrap(PATIENCE_S)
        throttled = client.send(FindCoordinatorRequest(key="a"), first.broker)
        beside = client.send(FindCoordinatorRequest(key="b"), first.broker, timeout_s=0.4)
        client.wait(throttled, PATIENCE_S)
        start = time.monotonic()
        assert ask(client, client.cluster.brokers[2]) == FOUND and time.monotonic() - start < 0.6
        with pytest.raises(RequestTimedOut):
            client.wait(beside, PATIENCE_S)
        assert time.monotonic() - start > 0.4, "the broker was not reading meanwhile"
        assert second.connections == 1


def test_fault_f25_metadata_that_lies_converges(brokers: list[FakeBroker]) -> None:
    """A leader from before, no leader, a leader nobody lists, one id twice, addresses swapped, a dead broker listed."""
    first, second, third = brokers
    with make(first) as client:
        client.bootstrap(PATIENCE_S)
        client.wait_on_metadata("lines", PATIENCE_S)
        cluster(brokers, brokers, leader=2, epoch=5)
        refreshed(client)
        cluster(brokers, brokers, leader=1, epoch=4)
        refreshed(client)
        assert leader_id(client) == 2, "older news than what is known"
        cluster(brokers, brokers, leader=-1, epoch=6)
        refreshed(client)
        assert leader_id(client) is None and client.metadata.update_requested, "and it goes on asking"
        cluster(brokers, brokers, leader=9, epoch=7)
        refreshed(client)
        assert leader_id(client) is None
        twice = [member(first), MetadataBroker(node_id=2, host="127.0.0.1", port=first.port), member(second)]
        cluster(brokers, brokers, leader=2, epoch=8, listed=twice)
        refreshed(client)
        assert ask(client, client.cluster.leader_for(TP)) == FOUND
        swapped = [
            MetadataBroker(node_id=1, host="127.0.0.1", port=second.port),
            MetadataBroker(node_id=2, host="127.0.0.1", port=first.port),
        ]
        cluster(brokers, brokers, leader=2, epoch=9, listed=swapped)
        refreshed(client)
        assert ask(client, client.cluster.leader_for(TP)) == FOUND
        third.stop()
        cluster([first, second], brokers, leader=3, epoch=10)
        refreshed(client)
        with pytest.raises(KafkaError) as caught:
            client.wait(client.send(FindCoordinatorRequest(key="g"), client.cluster.leader_for(TP)), PATIENCE_S)
        assert caught.value.retriable
        cluster([first, second], brokers, leader=1, epoch=11)
        until(client, lambda: leader_id(client) == 1)
        assert ask(client, client.cluster.leader_for(TP)) == FOUND


def test_fault_f10_a_topic_made_again_is_known_by_its_id(brokers: list[FakeBroker]) -> None:
    """Epochs begin again at 0; what was known of the old one holds for the new one no longer."""
    old, new = "AAAAAAAAAAAAAAAAAAAACg", "AAAAAAAAAAAAAAAAAAAACw"
    cluster(brokers, brokers, leader=2, epoch=7, topic_id=old)
    with make(brokers[0]) as client:
        client.bootstrap(PATIENCE_S)
        client.wait_on_metadata("lines", PATIENCE_S)
        assert (leader_id(client), client.cluster.topic_id("lines")) == (2, old)
        cluster(brokers, brokers, leader=3, epoch=0, topic_id=new)
        refreshed(client)
        assert (leader_id(client), client.cluster.topic_id("lines")) == (3, new)
        assert client.cluster.leader_epoch(TP) == 0


def test_an_idle_client_sleeps(brokers: list[FakeBroker]) -> None:
    """No wake-up but for what is due: a loop that trusts ``next_wake_s`` comes back a few times, not for ever."""
    with make(brokers[0]) as client:
        client.bootstrap(PATIENCE_S)
        client.poll(0)
        before = client._network.polls
        assert client.next_wake_s() > 60
        client.poll(0.5)
        assert client._network.polls == before + 1


FORK = """
import os, sys
from streamlet.kafka import ClientConfig, KafkaClient
from streamlet.kafka.errors import ClientClosed

client = KafkaClient(ClientConfig(sys.argv[1]))
client.bootstrap(20)
child = os.fork()
if child == 0:
    try:
        client.poll(0)
    except ClientClosed as error:
        client.close()
        os._exit(7 if "fork" in error.message else 8)
    os._exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
version = client.request_update()
while client.metadata.update_version == version:
    client.poll(0.1)
print(client.counts.connections_made)
client.close()
"""


def test_a_forked_child_that_closes_takes_nothing_from_its_parent(brokers: list[FakeBroker]) -> None:
    """The parent goes on over the same connection; the epoll object they share is not changed."""
    cluster(brokers[:1], brokers[:1])
    command = [sys.executable, "-c", FORK, brokers[0].address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["7", "1"], done
