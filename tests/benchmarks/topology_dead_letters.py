"""Numbers on their way to a bolt that refuses those with an x at their end; it notes when the others were done."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from streamlet import Bolt, Topology, Tuple
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig

SETTINGS: dict[str, Any] = {"on_poison": os.environ["BENCHMARK_ON_POISON"], "retry_limit": 2}

WORK_S = float(os.environ["BENCHMARK_WORK_US"]) / 1e6
"""Seconds of work for a tuple."""


class Check(Bolt):
    def initialize(self, conf: Any, context: Any) -> None:
        self.done = 0
        self.first = self.last = 0.0

    def process(self, tup: Tuple) -> None:
        if tup.values[0].endswith("x"):
            raise ValueError(tup.values[0])
        until = time.perf_counter() + WORK_S
        while WORK_S and time.perf_counter() < until:
            pass
        self.done += 1
        self.last = time.monotonic()
        self.first = self.first or self.last

    def cleanup(self) -> None:
        Path(os.environ["BENCHMARK_OUTPUT"]).write_text(json.dumps([self.done, self.last - self.first]))


class Checked(Topology):
    numbers = KafkaSpout.spec(
        config=SpoutConfig(
            KafkaHosts(os.environ["BENCHMARK_BOOTSTRAP"]),
            os.environ["BENCHMARK_TOPIC"],
            id=os.environ["BENCHMARK_ID"],
            dead_letter_topic=os.environ["BENCHMARK_LETTERS"],
            **SETTINGS,
        )
    )
    check = Check.spec(inputs=[numbers])
