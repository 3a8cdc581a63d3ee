"""Several trees that share an edge: a tuple emitted for a whole batch belongs to each tree of it.

The XOR of a tree does not mind that another tree has the same edge, so one random number serves every tree of a batch,
and an ack of such a tuple is one delta for all of them, until it reaches the ledgers. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from streamlet.tracking.roots import SET_MASK, are_one_set, entry_of


class SharedRoots:
    """Several roots, each once, in the place of one.

    Equal to itself only: tuples emitted for one batch share one object, so a look-up costs what an int costs.
    """

    __slots__ = ("entries", "roots")

    def __init__(self, roots: Sequence[int], entries: Sequence[int] | None = None) -> None:
        self.roots = roots
        if entries is None:
            entries = [*dict.fromkeys([root & SET_MASK | 1 if root & 1 else root for root in roots])]
        self.entries = entries
        """The ledger's entries of these trees, each once: an edge is XORed into a set once, not into each tree."""

    def __repr__(self) -> str:
        return f"SharedRoots({self.roots!r})"


Root = int | SharedRoots
"""A tree, several, or none (0)."""


def as_one_root(roots: Sequence[Root]) -> Root:
    """Return these trees as one: 0, the only root, or SharedRoots."""
    first = roots[0] if roots else 0
    if not roots or (first == roots[-1] and roots.count(first) == len(roots)):
        return first
    if are_one_set(roots):
        return SharedRoots(roots, (entry_of(first),))  # type: ignore[arg-type]  # ints, by the question above
    # Each tree once. Twice the same edge would cancel out, and a tree be acked before its tuples are done.
    distinct = dict.fromkeys(roots)
    if SharedRoots in set(map(type, distinct)):
        distinct = dict.fromkeys(each_root(distinct))
    distinct.pop(0, None)
    if len(distinct) > 1:
        return SharedRoots([*distinct])  # type: ignore[list-item]  # no SharedRoots is left
    return next(iter(distinct), 0)


def each_root(roots: Iterable[Root]) -> Iterator[int]:
    """Yield each tree, 0 for each untracked tuple."""
    for root in roots:
        if isinstance(root, SharedRoots):
            yield from root.roots
        else:
            yield root


def each_entry(roots: Iterable[Root]) -> Iterator[int]:
    """Yield the ledger's entry of each tree, 0 for each untracked tuple."""
    for root in roots:
        if isinstance(root, SharedRoots):
            yield from root.entries
        else:
            yield entry_of(root)


def spread(deltas: dict[Root, int]) -> dict[int, int]:
    """Return deltas by tree or entry. Those of shared roots are XORed into each entry."""
    if SharedRoots not in set(map(type, deltas)):
        return deltas  # type: ignore[return-value]  # no SharedRoots among them
    by_root: dict[int, int] = {}
    for root, delta in deltas.items():
        if not isinstance(root, SharedRoots):
            by_root[root] = by_root.get(root, 0) ^ delta
        elif delta:  # 0 where all that was emitted for a batch was also done here since
            for one in root.entries:
                by_root[one] = by_root.get(one, 0) ^ delta
    return by_root
