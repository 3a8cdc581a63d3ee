"""Requests that wait for their answers, by connection and in order. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import Address, Broker
from streamlet.kafka.protocol.api import Request


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
