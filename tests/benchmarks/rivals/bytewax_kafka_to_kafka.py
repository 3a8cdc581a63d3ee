"""Bytewax from topic to topic: fused, no acks, no commits, no recovery store.

Environment: BENCHMARK_BOOTSTRAP, BENCHMARK_TOPIC, BENCHMARK_OUTPUT (the topic to write to).
"""

from __future__ import annotations

import os
from typing import Any

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow

SERVERS = [os.environ["BENCHMARK_BOOTSTRAP"]]


def upper(message: Any) -> KafkaSinkMessage[bytes, bytes]:
    """A line to its first word and itself in capitals."""
    line = message.value.decode()
    return KafkaSinkMessage(line.split(" ", 1)[0].encode(), line.upper().encode())


class Source(KafkaSource):
    """Bytewax's source hands its consumer's properties to the client that lists partitions, too: that one is a producer
    to librdkafka, and warns of each.
    """

    def list_parts(self) -> list[str]:
        return KafkaSource(self._brokers, self._topics).list_parts()


flow = Dataflow("kafka_to_kafka")
source = Source(
    SERVERS, [os.environ["BENCHMARK_TOPIC"]], tail=False, batch_size=1000, add_config={"fetch.queue.backoff.ms": "1"}
)
lines = op.map("upper", op.input("lines", flow, source), upper)
op.output(
    "out", lines, KafkaSink(SERVERS, os.environ["BENCHMARK_OUTPUT"], {"enable.idempotence": "true", "linger.ms": "5"})
)
