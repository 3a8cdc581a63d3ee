"""A consumer of one client that has nothing to read; run by ``tests.benchmarks.idle``, each in a process of its own.

    python -m tests.benchmarks.rivals.idle_clients NAME SERVERS SECONDS

Prints "begin" after ten seconds (metadata and joining are over), the CPU seconds of the rest when they are over, and
waits for a line before it leaves. ``nothing`` is no client: it sleeps in epoll five times a second, which is how often
a consumer in a group wakes up, and is what the machine takes for that alone.
"""

from __future__ import annotations

import asyncio
import select
import sys
import time
from collections.abc import Callable

TOPIC = "quiet"
WARM_UP_S = 10.0
POLL_S = 0.5


def measure(poll: Callable[[], object], seconds: float) -> None:
    """Poll through the warm-up and the measured time."""
    _poll_for(poll, WARM_UP_S)
    print("begin", flush=True)
    before = time.process_time()
    _poll_for(poll, seconds)
    print(time.process_time() - before, flush=True)
    sys.stdin.readline()


def _poll_for(poll: Callable[[], object], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert not poll(), "the topic is not quiet"


def nothing(servers: str, seconds: float) -> None:
    """The floor: waits, and no client."""
    with select.epoll() as epoll:
        measure(lambda: epoll.poll(0.2), seconds)


def streamlet(servers: str, seconds: float) -> None:
    """Ours."""
    from streamlet.kafka import Consumer

    with Consumer(TOPIC, bootstrap_servers=servers, group_id="streamlet", auto_offset_reset="earliest") as consumer:
        measure(lambda: consumer.poll(timeout_ms=int(POLL_S * 1000)), seconds)


def confluent_kafka(servers: str, seconds: float) -> None:
    """Over librdkafka, which is C."""
    import confluent_kafka as ck

    consumer = ck.Consumer({"bootstrap.servers": servers, "group.id": "ck", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    measure(lambda: consumer.poll(POLL_S), seconds)
    consumer.close()


def kafka_python(servers: str, seconds: float) -> None:
    """The one whose words ours has."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(TOPIC, bootstrap_servers=servers, group_id="kp", auto_offset_reset="earliest")
    measure(lambda: consumer.poll(timeout_ms=int(POLL_S * 1000)), seconds)
    consumer.close()


def aiokafka(servers: str, seconds: float) -> None:
    """On asyncio."""
    from aiokafka import AIOKafkaConsumer

    loop = asyncio.new_event_loop()

    async def made() -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=servers, group_id="aio", auto_offset_reset="earliest")
        await consumer.start()
        return consumer

    consumer = loop.run_until_complete(made())
    measure(lambda: loop.run_until_complete(consumer.getmany(timeout_ms=int(POLL_S * 1000))), seconds)
    loop.run_until_complete(consumer.stop())
    loop.close()


CLIENTS = {
    "streamlet": streamlet,
    "nothing": nothing,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "confluent-kafka": confluent_kafka,
}

if __name__ == "__main__":
    CLIENTS[sys.argv[1]](sys.argv[2], float(sys.argv[3]))
