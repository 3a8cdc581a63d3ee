"""Broker readers: one look at a topic's partitions and leaders, from three sources (SEEDMAP K1)."""

from __future__ import annotations

import json
from typing import Any, Protocol

from streamlet.base.errors import SettingError, StreamletError
from streamlet.coordination import NodeMissing, NodeStore
from streamlet.kafka.broker_errors import InvalidTopic, UnknownTopicOrPartition, error_class
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from streamlet.spouts.kafka.connections import Answer
from streamlet.spouts.kafka.errors import NoSuchTopic
from streamlet.spouts.kafka.hosts import StaticHosts
from streamlet.spouts.kafka.partition import Broker, GlobalPartitionInformation
from streamlet.spouts.kafka.steps import Background, Steps


class NoUsableListener(StreamletError):
    """A broker offers no listener of the security protocol that was set."""


class UnreadableNode(StreamletError):
    """A node of Kafka's holds something else than Kafka writes there."""


class NoBrokers(StreamletError):
    """ZooKeeper knows no living broker."""

    retriable = True


class BrokerReader(Protocol):
    """A source of partition information."""

    def get_current_brokers(self) -> Steps[GlobalPartitionInformation]:
        """Look now. Raises NoSuchTopic, and what the source raises when it does not answer."""
        ...


class StaticBrokerReader:
    """What the user wrote, every time."""

    def __init__(self, topic: str, hosts: StaticHosts) -> None:
        self._info = GlobalPartitionInformation(topic, hosts.brokers, by_position=True)

    def get_current_brokers(self) -> Steps[GlobalPartitionInformation]:
        yield from ()
        return self._info


class KafkaBrokerReader:
    """The topic's metadata from any broker."""

    def __init__(self, topic: str, client: KafkaClient) -> None:
        self._topic = topic
        self._client = client

    def get_current_brokers(self) -> Steps[GlobalPartitionInformation]:
        request = MetadataRequest(topics=(MetadataRequestTopic(name=self._topic),))
        answer = Answer(self._client.send(request))
        yield answer
        response = answer.value()
        brokers = {row.node_id: Broker(row.host, row.port) for row in response.brokers}
        for topic in response.topics:
            if topic.name != self._topic:
                continue
            kind = error_class(topic.error_code)
            if kind in (UnknownTopicOrPartition, InvalidTopic):
                raise NoSuchTopic(self._topic, f"says {', '.join(map(str, brokers.values())) or 'the cluster'}")
            if kind is not None:
                raise kind(f"The metadata of topic {self._topic!r} could not be read")
            leaders = {row.partition_index: brokers.get(row.leader_id) for row in topic.partitions}
            epochs = {row.partition_index: row.leader_epoch for row in topic.partitions}
            return GlobalPartitionInformation(self._topic, leaders, topic_id=topic.topic_id, leader_epochs=epochs)
        raise NoSuchTopic(self._topic, "the metadata does not mention it")


class ZkBrokerReader:
    """What Kafka up to 3.9 keeps in its ZooKeeper: ``<brokers>/topics/<topic>`` and ``<brokers>/ids``.

    The list of partitions is the topic's own assignment, so a partition without a leader (or whose leader's node is
    gone for a moment) is listed without one, and never left out (trap T9, STORM-1682).
    """

    def __init__(
        self,
        topic: str,
        nodes: NodeStore,
        background: Background,
        brokers_path: str,
        servers: str,
        security_protocol: str = "PLAINTEXT",
    ) -> None:
        self._security_protocol = security_protocol
        self._topic = topic
        self._nodes = nodes
        self._background = background
        self._path = brokers_path.rstrip("/")
        self._where = f"ZooKeeper {servers}"

    def get_current_brokers(self) -> Steps[GlobalPartitionInformation]:
        look = self._background.submit(self._look)
        yield look
        return look.result()

    def read_brokers(self) -> dict[int, Broker]:
        """Living brokers by id. Blocks. Raises NoBrokers, NoUsableListener and the node store's errors."""
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

    def _look(self) -> GlobalPartitionInformation:
        brokers = self.read_brokers()
        topic_path = f"{self._path}/topics/{self._topic}"
        found = self._nodes.get(topic_path)
        if found is None:
            raise NoSuchTopic(self._topic, f"{self._where} has no node {topic_path}")
        topic = _json(found[0])
        assignment = topic.get("partitions")
        if not isinstance(assignment, dict):
            # To take it for a topic without partitions would give all of them up.
            raise UnreadableNode(
                f"{self._where}: node {topic_path} holds no list of partitions, as Kafka writes it, but "
                f"{found[0][:60]!r}. See who writes there, or correct broker_zk_path."
            )
        leaders: dict[int, Broker | None] = {}
        epochs: dict[int, int] = {}
        for number in sorted(number for name in assignment if (number := _number(name)) is not None):
            found = self._nodes.get(f"{topic_path}/partitions/{number}/state")
            state = {} if found is None else _json(found[0])
            leaders[number] = brokers.get(_int32(state.get("leader")))
            epochs[number] = _int32(state.get("leader_epoch"))
        topic_id = topic.get("topic_id")
        return GlobalPartitionInformation(
            self._topic,
            leaders,
            topic_id=topic_id if isinstance(topic_id, str) else None,
            leader_epochs=epochs,
        )

    def _endpoint(self, name: str, node: dict[str, Any]) -> Broker:
        # `host` and `port` are null for a broker without a PLAINTEXT listener, and only ever name one of several.
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
                        f"Broker {name} in {self._where} says that it listens at {endpoint[:80]!r}, which is no "
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
    """The number of a broker or partition; None for a name that is none."""
    number = int(name) if name.isascii() and name.isdigit() and len(name) <= 10 else -1
    return number if 0 <= number < 1 << 31 else None


def _int32(value: object) -> int:
    """A number that goes into Kafka's requests; -1 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else -1
