"""The benchmark's word count on streamlet: the time of the first tuple is kept beside the counts."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import Bolt, Grouping, Topology, TopologyContext, Tuple
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig


class Split(Bolt):
    outputs = ["word"]

    def process(self, tup: Tuple) -> None:
        for word in tup.values[0].split():
            self.emit([word])


class Count(Bolt):
    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: dict[str, int] = {}
        self.out = Path(conf["benchmark.out"]) / f"count.{context.task_index}.json"
        self.first = 0.0

    def process(self, tup: Tuple) -> None:
        word = tup.values[0]
        self.counts[word] = self.counts.get(word, 0) + 1
        if not self.first:
            self.first = time.time()

    def cleanup(self) -> None:
        self.out.write_text(json.dumps({"first": self.first, "last": time.time(), "counts": self.counts}))


class WordCount(Topology):
    config = {"benchmark.out": "set on the command line"}
    lines = KafkaSpout.spec(
        config=SpoutConfig(hosts=KafkaHosts("127.0.0.1:9092"), topic="lines", zk_root="/benchmark", id="benchmark")
    )
    split = Split.spec(inputs=[lines], par=2)
    count = Count.spec(inputs={split: Grouping.fields("word")}, par=2)
