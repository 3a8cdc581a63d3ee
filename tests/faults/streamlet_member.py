"""One member of a group, as a process: it polls, commits every round, and prints what happens as lines of JSON.

``python member.py {"bootstrap_servers": ..., "topics": [...], "work_s": seconds a round, ...settings of Consumer}``;
it ends at SIGTERM. With ``"commit_when": path`` it commits nothing before that file is there. What streamlet logs are
lines too.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Collection
from typing import Any

ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no member outlives its test

from streamlet.kafka import Consumer, ConsumerRebalanceListener, KafkaError, TopicPartition  # noqa: E402


def say(what: str, **more: Any) -> None:
    """One line."""
    # In one piece: what is logged comes from another thread.
    sys.stdout.write(json.dumps({"what": what, "at": time.monotonic(), "wall": time.time(), **more}) + "\n")
    sys.stdout.flush()


class Log(logging.Handler):
    """Says what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        say("log", message=record.getMessage())


class Told(ConsumerRebalanceListener):
    """Says what comes and goes."""

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        say("revoked", partitions=sorted(revoked))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        say("assigned", partitions=sorted(assigned))

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        say("lost", partitions=sorted(lost))


class Stopped(Exception):
    """SIGTERM."""


def stop(*_: object) -> None:
    raise Stopped


def main() -> None:
    """Until SIGTERM."""
    settings = json.loads(sys.argv[1])
    topics, work_s = settings.pop("topics"), settings.pop("work_s", 0.0)
    commit_when = settings.pop("commit_when", None)
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("streamlet").addHandler(Log(logging.WARNING))
    signal.signal(signal.SIGTERM, stop)
    consumer = Consumer(enable_auto_commit=False, auto_offset_reset="earliest", **settings)
    consumer.subscribe(topics, listener=Told())
    try:
        while True:
            found = consumer.poll(100, max_records=20)
            if not found:
                continue
            time.sleep(work_s)
            say(
                "records",
                offsets={f"{tp.topic}:{tp.partition}": [rows[0].offset, rows[-1].offset] for tp, rows in found.items()},
            )
            while commit_when is not None and not os.path.exists(commit_when):
                time.sleep(0.02)
            try:
                consumer.commit()
            except KafkaError as err:
                say("commit failed", error=type(err).__name__, message=err.message)
            else:
                say("committed", next={f"{tp.topic}:{tp.partition}": rows[-1].offset + 1 for tp, rows in found.items()})
    except Stopped:
        consumer.close(10)
        say("closed")


if __name__ == "__main__":
    main()
