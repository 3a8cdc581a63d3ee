"""Ways to share partitions out among a group. Pure: same members and topics, same shares."""

from __future__ import annotations

from collections.abc import Sequence

from streamlet.base.errors import SettingError
from streamlet.kafka.consumer.assignors.base import PartitionAssignor, RebalanceProtocol
from streamlet.kafka.consumer.assignors.stateless import RangeAssignor, RoundRobinAssignor
from streamlet.kafka.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "AssignorLike",
    "CooperativeStickyAssignor",
    "PartitionAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "common_protocol",
    "resolve_assignor",
]

AssignorLike = str | PartitionAssignor | type[PartitionAssignor]

_KNOWN: dict[str, type[PartitionAssignor]] = {
    kind.name: kind for kind in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}


def resolve_assignor(given: AssignorLike) -> PartitionAssignor:
    """Return an assignor from its name, class or object. Raises SettingError."""
    if isinstance(given, str):
        if given not in _KNOWN:
            raise SettingError(
                f"partition_assignment_strategy names {given!r}, which is not an assignor: choose from "
                f"{', '.join(sorted(_KNOWN))}, or give an object of your own."
            )
        return _KNOWN[given]()
    found = given() if isinstance(given, type) else given
    if not isinstance(found, PartitionAssignor):
        raise SettingError(
            f"partition_assignment_strategy has {given!r}, which is not a PartitionAssignor: derive it from that class."
        )
    return found


def common_protocol(assignors: Sequence[PartitionAssignor]) -> RebalanceProtocol:
    """Return the highest protocol that all assignors speak. Raises SettingError."""
    shared = set(RebalanceProtocol).intersection(*(assignor.protocols for assignor in assignors))
    if not shared:
        names = ", ".join(assignor.name for assignor in assignors)
        raise SettingError(f"The assignors {names} share no rebalance protocol: choose ones that do.")
    return max(shared)
