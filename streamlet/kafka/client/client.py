"""The client that the spout uses: metadata, and typed requests to the broker of one's choice.

Driven by its caller: nothing moves but in :meth:`KafkaClient.poll` (and in what calls it: ``wait``,
``bootstrap``, ``wait_on_metadata``). An event loop that has other things to watch sleeps on
:meth:`KafkaClient.fileno` for at most :meth:`KafkaClient.next_wake_s`, then polls with 0. Java's
counterpart is ``ConsumerNetworkClient``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TypeVar

from streamlet.base.backoff import Backoff
from streamlet.base.clock import Clock, SystemClock
from streamlet.kafka.client import diagnosis
from streamlet.kafka.client.unsent import Unsent, UnsentRequests
from streamlet.kafka.errors import (
    ClientClosed,
    ClientTimeout,
    KafkaError,
    RequestTimedOut,
    copy_of,
)
from streamlet.kafka.future import RequestFuture, failed_future
from streamlet.kafka.metadata.cluster import Broker, Cluster
from streamlet.kafka.metadata.metadata import Metadata
from streamlet.kafka.net.in_flight import ClientResponse, Counts
from streamlet.kafka.net.network_client import NetworkClient
from streamlet.kafka.net.network_settings import conversations, network_settings
from streamlet.kafka.net.tls import dial_for
from streamlet.kafka.net.transport import resolve_all
from streamlet.kafka.protocol.api import Request
from streamlet.kafka.settings.client_config import ClientConfig

T = TypeVar("T")

_POLL_FOREVER = 3600.0
_SOON_S = 0.001


class KafkaClient:
    """One client of one cluster, with one connection to each broker it talks to.

    Not thread-safe: one thread calls everything but :meth:`wakeup`, and listeners run in it. Making one does no
    I/O. ``uniform`` gives [0, 1) and decides jitter and which of several equal brokers is asked.

    ``topic_idle_s``: a topic that was not named for so long is asked about no longer (a producer's
    ``metadata_max_idle_ms``); None: topics never expire. ``allow_auto_topic_creation``: asking about a topic that is
    not there lets the broker create it, where the broker does that. Not usable in a forked child: ClientClosed.
    """

    def __init__(
        self,
        config: ClientConfig,
        clock: Clock | None = None,
        uniform: Callable[[], float] = random.random,
        *,
        topic_idle_s: float | None = None,
        allow_auto_topic_creation: bool = False,
    ) -> None:
        self.config = config
        self.pid = os.getpid()  # of the process it was made in, and is for
        self._clock = clock or SystemClock()
        self._uniform = uniform
        self._request_timeout_s = config.request_timeout_ms / 1000
        self._retry = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self.metadata = Metadata(
            self._retry,
            config.metadata_max_age_ms / 1000 if config.metadata_max_age_ms >= 0 else float("inf"),
            uniform,
            allow_auto_topic_creation,
            topic_idle_s,
        )
        # Shuffled, so that a crowd of clients does not begin with the same broker (P3).
        self._bootstrap = tuple(sorted(config.brokers(), key=lambda _broker: uniform()))
        self._network = NetworkClient(
            network_settings(config),
            self.metadata,
            self._bootstrap,
            dial_for(config, config.send_buffer_bytes, config.receive_buffer_bytes),
            resolve_all,
            self._clock,
            uniform,
            conversations(config),
        )
        self._unsent = UnsentRequests()
        self.closed = False

    def __enter__(self) -> KafkaClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.connected_brokers())} connected"
        servers = ",".join(str(broker) for broker in self._bootstrap)
        waiting = len(self._network.in_flight)
        return f"<KafkaClient {self.config.client_id!r} of {servers}: {state}, {waiting} in flight>"

    # -- the cluster

    @property
    def cluster(self) -> Cluster:
        """The cluster as last seen; immutable, replaced by each update."""
        return self.metadata.cluster

    def add_topic(self, topic: str) -> None:
        """Keep metadata of this topic, asked for in the next polls; with ``topic_idle_s``, until it is idle."""
        self.metadata.add_topic(topic, self._clock.monotonic())

    def request_update(self) -> int:
        """Ask for fresh metadata in the next polls; returns the version it will be greater than."""
        return self.metadata.request_update()

    @property
    def counts(self) -> Counts:
        """Requests, connections and metadata updates since the client was made, and how many failed (P11)."""
        return replace(self._network.counts)

    # -- requests

    def send(
        self, request: Request[T], to: Broker | int | None = None, timeout_s: float | None = None
    ) -> RequestFuture[T]:
        """Queue a request; it goes out in a poll. Every future is resolved, at the latest by its time-out.

        ``to`` is a broker (one never seen in metadata too), the id of a known one, or None for the least
        loaded. ``timeout_s`` (default: ``request_timeout_ms``) bounds the wait for a connection and,
        separately, for the answer. Fails with Disconnected, RequestTimedOut, UnsupportedVersion,
        ForeignProtocol, MalformedFrame or ClientClosed; error codes inside of a response are the caller's
        to read.
        """
        if self.closed:
            return failed_future(ClientClosed("The client is closed."))
        future: RequestFuture[T] = RequestFuture()
        limit = self._request_timeout_s if timeout_s is None else timeout_s
        if isinstance(to, int):
            known = self.cluster.brokers.get(to)
            if known is None:
                ids = sorted(self.cluster.brokers) or "none yet"
                return failed_future(KafkaError(f"Broker id {to} is not in the cluster's metadata (known: {ids})."))
            to = known
        self._unsent.put(Unsent(request, future, self._clock.monotonic() + limit, timeout_s), to)
        return future

    def pending(self, broker: Broker) -> int:
        """Requests queued for or in flight to this broker."""
        return self._network.in_flight.count(broker.address) + self._unsent.count(broker.address)

    def disconnect(self, broker: Broker) -> None:
        """Close the connection to a broker; its requests fail with Disconnected in the next poll."""
        self._network.disconnect(broker)

    def readiness_s(self, broker: Broker) -> float:
        """0.0: a request to this broker would go out now. Else the seconds after which to look again.

        Infinity: an event must come first, which ends a poll. Begins a connection where there is none.
        """
        now = self._clock.monotonic()
        if self._network.ready(broker, now):
            return 0.0
        # 0: nothing but a metadata update holds it up, which goes first, in the next poll.
        return self._network.wait_s(broker, now) or _SOON_S

    def hopeless(self) -> KafkaError | None:
        """Why waiting for the cluster would not help, None while it may: who waits in a loop of its own asks this.

        AuthenticationFailed when every broker in reach refuses us; before the first metadata also what
        :meth:`bootstrap` raises at once. It ends when a broker lets us in: the client goes on trying.
        """
        brokers, started = self._network.updater.reachable(), self.metadata.update_version > 0
        return diagnosis.hopeless(brokers, self._network.states, started=started)

    def connections(self) -> str:
        """How each connection stands, for messages. Any thread."""
        return diagnosis.connections(self._network.states)

    def connected_brokers(self) -> tuple[Broker, ...]:
        """Those with a usable connection."""
        return self._network.connected()

    # -- driving

    def wakeup(self) -> None:
        """Any thread: the running :meth:`poll`, or else the next one, returns at once (after its work)."""
        self._network.wakeup()

    def fileno(self) -> int:
        """Readable whenever a poll would find something on a connection."""
        return self._network.fileno()

    def next_wake_s(self) -> float:
        """Seconds until a poll has something to do though :meth:`fileno` stays silent; 0 for at once."""
        now = self._clock.monotonic()
        wait = self._network.next_wake_s(now)
        for broker, head in self._unsent.heads():
            wait = min(wait, self._unsent_wait(broker, head, now))
        for entry in self._unsent.anywhere:
            wait = min(wait, entry.deadline_s - now, self._network.updater.wait_for_any_s(now))
        return max(wait, 0.0)

    def poll(self, timeout_s: float = 0.0) -> None:
        """Send what is queued, wait at most ``timeout_s`` for something to happen, and run listeners."""
        if self.closed:
            raise ClientClosed("The client is closed.")
        if os.getpid() != self.pid:
            # Two processes on one connection would read each other's answers.
            raise ClientClosed(
                f"This client was made in process {self.pid}, and process {os.getpid()} is a fork of it: make a "
                "client of its own in each process, after the fork."
            )
        now = self._clock.monotonic()
        self._try_send(now)
        self._network.poll(min(timeout_s, self._longest_wait(now)))
        if self._network.closed:  # a listener may have closed us
            return
        now = self._clock.monotonic()
        self._fail_unreachable(now)
        self._try_send(now)

    def send_queued(self) -> None:
        """Send what can be sent now, and read nothing: an answer that is there stays on :meth:`fileno`.

        For an event loop that sleeps right afterwards. A poll would take answers off the descriptor behind the back of
        those who wait for it to become readable.
        """
        if not self.closed:
            self._try_send(self._clock.monotonic())

    def wait(self, future: RequestFuture[T], timeout_s: float) -> T:
        """Poll until the future is resolved, and return its value.

        Raises its error, or ClientTimeout after ``timeout_s``.
        """
        deadline = self._clock.monotonic() + timeout_s
        while not future.done:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise ClientTimeout(
                    f"No answer within {timeout_s:.3g} s. {diagnosis.connections(self._network.states)}"
                )
            self.poll(left)
        return future.value

    def wait_retrying(self, make: Callable[[], RequestFuture[T]], timeout_s: float) -> T:
        """Wait for ``make()``; after a retriable error back off and make another.

        Backs off ``retry_backoff_ms`` to ``retry_backoff_max_ms``, and asks for metadata when the error says
        so. Raises the last error when the time is up.
        """
        deadline = self._clock.monotonic() + timeout_s
        attempt = 0
        while True:
            try:
                return self.wait(make(), max(deadline - self._clock.monotonic(), 0.0))
            except KafkaError as err:
                attempt += 1
                resume = self._clock.monotonic() + self._retry.delay(attempt, self._uniform)
                if isinstance(err, ClientTimeout) or not err.retriable or resume >= deadline:
                    raise
                if err.stale_metadata:
                    self.metadata.request_update(reset_equivalent=False)
            while self._clock.monotonic() < resume:
                self.poll(resume - self._clock.monotonic())

    def bootstrap(self, timeout_s: float) -> Cluster:
        """Wait for the first metadata. Raises BootstrapFailed, ForeignProtocol or UnsupportedVersion.

        Addresses that cannot be reached are tried until the time is up; when every address answers in another
        protocol or is too old, waiting would not help, and it raises at once.
        """
        deadline = self._clock.monotonic() + timeout_s
        while self.metadata.update_version == 0:
            self._raise_if_hopeless()
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise diagnosis.bootstrap_failed(self._bootstrap, self._network.states, timeout_s)
            self.poll(left)
        return self.cluster

    def wait_on_metadata(self, topic: str, timeout_s: float, partition: int | None = None) -> float:
        """Wait until the topic's partitions are known (M2); the seconds that took, 0.0 when they were known.

        With ``partition``, until that one exists. Raises ClientTimeout (it names what is missing),
        TopicAuthorizationFailed or another error of the topic that time does not mend; ValueError for a
        negative wait.
        """
        if timeout_s < 0:
            raise ValueError(f"a wait of {timeout_s} s: it cannot be negative")
        is_new = self.metadata.add_topic(topic, self._clock.monotonic())
        start = self._clock.monotonic()
        if self.cluster.has(topic, partition):
            return 0.0
        version = self.metadata.update_version if is_new else self.metadata.request_update()
        while True:
            while self.metadata.update_version == version:
                self._raise_if_hopeless()
                left = start + timeout_s - self._clock.monotonic()
                if left <= 0:
                    report = diagnosis.connections(self._network.states)
                    raise diagnosis.metadata_timeout(self.cluster, topic, partition, timeout_s, report)
                self.poll(left)
            if self.cluster.has(topic, partition):
                return self._clock.monotonic() - start
            info = self.cluster.topics.get(topic)
            if info is not None and info.error is not None and not info.error.retriable:
                raise info.error(f"Topic {topic!r}")
            version = self.metadata.request_update(reset_equivalent=False)

    def close(self, timeout_s: float = 0.0) -> None:
        """Close every connection. Never hangs: sends what is queued for at most ``timeout_s``, then stops.

        What is still open fails with ClientClosed. May be called twice, and from a listener.
        """
        if self.closed:
            return
        deadline = self._clock.monotonic() + timeout_s
        while os.getpid() == self.pid and (len(self._network.in_flight) or len(self._unsent)):
            left = deadline - self._clock.monotonic()
            if left <= 0:
                break
            self.poll(left)
        self.closed = True
        self._network.close()
        gone = ClientClosed("The client was closed before the request was sent.")
        for entry in self._unsent.take_all():
            entry.future.fail(gone)

    # -- inside

    def _try_send(self, now: float) -> None:
        self._unsent.hand_over(lambda broker: self._network.ready(broker, now), self._hand_over)
        anywhere = self._unsent.anywhere
        while anywhere:
            found = self._network.updater.least_loaded(now)
            if found is None or not self._network.ready(found, now):
                break
            self._hand_over(anywhere.popleft(), found)

    def _hand_over(self, entry: Unsent, broker: Broker) -> None:
        future = entry.future

        def on_complete(response: ClientResponse) -> None:
            if response.error is not None:
                future.fail(response.error)
            else:
                future.complete(response.value)

        self._network.send(entry.request, broker, on_complete, entry.timeout_s)

    def _fail_unreachable(self, now: float) -> None:
        for entry, broker, error in self._unsent.take_failed(self._network.connection_failed, now):
            entry.future.fail(error or self._never_sent(entry, broker))

        if self._unsent.anywhere:
            hopeless = self.hopeless()
            while hopeless is not None and self._unsent.anywhere:
                self._unsent.anywhere.popleft().future.fail(hopeless)

    def _raise_if_hopeless(self) -> None:
        hopeless = self.hopeless()
        if hopeless is not None:
            raise copy_of(hopeless)

    def _never_sent(self, entry: Unsent, broker: Broker | None) -> KafkaError:
        limit = self._request_timeout_s if entry.timeout_s is None else entry.timeout_s
        return RequestTimedOut(
            f"{entry.request.api_key.name} could not be sent to {broker or 'any broker'} within {limit:.3g} s. "
            f"{diagnosis.connections(self._network.states)}"
        )

    def _unsent_wait(self, broker: Broker, head: Unsent, now: float) -> float:
        if self._network.is_ready(broker, now):
            return 0.0
        return min(self._network.wait_s(broker, now), head.deadline_s - now)

    def _longest_wait(self, now: float) -> float:
        wait = min(self._unsent.next_deadline() - now, _POLL_FOREVER)
        for broker, _head in self._unsent.heads():
            until = self._network.wait_s(broker, now)
            # 0: nothing but a metadata update, which goes first, holds this one up.
            if until > 0:
                wait = min(wait, until)
        if self._unsent.anywhere:
            until = self._network.updater.wait_for_any_s(now)
            if until > 0:
                wait = min(wait, until)
        return wait
