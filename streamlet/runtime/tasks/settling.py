"""Turn acks and failures of tuples and batches into deltas of their trees.

A batch stands for its tuples as one anchor (``tracking.shared_roots``). Its ack is the XOR of the edges of its tuples,
by tree, and of the tuples emitted for the batch as a whole, in each tree once. Pure.

Where a tuple fails, its trees are failed. What it leaves of a *set* of trees (``tracking.roots``) is XORed out as if it
were acked: the other trees of the set are done when all their tuples are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from itertools import chain, compress
from operator import xor
from random import Random
from typing import Any

from streamlet.components.batch import Batch
from streamlet.components.tuples import ACKED, FAILED, OPEN, Tuple
from streamlet.runtime.tasks.emitter import Run
from streamlet.tracking.roots import SET_MASK, are_one_set, entry_of
from streamlet.tracking.shared_roots import Root, SharedRoots, as_one_root


def take_batch(
    run: Run,
    start: int,
    stop: int,
    component: str,
    fields: Sequence[str],
    kind: type[Tuple],
    tracks: bool,
    seed: int | None = None,
) -> Batch:
    """Return some rows of a run as a batch.

    Without ``tracks`` nothing is emitted for it as a whole. With a ``seed``, its tuples have an edge each once they are
    asked for, and no block goes beyond the batch (``close_block``).
    """
    roots, edges, rows = run.roots[start:stop], run.edges[start:stop], run.values[start:stop]
    root = as_one_root([*chain.from_iterable(roots)] if run.multi else roots) if tracks else 0
    part = None if seed is None else partial(_parted, seed)
    return Batch(
        rows,
        component,
        run.stream,
        run.source,
        fields,
        roots=roots,
        edges=edges,
        root=root,
        kind=kind,
        part_edges=part,
    )


def part_blocks(
    roots: Sequence[Root], edges: list[int], first: int, getrandbits: Callable[[int], int], acks: dict[Root, int]
) -> None:
    """Give each row from ``first`` on its own edge, in place."""
    # Rule: the rows of a block share out its edge. The XOR of their shares is the edge, so its tree need not hear of
    # them; and as all but one are random, no part of them looks like a tree that is done.
    shares = 0
    for at in range(first, len(edges)):
        if edges[at]:
            edges[at] ^= shares
            shares = 0
        elif roots[at]:
            edges[at] = share = getrandbits(64)
            shares ^= share
    if shares:  # a frame was cut inside of a block: its last row is in another run
        acks[roots[-1]] = acks.get(roots[-1], 0) ^ shares


def close_block(run: Run, stop: int, getrandbits: Callable[[int], int], acks: dict[Root, int]) -> None:
    """End a block at ``stop``, in place.

    If it goes on there, its last row before gets an edge of its own.
    """
    roots, edges = run.roots, run.edges
    if edges[stop - 1] or not roots[stop - 1]:
        return
    edges[stop - 1] = share = getrandbits(64)
    last = next(compress(range(stop, len(edges)), edges[stop:]), None)
    if last is not None:
        edges[last] ^= share
    else:
        acks[roots[stop - 1]] = acks.get(roots[stop - 1], 0) ^ share


def _parted(seed: int, roots: Sequence[Root], edges: Sequence[int]) -> list[int]:
    """Return an edge for each row, the same at each call."""
    parted = [*edges]
    part_blocks(roots, parted, 0, Random(seed).getrandbits, {})
    return parted


def ack(batch: Batch, acks: dict[Root, int]) -> int:
    """XOR what the batch leaves of its trees into ``acks``; return how many tuples are acked by it."""
    settle_children(batch, acks)
    if batch.state != OPEN:
        return 0
    tuples = batch.tuples if batch.multi else batch.made
    _close(batch, ACKED)
    if tuples is not None:
        return sum(ack_tuple(tup, acks) for tup in tuples)
    roots, edges = batch.roots, batch.edges
    entry = _one_entry(batch)
    if entry is not None:  # one tree, as in the rows of one `emit_many`, or one set: no loop over tuples
        if entry:
            # Rows of a block have edge 0, but the last. Passing over the zeros takes a sixth of the time.
            acks[entry] = reduce(xor, filter(None, edges), acks.get(entry, 0))
        return len(roots)
    # Deltas of one entry are joined before they go into the dictionary: neighbours mostly belong to one. Rows of a
    # block have edge 0, but the last.
    last: Root = 0
    delta = 0
    for root, edge in compress(zip(roots, edges, strict=True), edges):
        if root.__class__ is int and root & 1:
            root = root & SET_MASK | 1
        if root == last:
            delta ^= edge
        else:
            if last:
                acks[last] = acks.get(last, 0) ^ delta
            last, delta = root, edge
    if last:
        acks[last] = acks.get(last, 0) ^ delta
    return len(roots)


def _one_entry(batch: Batch) -> Root | None:
    """Return what all edges of a batch are XORed into; None: not into one and the same."""
    roots, whole = batch.roots, batch.root
    first: Root = roots[0]
    if whole.__class__ is SharedRoots:  # found out when the batch was taken
        return whole.entries[0] if len(whole.entries) == 1 else None
    # The last one is looked at first: to count objects that differ takes longer than all else here.
    if first == roots[-1] and roots.count(first) == len(roots):
        return first
    return entry_of(first) if are_one_set(roots) else None  # type: ignore[arg-type]  # ints, by the question


def ack_tuple(tup: Tuple, acks: dict[Root, int]) -> bool:
    """XOR what a tuple leaves of its trees into ``acks``; False if it was acked or failed before."""
    if tup.state != OPEN:
        return False
    left_of = _left_of(tup)
    _close(tup, ACKED)
    for root, left in left_of:
        acks[root] = acks.get(root, 0) ^ left
    return True


def _close(given: Tuple | Batch, state: int) -> None:
    given.state = state  # of a batch's tuples, too, that are made later
    # Rule: what is acked or failed has anchors, if only none. That sends an emit for it to the slow way, which refuses
    # it: an edge given now would reach no tree, or keep a set of them open for good.
    given.anchors = ()


def _left_of(tup: Tuple) -> list[tuple[Root, int]]:
    """Return what a tuple leaves of each of its trees: its edge, and those of the tuples emitted for it."""
    if not tup.anchors:
        return [(tup.root, tup.edge ^ tup.children)]
    # The children into each entry of the ledger once, as they were emitted (`BoltEmits._put`).
    left: list[tuple[Root, int]] = []
    entries: set[int] = set()
    for root, edge in tup.anchors:
        entry = entry_of(root)
        left.append((root, edge if entry in entries else edge ^ tup.children))
        entries.add(entry)
    return left


def settle_children(batch: Batch, acks: dict[Root, int]) -> None:
    """XOR the edges that were anchored to the whole batch into ``acks``."""
    # Also when single tuples were acked or failed: an edge in an outbox belongs to every tree of the batch.
    if batch.children:
        acks[batch.root] = acks.get(batch.root, 0) ^ batch.children
        batch.children = 0


def fail(batch: Batch, acks: dict[Root, int], fails: list[int]) -> int:
    """Add the trees of tuples that are still open to ``fails``; return how many tuples fail by it."""
    settle_children(batch, acks)
    if batch.state != OPEN:
        return 0
    tuples = batch.tuples if batch.multi else batch.made
    _close(batch, FAILED)
    if tuples is not None:
        return sum(fail_tuple(tup, acks, fails) for tup in tuples)
    drop(zip(batch.roots, batch.edges, strict=True), acks, fails)
    return len(batch)


def fail_tuple(tup: Tuple, acks: dict[Root, int], fails: list[int]) -> bool:
    """Add a tuple's trees to ``fails``; False if it was acked or failed before."""
    if tup.state != OPEN:
        return False
    left = _left_of(tup)
    _close(tup, FAILED)
    drop(left, acks, fails)
    return True


def open_untracked(given: Tuple | Batch) -> int:
    """Count open tuples that belong to no tree."""
    if isinstance(given, Batch) and given.made is not None:
        return sum(map(open_untracked, given.made))
    if given.state != OPEN:
        return 0
    return given.roots.count(0) if isinstance(given, Batch) else not given.root


def left_of_run(run: Run) -> Iterable[tuple[Root, int]]:
    """Yield the trees and edges of tuples that nobody will receive."""
    if not run.multi:
        return zip(run.roots, run.edges, strict=True)
    return chain.from_iterable(map(zip, run.roots, run.edges))


def drop(left: Iterable[tuple[Root, int]], acks: dict[Root, int], fails: list[int]) -> None:
    """Fail trees, given with what their tuple leaves of each."""
    # Rule: what a failed tuple leaves of a set is XORed out of it, never before the failure is known. So the failure is
    # brought to the ledger first, in the same frame or an earlier one; else the tree would count as done.
    failed: dict[int, None] = {}
    for root, edge in left:
        if root.__class__ is SharedRoots:
            failed.update(dict.fromkeys(root.roots))
        elif root:
            failed[root] = None  # type: ignore[index]  # an int
        if edge and (root.__class__ is SharedRoots or root & 1):  # type: ignore[operator]  # an int otherwise
            acks[root] = acks.get(root, 0) ^ edge
    fails.extend(failed)


def batch_of_one(batch: Batch, index: int, values: list[Any]) -> Batch:
    """Return a batch of one tuple of a batch, with these values."""
    batch.part()
    root = batch.roots[index]
    whole = as_one_root(root) if isinstance(root, list) else root
    return Batch(
        [values],
        batch.component,
        batch.stream,
        batch.task,
        batch.fields,
        roots=[root],
        edges=[batch.edges[index]],
        root=whole,
        kind=batch.kind,
    )
