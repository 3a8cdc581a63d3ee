"""The tuple a bolt receives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

OPEN = 0
ACKED = 1
FAILED = 2


class Tuple:
    """One message: ``values`` in the order of the stream's fields, and where they came from.

    ``component``, ``stream`` and ``task`` name the sender. The rest belongs to tracking: ``root`` and ``edge``
    are the tree and this tuple's edge in it (root 0: not tracked), ``children`` the XOR of the edges
    anchored to it so far, ``anchors`` the (root, edge) pairs of a tuple with several roots, else None.
    """

    # Slots and no dataclass: one is made for each tuple that a bolt receives, or filled again where nobody kept it.
    __slots__ = ("anchors", "children", "component", "edge", "root", "state", "stream", "task", "values")

    def __init__(
        self,
        values: Sequence[Any],
        component: str = "",
        stream: str = "default",
        task: int = 0,
        root: int = 0,
        edge: int = 0,
        anchors: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self.values = values
        self.component = component
        self.stream = stream
        self.task = task
        self.root = root
        self.edge = edge
        self.anchors = anchors
        self.children = 0
        self.state = OPEN

    @property
    def id(self) -> int:
        """A number that is unique in its tree (pystorm's ``tup.id``)."""
        return self.edge

    def __repr__(self) -> str:
        return f"Tuple({self.values!r}, from {self.component}[{self.stream}] task {self.task})"


TICK_COMPONENT = "__system"
TICK_STREAM = "__tick"


# A root of 0 is nobody's tree: acking or failing a tick has no effect on any spout.
def tick_tuple(period_s: float) -> Tuple:
    """Make the tuple for ``process_tick``. Never tracked, never emitted on a stream of the user's."""
    return Tuple((period_s,), TICK_COMPONENT, TICK_STREAM)
