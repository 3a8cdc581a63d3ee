"""A chain of which no tuple is tracked: only what is in inboxes and on links says that something is still to do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import Bolt, Spout, Topology, TopologyContext, Tuple

COUNT = 3000


class Numbers(Spout):
    """So many, then it has caught up."""

    outputs = ["n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.n = 0

    def next_tuple(self) -> None:
        if self.n < COUNT:
            self.emit([self.n])
            self.n += 1

    def caught_up(self) -> bool:
        return self.n == COUNT


class PassOn(Bolt):
    """So slow that the worker behind it is idle again and again."""

    outputs = ["n"]

    def process(self, tup: Tuple) -> None:
        if tup.values[0] % 100 == 0:
            time.sleep(0.02)
        self.emit(tup.values, anchors=[])


class Last(Bolt):
    """Writes down how many reached it."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.path, self.seen = Path(conf["untracked.results"], "seen"), 0

    def process(self, tup: Tuple) -> None:
        self.seen += 1

    def cleanup(self) -> None:
        self.path.write_text(str(self.seen))


class Untracked(Topology):
    config = {"untracked.results": "", "topology.acker.executors": 0}
    numbers = Numbers.spec()
    pass_on = PassOn.spec(inputs=[numbers])
    last = Last.spec(inputs=[pass_on])
