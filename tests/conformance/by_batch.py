"""Lines to words to sums, by the batch: each word that is counted is written down outside before its ack."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import Batch, Bolt, Grouping, ReliableSpout, Spout, Topology, TopologyContext, Tuple

LINES = 2_500
WORDS = 8
"""A line has words ``LINE:0`` to ``LINE:7``: 20 000 in all."""


def line_of(n: int) -> str:
    return " ".join(f"{n}:{word}" for word in range(WORDS))


class Lines(ReliableSpout):
    outputs = ["line"]
    max_fails = None

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.n = 0

    def next_tuple(self) -> None:
        if self.n < LINES:
            self.emit([line_of(self.n)], tup_id=self.n)
            self.n += 1

    def caught_up(self) -> bool:
        return self.n == LINES and not self.has_unfinished()


class LinesTogether(Spout):
    """Emits many lines in one call, each with a tree of its own; what fails comes again."""

    outputs = ["line"]
    answers_for_failures = True

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.todo = deque(range(LINES))
        self.open: set[int] = set()
        self.together = 0

    def next_tuple(self) -> None:
        ids = [self.todo.popleft() for _ in range(min(self.room(), 300, len(self.todo)))]
        if ids:
            self.open.update(ids)
            self.together += self.emit_each([[line_of(n)] for n in ids], ids)
            self.report_metric("together", self.together)

    def ack(self, tup_id: Any) -> None:
        self.open.remove(tup_id)

    def fail(self, tup_id: Any) -> None:
        self.open.remove(tup_id)
        self.todo.append(tup_id)

    def caught_up(self) -> bool:
        return not self.todo and not self.open


class Split(Bolt):
    """Fails some lines at their first try, and has words anchored to a line, to several and to the batch."""

    outputs = ["word"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.folder, self.batches = Path(conf["batch.folder"]), 0

    def process_batch(self, batch: Batch) -> None:
        self.batches += 1
        if conf_kills(self.folder, self.batches):
            os.kill(os.getpid(), signal.SIGKILL)
        lines = batch.values("line")
        if self.batches % 3 == 0:
            for tup, line in zip(batch, lines, strict=True):
                self.emit_many([[word] for word in line.split()], anchors=[tup])
        elif self.batches % 3 == 1:
            self.emit_columns([word for line in lines for word in line.split()])
        else:
            for line in lines:
                for word in line.split():
                    self.emit([word], anchors=batch.tuples[:2] + batch.tuples[2:])
        if self.batches == 7:
            raise ValueError("the seventh batch")


def conf_kills(folder: Path, batches: int) -> bool:
    """Tell whether a worker is to die now: once, where the test has asked for it."""
    try:
        if batches == 5:
            (folder / "kill").rename(folder / "killed")
            return True
    except FileNotFoundError:
        pass
    return False


class Pass(Bolt):
    """Takes what was emitted by the batch one by one, and fails one of it once."""

    outputs = ["word"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.folder = Path(conf["batch.folder"])

    def process(self, tup: Tuple) -> None:
        word = tup.values[0]
        if word == "1000:3":
            try:
                (self.folder / "fail").rename(self.folder / "failed")
            except FileNotFoundError:
                pass
            else:
                raise ValueError(word)
        self.emit([word])


class Count(Bolt):
    """Some words raise where they do not come alone."""

    on_batch_error = "split"
    batch_size = 200

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        path = Path(conf["batch.folder"], f"seen.{context.task_id}.{os.getpid()}")
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def process_batch(self, batch: Batch) -> None:
        words = batch.values("word")
        if len(batch) > 1 and any(word.endswith("77:7") for word in words):
            raise ValueError("not alone")
        os.write(self.file, "".join(f"{word}\n" for word in words).encode())

    def cleanup(self) -> None:
        os.close(self.file)


class ByBatch(Topology):
    config = {"batch.folder": ""}
    lines = Lines.spec()
    split = Split.spec(inputs=[lines], par=2)
    passes = Pass.spec(inputs=[split], par=2)
    count = Count.spec(inputs={passes: Grouping.fields("word"), split: Grouping.fields("word")}, par=2)


class TogetherByBatch(Topology):
    config = {"batch.folder": ""}
    lines = LinesTogether.spec()
    split = Split.spec(inputs=[lines], par=2)
    passes = Pass.spec(inputs=[split], par=2)
    count = Count.spec(inputs={passes: Grouping.fields("word"), split: Grouping.fields("word")}, par=2)
