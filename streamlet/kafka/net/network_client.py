"""Connections, requests and their answers, in the order that Java's ``NetworkClient.poll`` keeps (M7).

One thread drives it, by :meth:`NetworkClient.poll`. Nothing happens between polls but that :meth:`send`
hands bytes to the kernel. Every request ends in exactly one :class:`ClientResponse`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

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
from streamlet.kafka.metadata.cluster import Address, Broker
from streamlet.kafka.metadata.metadata import Metadata
from streamlet.kafka.net.connection_states import ConnectionState, ConnectionStates, SocketAddress
from streamlet.kafka.net.failures import ClosedByUs, count_hang_up, explain, hung_up
from streamlet.kafka.net.in_flight import ClientResponse, Counts, InFlightRequest, InFlightRequests, OnComplete
from streamlet.kafka.net.introduction import Introductions
from streamlet.kafka.net.metadata_updater import MetadataUpdater
from streamlet.kafka.net.network_settings import NetworkSettings
from streamlet.kafka.net.selector import Ready, Selector
from streamlet.kafka.net.transport import Dial
from streamlet.kafka.protocol.api import (
    Request,
    choose_version,
    decode_response,
    encode_request,
    response_correlation_id,
)
from streamlet.kafka.protocol.messages.metadata import MetadataRequest
from streamlet.kafka.sasl import SaslClient

_log = logging.getLogger(__name__)


class NetworkClient:
    """Sends typed requests to brokers. Not thread-safe: one thread calls everything."""

    def __init__(
        self,
        settings: NetworkSettings,
        metadata: Metadata,
        bootstrap: tuple[Broker, ...],
        dial: Dial,
        resolve: Callable[[Address], list[SocketAddress]],
        clock: Clock,
        uniform: Callable[[], float],
        conversation: Callable[[], SaslClient] | None = None,
    ) -> None:
        self._settings = settings
        self._dial = dial
        self._resolve = resolve
        self._clock = clock
        self._selector = Selector(settings.max_frame_bytes)
        self.states = ConnectionStates(settings.reconnect, settings.setup_timeout, uniform)
        self.in_flight = InFlightRequests(settings.max_in_flight)
        self.metadata = metadata
        self.updater = MetadataUpdater(self, metadata, bootstrap, uniform, settings.rebootstrap_after_s)
        self._correlation_id = 0
        self._settled: list[_Response] = []
        """Requests that ended outside of a poll; told in the next one."""
        self._lost: dict[Address, KafkaError] = {}
        self._introductions = Introductions(self.states, settings.software, conversation)
        self._brokers: dict[Address, Broker] = {}
        self.closed = False
        self.polls = 0
        self.counts = Counts()

    # -- what callers ask and do between polls

    def now_s(self) -> float:
        """The client's clock."""
        return self._clock.monotonic()

    def fileno(self) -> int:
        """Readable when a poll would find something; see :meth:`next_wake_s` for what time alone brings."""
        return self._selector.fileno()

    def wakeup(self) -> None:
        """Any thread: the poll under way, else the next one, does not wait."""
        self._selector.wakeup()

    def next_wake_s(self, now_s: float) -> float:
        """Seconds until a poll has something to do without any event on the file descriptor."""
        if self._settled or self._lost or self._introductions.waiting() or self._selector.holds_bytes():
            return 0.0
        deadline = min(
            self.in_flight.next_deadline(), self.states.next_setup_deadline(), self.states.next_session_end()
        )
        return max(min(self.updater.wait_s(now_s), deadline - now_s), 0.0)

    def is_ready(self, broker: Broker, now_s: float) -> bool:
        """Whether a request may be sent now.

        False for every broker while a metadata update is due: it goes first.
        """
        return not self.updater.is_due(now_s) and self.can_send(broker, now_s)

    def can_send(self, broker: Broker, now_s: float) -> bool:
        """Connected, versions known, not throttled, and room for another request."""
        address = broker.address
        return (
            address not in self._lost and self.states.is_ready(address, now_s) and self.in_flight.can_send_more(address)
        )

    def wait_s(self, broker: Broker, now_s: float) -> float:
        """Seconds until time alone lets something be begun with this broker; infinity where an event must come."""
        if self.states.get(broker.address).state is ConnectionState.READY and not self.in_flight.can_send_more(
            broker.address
        ):
            return float("inf")
        return self.states.wait_s(broker.address, now_s)

    def ready(self, broker: Broker, now_s: float) -> bool:
        """Like :meth:`is_ready`, and begins a connection when there is none and one may be begun."""
        if self.is_ready(broker, now_s):
            return True
        if not self.closed and self.states.can_connect(broker.address, now_s):
            self.connect(broker, now_s)
        return False

    def connection_failed(self, broker: Broker) -> KafkaError | None:
        """Why there is no connection, when the last one failed or broke and no new one has been begun."""
        node = self.states.get(broker.address)
        if node.state is not ConnectionState.DISCONNECTED:
            return None
        error = node.last_error
        # Bytes that could not be read were no answer to a request that was never sent.
        return Disconnected(error.message) if type(error) is MalformedFrame else error

    def connected(self) -> tuple[Broker, ...]:
        """Brokers with a usable connection."""
        return tuple(
            broker
            for address, broker in self._brokers.items()
            if self.states.get(address).state is ConnectionState.READY
        )

    def connect(self, broker: Broker, now_s: float) -> None:
        """Begin a connection; how it went is seen in later polls."""
        address = broker.address
        self._brokers[address] = broker
        try:
            target = self.states.dial(address, now_s, self._resolve)
            self._selector.open(address, self._dial(target, address), now_s)
        except (OSError, UnicodeError) as err:
            # A host name that IDNA refuses is a UnicodeError. Told in the next poll like any other failure,
            # so that there is one place that handles it.
            self._lost[address] = Disconnected(getattr(err, "strerror", None) or str(err))

    def forget_unused(self, now_s: float) -> None:
        """Drop what is remembered of addresses that nobody has tried for long."""
        for address in self.states.forget_unused(now_s):
            self._brokers.pop(address, None)

    def send(
        self,
        request: Request[Any],
        broker: Broker,
        on_complete: OnComplete | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Send to a broker for which :meth:`is_ready` is true. ``on_complete`` runs in a later poll, once."""
        now = self._clock.monotonic()
        if not self.can_send(broker, now):
            raise RuntimeError(f"a request for {broker}, which is not ready")
        try:
            version = choose_version(request, self.states.get(broker.address).versions, str(broker))
        except UnsupportedVersion as err:
            if isinstance(request, MetadataRequest):  # without which nothing goes
                self.states.get(broker.address).last_error = err
            self._never_sent(request, broker, on_complete, err)
            return
        try:
            self._send(request, version, broker, on_complete, timeout_s)
        except CannotBeWritten as err:
            self._never_sent(request, broker, on_complete, err)

    def disconnect(self, broker: Broker) -> None:
        """Close the connection; what was in flight on it fails in the next poll. No back-off follows."""
        if broker.address in self._selector.addresses():
            self._selector.close(broker.address)
            self._lost[broker.address] = ClosedByUs("the client closed it")

    def close(self) -> None:
        """Close all sockets at once, whatever their state.

        What was in flight fails with ClientClosed. Never blocks.
        """
        if self.closed:
            return
        self.closed = True
        self._selector.close_all()
        gone = ClientClosed("The client was closed before an answer came; whether the broker acted is unknown.")
        responses = self._settled
        self._settled = []
        for address in list(self._brokers):
            for entry in self.in_flight.clear(address):
                responses.append(self._failed(entry, gone, self._clock.monotonic()))
        self._run_callbacks(responses)

    # -- poll

    def poll(self, timeout_s: float) -> None:
        """Do what is due, waiting at most ``timeout_s`` for something to happen; callbacks come last (M7)."""
        if self.closed:
            raise ClientClosed("The client is closed.")
        self.polls += 1
        now = self._clock.monotonic()
        responses, self._settled = self._settled, []
        self.updater.maybe_update(now)
        wait = 0.0 if responses else min(timeout_s, self.next_wake_s(now))
        ready = self._selector.poll(wait, now)
        now = self._clock.monotonic()
        self._completed_sends(ready, responses, now)
        self._completed_receives(ready, responses, now)
        self._disconnections(ready, responses, now)
        for address in ready.connected:
            if address in self._selector.addresses():
                self.states.connected(address)
                self.counts.connections_made += 1
                self._introductions.begin(address)
        self._introduce(now)
        self._expire(responses, now)
        self._run_callbacks(responses)

    def _completed_sends(self, ready: Ready, responses: _Responses, now: float) -> None:
        for address in ready.completed_sends:
            entry = self.in_flight.mark_sent(address)
            if entry is not None and not entry.request.expects_response():
                self.in_flight.complete(entry)
                responses.append(self._succeeded(entry, None, now))

    def _completed_receives(self, ready: Ready, responses: _Responses, now: float) -> None:
        for address, frame in ready.completed_receives:
            try:
                self._receive(address, frame, responses, now)
            except KafkaError as err:
                ready.disconnected.setdefault(address, err)
                self._selector.close(address)

    def _receive(self, address: Address, frame: bytearray, responses: _Responses, now: float) -> None:
        entry = self.in_flight.oldest(address)
        found = response_correlation_id(frame)
        if entry is None or found != entry.correlation_id:
            expected = "none" if entry is None else str(entry.correlation_id)
            kind = MalformedFrame if self.states.get(address).versions else ForeignProtocol
            raise kind(f"an answer with correlation id {found}, where {expected} was expected")
        if entry.introduces:
            self.in_flight.complete_oldest(address)
            self._introductions.answered(entry, frame, now)
            return
        value = decode_response(entry.request, entry.version, frame)
        self.in_flight.complete_oldest(address)
        node = self.states.get(address)
        node.answered, node.hang_ups = True, 0
        throttle_ms = getattr(value, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self.states.throttle(address, now + throttle_ms / 1000)
            self.in_flight.postpone(address, throttle_ms / 1000)
        responses.append(self._succeeded(entry, value, now))

    def _disconnections(self, ready: Ready, responses: _Responses, now: float) -> None:
        lost, self._lost = self._lost, {}
        for address, error in (lost | ready.disconnected).items():
            self._connection_lost(address, error, responses, now)

    def _connection_lost(self, address: Address, error: KafkaError, responses: _Responses, now: float) -> None:
        broker = self._brokers[address]
        node = self.states.get(address)
        wanted = isinstance(error, ClosedByUs)
        protocol = self._settings.security_protocol
        if hung_up(error, node, self.in_flight.count(address)):
            error = count_hang_up(broker, node, error, protocol, now)
        else:
            error = explain(broker, node, error, protocol)
        _log.debug("connection to %s lost while %s: %s", broker, node.state.value, error.message)
        self._introductions.lost(address)
        if wanted:
            self.states.closed(address)
        else:
            self.states.lost(address, now, error)
            # Any connection that breaks makes what we know of the cluster doubtful (M4).
            self.metadata.request_update(reset_equivalent=False)
            self.counts.connections_lost += 1
        told = error
        for entry in self.in_flight.clear(address):
            self.counts.failed_requests += not entry.introduces
            if not entry.introduces and isinstance(error, AuthenticationFailed):
                told = Disconnected(error.message)  # sent before we were refused: whether the broker acted is unknown
            responses.append(self._failed(entry, told, now))
            # One answer could not be read; those behind it were only on the same connection.
            if isinstance(told, MalformedFrame):
                told = Disconnected(error.message)

    def _introduce(self, now: float) -> None:
        for address, say in self._introductions.take(now).items():
            # No time-out of its own: the time for making the connection bounds it, without what stands before it.
            self._send(say.request, say.version, self._brokers[address], None, float("inf"), introduces=True)

    def _expire(self, responses: _Responses, now: float) -> None:
        for address in self.states.setup_expired(now):
            oldest = self.in_flight.oldest(address)
            if oldest is not None and not oldest.introduces:  # who we are is told again, behind what it still owes
                self.states.wait_longer(address, now)
                continue
            self._selector.close(address)
            doing = self.states.get(address).state
            reason = f"still {doing.value} when the time for that was up (socket_connection_setup_timeout_ms)"
            kind = Disconnected if doing is ConnectionState.CONNECTING else RequestTimedOut
            self._connection_lost(address, kind(reason), responses, now)
        for address in self.in_flight.expired(now):
            self._selector.close(address)
            late = self.in_flight.first_expired(address, now)
            reason = f"no answer to {late.request.api_key.name} within {late.timeout_s:.3g} s"
            self._connection_lost(address, RequestTimedOut(reason), responses, now)
        for address in self._selector.idle(now, self._settings.max_idle_s):
            if not self.in_flight.count(address):
                self._selector.close(address)
                self._connection_lost(address, ClosedByUs("it was idle for too long"), responses, now)

    def _run_callbacks(self, responses: _Responses) -> None:
        for done, (on_complete, response) in enumerate(responses, 1):
            if on_complete is None:
                continue
            try:
                on_complete(response)
            except Exception:  # noqa: BLE001 - foreign code: its fault must not cost the others their answers
                _log.exception(
                    "the callback of %s (correlation id %d, %s) raised",
                    response.request.api_key.name,
                    response.correlation_id,
                    response.broker,
                )
            except BaseException:  # Ctrl-C: those behind it are called in the next poll, or at close
                self._settled[:0] = responses[done:]
                raise

    # -- the ends of a request

    def _send(
        self,
        request: Request[Any],
        version: int,
        broker: Broker,
        on_complete: OnComplete | None,
        timeout_s: float | None,
        *,
        introduces: bool = False,
    ) -> None:
        now = self._clock.monotonic()
        limit = self._settings.request_timeout_s if timeout_s is None else timeout_s
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        try:
            frame = encode_request(request, version, self._correlation_id, self._settings.client_id)
        except Exception as err:  # whatever it holds: whoever waits for it hears that, and nobody else
            why = f"{request.api_key.name} cannot be sent to {broker}: the protocol has no room for it ({err})."
            raise CannotBeWritten(why) from err
        self.counts.requests += not introduces
        entry = InFlightRequest(
            broker, request, version, self._correlation_id, on_complete, now, now + limit, limit, introduces
        )
        self.in_flight.add(entry)
        entry.sent = self._selector.send(broker.address, frame)
        if entry.sent and not request.expects_response():
            self.in_flight.complete(entry)
            self._settled.append(self._succeeded(entry, None, now))

    def _never_sent(
        self, request: Request[Any], broker: Broker, on_complete: OnComplete | None, error: KafkaError
    ) -> None:
        self._settled.append((on_complete, ClientResponse(broker, request, -1, None, error, 0.0)))

    @staticmethod
    def _succeeded(entry: InFlightRequest, value: Any, now: float) -> _Response:
        response = ClientResponse(entry.broker, entry.request, entry.correlation_id, value, None, now - entry.created_s)
        return entry.on_complete, response

    @staticmethod
    def _failed(entry: InFlightRequest, error: KafkaError, now: float) -> _Response:
        response = ClientResponse(entry.broker, entry.request, entry.correlation_id, None, error, now - entry.created_s)
        return entry.on_complete, response


_Response = tuple[OnComplete | None, ClientResponse]
_Responses = list[_Response]
