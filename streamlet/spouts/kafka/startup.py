"""From settings to the parts of a running spout: find brokers, connect, open every partition.

The one place where a KafkaSpout blocks, for ``start_timeout_ms`` at most. Conditions that may pass (a broker or a
ZooKeeper that is not up yet) are waited for, and after a second the start says what for; anything else is raised at
once.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamlet.base.backoff import Backoff
from streamlet.base.clock import Clock
from streamlet.base.errors import StreamletError
from streamlet.base.port_probe import spoken_at
from streamlet.components.context import TopologyContext
from streamlet.coordination import NodeStore, NodeStoreUnavailable
from streamlet.kafka.broker_errors import CoordinatorNotAvailable
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.leader_requests import FetchSettings
from streamlet.kafka.errors import BootstrapFailed, ForeignProtocol, HungUp
from streamlet.kafka.settings.client_config import ClientConfig
from streamlet.spouts.kafka.activity import Activity, Background
from streamlet.spouts.kafka.connections import DynamicPartitionConnections
from streamlet.spouts.kafka.coordinator import PartitionCoordinator, StaticCoordinator, Task
from streamlet.spouts.kafka.errors import NoSuchTopic, NoZooKeeper, SpoutCannotStart
from streamlet.spouts.kafka.fetcher import Fetcher
from streamlet.spouts.kafka.hosts import (
    KafkaBrokerReader,
    KafkaHosts,
    StaticBrokerReader,
    StaticHosts,
    ZkBrokerReader,
    ZkHosts,
)
from streamlet.spouts.kafka.manager import PartitionManager
from streamlet.spouts.kafka.opening import PartitionOpener
from streamlet.spouts.kafka.partition import Broker
from streamlet.spouts.kafka.scheme import Scheme
from streamlet.spouts.kafka.spout_config import GroupOffsets, SpoutConfig, ZkOffsets
from streamlet.spouts.kafka.stores.commits import Commits
from streamlet.spouts.kafka.stores.group import KafkaGroupOffsets
from streamlet.spouts.kafka.stores.port import OffsetStore, Owner
from streamlet.spouts.kafka.stores.zookeeper import ZooKeeperOffsets

log = logging.getLogger(__name__)

RETRY = Backoff(initial=0.1, maximum=0.5)

TOLD_AFTER_S = 1.0
"""Seconds before a start says what it is waiting for."""

START_POLL_S = 0.02
"""Seconds between two looks at what a start waits for."""

Say = Callable[[str], None]
Digest = tuple[str, str] | None


def say_for(component: str, task_index: int) -> Say:
    """Return the function that tells the user what a task waits for."""

    # All tasks of a spout wait for the same: the first one speaks for them.

    def say(text: str) -> None:
        log.log(logging.DEBUG if task_index else logging.INFO, "%s: %s", component, text)

    return say


def living_brokers(
    read: Callable[[], dict[int, Broker]],
    deadline_s: float,
    clock: Clock,
    say: Say,
    pause: Callable[[float], None] = time.sleep,
) -> list[Broker]:
    """Call ``read`` until it finds brokers, until the deadline. Blocks. Raises the errors of ``read``.

    Retriable errors are raised only at the deadline: ZooKeeper knows a broker only once it is up, so a topology that is
    started together with its cluster finds none at first.
    """
    tell_at_s: float | None = clock.monotonic() + TOLD_AFTER_S
    for attempt in itertools.count(1):
        try:
            return sorted(read().values())
        except StreamletError as error:
            now = clock.monotonic()
            pause_s = RETRY.delay(attempt)
            if not error.retriable or now + pause_s > deadline_s:
                raise
            if tell_at_s is not None and now >= tell_at_s:
                tell_at_s = None
                say(f"waiting for a Kafka broker, for up to {deadline_s - now:.0f} s more. So far: {error.message}")
        pause(pause_s)
    raise AssertionError("unreachable")


def bootstrap(client: KafkaClient, brokers: Sequence[Broker], deadline_s: float, clock: Clock, say: Say) -> None:
    """Get the client's first metadata. Raises the errors of ``KafkaClient.bootstrap``.

    ForeignProtocol is raised at once also for servers that hang up on a Kafka client without a word, as ZooKeeper does.
    """
    left = max(0.1, deadline_s - clock.monotonic())
    try:
        if left > TOLD_AFTER_S:
            try:
                client.bootstrap(TOLD_AFTER_S)
                return
            except BootstrapFailed as error:
                _refuse_foreign(brokers)
                left = max(0.1, deadline_s - clock.monotonic())
                causes = "; ".join(f"{address}: {cause}" for address, cause in error.causes.items())
                say(f"waiting for a Kafka broker, for up to {left:.0f} s more. So far: {causes}")
        client.bootstrap(left)
    except (BootstrapFailed, HungUp, ForeignProtocol):
        _refuse_foreign(brokers)
        raise


def _refuse_foreign(brokers: Sequence[Broker]) -> None:
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
    fetcher: Fetcher
    store: OffsetStore
    commits: Commits
    held: Held

    def close(self) -> None:
        """Close everything within a bound; nothing is left running."""
        self.held.close()


class Held:
    """The resources to close; filled during the start, so a failed one leaves nothing."""

    def __init__(self, wake: Callable[[], None], say: Say) -> None:
        self._wake = wake
        self.say = say
        self._nodes: dict[tuple[str, Digest], NodeStore] = {}
        self.background: Background | None = None
        self.client: KafkaClient | None = None

    def nodes(self, servers: str, digest: Digest, timeout_s: float) -> NodeStore:
        """Return the node store of an ensemble for one user; all parts share one session."""
        if (servers, digest) not in self._nodes:
            # Imported here: kazoo is loaded only by a spout that uses ZooKeeper.
            from streamlet.coordination.zookeeper import ZooKeeperNodeStore

            try:
                store = ZooKeeperNodeStore(servers, digest=digest, connect_timeout_s=timeout_s, on_wait=self.say)
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
        """Close everything. The thread comes last: it may be waiting for one of the sessions."""
        if self.client is not None:
            self.client.close()
        for store in self._nodes.values():
            store.close()
        if self.background is not None:
            self.background.close()


def wire(
    config: SpoutConfig,
    scheme: Scheme,
    context: TopologyContext,
    uniform: Callable[[], float],
    on_close: Callable[[PartitionManager], None],
    *,
    until_caught_up: bool,
) -> Parts:
    """Connect, look, open every partition of the task. Blocks at most about ``start_timeout_ms``.

    Raises errors of the input (no ZooKeeper, no broker, no topic, a lost offset ...), or SpoutCannotStart.
    """
    held = Held(context.wake, say_for(context.component_name, context.task_index))
    try:
        return _wire(config, scheme, context, uniform, on_close, held, until_caught_up)
    except BaseException:
        held.close()
        raise


def _wire(
    config: SpoutConfig,
    scheme: Scheme,
    context: TopologyContext,
    uniform: Callable[[], float],
    on_close: Callable[[PartitionManager], None],
    held: Held,
    until_caught_up: bool,
) -> Parts:
    clock = context.clock
    timeout_s = config.start_timeout_ms / 1e3
    deadline = clock.monotonic() + timeout_s
    zk_reader = _zk_reader(config, held, timeout_s) if isinstance(config.hosts, ZkHosts) else None
    if zk_reader is not None:
        brokers = living_brokers(zk_reader.read_brokers, deadline, clock, held.say)
    else:
        brokers = _given_brokers(config)
    client = held.client = _client(config, brokers, clock, uniform)
    bootstrap(client, brokers, deadline, clock, held.say)
    connections = DynamicPartitionConnections(client)
    owner = Owner(context.topology_id, context.topology_name)
    store = _offset_store(config, held, client, owner, timeout_s)
    opener = PartitionOpener(config, scheme, owner, connections, store, clock, uniform, until_caught_up=until_caught_up)
    task = Task(context.task_index, context.task_count)
    kafka_reader = KafkaBrokerReader(config.topic, client)
    coordinator: PartitionCoordinator
    if isinstance(config.hosts, StaticHosts):
        static = StaticBrokerReader(config.topic, config.hosts)
        coordinator = StaticCoordinator(
            task, static, connections, opener, clock, on_close, asked_after_failure=kafka_reader
        )
    else:
        refresh_s = config.hosts.refresh_freq_secs
        reader = zk_reader or kafka_reader
        coordinator = PartitionCoordinator(task, reader, connections, opener, clock, on_close, refresh_s)
    _start(config, coordinator, opener, client, context, deadline, held.say)
    settings = FetchSettings(
        fetch_max_wait_ms=config.fetch_max_wait_ms,
        fetch_min_bytes=config.fetch_min_bytes,
        max_partition_fetch_bytes=config.fetch_size_bytes,
    )
    fetcher = Fetcher(connections, settings, config.buffer_size_bytes)
    commits = Commits(store, clock, config.state_update_interval_ms / 1e3, coordinator.leader)
    return Parts(client, coordinator, fetcher, store, commits, held)


def _client(config: SpoutConfig, brokers: Sequence[Broker], clock: Clock, uniform: Callable[[], float]) -> KafkaClient:
    client = KafkaClient(
        ClientConfig(
            bootstrap_servers=tuple(str(broker) for broker in brokers),
            client_id=config.client_id,
            request_timeout_ms=config.request_timeout_ms,
            **config.security(),
        ),
        clock,
        uniform,
    )
    client.add_topic(config.topic)
    return client


def _start(
    config: SpoutConfig,
    coordinator: PartitionCoordinator,
    opener: PartitionOpener,
    client: KafkaClient,
    context: TopologyContext,
    deadline_s: float,
    say: Say,
) -> None:
    starting = Activity(coordinator.start())
    tell_at_s: float | None = context.clock.monotonic() + TOLD_AFTER_S
    while not starting.poll():
        now = context.clock.monotonic()
        why = f" The last reason: {opener.last_error.message}" if opener.last_error else ""
        # A missing topic is waited for only a moment, then the error itself is raised: do not say it twice.
        absent = isinstance(opener.last_error, NoSuchTopic)
        if tell_at_s is not None and now > tell_at_s and not absent:
            tell_at_s = None
            if isinstance(opener.last_error, CoordinatorNotAvailable):  # usual on a fresh cluster, over in a moment
                why = " Kafka makes the topic in which groups keep their offsets when it is first needed."
            say(f"waiting, for up to {deadline_s - now:.0f} s more: {coordinator.waiting_for()} yet.{why}")
        if now > deadline_s:
            starting.cancel()
            waiting = coordinator.waiting_for()
            raise SpoutCannotStart(
                f"The spout {context.component_name!r} on topic {config.topic!r} could not start within "
                f"start_timeout_ms={config.start_timeout_ms}: {waiting}.{why}"
            )
        client.poll(START_POLL_S)
    starting.take()


def _zk_reader(config: SpoutConfig, held: Held, timeout_s: float) -> ZkBrokerReader:
    hosts = config.hosts
    assert isinstance(hosts, ZkHosts)
    nodes = held.nodes(hosts.broker_zk_str, hosts.digest, timeout_s)
    return ZkBrokerReader(
        config.topic, nodes, held.thread(), hosts.broker_zk_path, hosts.broker_zk_str, config.security_protocol
    )


def _given_brokers(config: SpoutConfig) -> list[Broker]:
    if isinstance(config.hosts, StaticHosts):
        return sorted(set(config.hosts.brokers.values()))
    assert isinstance(config.hosts, KafkaHosts)
    return list(config.hosts.brokers)


def _offset_store(config: SpoutConfig, held: Held, client: KafkaClient, owner: Owner, timeout_s: float) -> OffsetStore:
    chosen = config.offsets()
    if isinstance(chosen, GroupOffsets):
        assert chosen.group is not None
        return KafkaGroupOffsets(client, chosen.group, owner)
    assert isinstance(chosen, ZkOffsets) and chosen.servers is not None
    nodes = held.nodes(chosen.servers, chosen.digest, timeout_s)
    root = f"{config.zk_root}/{config.id}"
    return ZooKeeperOffsets(nodes, held.thread(), root, owner, chosen.servers)
