"""The network layer against a scripted broker on real sockets, and what may go wrong."""

from __future__ import annotations

import itertools
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from streamlet.base.errors import StreamletError
from streamlet.kafka import Broker, ClientConfig, KafkaClient, RequestFuture
from streamlet.kafka.broker_errors import TopicAuthorizationFailed
from streamlet.kafka.errors import (
    BootstrapFailed,
    ClientClosed,
    ClientTimeout,
    Disconnected,
    ForeignProtocol,
    KafkaError,
    MalformedFrame,
    RequestTimedOut,
    UnsupportedVersion,
)
from streamlet.kafka.protocol.messages.fetch import FetchRequest, FetchResponse
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from streamlet.kafka.protocol.messages.metadata import MetadataResponse, MetadataTopic
from streamlet.kafka.protocol.messages.produce import ProduceRequest
from streamlet.kafka.protocol.schema import ApiKey, Request
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import CLOSE, SILENCE, FakeBroker
from tests.scripted.kafka.net.polled_client import until

FOUND = FindCoordinatorResponse(error_code=0, node_id=1, host="h", port=1)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"lines": 2}) as broker:
        yield broker


@pytest.fixture
def make_client() -> Iterator[Callable[..., KafkaClient]]:
    clients: list[KafkaClient] = []

    def make(*servers: FakeBroker | str, **settings: object) -> KafkaClient:
        names = tuple(row if isinstance(row, str) else row.address for row in servers)
        clients.append(KafkaClient(ClientConfig.of({"bootstrap_servers": names, **settings})))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_m3_the_first_metadata_takes_three_steps(broker: FakeBroker, make_client: Callable[..., KafkaClient]) -> None:
    """Connect and ask for versions; hear them; ask for metadata and hear it. One connection."""
    client = make_client(broker)
    steps = []
    while client.metadata.update_version == 0:
        client.poll(PATIENCE_S)
        steps.append([row.api_key for row in broker.requests])
        assert len(steps) < 10
    # A poll ends at the first event: connected, versions heard, metadata heard.
    assert len(steps) == 3
    assert [row.api_key for row in broker.requests] == [ApiKey.API_VERSIONS, ApiKey.METADATA]
    assert broker.connections == 1
    assert client.cluster.cluster_id == "fake"


def test_m6_an_answer_without_brokers_keeps_what_is_known(
    broker: FakeBroker, make_client: Callable[..., KafkaClient], caplog: pytest.LogCaptureFixture
) -> None:
    """It is a failed update: the cache stays, the next try comes after the back-off, and the log has the id."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    client.wait_on_metadata("lines", PATIENCE_S)
    known = client.cluster
    empty = MetadataResponse(brokers=(), topics=())
    broker.on(ApiKey.METADATA, empty, broker.metadata)
    asked = len(broker.seen(ApiKey.METADATA))
    version = client.request_update()
    until(client, lambda: len(broker.seen(ApiKey.METADATA)) > asked and "names no brokers" in caplog.text)
    assert client.cluster is known and client.metadata.update_version == version
    assert f"metadata answer {broker.seen(ApiKey.METADATA)[-1].correlation_id} " in caplog.text
    until(client, lambda: client.metadata.update_version > version)
    assert client.cluster.partition_count("lines") == 2


def test_m6_only_one_metadata_request_is_in_flight(broker: FakeBroker, make_client: Callable[..., KafkaClient]) -> None:
    """However often an update is asked for, a second request waits for the first one's answer."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    broker.on(ApiKey.METADATA, SILENCE)
    asked = len(broker.seen(ApiKey.METADATA))
    client.request_update()
    until(client, lambda: len(broker.seen(ApiKey.METADATA)) == asked + 1)
    for _ in range(20):
        client.request_update()
        client.poll(0.01)
    assert len(broker.seen(ApiKey.METADATA)) == asked + 1
    assert broker.connections == 1


def test_m6_no_second_connection_while_one_is_being_made(make_client: Callable[..., KafkaClient]) -> None:
    """With several bootstrap addresses only one is dialled at a time."""
    with FakeBroker() as first, FakeBroker() as second, FakeBroker() as third:
        brokers = (first, second, third)
        for row in brokers:
            row.on(ApiKey.API_VERSIONS, SILENCE)
        client = make_client(*brokers)
        until(client, lambda: sum(len(row.requests) for row in brokers) == 1)
        for _ in range(20):
            client.poll(0.01)
        assert sum(row.connections for row in brokers) == 1


def test_m4_a_lost_connection_asks_for_metadata(broker: FakeBroker, make_client: Callable[..., KafkaClient]) -> None:
    """A connection that breaks makes the cluster doubtful, and the client comes back by itself."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    version = client.metadata.update_version
    broker.drop_connections()
    until(client, lambda: client.metadata.update_version > version)
    assert broker.connections == 2


def test_m4_a_connection_that_we_close_asks_for_nothing(
    broker: FakeBroker, make_client: Callable[..., KafkaClient]
) -> None:
    """It says nothing of the cluster."""
    client = make_client(broker, metadata_max_age_ms=600_000)
    client.bootstrap(PATIENCE_S)
    asked = len(broker.seen(ApiKey.METADATA))
    client.disconnect(broker.broker)
    until(client, lambda: not client.connected_brokers())
    client.poll(0.05)
    assert not client.metadata.update_requested
    assert len(broker.seen(ApiKey.METADATA)) == asked and broker.connections == 1


def test_m4_a_dial_that_fails_asks_for_metadata(broker: FakeBroker, make_client: Callable[..., KafkaClient]) -> None:
    """Nobody listens where the broker is said to be: it may have moved."""
    client = make_client(broker, metadata_max_age_ms=600_000)
    client.bootstrap(PATIENCE_S)
    asked, version = len(broker.seen(ApiKey.METADATA)), client.metadata.update_version
    gone = client.send(FindCoordinatorRequest(key="a"), Broker(2, "127.0.0.1", free_port()))
    until(client, lambda: gone.done and client.metadata.update_version > version)
    assert isinstance(gone.exception, Disconnected)
    assert len(broker.seen(ApiKey.METADATA)) == asked + 1 and broker.connections == 1


def test_m4_a_timed_out_request_asks_for_metadata_and_closes_the_connection(
    broker: FakeBroker, make_client: Callable[..., KafkaClient]
) -> None:
    """One request without an answer in time costs the whole connection, with all that is in flight on it."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    broker.on(ApiKey.FIND_COORDINATOR, SILENCE)
    version = client.metadata.update_version
    late = client.send(FindCoordinatorRequest(key="a"), broker.broker, timeout_s=0.2)
    other = client.send(FindCoordinatorRequest(key="b"), broker.broker)
    until(client, lambda: late.done and other.done)
    assert isinstance(late.exception, RequestTimedOut)
    assert isinstance(other.exception, Disconnected)
    assert late.exception.retriable and late.exception.stale_metadata
    assert "FIND_COORDINATOR" in str(late.exception) and broker.address in str(late.exception)
    until(client, lambda: client.metadata.update_version > version)


def test_m7_callbacks_run_in_order_and_one_that_raises_hurts_no_other(
    broker: FakeBroker, make_client: Callable[..., KafkaClient], caplog: pytest.LogCaptureFixture
) -> None:
    """Listeners run inside poll, in request order; a fault in one is logged."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    broker.on(ApiKey.FIND_COORDINATOR, FOUND)
    order: list[int] = []

    def listener(number: int) -> Callable[[RequestFuture[FindCoordinatorResponse]], None]:
        def run(future: RequestFuture[FindCoordinatorResponse]) -> None:
            order.append(number)
            if number == 1:
                raise ZeroDivisionError("mine")

        return run

    futures = []
    for number in range(4):
        future = client.send(FindCoordinatorRequest(key=str(number)), broker.broker)
        future.add_listener(listener(number)).add_listener(listener(number + 10))
        futures.append(future)
    assert not order
    until(client, lambda: all(future.done for future in futures))
    assert order == [0, 10, 1, 11, 2, 12, 3, 13]
    assert "ZeroDivisionError: mine" in caplog.text


def test_m7_an_interrupt_in_a_callback_costs_no_other_its_answer(
    broker: FakeBroker, make_client: Callable[..., KafkaClient]
) -> None:
    """Ctrl-C comes out of poll at once; the answers that came with that one are heard in the next."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)

    def interrupted(_done: RequestFuture[FindCoordinatorResponse]) -> None:
        raise KeyboardInterrupt

    # Both are known to be lost before the next poll, which tells of them one after the other.
    futures = [client.send(FindCoordinatorRequest(key="g"), broker.broker) for _ in range(2)]
    broker.on(ApiKey.FIND_COORDINATOR, SILENCE)
    until(client, lambda: len(broker.seen(ApiKey.FIND_COORDINATOR)) == 2)
    futures[0].add_listener(interrupted)
    client.disconnect(broker.broker)
    with pytest.raises(KeyboardInterrupt):
        until(client, lambda: False)
    until(client, lambda: futures[1].done)
    assert futures[0].done


def test_an_interrupt_in_a_callback_leaves_no_unsent_request_open(make_client: Callable[..., KafkaClient]) -> None:
    """They fail together, once no broker can be reached in time; the second is told in the next poll."""

    def interrupted(_done: RequestFuture[FindCoordinatorResponse]) -> None:
        raise KeyboardInterrupt

    client = make_client(f"127.0.0.1:{free_port()}")
    first, second = (client.send(FindCoordinatorRequest(key="g"), timeout_s=0.0) for _ in range(2))
    first.add_listener(interrupted)
    with pytest.raises(KeyboardInterrupt):
        until(client, lambda: False)
    until(client, lambda: second.done)
    assert isinstance(first.exception, RequestTimedOut) and isinstance(second.exception, RequestTimedOut)


def test_a_second_outcome_of_a_future_costs_no_other_its_answer(
    broker: FakeBroker, make_client: Callable[..., KafkaClient], caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever holds a future may resolve it by mistake: the log names the request, and the poll goes on."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    broker.on(ApiKey.FIND_COORDINATOR, FOUND)
    taken, other = (client.send(FindCoordinatorRequest(key="g"), broker.broker) for _ in range(2))
    taken.complete(FOUND)
    until(client, lambda: other.done)
    assert other.value.node_id == 1
    assert [row.message for row in caplog.records if row.levelno == logging.ERROR] == [
        "FIND_COORDINATOR has a second outcome, which is dropped: its future is resolved"
    ]


def test_c8_send_alone_sends_nothing(broker: FakeBroker, make_client: Callable[..., KafkaClient]) -> None:
    """Bytes move in poll only."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    broker.on(ApiKey.FIND_COORDINATOR, FOUND)
    future = client.send(FindCoordinatorRequest(key="g"), broker.broker)
    assert not select.select([client.fileno()], [], [], 0.1)[0]
    assert client.next_wake_s() == 0.0
    assert client.wait(future, PATIENCE_S).node_id == 1


def test_the_file_descriptor_wakes_an_outer_loop(broker: FakeBroker, make_client: Callable[..., KafkaClient]) -> None:
    """After poll(0) has sent, the client's fileno turns readable with the answer, and stays silent without one."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    broker.on(ApiKey.FIND_COORDINATOR, FOUND)
    assert not select.select([client.fileno()], [], [], 0)[0]
    future = client.send(FindCoordinatorRequest(key="g"), broker.broker)
    client.poll(0)
    if not future.done:
        assert select.select([client.fileno()], [], [], PATIENCE_S)[0]
        client.poll(0)
    assert future.succeeded
    assert client.next_wake_s() > 100


def test_requests_stop_at_the_in_flight_limit_and_never_spin(
    broker: FakeBroker, make_client: Callable[..., KafkaClient]
) -> None:
    """A full connection takes no more, and neither poll nor an outer loop is told to come back at once."""
    client = make_client(broker, max_in_flight_requests_per_connection=2)
    client.bootstrap(PATIENCE_S)
    broker.on(ApiKey.FIND_COORDINATOR, SILENCE)
    futures = [client.send(FindCoordinatorRequest(key=str(n)), broker.broker) for n in range(5)]
    until(client, lambda: len(broker.seen(ApiKey.FIND_COORDINATOR)) == 2)
    client.poll(0)
    assert client.pending(broker.broker) == 5
    assert client.next_wake_s() > 1
    client.request_update()
    client.poll(0.2)  # past the refresh back-off: due, and nobody to ask
    assert client.next_wake_s() > 1
    before = client._network.polls
    client.poll(0.3)
    assert client._network.polls == before + 1
    assert not any(future.done for future in futures)
    assert broker.connections == 1


def test_wakeup_ends_the_running_poll_and_else_the_next(
    broker: FakeBroker, make_client: Callable[..., KafkaClient]
) -> None:
    """From any thread; signals before a poll add up to one; after close it does nothing."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    client.wakeup()
    client.wakeup()
    assert select.select([client.fileno()], [], [], 0)[0]
    start = time.monotonic()
    client.poll(PATIENCE_S)
    assert not select.select([client.fileno()], [], [], 0)[0]
    before = client._network.polls
    thread = threading.Timer(0.1, client.wakeup)
    thread.start()
    client.poll(PATIENCE_S)
    assert time.monotonic() - start < PATIENCE_S and client._network.polls == before + 1
    thread.join()
    client.close()
    client.wakeup()


def test_a_dedicated_connection_is_one_of_its_own(broker: FakeBroker, make_client: Callable[..., KafkaClient]) -> None:
    """Shared by all who name the same purpose; what is in flight on another one holds nothing up."""
    client = make_client(broker, max_in_flight_requests_per_connection=1)
    client.bootstrap(PATIENCE_S)
    group = broker.broker.dedicated("group")
    assert group == broker.broker.dedicated("group") != broker.broker
    assert str(group) == f"{broker.address} (group)" and str(group.address) == f"{broker.address} (group)"
    broker.on(ApiKey.FETCH, SILENCE)
    broker.on(ApiKey.FIND_COORDINATOR, FOUND)
    held = client.send(FetchRequest(max_wait_ms=1000, min_bytes=1, topics=()), broker.broker)
    until(client, lambda: len(broker.seen(ApiKey.FETCH)) == 1)
    assert client.wait(client.send(FindCoordinatorRequest(key="g"), group), PATIENCE_S) == FOUND
    assert client.wait(client.send(FindCoordinatorRequest(key="g"), group), PATIENCE_S) == FOUND
    assert broker.connections == 2 and not held.done
    assert set(client.connected_brokers()) >= {group}
    client.disconnect(group)
    client.poll(0)
    assert not held.done and client.pending(broker.broker) == 1


def test_a_forked_child_is_told_to_make_a_client_of_its_own(
    broker: FakeBroker, make_client: Callable[..., KafkaClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes on one connection would read each other's answers."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    with monkeypatch.context() as child:
        child.setattr("os.getpid", lambda: -5)
        with pytest.raises(ClientClosed, match="a fork of it: make a client of its own"):
            client.poll(0)
    client.poll(0)


def test_a_static_broker_never_seen_in_metadata_can_be_asked(make_client: Callable[..., KafkaClient]) -> None:
    """Known by host and port alone, over a connection of its own."""
    with FakeBroker() as known, FakeBroker() as stranger:
        stranger.on(ApiKey.FIND_COORDINATOR, FOUND)
        client = make_client(known)
        client.bootstrap(PATIENCE_S)
        assert client.wait(client.send(FindCoordinatorRequest(key="g"), stranger.broker), PATIENCE_S) == FOUND
        assert {row.address for row in client.connected_brokers()} == {known.broker.address, stranger.broker.address}
        client.disconnect(stranger.broker)
        client.poll(0)
        assert [row.address for row in client.connected_brokers()] == [known.broker.address]
        version = client.metadata.update_version
        assert client.wait(client.send(FindCoordinatorRequest(key="g"), stranger.broker), PATIENCE_S) == FOUND
        assert client.metadata.update_version == version


def test_a_bootstrap_broker_keeps_its_connection(broker: FakeBroker, make_client: Callable[..., KafkaClient]) -> None:
    """A broker met by address and then by id is reached over the same connection."""
    client = make_client(broker)
    broker.on(ApiKey.FIND_COORDINATOR, FOUND)
    cluster = client.bootstrap(PATIENCE_S)
    client.wait(client.send(FindCoordinatorRequest(key="g"), cluster.brokers[1]), PATIENCE_S)
    client.wait(client.send(FindCoordinatorRequest(key="g"), 1), PATIENCE_S)
    client.wait(client.send(FindCoordinatorRequest(key="g")), PATIENCE_S)
    assert broker.connections == 1


def test_a_broker_that_comes_back_is_used_again(broker: FakeBroker, make_client: Callable[..., KafkaClient]) -> None:
    """No restart of ours is needed."""
    client = make_client(broker)
    broker.on(ApiKey.FIND_COORDINATOR, FOUND)
    client.bootstrap(PATIENCE_S)
    broker.stop()
    with pytest.raises(Disconnected):
        client.wait(client.send(FindCoordinatorRequest(key="g"), broker.broker), PATIENCE_S)
    broker.start()
    found = client.wait_retrying(lambda: client.send(FindCoordinatorRequest(key="g"), broker.broker), PATIENCE_S)
    assert found == FOUND


def test_bootstrap_is_tried_again_when_every_known_broker_is_gone(make_client: Callable[..., KafkaClient]) -> None:
    """KIP-899: brokers known from metadata are dead, a bootstrap address is alive."""
    with FakeBroker(node_id=1) as old, FakeBroker(node_id=2) as new:
        new.stop()
        client = make_client(old, new)
        assert set(client.bootstrap(PATIENCE_S).brokers) == {1}
        old.stop()
        new.start()
        until(client, lambda: set(client.cluster.brokers) == {2})


def test_old_brokers_are_asked_for_versions_again_in_version_0(make_client: Callable[..., KafkaClient]) -> None:
    """Error 35 in an answer of version 0 leads to a second, plainer question on the same connection."""
    with FakeBroker() as broker:
        broker.ranges[ApiKey.API_VERSIONS] = (0, 2)
        broker.ranges[ApiKey.METADATA] = (0, 8)
        client = make_client(broker)
        client.bootstrap(PATIENCE_S)
        asked = [(row.api_key, row.version) for row in broker.requests]
        assert asked == [(ApiKey.API_VERSIONS, 3), (ApiKey.API_VERSIONS, 0), (ApiKey.METADATA, 7)]
        assert broker.connections == 1


# -- what a user reads when it does not work: one paragraph that names broker, cause and remedy


def paragraph(error: BaseException) -> str:
    """The message of an error that has the shape of one."""
    assert isinstance(error, StreamletError)
    assert "\n" not in error.message and error.message.endswith(".")
    return error.message


def test_nobody_at_the_address_is_told_in_time(make_client: Callable[..., KafkaClient]) -> None:
    """Every address is named with its own cause."""
    first, second = f"127.0.0.1:{free_port()}", "no-such-host.invalid:9092"
    client = make_client(first, second)
    with pytest.raises(BootstrapFailed) as caught:
        client.bootstrap(1.0)
    text = paragraph(caught.value)
    assert first in text and second in text and "Connection refused" in text
    assert caught.value.exit_status == 2 and set(caught.value.causes) == {first, second}


def test_a_port_that_accepts_and_never_answers(make_client: Callable[..., KafkaClient]) -> None:
    """It is not taken for a broker, and the wait ends in time."""
    with FakeBroker() as mute:
        mute.on(ApiKey.API_VERSIONS, SILENCE)
        client = make_client(mute)
        with pytest.raises(BootstrapFailed, match=mute.address):
            client.bootstrap(0.5)


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "speaks SSH"),
        (b"-ERR unknown command\r\n", "another protocol"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x63abcd", "correlation id 99"),
        (b"\x00\x00\x00\x00", "another protocol"),
        (b"\xff\xff\xff\xff", "another protocol"),
    ],
)
def test_a_port_that_speaks_another_protocol_is_named_at_once(
    make_client: Callable[..., KafkaClient], greeting: bytes, words: str
) -> None:
    """The port is named, what it seems to speak too, and waiting is given up at once."""
    with FakeBroker(greeting=greeting) as stranger:
        client = make_client(stranger)
        start = time.monotonic()
        with pytest.raises(ForeignProtocol) as caught:
            client.bootstrap(60)
        assert time.monotonic() - start < 30
        text = paragraph(caught.value)
        assert stranger.address in text and words in text and caught.value.exit_status == 2


def test_a_broker_that_is_too_old_is_refused(make_client: Callable[..., KafkaClient]) -> None:
    """Broker, API and both sides' versions are named."""
    with FakeBroker() as old:
        old.ranges[ApiKey.METADATA] = (0, 4)
        client = make_client(old)
        with pytest.raises(UnsupportedVersion) as caught:
            client.bootstrap(60)
        text = paragraph(caught.value)
        assert old.address in text and "METADATA" in text and "0 to 4" in text and "7, 12" in text
        assert "too old" in text and caught.value.exit_status == 2


def test_one_api_the_broker_lacks_fails_that_request_only(make_client: Callable[..., KafkaClient]) -> None:
    """The connection and its other requests live on."""
    with FakeBroker() as broker:
        del broker.ranges[ApiKey.FETCH]
        broker.on(ApiKey.FIND_COORDINATOR, FOUND)
        client = make_client(broker)
        client.bootstrap(PATIENCE_S)
        fetch = client.send(FetchRequest(max_wait_ms=1, min_bytes=1, topics=()), broker.broker)
        with pytest.raises(UnsupportedVersion, match="does not offer the API FETCH"):
            client.wait(fetch, PATIENCE_S)
        client.wait(client.send(FindCoordinatorRequest(key="g"), broker.broker), PATIENCE_S)
        assert broker.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x00\x00\x05\x00\x00\x00\x03\x00",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x04\x00\x00\xff\xff",
        b"\x00\x00\x00\x02\x00\x00",
    ],
)
def test_garbage_on_a_good_connection_closes_it(
    broker: FakeBroker, make_client: Callable[..., KafkaClient], answer: bytes
) -> None:
    """A frame that cannot be read, is far too long or answers nothing fails the request by name; the client lives."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    broker.on(ApiKey.FIND_COORDINATOR, answer, FOUND)
    with pytest.raises(KafkaError) as caught:
        client.wait(client.send(FindCoordinatorRequest(key="g"), broker.broker), PATIENCE_S)
    assert isinstance(caught.value, MalformedFrame) and broker.address in caught.value.message
    until(client, lambda: bool(client.connected_brokers()))
    assert client.wait(client.send(FindCoordinatorRequest(key="g"), broker.broker), PATIENCE_S) == FOUND
    assert broker.connections == 2


def test_a_broker_that_closes_in_the_middle(broker: FakeBroker, make_client: Callable[..., KafkaClient]) -> None:
    """The future fails with Disconnected, which is retriable and asks for metadata."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    broker.on(ApiKey.FIND_COORDINATOR, CLOSE)
    with pytest.raises(Disconnected, match="closed the connection") as caught:
        client.wait(client.send(FindCoordinatorRequest(key="g"), broker.broker), PATIENCE_S)
    assert caught.value.retriable and caught.value.stale_metadata


def test_a_throttled_broker_is_left_alone(broker: FakeBroker, make_client: Callable[..., KafkaClient]) -> None:
    """KIP-219: after an answer with a throttle time nothing is sent for so long."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    slow = FindCoordinatorResponse(throttle_time_ms=300, error_code=0, node_id=1, host="h", port=1)
    broker.on(ApiKey.FIND_COORDINATOR, slow, FOUND)
    client.wait(client.send(FindCoordinatorRequest(key="g"), broker.broker), PATIENCE_S)
    start = time.monotonic()
    client.wait(client.send(FindCoordinatorRequest(key="g"), broker.broker), PATIENCE_S)
    assert time.monotonic() - start > 0.25


def test_m2_wait_on_metadata_names_what_is_missing(broker: FakeBroker, make_client: Callable[..., KafkaClient]) -> None:
    """A partition out of range is told apart from a topic that is not there; a negative wait is refused."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    assert client.wait_on_metadata("lines", PATIENCE_S) > 0
    assert client.wait_on_metadata("lines", PATIENCE_S) == 0.0
    with pytest.raises(ClientTimeout, match=r"Partition 7 of topic 'lines'.* 2 partitions"):
        client.wait_on_metadata("lines", 0.3, partition=7)
    with pytest.raises(
        KafkaError, match=r"'missing' cannot be used after a wait of 0\.3 s.*does not know.*Create the topic"
    ):
        client.wait_on_metadata("missing", 0.3)
    with pytest.raises(ValueError, match="negative"):
        client.wait_on_metadata("lines", -1)


def test_m2_a_topic_that_may_not_be_read_ends_the_wait_at_once(
    broker: FakeBroker, make_client: Callable[..., KafkaClient]
) -> None:
    """By an error of its own, however long the wait may be."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    hidden = MetadataTopic(error_code=29, name="secret")
    broker.on(ApiKey.METADATA, lambda request: replace(broker.metadata(request), topics=(hidden,)))
    with pytest.raises(TopicAuthorizationFailed, match="'secret'"):
        client.wait_on_metadata("secret", 600.0)


def test_asking_for_an_unknown_topic_is_no_storm(broker: FakeBroker, make_client: Callable[..., KafkaClient]) -> None:
    """Answers that tell nothing new are asked for ever more slowly."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    asked = len(broker.seen(ApiKey.METADATA))
    with pytest.raises(KafkaError):
        client.wait_on_metadata("missing", 1.5)
    assert 2 <= len(broker.seen(ApiKey.METADATA)) - asked <= 6


# -- closing


def test_close_with_a_silent_broker_returns_at_its_time_out(
    broker: FakeBroker, make_client: Callable[..., KafkaClient]
) -> None:
    """What was in flight fails with ClientClosed; a second close does nothing; a later send fails."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    broker.on(ApiKey.FIND_COORDINATOR, SILENCE)
    sent = client.send(FindCoordinatorRequest(key="g"), broker.broker)
    until(client, lambda: bool(broker.seen(ApiKey.FIND_COORDINATOR)))
    queued = client.send(FindCoordinatorRequest(key="g"), broker.broker)
    start = time.monotonic()
    client.close(0.2)
    assert time.monotonic() - start < 10
    assert isinstance(sent.exception, ClientClosed) and isinstance(queued.exception, ClientClosed)
    client.close()
    assert isinstance(client.send(FindCoordinatorRequest(key="g")).exception, ClientClosed)
    with pytest.raises(ClientClosed):
        client.poll(0)


def test_a_close_in_a_listener_ends_the_poll(broker: FakeBroker, make_client: Callable[..., KafkaClient]) -> None:
    """The poll that ran the listener ends without more."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    broker.on(ApiKey.FIND_COORDINATOR, FOUND)
    future = client.send(FindCoordinatorRequest(key="g"), broker.broker)
    future.add_listener(lambda _done: client.close())
    assert client.wait(future, PATIENCE_S) == FOUND


def test_a_large_answer_arrives_whole(broker: FakeBroker, make_client: Callable[..., KafkaClient]) -> None:
    """Frames beyond every buffer size come through, one after the other."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    sizes = [10, 65_532, 65_536, 70_000, 3_000_000]
    broker.on(
        ApiKey.FIND_COORDINATOR,
        *[FindCoordinatorResponse(error_code=0, node_id=size, host="h" * 100, port=1) for size in sizes],
    )
    for size in sizes:
        future = client.send(FindCoordinatorRequest(key="g"), broker.broker)
        assert client.wait(future, PATIENCE_S).node_id == size


def test_m6_errors_are_logged_with_correlation_ids(
    broker: FakeBroker, make_client: Callable[..., KafkaClient], caplog: pytest.LogCaptureFixture
) -> None:
    """What a metadata answer complains about is in the log, for whoever debugs; a user is told by who waits."""
    caplog.set_level(logging.DEBUG)
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    with pytest.raises(KafkaError):
        client.wait_on_metadata("missing", 0.2)
    numbers = {row.correlation_id for row in broker.seen(ApiKey.METADATA)}
    assert any(f"metadata answer {number} " in caplog.text for number in numbers)
    assert caplog.text.count("{'missing': 3}") == 1
    assert not [row for row in caplog.records if row.levelno > logging.DEBUG]


def test_a_fetch_response_type_is_what_the_request_names() -> None:
    """The typed response comes from the request's class."""
    assert FetchRequest.response_type is FetchResponse


def test_requests_that_are_not_answered_do_not_keep_answers_from_being_read(
    broker: FakeBroker, make_client: Callable[..., KafkaClient]
) -> None:
    """acks=0 without a pause: metadata still comes."""
    client = make_client(broker)
    client.bootstrap(PATIENCE_S)
    asked, go_on = threading.Event(), threading.Event()

    def held(request: Request[object]) -> object:
        asked.set()
        go_on.wait(PATIENCE_S)
        return broker.metadata(request)

    broker.on(ApiKey.PRODUCE, SILENCE).on(ApiKey.METADATA, held)
    to, version = client.cluster.brokers[1], client.request_update()
    until(client, asked.is_set)
    end = time.monotonic() + PATIENCE_S
    for turn in itertools.count():
        if client.metadata.update_version > version:
            break
        assert time.monotonic() < end
        if turn == 10:
            go_on.set()
        client.send(ProduceRequest(acks=0, timeout_ms=1, topic_data=()), to)
        client.poll(0.01)
