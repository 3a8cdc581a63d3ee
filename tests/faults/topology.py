"""The topology under fault: lines of a topic, split into words, each word confirmed by the witness before its ack.

The tests copy this file and fill in SETTINGS. A line is ``PARTITION-OFFSET word word word``; the id of a word is that
of its line with its place behind it.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from streamlet import Bolt, Grouping, Topology, Tuple
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig, ZkHosts

SETTINGS: dict[str, Any] = {}


class ToWitness:
    """A connection to the witness."""

    def __init__(self, role: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(SETTINGS["witness"])
        self.tell(f"h {os.getpid()} {role}")

    def tell(self, line: str) -> None:
        """Nothing comes back."""
        self.sock.sendall(line.encode() + b"\n")

    def store(self, ids: list[str]) -> None:
        """Returns when they are stored."""
        self.tell("w " + " ".join(ids))
        if not self.sock.recv(2):
            raise ConnectionError("the witness is gone")


class Stamped:
    """The line, and the pid of the worker that read it."""

    outputs = ("line", "spout_pid")

    def __init__(self) -> None:
        self.witness: ToWitness | None = None

    def deserialize(self, record: Any) -> list[list[Any]]:
        self.witness = self.witness or ToWitness("spout")
        return [[str(record.value, "utf-8"), os.getpid()]]


class Split(Bolt):
    outputs = ["word", "id", "spout_pid"]

    def initialize(self, conf: Any, context: Any) -> None:
        self.witness = ToWitness("split")

    def process(self, tup: Tuple) -> None:
        line, *words = tup.values[0].split()
        self.witness.tell(f"s {line}")
        for place, word in enumerate(words):
            self.emit([word, f"{line}-{place}", tup.values[1]])


class Count(Bolt):
    """Collects words and has them confirmed many at a time; acks them only then."""

    auto_ack = False

    def initialize(self, conf: Any, context: Any) -> None:
        self.witness = ToWitness("count")
        self.held: list[Tuple] = []
        self.kept: list[Tuple] = []
        self.keeps = os.path.exists(SETTINGS["hold"])
        self.seen = 0
        self.swallowed: set[str] = set()

    def process(self, tup: Tuple) -> None:
        if self.misbehaves(tup):
            return
        if self.keeps and int(tup.values[1].split("-")[1]) >= SETTINGS["held_from"]:
            self.kept.append(tup)
            return
        self.held.append(tup)
        if len(self.held) >= SETTINGS["batch"]:
            self.confirm()

    def misbehaves(self, tup: Tuple) -> bool:
        self.seen += 1
        if SETTINGS["fail_every"] and self.seen % SETTINGS["fail_every"] == 0:
            self.witness.tell(f"f {tup.values[1]}")
            self.fail(tup)
            return True
        if tup.values[1] in SETTINGS["swallow"] and tup.values[1] not in self.swallowed:
            self.swallowed.add(tup.values[1])
            self.witness.tell(f"x {tup.values[1]}")
            return True
        return False

    def process_tick(self, tup: Tuple) -> None:
        self.wall_s = time.time()  # as bolts of users do; a clock that is stepped is then seen to be
        if self.keeps and not os.path.exists(SETTINGS["hold"]):
            self.keeps = False
            for kept in self.kept:
                self.process(kept)
        self.confirm()

    def confirm(self) -> None:
        if self.held:
            time.sleep(SETTINGS["pause_s"])
            self.witness.store([f"{tup.values[1]}@{tup.values[2]}" for tup in self.held])
            for tup in self.held:
                self.ack(tup)
            self.held.clear()


class Lines(Topology):
    lines = KafkaSpout.spec(
        config=SpoutConfig(
            KafkaHosts(SETTINGS["brokers"]) if "brokers" in SETTINGS else ZkHosts(SETTINGS["zookeeper"]),
            SETTINGS["topic"], SETTINGS["zk_root"], SETTINGS["id"], scheme=Stamped, **SETTINGS["spout"],
        ),
        par=SETTINGS["spouts"],
    )  # fmt: skip
    split = Split.spec(inputs=[lines], par=SETTINGS["splits"])
    count = Count.spec(
        inputs={split: Grouping.fields("word")},
        par=SETTINGS["counts"],
        config={"topology.tick.tuple.freq.secs": 0.02},
    )
