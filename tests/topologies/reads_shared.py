"""A bolt that looks words up in files that the run shares, and notes what it found and where."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import Bolt, ReliableSpout, Topology, TopologyContext, Tuple


class Words(ReliableSpout):
    outputs = ["word"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.left = ["one", "two"]

    def next_tuple(self) -> None:
        if self.left:
            self.emit([self.left[-1]], tup_id=self.left.pop())

    def caught_up(self) -> bool:
        return not self.left and not self.has_unfinished()


class LookUp(Bolt):
    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        numbers, folder = context.shared["numbers"], context.shared["folder"]
        self.numbers = json.loads(numbers.read_text())
        self.told = [str(numbers), str(folder), (folder / "deep" / "note.txt").read_text()]
        self.found: dict[str, int] = {}
        self.out = Path(conf["out"]) / f"found-{context.task_id}-{os.getpid()}.json"

    def process(self, tup: Tuple) -> None:
        self.found[tup.values[0]] = self.numbers[tup.values[0]]

    def cleanup(self) -> None:
        self.out.write_text(json.dumps([self.found, *self.told]))


class ReadsShared(Topology):
    config = {"out": ""}
    words = Words.spec()
    look_up = LookUp.spec(inputs=[words], par=2)
