"""The benchmark's way from topic to topic on streamlet: tuple by tuple, or by batch where BENCHMARK_BY_BATCH is set."""

from __future__ import annotations

import os

from streamlet import Batch, Bolt, Topology, Tuple
from streamlet.bolts.kafka import KafkaBolt
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig

SERVERS = os.environ["BENCHMARK_BOOTSTRAP"]


class Upper(Bolt):
    outputs = ["word", "line"]

    def process(self, tup: Tuple) -> None:
        line = tup.values[0]
        self.emit([line.split(" ", 1)[0], line.upper()])


class UpperByBatch(Bolt):
    outputs = ["word", "line"]

    def process_batch(self, batch: Batch) -> None:
        lines = batch.values(0)
        self.emit_columns([line.split(" ", 1)[0] for line in lines], [line.upper() for line in lines])


class Copy(Topology):
    config = {"topology.max.spout.pending": 20_000}  # 2000 are two batches on their way to the broker
    lines = KafkaSpout.spec(
        config=SpoutConfig(KafkaHosts(SERVERS), os.environ["BENCHMARK_TOPIC"], id=os.environ["BENCHMARK_OUTPUT"])
    )
    upper = (UpperByBatch if "BENCHMARK_BY_BATCH" in os.environ else Upper).spec(inputs=[lines])
    out = KafkaBolt.spec(
        inputs=[upper],
        hosts=SERVERS,
        topic=os.environ["BENCHMARK_OUTPUT"],
        key="word",
        value="line",
    )
