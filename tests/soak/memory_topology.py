"""Large lines through a bolt that first sleeps and then is slow; ``long_memory.py`` fills in SETTINGS."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from streamlet import Bolt, Topology, Tuple
from streamlet.spouts.kafka import KafkaSpout, SpoutConfig, ZkHosts
from streamlet.spouts.kafka.schemes.scheme import RawScheme

SETTINGS: dict[str, Any] = {}


class Relay(Bolt):
    """Passes every line on, to either worker."""

    outputs = ["line"]

    def process(self, tup: Tuple) -> None:
        self.emit([tup.values[0]])


class Slow(Bolt):
    """Sleeps once, for long, at its first tuple; then a little at each. Says at its end what it has seen."""

    outputs = ["line"]

    def initialize(self, conf: Any, context: Any) -> None:
        self.seen = bytearray(SETTINGS["records"])  # all of it from the start: it must not grow with what is seen
        self.task = context.task_id
        self.slept = False

    def process(self, tup: Tuple) -> None:
        if not self.slept:
            self.slept = True
            time.sleep(SETTINGS["sleep_s"])
        self.seen[int.from_bytes(tup.values[0][:8], "big")] = 1
        self.emit([tup.values[0]])
        time.sleep(SETTINGS["each_s"])

    def cleanup(self) -> None:
        Path(SETTINGS["folder"], f"seen-{self.task}-{os.getpid()}").write_bytes(self.seen)


class Back(Bolt):
    """Takes the way back to the spout's worker."""

    def process(self, tup: Tuple) -> None: ...


class Memory(Topology):
    lines = KafkaSpout.spec(
        config=SpoutConfig(
            ZkHosts(SETTINGS["zookeeper"]), SETTINGS["topic"], "/streamlet", SETTINGS["topic"], scheme=RawScheme
        )
    )
    relay = Relay.spec(inputs=[lines], par=2)
    slow = Slow.spec(inputs=[relay])  # on the worker that has no spout: the other one goes on, and fills the link
    back = Back.spec(inputs=[slow])
