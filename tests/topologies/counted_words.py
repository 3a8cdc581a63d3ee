"""Words of lines, counted at each word, and again by the tick; resident or on DataFrames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import Batch, Bolt, Grouping, ReliableSpout, Stream, Topology, TopologyContext, Tuple


class Lines(ReliableSpout):
    """Lines of a file, each once."""

    outputs = ["line"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.rest = enumerate(Path(conf["counted.lines"]).read_text().splitlines())

    def next_tuple(self) -> None:
        for number, line in self.rest:
            self.emit([line], tup_id=number)
            return
        self.over = True

    def caught_up(self) -> bool:
        return getattr(self, "over", False) and not self.has_unfinished()


class Split(Bolt):
    """A line's words. One that says "bad" fails."""

    outputs = [Stream(["word"]), Stream(["line", "words"], name="lengths")]

    def process(self, tup: Tuple) -> None:
        line = tup.values[0]
        words = line.split()
        for word in words:
            if word == "bad":
                raise ValueError(f"a bad word in {line!r}")
            self.emit([word])
        self.emit([line, len(words)], stream="lengths")


class Lower(Bolt):
    """Words by the batch."""

    outputs = ["word"]

    def process_batch(self, batch: Batch) -> None:
        self.emit_columns([word.lower() for word in batch.values("word")])


class Count(Bolt):
    """The count of each word so far, at each word."""

    outputs = ["word", "n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: Counter[str] = Counter()

    def process(self, tup: Tuple) -> None:
        word = tup.values[0]
        self.counts[word] += 1
        self.emit([word, self.counts[word]])


class Window(Bolt):
    """What came of each word between two ticks."""

    outputs = ["word", "n"]
    config = {"topology.tick.tuple.freq.secs": 0.5}

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: Counter[str] = Counter()

    def process(self, tup: Tuple) -> None:
        self.counts[tup.values[0]] += 1

    def process_tick(self, tup: Tuple) -> None:
        for word, count in self.counts.items():
            self.emit([word, count])
        self.counts.clear()


class CountedWords(Topology):
    """lines -> split -> lower -> count, and -> window."""

    config = {"counted.lines": ""}
    lines = Lines.spec()
    split = Split.spec(inputs=[lines])
    lower = Lower.spec(inputs=[split])
    count = Count.spec(inputs={lower: Grouping.fields("word")}, par=2)
    window = Window.spec(inputs={lower: Grouping.fields("word")}, par=2)
