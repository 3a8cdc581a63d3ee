"""One client of one cluster: metadata, and typed requests to any broker (Java: ``ConsumerNetworkClient``).

Driven by its caller: nothing moves but in :meth:`KafkaClient.poll` (and in the calls that use it: ``wait``,
``bootstrap``, ``wait_on_metadata``). An event loop that has other things to watch sleeps on
:meth:`KafkaClient.fileno` for at most :meth:`KafkaClient.next_wake_s`, then polls with 0.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from streamlet.base import chance
from streamlet.base.clock import Clock, SystemClock
from streamlet.kafka.client import diagnosis
from streamlet.kafka.errors import (
    ClientClosed,
    ClientTimeout,
    KafkaError,
    RequestTimedOut,
    copy_of,
)
from streamlet.kafka.future import RequestFuture, failed_future
from streamlet.kafka.metadata.cluster import Address, Broker, Cluster
from streamlet.kafka.metadata.metadata import Metadata
from streamlet.kafka.net.network_client import Counts, NetworkClient, RequestOutcome
from streamlet.kafka.net.selector import resolve_all
from streamlet.kafka.net.tls import dial_for
from streamlet.kafka.protocol.schema import Request
from streamlet.kafka.settings.client_config import ClientConfig

T = TypeVar("T")

_POLL_FOREVER = 3600.0
_SOON_S = 0.001
"""Seconds to the next try where only a metadata update has to go first."""


@dataclass(slots=True)
class Unsent:
    """A request that waits for a connection; ``timeout_s`` None: the client's."""

    request: Request[Any]
    future: RequestFuture[Any]
    deadline_s: float
    timeout_s: float | None
    tried: bool = False
    """Whether a poll has looked for a connection since the request was queued."""


class UnsentRequests:
    """Requests that wait: a queue for each broker, and one for any."""

    def __init__(self) -> None:
        self._queues: dict[Address, tuple[Broker, deque[Unsent]]] = {}
        self.anywhere: deque[Unsent] = deque()

    def __len__(self) -> int:
        return len(self.anywhere) + sum(len(queue) for _broker, queue in self._queues.values())

    def put(self, entry: Unsent, broker: Broker | None) -> None:
        """Queue a request for this broker (None: for any)."""
        if broker is None:
            self.anywhere.append(entry)
        else:
            self._queues.setdefault(broker.address, (broker, deque()))[1].append(entry)

    def count(self, address: Address) -> int:
        """Return how many requests wait for this broker."""
        row = self._queues.get(address)
        return len(row[1]) if row else 0

    def heads(self) -> Iterator[tuple[Broker, Unsent]]:
        """Yield every broker in demand, with its first request."""
        for broker, queue in self._queues.values():
            yield broker, queue[0]

    def hand_over(self, ready: Callable[[Broker], bool], send: Callable[[Unsent, Broker], None]) -> None:
        """Give ``send`` each broker's requests in order, while the broker is ``ready``."""
        for address, (broker, queue) in list(self._queues.items()):
            while queue and ready(broker):
                send(queue.popleft(), broker)
            for entry in queue:
                entry.tried = True
            if not queue:
                del self._queues[address]

    def take_failed(
        self, failure: Callable[[Broker], KafkaError | None], now_s: float
    ) -> list[tuple[Unsent, Broker | None, KafkaError | None]]:
        """Remove and return the requests that cannot be sent any more.

        Each comes with the error of its broker, or None where its time is up.
        """
        # A request that was queued in a listener does not fail with the error that its broker's connection had before:
        # the search for a group's coordinator ends in a listener, and a restarted coordinator would never be asked.
        taken: list[tuple[Unsent, Broker | None, KafkaError | None]] = []
        for address, (broker, queue) in list(self._queues.items()):
            error = failure(broker)
            kept: deque[Unsent] = deque()
            for entry in queue:
                if (error is not None and entry.tried) or now_s >= entry.deadline_s:
                    taken.append((entry, broker, error))
                else:
                    kept.append(entry)
            if kept:
                self._queues[address] = broker, kept
            else:
                del self._queues[address]
        # Not only the first: each has a time-out of its own.
        late = [entry for entry in self.anywhere if now_s >= entry.deadline_s]
        for entry in late:
            self.anywhere.remove(entry)
        return taken + [(entry, None, None) for entry in late]

    def next_deadline(self) -> float:
        """Return the time of the earliest time-out, infinity when nothing waits."""
        named = (row.deadline_s for _broker, queue in self._queues.values() for row in queue)
        first = min(named, default=float("inf"))
        return min([first, *(row.deadline_s for row in self.anywhere)])

    def take_all(self) -> list[Unsent]:
        """Remove and return all requests."""
        found = [entry for _broker, queue in self._queues.values() for entry in queue] + list(self.anywhere)
        self._queues.clear()
        self.anywhere.clear()
        return found


class KafkaClient:
    """A client with one connection to each broker that it talks to.

    Not thread-safe: one thread calls everything but :meth:`wakeup`, and listeners run in it. Making one does no
    I/O. ``uniform`` gives [0, 1) and decides jitter and which of several equal brokers is asked.

    ``topic_idle_s``: a topic that was not named for so long is forgotten (a producer's
    ``metadata_max_idle_ms``); None: topics never expire. ``allow_auto_topic_creation``: asking about a topic that is
    not there lets the broker create it, where the broker does that. Not usable in a forked child: ClientClosed.
    """

    # Long: one queue of requests from "unsent" to answer, time-out or closed client. Sockets are below
    # (`network_client`); why a cluster is out of reach is said in `diagnosis`.

    def __init__(
        self,
        config: ClientConfig,
        clock: Clock | None = None,
        uniform: Callable[[], float] = chance.uniform,
        *,
        topic_idle_s: float | None = None,
        allow_auto_topic_creation: bool = False,
    ) -> None:
        self.config = config
        self.pid = os.getpid()  # of the process it was made in, and is for
        self._clock = clock or SystemClock()
        self._uniform = uniform
        self._request_timeout_s = config.request_timeout_ms / 1000
        self._retry = config.retry_backoff
        self.metadata = Metadata(
            self._retry,
            config.metadata_max_age_ms / 1000 if config.metadata_max_age_ms >= 0 else float("inf"),
            uniform,
            allow_auto_topic_creation,
            topic_idle_s,
        )
        # Shuffled, so that a crowd of clients does not begin with the same broker.
        self._bootstrap = tuple(sorted(config.brokers(), key=lambda _broker: uniform()))
        self._network = NetworkClient(
            config,
            self.metadata,
            self._bootstrap,
            dial_for(config, config.send_buffer_bytes, config.receive_buffer_bytes),
            resolve_all,
            self._clock,
            uniform,
        )
        self._unsent = UnsentRequests()
        self.closed = False

    def __enter__(self) -> KafkaClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.connected_brokers())} connected"
        servers = ",".join(str(broker) for broker in self._bootstrap)
        waiting = len(self._network.in_flight)
        return f"<KafkaClient {self.config.client_id!r} of {servers}: {state}, {waiting} in flight>"

    # -- the cluster

    @property
    def cluster(self) -> Cluster:
        """The cluster as last seen: immutable, replaced by each update."""
        return self.metadata.cluster

    def add_topic(self, topic: str) -> None:
        """Keep metadata of this topic, from the next polls on.

        With ``topic_idle_s``, until the topic is idle.
        """
        self.metadata.add_topic(topic, self._clock.monotonic())

    def set_topics(self, topics: Iterable[str]) -> None:
        """Keep metadata of these topics, and of no others."""
        self.metadata.set_topics(topics, self._clock.monotonic())

    def request_update(self) -> int:
        """Ask for fresh metadata; return the version that will be exceeded."""
        return self.metadata.request_update()

    def feature_level(self, feature: str) -> int:
        """Return the finalized version of a feature, as last heard; 0 for none."""
        return self._network.states.features.level(feature)

    @property
    def counts(self) -> Counts:
        """A copy of the counts since the client was made."""
        return replace(self._network.counts)

    # -- requests

    def send(
        self, request: Request[T], to: Broker | int | None = None, timeout_s: float | None = None
    ) -> RequestFuture[T]:
        """Queue a request; it goes out in a poll.

        Every future is resolved, at the latest by its time-out.

        ``to`` is a broker (one never seen in metadata too), the id of a known one, or None for the least
        loaded. ``timeout_s`` (default: ``request_timeout_ms``) bounds the wait for a connection and,
        separately, for the answer. Fails with Disconnected, RequestTimedOut, UnsupportedVersion,
        ForeignProtocol, MalformedFrame or ClientClosed; error codes inside of a response are the caller's
        to read.
        """
        if self.closed:
            return failed_future(ClientClosed("The client is closed."))
        # Never sent from here: a listener that runs in the middle of a poll may call this, and order within a broker's
        # queue is kept by sending in one place.
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
        """Return how many requests this broker has, queued or in flight."""
        return self._network.in_flight.count(broker.address) + self._unsent.count(broker.address)

    def disconnect(self, broker: Broker) -> None:
        """Close the connection to a broker.

        Its requests fail with Disconnected in the next poll.
        """
        self._network.disconnect(broker)

    def readiness_s(self, broker: Broker) -> float:
        """Return 0.0 if a request would go out now, else the wait.

        In seconds; infinity: an event must come first, which ends a poll. Begins a connection where there is none.
        """
        now = self._clock.monotonic()
        if self._network.ready(broker, now):
            return 0.0
        # Where wait_s is 0, only a metadata update holds the request up; it goes first, in the next poll.
        return self._network.wait_s(broker, now) or _SOON_S

    def hopeless(self) -> KafkaError | None:
        """Return the error that waiting does not fix, None while it may.

        For callers that wait in a loop of their own. AuthenticationFailed when every broker in reach refuses us; before
        the first metadata also the errors that :meth:`bootstrap` raises at once. The client goes on trying: the error
        ends when a broker lets us in.
        """
        brokers, started = self._network.updater.reachable(), self.metadata.update_version > 0
        return diagnosis.hopeless(brokers, self._network.states, started=started)

    def connections(self) -> str:
        """Return a sentence with the state of each connection. Any thread."""
        return diagnosis.connections(self._network.states)

    def connected_brokers(self) -> tuple[Broker, ...]:
        """Return the brokers with a usable connection."""
        return self._network.connected()

    # -- driving

    def wakeup(self) -> None:
        """End the wait of this poll, or else of the next. Any thread."""
        self._network.wakeup()

    def fileno(self) -> int:
        """Return a descriptor that is readable when a poll has events."""
        return self._network.fileno()

    def next_wake_s(self) -> float:
        """Return the seconds until a poll must act without an event."""
        now = self._clock.monotonic()
        wait = self._network.next_wake_s(now)
        for broker, head in self._unsent.heads():
            wait = min(wait, self._unsent_wait(broker, head, now))
        for entry in self._unsent.anywhere:
            wait = min(wait, entry.deadline_s - now, self._network.updater.wait_for_any_s(now))
        return max(wait, 0.0)

    def refuse_forks(self) -> None:
        """Raise ClientClosed in a process that is a fork of its own."""
        # Two processes on one connection would read each other's answers.
        if os.getpid() != self.pid:
            raise ClientClosed(
                f"This client was made in process {self.pid}, and process {os.getpid()} is a fork of it: make a "
                "client of its own in each process, after the fork."
            )

    def poll(self, timeout_s: float = 0.0) -> None:
        """Send queued requests, wait at most ``timeout_s``, and run listeners."""
        if self.closed:
            raise ClientClosed("The client is closed.")
        self.refuse_forks()
        # Sent before and after the wait: what became ready in this poll must not wait for the next one, as its caller
        # may sleep on the descriptor in between.
        now = self._clock.monotonic()
        self._try_send(now)
        self._network.poll(min(timeout_s, self._longest_wait(now)))
        if self._network.closed:  # a listener may have closed us
            return
        now = self._clock.monotonic()
        self._fail_unreachable(now)
        self._try_send(now)

    def send_queued(self) -> None:
        """Send every request that can go now, and read nothing.

        For an event loop that sleeps on :meth:`fileno` right afterwards: a poll could take an answer off the descriptor
        whose event the loop is about to wait for.
        """
        if not self.closed:
            self._try_send(self._clock.monotonic())

    def wait(self, future: RequestFuture[T], timeout_s: float) -> T:
        """Return the value of a future, polling until it is resolved.

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
        """Return the value of ``make()``; repeat it after a retriable error.

        Backs off ``retry_backoff_ms`` to ``retry_backoff_max_ms``, and asks for metadata when the error says
        that it is stale. Raises the last error when the time is up.
        """
        deadline = self._clock.monotonic() + timeout_s
        attempt = 0
        while True:
            try:
                return self.wait(make(), max(deadline - self._clock.monotonic(), 0.0))
            except KafkaError as err:
                attempt += 1
                resume = self._clock.monotonic() + self._retry.delay(attempt, self._uniform)
                # A pause that would last until the deadline is not begun: the last error says more than a time-out.
                if isinstance(err, ClientTimeout) or not err.retriable or resume >= deadline:
                    raise
                if err.stale_metadata:
                    self.metadata.request_update(reset_equivalent=False)
            while self._clock.monotonic() < resume:
                self.poll(resume - self._clock.monotonic())

    def bootstrap(self, timeout_s: float, waited_s: float = 0.0, named_in: str = "bootstrap_servers") -> Cluster:
        """Wait for the first metadata.

        For the error: ``waited_s`` is how long the caller has waited already, ``named_in`` where the addresses stand.
        Raises BootstrapFailed, ForeignProtocol or UnsupportedVersion. Addresses that cannot be reached are tried until
        the time is up; when every address answers in another protocol or is too old, waiting would not help, and it
        raises at once.
        """
        deadline = self._clock.monotonic() + timeout_s
        while self.metadata.update_version == 0:
            self._raise_if_hopeless()
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise diagnosis.bootstrap_failed(self._bootstrap, self._network.states, waited_s + timeout_s, named_in)
            self.poll(left)
        return self.cluster

    def wait_on_metadata(self, topic: str, timeout_s: float, partition: int | None = None) -> float:
        """Wait until a topic's partitions are known; return the seconds it took.

        With ``partition``, until that one exists. Raises ClientTimeout (it names the missing one),
        TopicAuthorizationFailed or another error of the topic that time does not fix; ValueError for a
        negative wait.
        """
        if timeout_s < 0:
            raise ValueError(f"a wait of {timeout_s} s: it cannot be negative")
        is_new = self.metadata.add_topic(topic, self._clock.monotonic())
        start = self._clock.monotonic()
        if self.cluster.has(topic, partition):
            return 0.0
        # A new topic is asked for already, by itself; only for a known one another update must be requested.
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
        """Close every connection, after sending the queue for at most ``timeout_s``.

        Never hangs. Open requests fail with ClientClosed. May be called twice, and from a listener.
        """
        if self.closed:
            return
        deadline = self._clock.monotonic() + timeout_s
        # A forked child closes its copies of the sockets and waits for nothing: the answers are its parent's.
        while os.getpid() == self.pid and (len(self._network.in_flight) or len(self._unsent)):
            left = deadline - self._clock.monotonic()
            if left <= 0:
                break
            self.poll(left)
        # Closed before the futures fail: one of their listeners may send, and must be refused at once.
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
            # Chosen again for each request: the request before may have filled this broker's connection.
            found = self._network.updater.least_loaded(now)
            if found is None or not self._network.ready(found, now):
                break
            self._hand_over(anywhere.popleft(), found)

    def _hand_over(self, entry: Unsent, broker: Broker) -> None:
        self._network.send(entry.request, broker, entry.future, entry.timeout_s)

    def _fail_unreachable(self, now: float) -> None:
        failed: list[RequestOutcome] = [
            (entry.request, entry.future, None, error or self._never_sent(entry, broker))
            for entry, broker, error in self._unsent.take_failed(self._network.connection_failed, now)
        ]
        # Requests for a named broker fail with its own error above; those for any broker only when no broker is left.
        if self._unsent.anywhere and (hopeless := self.hopeless()) is not None:
            failed += [(entry.request, entry.future, None, hopeless) for entry in self._unsent.anywhere]
            self._unsent.anywhere.clear()
        self._network.resolve(failed)

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
            # Where it is 0, only a metadata update holds this one up; it goes first, and its answer is an event.
            if until > 0:
                wait = min(wait, until)
        if self._unsent.anywhere:
            until = self._network.updater.wait_for_any_s(now)
            if until > 0:
                wait = min(wait, until)
        return wait
