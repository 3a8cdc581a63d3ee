"""How roots are numbered: whose ledger a tree belongs to, and which trees are one set.

    task | epoch (6 bits) | number (40 bits) | 1 for a last try | 1 for a tree of a set

Roots are unique, not random: only edges must be random. They grow with time. A *set* is up to 512 trees of tuples that
a spout emitted in one call; the ledger has one entry for all of them. Its numbers begin at a multiple of 512, and no
other tree has one of these 512 numbers, so a root alone tells its set.
"""

from __future__ import annotations

from collections.abc import Sequence

STEP = 4
"""Distance between two roots of one kind."""

LAST_TRY = 2
"""The bit of a tree whose message is given up when it fails once more: batches take its tuples alone."""

SET_TREES = 512
"""Most trees in a set."""

EPOCH_BITS = 6
NUMBER_BITS = 40

_SHIFT = NUMBER_BITS + 2
_INSIDE = SET_TREES * STEP - 1
"""The bits that tell the trees of one set apart."""

SET_MASK = ~_INSIDE
"""Bits that all trees of a set have alike; with the last one, its entry. For loops too hot for ``entry_of``."""


def first_root(task_id: int, epoch: int) -> int:
    """Return the first root of a spout task in an epoch; its roots grow from here.

    The task id stands in the high bits, so every worker that has a root knows whose ledger it belongs to.
    """
    # A replacement counts from a new epoch, so its roots never meet late news of the old one's. A task that has used up
    # its numbers, after some months, goes on in those of its next epochs: they come into use again long after.
    return (task_id << EPOCH_BITS | epoch & (1 << EPOCH_BITS) - 1) << _SHIFT | STEP


def is_last_try(root: object) -> bool:
    """Tell whether it is one tree of a last try."""
    return root.__class__ is int and root & (STEP - 1) == LAST_TRY


def owner_task(root: int) -> int:
    """Return the spout task whose ledger tracks this root."""
    return root >> EPOCH_BITS + _SHIFT


def entry_of(root: int) -> int:
    """Return the root under which the ledger keeps a tree: its own, or the first one of its set."""
    return root & ~_INSIDE | 1 if root & 1 else root


def end_of(entry: int) -> int:
    """Return the first number above all roots of a ledger's entry."""
    return (entry | _INSIDE) + 1 if entry & 1 else entry + 1


def place_in_set(root: int) -> int:
    """Return how many trees of its set stand before this one."""
    return (root & _INSIDE) // STEP


def roots_of_set(next_root: int, trees: int) -> range:
    """Return the roots of a new set, not below ``next_root``. After it, roots go on at ``end_of`` its first one."""
    first = (next_root + _INSIDE & ~_INSIDE) + 1
    return range(first, first + trees * STEP, STEP)


def are_one_set(roots: Sequence[object]) -> bool:
    """Tell whether all of these are trees of one set. ``roots`` may hold anything else, too."""
    first = roots[0]
    if first.__class__ is not int or not first & 1:
        return False
    try:
        # The lowest and the highest tell: no other tree is numbered among those of a set.
        return entry_of(min(roots)) == entry_of(first) == entry_of(max(roots))  # type: ignore[type-var, arg-type]
    except TypeError:  # what is no number cannot be compared with one
        return False
