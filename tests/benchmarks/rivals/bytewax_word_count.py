"""Bytewax: fused, no acks, no commits, no recovery store. One worker, or two processes of one worker each.

Environment: BENCHMARK_BOOTSTRAP, BENCHMARK_TOPIC, BENCHMARK_OUT (a folder; one file a process).
"""

from __future__ import annotations

import atexit
import json
import os
import time
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition

COUNTS: dict[str, int] = {}
TIMES: list[float] = []


class Discard(StatelessSinkPartition[Any]):
    """Keeps the latest count a key, which is what a user's sink would write."""

    def write_batch(self, items: list[Any]) -> None:
        COUNTS.update(items)


class DiscardSink(DynamicSink[Any]):
    """One partition a worker."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Discard:
        return Discard()


def split(message: Any) -> list[tuple[str, int]]:
    """A line to (word, 1) pairs."""
    if not TIMES:
        TIMES.append(time.time())
    return [(word, 1) for word in message.value.decode().split()]


def count(state: int | None, one: int) -> tuple[int, int]:
    """Bytewax's stateful_map: new state and what to emit."""
    total = (state or 0) + one
    return total, total


def report() -> None:
    """At exit: what the harness reads."""
    result = {"first": TIMES[0] if TIMES else None, "last": time.time(), "counts": COUNTS}
    Path(os.environ["BENCHMARK_OUT"], f"{os.getpid()}.json").write_text(json.dumps(result))


class Source(KafkaSource):
    """Bytewax's source hands its consumer's properties to the client that lists partitions, too: that one is a producer
    to librdkafka, and warns of each.
    """

    def list_parts(self) -> list[str]:
        return KafkaSource(self._brokers, self._topics).list_parts()


atexit.register(report)
flow = Dataflow("word_count")
source = Source(
    [os.environ["BENCHMARK_BOOTSTRAP"]],
    [os.environ["BENCHMARK_TOPIC"]],
    tail=False,
    batch_size=1000,
    add_config={"fetch.queue.backoff.ms": "1"},
)
lines = op.input("lines", flow, source)
words = op.flat_map("split", lines, split)
counted = op.stateful_map("count", words, count)
op.output("out", counted, DiscardSink())
