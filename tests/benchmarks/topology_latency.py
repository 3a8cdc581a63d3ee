"""The word count, with the time of each record's last ack kept by offset."""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streamlet import Grouping, Topology, TopologyContext
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig
from tests.benchmarks.topology_word_count import Count, Split


class TimedSpout(KafkaSpout):
    """Notes, for each record, when its tree was complete: (offset, seconds since the epoch). One partition."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().initialize(conf, context)
        self.times = array("d")
        self.out = Path(conf["benchmark.out"]) / "acks.bin"

    def ack(self, tup_id: Any) -> None:
        self.times.extend((tup_id[1], time.time()))
        super().ack(tup_id)

    def ack_many(self, tup_ids: Sequence[Any]) -> None:
        now = time.time()
        for _slot, offset in tup_ids:
            self.times.extend((offset, now))
        super().ack_many(tup_ids)

    def close(self) -> None:
        super().close()
        self.out.write_bytes(self.times.tobytes())


class Latency(Topology):
    config = {"benchmark.out": "set on the command line"}
    lines = TimedSpout.spec(
        config=SpoutConfig(hosts=KafkaHosts("127.0.0.1:9092"), topic="paced", zk_root="/benchmark", id="benchmark")
    )
    split = Split.spec(inputs=[lines], par=2)
    count = Count.spec(inputs={split: Grouping.fields("word")}, par=2)
