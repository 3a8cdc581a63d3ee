"""The benchmark's word count by the batch; see ``topology_word_count``."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import Batch, Bolt, Grouping, Topology, TopologyContext
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig


class Split(Bolt):
    outputs = ["word"]

    def process_batch(self, batch: Batch) -> None:
        self.emit_columns([word for line in batch.values() for word in line.split()])


class Count(Bolt):
    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: Counter[str] = Counter()
        self.out = Path(conf["benchmark.out"]) / f"count.{context.task_index}.json"
        self.first = 0.0

    def process_batch(self, batch: Batch) -> None:
        if not self.first:
            self.first = time.time()
        self.counts.update(batch.values())

    def cleanup(self) -> None:
        self.out.write_text(json.dumps({"first": self.first, "last": time.time(), "counts": self.counts}))


class WordCountByBatch(Topology):
    config = {"benchmark.out": "set on the command line"}
    lines = KafkaSpout.spec(
        config=SpoutConfig(hosts=KafkaHosts("127.0.0.1:9092"), topic="lines", zk_root="/benchmark", id="benchmark")
    )
    split = Split.spec(inputs=[lines], par=2)
    count = Count.spec(inputs={split: Grouping.fields("word")}, par=2)
