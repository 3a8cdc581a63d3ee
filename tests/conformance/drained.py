"""A topology without an end: what is open when a stop is asked for is finished, and nothing more begins."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import Batch, BatchingBolt, Bolt, Grouping, ReliableSpout, Topology, TopologyContext, Tuple


def note(folder: str, name: str, line: object) -> None:
    """One line, at once."""
    with Path(folder, name).open("a") as file:
        file.write(f"{line}\n")


class Numbers(ReliableSpout):
    """One after another, as fast as trees may be pending."""

    outputs = ["n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.folder, self.n = conf["drained.results"], 0

    def next_tuple(self) -> None:
        note(self.folder, "emitted", self.n)
        self.emit([self.n], tup_id=self.n)
        self.n += 1

    def ack(self, tup_id: Any) -> None:
        super().ack(tup_id)
        note(self.folder, "acked", tup_id)

    def close(self) -> None:
        note(self.folder, "closed", os.getpid())


class Slow(Bolt):
    """Takes its time, so that there is always something open."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.folder = conf["drained.results"]

    def process(self, tup: Tuple) -> None:
        time.sleep(0.005)
        note(self.folder, "done", tup.values[0])

    def cleanup(self) -> None:
        note(self.folder, "cleaned", os.getpid())


class Drained(Topology):
    config = {"drained.results": "", "topology.max.spout.pending": 50}
    numbers = Numbers.spec()
    slow = Slow.spec(inputs=[numbers], par=2)


class Fails(Numbers):
    """Stops the run with an error after so many."""

    def next_tuple(self) -> None:
        if self.n == 500:
            raise ConnectionError("its source is gone")
        super().next_tuple()

    def close(self) -> None:
        super().close()
        raise OSError("closed without its source")


class Counts(Bolt):
    """Acks at once, and keeps what it counts until its tick, or its cleanup."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.folder, self.n = conf["drained.results"], 0

    def process(self, tup: Tuple) -> None:
        self.n += 1

    def process_tick(self, tup: Tuple) -> None:
        note(self.folder, "ticked", self.n)
        self.n = 0

    def cleanup(self) -> None:
        note(self.folder, "cleaned", self.n)


class Failed(Topology):
    config = {"drained.results": "", "topology.max.spout.pending": 50}
    numbers = Fails.spec()
    ticked = Counts.spec(inputs=[numbers], config={"topology.tick.tuple.freq.secs": 3600.0})
    kept = Counts.spec(inputs=[numbers])


class Collects(BatchingBolt):
    """Keeps its tuples open until the second of two ticks that are far away."""

    ticks_between_batches = 2

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.folder = conf["drained.results"]

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        for tup in tups:
            note(self.folder, "done", tup.values[0])


class Collected(Topology):
    config = {"drained.results": "", "topology.max.spout.pending": 50, "topology.message.timeout.secs": 60}
    numbers = Numbers.spec()
    collects = Collects.spec(inputs=[numbers], config={"topology.tick.tuple.freq.secs": 3600.0})


class AfterTicks(Numbers):
    """Emits ten, once a bolt has had its third tick."""

    def next_tuple(self) -> None:
        if self.n < 10 and (self.n or len(Path(self.folder, "ticked").read_text().split()) > 2):
            super().next_tuple()

    def caught_up(self) -> bool:
        return self.n == 10 and not self.has_unfinished()


class Late(Slow):
    """Takes longer for a tick than there is between two."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().initialize(conf, context)
        Path(self.folder, "ticked").touch()

    def process_tick(self, tup: Tuple) -> None:
        time.sleep(0.06)
        note(self.folder, "ticked", "tick")


class LateTicks(Topology):
    config = {"drained.results": ""}
    late = Late.spec(inputs={"numbers": Grouping.SHUFFLE}, config={"topology.tick.tuple.freq.secs": 0.02})
    numbers = AfterTicks.spec()


class Bounded(Numbers):
    """Fifty, and no more."""

    def next_tuple(self) -> None:
        if self.n < 50:
            super().next_tuple()


class FailsLast(Bolt):
    """Ends the run by its last tick, in one of its tasks."""

    outputs = ["n"]
    exit_on_exception = True

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.folder, self.me, self.how = conf["drained.results"], context, conf["drained.how"]

    def process(self, tup: Tuple) -> None:
        pass

    def process_tick(self, tup: Tuple) -> None:
        if self.me.task_index == 0:
            if self.how == "exit":
                raise SystemExit(7)
            raise OSError("its table is gone")
        note(self.folder, "ticked", self.me.component_name)

    def cleanup(self) -> None:
        note(self.folder, "cleaned", f"{self.me.component_name}{self.me.task_index}")


class After(FailsLast):
    """Closes well, a depth below."""

    exit_on_exception = False

    def process_tick(self, tup: Tuple) -> None:
        note(self.folder, "ticked", self.me.component_name)


class Holds(Bolt):
    """Acks nothing, where a drain is to be cut short."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.auto_ack = not conf["drained.held"]

    def process(self, tup: Tuple) -> None:
        self.kept = tup


class FailsAtItsEnd(Topology):
    config = {"drained.results": "", "drained.held": False, "drained.how": "", "topology.message.timeout.secs": 60}
    numbers = Bounded.spec()
    holds = Holds.spec(inputs=[numbers])
    fails = FailsLast.spec(inputs=[numbers], par=2, config={"topology.tick.tuple.freq.secs": 3600.0})
    after = After.spec(inputs=[fails, numbers], par=2, config={"topology.tick.tuple.freq.secs": 3600.0})


class LongTick(Collects):
    """Takes longer for what it has collected than a drain takes at least."""

    ticks_between_batches = 1
    calls = 0

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        self.calls += 1
        note(self.folder, "began", self.calls)
        time.sleep(0.3 * len(tups))
        super().process_batch(key, tups)


class LongTicks(Topology):
    config = {"drained.results": "", "topology.max.spout.pending": 15, "topology.message.timeout.secs": 60}
    numbers = Numbers.spec()
    slow = LongTick.spec(inputs=[numbers], config={"topology.tick.tuple.freq.secs": 0.2})


class Doubled(Numbers):
    """Emits twelve, and when they are done twice as many at once."""

    done = 0

    def next_tuple(self) -> None:
        while self.n < (12 if self.done < 12 else 36):
            super().next_tuple()

    def ack(self, tup_id: Any) -> None:
        super().ack(tup_id)
        self.done += 1


class LongBatch(Slow):
    """Takes longer for its second batch than a drain may after the first."""

    def process_batch(self, batch: Batch) -> None:
        note(self.folder, "began", len(batch))
        time.sleep(0.5 * len(batch))


class LongBatches(Topology):
    config = {"drained.results": "", "topology.message.timeout.secs": 300}
    numbers = Doubled.spec()
    slow = LongBatch.spec(inputs=[numbers])
