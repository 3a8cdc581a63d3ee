"""Connections, requests and their answers, in the order of Java's ``NetworkClient.poll``.

One thread drives it, by :meth:`NetworkClient.poll`. Between polls nothing happens but that :meth:`NetworkClient.send`
hands bytes to the kernel. Each request resolves its future exactly once, and always in a poll (or at the close): with
the typed response, or with the error that left it without one.

A poll acts in a fixed order: the metadata request that is due, writes that were finished, answers, broken connections,
new connections and their setup, time-outs, and the futures' listeners at the very end. A listener may send, disconnect
or close, so none may run while the poll still works on what the selector found.

:class:`MetadataUpdater` keeps the cluster's metadata fresh with requests of its own among the callers'.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from streamlet.base.backoff import Backoff
from streamlet.base.clock import Clock
from streamlet.kafka.errors import (
    AuthenticationFailed,
    CannotBeWritten,
    ClientClosed,
    Disconnected,
    ForeignProtocol,
    KafkaError,
    MalformedFrame,
    RequestTimedOut,
    UnsupportedVersion,
)
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import Address, Broker
from streamlet.kafka.metadata.metadata import Metadata, MetadataAsk
from streamlet.kafka.net.connection_errors import ClosedByUs, count_hang_up, explain, hung_up
from streamlet.kafka.net.connection_setup import ConnectionSetups, SetupRequest, sasl_conversations
from streamlet.kafka.net.connection_states import BEING_MADE, ConnectionState, ConnectionStates, SocketAddress
from streamlet.kafka.net.selector import Dial, PollEvents, Selector
from streamlet.kafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from streamlet.kafka.protocol.schema import (
    Request,
    choose_version,
    decode_response,
    encode_request,
    response_correlation_id,
)
from streamlet.kafka.settings.client_config import ClientConfig

_log = logging.getLogger(__name__)

RequestOutcome = tuple[Request[Any], RequestFuture[Any] | None, Any, KafkaError | None]
"""A request, its future (None where nobody waits), and its response or its error."""


@dataclass(slots=True)
class Counts:
    """Counts since the client was made; the difference of two copies gives a rate."""

    requests: int = 0
    failed_requests: int = 0
    """Requests that were sent and ended without an answer; error codes in answers are not counted."""
    connections_made: int = 0
    connections_lost: int = 0
    """Connections that ended without our closing them."""
    metadata_updates: int = 0
    failed_metadata_updates: int = 0


class NetworkClient:
    """Sends typed requests to brokers. Not thread-safe: one thread calls everything."""

    # Long: every method changes the same connections and the requests in flight on them. States, set-up, errors and TLS
    # have modules (`connection_states`, `connection_setup`, `connection_errors`, `tls`).

    def __init__(
        self,
        config: ClientConfig,
        metadata: Metadata,
        bootstrap: tuple[Broker, ...],
        dial: Dial,
        resolve: Callable[[Address], list[SocketAddress]],
        clock: Clock,
        uniform: Callable[[], float],
    ) -> None:
        self._client_id = config.client_id
        self._security_protocol = config.security_protocol
        self._request_timeout_s = config.request_timeout_ms / 1000
        self._max_idle_s = config.connections_max_idle_ms / 1000
        self._dial = dial
        self._resolve = resolve
        self._clock = clock
        conversations = sasl_conversations(config, clock)  # before sockets are opened: it raises for a bad file
        self._selector = Selector(config.receive_message_max_bytes)
        self.states = ConnectionStates(
            Backoff(config.reconnect_backoff_ms / 1000, config.reconnect_backoff_max_ms / 1000),
            Backoff(
                config.socket_connection_setup_timeout_ms / 1000, config.socket_connection_setup_timeout_max_ms / 1000
            ),
            uniform,
        )
        self.in_flight = InFlightRequests(config.max_in_flight_requests_per_connection)
        self.metadata = metadata
        rebootstraps = config.metadata_recovery_strategy == "rebootstrap"
        rebootstrap_after_s = config.metadata_recovery_rebootstrap_trigger_ms / 1000 if rebootstraps else float("inf")
        self.updater = MetadataUpdater(self, metadata, bootstrap, uniform, rebootstrap_after_s)
        self._correlation_id = 0
        self.pending_completions: list[RequestOutcome] = []
        """Requests that ended outside of a poll; resolved at the end of the next (Java: ``pendingCompletion``)."""
        self._lost: dict[Address, KafkaError] = {}
        """Connections that ended outside of a poll; handled in the next one."""
        self._setups = ConnectionSetups(self.states, conversations)
        self._brokers: dict[Address, Broker] = {}
        self.closed = False
        self.polls = 0
        self.counts = Counts()

    # -- what callers ask and do between polls

    def now_s(self) -> float:
        """Return the time of the client's clock."""
        return self._clock.monotonic()

    def fileno(self) -> int:
        """Return a descriptor that is readable when a poll has events.

        :meth:`next_wake_s` has the moments that only time brings.
        """
        return self._selector.fileno()

    def wakeup(self) -> None:
        """End the wait of this poll, or else of the next. Any thread."""
        self._selector.wakeup()

    def next_wake_s(self, now_s: float) -> float:
        """Return the seconds until a poll must act without an event."""
        if self.pending_completions or self._lost or self._selector.holds_bytes():
            return 0.0
        deadline = min(
            self.in_flight.next_deadline(), self.states.next_setup_deadline(), self.states.next_session_end()
        )
        return max(min(self.updater.wait_s(now_s), deadline - now_s, self._setups.wait_s()), 0.0)

    def is_ready(self, broker: Broker, now_s: float) -> bool:
        """Return whether a request may be sent now."""
        # While a metadata update is due, no broker is ready. Otherwise a busy client would never send the update.
        return not self.updater.is_due(now_s) and self.can_send(broker, now_s)

    def can_send(self, broker: Broker, now_s: float) -> bool:
        """Return whether the connection is ready, unthrottled, and has room."""
        address = broker.address
        return (
            address not in self._lost and self.states.is_ready(address, now_s) and self.in_flight.can_send_more(address)
        )

    def wait_s(self, broker: Broker, now_s: float) -> float:
        """Return the seconds until a broker is worth a look; infinity: an event."""
        address = broker.address
        if self.states.get(address).state is ConnectionState.READY and not self.in_flight.can_send_more(address):
            return float("inf")
        return self.states.wait_s(address, now_s)

    def ready(self, broker: Broker, now_s: float) -> bool:
        """Return :meth:`is_ready`; if false, begin a connection where one may be begun."""
        if self.is_ready(broker, now_s):
            return True
        if not self.closed and self.states.can_connect(broker.address, now_s):
            self.connect(broker, now_s)
        return False

    def connection_failed(self, broker: Broker) -> KafkaError | None:
        """Return the error that ended the last connection, None while one exists."""
        node = self.states.get(broker.address)
        if node.state is not ConnectionState.DISCONNECTED:
            return None
        error = node.last_error
        # A request that was never sent does not fail with MalformedFrame: the unreadable bytes were no answer to it,
        # and as that error is not retriable its caller would give up for nothing.
        return Disconnected(error.message) if type(error) is MalformedFrame else error

    def connected(self) -> tuple[Broker, ...]:
        """Return the brokers with a usable connection."""
        return tuple(
            broker
            for address, broker in self._brokers.items()
            if self.states.get(address).state is ConnectionState.READY
        )

    def connect(self, broker: Broker, now_s: float) -> None:
        """Begin a connection; later polls show how it went."""
        address = broker.address
        self._brokers[address] = broker
        try:
            target = self.states.dial(address, now_s, self._resolve)
            self._selector.open(address, self._dial(target, address), now_s)
        except (OSError, UnicodeError) as err:
            # A host name that IDNA refuses is a UnicodeError. The next poll handles it like any other failure, so that
            # there is one place that does.
            self._lost[address] = Disconnected(getattr(err, "strerror", None) or str(err))

    def forget_unused(self, now_s: float) -> None:
        """Drop addresses without a connection that were not tried for long."""
        for address in self.states.forget_unused(now_s):
            self._brokers.pop(address, None)

    def send(
        self,
        request: Request[Any],
        broker: Broker,
        future: RequestFuture[Any] | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Send to a broker that :meth:`is_ready`; return the correlation id, -1 if unsent.

        ``future`` is resolved in a later poll. Raises nothing that is the request's fault.
        """
        # A request is encoded when its connection is ready, in the poll of any caller. One that cannot be encoded fails
        # its own future: an exception would hit a caller who has nothing to do with it.
        if not self.can_send(broker, self._clock.monotonic()):
            raise RuntimeError(f"a request for {broker}, which is not ready")
        try:
            version = choose_version(request, self.states.get(broker.address).versions, str(broker))
            return self._send(request, version, broker, future, timeout_s)
        except UnsupportedVersion as err:
            if isinstance(request, MetadataRequest):  # without it this broker is of no use
                self.states.get(broker.address).last_error = err
            self.pending_completions.append((request, future, None, err))
        except CannotBeWritten as err:
            self.pending_completions.append((request, future, None, err))
        return -1

    def disconnect(self, broker: Broker) -> None:
        """Close the connection; its requests fail in the next poll. No back-off follows."""
        if broker.address in self._selector.addresses():
            self._selector.close(broker.address)
            self._lost[broker.address] = ClosedByUs("the client closed it")

    def close(self) -> None:
        """Close all sockets, whatever their state; requests in flight fail with ClientClosed. Never blocks."""
        if self.closed:
            return
        self.closed = True
        self._selector.close_all()
        gone = ClientClosed("The client was closed before an answer came; whether the broker acted is unknown.")
        outcomes = self.pending_completions
        self.pending_completions = []
        for address in list(self._brokers):
            outcomes += [(entry.request, entry.future, None, gone) for entry in self.in_flight.clear(address)]
        self.resolve(outcomes)

    # -- poll

    def poll(self, timeout_s: float) -> None:
        """Do everything that is due, waiting at most ``timeout_s`` for an event."""
        if self.closed:
            raise ClientClosed("The client is closed.")
        self.polls += 1
        now = self._clock.monotonic()
        outcomes, self.pending_completions = self.pending_completions, []
        self.updater.maybe_update(now)
        wait = 0.0 if outcomes else min(timeout_s, self.next_wake_s(now))
        ready = self._selector.poll(wait, now)
        now = self._clock.monotonic()
        self._completed_sends(ready, outcomes)
        self._completed_receives(ready, outcomes, now)
        self._disconnections(ready, outcomes, now)
        for address in ready.connected:
            if address in self._selector.addresses():
                self.states.connected(address)
                self.counts.connections_made += 1
                self._setups.begin(address)
        self._set_up(now)
        self._expire(outcomes, now)
        self.resolve(outcomes)

    def _completed_sends(self, ready: PollEvents, outcomes: list[RequestOutcome]) -> None:
        for address in ready.completed_sends:
            entry = self.in_flight.mark_sent(address)
            if entry is not None and not entry.request.expects_response():
                self.in_flight.complete(entry)
                outcomes.append((entry.request, entry.future, None, None))

    def _completed_receives(self, ready: PollEvents, outcomes: list[RequestOutcome], now: float) -> None:
        for address, frame in ready.completed_receives:
            try:
                self._receive(address, frame, outcomes, now)
            except KafkaError as err:
                ready.disconnected.setdefault(address, err)
                self._selector.close(address)

    def _receive(self, address: Address, frame: bytearray, outcomes: list[RequestOutcome], now: float) -> None:
        entry = self.in_flight.oldest(address)
        found = response_correlation_id(frame)
        if entry is None or found != entry.correlation_id:
            expected = "none" if entry is None else str(entry.correlation_id)
            kind = MalformedFrame if self.states.get(address).versions else ForeignProtocol
            raise kind(f"an answer with correlation id {found}, where {expected} was expected")
        if entry.sets_up:
            self.in_flight.complete_oldest(address)
            self._setups.answered(entry.broker, SetupRequest(entry.request, entry.version), frame, now)
            return
        value = decode_response(entry.request, entry.version, frame)
        self.in_flight.complete_oldest(address)
        node = self.states.get(address)
        node.answered, node.hang_ups = True, 0
        throttle_ms = getattr(value, "throttle_time_ms", 0)
        if throttle_ms > 0:
            # The broker does not read from this connection for so long (KIP-219): what is in flight gets more time.
            self.states.throttle(address, now + throttle_ms / 1000)
            self.in_flight.postpone(address, throttle_ms / 1000)
        outcomes.append((entry.request, entry.future, value, None))

    def _disconnections(self, ready: PollEvents, outcomes: list[RequestOutcome], now: float) -> None:
        lost, self._lost = self._lost, {}
        for address, error in (lost | ready.disconnected).items():
            self._connection_lost(address, error, outcomes, now)

    def _connection_lost(self, address: Address, error: KafkaError, outcomes: list[RequestOutcome], now: float) -> None:
        broker = self._brokers[address]
        node = self.states.get(address)
        wanted = isinstance(error, ClosedByUs)
        protocol = self._security_protocol
        if hung_up(error, node, self.in_flight.count(address)):
            error = count_hang_up(broker, node, error, protocol, now)
        else:
            error = explain(broker, node, error, protocol)
        _log.debug("connection to %s lost while %s: %s", broker, node.state.value, error.message)
        self._setups.lost(address)
        if wanted:
            self.states.closed(address)
        else:
            self.states.lost(address, now, error)
            # A connection that breaks makes the metadata doubtful: its broker may have died or moved.
            self.metadata.request_update(reset_equivalent=False)
            self.counts.connections_lost += 1
        told = error
        for entry in self.in_flight.clear(address):
            self.counts.failed_requests += not entry.sets_up
            if not entry.sets_up and isinstance(error, AuthenticationFailed):
                told = Disconnected(error.message)  # sent before we were refused: whether the broker acted is unknown
            outcomes.append((entry.request, entry.future, None, told))
            # Only the oldest request's answer could not be read; the others were only on the same connection.
            if isinstance(told, MalformedFrame):
                told = Disconnected(error.message)

    def _set_up(self, now: float) -> None:
        for address, say in self._setups.take(now).items():
            # No time-out of its own: the time for the connection's setup bounds it.
            self._send(say.request, say.version, self._brokers[address], None, float("inf"), sets_up=True)
        for address, error in self._setups.refused.items():
            self._selector.close(address)
            self._lost[address] = error
        self._setups.refused = {}

    def _expire(self, outcomes: list[RequestOutcome], now: float) -> None:
        for address in self.states.setup_expired(now):
            if address in self._lost:  # refused in this very poll: the next one ends it, once
                continue
            oldest = self.in_flight.oldest(address)
            # A ready connection authenticates again after requests that the broker has still to answer. Until these
            # are answered, the time for the setup has not begun.
            if oldest is not None and not oldest.sets_up:
                self.states.wait_longer(address, now)
                continue
            self._selector.close(address)
            doing = self.states.get(address).state
            reason = f"still {doing.value} when the time for that was up (socket_connection_setup_timeout_ms)"
            kind = Disconnected if doing is ConnectionState.CONNECTING else RequestTimedOut
            self._connection_lost(address, kind(reason), outcomes, now)
        # A late answer can no longer be told from the next one's: the whole connection goes.
        for address in self.in_flight.expired(now):
            if address in self._lost:
                continue
            self._selector.close(address)
            late = self.in_flight.first_expired(address, now)
            reason = f"no answer to {late.request.api_key.name} within {late.timeout_s:.3g} s"
            self._connection_lost(address, RequestTimedOut(reason), outcomes, now)
        for address in self._selector.idle(now, self._max_idle_s):
            if not self.in_flight.count(address):
                self._selector.close(address)
                self._connection_lost(address, ClosedByUs("it was idle for too long"), outcomes, now)

    def resolve(self, outcomes: list[RequestOutcome]) -> None:
        """Resolve futures in order; an interrupt leaves the open ones for the next poll."""
        for at, (request, future, value, error) in enumerate(outcomes):
            if future is None:
                continue
            # The client resolves each future once; here it was given to two requests, or resolved by its holder. That
            # is a bug of theirs, and must not end a poll that has the answers of others.
            if future.done:
                _log.error("%s has a second outcome, which is dropped: its future is resolved", request.api_key.name)
                continue
            try:
                if error is not None:
                    future.fail(error)
                else:
                    future.complete(value)
            except BaseException:
                # Ctrl-C, in a listener or before this future was resolved: the open ones are resolved in the next poll,
                # or at close.
                self.pending_completions[:0] = outcomes[at + future.done :]
                raise

    def _send(
        self,
        request: Request[Any],
        version: int,
        broker: Broker,
        future: RequestFuture[Any] | None,
        timeout_s: float | None,
        *,
        sets_up: bool = False,
    ) -> int:
        limit = self._request_timeout_s if timeout_s is None else timeout_s
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        try:
            frame = encode_request(request, version, self._correlation_id, self._client_id)
        except Exception as err:
            why = f"{request.api_key.name} cannot be sent to {broker}: the protocol has no room for it ({err})."
            raise CannotBeWritten(why) from err
        self.counts.requests += not sets_up
        now = self._clock.monotonic()
        deadline = now + limit
        entry = InFlightRequest(broker, request, version, self._correlation_id, future, deadline, limit, sets_up)
        if future is not None:
            future.correlation_id = self._correlation_id
        self.in_flight.add(entry)
        entry.sent = self._selector.send(broker.address, frame, now)
        if entry.sent and not request.expects_response():
            self.in_flight.complete(entry)
            self.pending_completions.append((request, future, None, None))
        return entry.correlation_id


# -- requests in flight


@dataclass(slots=True)
class InFlightRequest:
    """A request on its way; ``future`` is resolved with its answer.

    ``sets_up``: it belongs to the setup of the connection, and no caller waits for its answer. ``sent`` turns true when
    its last byte is with the kernel.
    """

    broker: Broker
    request: Request[Any]
    version: int
    correlation_id: int
    future: RequestFuture[Any] | None
    deadline_s: float
    timeout_s: float
    sets_up: bool = False
    sent: bool = False


class InFlightRequests:
    """A queue for each address; answers come in its order. One thread."""

    # A broker answers the requests of one connection in the order in which they came: the oldest is the only one that
    # an answer can belong to. The correlation id only checks that.

    def __init__(self, most_per_connection: int) -> None:
        self._most = most_per_connection
        self._queues: dict[Address, deque[InFlightRequest]] = {}
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def count(self, address: Address) -> int:
        """Return how many requests wait on this connection."""
        return len(self._queues.get(address, ()))

    def can_send_more(self, address: Address) -> bool:
        """Return whether the connection is below the limit, with all bytes written."""
        # A slow socket must not gather bytes without end: the newest request is written before another is taken.
        queue = self._queues.get(address)
        return not queue or (queue[-1].sent and len(queue) < self._most)

    def add(self, entry: InFlightRequest) -> None:
        """Add a request that is sent now, as its connection's newest."""
        self._queues.setdefault(entry.broker.address, deque()).append(entry)
        self._total += 1

    def oldest(self, address: Address) -> InFlightRequest | None:
        """Return the request whose answer comes next."""
        queue = self._queues.get(address)
        return queue[0] if queue else None

    def mark_sent(self, address: Address) -> InFlightRequest | None:
        """Mark the first unwritten request as written, and return it."""
        for entry in self._queues.get(address, ()):
            if not entry.sent:
                entry.sent = True
                return entry
        return None

    def complete_oldest(self, address: Address) -> InFlightRequest:
        """Remove and return the request whose answer came."""
        queue = self._queues[address]
        entry = queue.popleft()
        self._total -= 1
        if not queue:
            del self._queues[address]
        return entry

    def complete(self, entry: InFlightRequest) -> None:
        """Remove a request that expects no answer, once it is written."""
        self._queues[entry.broker.address].remove(entry)
        self._total -= 1

    def postpone(self, address: Address, seconds: float) -> None:
        """Move the deadlines of a connection's requests by so many seconds."""
        # The broker does not read from a connection that it throttles: that time is not the requests' fault.
        for entry in self._queues.get(address, ()):
            entry.deadline_s += seconds

    def clear(self, address: Address) -> list[InFlightRequest]:
        """Remove and return the requests of a lost connection, oldest first."""
        queue = self._queues.pop(address, None)
        if queue is None:
            return []
        self._total -= len(queue)
        return list(queue)

    def expired(self, now_s: float) -> list[Address]:
        """Return the connections with a request that has waited too long."""
        return [address for address, queue in self._queues.items() if any(now_s >= row.deadline_s for row in queue)]

    def first_expired(self, address: Address, now_s: float) -> InFlightRequest:
        """Return the request that made :meth:`expired` name this connection."""
        return next(row for row in self._queues[address] if now_s >= row.deadline_s)

    def next_deadline(self) -> float:
        """Return the time of the earliest time-out, infinity when nothing waits."""
        return min((row.deadline_s for queue in self._queues.values() for row in queue), default=float("inf"))


# -- metadata


@dataclass(slots=True, eq=False)
class MetadataUpdater:
    """Decides in each poll whether to connect, to ask or to wait.

    At most one request is in flight.
    """

    _client: NetworkClient
    _metadata: Metadata
    _bootstrap: tuple[Broker, ...]
    _uniform: Callable[[], float]
    _rebootstrap_after_s: float
    _wanted_since: float | None = None
    """Since when no metadata came though it was wanted; None: it is fresh."""
    _from_the_start: bool = False
    """Whether the bootstrap addresses are asked again in place of the known brokers."""
    _asked: Broker | None = None
    _faulty: dict[str | None, int] = field(default_factory=dict)

    def is_due(self, now_s: float) -> bool:
        """Return whether an update is wanted now and none is under way."""
        return self._asked is None and self._metadata.time_to_next_update(now_s) <= 0

    def candidates(self) -> tuple[Broker, ...]:
        """Return the known brokers; before the first metadata the bootstrap addresses."""
        if self._from_the_start:
            return self._bootstrap
        return tuple(self._metadata.cluster.brokers.values()) or self._bootstrap

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until :meth:`maybe_update` must act without an event."""
        if self._asked is not None:
            return float("inf")
        wait = self._metadata.time_to_next_update(now_s)
        if wait > 0:
            return wait
        return self.wait_for_any_s(now_s)

    def wait_for_any_s(self, now_s: float) -> float:
        """Return the seconds until a broker can be asked; infinity: after an event."""
        brokers = self.reachable()
        if any(self._is_connecting(broker) for broker in brokers):
            return float("inf")
        return min((self._client.wait_s(broker, now_s) for broker in brokers), default=float("inf"))

    def maybe_update(self, now_s: float) -> None:
        """Ask for metadata, begin the connection for it, or wait."""
        if not self.is_due(now_s):
            return
        self._rebootstrap_in_time(now_s)
        broker = self.least_loaded(now_s)
        if broker is None:
            return
        if self._client.can_send(broker, now_s):
            ask = self._metadata.next_request()
            self._asked = broker
            future: RequestFuture[MetadataResponse] = RequestFuture()
            number = self._client.send(ask.request, broker, future)
            future.add_listener(lambda done: self._answered(ask, broker, number, done))
        elif any(self._is_connecting(other) for other in self.reachable()):
            return  # no second connection while one is being made: it will do for this update
        elif self._client.states.can_connect(broker.address, now_s):
            self._client.connect(broker, now_s)

    def _rebootstrap_in_time(self, now_s: float) -> None:
        # KIP-1102: known brokers that gave no metadata for so long may belong to another cluster by now.
        if self._wanted_since is None:
            self._wanted_since = now_s
        elif not self._from_the_start and now_s - self._wanted_since >= self._rebootstrap_after_s:
            servers = ", ".join(map(str, self._bootstrap))
            _log.warning(
                "no known broker gave metadata for %.0f s: beginning again with %s", now_s - self._wanted_since, servers
            )
            self._from_the_start = True

    def least_loaded(self, now_s: float) -> Broker | None:
        """Return the broker to ask when any will do, or None."""
        states, in_flight = self._client.states, self._client.in_flight
        found = least_loaded_node(self.candidates(), states, in_flight, now_s, self._uniform)
        if found is None:
            found = least_loaded_node(self.reachable(), states, in_flight, now_s, self._uniform)
        return found

    def reachable(self) -> tuple[Broker, ...]:
        """Return the candidates, and if none is connected the bootstrap addresses too."""
        candidates = self.candidates()
        states = self._client.states
        if any(states.get(row.address).state is not ConnectionState.DISCONNECTED for row in candidates):
            return candidates
        return tuple({row.address: row for row in (*self._bootstrap, *candidates)}.values())

    def _is_connecting(self, broker: Broker) -> bool:
        return self._client.states.get(broker.address).state in BEING_MADE

    def _answered(self, ask: MetadataAsk, broker: Broker, number: int, future: RequestFuture[MetadataResponse]) -> None:
        self._asked = None
        now = self._client.now_s()
        if future.exception is not None:
            _log.debug("metadata request %d failed: %s", number, future.exception.message)
            self._client.counts.failed_metadata_updates += 1
            self._metadata.failed_update(now)
            return
        faulty = {row.name: row.error_code for row in future.value.topics if row.error_code}
        # Logged once for each change, not for each try; and for debugging only: the caller that waits for the topic
        # tells its user.
        if faulty and faulty != self._faulty:
            _log.debug("metadata answer %d from %s has errors: %s", number, broker, faulty)
        self._faulty = faulty
        if self._metadata.update(ask, future.value, now):
            self._client.counts.metadata_updates += 1
            self._wanted_since, self._from_the_start = None, False
            self._client.forget_unused(now)
        else:
            self._client.counts.failed_metadata_updates += 1
            _log.warning("metadata answer %d from %s names no brokers; what was known is kept", number, broker)


def least_loaded_node(
    brokers: Iterable[Broker],
    states: ConnectionStates,
    in_flight: InFlightRequests,
    now_s: float,
    uniform: Callable[[], float],
) -> Broker | None:
    """Return the least loaded broker by Java's rule, from a random start.

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
