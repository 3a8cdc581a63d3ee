"""Bolts that settle their tuples by hand, from threads of their own or later; one forgets those it does not keep."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from concurrent_bolts import CONFIG, Notes, Numbers, Squares

from streamlet import Batch, Bolt, Topology, TopologyContext, Tuple


class OnOwnThreads(Bolt):
    outputs = ["n", "square"]
    auto_ack = False
    max_unacked = 40

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.pool, self.secs = ThreadPoolExecutor(5), conf["at_once.secs"]

    def process(self, tup: Tuple) -> None:
        self.pool.submit(self.work, tup)

    def work(self, tup: Tuple) -> None:
        time.sleep(self.secs)
        (n,) = tup.values
        self.emit([n, n * n], anchors=[tup])
        self.ack(tup)


class RaisesThere(OnOwnThreads):
    """Catches nothing in its pool, so one tuple of a hundred is dropped there with its error."""

    def work(self, tup: Tuple) -> None:
        if tup.values[0] % 100 == 99:
            raise ValueError("nobody reads this")
        super().work(tup)


class RaisesThereByBatch(RaisesThere):
    """The same, given by batch."""

    batch_size = 8

    def process_batch(self, batch: Batch) -> None:
        for tup in batch:
            self.process(tup)


class Forgets(Bolt):
    """Emits at once, acks nothing, and keeps no tuple."""

    outputs = ["n", "square"]
    auto_ack = False

    def process(self, tup: Tuple) -> None:
        (n,) = tup.values
        self.emit([n, n * n])


class Keeps(Forgets):
    """Keeps its last tuple, which it never acks."""

    def process(self, tup: Tuple) -> None:
        super().process(tup)
        self.last = tup


class HoldsAndEnds(Forgets):
    """Holds each tuple until an error of its own ends the run."""

    exit_on_exception = True

    def process(self, tup: Tuple) -> None:
        self.held = [*getattr(self, "held", []), tup]
        if tup.values[0] == 100:
            raise ValueError("no more")


class AcksBefore(OnOwnThreads):
    """Has its tuples acked when a pool has them, and emits there."""

    auto_ack = True
    max_unacked = None
    anchored = True

    def work(self, tup: Tuple) -> None:
        time.sleep(self.secs)
        (n,) = tup.values
        self.emit([n, n * n], anchors=[tup] if self.anchored else [])


class AcksBeforeUnanchored(AcksBefore):
    """The same, without anchors."""

    anchored = False


class WritesThere(AcksBefore):
    """Emits nothing: its pool writes."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().initialize(conf, context)
        self.notes = Notes(conf, context)

    def work(self, tup: Tuple) -> None:
        time.sleep(self.secs)
        self.notes.note(tup.values[0])


class Ending(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    work = HoldsAndEnds.spec(inputs=[numbers])
    squares = Squares.spec(inputs=[work])


class OwnThreads(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    work = OnOwnThreads.spec(inputs=[numbers])
    squares = Squares.spec(inputs=[work])


class Raising(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    work = RaisesThere.spec(inputs=[numbers])
    squares = Squares.spec(inputs=[work])


class RaisingByBatch(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    work = RaisesThereByBatch.spec(inputs=[numbers])
    squares = Squares.spec(inputs=[work])


class Forgetful(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    work = Forgets.spec(inputs=[numbers])
    squares = Squares.spec(inputs=[work])


class Keeping(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    work = Keeps.spec(inputs=[numbers])
    squares = Squares.spec(inputs=[work])


class Acking(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    work = AcksBefore.spec(inputs=[numbers])
    squares = Squares.spec(inputs=[work])


class AckingUnanchored(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    work = AcksBeforeUnanchored.spec(inputs=[numbers])
    squares = Squares.spec(inputs=[work])


class Writing(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    squares = WritesThere.spec(inputs=[numbers])


class Listens(Bolt):
    """A thread of its pool listens as long as the process lives."""

    outputs = ["n", "square"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.over, self.pool = Path(conf["at_once.results"]) / "over", ThreadPoolExecutor(2)
        self.pool.submit(self.listen)

    def listen(self) -> None:
        while not self.over.exists():
            time.sleep(0.02)

    def process(self, tup: Tuple) -> None:
        self.emit([tup.values[0], tup.values[0] ** 2])


class Listening(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    work = Listens.spec(inputs=[numbers])
    squares = Squares.spec(inputs=[work])
