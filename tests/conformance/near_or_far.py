"""A paced spout, and a shuffle to tasks here and in another worker."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import Bolt, ReliableSpout, Topology, TopologyContext, Tuple

SPOUT_PID = "spout.pid"


class Paced(ReliableSpout):
    """So many numbers a second for so long; a number is emitted when its time has come, not before."""

    outputs = ["n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        Path(conf["near.folder"], SPOUT_PID).write_text(f"{os.getpid()}")
        self.rate, self.count, self.n = conf["near.rate"], conf["near.count"], 0
        self.began = time.monotonic()

    def next_tuple(self) -> None:
        if self.n < self.count and time.monotonic() - self.began >= self.n / self.rate:
            self.emit([self.n], tup_id=self.n)
            self.n += 1

    def caught_up(self) -> bool:
        return self.n == self.count


class Work(Bolt):
    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.work_s = conf["near.work.secs"]
        self.path, self.seen = Path(conf["near.folder"], f"{os.getpid()}.seen"), list[int]()

    def process(self, tup: Tuple) -> None:
        time.sleep(self.work_s)
        self.seen.append(tup.values[0])

    def cleanup(self) -> None:
        self.path.write_text("".join(f"{n}\n" for n in self.seen))


class NearOrFar(Topology):
    config = {"near.folder": "", "near.rate": 400, "near.count": 1600, "near.work.secs": 0.0}
    numbers = Paced.spec()
    work = Work.spec(inputs=[numbers], par=2)
