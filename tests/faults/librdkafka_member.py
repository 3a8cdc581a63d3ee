"""A member of a group by librdkafka, saying what ``tests/faults/streamlet_member.py`` says."""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import time
from typing import Any

ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no member outlives its test

from confluent_kafka import Consumer, KafkaException  # noqa: E402


def say(what: str, **more: Any) -> None:
    """One line."""
    print(json.dumps({"what": what, "wall": time.time(), **more}), flush=True)


def tell(what: str) -> Any:
    """A rebalance callback that says its partitions."""
    return lambda _consumer, rows: say(what, partitions=[(row.topic, row.partition) for row in rows])


def main() -> None:
    """Until SIGTERM."""
    settings = json.loads(sys.argv[1])
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    if "group_protocol" in settings:
        protocol = {"group.protocol": settings["group_protocol"]}
    else:
        protocol = {
            "session.timeout.ms": settings["session_timeout_ms"],
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    consumer = Consumer(
        {
            "bootstrap.servers": settings["bootstrap_servers"],
            "group.id": settings["group_id"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **protocol,
        }
    )
    consumer.subscribe(settings["topics"], tell("assigned"), tell("revoked"), tell("lost"))
    while not ended:
        runs: dict[str, list[int]] = {}
        for message in consumer.consume(100, 0.1):
            if message.error() is None:
                runs.setdefault(f"{message.topic()}:{message.partition()}", []).append(message.offset())
        if not runs:
            continue
        say("records", offsets={name: (offsets[0], offsets[-1]) for name, offsets in runs.items()})
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as err:
            say("commit failed", message=str(err))
    consumer.close()
    say("closed")


if __name__ == "__main__":
    main()
