"""Requests that wait for a connection, by broker and in order (Java: ``UnsentRequests``). Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from streamlet.kafka.errors import KafkaError
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import Address, Broker
from streamlet.kafka.protocol.api import Request


@dataclass(slots=True)
class Unsent:
    """One of them. ``timeout_s`` is the caller's own, None for the client's."""

    request: Request[Any]
    future: RequestFuture[Any]
    deadline_s: float
    timeout_s: float | None
    tried: bool = False
    """Whether a connection was looked for since it was queued: an error from before then is not this request's."""


class UnsentRequests:
    """A queue for each broker, and one of requests that any broker may answer. One thread."""

    def __init__(self) -> None:
        self._queues: dict[Address, tuple[Broker, deque[Unsent]]] = {}
        self.anywhere: deque[Unsent] = deque()

    def __len__(self) -> int:
        return len(self.anywhere) + sum(len(queue) for _broker, queue in self._queues.values())

    def put(self, entry: Unsent, broker: Broker | None) -> None:
        """Behind what waits for this broker (None: for any)."""
        if broker is None:
            self.anywhere.append(entry)
        else:
            self._queues.setdefault(broker.address, (broker, deque()))[1].append(entry)

    def count(self, address: Address) -> int:
        """How many wait for this broker by name."""
        row = self._queues.get(address)
        return len(row[1]) if row else 0

    def heads(self) -> Iterator[tuple[Broker, Unsent]]:
        """Every broker that something waits for, with the first that does."""
        for broker, queue in self._queues.values():
            yield broker, queue[0]

    def hand_over(self, ready: Callable[[Broker], bool], send: Callable[[Unsent, Broker], None]) -> None:
        """Give ``send`` what waits for a named broker, in order and as long as that broker is ``ready``."""
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
        """What can no longer be sent, taken out: with the error of its broker, or None where its time is up."""
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
        # Not only the first: each brings a time-out of its own.
        late = [entry for entry in self.anywhere if now_s >= entry.deadline_s]
        for entry in late:
            self.anywhere.remove(entry)
        return taken + [(entry, None, None) for entry in late]

    def next_deadline(self) -> float:
        """The earliest time-out, as a time; infinity when nothing waits."""
        named = (row.deadline_s for _broker, queue in self._queues.values() for row in queue)
        first = min(named, default=float("inf"))
        return min([first, *(row.deadline_s for row in self.anywhere)])

    def take_all(self) -> list[Unsent]:
        """Everything, taken out."""
        found = [entry for _broker, queue in self._queues.values() for entry in queue] + list(self.anywhere)
        self._queues.clear()
        self.anywhere.clear()
        return found
