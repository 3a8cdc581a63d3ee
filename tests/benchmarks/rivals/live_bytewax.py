"""Bytewax's word count under live load: notes when the last word of each line was counted.

Run by ``bytewax.run``. Environment: BENCHMARK_BOOTSTRAP, BENCHMARK_TOPIC, BENCHMARK_OUT, BENCHMARK_SECONDS.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from array import array
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition

TIMES = array("d")


class Note(StatelessSinkPartition[Any]):
    """Notes the time for each count that comes out; the latest of a line is when it was done."""

    def write_batch(self, items: list[Any]) -> None:
        now = time.time()
        for _, offset in items:
            TIMES.extend((offset, now))


class NoteSink(DynamicSink[Any]):
    """One partition a worker."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Note:
        return Note()


def split(message: Any) -> list[tuple[str, int]]:
    """A line to pairs of word and offset."""
    return [(word, message.offset) for word in message.value.decode().split()]


def count(state: int | None, offset: int) -> tuple[int, int]:
    """Bytewax's stateful_map: new state, and what to emit."""
    return (state or 0) + 1, offset


class Source(KafkaSource):
    """Lists partitions with a client of its own, as in ``bytewax_word_count``."""

    def list_parts(self) -> list[str]:
        return KafkaSource(self._brokers, self._topics).list_parts()


def end() -> None:
    """Write the times and end the process: a live flow has no end of its own."""
    time.sleep(float(os.environ["BENCHMARK_SECONDS"]))
    Path(os.environ["BENCHMARK_OUT"], f"{os.getpid()}.bin").write_bytes(TIMES.tobytes())
    os.kill(os.getpid(), signal.SIGKILL)


threading.Thread(target=end, daemon=True).start()
flow = Dataflow("live")
source = Source(
    [os.environ["BENCHMARK_BOOTSTRAP"]],
    [os.environ["BENCHMARK_TOPIC"]],
    batch_size=1000,
    add_config={"fetch.queue.backoff.ms": "1"},
)
lines = op.input("lines", flow, source)
counted = op.stateful_map("count", op.flat_map("split", lines, split), count)
op.output("out", counted, NoteSink())
