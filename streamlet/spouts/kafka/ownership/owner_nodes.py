"""Who reads a topic, in ZooKeeper: the node ``zk_root/id/owners``, its words and its children. Pure.

The node's words name the *newest run*: each run writes its name there once, so the order of these writes, and no host's
clock, says which run is the newest. Its children are ephemeral, ``RUN-COMPONENT-TASK-EPOCH``: one for each task that
may emit or is about to. A task of the newest run may emit once no other run has a child; a task of an older run stops,
and only then deletes its own. A child goes with the session of its task, so a killed run is waited for until then.

Why no two runs emit at once: a task makes its child before it reads the words, and a run writes the words before it
reads the list of children. So either the older task reads the newer run's name, or the newer run sees its child.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from streamlet.components.context import TopologyContext
from streamlet.coordination.node_store import NodeMissing, NodeStore

FORMER_RUNS = 50
"""Former runs whose names are kept: a task of one of them that starts late must not take the topic back."""


@dataclass(frozen=True, slots=True)
class TaskNode:
    """One start of a task of a run."""

    run: str
    topology: str
    task: str
    """Component and index: ``lines-0``."""
    epoch: int

    @classmethod
    def of(cls, context: TopologyContext) -> TaskNode:
        """Return the node of the task that runs in this context."""
        task = f"{context.component_name}-{context.task_index}"
        return cls(context.topology_id, context.topology_name, task, context.epoch)

    @property
    def name(self) -> str:
        """The name among the owners."""
        return f"{self.run}-{self.task}-{self.epoch}"

    def words(self, holder: str) -> bytes:
        """Return the node's data. ``holder``: differs for each process that ever makes this node."""
        return json.dumps({"run": self.run, "topology": self.topology, "task": self.task, "holder": holder}).encode()

    def others(self, names: Iterable[str]) -> list[str]:
        """Return the nodes that belong to other runs."""
        return [name for name in names if not name.startswith(f"{self.run}-")]

    def predecessors(self, names: Iterable[str]) -> list[str]:
        """Return the nodes of this task's earlier epochs."""
        return [name for name, epoch in self._epochs(names) if epoch < self.epoch]

    def is_replaced(self, names: Iterable[str]) -> bool:
        """Return whether a later epoch of this task has a node."""
        return any(epoch > self.epoch for _, epoch in self._epochs(names))

    def _epochs(self, names: Iterable[str]) -> list[tuple[str, int]]:
        start = f"{self.run}-{self.task}-"
        rests = [(name, name[len(start) :]) for name in names if name.startswith(start)]
        return [(name, int(rest)) for name, rest in rests if rest.isascii() and rest.isdigit()]


@dataclass(frozen=True, slots=True)
class NewestRun:
    """The words of the node ``owners``: the run that came last, and those before it, the latest first."""

    run: str
    topology: str
    former: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the node's data."""
        return json.dumps({"run": self.run, "topology": self.topology, "former": self.former}).encode()

    @classmethod
    def decode(cls, data: bytes) -> NewestRun | None:
        """Read the node's data; None where no run has written it."""
        row = _fields(data)
        former = row.get("former", [])
        if not isinstance(former, list) or not all(isinstance(each, str) for each in (row.get("run"), *former)):
            return None
        return cls(row["run"], str(row.get("topology", "")), tuple(former))


def claimed(found: NewestRun | None, me: TaskNode, *, had_it: bool) -> NewestRun | None:
    """Return the words that make our run the newest; None: leave them.

    They stay where they name our run, or one that came after it. ``had_it``: this task has read its run's name there.
    """
    if found is None:
        return NewestRun(me.run, me.topology)
    # Rule: a run comes once. One that was paused, or a worker of it that starts late, would take the topic back.
    if found.run == me.run or had_it or me.run in found.former:
        return None
    return NewestRun(me.run, me.topology, (found.run, *found.former)[:FORMER_RUNS])


def announced(nodes: NodeStore, root: str) -> list[str]:
    """Return the tasks that run, each as one phrase. Blocks. Raises errors of the node store."""
    try:
        names = nodes.children(f"{root}/owners")
    except NodeMissing:
        return []
    return phrases(nodes, root, names)


def phrases(nodes: NodeStore, root: str, names: Iterable[str]) -> list[str]:
    """Return what these nodes say of their tasks. Blocks. Raises errors of the node store."""
    found = {name: nodes.get(f"{root}/owners/{name}") for name in names}
    return [_phrase(name, node[0]) for name, node in found.items() if node is not None]


def _phrase(name: str, data: bytes) -> str:
    row = _fields(data)
    if not all(isinstance(row.get(each), str) for each in ("task", "topology", "run")):
        return f"task {name}"
    return f"task {row['task']} of topology {row['topology']!r} (run {row['run'][:8]})"


def _fields(data: bytes) -> dict[str, Any]:
    try:
        row = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}
