"""Which replica a partition is read from (KIP-392). Pure.

A leader that hears of a rack may name a replica there, in place of records. It is read from for a time, then the leader
is asked again.
"""

from __future__ import annotations

from dataclasses import dataclass

SOON_S = 5.0
"""Seconds without the rack after an election, or for a replica that is not in the metadata yet."""


@dataclass(slots=True)
class NearerReplica:
    """Where one partition is read from; times in monotonic seconds."""

    node: int | None = None
    """The replica that the leader has named; None: the leader is read from."""
    until_s: float = 0.0
    """When the leader is asked with the rack, in either case."""

    def named(self, node: int, until_s: float) -> None:
        """Read from a replica for a time."""
        self.node, self.until_s = node, until_s

    def failed(self, until_s: float) -> None:
        """Read from the leader for a time, without the rack."""
        # Rule: a leader names a replica that it knows to be alive, and sends no records. If that one is out of reach
        # from here, or behind, it would be named at each fetch, and nothing would ever come.
        self.node, self.until_s = None, until_s

    def forget(self) -> None:
        """Leave the replica that was named: the leader, or the position, is another one."""
        # A failure counts on: the same replica is out of reach for each leader and position.
        if self.node is not None:
            self.node, self.until_s = None, 0.0

    def at(self, now_s: float) -> int | None:
        """Return the replica to read from now; None: the leader."""
        return self.node if now_s < self.until_s else None

    def hides_rack(self, now_s: float) -> bool:
        """Tell whether the leader is to hear no rack now."""
        return self.node is None and now_s < self.until_s
