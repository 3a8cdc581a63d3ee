"""Two bolts that take batches: rows for whole batches, and a check that raises on a bad row. Neither splits a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamlet import Backoff, Batch, Bolt, Grouping, ReliableSpout, TicklessBatchingBolt, Topology, Tuple

ROWS = 4_000
BAD = 400
"""One row in so many is bad."""


class Numbers(ReliableSpout):
    """Notes what it gives up. A row has one retry."""

    outputs = ["n"]
    max_fails = 1
    answers_for_failures = True
    replay_backoff = Backoff(initial=0.05, maximum=0.05)

    def initialize(self, conf: Any, context: Any) -> None:
        self.n = 0
        self.told = Path(str(conf["bad.folder"])) / "given_up"

    def next_tuple(self) -> None:
        for _ in range(min(200, ROWS - self.n)):
            self.n += 1
            self.emit([self.n], tup_id=self.n)

    def given_up(self, tup_id: Any, values: Any, fails: int) -> None:
        with self.told.open("a") as file:
            file.write(f"{tup_id}\n")

    def caught_up(self) -> bool:
        return self.n == ROWS and not self.has_unfinished()


class Double(Bolt):
    outputs = ["n"]

    def process_batch(self, batch: Batch) -> None:
        self.emit_many([[2 * n] for n in batch.values("n")])


class Check(Bolt):
    def process_batch(self, batch: Batch) -> None:
        for n in batch.values("n"):
            if n % (2 * BAD) == 0:
                raise ValueError(f"{n} is bad")


class Groups(TicklessBatchingBolt):
    """Groups of a fifth of a second: each has bad rows and good ones."""

    secs_between_batches = 0.2

    def group_key(self, tup: Tuple) -> int:
        return 0

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        if bad := [tup.values[0] for tup in tups if tup.values[0] % BAD == 0]:
            raise ValueError(f"{bad} are bad")


class BadGroups(Topology):
    config = {"bad.folder": "", "topology.max.spout.pending": 400}
    numbers = Numbers.spec()
    groups = Groups.spec(inputs=[numbers])


class BadRows(Topology):
    config = {"bad.folder": "", "topology.max.spout.pending": 400}
    numbers = Numbers.spec()
    double = Double.spec(inputs=[numbers])
    check = Check.spec(inputs={double: Grouping.fields("n")}, par=2)
