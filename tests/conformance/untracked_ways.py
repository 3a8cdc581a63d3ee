"""Tuples that nobody tracks, made in several ways, and a bolt that writes each one down where others can count.

``accounts.way``: ``off`` (tracking is off), ``no id`` (the spout gives none), ``unanchored`` (a bolt passes on without
an anchor), ``ticks`` (a bolt emits what it has at its ticks). ``accounts.last_after``: a file that must be there before
the last one is emitted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import Bolt, Spout, Topology, TopologyContext, Tuple

COUNT = 20_000


class Numbers(Spout):
    outputs = ["n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.n, self.with_id = 0, conf["accounts.way"] in ("unanchored", "ticks")
        self.last_after = conf.get("accounts.last_after")

    def next_tuple(self) -> None:
        if self.n == COUNT - 1 and self.last_after and not Path(self.last_after).exists():
            return
        if self.n < COUNT:
            self.emit([self.n], tup_id=self.n if self.with_id else None)
            self.n += 1

    def caught_up(self) -> bool:
        return self.n == COUNT


class PassOn(Bolt):
    outputs = ["n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.kept: list[list[Any]] | None = [] if conf["accounts.way"] == "ticks" else None
        Path(conf["accounts.folder"], "pass_on.pid").write_text(str(os.getpid()))

    def process(self, tup: Tuple) -> None:
        if self.kept is not None:
            self.kept.append(tup.values)
        else:
            self.emit(tup.values, anchors=[])

    def process_tick(self, tup: Tuple) -> None:
        for values in self.kept or ():
            self.emit(values)
        if self.kept:
            self.kept = []


class Slow(Bolt):
    """Writes each tuple down before it is done, past every buffer."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        path = Path(conf["accounts.folder"], f"seen.{context.task_id}")
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.every, self.sleep_s = 20, conf["accounts.sleep_s"]
        Path(conf["accounts.folder"], "slow.pid").write_text(str(os.getpid()))

    def process(self, tup: Tuple) -> None:
        os.write(self.file, b"%d\n" % tup.values[0])
        if tup.values[0] % self.every == 0:
            time.sleep(self.sleep_s)

    def cleanup(self) -> None:
        os.close(self.file)


class Ways(Topology):
    config = {
        "accounts.way": "",
        "accounts.folder": "",
        "accounts.sleep_s": 0.0,
        "accounts.last_after": "",
        "topology.tick.tuple.freq.secs": 0.05,
    }
    numbers = Numbers.spec()
    pass_on = PassOn.spec(inputs=[numbers])
    slow = Slow.spec(inputs=[pass_on])
