"""Small shared state with versions: a port in raw words (nodes, bytes, versions) and what stands behind it.

Imports of ``zookeeper`` stay explicit, so that kazoo is loaded only by who uses it.
"""

from streamlet.coordination.memory import MemoryNodeStore, MemoryTree
from streamlet.coordination.node_store import (
    ANY_VERSION,
    AuthFailed,
    ConnectionState,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    NodeStore,
    NodeStoreError,
    NodeStoreUnavailable,
    NodeTooBig,
    VersionConflict,
)

__all__ = [
    "ANY_VERSION",
    "AuthFailed",
    "ConnectionState",
    "MemoryNodeStore",
    "MemoryTree",
    "NodeExists",
    "NodeMissing",
    "NodeNotEmpty",
    "NodeStore",
    "NodeStoreError",
    "NodeStoreUnavailable",
    "NodeTooBig",
    "VersionConflict",
]
