"""Numbers from a topic, some of them poison: given up by bolts on two workers, written down where they are done.

Set by the environment: POISON_SERVERS, POISON_TOPIC, POISON_LETTERS; POISON_DONE, a folder for the files of done
numbers; POISON_FIXED, not empty where nothing is poison any more; POISON_PAUSE_S, seconds of work for each number;
POISON_SPOUTS, the spout's tasks.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from streamlet import Bolt, Topology, Tuple
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, Record, SpoutConfig

FIXED = bool(os.environ.get("POISON_FIXED"))
PAUSE_S = float(os.environ.get("POISON_PAUSE_S") or 0)


def number_of(record: Record) -> list[list[Any]]:
    """Decode a number; one in 200 cannot be decoded."""
    number = int(record.value or b"")
    if number % 200 == 7 and not FIXED:
        raise ValueError(f"cannot decode {number}")
    return [[number]]


class Refuse(Bolt):
    """Raises on one number in 100."""

    outputs = ["number"]

    def process(self, tup: Tuple) -> None:
        number = tup.values[0]
        if number % 100 == 13 and not FIXED:
            raise ValueError(f"unlucky {number}")
        self.emit([number])


class Done(Bolt):
    """Sends one number in 200 to the dead letters; writes the others down."""

    def initialize(self, conf: Any, context: Any) -> None:
        folder = Path(os.environ["POISON_DONE"])
        (folder / f"pid.{context.worker}").write_text(str(os.getpid()))
        self.file = (folder / f"done.{os.getpid()}").open("a", buffering=1)

    def process(self, tup: Tuple) -> None:
        number = tup.values[0]
        if number % 200 == 99 and not FIXED:
            self.dead_letter(tup, f"not wanted: {number}")
            return
        if PAUSE_S:
            time.sleep(PAUSE_S)
        self.file.write(f"{number}\n")


class Poison(Topology):
    config = {"topology.version": "fixed" if FIXED else "poisoned"}
    numbers = KafkaSpout.spec(
        config=SpoutConfig(
            KafkaHosts(os.environ.get("POISON_SERVERS", "127.0.0.1:9092")),
            os.environ.get("POISON_TOPIC", "numbers"),
            id=os.environ.get("POISON_TOPIC", "numbers"),
            scheme=number_of,
            on_poison="dead-letter",
            dead_letter_topic=os.environ.get("POISON_LETTERS", "letters"),
            retry_limit=2,
            retry_initial_delay_ms=20,
        ),
        outputs=["number"],
        par=int(os.environ.get("POISON_SPOUTS") or 1),
    )
    refuse = Refuse.spec(inputs=[numbers], par=2)
    done = Done.spec(inputs=[refuse], par=2)
