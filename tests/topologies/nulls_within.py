"""A bolt that emits None within a list and a dict."""

from __future__ import annotations

from streamlet import Bolt, Topology, Tuple
from tests.topologies.counted_words import Lines


class Nulls(Bolt):
    outputs = ["numbers", "row"]

    def process(self, tup: Tuple) -> None:
        self.emit([[1, None, 3], {"n": None}])


class NullsWithin(Topology):
    """lines -> nulls."""

    config = {"counted.lines": ""}
    lines = Lines.spec()
    nulls = Nulls.spec(inputs=[lines])
