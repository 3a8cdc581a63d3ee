"""The number of all lines, told by the tick of one bolt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamlet import Bolt, Grouping, Topology, TopologyContext, Tuple
from tests.topologies.counted_words import Lines


class Total(Bolt):
    outputs = ["n"]
    config = {"topology.tick.tuple.freq.secs": 1}

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.n = 0

    def process(self, tup: Tuple) -> None:
        self.n += 1

    def process_tick(self, tup: Tuple) -> None:
        self.emit([self.n])


class TotalLines(Topology):
    """lines -> total."""

    config = {"counted.lines": ""}
    lines = Lines.spec()
    total = Total.spec(inputs={lines: Grouping.GLOBAL})
