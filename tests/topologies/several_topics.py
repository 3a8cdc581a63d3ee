"""Records of several topics, each topic on a stream of its own, written down where they are done.

Set by the environment: SEVERAL_SERVERS; SEVERAL_TOPICS, names with commas, or SEVERAL_PATTERN; SEVERAL_DONE, a folder
for the files of done records, ``TOPIC PARTITION OFFSET`` a line.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from streamlet import Bolt, Stream, Topology, Tuple
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, Record, SpoutConfig

TOPICS = [name for name in os.environ.get("SEVERAL_TOPICS", "").split(",") if name]
PATTERN = os.environ.get("SEVERAL_PATTERN", "" if TOPICS else "several-.*")


def place_of(record: Record) -> list[list[Any]]:
    """Return the record's place: each task writes down what it is given, and nothing else is asked of the value."""
    return [[f"{record.topic} {record.partition} {record.offset}"]]


class Done(Bolt):
    """Writes places down."""

    def initialize(self, conf: Any, context: Any) -> None:
        folder = Path(os.environ["SEVERAL_DONE"])
        (folder / f"pid.{context.worker}").write_text(str(os.getpid()))
        self.file = (folder / f"done.{os.getpid()}").open("a", buffering=1)

    def process(self, tup: Tuple) -> None:
        self.file.write(f"{tup.values[0]}\n")


class SeveralTopics(Topology):
    places = KafkaSpout.spec(
        config=SpoutConfig(
            KafkaHosts(os.environ.get("SEVERAL_SERVERS", "127.0.0.1:9092"), refresh_freq_secs=0.3),
            topics=TOPICS,
            topics_pattern=PATTERN,
            streams=dict.fromkeys(TOPICS[1:], "others"),
            scheme=dict.fromkeys(TOPICS, place_of) if TOPICS else place_of,
            id=os.environ.get("SEVERAL_ID", "several"),
            start_offset="latest" if PATTERN else "earliest",
            state_update_interval_ms=200,
            session_timeout_ms=6000,
        ),
        outputs=["place"] if PATTERN else [Stream(["place"]), Stream(["place"], name="others")],
        par=2,
    )
    done = Done.spec(inputs=[places] if PATTERN else [places, places["others"]], par=2)
