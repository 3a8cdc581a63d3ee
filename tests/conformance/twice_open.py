"""A ReliableSpout that tries each id a second time while its first tuple is open, and old ids that may be open."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import ReliableSpout, Topology, TopologyContext
from tests.conformance.untracked_ways import COUNT, Slow

BACK = 300
"""How far back the old ids lie: some of them are done, and some still open."""


class Twice(ReliableSpout):
    """Writes down at its end how many second emits were refused, and how many of old ids were not: these were done."""

    outputs = ["n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.n, self.counts = 0, {"refused": 0, "refused of old": 0, "taken of old": 0}
        self.folder, self.said = Path(conf["accounts.folder"]), set[str]()

    def next_tuple(self) -> None:
        if self.n == COUNT:
            return
        self.emit([self.n], tup_id=self.n)
        self.again(self.n, "refused", "taken, and one of the two is lost")
        if self.n >= BACK and self.n % 7 == 0:
            self.again(self.n - BACK, "refused of old", "taken of old")
        self.n += 1

    def again(self, number: int, refused: str, taken: str) -> None:
        try:
            self.emit([number], tup_id=number)
        except ValueError as error:
            self.counts[refused] += 1
            self.said.add(str(error).replace(repr(number), "N", 1))
        else:
            self.counts[taken] = self.counts.get(taken, 0) + 1

    def caught_up(self) -> bool:
        return self.n == COUNT and not self.has_unfinished()

    def close(self) -> None:
        (self.folder / "counts").write_text(json.dumps([self.counts, sorted(self.said)]))


class TwiceOpen(Topology):
    config = {"accounts.folder": "", "accounts.sleep_s": 0.002, "topology.max.spout.pending": 2000}
    numbers = Twice.spec()
    slow = Slow.spec(inputs=[numbers])
