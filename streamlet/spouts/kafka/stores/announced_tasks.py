"""Running tasks in ZooKeeper: an ephemeral node each, ``zk_root/id/owners/RUN-COMPONENT-TASK-EPOCH``.

The node of a partition outlives its owner, so it does not say whether anything runs. These nodes do: they go with the
session of the task, at its end or a session time-out after its process was killed. They protect nothing; what keeps two
owners apart are the versions of the partitions' nodes.
"""

from __future__ import annotations

import json

from streamlet.components.context import TopologyContext
from streamlet.coordination.node_store import NodeMissing, NodeStore


def announce(nodes: NodeStore, root: str, context: TopologyContext) -> None:
    """Tell that a task runs, until its session ends. Never blocks."""
    run, task = context.topology_id, f"{context.component_name}-{context.task_index}"
    told = {"run": run, "topology": context.topology_name, "task": task}
    nodes.announce(f"{root}/owners/{run}-{task}-{context.epoch}", json.dumps(told).encode())


def announced(nodes: NodeStore, root: str) -> list[str]:
    """Return the tasks that run, each as one phrase. Blocks. Raises errors of the node store."""
    try:
        names = nodes.children(f"{root}/owners")
    except NodeMissing:
        return []
    found = {name: nodes.get(f"{root}/owners/{name}") for name in names}
    return [_phrase(name, node[0]) for name, node in found.items() if node is not None]


def _phrase(name: str, data: bytes) -> str:
    try:
        told = json.loads(data)
        return f"task {told['task']} of topology {told['topology']!r} (run {told['run'][:8]})"
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"task {name}"
