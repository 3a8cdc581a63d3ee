"""Where each partition of a task is read from: its leader, or a nearer replica that the leader has named (KIP-392)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from streamlet.kafka.errors import Disconnected, KafkaError
from streamlet.kafka.fetch.nearer_replica import SOON_S, NearerReplica
from streamlet.spouts.kafka.broker_connections import Connection, DynamicPartitionConnections
from streamlet.spouts.kafka.partition import Broker, Partition

NEARER_S = 300.0
"""Seconds until a leader is asked again which replica is nearer; Java's age of metadata."""

log = logging.getLogger(__name__)


class ReadSources:
    """Finds the connection for each partition's next fetch. ``is_free`` tells whether a broker owes no answer."""

    def __init__(self, connections: DynamicPartitionConnections, is_free: Callable[[Broker], bool]) -> None:
        self._connections = connections
        self._is_free = is_free
        self._nearer: dict[Partition, NearerReplica] = {}
        """Of partitions whose leader has named a replica."""
        self._told: dict[Partition, Broker] = {}
        """Replicas that partitions are read from, as the log says."""

    def of(self, partition: Partition, now_s: float) -> Connection | None:
        """Return the connection for a partition's next fetch; None: it has no leader."""
        if not self._nearer:
            return self._connections.get_connection(partition)
        read = self._connections.read_connection(partition)
        nearer = self._nearer.get(partition)
        # The leader is asked between two fetches at the replica: of two answers one would be of no use. The way to the
        # replica stays open meanwhile, for mostly it is named again.
        if read is None or nearer is None or now_s < nearer.until_s or not self._is_free(read.broker):
            return read
        return self._connections.get_connection(partition)

    def nearer(self, partition: Partition) -> Broker | None:
        """Return the replica that a partition is read from; None: its leader."""
        return self._told.get(partition)

    def hides_rack(self, partitions: Iterable[Partition], now_s: float) -> bool:
        """Tell whether a request for these partitions names no rack."""
        known = [self._nearer[partition] for partition in partitions if partition in self._nearer]
        return any(nearer.hides_rack(now_s) for nearer in known)

    def named(self, partition: Partition, node: int, now_s: float) -> None:
        """Read on from the replica that the leader has named."""
        nearer = self._nearer.setdefault(partition, NearerReplica())
        leader = self._connections.get_connection(partition)
        replica = None if leader is None else leader.client.cluster.brokers.get(node)
        if replica is not None:
            near = Broker(replica.host, replica.port)
            nearer.named(node, now_s + NEARER_S)
            self._connections.read_from(partition, near)
            self._tell(partition, near)
        elif leader is not None:
            # It was away when the metadata came, or is new.
            nearer.failed(now_s + SOON_S)
            leader.client.metadata.request_update(reset_equivalent=False)

    def read(self, partition: Partition, broker: Broker) -> None:
        """Note an answer that names no replica; a leader's ends the reading elsewhere."""
        leader = self._connections.get_connection(partition)
        if partition in self._nearer and leader is not None and leader.broker == broker:
            nearer = self._nearer[partition]
            if nearer.node is not None:  # it was asked again, and names none
                del self._nearer[partition]
                self._connections.read_from_leader(partition)
            self._tell(partition, None)

    def failed(self, partition: Partition, broker: Broker, error: KafkaError, now_s: float) -> bool:
        """Note a failed read at a broker; return whether to report it."""
        leader, read = self._connections.get_connection(partition), self._connections.read_connection(partition)
        if broker not in [one.broker for one in (leader, read) if one is not None]:
            return False  # it is read from elsewhere by now
        if read is leader or read is None or read.broker != broker:
            return True
        self.avoid_nearer(partition, error, now_s)
        # Whatever else a follower lacks, the leader may have; if not, the leader says so.
        return _is_of_an_election(error)

    def avoid_nearer(self, partition: Partition, error: KafkaError, now_s: float) -> None:
        """Leave a nearer replica for the leader, for a time."""
        nearer = self._nearer.get(partition)
        if nearer is None or nearer.node is None:
            return
        # Of an election a replica may know before us. The next leader may name it again.
        seconds = SOON_S if _is_of_an_election(error) else NEARER_S
        nearer.failed(now_s + seconds)
        self._connections.read_from_leader(partition)
        self._told.pop(partition, None)
        log.warning("%s is read from its leader for %g s. %s", partition, seconds, error.message)

    def forget_closed(self) -> None:
        """Forget partitions that this task reads no more."""
        for partition in {*self._nearer, *self._told}:
            if self._connections.get_connection(partition) is None:
                self._nearer.pop(partition, None)
                self._told.pop(partition, None)

    def _tell(self, partition: Partition, near: Broker | None) -> None:
        if self._told.get(partition) == near:
            return
        if near is None:
            del self._told[partition]
            log.info("%s is read from its leader again, which names no replica for this rack", partition)
        else:
            self._told[partition] = near
            log.info("%s is read from %s, the replica that its leader names for this rack", partition, near)


def _is_of_an_election(error: KafkaError) -> bool:
    return error.stale_metadata and not isinstance(error, Disconnected)
