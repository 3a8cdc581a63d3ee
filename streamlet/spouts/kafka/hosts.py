"""How a spout finds the brokers of its topic: the user's choice, and the reader behind each choice.

``StaticHosts``, ``ZkHosts`` and ``KafkaHosts`` are values of the SpoutConfig. A *reader* is one look at the topic's
partitions and leaders; the coordinator decides when to look. A look may wait, so it is a generator (:mod:`activity`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

from streamlet.base.errors import SettingError, StreamletError
from streamlet.coordination.ensemble import Ensemble
from streamlet.coordination.node_store import NodeMissing, NodeStore
from streamlet.kafka.broker_errors import InvalidTopic, UnknownTopicOrPartition, error_class
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataTopic
from streamlet.spouts.kafka.activity import Background, Steps, answer_to
from streamlet.spouts.kafka.chosen_topics import ChosenTopics
from streamlet.spouts.kafka.errors import NoBrokers, NoSuchTopic, NoUsableListener, UnreadableNode
from streamlet.spouts.kafka.partition import Broker, FoundTopics, GlobalPartitionInformation


@dataclass(frozen=True)
class StaticHosts:
    """Partition number -> broker, written by hand: ``StaticHosts({0: "kafka1:9092"})``.

    The list may name a few partitions only. It is taken at its word: nothing is looked up again. When a broker stops
    leading its partition, the spout stops with a message that names the new leader and the two remedies.
    """

    leaders: Mapping[int, Broker | str]

    def __post_init__(self) -> None:
        if not isinstance(self.leaders, Mapping) or not self.leaders:
            raise SettingError(
                "StaticHosts needs at least one partition, as a mapping from partition number to broker: "
                'StaticHosts({0: "kafka1:9092", 1: "kafka2:9092"}).'
            )
        parsed: dict[int, Broker | str] = {}
        for number, broker in self.leaders.items():
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise SettingError(f"StaticHosts: {number!r} is not a partition number. They are integers from 0.")
            parsed[number] = broker if isinstance(broker, Broker) else Broker.parse(broker)
        object.__setattr__(self, "leaders", MappingProxyType(parsed))

    @property
    def brokers(self) -> dict[int, Broker]:
        """The parsed brokers by partition number."""
        return {n: b for n, b in self.leaders.items() if isinstance(b, Broker)}

    # A frozen dataclass would hash the mapping itself, which has no hash.
    def __hash__(self) -> int:
        return hash(frozenset(self.leaders.items()))


@dataclass(frozen=True)
class ZkHosts:
    """The ZooKeeper of a Kafka cluster up to version 3.9: ``ZkHosts("zk1:2181,zk2:2181")``.

    ``broker_zk_str``: the ensemble, with its chroot at the end if it has one (``zk1:2181,zk2:2181/kafka``).
    ``broker_zk_path``: where Kafka keeps its nodes there (``/brokers``, or ``/chroot/brokers``).
    ``refresh_freq_secs``: seconds between two refreshes of partitions and leaders; a failed fetch causes one too.
    ``digest``: user and password for a ZooKeeper that asks for them; used for the offsets there too.
    Kafka 4 has no ZooKeeper: use KafkaHosts for it.
    """

    broker_zk_str: str
    broker_zk_path: str = "/brokers"
    refresh_freq_secs: float = 60.0
    digest: tuple[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_digest("ZkHosts", self.digest)
        if not isinstance(self.broker_zk_str, str) or not self.broker_zk_str.strip():
            raise SettingError('ZkHosts needs the addresses of ZooKeeper: ZkHosts("zk1:2181,zk2:2181").')
        Ensemble.parse(self.broker_zk_str)
        if not self.broker_zk_path.startswith("/"):
            raise SettingError(f"ZkHosts: broker_zk_path is {self.broker_zk_path!r}; it begins with a slash.")
        _check_refresh("ZkHosts", self.refresh_freq_secs)


@dataclass(frozen=True)
class KafkaHosts:
    """Bootstrap servers of any Kafka: ``KafkaHosts("kafka1:9092,kafka2:9092")``; one that answers is enough.

    ``refresh_freq_secs``: seconds between two refreshes of partitions and leaders; a failed fetch causes one too.
    """

    bootstrap_servers: str | Sequence[str]
    refresh_freq_secs: float = 60.0

    def __post_init__(self) -> None:
        listed = self.bootstrap_servers
        texts = listed.split(",") if isinstance(listed, str) else list(listed)
        brokers = tuple(str(Broker.parse(text)) for text in texts if text.strip())
        if not brokers:
            raise SettingError('KafkaHosts needs at least one address: KafkaHosts("kafka1:9092,kafka2:9092").')
        object.__setattr__(self, "bootstrap_servers", brokers)
        _check_refresh("KafkaHosts", self.refresh_freq_secs)

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """The bootstrap servers, parsed."""
        return tuple(Broker.parse(text) for text in self.bootstrap_servers)


BrokerHosts = StaticHosts | ZkHosts | KafkaHosts


def hosts_from_text(text: str, before: BrokerHosts) -> BrokerHosts:
    """Parse ``zk://h:p,h:p[/chroot]`` or ``kafka://h:p,h:p`` of a command line. Raises SettingError.

    When the kind stays the same, the other settings of ``before`` (refresh, path of the brokers) are kept.

    >>> hosts_from_text("zk://zk1:2181,zk2:2181/kafka", ZkHosts("elsewhere", refresh_freq_secs=5.0))
    ZkHosts(broker_zk_str='zk1:2181,zk2:2181', broker_zk_path='/kafka/brokers', refresh_freq_secs=5.0)
    """
    kind, _, rest = text.partition("://")
    addresses, slash, path = rest.partition("/")
    if kind == "zk" and addresses:
        Ensemble.parse(rest)
        kept = before if isinstance(before, ZkHosts) else ZkHosts(addresses)
        brokers = f"/{path.strip('/')}/brokers" if path.strip("/") else kept.broker_zk_path
        return replace(kept, broker_zk_str=addresses, broker_zk_path=brokers)
    if kind == "kafka" and addresses and not slash:
        kept_kafka = before if isinstance(before, KafkaHosts) else KafkaHosts(addresses)
        return replace(kept_kafka, bootstrap_servers=addresses)
    raise SettingError(
        f"SpoutConfig: hosts cannot be {text!r}: as text it is zk://HOST:PORT,... (a ZooKeeper, Kafka up to 3.9) or "
        "kafka://HOST:PORT,... (bootstrap servers). StaticHosts can be written in the topology only."
    )


def check_digest(kind: str, digest: object) -> None:
    """Raise SettingError, without the password, unless ``digest`` is user and password."""
    if digest is None:
        return
    if not (isinstance(digest, tuple) and len(digest) == 2 and all(isinstance(part, str) and part for part in digest)):
        raise SettingError(f'{kind}: digest is a pair of user and password: digest=("user", password).')
    if ":" in digest[0]:
        raise SettingError(f"{kind}: digest's user is {digest[0]!r}; ZooKeeper's users have no colon in their names.")


def _check_refresh(kind: str, seconds: float) -> None:
    if not seconds > 0:
        raise SettingError(f"{kind}: refresh_freq_secs is {seconds!r}; it is a number of seconds above 0.")


class BrokerReader(Protocol):
    """A source of partitions and leaders."""

    def get_current_brokers(self) -> Steps[FoundTopics]:
        """Look now. Raises errors of the source when it does not answer."""


class StaticBrokerReader:
    """The user's own list, at every look."""

    def __init__(self, topic: str, hosts: StaticHosts) -> None:
        self._look = FoundTopics({topic: GlobalPartitionInformation(topic, hosts.brokers, by_position=True)})

    def get_current_brokers(self) -> Steps[FoundTopics]:
        yield from ()
        return self._look


class KafkaBrokerReader:
    """The topics' metadata, from any broker; that of all topics where they are chosen by a pattern."""

    def __init__(self, choice: ChosenTopics, client: KafkaClient) -> None:
        self._choice = choice
        self._client = client

    def get_current_brokers(self) -> Steps[FoundTopics]:
        choice = self._choice
        asked = None if choice.pattern else tuple(MetadataRequestTopic(name=name) for name in choice.names)
        response = yield from answer_to(self._client.send(MetadataRequest(topics=asked)))
        brokers = {row.node_id: Broker(row.host, row.port) for row in response.brokers}
        found: dict[str, GlobalPartitionInformation] = {}
        unclear: dict[str, StreamletError] = {}
        for topic in response.topics:
            name = topic.name or ""
            if not choice.takes(name) or (choice.pattern and topic.is_internal):
                continue
            kind = error_class(topic.error_code)
            # Rule: one topic that is gone, or has no leaders yet, holds up no other.
            if kind in (UnknownTopicOrPartition, InvalidTopic):
                continue
            if kind is not None:
                unclear[name] = kind(f"The metadata of topic {name!r} could not be read")
            else:
                found[name] = _partitions_of(topic, brokers)
        gone = [name for name in choice.names if name not in found and name not in unclear]
        return FoundTopics(found, (yield from self._missing(gone, brokers)) if gone else {}, unclear)

    def _missing(self, names: list[str], brokers: Mapping[int, Broker]) -> Steps[dict[str, StreamletError]]:
        where = f"says {', '.join(map(str, brokers.values())) or 'the cluster'}"
        # One of several may stay away while the others are read: not all topics are asked for at each look then.
        others = [] if self._choice.several else (yield from self._others())
        return {name: NoSuchTopic(name, where, self._choice.setting, others) for name in names}

    def _others(self) -> Steps[list[str]]:
        """Ask for the names of all topics; none where that fails: they are for an error's text only."""
        try:
            response = yield from answer_to(self._client.send(MetadataRequest(topics=None)))
        except KafkaError:
            return []
        # Not its own: a broker that is asked later may know a topic that is just being made.
        return [
            row.name
            for row in response.topics
            if row.name and row.name not in self._choice.names and not row.error_code
        ]


def _partitions_of(topic: MetadataTopic, brokers: Mapping[int, Broker]) -> GlobalPartitionInformation:
    leaders = {row.partition_index: brokers.get(row.leader_id) for row in topic.partitions}
    epochs = {row.partition_index: row.leader_epoch for row in topic.partitions}
    return GlobalPartitionInformation(topic.name or "", leaders, topic_id=topic.topic_id, leader_epochs=epochs)


class ZkBrokerReader:
    """The nodes of Kafka up to 3.9 in its ZooKeeper: ``<brokers>/topics/<topic>``, ``<brokers>/ids``."""

    def __init__(
        self,
        choice: ChosenTopics,
        nodes: NodeStore,
        background: Background,
        brokers_path: str,
        servers: str,
        security_protocol: str = "PLAINTEXT",
    ) -> None:
        self._security_protocol = security_protocol
        self._choice = choice
        self._nodes = nodes
        self._background = background
        self._path = brokers_path.rstrip("/")
        self._where = f"ZooKeeper {servers}"

    def get_current_brokers(self) -> Steps[FoundTopics]:
        return (yield from self._background.run(self._read_topics))

    def read_brokers(self) -> dict[int, Broker]:
        """Return the living brokers by id. Blocks. Raises NoBrokers, NoUsableListener, node store errors."""
        try:
            ids = self._nodes.children(f"{self._path}/ids")
        except NodeMissing:
            ids = []
        brokers: dict[int, Broker] = {}
        for name in ids:
            found = self._nodes.get(f"{self._path}/ids/{name}")
            if found is not None and (number := _number(name)) is not None:
                brokers[number] = self._endpoint(name, _json(found[0]))
        if not brokers:
            raise NoBrokers(
                f"{self._where} has no broker under {self._path}/ids: no Kafka that lives in this ZooKeeper is "
                "running. Start it, or correct the address or broker_zk_path. A Kafka without ZooKeeper (every 4.x) is "
                "found with KafkaHosts."
            )
        return brokers

    def _read_topics(self) -> FoundTopics:
        brokers, choice = self.read_brokers(), self._choice
        names = list(choice.names)
        if choice.pattern:
            names = [name for name in self._nodes.children(f"{self._path}/topics") if choice.takes(name)]
        looked = {name: self._read_topic(name, brokers) for name in names}
        found = {name: info for name, info in looked.items() if info is not None}
        return FoundTopics(found, {name: self._missing(name) for name in choice.names if name not in found})

    def _missing(self, name: str) -> NoSuchTopic:
        others = []
        with contextlib.suppress(NodeMissing):
            others = self._nodes.children(f"{self._path}/topics")
        where = f"{self._where} has no node {self._path}/topics/{name}"
        return NoSuchTopic(name, where, self._choice.setting, others)

    def _read_topic(self, name: str, brokers: Mapping[int, Broker]) -> GlobalPartitionInformation | None:
        topic_path = f"{self._path}/topics/{name}"
        found = self._nodes.get(topic_path)
        if found is None:
            return None
        topic = _json(found[0])
        assignment = topic.get("partitions")
        if not isinstance(assignment, dict):
            # Not to be taken for a topic without partitions: the coordinator would close all of them.
            raise UnreadableNode(
                f"{self._where}: node {topic_path} holds no list of partitions, as Kafka writes it, but "
                f"{found[0][:60]!r}. See who writes there, or correct broker_zk_path."
            )
        # The list of partitions is the topic's own assignment, not the list of leaders (STORM-1682): a partition
        # without a leader, or whose leader's node is gone for a moment, is listed with None and never left out.
        leaders: dict[int, Broker | None] = {}
        epochs: dict[int, int] = {}
        for number in sorted(number for name in assignment if (number := _number(name)) is not None):
            found = self._nodes.get(f"{topic_path}/partitions/{number}/state")
            state = {} if found is None else _json(found[0])
            leaders[number] = brokers.get(_int32(state.get("leader")))
            epochs[number] = _int32(state.get("leader_epoch"))
        topic_id = topic.get("topic_id")
        return GlobalPartitionInformation(
            name, leaders, topic_id=topic_id if isinstance(topic_id, str) else None, leader_epochs=epochs
        )

    def _endpoint(self, name: str, node: dict[str, Any]) -> Broker:
        # Look at `endpoints` alone: `host` and `port` are null for a broker without a PLAINTEXT listener, and name one
        # listener of several otherwise.
        protocols, listed = node.get("listener_security_protocol_map"), node.get("endpoints")
        protocols = protocols if isinstance(protocols, dict) else {}
        endpoints = [str(endpoint) for endpoint in listed] if isinstance(listed, list) else []
        for endpoint in endpoints:
            listener, _, address = endpoint.partition("://")
            if protocols.get(listener, listener) == self._security_protocol:
                try:
                    return Broker.parse(address)
                except SettingError as err:
                    raise UnreadableNode(
                        f"Broker {name} in {self._where} says that it listens at {endpoint[:80]!r}, which is not an "
                        "address. Correct the broker's `advertised.listeners`."
                    ) from err
        raise NoUsableListener(
            f"Broker {name} in {self._where} has no {self._security_protocol} listener (it offers: "
            f"{', '.join(endpoints) or 'none'}). Set security_protocol to what one of them speaks, or add such a "
            "listener to the broker's `listeners`, for the hosts that streamlet runs on."
        )


def _json(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(name: str) -> int | None:
    """Parse the number of a broker or partition; None for any other name."""
    number = int(name) if name.isascii() and name.isdigit() and len(name) <= 10 else -1
    return number if 0 <= number < 1 << 31 else None


def _int32(value: object) -> int:
    """Return a number that fits into a request of Kafka; -1 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else -1
