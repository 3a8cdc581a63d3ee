"""A bolt task between a scripted source and what it emits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from streamlet import Bolt, Stream, Tuple
from streamlet.base.clock import ManualClock
from streamlet.model.grouping import Grouping
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.tasks.emitter import Emitter, Outbox, Run, StreamRoutes, Target, Work
from streamlet.runtime.tasks.slices import SLICE

DOWN = 9


def rows_of(boxes: Iterable[Outbox]) -> list[tuple[Any, Any, Any]]:
    """(root, edge, values) of everything in the outboxes, which is taken; each run says whether all is tracked."""
    rows = []
    for box in boxes:
        for run in box.take():
            assert run.has_untracked == (0 in run.roots), "else it is counted nowhere, or looked through each time"
            rows += list(zip(run.roots, run.edges, run.values, strict=True))
    return rows


class Rig:
    """A bolt task between a scripted source and what it emits, with the tree values an acker would have."""

    def __init__(
        self,
        bolt: Bolt,
        streams: tuple[Stream, ...] = (Stream(["v"]),),
        readers: int = 1,
        resting: set[int] | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.acks: dict[int, int] = {}
        self.fails: list[int] = []
        self.reported: list[tuple[BaseException, Any]] = []
        self.called: list[Any] = []
        """The function of each that was reported."""
        self.boxes = [Outbox(1, DOWN + n, "default") for n in range(readers)]
        random_bits = random.Random(1).getrandbits
        routes = [
            StreamRoutes(s, [Target(Grouping.SHUFFLE, (), (box,), ()) for box in self.boxes], lambda: 0.0)
            for s in streams
        ]
        self.task = BoltTask(
            bolt,
            Emitter("bolt", routes),
            self.acks,
            self.fails,
            random_bits,
            {5: "source"},
            self.clock,
            self._report,
            resting=resting,
        )
        self.task.slices.size = SLICE  # of a bolt that has shown to be fast
        self.trees: dict[int, int] = {}

    def _report(self, error: BaseException, tup: Any, called: Any) -> None:
        self.reported.append((error, tup))
        self.called.append(called)

    def run(self, *rows: tuple[int, list[Any]], multi: list[list[int]] | None = None) -> None:
        """Give the bolt tuples as (root, values); with ``multi``, each with several roots."""
        edges: list[Any] = []
        for index, (root, _) in enumerate(rows):
            roots = multi[index] if multi else [root]
            own = [1000 + 10 * index + n for n in range(len(roots))]
            for one, edge in zip(roots, own, strict=True):
                if one:
                    self.trees[one] = self.trees.get(one, 0) ^ edge
            edges.append(own if multi else own[0])
        first = multi if multi else [root for root, _ in rows]
        run = Run(1, 5, "default", bool(multi), first, edges, [values for _, values in rows])  # type: ignore[arg-type]
        self.task.execute(Work(run), until=1e9)

    def emitted(self) -> list[tuple[Any, Any, Any]]:
        """(root, edge, values) of everything emitted so far, which is taken."""
        return rows_of(self.boxes)

    def open_trees(self, emitted: list[tuple[Any, Any, Any]]) -> dict[int, int]:
        """The trees once this turn's deltas and all that was emitted are acked; {} means that each is complete."""
        trees = dict(self.trees)
        for root, delta in self.acks.items():
            if root:
                trees[root] = trees.get(root, 0) ^ delta
        for root, edge, _ in emitted:
            pairs = zip(root, edge, strict=True) if isinstance(root, list) else [(root, edge)]
            for one, part in pairs:
                if one:
                    trees[one] = trees.get(one, 0) ^ part
        return {root: value for root, value in trees.items() if value}


def bolt(process: Callable[[Any, Tuple], None], **attributes: Any) -> Bolt:
    made: Bolt = type("Made", (Bolt,), {"process": process, **attributes})()
    return made
