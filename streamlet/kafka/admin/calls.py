"""One call of an administrator: whom to ask for which item, again and again until all is said or the time is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from streamlet.base.backoff import Backoff
from streamlet.base.clock import Clock
from streamlet.kafka.admin.errors import Answers, NoController, item_error
from streamlet.kafka.admin.rounds import Rounds
from streamlet.kafka.admin.topics import metadata_request, read_descriptions
from streamlet.kafka.broker_errors import UnknownTopicOrPartition
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.group_requests import find_coordinator
from streamlet.kafka.errors import ClientTimeout, KafkaError, NoLeader
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.protocol.api import Request

K = TypeVar("K")
V = TypeVar("V")

AtOnce = (UnknownTopicOrPartition,)
"""Errors that time may mend and that are told at once nevertheless."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a call must end."""

    clock: Clock
    timeout_s: float
    at_s: float

    @classmethod
    def after(cls, timeout_s: float, clock: Clock) -> Deadline:
        """In so many seconds from now."""
        return cls(clock, timeout_s, clock.monotonic() + timeout_s)

    def left_s(self) -> float:
        """Seconds, 0 when it is over."""
        return max(self.at_s - self.clock.monotonic(), 0.0)


@dataclass(frozen=True, slots=True)
class Ask(Generic[K, V]):
    """A request, and how its answer is read."""

    request: Request[Any]
    read: Callable[[Any], Answers[K, V]]


Make = Callable[[Sequence[K], Broker | None], Ask[K, V]]
"""The request for some items that one broker is asked for; None: any broker."""


@dataclass(slots=True)
class Found(Generic[K]):
    """Where each item is to be asked for: a broker, or None for any; else why not, for good or for now."""

    targets: dict[K, Broker | None] = field(default_factory=dict)
    refused: dict[K, KafkaError] = field(default_factory=dict)
    later: dict[K, KafkaError] = field(default_factory=dict)


class Route(Protocol[K]):
    """Finds the brokers of items, anew in each round."""

    def find(self, items: Sequence[K], deadline: Deadline) -> Found[K]:
        """May ask brokers for it, within the time that is left. Raises KafkaError."""


class Calls:
    """Runs calls over one client. One thread."""

    def __init__(
        self, client: KafkaClient, retry: Backoff, uniform: Callable[[], float], request_timeout_s: float
    ) -> None:
        self._client = client
        self._retry = retry
        self._uniform = uniform
        self._request_timeout_s = request_timeout_s

    def broker_timeout_ms(self, deadline: Deadline) -> int:
        """How long a broker may work on a request: it is to answer before we stop to listen."""
        return max(int(min(deadline.left_s(), self._request_timeout_s) * 900), 1)

    def run(
        self,
        items: Iterable[K],
        route: Route[K],
        make: Make[K, V],
        deadline: Deadline,
        final: tuple[type[KafkaError], ...] = AtOnce,
    ) -> Answers[K, V]:
        """Ask for all items; what is retriable is asked again until the deadline."""
        rounds: Rounds[K, V] = Rounds(items, final)
        tries = 0
        while rounds.pending:
            tries += 1
            rounds.begin()
            self._round(rounds, route, make, deadline)
            if not rounds.pending:
                break
            resume = self._retry.delay(tries, self._uniform)
            if resume >= deadline.left_s():
                rounds.give_up(deadline.timeout_s, tries, self._client.connections())
                break
            self._back_off(resume, rounds.stale, deadline)
        return rounds.answers

    def _round(self, rounds: Rounds[K, V], route: Route[K], make: Make[K, V], deadline: Deadline) -> None:
        try:
            found = route.find(rounds.pending, deadline)
        except KafkaError as err:
            rounds.fail(rounds.pending, err)
            return
        for item, error in found.refused.items():
            rounds.refuse(item, error)
        for item, error in found.later.items():
            rounds.fail((item,), error)
        shares: dict[Broker | None, list[K]] = {}
        for item, broker in found.targets.items():
            shares.setdefault(broker, []).append(item)
        sent: list[tuple[list[K], Ask[K, V], RequestFuture[Any]]] = []
        for broker, share in shares.items():
            ask = make(share, broker)
            sent.append((share, ask, self._client.send(ask.request, broker)))
        for share, ask, future in sent:
            try:
                told = ask.read(self._client.wait(future, deadline.left_s()))
            except KafkaError as err:
                rounds.fail(share, err)
            else:
                rounds.take(share, told)

    def _back_off(self, seconds: float, stale: bool, deadline: Deadline) -> None:
        version = self._client.metadata.request_update(reset_equivalent=False) if stale else -1
        pause = Deadline.after(seconds, deadline.clock)
        while pause.left_s() > 0:
            self._client.poll(pause.left_s())
        while stale and self._client.metadata.update_version == version and deadline.left_s() > 0:
            self._client.poll(deadline.left_s())


# -- routes


class Anywhere:
    """Any broker will do."""

    def find(self, items: Sequence[K], deadline: Deadline) -> Found[K]:
        return Found(dict.fromkeys(items))


@dataclass(frozen=True, slots=True)
class ToController:
    """The controller; on KRaft the broker that metadata names, which passes it on."""

    client: KafkaClient

    def find(self, items: Sequence[K], deadline: Deadline) -> Found[K]:
        broker = self.client.cluster.brokers.get(self.client.cluster.controller_id)
        if broker is None:
            gone = NoController("No broker is the cluster's controller at the moment: an election is under way.")
            return Found(later=dict.fromkeys(items, gone))
        return Found(dict.fromkeys(items, broker))


@dataclass(frozen=True, slots=True)
class ToBrokers(Generic[K]):
    """The broker with the id that ``node_id`` gives; any when it gives None."""

    client: KafkaClient
    node_id: Callable[[K], int | None]
    lost: str = ""

    def find(self, items: Sequence[K], deadline: Deadline) -> Found[K]:
        found: Found[K] = Found()
        brokers = self.client.cluster.brokers
        for item in items:
            wanted = self.node_id(item)
            if wanted is None or wanted in brokers:
                found.targets[item] = None if wanted is None else brokers[wanted]
                continue
            there = ", ".join(map(str, sorted(brokers)))
            found.refused[item] = KafkaError(
                f"Broker {wanted} is not in the cluster: there are {there}. {self.lost}".strip()
            )
        return found


@dataclass(frozen=True, slots=True)
class ToLeaders:
    """The leader of each partition, as one broker sees it now."""

    client: KafkaClient
    doing: str

    def find(self, items: Sequence[TopicPartition], deadline: Deadline) -> Found[TopicPartition]:
        request = metadata_request(dict.fromkeys(tp.topic for tp in items))
        response = self.client.wait(self.client.send(request), deadline.left_s())
        brokers = {row.node_id: Broker(row.node_id, row.host, row.port, row.rack) for row in response.brokers}
        known = read_descriptions(response)
        faults = {row.name: row.error_code for row in response.topics if row.error_code}
        found: Found[TopicPartition] = Found()
        for tp in items:
            fault = item_error(faults.get(tp.topic, 0), f"{self.doing} {tp}", None, "DESCRIBE on the topic")
            topic = known.results.get(tp.topic)
            if fault is not None:
                where = found.later if fault.retriable and not isinstance(fault, AtOnce) else found.refused
                where[tp] = fault
            elif topic is None or not 0 <= tp.partition < len(topic.partitions):
                count = 0 if topic is None else len(topic.partitions)
                found.refused[tp] = UnknownTopicOrPartition(
                    f"{self.doing} {tp}", f"The topic has {count} partitions, numbered from 0."
                )
            elif (leader := topic.partitions[tp.partition].leader) in brokers:
                found.targets[tp] = brokers[leader]
            else:
                found.later[tp] = NoLeader(f"{self.doing} {tp}: the partition has no leader at the moment.")
        return found


@dataclass(frozen=True, slots=True)
class ToCoordinators(Generic[K]):
    """The coordinator of each item's group."""

    client: KafkaClient
    group_id: Callable[[K], str]

    def find(self, items: Sequence[K], deadline: Deadline) -> Found[K]:
        groups = dict.fromkeys(self.group_id(item) for item in items)
        searches = {group: find_coordinator(self.client, group) for group in groups}
        found: Found[K] = Found()
        errors: dict[str, KafkaError] = {}
        brokers: dict[str, Broker] = {}
        for group, search in searches.items():
            try:
                brokers[group] = self.client.wait(search, deadline.left_s())
            except ClientTimeout as err:
                raise err from None
            except KafkaError as err:
                errors[group] = err
        for item in items:
            error = errors.get(self.group_id(item))
            if error is None:
                found.targets[item] = brokers[self.group_id(item)]
            elif error.retriable:
                found.later[item] = error
            else:
                found.refused[item] = error
        return found
