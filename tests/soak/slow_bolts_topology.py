"""KafkaSpout before a bolt that sleeps as a slow service does; each record is written down before its ack.

``slow.kind``: seconds a record (``0.03``), ``becomes`` (1 ms, after 2 000 records 0.2 s), ``unequal`` (one task of
three takes 0.3 s, the others 10 ms).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import Bolt, Topology, TopologyContext, Tuple
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig


class Slow(Bolt):
    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.kind, self.index, self.done = str(conf["slow.kind"]), context.task_index, 0
        path = Path(conf["slow.out"], f"done.{self.index}")
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def process(self, tup: Tuple) -> None:
        time.sleep(self.takes_s())
        self.done += 1
        os.write(self.file, b"%d\n" % int(tup.values[0]))

    def takes_s(self) -> float:
        """Return how long this record takes."""
        if self.kind == "becomes":
            return 0.001 if self.done < 2000 else 0.2
        if self.kind == "unequal":
            return 0.3 if self.index == 0 else 0.01
        return float(self.kind)


class SlowBolts(Topology):
    """All defaults but where the records are."""

    config = {"slow.kind": "0.03", "slow.out": "set on the command line"}
    records = KafkaSpout.spec(
        config=SpoutConfig(hosts=KafkaHosts("127.0.0.1:9092"), topic="records", zk_root="/slow", id="slow")
    )
    slow = Slow.spec(inputs=[records])


class UnequalTasks(SlowBolts):
    """Three tasks take turns, and one of them is slower than the others."""

    slow = Slow.spec(inputs=[SlowBolts.records], par=3)
