"""One topology that holds every case of the conformance suite; each backend runs it once, and the tests read what
its tasks wrote down. A case is a spout with a few bolts of its own; cases share nothing but the run.

Every task appends JSON lines to a file of its own in the folder that ``suite.results`` names.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from neighbour import introduce

from streamlet import Bolt, Grouping, ReliableSpout, Spout, Stream, StreamId, Topology, Tuple


class Recorder:
    """Writes lines to this task's file, one system call each: they survive whatever happens to the worker."""

    def open(self, conf: Mapping[str, Any], context: Any) -> None:
        self.context = context
        path = Path(conf["suite.results"]) / f"{context.component_name}.{context.task_index}.{context.epoch}.jsonl"
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, what: str, **facts: Any) -> None:
        line = {"what": what, "pid": os.getpid(), "task": self.context.task_id, **facts}
        os.write(self.file, (json.dumps(line, default=repr) + "\n").encode())


class RecordingBolt(Bolt, Recorder):
    def initialize(self, conf: Mapping[str, Any], context: Any) -> None:
        self.open(conf, context)
        self.conf = conf
        tag = conf.get("tag")
        self.note("initialize", index=context.task_index, count=context.task_count, tag=tag, neighbour=introduce())

    def cleanup(self) -> None:
        self.note("cleanup")


class Script(Spout, Recorder):
    """Emits ``script.count`` numbered tuples, each once, and writes down what it hears of them."""

    outputs = ["n"]
    timer_interval_s = 0.2

    def initialize(self, conf: Mapping[str, Any], context: Any) -> None:
        self.open(conf, context)
        self.conf = conf
        self.next = 0
        self.count = conf.get("script.count", 20)
        self.open_ids: set[Any] = set()
        self.note("initialize")

    def next_tuple(self) -> None:
        if self.next < self.count:
            self.next += 1
            self.send(self.next - 1)

    def send(self, n: int) -> None:
        self.track(n)
        self.emit([n], tup_id=n)

    def track(self, tup_id: Any) -> None:
        self.open_ids.add(tup_id)

    def ack(self, tup_id: Any) -> None:
        self.note("ack", id=tup_id, inside=tup_id in self.open_ids)
        self.open_ids.discard(tup_id)

    def fail(self, tup_id: Any) -> None:
        self.note("fail", id=tup_id)
        self.open_ids.discard(tup_id)

    def activate(self) -> None:
        self.note("activate")

    def deactivate(self) -> None:
        self.note("deactivate")

    def close(self) -> None:
        self.note("close")

    def caught_up(self) -> bool:
        return self.next >= self.count and not self.open_ids


class Seen(RecordingBolt):
    """Writes down every tuple."""

    def process(self, tup: Tuple) -> None:
        self.note("tuple", values=tup.values, source=tup.component, stream=tup.stream, sender=tup.task)


# -- values ----------------------------------------------------------------------------------------------------------

VALUES: dict[str, Any] = {
    "none": None,
    "true": True,
    "zero": 0,
    "least": -(2**63),
    "most": 2**64 - 1,
    "float": -1.5,
    "infinite": float("inf"),
    "empty": "",
    "text": "naïve ☃ \U0001f600",
    "lone surrogate": "\ud800",
    "bytes": b"\x00\xff",
    "long": "x" * 200_000,
    "list": [1, [2, ["three"]]],
    "tuple": (1, ("two",)),
    "dict": {"a": 1, "b": {"c": [None]}},
    "int keys": {1: "one", -2: "minus two"},
    "bytes key": {b"k": True},
    "instant": datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
    "other zone": datetime(1960, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=5, minutes=30))),
}


class Typed(Script):
    outputs = ["name", "value"]

    def send(self, n: int) -> None:
        name = list(VALUES)[n]
        self.track(name)
        self.emit([name, VALUES[name]], tup_id=name)


class Compare(RecordingBolt):
    """Says whether what arrived is what was sent, tuples as lists."""

    def process(self, tup: Tuple) -> None:
        name, value = tup.values
        same = as_lists(VALUES[name]) == value and type(as_lists(VALUES[name])) is type(value)
        self.note("value", name=name, same=same, shape=type(tup.values).__name__)


def as_lists(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [as_lists(item) for item in value]
    return {k: as_lists(v) for k, v in value.items()} if isinstance(value, dict) else value


CANNOT: dict[str, Any] = {
    "set": {1},
    "big int": 2**64,
    "tuple key": {(1, 2): 3},
    "naive datetime": datetime(2026, 1, 1),
    "object": object(),
    "bytearray": bytearray(b"x"),
    "complex": 1j,
    "int subclass": type("MyInt", (int,), {})(3),
}


class Refuser(RecordingBolt):
    """Tries to emit what cannot travel; the error must come from that very emit, and name the field."""

    outputs = ["thing"]

    def process(self, tup: Tuple) -> None:
        names = list(CANNOT)
        if tup.values[0] >= len(names):
            self.emit(["fine"])
            return
        name = names[tup.values[0]]
        try:
            self.emit([CANNOT[name]])
        except Exception as error:
            self.note("refused", name=name, kind=type(error).__name__, text=str(error))
            raise


# -- groupings -------------------------------------------------------------------------------------------------------


class Keys(Script):
    outputs = ["key", "n"]
    KEYS = ("a", "b", 1, 1.0, True, 2, "c", None, [1, 2], [1.0, 2.0], {"x": 1, "y": 2}, {"y": 2.0, "x": 1})

    def send(self, n: int) -> None:
        self.track(n)
        self.emit([self.KEYS[n % len(self.KEYS)], n], tup_id=n)


class Relay(RecordingBolt):
    """A second sender in between, so that keys arrive from several tasks. ``turn`` counts what this task sends."""

    outputs = ["key", "n", "turn"]

    def initialize(self, conf: Mapping[str, Any], context: Any) -> None:
        super().initialize(conf, context)
        self.turn = 0

    def process(self, tup: Tuple) -> None:
        self.turn += 1
        self.emit([*tup.values, self.turn])


class Directing(Script):
    outputs = [Stream(["n"], name="to", direct=True)]

    def send(self, n: int) -> None:
        targets = self.context.component_tasks("direct_seen")
        self.track(n)
        told = self.emit([n], tup_id=n, stream="to", direct_task=targets[n % len(targets)], need_task_ids=True)
        self.note("sent", n=n, to=targets[n % len(targets)], told=told)


class TwoStreams(Script):
    """Alternates streams: the order between two tasks holds across them."""

    outputs = [Stream(["n"], name="even"), Stream(["n"], name="odd")]

    def send(self, n: int) -> None:
        self.track(n)
        self.emit([n], tup_id=n, stream="odd" if n % 2 else "even")


# -- trees -----------------------------------------------------------------------------------------------------------


class Fanout(RecordingBolt):
    outputs = ["n"]

    def process(self, tup: Tuple) -> None:
        for copy in range(5):
            self.emit([tup.values[0] * 10 + copy])


class FailSome(RecordingBolt):
    """Fails what ends in 3, raises on what ends in 7, swallows nothing."""

    def process(self, tup: Tuple) -> None:
        last = tup.values[0] % 10
        if last == 3:
            self.fail(tup)
        elif last == 7:
            raise RuntimeError("seven")


class Swallow(RecordingBolt):
    """Never acks multiples of five."""

    auto_ack = False

    def process(self, tup: Tuple) -> None:
        if tup.values[0] % 5:
            self.ack(tup)
            self.ack(tup)  # a second ack changes nothing


class Unanchored(RecordingBolt):
    """What it sends on is in no tree: a failure below concerns nobody above."""

    auto_anchor = False
    outputs = ["n"]

    def process(self, tup: Tuple) -> None:
        self.emit([tup.values[0]])


class AlwaysFail(RecordingBolt):
    def process(self, tup: Tuple) -> None:
        self.note("failing", n=tup.values[0])
        raise ValueError("always")


class Join(RecordingBolt):
    """Holds two tuples, then emits one anchored to both, then acks both."""

    auto_ack = False
    outputs = ["pair"]

    def initialize(self, conf: Mapping[str, Any], context: Any) -> None:
        super().initialize(conf, context)
        self.held: list[Tuple] = []

    def process(self, tup: Tuple) -> None:
        self.held.append(tup)
        if len(self.held) == 2:
            pair, self.held = self.held, []
            self.emit([[tup.values[0] for tup in pair]], anchors=pair)
            for held in pair:
                self.ack(held)


class FailPair(RecordingBolt):
    """Fails the pair that holds 4: both trees fail. All others complete both."""

    def process(self, tup: Tuple) -> None:
        if 4 in tup.values[0]:
            self.fail(tup)


class Diamond(RecordingBolt):
    """Two tuples of *one* tree are joined: their edges must not cancel each other."""

    outputs = ["n"]

    def process(self, tup: Tuple) -> None:
        self.emit([tup.values[0]])
        self.emit([tup.values[0]])


class ManyOfOne(Script):
    """Odd numbers give three tuples of one root; even ones none at all."""

    def send(self, n: int) -> None:
        self.track(n)
        self.emit_many([[n]] * (3 if n % 2 else 0), tup_id=n)


class FailThird(RecordingBolt):
    """Fails one of the three tuples of message 5 only: the message fails once."""

    def initialize(self, conf: Mapping[str, Any], context: Any) -> None:
        super().initialize(conf, context)
        self.fives = 0

    def process(self, tup: Tuple) -> None:
        if tup.values[0] == 5:
            self.fives += 1
            if self.fives == 2:
                self.fail(tup)


class Nobody(Script):
    """Emits on a stream that nobody reads, and untracked tuples on one that somebody does."""

    outputs = [Stream(["n"], name="unread"), Stream(["n"], name="untracked")]

    def send(self, n: int) -> None:
        self.track(n)
        self.emit([n], tup_id=n, stream="unread")
        self.emit([n], stream="untracked")


class Replaying(ReliableSpout, Recorder):
    """A ReliableSpout: what fails twice is replayed twice; what always fails is given up and named."""

    outputs = ["n"]
    max_fails = 2
    timer_interval_s = 0.1

    def initialize(self, conf: Mapping[str, Any], context: Any) -> None:
        self.open(conf, context)
        self.next = 0

    def next_tuple(self) -> None:
        if self.next < 10:
            self.next += 1
            self.emit([self.next - 1], tup_id=self.next - 1)

    def ack(self, tup_id: Any) -> None:
        self.note("ack", id=tup_id)
        super().ack(tup_id)

    def fail(self, tup_id: Any) -> None:
        self.note("fail", id=tup_id)
        super().fail(tup_id)

    def given_up(self, tup_id: Any, values: Any, fails: int) -> None:
        self.note("given up", id=tup_id, fails=fails)

    def caught_up(self) -> bool:
        return self.next == 10 and not self.has_unfinished()


class FailTwice(RecordingBolt):
    def initialize(self, conf: Mapping[str, Any], context: Any) -> None:
        super().initialize(conf, context)
        self.times: dict[int, int] = {}

    def process(self, tup: Tuple) -> None:
        n = tup.values[0]
        self.times[n] = self.times.get(n, 0) + 1
        self.note("try", n=n, time=self.times[n])
        if (n == 3 and self.times[n] <= 2) or n == 8:
            self.fail(tup)


class Loop(RecordingBolt):
    """Sends what it gets back to itself until it is zero: a cycle in the graph, one tree."""

    outputs = ["n"]

    def process(self, tup: Tuple) -> None:
        self.note("round", n=tup.values[0])
        if tup.values[0] > 0:
            self.emit([tup.values[0] - 1])


# -- misuse ----------------------------------------------------------------------------------------------------------


class Misuse(RecordingBolt):
    """Each number is another mistake; each must raise where it is made and fail that tree only."""

    outputs = ["one", "two"]

    def process(self, tup: Tuple) -> None:
        try:
            self.mistake(tup.values[0], tup)
        except Exception as error:
            self.note("mistake", n=tup.values[0], kind=type(error).__name__, text=str(error))
            raise

    def mistake(self, n: int, tup: Tuple) -> None:
        if n == 0:
            self.emit(["only one"])
        elif n == 1:
            self.emit("no")
        elif n == 2:
            self.emit([1, 2], stream="elsewhere")
        elif n == 3:
            self.ack(tup)
            self.emit([1, 2])
        elif n == 4:
            self.emit([1, 2], direct_task=1)


# -- time ------------------------------------------------------------------------------------------------------------


class Ticking(RecordingBolt):
    """Collects, and acks all it has at each tick (what a batching bolt does)."""

    auto_ack = False
    outputs = ["size"]

    def initialize(self, conf: Mapping[str, Any], context: Any) -> None:
        super().initialize(conf, context)
        self.batch: list[Tuple] = []

    def process(self, tup: Tuple) -> None:
        self.batch.append(tup)

    def process_tick(self, tup: Tuple) -> None:
        self.note("tick", tick=self.is_tick(tup), held=len(self.batch))
        for held in self.batch:
            self.ack(held)
        self.batch.clear()


class Slow(RecordingBolt):
    def process(self, tup: Tuple) -> None:
        time.sleep(0.02)
        self.note("slow", n=tup.values[0])


class Aliasing(RecordingBolt):
    """Changes a list after emitting it; receivers must see what was emitted."""

    outputs = ["box"]

    def process(self, tup: Tuple) -> None:
        inner = [tup.values[0]]
        row: list[Any] = [inner]
        self.emit(row)
        inner.append("later")
        row[0] = "later"


class Shared(Script):
    """A row with a container in it, for several readers."""

    outputs = ["text", "nested"]

    def send(self, n: int) -> None:
        self.track(n)
        self.emit([f"T{n}", {"n": [n]}], tup_id=n)


class PassOn(RecordingBolt):
    outputs = ["text", "nested"]

    def process(self, tup: Tuple) -> None:
        self.emit(tup.values)


class Meddle(RecordingBolt):
    """Works in what it was given, as bolts do; nobody else may see it."""

    def process(self, tup: Tuple) -> None:
        tup.values[1]["n"].append({"a set has no place": "here"})
        tup.values[0] = tup.values[0].lower()
        tup.values.pop()
        self.note("tuple", values=tup.values)


class Metrics(RecordingBolt):
    def process(self, tup: Tuple) -> None:
        self.report_metric("last", tup.values[0])
        self.log(f"measured {tup.values[0]}", "debug")


class Suite(Topology):
    config = {
        "suite.results": "set on the command line",
        "topology.message.timeout.secs": 4,
        "topology.max.spout.pending": 100,
    }

    typed = Typed.spec(config={"script.count": len(VALUES)})
    compare = Compare.spec(inputs={typed: Grouping.ALL}, par=2)

    refused = Script.spec(config={"script.count": len(CANNOT) + 5})
    refuser = Refuser.spec(inputs=[refused])
    refused_seen = Seen.spec(inputs=[refuser])

    shuffled = Script.spec(config={"script.count": 90})
    shuffle_seen = Seen.spec(inputs=[shuffled], par=3)
    keys = Keys.spec(config={"script.count": 240}, par=2)
    # By the number, which deals each key out to both relays alike: a shuffle goes where there is less to do, and may
    # leave one of them a single tuple of a key.
    relay = Relay.spec(inputs={keys: Grouping.fields("n")}, par=2)
    fields_seen = Seen.spec(inputs={relay: Grouping.fields("key")}, par=4)
    all_seen = Seen.spec(inputs={shuffled: Grouping.ALL}, par=2)
    global_seen = Seen.spec(inputs={shuffled: Grouping.GLOBAL}, par=3)
    none_seen = Seen.spec(inputs={shuffled: Grouping.NONE}, par=2)
    local_seen = Seen.spec(inputs={shuffled: Grouping.LOCAL_OR_SHUFFLE}, par=4)
    directing = Directing.spec(config={"script.count": 12})
    direct_seen = Seen.spec(inputs={directing["to"]: Grouping.DIRECT}, par=3)
    two_streams = TwoStreams.spec(config={"script.count": 200})
    order_seen = Seen.spec(inputs=[two_streams["even"], two_streams["odd"]], par=1)
    order_far = Seen.spec(inputs={two_streams["even"]: Grouping.ALL, two_streams["odd"]: Grouping.ALL}, par=2)

    fanned = Script.spec(config={"script.count": 50})
    fanout = Fanout.spec(inputs=[fanned], par=2)
    fan_seen = Seen.spec(inputs={fanout: Grouping.fields("n")}, par=2)
    failing = Script.spec(config={"script.count": 40})
    fail_some = FailSome.spec(inputs=[failing], par=2)
    swallowed = Script.spec(config={"script.count": 10})
    swallow = Swallow.spec(inputs=[swallowed], par=2)
    loose = Script.spec(config={"script.count": 10})
    unanchored = Unanchored.spec(inputs=[loose])
    always_fail = AlwaysFail.spec(inputs=[unanchored])
    paired = Script.spec(config={"script.count": 10})
    join = Join.spec(inputs=[paired])
    fail_pair = FailPair.spec(inputs=[join], par=2)
    doubled = Script.spec(config={"script.count": 10})
    diamond = Diamond.spec(inputs=[doubled])
    rejoin = Join.spec(inputs=[diamond])
    rejoined = Seen.spec(inputs=[rejoin], par=2)
    many = ManyOfOne.spec(config={"script.count": 10})
    many_seen = FailThird.spec(inputs={many: Grouping.GLOBAL})
    nobody = Nobody.spec(config={"script.count": 10})
    untracked_fail = AlwaysFail.spec(inputs=[nobody["untracked"]])
    replaying = Replaying.spec()
    fail_twice = FailTwice.spec(inputs={replaying: Grouping.fields("n")}, par=2)
    looped = Script.spec(config={"script.count": 5})
    loop = Loop.spec(inputs={looped: Grouping.SHUFFLE, StreamId("loop"): Grouping.SHUFFLE}, par=2)

    misused = Script.spec(config={"script.count": 8})
    misuse = Misuse.spec(inputs=[misused])
    misuse_seen = Seen.spec(inputs=[misuse])

    ticked = Script.spec(config={"script.count": 30})
    ticking = Ticking.spec(inputs=[ticked], config={"topology.tick.tuple.freq.secs": 0.3, "tag": "own"})
    slowed = Script.spec(config={"script.count": 40})
    slow = Slow.spec(inputs=[slowed], par=2)
    aliased = Script.spec(config={"script.count": 5})
    aliasing = Aliasing.spec(inputs=[aliased])
    alias_seen = Seen.spec(inputs={aliasing: Grouping.ALL}, par=2)
    shared = Shared.spec(config={"script.count": 5})
    pass_on = PassOn.spec(inputs=[shared])
    meddle = Meddle.spec(inputs={shared: Grouping.ALL, pass_on: Grouping.ALL}, par=2)
    unmeddled = Seen.spec(inputs={shared: Grouping.ALL, pass_on: Grouping.ALL}, par=2)
    measured = Script.spec(config={"script.count": 5})
    metrics = Metrics.spec(inputs=[measured])
