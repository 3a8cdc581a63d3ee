"""Metadata kept fresh inside poll (M3, M4, M6; Java: ``DefaultMetadataUpdater``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from streamlet.kafka.metadata.cluster import Broker
from streamlet.kafka.metadata.metadata import Metadata, MetadataAsk
from streamlet.kafka.net.connection_states import BEING_MADE, ConnectionState, ConnectionStates
from streamlet.kafka.net.in_flight import ClientResponse, InFlightRequests

if TYPE_CHECKING:
    from streamlet.kafka.net.network_client import NetworkClient

_log = logging.getLogger(__name__)


class MetadataUpdater:
    """Decides in each poll whether to connect, to ask or to wait. At most one request is in flight."""

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        bootstrap: tuple[Broker, ...],
        uniform: Callable[[], float],
        rebootstrap_after_s: float = float("inf"),
    ) -> None:
        self._rebootstrap_after_s = rebootstrap_after_s
        self._wanted_since: float | None = None
        self._from_the_start = False
        self._client = client
        self._metadata = metadata
        self._bootstrap = bootstrap
        self._uniform = uniform
        self._asked: Broker | None = None
        self._faulty: dict[str | None, int] = {}

    def is_due(self, now_s: float) -> bool:
        """An update is wanted now and none is on its way."""
        return self._asked is None and self._metadata.time_to_next_update(now_s) <= 0

    def candidates(self) -> tuple[Broker, ...]:
        """The brokers known from metadata; the bootstrap addresses before any is, or after a rebootstrap."""
        if self._from_the_start:
            return self._bootstrap
        return tuple(self._metadata.cluster.brokers.values()) or self._bootstrap

    def wait_s(self, now_s: float) -> float:
        """Seconds until :meth:`maybe_update` has something to do that no event announces."""
        if self._asked is not None:
            return float("inf")
        wait = self._metadata.time_to_next_update(now_s)
        if wait > 0:
            return wait
        return self.wait_for_any_s(now_s)

    def wait_for_any_s(self, now_s: float) -> float:
        """Seconds until time alone gives a broker to ask; infinity while a connection is being made."""
        brokers = self.reachable()
        if any(self._is_connecting(broker) for broker in brokers):
            return float("inf")
        return min((self._client.wait_s(broker, now_s) for broker in brokers), default=float("inf"))

    def maybe_update(self, now_s: float) -> None:
        """Ask, or begin the connection over which to ask, or leave it for later."""
        if not self.is_due(now_s):
            return
        self._rebootstrap_in_time(now_s)
        broker = self.least_loaded(now_s)
        if broker is None:
            return
        if self._client.can_send(broker, now_s):
            ask = self._metadata.next_request()
            self._asked = broker
            self._client.send(ask.request, broker, lambda response: self._answered(ask, response))
        elif any(self._is_connecting(other) for other in self.reachable()):
            return  # no second connection while one is being made (M6)
        elif self._client.states.can_connect(broker.address, now_s):
            self._client.connect(broker, now_s)

    def _rebootstrap_in_time(self, now_s: float) -> None:
        """KIP-1102: known brokers that gave no metadata for so long may be another cluster's by now."""
        if self._wanted_since is None:
            self._wanted_since = now_s
        elif not self._from_the_start and now_s - self._wanted_since >= self._rebootstrap_after_s:
            servers = ", ".join(map(str, self._bootstrap))
            _log.warning(
                "no known broker gave metadata for %.0f s: beginning again with %s", now_s - self._wanted_since, servers
            )
            self._from_the_start = True

    def least_loaded(self, now_s: float) -> Broker | None:
        """The broker to ask when any will do; one of the bootstrap list when none known is in reach."""
        states, in_flight = self._client.states, self._client.in_flight
        found = least_loaded_node(self.candidates(), states, in_flight, now_s, self._uniform)
        if found is None:
            found = least_loaded_node(self.reachable(), states, in_flight, now_s, self._uniform)
        return found

    def reachable(self) -> tuple[Broker, ...]:
        """Those to ask: the candidates; the bootstrap addresses too when no candidate has a connection of any kind."""
        candidates = self.candidates()
        states = self._client.states
        if any(states.get(row.address).state is not ConnectionState.DISCONNECTED for row in candidates):
            return candidates
        return tuple({row.address: row for row in (*self._bootstrap, *candidates)}.values())

    def _is_connecting(self, broker: Broker) -> bool:
        state = self._client.states.get(broker.address).state
        return state in BEING_MADE

    def _answered(self, ask: MetadataAsk, response: ClientResponse) -> None:
        self._asked = None
        now = self._client.now_s()
        if response.error is not None:
            _log.debug("metadata request %d failed: %s", response.correlation_id, response.error.message)
            self._client.counts.failed_metadata_updates += 1
            self._metadata.failed_update(now)
            return
        faulty = {row.name: row.error_code for row in response.value.topics if row.error_code}
        # Once for each change, not once for each try; for debugging, for whoever waits for the topic tells its user.
        if faulty and faulty != self._faulty:
            _log.debug("metadata answer %d from %s has errors: %s", response.correlation_id, response.broker, faulty)
        self._faulty = faulty
        if self._metadata.update(ask, response.value, now):
            self._client.counts.metadata_updates += 1
            self._wanted_since, self._from_the_start = None, False
            self._client.forget_unused(now)
        else:
            self._client.counts.failed_metadata_updates += 1
            _log.warning(
                "metadata answer %d from %s names no brokers; what was known is kept",
                response.correlation_id,
                response.broker,
            )


def least_loaded_node(
    brokers: Iterable[Broker],
    states: ConnectionStates,
    in_flight: InFlightRequests,
    now_s: float,
    uniform: Callable[[], float],
) -> Broker | None:
    """Java's rule, from a random start.

    Ready and idle; else ready with the fewest in flight; else one being connected; else the connectable one
    whose last attempt is oldest. None when all are in back-off or throttled.
    """
    rows = list(brokers)
    if not rows:
        return None
    start = int(uniform() * len(rows)) % len(rows)
    ready: tuple[int, Broker] | None = None
    connecting: Broker | None = None
    connectable: tuple[float, Broker] | None = None
    for broker in rows[start:] + rows[:start]:
        address = broker.address
        node = states.get(address)
        if states.is_ready(address, now_s) and in_flight.can_send_more(address):
            load = in_flight.count(address)
            if load == 0:
                return broker
            if ready is None or load < ready[0]:
                ready = (load, broker)
        elif node.state in BEING_MADE:
            connecting = broker
        elif states.can_connect(address, now_s) and (connectable is None or node.last_attempt_s < connectable[0]):
            connectable = (node.last_attempt_s, broker)
    if ready is not None:
        return ready[1]
    if connecting is not None:
        return connecting
    return None if connectable is None else connectable[1]
