"""The XOR ledger of tuple trees (Storm's acker), beside the spout task it serves.

Every edge of a tree is a random 64-bit number that is XORed into the tree's value twice: when the tuple is emitted and
when it is acked. The value is zero when, and but for one chance in 2**64 only when, all are acked. XOR does not care
about order, so deltas may arrive in any. It does care about number: a delta that is applied twice is a false ack, which
is why links never resend.

A root is opened before anything of it can come back, so a delta for a root that is not open is late, not early.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from streamlet.tracking.roots import entry_of


class AckLedger:
    """Values of the open trees by root. One thread.

    A set of trees (``tracking.roots``) has one entry, under its first root: the XOR of all edges of all its trees. It
    is zero when every tuple of every tree is done. So a tuple that fails must be XORed out, too, as if it were acked:
    which trees have failed, ``PendingSet`` knows.

    A tree is opened by its first edges' XOR in ``open``. All methods are O(number of roots given), and pass over roots
    that are not open: deltas and failures that are late, after a time-out, a failure or the loss of a link.
    """

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.open)

    def apply(self, deltas: Iterable[tuple[int, int]]) -> list[int]:
        """XOR (root, delta) pairs in; return the roots of completed trees."""
        trees = self.open
        get = trees.get
        done = []
        for root, delta in deltas:
            value = get(root)
            if value is None and root & 1:
                root = entry_of(root)
                value = get(root)
            if value is None:
                continue
            # Zero after this delta: it cancels all that is left.
            if value == delta:
                del trees[root]
                done.append(root)
            else:
                trees[root] = value ^ delta
        return done

    def fail(self, roots: Iterable[int]) -> list[int]:
        """Close trees, or whole sets, as failed; return the given roots that were open."""
        return [root for root in roots if self.open.pop(root, None) is not None]

    def fail_all(self) -> list[int]:
        """Close every tree as failed: a lost link may have carried it."""
        failed = list(self.open)
        self.open.clear()
        return failed

    def below(self, bound: int) -> list[int]:
        """Return the open roots below ``bound``, oldest first."""
        # Roots grow and a dictionary keeps its order, so the oldest stand first.
        return list(takewhile(lambda root: root < bound, self.open))
