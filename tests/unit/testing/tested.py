"""Components and a topology that the tests of the testing kit test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamlet import (
    Bolt,
    Grouping,
    ReliableSpout,
    Stream,
    Topology,
    Tuple,
)


class Split(Bolt):
    outputs = [Stream(["word"]), Stream(["line", "why"], name="bad")]

    def process(self, tup: Tuple) -> None:
        if not tup.values[0]:
            self.emit([tup.values[0], "empty"], stream="bad")
        for word in tup.values[0].split():
            if word == "bomb":
                raise ValueError("a bomb")
            self.emit([word])


class Bill(Bolt):
    def process(self, tup: Tuple) -> None:
        if not tup.values[0]:
            self.dead_letter(tup, "no customer")


class Orders(ReliableSpout):
    outputs = ["customer"]

    def next_tuple(self) -> None: ...


class Hold(Bolt):
    outputs = ["many"]
    auto_ack = False

    def initialize(self, conf: Any, context: Any) -> None:
        self.held: list[Tuple] = []
        self.clock = context.clock

    def process(self, tup: Tuple) -> None:
        self.held.append(tup)
        if tup.values[0] == "no":
            self.fail(tup)

    def process_tick(self, tup: Tuple) -> None:
        assert self.is_tick(tup)
        self.emit([[self.clock.monotonic(), len(self.held)]], anchors=self.held[:1])
        for one in self.held:
            self.ack(one)
        self.held = []


class Lines(ReliableSpout):
    """Stands for a spout that needs something outside: a test never builds it."""

    outputs = [Stream(["line"]), Stream(["note"], name="notes")]

    def __init__(self) -> None:
        raise AssertionError("built, though a list was given")

    def next_tuple(self) -> None: ...


class Count(Bolt):
    outputs = ["word", "count"]

    def initialize(self, conf: Any, context: Any) -> None:
        self.counts: dict[str, int] = {}
        self.file = Path(conf["out"])

    def process(self, tup: Tuple) -> None:
        word = tup.values[0]
        self.counts[word] = self.counts.get(word, 0) + 1
        self.emit([word, self.counts[word]])
        self.report_metric("words", len(self.counts))

    def cleanup(self) -> None:
        self.file.write_text(str(self.counts))


class Words(Topology):
    config = {"out": "/nowhere"}
    lines = Lines.spec()
    split = Split.spec(inputs=[lines], par=2)
    count = Count.spec(inputs={split: Grouping.fields("word")})


class Flaky(Bolt):
    def process(self, tup: Tuple) -> None:
        tries = vars(self).setdefault("tries", {})
        tries[tup.values[0]] = tries.get(tup.values[0], 0) + 1
        if tries[tup.values[0]] <= {"once": 1, "never": 99}.get(tup.values[0], 0):
            raise ConnectionError(tup.values[0])


class Flaking(Topology):
    lines = Lines.spec()
    flaky = Flaky.spec(inputs=[lines])


class Named(ReliableSpout):
    outputs = [Stream(["user", "amount"]), Stream(["user"], name="gone")]

    def next_tuple(self) -> None: ...


class Greet(Bolt):
    outputs = ["text"]

    def process(self, tup: Tuple) -> None:
        self.emit([f"{tup.component}.{tup.stream}: {tup.values.user}"])  # type: ignore[attr-defined]


class Greeting(Topology):
    people = Named.spec()
    greet = Greet.spec(inputs=[people, people["gone"]])
    bye = Greet.spec(inputs=[people["gone"]])
