"""Requests that wait for their answers, by connection and in order (Java: ``InFlightRequests``). Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import Address, Broker
from streamlet.kafka.protocol.api import Request


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """How a request ended: ``value`` is the typed response, or ``error`` says why there is none."""

    broker: Broker
    request: Request[Any]
    correlation_id: int
    value: Any  # of the type the request names; typed again by the future that receives it
    error: KafkaError | None
    latency_s: float


@dataclass(slots=True)
class Counts:
    """What happened since the client was made: a rate is the difference of two looks at it (P11)."""

    requests: int = 0
    failed_requests: int = 0
    """Sent, and ended without an answer. An error code in an answer is the caller's to count."""
    connections_made: int = 0
    connections_lost: int = 0
    """Without those that we closed ourselves."""
    metadata_updates: int = 0
    failed_metadata_updates: int = 0


OnComplete = Callable[[ClientResponse], None]


@dataclass(slots=True)
class InFlightRequest:
    """A request on its way. ``sent`` turns true when its last byte is with the kernel.

    ``introduces``: it belongs to the connection's own introduction, and no caller waits for its answer.
    """

    broker: Broker
    request: Request[Any]
    version: int
    correlation_id: int
    on_complete: OnComplete | None
    created_s: float
    deadline_s: float
    timeout_s: float
    introduces: bool = False
    sent: bool = False


class InFlightRequests:
    """A queue for each address; answers come in its order. One thread."""

    def __init__(self, most_per_connection: int) -> None:
        self._most = most_per_connection
        self._queues: dict[Address, deque[InFlightRequest]] = {}
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def count(self, address: Address) -> int:
        """How many wait on this connection."""
        return len(self._queues.get(address, ()))

    def can_send_more(self, address: Address) -> bool:
        """Below the limit, and the newest is fully written.

        A slow socket must not gather bytes without end.
        """
        queue = self._queues.get(address)
        return not queue or (queue[-1].sent and len(queue) < self._most)

    def add(self, entry: InFlightRequest) -> None:
        """Sent now; the newest of its connection."""
        self._queues.setdefault(entry.broker.address, deque()).append(entry)
        self._total += 1

    def oldest(self, address: Address) -> InFlightRequest | None:
        """Whose answer comes next."""
        queue = self._queues.get(address)
        return queue[0] if queue else None

    def mark_sent(self, address: Address) -> InFlightRequest | None:
        """The first that was not fully written is now; returns it."""
        for entry in self._queues.get(address, ()):
            if not entry.sent:
                entry.sent = True
                return entry
        return None

    def complete_oldest(self, address: Address) -> InFlightRequest:
        """Its answer came."""
        queue = self._queues[address]
        entry = queue.popleft()
        self._total -= 1
        if not queue:
            del self._queues[address]
        return entry

    def complete(self, entry: InFlightRequest) -> None:
        """One that expects no answer was written."""
        self._queues[entry.broker.address].remove(entry)
        self._total -= 1

    def postpone(self, address: Address, seconds: float) -> None:
        """The broker does not read from this connection for so long: that time does not count."""
        for entry in self._queues.get(address, ()):
            entry.deadline_s += seconds

    def clear(self, address: Address) -> list[InFlightRequest]:
        """The connection is gone: all of its requests, oldest first."""
        queue = self._queues.pop(address, None)
        if queue is None:
            return []
        self._total -= len(queue)
        return list(queue)

    def expired(self, now_s: float) -> list[Address]:
        """Connections on which a request has waited too long."""
        return [address for address, queue in self._queues.items() if any(now_s >= row.deadline_s for row in queue)]

    def first_expired(self, address: Address, now_s: float) -> InFlightRequest:
        """The request that made :meth:`expired` name this connection."""
        return next(row for row in self._queues[address] if now_s >= row.deadline_s)

    def next_deadline(self) -> float:
        """The earliest time-out, as a time; infinity when nothing waits."""
        return min((row.deadline_s for queue in self._queues.values() for row in queue), default=float("inf"))
