"""One call of an administrator: the brokers to ask, and the items to try again.

A call has items (topics, partitions, groups ...), each with an outcome of its own. It goes through rounds: a
:class:`FindBrokers` finds the broker of each pending item, each broker gets one request for its share, and the answers
go into :class:`Rounds`, which keeps an item pending after an error that may pass. Between rounds the call backs off,
and refreshes the metadata where an error says that it is stale. The call ends when no item is pending, or at its
deadline. Nothing here touches a clock or a socket but through the client and the clock that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from streamlet.base.backoff import Backoff
from streamlet.base.clock import Clock
from streamlet.kafka.admin.errors import Answers, NoController, Unanswered
from streamlet.kafka.broker_errors import (
    BrokerRequestTimedOut,
    GroupIdNotFound,
    InvalidPartitions,
    NoReassignmentInProgress,
    NotController,
    ResourceNotFound,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.group_requests import find_coordinator
from streamlet.kafka.errors import BrokerError, ClientTimeout, Disconnected, KafkaError, with_sentence
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import Broker
from streamlet.kafka.protocol.schema import Request

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

AT_ONCE = (UnknownTopicOrPartition,)
"""Retriable errors that are raised without another try: a name is misspelt more often than its topic is new."""

_PERHAPS_OURS = (
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    GroupIdNotFound,
    InvalidPartitions,
    NoReassignmentInProgress,
    ResourceNotFound,
)
"""Answers to a second try after the first one, whose answer was lost, has done the work."""


class Rounds(Generic[K, V]):
    """The outcome of each item of a call.

    ``final``: errors that are not tried again though the broker calls them retriable.
    """

    def __init__(self, items: Iterable[K], final: tuple[type[KafkaError], ...] = ()) -> None:
        self._pending: dict[K, KafkaError | None] = dict.fromkeys(items)
        self._final = final
        self._unsure: set[K] = set()
        self.answers: Answers[K, V] = Answers()
        self.stale = False
        """Whether the metadata must be refreshed before the next round."""

    @property
    def pending(self) -> tuple[K, ...]:
        """The items without an outcome."""
        return tuple(self._pending)

    def begin(self) -> None:
        """Begin a round; the metadata has been refreshed if necessary."""
        self.stale = False

    def take(self, items: Iterable[K], told: Answers[K, V]) -> None:
        """Record the answer to a request for these items."""
        for item in items:
            if item in told.errors:
                self.fail((item,), told.errors[item])
            elif item in told.results:
                self.answers.results[item] = told.results[item]
                del self._pending[item]
            else:  # kept pending, it would be asked for until the deadline
                self.refuse(item, Unanswered(f"The broker's answer says nothing of {item}. Its own log may say why."))

    def fail(self, items: Iterable[K], error: KafkaError) -> None:
        """Record that a request failed: its items stay pending if the error may pass."""
        # NotController alone does not show where the controller is. On KRaft metadata names any broker as the
        # controller, and that broker passes requests on; only a 3.9 cluster in ZooKeeper mode answers NotController.
        self.stale = self.stale or error.stale_metadata or isinstance(error, NotController)
        again = error.retriable and not isinstance(error, self._final)
        for item in items:
            if isinstance(error, ClientTimeout):
                # The call's own time is over: an error that came before it says more.
                self._unsure.add(item)
                continue
            if not again:
                self.refuse(item, error)
                continue
            self._pending[item] = error
            if isinstance(error, (Disconnected, BrokerRequestTimedOut)):
                self._unsure.add(item)

    def refuse(self, item: K, error: KafkaError) -> None:
        """Record that an item has failed for good."""
        del self._pending[item]
        # A request whose answer was lost may have been carried out: the next try then hears "exists already" of the
        # topic that the first one created. Only the reader of the error can know, so the error says it.
        if item in self._unsure and isinstance(error, _PERHAPS_OURS):
            error = with_sentence(error, "An earlier try of this call got no answer: perhaps it did what was asked.")
        self.answers.errors[item] = error

    def give_up(self, timeout_s: float, tries: int, report: str) -> None:
        """Fail all pending items, each with the last error that it had."""
        times = "once" if tries == 1 else f"{tries} times"
        for error in {id(last): last for last in self._pending.values() if last is not None}.values():
            tail = "" if isinstance(error, BrokerError) else f" {report}"
            with_sentence(error, f"It was tried {times} within {timeout_s:.3g} s.{tail}")
        for item, last in tuple(self._pending.items()):
            unsure = "whether it was done is not known" if item in self._unsure else "nothing was done"
            self.refuse(item, last or ClientTimeout(f"No answer within {timeout_s:.3g} s; {unsure}. {report}"))


@dataclass(frozen=True, slots=True)
class AdminCall(Generic[K, V]):
    """A request, and the function that reads its answer."""

    request: Request[Any]
    read: Callable[[Any], Answers[K, V]]


Make = Callable[[Sequence[K], Broker | None], AdminCall[K, V]]
"""Makes the request for those items that one broker is asked for; None: any broker."""


@dataclass(slots=True)
class BrokersFound(Generic[K]):
    """The broker of each item (None: any), or its error, permanent or not."""

    targets: dict[K, Broker | None] = field(default_factory=dict)
    refused: dict[K, KafkaError] = field(default_factory=dict)
    later: dict[K, KafkaError] = field(default_factory=dict)


class FindBrokers(Protocol[K]):
    """Finds the brokers of items, in each round again."""

    def find(self, items: Sequence[K], call: Call) -> BrokersFound[K]:
        """Find the brokers, by asking the cluster where necessary. Raises KafkaError."""


class Call:
    """One call over one client, until its deadline. One thread."""

    def __init__(
        self, client: KafkaClient, clock: Clock, timeout_s: float, retry: Backoff, uniform: Callable[[], float]
    ) -> None:
        self.client = client
        self._clock = clock
        self._timeout_s = timeout_s
        self._ends_s = clock.monotonic() + timeout_s
        self._retry = retry
        self._uniform = uniform

    def left_s(self) -> float:
        """Return the seconds until the deadline, 0 after it."""
        return max(self._ends_s - self._clock.monotonic(), 0.0)

    def broker_timeout_ms(self) -> int:
        """Return the milliseconds that a broker may work on a request."""
        # Nine tenths of our own wait, so that the broker's answer "timed out" comes before we stop listening.
        return max(int(min(self.left_s(), self.client.config.request_timeout_ms / 1000) * 900), 1)

    def wait(self, future: RequestFuture[T]) -> T:
        """Wait for an answer until the deadline. Raises its error, or ClientTimeout."""
        return self.client.wait(future, self.left_s())

    def ask(self, request: Request[T]) -> T:
        """Return any broker's answer; retries until the deadline. Raises KafkaError."""
        return self.client.wait_retrying(lambda: self.client.send(request), self.left_s())

    def pause(self, seconds: float) -> None:
        """Poll the client for so many seconds."""
        ends_s = self._clock.monotonic() + seconds
        while (left := ends_s - self._clock.monotonic()) > 0:
            self.client.poll(left)

    def run(
        self, items: Iterable[K], route: FindBrokers[K], make: Make[K, V], final: tuple[type[KafkaError], ...] = AT_ONCE
    ) -> Answers[K, V]:
        """Ask for all items until each has an outcome, or the deadline."""
        rounds: Rounds[K, V] = Rounds(items, final)
        tries = 0
        while rounds.pending:
            tries += 1
            rounds.begin()
            self._round(rounds, route, make)
            if not rounds.pending:
                break
            resume = self._retry.delay(tries, self._uniform)
            # A pause that ends after the deadline leaves no time for another try: the call ends now, with the last
            # errors.
            if resume >= self.left_s():
                rounds.give_up(self._timeout_s, tries, self.client.connections())
                break
            self._back_off(resume, rounds.stale)
        return rounds.answers

    def _round(self, rounds: Rounds[K, V], route: FindBrokers[K], make: Make[K, V]) -> None:
        try:
            found = route.find(rounds.pending, self)
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
        # All requests are queued before the first answer is waited for: the brokers work at the same time.
        sent: list[tuple[list[K], AdminCall[K, V], RequestFuture[Any]]] = []
        for broker, share in shares.items():
            ask = make(share, broker)
            sent.append((share, ask, self.client.send(ask.request, broker)))
        for share, ask, future in sent:
            try:
                told = ask.read(self.wait(future))
            except KafkaError as err:
                rounds.fail(share, err)
            else:
                rounds.take(share, told)

    def _back_off(self, seconds: float, stale: bool) -> None:
        # With the metadata of before, the next round would ask the same wrong broker: it waits for the update, but not
        # longer than the call.
        version = self.client.metadata.request_update(reset_equivalent=False) if stale else -1
        self.pause(seconds)
        while stale and self.client.metadata.update_version == version and self.left_s() > 0:
            self.client.poll(self.left_s())


# -- routes


class Anywhere:
    """Any broker will do."""

    def find(self, items: Sequence[K], call: Call) -> BrokersFound[K]:
        return BrokersFound(dict.fromkeys(items))


class ToController:
    """The broker that metadata names as the controller; on KRaft it passes requests on."""

    def find(self, items: Sequence[K], call: Call) -> BrokersFound[K]:
        cluster = call.client.cluster
        broker = cluster.brokers.get(cluster.controller_id)
        if broker is None:
            gone = NoController("No broker is the cluster's controller at the moment: an election is under way.")
            return BrokersFound(later=dict.fromkeys(items, gone))
        return BrokersFound(dict.fromkeys(items, broker))


@dataclass(frozen=True, slots=True)
class ToBrokers(Generic[K]):
    """The broker with the id that ``node_id`` gives; any when it gives None."""

    node_id: Callable[[K], int | None]
    lost: str = ""

    def find(self, items: Sequence[K], call: Call) -> BrokersFound[K]:
        found: BrokersFound[K] = BrokersFound()
        brokers = call.client.cluster.brokers
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
class ToCoordinators(Generic[K]):
    """The coordinator of each item's group."""

    group_id: Callable[[K], str]

    def find(self, items: Sequence[K], call: Call) -> BrokersFound[K]:
        # One search for each group, and all of them sent before the first is awaited.
        groups = dict.fromkeys(self.group_id(item) for item in items)
        searches = {group: find_coordinator(call.client, group) for group in groups}
        found: BrokersFound[K] = BrokersFound()
        errors: dict[str, KafkaError] = {}
        brokers: dict[str, Broker] = {}
        for group, search in searches.items():
            try:
                brokers[group] = call.wait(search)
            # The time of the whole call is up, for the other groups too: this is no error of one group.
            except ClientTimeout as err:
                raise err from None
            except KafkaError as err:
                errors[group] = err
        for item in items:
            error = errors.get(self.group_id(item))
            if error is None:
                found.targets[item] = brokers[self.group_id(item)]
            else:
                (found.later if error.retriable else found.refused)[item] = error
        return found
