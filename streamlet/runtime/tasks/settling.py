"""Turn acks and failures of tuples and batches into deltas of their trees.

A batch stands for its tuples as one anchor (``tracking.shared_roots``). Its ack is the XOR of the edges of its tuples,
by tree, and of the tuples emitted for the batch as a whole, in each tree once. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import chain
from operator import xor

from streamlet.components.batch import Batch
from streamlet.components.tuples import ACKED, FAILED, OPEN, Tuple
from streamlet.runtime.tasks.emitter import Run
from streamlet.tracking.shared_roots import Root, as_one_root, each_root


def take_batch(
    run: Run, start: int, stop: int, component: str, fields: Sequence[str], kind: type[Tuple], tracks: bool
) -> Batch:
    """Return some rows of a run as a batch. Without ``tracks`` nothing is emitted for it as a whole."""
    roots, edges, rows = run.roots[start:stop], run.edges[start:stop], run.values[start:stop]
    root = as_one_root(chain.from_iterable(roots) if run.multi else roots) if tracks else 0
    return Batch(rows, component, run.stream, run.source, fields, roots=roots, edges=edges, root=root, kind=kind)


def ack(batch: Batch, acks: dict[Root, int]) -> int:
    """XOR what the batch leaves of its trees into ``acks``; return how many tuples are acked by it."""
    settle_children(batch, acks)
    if batch.state != OPEN:
        return 0
    tuples = batch.tuples if batch.multi else batch.made
    batch.state = ACKED  # of tuples, too, that are made later
    if tuples is not None:
        return sum(ack_tuple(tup, acks) for tup in tuples)
    # Deltas of one tree are joined before they go into the dictionary: neighbours mostly belong to one.
    roots = batch.roots
    last: Root = roots[0]
    # One tree, as in the rows of one `emit_many`: 50 ns a tuple, where the loop below takes 60.
    if roots.count(last) == len(roots):
        if last:
            acks[last] = acks.get(last, 0) ^ reduce(xor, batch.edges)
        return len(roots)
    delta = 0
    for root, edge in zip(roots, batch.edges, strict=True):
        if root == last:
            delta ^= edge
        else:
            if last:
                acks[last] = acks.get(last, 0) ^ delta
            last, delta = root, edge
    if last:
        acks[last] = acks.get(last, 0) ^ delta
    return len(roots)


def ack_tuple(tup: Tuple, acks: dict[Root, int]) -> bool:
    """XOR what a tuple leaves of its trees into ``acks``; False if it was acked or failed before."""
    if tup.state != OPEN:
        return False
    tup.state = ACKED
    for root, edge in tup.anchors or ((tup.root, tup.edge),):
        acks[root] = acks.get(root, 0) ^ edge ^ tup.children
    tup.anchors = ()  # sends a later emit with this anchor to the slow path, which refuses it
    return True


def settle_children(batch: Batch, acks: dict[Root, int]) -> None:
    """XOR the edges that were anchored to the whole batch into ``acks``."""
    # Also when single tuples were acked or failed: an edge in an outbox belongs to every tree of the batch.
    if batch.children:
        acks[batch.root] = acks.get(batch.root, 0) ^ batch.children
        batch.children = 0


def fail(batch: Batch, fails: list[int]) -> int:
    """Add the trees of tuples that are still open to ``fails``; return how many tuples fail by it."""
    if batch.state != OPEN:
        return 0
    tuples = batch.tuples if batch.multi else batch.made
    batch.state = FAILED
    if tuples is not None:
        return sum(fail_tuple(tup, fails) for tup in tuples)
    fails.extend(root for root in each_root(batch.roots) if root)
    return len(batch)


def fail_tuple(tup: Tuple, fails: list[int]) -> bool:
    """Add a tuple's trees to ``fails``; False if it was acked or failed before."""
    if tup.state != OPEN:
        return False
    tup.state = FAILED
    fails.extend(root for root in each_root(root for root, _ in tup.anchors or ((tup.root, 0),)) if root)
    tup.anchors = ()
    return True


def batch_of_one(batch: Batch, index: int) -> Batch:
    """Return one tuple of a batch as a batch of its own."""
    root = batch.roots[index]
    whole = as_one_root(root) if isinstance(root, list) else root
    return Batch(
        batch.rows[index : index + 1],
        batch.component,
        batch.stream,
        batch.task,
        batch.fields,
        roots=[root],
        edges=[batch.edges[index]],
        root=whole,
        kind=batch.kind,
    )
