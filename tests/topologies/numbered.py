"""Numbers from a finite reliable spout, remembered by a witness: an id is in its file before its tuple is acked."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numbered_neighbour import square

from streamlet import Bolt, Grouping, ReliableSpout, Topology, TopologyContext, Tuple


def note(folder: str, name: str, line: str) -> None:
    """One whole line, with one system call: it survives whatever happens to this process."""
    handle = os.open(Path(folder) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


def note_start(folder: str, component: str, epoch: int) -> None:
    """Which process a task came to life in."""
    note(folder, "started.jsonl", json.dumps([component, epoch, os.getpid(), os.getppid(), sys.executable]))


class Numbers(ReliableSpout):
    """0, 1, 2 ...: a few at a time, and no faster than ``numbers.per.second``.

    The last one waits for the file ``numbers.gate``, where that is set.
    """

    outputs = ["number"]
    max_fails = None

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.folder, self.count, self.rate = conf["out"], conf["numbers.count"], conf["numbers.per.second"]
        self.gate = conf["numbers.gate"]
        self.number = 0
        self.clock = context.clock
        note_start(self.folder, "spout", context.epoch)

    def activate(self) -> None:
        self.since = self.clock.monotonic()

    def next_tuple(self) -> None:
        if self.number < min(self.count, (self.clock.monotonic() - self.since) * self.rate):
            if self.gate and self.number == self.count - 1 and not os.path.exists(self.gate):
                return
            self.emit([self.number], tup_id=self.number)
            self.number += 1

    def caught_up(self) -> bool:
        return self.number >= self.count and not self.has_unfinished()


class Squares(Bolt):
    """Writes each number down before it acks it."""

    outputs = ["parity", "square"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.folder, self.nap = conf["out"], conf["numbers.nap"]
        note_start(self.folder, "squares", context.epoch)

    def process(self, tup: Tuple) -> None:
        (number,) = tup.values
        if self.nap:
            time.sleep(self.nap)
        note(self.folder, "witness", str(number))
        self.emit([number % 2, square(number)])


class Sums(Bolt):
    """The sum of each parity, printed and written at the end."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.folder, self.sums = conf["out"], {0: 0, 1: 0}
        note_start(self.folder, "sums", context.epoch)

    def process(self, tup: Tuple) -> None:
        parity, value = tup.values
        self.sums[parity] += value

    def cleanup(self) -> None:
        print(f"sums of {os.getpid()}: {self.sums}")
        note(self.folder, "sums.jsonl", json.dumps(self.sums))


class Numbered(Topology):
    """numbers -> squares -> sums; the second task of each bolt sits in the second worker."""

    config = {"out": "", "numbers.count": 1000, "numbers.per.second": 1e9, "numbers.nap": 0.0, "numbers.gate": ""}
    numbers = Numbers.spec()
    squares = Squares.spec(inputs=[numbers], par=2)
    sums = Sums.spec(inputs={squares: Grouping.fields("parity")}, par=2)
