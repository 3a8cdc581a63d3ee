"""From settings to the parts of a running spout, and back to nothing at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamlet.components.context import TopologyContext
from streamlet.coordination import NodeStore, NodeStoreUnavailable
from streamlet.kafka.broker_errors import CoordinatorNotAvailable
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.leader_requests import FetchSettings
from streamlet.kafka.settings.client_config import ClientConfig
from streamlet.spouts.kafka.commits import Commits
from streamlet.spouts.kafka.connections import DynamicPartitionConnections
from streamlet.spouts.kafka.coordinator import (
    KafkaCoordinator,
    PartitionCoordinator,
    Task,
    ZkCoordinator,
)
from streamlet.spouts.kafka.errors import NoSuchTopic, SpoutCannotStart
from streamlet.spouts.kafka.fetcher import Fetcher
from streamlet.spouts.kafka.group_offsets import KafkaGroupOffsets
from streamlet.spouts.kafka.hosts import KafkaHosts, StaticHosts, ZkHosts
from streamlet.spouts.kafka.manager import PartitionManager
from streamlet.spouts.kafka.offset_store import OffsetStore, Owner
from streamlet.spouts.kafka.opening import PartitionOpener
from streamlet.spouts.kafka.partition import Broker
from streamlet.spouts.kafka.reaching import TOLD_AFTER_S, Say, bootstrap, living_brokers, no_zookeeper, say_for
from streamlet.spouts.kafka.readers import KafkaBrokerReader, StaticBrokerReader, ZkBrokerReader
from streamlet.spouts.kafka.scheme import Scheme
from streamlet.spouts.kafka.spout_config import GroupOffsets, SpoutConfig, ZkOffsets
from streamlet.spouts.kafka.static_coordinator import StaticCoordinator
from streamlet.spouts.kafka.steps import Activity, Background
from streamlet.spouts.kafka.zookeeper_offsets import ZooKeeperOffsets

START_POLL_S = 0.02

Digest = tuple[str, str] | None


@dataclass(slots=True)
class Parts:
    """Everything a running spout holds."""

    client: KafkaClient
    connections: DynamicPartitionConnections
    coordinator: PartitionCoordinator
    fetcher: Fetcher
    store: OffsetStore
    commits: Commits
    held: Held

    def close(self) -> None:
        """Let go of all of it; bounded, and nothing is left running."""
        self.held.close()


class Held:
    """What must be closed, in the order in which it was opened."""

    def __init__(self, wake: Callable[[], None], say: Say) -> None:
        self._wake = wake
        self.say = say
        self._nodes: dict[tuple[str, Digest], NodeStore] = {}
        self.background: Background | None = None
        self.client: KafkaClient | None = None

    def nodes(self, servers: str, digest: Digest, timeout_s: float) -> NodeStore:
        """The node store of an ensemble, as one user; one session, however many parts use it."""
        if (servers, digest) not in self._nodes:
            # Here, so that kazoo is loaded only by a spout that uses ZooKeeper.
            from streamlet.coordination.zookeeper import ZooKeeperNodeStore

            try:
                store = ZooKeeperNodeStore(servers, digest=digest, connect_timeout_s=timeout_s, on_wait=self.say)
            except NodeStoreUnavailable as error:
                raise no_zookeeper(error, servers) from error
            self._nodes[servers, digest] = store
        return self._nodes[servers, digest]

    def thread(self) -> Background:
        """The thread for calls that block."""
        if self.background is None:
            self.background = Background("streamlet-kafka-spout", self._wake)
        return self.background

    def close(self) -> None:
        """Close the client, then the sessions, then the thread that may be waiting for one of them."""
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

    Raises what is wrong with the input (no ZooKeeper, no broker, no topic, a lost offset ...), or SpoutCannotStart.
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
    client = held.client = KafkaClient(
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
    elif zk_reader is not None:
        refresh_s = config.hosts.refresh_freq_secs
        coordinator = ZkCoordinator(task, zk_reader, connections, opener, clock, on_close, refresh_s)
    else:
        refresh_s = config.hosts.refresh_freq_secs
        coordinator = KafkaCoordinator(task, kafka_reader, connections, opener, clock, on_close, refresh_s)
    _start(config, coordinator, opener, client, context, deadline, held.say)
    settings = FetchSettings(
        fetch_max_wait_ms=config.fetch_max_wait_ms,
        fetch_min_bytes=config.fetch_min_bytes,
        max_partition_fetch_bytes=config.fetch_size_bytes,
    )
    fetcher = Fetcher(connections, settings, config.buffer_size_bytes)
    commits = Commits(store, clock, config.state_update_interval_ms / 1e3, coordinator.leader)
    return Parts(client, connections, coordinator, fetcher, store, commits, held)


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
        # A topic that is not there is waited for only a moment: what is said then is the error itself, and once.
        absent = isinstance(opener.last_error, NoSuchTopic)
        if tell_at_s is not None and now > tell_at_s and not absent:
            tell_at_s = None
            if isinstance(opener.last_error, CoordinatorNotAvailable):  # usual, and over in a moment
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
