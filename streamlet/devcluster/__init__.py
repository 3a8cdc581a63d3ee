"""Real ZooKeeper and Kafka on loopback, as a kit: ``DevCluster`` for tests, ``streamlet dev`` for people."""

from streamlet.devcluster.dev_cluster import DevCluster
from streamlet.devcluster.errors import ClusterFailed, DevStackError, JarsUnavailable, JavaMissing, ToolFailed
from streamlet.devcluster.tools import GroupOffset, PartitionState

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
