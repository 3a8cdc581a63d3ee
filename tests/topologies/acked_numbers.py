"""Numbers through two bolts, with a file in which each ack of the spout stands behind what was done for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import Bolt, Grouping, ReliableSpout, Topology, TopologyContext, Tuple
from streamlet.base.backoff import Backoff


class Noting:
    """Writes lines of one file, in the order of all processes: each with one call of the system."""

    def open(self, folder: str) -> None:
        self.handle = os.open(Path(folder) / "noted", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, line: str) -> None:
        os.write(self.handle, f"{line}\n".encode())


class Numbers(ReliableSpout, Noting):
    """0, 1, 2 ..., no faster than ``numbers.per.second``, until a file "enough" is there; notes ``acked N``."""

    outputs = ["number"]
    max_fails = None
    replay_backoff = Backoff(initial=0.1, maximum=0.5)

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.open(conf["out"])
        self.enough = Path(conf["out"]) / "enough"
        self.rate, self.clock = conf["numbers.per.second"], context.clock
        self.number, self.since = 0, 0.0

    def activate(self) -> None:
        self.since = self.clock.monotonic()

    def next_tuple(self) -> None:
        if self.number < (self.clock.monotonic() - self.since) * self.rate and not self.enough.exists():
            self.emit([self.number], tup_id=self.number)
            self.number += 1

    def ack(self, tup_id: int) -> None:
        self.note(f"acked {tup_id}")
        super().ack(tup_id)

    def caught_up(self) -> bool:
        return self.enough.exists() and not self.has_unfinished()


class PassOn(Bolt):
    outputs = ["number"]

    def process(self, tup: Tuple) -> None:
        self.emit(list(tup.values))


class Store(Bolt, Noting):
    """Notes ``stored N ROOT``: the tree that it was stored for."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.open(conf["out"])

    def process(self, tup: Tuple) -> None:
        self.note(f"stored {tup.values[0]} {tup.root}")


class AckedNumbers(Topology):
    """Three tasks of each bolt: one of each in every worker of three, so that every link has tuples and acks."""

    # A shuffle that follows the load may leave a link of little work without a tuple.
    config = {
        "out": "",
        "numbers.count": 0,
        "numbers.per.second": 1e9,
        "topology.disable.loadaware.messaging": True,
    }
    numbers = Numbers.spec()
    pass_on = PassOn.spec(inputs=[numbers], par=3)
    store = Store.spec(inputs={pass_on: Grouping.fields("number")}, par=3)
