"""A bolt in the middle that is in a call when the drain's time is over, and emits to another worker after that."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from streamlet import Bolt, Topology, TopologyContext, Tuple
from tests.conformance.untracked_ways import Numbers, Slow

HELD_UP_S = 2.0


class HeldUp(Bolt):
    """Emits what it has in one call, at the end of it: of its last tick, or of ``process``."""

    outputs = ["n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.kept: list[list[Any]] = []
        self.at: str | None = conf["accounts.call"]

    def process(self, tup: Tuple) -> None:
        self.kept.append(tup.values)
        if self.at == "process" and len(self.kept) == 100:
            self.send_on()

    def process_tick(self, tup: Tuple) -> None:
        if self.at == "process_tick" and self.kept:
            self.send_on()

    def send_on(self) -> None:
        time.sleep(HELD_UP_S)
        for values in self.kept:
            self.emit(values, anchors=[])
        self.kept, self.at = [], None


class HeldUpMiddle(Topology):
    config = {
        "accounts.way": "",
        "accounts.call": "",
        "accounts.folder": "",
        "accounts.sleep_s": 0.0,
        "topology.tick.tuple.freq.secs": 600,  # the last one alone, once all was worked off
    }
    numbers = Numbers.spec()
    held_up = HeldUp.spec(inputs=[numbers])
    slow = Slow.spec(inputs=[held_up])
