"""From settings to the parts of a running spout: find brokers, connect, open every partition.

The one place where a KafkaSpout blocks: for ``start_timeout_ms`` at most until brokers are found, and for a session
time-out more until every partition is open, since a run that was killed keeps its place for that long. Conditions that
may pass (a broker or a ZooKeeper that is not up yet) are waited for, and after a second the start says what for;
anything else is raised at once.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from streamlet.base.backoff import Backoff
from streamlet.base.clock import Clock
from streamlet.base.errors import StreamletError
from streamlet.base.port_probe import spoken_at
from streamlet.components.component import COMPONENT_LOGGER
from streamlet.components.context import TopologyContext
from streamlet.coordination.node_store import NodeStore, NodeStoreUnavailable
from streamlet.kafka.broker_errors import CoordinatorNotAvailable
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.leader_requests import FetchSettings
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.errors import BootstrapFailed, ForeignProtocol, HungUp
from streamlet.kafka.settings.client_config import ClientConfig
from streamlet.spouts.kafka.activity import Activity, Background
from streamlet.spouts.kafka.broker_connections import DynamicPartitionConnections
from streamlet.spouts.kafka.chosen_topics import ChosenTopics
from streamlet.spouts.kafka.coordinator import PartitionCoordinator, StaticCoordinator, Task
from streamlet.spouts.kafka.dead_letters.dead_letter import RunStamp
from streamlet.spouts.kafka.errors import (
    DEAD_LETTER,
    DeadLettersCannotStart,
    NoDeadLetterTopic,
    NoSuchTopic,
    NoZooKeeper,
    SpoutCannotStart,
    StopInTheFuture,
)
from streamlet.spouts.kafka.hosts import (
    BrokerReader,
    KafkaBrokerReader,
    KafkaHosts,
    StaticBrokerReader,
    StaticHosts,
    ZkBrokerReader,
)
from streamlet.spouts.kafka.manager import PartitionManager
from streamlet.spouts.kafka.ownership.emit_gate import BEAT_SHARE, EmitGate
from streamlet.spouts.kafka.ownership.group_owner import GroupOwner
from streamlet.spouts.kafka.ownership.newest_run import FORGOTTEN, NEWCOMER, Claim, member_name
from streamlet.spouts.kafka.ownership.owner_nodes import TaskNode
from streamlet.spouts.kafka.ownership.zookeeper_owner import ZooKeeperOwner
from streamlet.spouts.kafka.partition import Broker, Partition
from streamlet.spouts.kafka.partition_counters import PartitionCounters
from streamlet.spouts.kafka.partition_opening import PartitionOpener
from streamlet.spouts.kafka.read_range import OFFSET, place_of
from streamlet.spouts.kafka.schemes.scheme import Scheme
from streamlet.spouts.kafka.spout_config import GroupOffsets, SpoutConfig
from streamlet.spouts.kafka.spout_fetcher import SpoutFetcher
from streamlet.spouts.kafka.stores.commit_rounds import CommitRounds
from streamlet.spouts.kafka.stores.group_offsets import KafkaGroupOffsets
from streamlet.spouts.kafka.stores.offset_store import OffsetStore, Owner
from streamlet.spouts.kafka.stores.zookeeper_offsets import ZooKeeperOffsets

if TYPE_CHECKING:  # with it the producer is loaded, which few spouts need (`streamlet.kafka`)
    from streamlet.spouts.kafka.dead_letters.dead_letter_writer import DeadLetterWriter

log = logging.getLogger(__name__)

RETRY = Backoff(initial=0.1, maximum=0.5)

TOLD_AFTER_S = 1.0
"""Seconds before a start says what it is waiting for."""

START_SHARE = 0.8
"""Share of a run's own time that its start may take: the processes have to start, too."""

CLOSE_PRODUCER_S = 0.5
"""Seconds that the producer of dead letters may take to close. What it has not written then is read again."""

CLOSE_UNANSWERED_S = 0.1
"""Seconds that the connections of a task may take to close whose servers did not take its last commits."""

START_POLL_S = 0.02
"""Seconds between two looks at what a start waits for."""

Say = Callable[[str], None]
Digest = tuple[str, str] | None


def say_for(component: str, task_index: int) -> Say:
    """Return the function that tells the user what a task waits for."""
    # All tasks of a spout wait for the same: the first one speaks for them.
    level = logging.DEBUG if task_index else logging.INFO
    return lambda text: log.log(level, "%s: %s", component, text)


def living_brokers(
    read: Callable[[], dict[int, Broker]],
    deadline_s: float,
    clock: Clock,
    say: Say,
    pause: Callable[[float], None] = time.sleep,
) -> list[Broker]:
    """Call ``read`` until it finds brokers, until the deadline. Blocks. Raises the errors of ``read``."""
    # Retriable errors are raised only at the deadline: ZooKeeper knows a broker only once it is up, so a topology that
    # is started together with its cluster finds none at first.
    told_s = clock.monotonic() + TOLD_AFTER_S
    for attempt in itertools.count(1):
        try:
            return sorted(read().values())
        except StreamletError as error:
            now = clock.monotonic()
            pause_s = RETRY.delay(attempt)
            if not error.retriable or now + pause_s > deadline_s:
                raise
            if now >= told_s:
                told_s = float("inf")
                say(f"waiting for a Kafka broker, for up to {deadline_s - now:.0f} s more. So far: {error.message}")
        pause(pause_s)
    raise AssertionError("unreachable")


def refuse_foreign(brokers: Sequence[Broker]) -> None:
    """Raise ForeignProtocol when every address speaks another protocol. TLS: the client itself says more."""
    spoken = [spoken_at(broker.host, broker.port) for broker in brokers]
    if not spoken or any(found in (None, "Kafka", "TLS") for found in spoken):
        return
    broker, found = brokers[0], spoken[0]
    remedy = "Check that it is the broker's own listener; its port is usually 9092."
    if found == "ZooKeeper":
        remedy = (
            f"Give a broker's address (its port is usually 9092), or let the spout find the brokers in this ZooKeeper: "
            f'ZkHosts("{broker}"), or zk://{broker} on the command line.'
        )
    raise ForeignProtocol(f"The port at {broker} does not speak Kafka's protocol: it speaks {found}. {remedy}")


def no_zookeeper(error: NodeStoreUnavailable, servers: str) -> NoZooKeeper:
    """Return the node store's error, with a remedy for a broker's address."""
    if error.spoken != {"Kafka"}:
        return NoZooKeeper(error.message)
    addresses = servers.partition("/")[0]
    return NoZooKeeper(
        f"{error.message} Where a broker is what you have, let the spout ask it: "
        f'KafkaHosts("{addresses}"), or kafka://{addresses} on the command line.'
    )


@dataclass(slots=True)
class Parts:
    """Everything a running spout holds."""

    client: KafkaClient
    coordinator: PartitionCoordinator
    fetcher: SpoutFetcher
    store: OffsetStore
    commits: CommitRounds
    held: Held
    gate: EmitGate[Any]
    """Whether tuples may be emitted."""
    counts: Mapping[Partition, PartitionCounters]
    stamp: RunStamp
    """What all dead letters of the task have in common."""
    dead_letters: DeadLetterWriter | None = None
    """Writes records that are given up; None: they stop the spout, are skipped, or go with the attempts."""

    def leave(self) -> None:
        """Begin to give the task's place up; returns at once."""
        if self.held.owner is not None:
            self.held.owner.leave()
        if self.held.background is not None:
            self.held.background.begin_close()

    def close(self, answered: bool = True) -> None:
        """Close everything within a bound; ``answered``: the servers took the last commits."""
        if answered:
            self.held.close()
            return
        # Rule: who has not answered is not waited for again. Each connection would take its own time to say goodbye,
        # the worker be killed meanwhile, and its spout be blamed for a server that is away.
        closing = threading.Thread(target=self.held.close, name="streamlet-kafka-spout-close", daemon=True)
        closing.start()
        closing.join(CLOSE_UNANSWERED_S)


class Held:
    """The resources to close; filled during the start, so a failed one leaves nothing."""

    def __init__(self, wake: Callable[[], None], say: Say) -> None:
        self._wake = wake
        self.say = say
        self._nodes: dict[tuple[str, Digest], NodeStore] = {}
        self.background: Background | None = None
        self.client: KafkaClient | None = None
        self.owner: GroupOwner | ZooKeeperOwner | None = None
        self.dead_letters: DeadLetterWriter | None = None

    def nodes(self, servers: str, digest: Digest, timeout_s: float, session_s: float) -> NodeStore:
        """Return the node store of an ensemble for one user; all parts share one session."""
        if (servers, digest) not in self._nodes:
            # Imported here: kazoo is loaded only by a spout that uses ZooKeeper.
            from streamlet.coordination.zookeeper import ZooKeeperNodeStore

            try:
                store = ZooKeeperNodeStore(
                    servers,
                    digest=digest,
                    connect_timeout_s=timeout_s,
                    session_timeout_s=session_s,
                    on_wait=self.say,
                )
            except NodeStoreUnavailable as error:
                raise no_zookeeper(error, servers) from error
            self._nodes[servers, digest] = store
        return self._nodes[servers, digest]

    def thread(self) -> Background:
        """Return the thread for calls that block; started by the first use."""
        if self.background is None:
            self.background = Background("streamlet-kafka-spout", self._wake)
        return self.background

    def close(self) -> None:
        """Close everything, whatever one of them raises."""
        # Upwards: what stands last here is closed first. The thread is closed last: it may be waiting for a session.
        with ExitStack() as closing:
            if self.background is not None:
                closing.callback(self.background.close)
            for store in self._nodes.values():
                closing.callback(store.close)
            if self.client is not None:
                closing.callback(self.client.close)
            if self.owner is not None:
                closing.callback(self.owner.close)
            if self.dead_letters is not None:
                closing.callback(self.dead_letters.close, CLOSE_PRODUCER_S)


def find_brokers(
    config: SpoutConfig, held: Held, timeout_s: float, deadline_s: float, clock: Clock
) -> tuple[ZkBrokerReader | None, list[Broker]]:
    """Return the brokers of ``hosts``, and their reader where that is ZooKeeper. Blocks. Raises as ``living_brokers``.

    ``timeout_s``: of a first connection to ZooKeeper.
    """
    hosts = config.hosts
    if isinstance(hosts, StaticHosts):
        return None, sorted(set(hosts.brokers.values()))
    if isinstance(hosts, KafkaHosts):
        return None, list(hosts.brokers)
    nodes = held.nodes(hosts.broker_zk_str, hosts.digest, timeout_s, config.session_timeout_ms / 1e3)
    reader = ZkBrokerReader(
        config.choice(), nodes, held.thread(), hosts.broker_zk_path, hosts.broker_zk_str, config.security_protocol
    )
    return reader, living_brokers(reader.read_brokers, deadline_s, clock, held.say)


def await_dead_letter_topic(client: KafkaClient, topic: str, context: TopologyContext, deadline_s: float) -> None:
    """Wait until a topic is known that another component writes letters to. Blocks.

    Raises NoDeadLetterTopic, DeadLettersCannotStart.
    """
    from streamlet.kafka.producer.topic_wait import UNKNOWN_S  # here, for the reason above

    # As one of several: then a look at a topic that is not there names no others.
    reader, believed_s = KafkaBrokerReader(ChosenTopics((topic,), several=True), client), float("inf")
    while True:
        looking = Activity(reader.get_current_brokers())
        while not looking.poll():
            client.poll(START_POLL_S)
        try:
            looking.take().whole()
            return
        except StreamletError as error:
            now, missing = context.clock.monotonic(), isinstance(error, NoSuchTopic)
            if not (missing or error.retriable):
                raise
            # Of a topic that was just made, not all brokers know at once.
            believed_s = min(believed_s, now + UNKNOWN_S) if missing else float("inf")
            if now >= min(believed_s, deadline_s):
                kind = NoDeadLetterTopic if missing else DeadLettersCannotStart
                raise kind(topic, context.component_name, client.connections()) from error
        time.sleep(START_POLL_S)


def _check_dead_letter_topic(
    client: KafkaClient, config: SpoutConfig, context: TopologyContext, deadline_s: float, *, is_awaited: bool
) -> None:
    """Raise the error of a topic that letters cannot be kept in. Blocks; ``is_awaited``: its writer knows it."""
    from streamlet.spouts.kafka.dead_letters.compaction import refuse_compaction  # few spouts need it

    if not is_awaited:
        await_dead_letter_topic(client, config.dead_letter_topic, context, deadline_s)
    left_s = max(0.1, deadline_s - context.clock.monotonic())
    refuse_compaction(client, config.dead_letter_topic, context.component_name, left_s)


def wire(
    config: SpoutConfig,
    schemes: Mapping[str, Scheme] | Scheme,
    context: TopologyContext,
    uniform: Callable[[], float],
    on_close: Callable[[PartitionManager], None],
    *,
    until_caught_up: bool,
    run_s: float | None = None,
    code_version: str | None = None,
    exactly_once: bool = False,
) -> Parts:
    """Connect, look, open every partition of the task. Blocks at most as long as this module says.

    In a run of ``run_s`` seconds for most of them at most. ``exactly_once``: partitions are opened by the attempts.

    Raises errors of the input (no ZooKeeper, no broker, no topic, a lost offset ...), or SpoutCannotStart.
    """
    held = Held(context.wake, say_for(context.component_name, context.task_index))
    try:
        start = _Start(config, context, uniform, held, run_s, code_version, exactly_once)
        parts = start.run(schemes, on_close, until_caught_up)
    except BaseException:
        held.close()
        raise
    return parts


def _warn_of_unused_topic(config: SpoutConfig, context: TopologyContext) -> None:
    if config.on_poison != DEAD_LETTER and config.dead_letter_topic and context.task_index == 0:
        log.warning(
            "The spout %r writes no letter to %r (dead_letter_topic): on_poison is %r, and would have to be %r.",
            *(context.component_name, config.dead_letter_topic, config.on_poison, DEAD_LETTER),
        )


def _installed() -> str:
    """Return streamlet's version; empty where it runs without being installed."""
    try:
        return version("streamlet-storm")
    except PackageNotFoundError:
        return ""


class _Start:
    """One start: its settings, its deadline, and everything opened on the way."""

    def __init__(
        self,
        config: SpoutConfig,
        context: TopologyContext,
        uniform: Callable[[], float],
        held: Held,
        run_s: float | None = None,
        code_version: str | None = None,
        exactly_once: bool = False,
    ) -> None:
        self._exactly_once = exactly_once
        self._config = config
        self._code_version = code_version
        self._context = context
        self._clock = context.clock
        self._uniform = uniform
        self._held = held
        self._timeout_s, self._limit = config.start_timeout_ms / 1e3, f"start_timeout_ms={config.start_timeout_ms}"
        # A run of 8 s that waited 15 s for its broker would end by its time, and say nothing of the broker.
        self._bounded = run_s is not None and START_SHARE * run_s < self._timeout_s
        if run_s is not None and self._bounded:
            self._timeout_s, self._limit = START_SHARE * run_s, f"{START_SHARE * run_s:g} s, in a run of {run_s:g} s"
        self._deadline_s = self._open_by_s = self._clock.monotonic() + self._timeout_s
        self._session_s = config.session_timeout_ms / 1e3
        # A run whose processes were all killed is waited for until its session is over.
        if not self._bounded:
            self._open_by_s += self._session_s
            self._limit += f" and session_timeout_ms={config.session_timeout_ms}"

    def run(
        self,
        schemes: Mapping[str, Scheme] | Scheme,
        on_close: Callable[[PartitionManager], None],
        until_caught_up: bool,
    ) -> Parts:
        # Long: the parts in the order in which they need each other, an argument a line.
        config, clock = self._config, self._clock
        self._refuse_future_stop()
        zk_reader, brokers = find_brokers(config, self._held, self._timeout_s, self._deadline_s, clock)
        client = self._connect(brokers)
        # Before anything is claimed or emitted: what cannot be kept must not be given up.
        stamp = self._stamp()
        _warn_of_unused_topic(config, self._context)
        letters = self._dead_letter_writer(brokers, stamp)
        if config.on_poison == DEAD_LETTER:
            _check_dead_letter_topic(client, config, self._context, self._deadline_s, is_awaited=letters is not None)
        connections = DynamicPartitionConnections(client)
        owner = Owner(self._context.topology_id, self._context.topology_name)
        reader = zk_reader or KafkaBrokerReader(config.choice(), client)
        self._own(client, brokers, reader)
        store = self._offset_store(client, owner)
        opener = PartitionOpener(
            config,
            schemes,
            owner,
            connections,
            store,
            clock,
            self._uniform,
            until_caught_up=until_caught_up,
            opens_later=self._exactly_once,
        )
        task = Task(self._context.task_index, self._context.task_count)
        coordinator: PartitionCoordinator
        if isinstance(config.hosts, StaticHosts):
            static = StaticBrokerReader(config.topic, config.hosts)
            coordinator = StaticCoordinator(
                task,
                static,
                connections,
                opener,
                clock,
                on_close,
                asked_after_failure=reader,
                opens_later=self._exactly_once,
            )
        else:
            coordinator = PartitionCoordinator(
                task,
                reader,
                connections,
                opener,
                clock,
                on_close,
                config.hosts.refresh_freq_secs,
                opens_later=self._exactly_once,
                run_began=self._context.run_began,
                several=config.choice().several,
                on_topics=partial(self._follow, client),
            )
        self._open_partitions(coordinator, opener, client)
        settings = FetchSettings(
            fetch_max_wait_ms=config.fetch_max_wait_ms,
            fetch_min_bytes=config.fetch_min_bytes,
            max_partition_fetch_bytes=config.fetch_size_bytes,
            client_rack=config.client_rack,
        )
        fetcher = SpoutFetcher(connections, settings, config.buffer_size_bytes)
        commits = CommitRounds(store, clock, config.state_update_interval_ms / 1e3, coordinator.leader)
        assert self._held.owner is not None
        gate = self._held.owner.gate
        return Parts(client, coordinator, fetcher, store, commits, self._held, gate, opener.counts, stamp, letters)

    def _refuse_future_stop(self) -> None:
        """Raise StopInTheFuture for a time to come."""
        # A time is looked up once, at the start: of a later one no record is there yet, and the run would end at once.
        given = self._config.stop_offset
        places = [place_of(each, whole_number=OFFSET) for each in given.values()] if isinstance(given, Mapping) else []
        asked_ms = [place.timestamp_ms or 0 for place in (place_of(given), *places) if place is not None]
        ahead_s = max(asked_ms, default=0) / 1e3 - time.time()
        if ahead_s > 0:
            raise StopInTheFuture(str(self._config.choice()), ahead_s)

    def _follow(self, client: KafkaClient, topics: Iterable[str]) -> None:
        """Keep metadata of these topics and no others; name them when the group is joined again."""
        names = tuple(topics)
        for gone in client.metadata.topics.difference(names):
            client.metadata.remove_topic(gone)
        for name in names:
            client.add_topic(name)
        if isinstance(self._held.owner, GroupOwner):
            self._held.owner.topics = names

    def _stamp(self) -> RunStamp:
        context = self._context
        return RunStamp(
            context.topology_name, context.topology_id, context.component_name, _installed(), self._code_version
        )

    def _dead_letter_writer(self, brokers: Sequence[Broker], stamp: RunStamp) -> DeadLetterWriter | None:
        """Return the writer, its topic known; None where it is not needed. Raises NoDeadLetterTopic."""
        config, context = self._config, self._context
        if config.on_poison != DEAD_LETTER or self._exactly_once:
            return None
        from streamlet.spouts.kafka.dead_letters.dead_letter_writer import open_writer

        logger = logging.getLogger(f"{COMPONENT_LOGGER}.{context.component_name}")
        letters = self._held.dead_letters = open_writer(
            config.dead_letter_topic, [str(one) for one in brokers], config.security(), config.client_id, stamp, logger
        )
        letters.await_topic(self._left_s())
        return letters

    def _connect(self, brokers: Sequence[Broker]) -> KafkaClient:
        """Return the client with its first metadata. Raises the errors of ``KafkaClient.bootstrap``."""
        config = self._config
        settings = ClientConfig(
            bootstrap_servers=tuple(str(broker) for broker in brokers),
            client_id=config.client_id,
            request_timeout_ms=config.request_timeout_ms,
            **config.security(),
        )
        client = self._held.client = KafkaClient(settings, self._clock, self._uniform)
        for topic in config.choice().names:
            client.add_topic(topic)
        began_s = self._clock.monotonic()
        # A server that hangs up on a Kafka client without a word, as ZooKeeper does, looks like a broker that is not up
        # yet: so its port is looked at, and another protocol is named at once.
        try:
            if self._left_s() > TOLD_AFTER_S:
                try:
                    client.bootstrap(TOLD_AFTER_S)
                    return client
                except BootstrapFailed as error:
                    refuse_foreign(brokers)
                    causes = "; ".join(f"{address}: {cause}" for address, cause in error.causes.items())
                    left_s = self._left_s()
                    self._held.say(f"waiting for a Kafka broker, for up to {left_s:.0f} s more. So far: {causes}")
            waited_s, named_in = self._clock.monotonic() - began_s, f"hosts of the spout {self._context.component_name}"
            client.bootstrap(self._left_s(), waited_s, named_in)
        except (BootstrapFailed, HungUp, ForeignProtocol):
            refuse_foreign(brokers)
            raise
        return client

    def _left_s(self) -> float:
        return max(0.1, self._deadline_s - self._clock.monotonic())

    def _own(self, client: KafkaClient, brokers: Sequence[Broker], reader: BrokerReader) -> None:
        """Begin to claim the task's place, in the group or ZooKeeper."""
        chosen = self._config.offsets()
        if isinstance(chosen, GroupOffsets):
            assert chosen.group is not None
            self._held.owner = self._join_group(chosen.group, client, brokers, reader)
            return
        assert chosen.servers is not None
        nodes = self._held.nodes(chosen.servers, chosen.digest, self._timeout_s, self._session_s)
        me, choice = TaskNode.of(self._context), self._config.choice()
        among = self._held.owner = ZooKeeperOwner(
            nodes, self._root, me, str(choice), chosen.servers, client.wakeup, self._clock
        )
        among.start()

    @property
    def _root(self) -> str:
        """Where the nodes of the spout are."""
        return f"{self._config.zk_root}/{self._config.id}"

    def _offset_store(self, client: KafkaClient, owner: Owner) -> OffsetStore:
        chosen, place = self._config.offsets(), self._held.owner
        if isinstance(chosen, GroupOffsets):
            assert chosen.group is not None and isinstance(place, GroupOwner)
            store = KafkaGroupOffsets(client, chosen.group, owner, place, require_stable=self._exactly_once)
            place.gate.check = store.check
            return store
        assert chosen.servers is not None and isinstance(place, ZooKeeperOwner)
        nodes = self._held.nodes(chosen.servers, chosen.digest, self._timeout_s, self._session_s)
        several = self._config.choice().several
        offsets = ZooKeeperOffsets(
            nodes, self._held.thread(), self._root, owner, chosen.servers, place.gate, several=several
        )
        place.gate.check = offsets.check
        return offsets

    def _join_group(
        self, group: str, client: KafkaClient, brokers: Sequence[Broker], reader: BrokerReader
    ) -> GroupOwner:
        config, context = self._config, self._context
        choice = config.choice()
        if choice.pattern:
            choice = replace(choice, names=self._matching(reader, client))
        numbers = sorted(config.hosts.brokers) if isinstance(config.hosts, StaticHosts) else None
        claim = Claim(
            context.topology_id,
            context.topology_name,
            context.task_index,
            context.task_count,
            int(time.time() * 1e3),
            # Rule: the replacement of a worker is no newcomer. Else a run that was paused, and whose workers are
            # started again when it wakes, would take the topic back from the run that has it now.
            NEWCOMER if context.epoch == 1 else FORGOTTEN,
            numbers=None if numbers is None else tuple(numbers[context.task_index :: context.task_count]),
            several=choice.several,
        )
        session_ms = config.session_timeout_ms
        settings = ConsumerConfig(
            bootstrap_servers=tuple(str(broker) for broker in brokers),
            client_id=config.client_id,
            request_timeout_ms=config.request_timeout_ms,
            group_id=group,
            # The place of a task outlives its process: the replacement of a worker that died takes it over at once.
            group_instance_id=member_name(
                context.topology_id, context.component_name, context.task_id, context.task_index
            ),
            session_timeout_ms=session_ms,
            # Rule: not below the session time-out. The coordinator goes on without a member that is silent in a
            # rebalance for that long, and until its session is over that member may still emit.
            max_poll_interval_ms=session_ms,
            heartbeat_interval_ms=max(1, int(BEAT_SHARE * session_ms)),
            allow_auto_create_topics=False,
            **config.security(),
        )
        return GroupOwner(settings, choice, claim, client.wakeup, self._clock)

    def _matching(self, reader: BrokerReader, client: KafkaClient) -> tuple[str, ...]:
        """Return the topics that match now; none where that cannot be told yet."""
        # For the tools that show a group's members and their partitions; nothing else follows from it.
        looking = Activity(reader.get_current_brokers())
        while not looking.poll():
            if self._clock.monotonic() > self._deadline_s:
                looking.cancel()
                return ()
            client.poll(START_POLL_S)
        try:
            look = looking.take()
        except StreamletError as error:
            if not error.retriable:
                raise
            return ()
        return tuple(sorted(look.found))

    def _open_partitions(self, coordinator: PartitionCoordinator, opener: PartitionOpener, client: KafkaClient) -> None:
        """Poll until every partition is open. Raises SpoutCannotStart at the deadline."""
        starting = Activity(coordinator.start())
        told_s = self._clock.monotonic() + TOLD_AFTER_S
        while not starting.poll():
            now = self._clock.monotonic()
            why = f" The last reason: {opener.last_error.message}" if opener.last_error else ""
            # A missing topic is waited for only a moment, then the error itself is raised: do not say it twice.
            absent = isinstance(opener.last_error, NoSuchTopic)
            if not absent and now >= told_s:
                told_s = float("inf")
                if isinstance(opener.last_error, CoordinatorNotAvailable):  # usual on a fresh cluster, soon over
                    why = " Kafka makes the topic in which groups keep their offsets when it is first needed."
                elif self._held.owner is not None and self._held.owner.gate.grant is None:
                    why = self._held.owner.waiting_for()
                left_s = self._open_by_s - now
                self._held.say(f"waiting, for up to {left_s:.0f} s more: {coordinator.waiting_for()} yet.{why}")
            if now > self._open_by_s:
                starting.cancel()
                raise SpoutCannotStart(
                    f"The spout {self._context.component_name!r} on {self._config.choice()} could not start "
                    f"within {self._limit}: {coordinator.waiting_for()}.{why}"
                )
            client.poll(START_POLL_S)
        starting.take()
