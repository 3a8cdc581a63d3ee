"""Topologies that hold as much as they are let: a fan-out, failures that wait for their replay, reference cycles."""

from __future__ import annotations

import gc
import time
from typing import Any, ClassVar

from streamlet import Bolt, Grouping, ReliableSpout, Spout, Topology, Tuple
from streamlet.base.backoff import Backoff
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig


class Messages(ReliableSpout):
    """Emits ``messages`` numbers, each with a text of ``bytes`` characters."""

    outputs: ClassVar[list[str]] = ["n", "text"]
    max_fails = None
    replay_backoff = Backoff(initial=1.5, maximum=1.5)

    def initialize(self, conf: Any, context: Any) -> None:
        self.left, self.size = conf["messages"], conf["bytes"]

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.emit([self.left, f"{self.left:0{self.size}}"], tup_id=self.left)

    def caught_up(self) -> bool:
        return not self.left and not self.has_unfinished()


class Collected(Bolt):
    """A bolt of a worker whose collector is ours, or set by the user."""

    def initialize(self, conf: Any, context: Any) -> None:
        self.conf = conf
        if conf["collector"] == "own":
            gc.set_threshold(500, 9, 9)


class Spread(Collected):
    """Emits ``fan`` rows of ``row`` letters for each tuple."""

    outputs: ClassVar[list[str]] = ["key", "text"]

    def process(self, tup: Tuple) -> None:
        number, size = tup.values[0], self.conf["row"]
        for n in range(self.conf["fan"]):
            self.emit([n, f"{number:0{size}}" if size else 1000 + n])


class Count(Collected):
    """Counts what it is given, and is a little slower than what feeds it."""

    def process(self, tup: Tuple) -> None:
        for _ in range(20):
            hash(tup.values[1])


class FanOut(Topology):
    config: ClassVar[dict[str, Any]] = {"messages": 2000, "bytes": 10, "fan": 200, "row": 500, "collector": "ours"}
    messages = Messages.spec()
    spread = Spread.spec(inputs=[messages])
    count = Count.spec(inputs={spread: Grouping.fields("key")})


class FailsOnce(Collected):
    """Fails every message at its first coming."""

    def process(self, tup: Tuple) -> None:
        if not hasattr(self, "seen"):
            self.seen = bytearray(self.conf["messages"])
        number = tup.values[0]
        if self.seen[number]:
            return
        self.seen[number] = 1
        self.fail(tup)


class OneCall(Topology):
    """40 messages, of each of which one call makes 20 000 rows of a kilobyte: 20 MB."""

    config: ClassVar[dict[str, Any]] = {"messages": 40, "bytes": 10, "fan": 20_000, "row": 1000, "collector": "ours"}
    messages = Messages.spec()
    spread = Spread.spec(inputs=[messages])
    count = Count.spec(inputs=[spread])


class OneCallOfNumbers(Topology):
    """The same with 100 000 rows that are ten times as large in memory as on a link."""

    config: ClassVar[dict[str, Any]] = {"messages": 20, "bytes": 10, "fan": 100_000, "row": 0, "collector": "ours"}
    messages = Messages.spec()
    spread = Spread.spec(inputs=[messages])
    count = Count.spec(inputs=[spread])


class Failing(Topology):
    config: ClassVar[dict[str, Any]] = {
        "messages": 150_000,
        "bytes": 1000,
        "collector": "ours",
        "streamlet.first.failures.max": 0,
    }
    messages = Messages.spec()
    fails = FailsOnce.spec(inputs=[messages])


class MixedMessages(Messages):
    """Of 64 messages one is as large as ``large`` says."""

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            size = self.conf["large"] if self.left % 64 == 7 else 1
            self.emit([self.left, f"{self.left:0{size}}"], tup_id=self.left)

    def initialize(self, conf: Any, context: Any) -> None:
        super().initialize(conf, context)
        self.conf = conf


class HoldsUntilQuiet(Collected):
    """Acks nothing while more comes; what it has, once nothing has come for a tick."""

    auto_ack = False

    def initialize(self, conf: Any, context: Any) -> None:
        super().initialize(conf, context)
        self.held: list[Tuple] = []
        self.at_last_tick = 0

    def process(self, tup: Tuple) -> None:
        self.held.append(tup)

    def process_tick(self, tup: Tuple) -> None:
        if len(self.held) == self.at_last_tick:
            for held in self.held:
                self.ack(held)
            self.held.clear()
        self.at_last_tick = len(self.held)


class HeldMixed(Topology):
    """200 MB of large messages among small ones, of which none is acked while the spout goes on."""

    config: ClassVar[dict[str, Any]] = {
        "messages": 64 * 200,
        "bytes": 1,
        "large": 1_000_000,
        "collector": "ours",
        "topology.max.spout.pending": 50_000,
    }
    messages = MixedMessages.spec()
    holds = HoldsUntilQuiet.spec(inputs=[messages], config={"topology.tick.tuple.freq.secs": 0.5})


class MixedRows(Spout):
    """Emits ``messages`` rows without ids: nothing but what waits can stop it."""

    outputs: ClassVar[list[str]] = ["n", "text"]

    def initialize(self, conf: Any, context: Any) -> None:
        self.left, self.conf = conf["messages"], conf

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            size = self.conf["large"] if self.left % 64 == self.conf["offset"] else 1
            self.emit([self.left, f"{self.left:0{size}}"])

    def caught_up(self) -> bool:
        return not self.left


class SlowAtFirst(Collected):
    """Takes its time until all could be there."""

    taken = 0

    def process(self, tup: Tuple) -> None:
        self.taken += 1
        if self.taken < 1000:
            time.sleep(0.001)


class WaitingMixed(Topology):
    """200 MB of large rows among small ones, before a bolt."""

    config: ClassVar[dict[str, Any]] = {
        "messages": 64 * 200,
        "large": 1_000_000,
        "offset": 33,
        "collector": "ours",
    }
    rows = MixedRows.spec()
    slow = SlowAtFirst.spec(inputs=[rows])


class FailsRecordOnce(Collected):
    """Fails every record that begins with its number at its first coming, and none that is small."""

    def initialize(self, conf: Any, context: Any) -> None:
        super().initialize(conf, context)
        self.seen = bytearray(1_000_000)

    def process(self, tup: Tuple) -> None:
        if tup.values[0] == "small":
            return
        number = int(tup.values[0][:6])
        if not self.seen[number]:
            self.seen[number] = 1
            self.fail(tup)


class FailingRecords(Topology):
    config: ClassVar[dict[str, Any]] = {"collector": "ours", "streamlet.first.failures.max": 0}
    lines = KafkaSpout.spec(
        config=SpoutConfig(
            KafkaHosts("127.0.0.1:1"),
            "lines",
            id="hoards",
            retry_initial_delay_ms=1000,
            retry_limit=0,
            fetch_max_wait_ms=50,
        )
    )
    fails = FailsRecordOnce.spec(inputs=[lines])


class Node:
    """Knows its parent and its children, as nodes of a parsed document do."""

    def __init__(self, parent: Node | None, text: str) -> None:
        self.parent, self.text, self.children = parent, text, []
        if parent is not None:
            parent.children.append(self)


class Parse(Collected):
    """Builds a tree of ``nodes`` for each tuple, and keeps the last ``kept`` of them for a while."""

    def process(self, tup: Tuple) -> None:
        if not hasattr(self, "held"):
            self.held: list[Node] = []
        text, root = tup.values[1], Node(None, "")
        for n in range(self.conf["nodes"]):
            Node(root, text + str(n))
        self.held.append(root)
        if len(self.held) > self.conf["kept"]:
            self.held.clear()


class Trees(Topology):
    config: ClassVar[dict[str, Any]] = {
        "messages": 6000,
        "bytes": 2000,
        "nodes": 50,
        "kept": 0,
        "collector": "ours",
        "topology.max.spout.pending": 50,
    }
    messages = Messages.spec()
    parse = Parse.spec(inputs=[messages])


class LargeRows(Spout):
    """Emits ``messages`` rows of ``bytes`` as fast as it can, each in a call of its own and without an id."""

    outputs: ClassVar[list[str]] = ["text"]

    def initialize(self, conf: Any, context: Any) -> None:
        self.left, self.size = conf["messages"], conf["bytes"]

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.emit(["x" * self.size])

    def caught_up(self) -> bool:
        return not self.left


class Slow(Collected):
    """Takes ``pause`` seconds for each tuple."""

    def process(self, tup: Tuple) -> None:
        time.sleep(self.conf["pause"])


class LargeRowsToSlow(Topology):
    """400 MB of rows of a megabyte, before a slow bolt."""

    config: ClassVar[dict[str, Any]] = {"messages": 400, "bytes": 1_000_000, "pause": 0.005, "collector": "ours"}
    rows = LargeRows.spec()
    slow = Slow.spec(inputs=[rows])


class Grow(Collected):
    """Emits one row of ``row`` letters for each tuple."""

    outputs: ClassVar[list[str]] = ["text"]

    def process(self, tup: Tuple) -> None:
        self.emit(["x" * self.conf["row"]])


class GrowToSlow(Topology):
    """The same rows, made by a bolt of many small ones that wait before it."""

    config: ClassVar[dict[str, Any]] = {**LargeRowsToSlow.config, "bytes": 10, "row": 1_000_000}
    rows = LargeRows.spec()
    grow = Grow.spec(inputs=[rows])
    slow = Slow.spec(inputs=[grow])


class GrowOfFew(Grow):
    """Emits such a row for one tuple in ``every``, and an empty one for the others."""

    seen = 0

    def process(self, tup: Tuple) -> None:
        self.seen += 1
        self.emit(["x" * self.conf["row"] * (self.seen % self.conf["every"] == 0)])


class GrowOfFewToSlow(Topology):
    """Small ones that wait, of which a fast bolt makes 400 rows of a megabyte among empty ones."""

    config: ClassVar[dict[str, Any]] = {**GrowToSlow.config, "messages": 2000, "every": 5, "pause": 0.001}
    rows = LargeRows.spec()
    grow = GrowOfFew.spec(inputs=[rows])
    slow = Slow.spec(inputs=[grow])
