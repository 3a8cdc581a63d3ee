"""Real ZooKeeper and Kafka on loopback, as a kit: ``DevCluster`` for tests, ``streamlet dev`` for people."""

from streamlet.testing.cluster import DevCluster
from streamlet.testing.errors import ClusterFailed, DevStackError, JarsUnavailable, JavaMissing, ToolFailed
from streamlet.testing.tools import GroupOffset, PartitionState

__all__ = [
    "ClusterFailed",
    "DevCluster",
    "DevStackError",
    "GroupOffset",
    "JarsUnavailable",
    "JavaMissing",
    "PartitionState",
    "ToolFailed",
]
