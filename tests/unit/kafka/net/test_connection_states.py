"""The life of a connection and the choice of a broker, without a socket and without a clock."""

from __future__ import annotations

import pytest

from streamlet.base.backoff import Backoff, no_jitter
from streamlet.kafka.errors import AuthenticationFailed, Disconnected
from streamlet.kafka.metadata.cluster import Address, Broker
from streamlet.kafka.net.connection_states import (
    TRANSITIONS,
    ConnectionEvent,
    ConnectionState,
    ConnectionStates,
    SocketAddress,
)
from streamlet.kafka.net.network_client import InFlightRequest, InFlightRequests, least_loaded_node
from streamlet.kafka.protocol.messages.api_versions_and_sasl import FinalizedFeatures
from streamlet.kafka.protocol.messages.metadata import MetadataRequest

A = Address("a", 1)
GONE = Disconnected("gone")


def two_addresses(address: Address) -> list[SocketAddress]:
    return [(2, (f"{address[0]}-{number}", 1)) for number in range(2)]


@pytest.fixture
def states() -> ConnectionStates:
    return ConnectionStates(Backoff(0.05, 1.0, jitter=0.0), Backoff(10.0, 30.0, jitter=0.0), no_jitter)


def make_ready(states: ConnectionStates, address: Address, now_s: float = 0.0) -> None:
    states.dial(address, now_s, two_addresses)
    states.connected(address)
    states.versions_known(address, {})


def test_only_the_moves_of_the_table_are_possible(states: ConnectionStates) -> None:
    """Every other pair of state and event is a bug, and raises."""
    assert len(TRANSITIONS) == 10
    with pytest.raises(RuntimeError, match="disconnected cannot have 'connected' happen"):
        states.connected(A)
    make_ready(states, A)
    with pytest.raises(RuntimeError, match="ready cannot have 'dial' happen"):
        states.dial(A, 1.0, two_addresses)
    reached = {ConnectionState.DISCONNECTED} | set(TRANSITIONS.values())
    assert reached == set(ConnectionState) and {move for _, move in TRANSITIONS} == set(ConnectionEvent)


def test_of_two_brokers_news_of_features_the_newer_counts(states: ConnectionStates) -> None:
    """In whatever order they come; what no broker has told is version 0."""
    assert states.features.level("transaction.version") == 0
    for epoch, level, known in ((3, 1, 1), (7, 2, 2), (3, 1, 2), (9, 0, 0)):
        states.learn_features(FinalizedFeatures(epoch, {"transaction.version": level}))
        assert states.features.level("transaction.version") == known


def test_back_off_doubles_until_versions_are_known(states: ConnectionStates) -> None:
    """A connection that is made and lost again at once has not helped: the back-off goes on."""
    waits = []
    now = 0.0
    for number in range(7):
        states.dial(A, now, two_addresses)
        if number % 2:
            states.connected(A)
        states.lost(A, now, GONE)
        waits.append(round(states.wait_s(A, now), 3))
        assert states.wait_s(A, now) > 0 and not states.can_connect(A, now)
        now += waits[-1] + 0.001
        assert states.can_connect(A, now)
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    make_ready(states, A, now)
    states.lost(A, now, GONE)
    assert states.wait_s(A, now) == pytest.approx(0.05)


def test_a_connection_we_closed_ourselves_has_no_back_off(states: ConnectionStates) -> None:
    """A new one may be begun at once."""
    make_ready(states, A)
    states.closed(A)
    assert states.can_connect(A, 0.0) and states.get(A).last_error is None


def test_the_time_to_connect_is_bounded_and_grows(states: ConnectionStates) -> None:
    """10 s, 20 s, 30 s, by ``socket.connection.setup.timeout.ms``."""
    now = 0.0
    for limit in (10.0, 20.0, 30.0, 30.0):
        states.dial(A, now, two_addresses)
        assert states.setup_expired(now + limit - 0.01) == [] and states.next_setup_deadline() == now + limit
        assert states.setup_expired(now + limit) == [A]
        now += limit
        states.lost(A, now, GONE)
        now += 2


def test_every_address_of_a_name_is_tried_in_turn(states: ConnectionStates) -> None:
    """Then the name is resolved again; after an established connection the one used last is not the first."""
    resolved: list[Address] = []

    def resolve(address: Address) -> list[SocketAddress]:
        resolved.append(address)
        return two_addresses(address)

    used = []
    for number in range(3):
        used.append(states.dial(A, 10.0 * number, resolve)[1][0])
        states.lost(A, 10.0 * number, GONE)
    assert used == ["a-0", "a-1", "a-0"] and len(resolved) == 2
    states.get(A).candidates = []
    make_ready(states, A, 50.0)
    last = states.get(A).last_used
    states.lost(A, 51.0, GONE)
    assert states.dial(A, 60.0, resolve) != last


def test_a_throttled_connection_is_not_ready(states: ConnectionStates) -> None:
    """Until the time the broker asked for."""
    make_ready(states, A)
    states.throttle(A, 5.0)
    assert not states.is_ready(A, 4.9) and states.wait_s(A, 4.0) == 1.0 and states.is_ready(A, 5.0)


def test_addresses_nobody_tries_any_more_are_forgotten(states: ConnectionStates) -> None:
    """Ten minutes after the last try; one that is connected, or was never tried, is not."""
    gone, kept, never = Address("gone", 1), Address("kept", 1), Address("never", 1)
    make_ready(states, kept)
    states.get(never)
    states.dial(gone, 0.0, two_addresses)
    states.lost(gone, 0.0, GONE)
    assert states.forget_unused(599.0) == [] and states.forget_unused(600.0) == [gone]
    assert set(states.all()) == {kept, never}


def test_who_we_are_is_told_again_in_time(states: ConnectionStates) -> None:
    """KIP-368: between 85 and 95 % of the session's lifetime, which begins when the broker believed it."""
    states.dial(A, 0.0, two_addresses)
    states.connected(A)
    states.authenticate(A, 0.0, {})
    assert not states.is_ready(A, 0.0)
    states.authenticated(A, 10.0, 100.0)
    assert states.is_ready(A, 10.0) and states.next_session_end() == pytest.approx(100.0)
    assert states.sessions_ending(99.0) == [] and states.sessions_ending(101.0) == [A]
    states.authenticate(A, 101.0)
    assert not states.is_ready(A, 101.0) and states.next_session_end() == float("inf")
    assert states.setup_expired(111.1) == [A]
    states.authenticated(A, 102.0, 0.0)
    assert states.is_ready(A, 102.0) and states.sessions_ending(1e9) == []


def test_who_was_refused_waits_the_longest_back_off(states: ConnectionStates) -> None:
    """Each try may count towards locking the user out."""
    states.dial(A, 0.0, two_addresses)
    states.lost(A, 0.0, AuthenticationFailed("no"))
    assert states.wait_s(A, 0.0) == 1.0


def test_m3_the_least_loaded_node_is_idle_and_ready_if_there_is_one(states: ConnectionStates) -> None:
    """Idle and ready; else ready with the fewest in flight; else being connected; else longest not tried."""
    brokers = [Broker(number, f"b{number}", 1) for number in range(4)]
    in_flight = InFlightRequests(5)

    def choose(start: float = 0.0, now_s: float = 100.0) -> int | None:
        found = least_loaded_node(brokers, states, in_flight, now_s, lambda: start)
        return None if found is None else found.node_id

    def load(broker: Broker, count: int) -> None:
        for _ in range(count):
            row = InFlightRequest(broker, MetadataRequest(topics=None), 7, 1, None, 1.0, 1.0, sent=True)
            in_flight.add(row)

    assert least_loaded_node([], states, in_flight, 0.0, no_jitter) is None
    assert {choose(start) for start in (0.0, 0.25, 0.5, 0.75)} == {0, 1, 2, 3}
    for number, at in ((0, 90.0), (1, 80.0), (2, 99.99), (3, 85.0)):
        states.dial(brokers[number].address, at, two_addresses)
        states.lost(brokers[number].address, at, GONE)
    assert choose() == 1
    assert choose(now_s=0.0) is None
    states.dial(brokers[3].address, 100.0, two_addresses)
    assert choose() == 3
    make_ready(states, brokers[0].address, 100.0)
    make_ready(states, brokers[1].address, 100.0)
    load(brokers[0], 2)
    load(brokers[1], 1)
    assert choose() == 1
    load(brokers[1], 4)
    assert choose() == 0
    in_flight.clear(brokers[1].address)
    assert {choose(start) for start in (0.0, 0.5)} == {1}
    states.throttle(brokers[1].address, 200.0)
    assert choose() == 0
