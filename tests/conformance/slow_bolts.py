"""Bolts that are slow, hold what they were given, or forget it: each with all its tuples accounted for."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from streamlet import AsyncBolt, Batch, Bolt, Grouping, ReliableSpout, Topology, TopologyContext, Tuple


class Notes:
    """Lines of JSON in a file of this task's own."""

    def __init__(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        path = Path(conf["slow.results"]) / f"{context.component_name}.{context.task_index}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, **facts: Any) -> None:
        os.write(self._file, (json.dumps(facts) + "\n").encode())


class Numbers(ReliableSpout):
    """So many numbers, each with the time of its emit, as fast as trees may be open."""

    outputs = ["n", "emitted"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.notes = Notes(conf, context)
        self.n, self.count = 0, conf["slow.count"]

    def next_tuple(self) -> None:
        if self.n < self.count:
            self.emit([self.n, time.monotonic()], tup_id=self.n)
            self.n += 1

    def fail(self, tup_id: Any) -> None:
        self.notes.note(failed=tup_id, reason=self.fail_reason.name)
        super().fail(tup_id)

    def given_up(self, tup_id: Any, values: Sequence[Any], fails: int) -> None:
        self.notes.note(given_up=tup_id)

    def caught_up(self) -> bool:
        return self.n == self.count and not self.has_unfinished()


class Noting(Bolt):
    """Writes down each tuple it is given, and how long that waited."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.conf, self.context = conf, context
        self.notes = Notes(conf, context)

    def taken(self, tup: Tuple) -> None:
        now = time.monotonic()
        self.notes.note(n=tup.values[0], waited_s=now - tup.values[1], at_s=now)


class Slow(Noting):
    def process(self, tup: Tuple) -> None:
        self.taken(tup)
        time.sleep(self.conf["slow.secs"])


class BecomesSlow(Noting):
    """Fast at first: the window is wide open when it changes."""

    def process(self, tup: Tuple) -> None:
        self.taken(tup)
        if tup.values[0] >= 3000:
            time.sleep(self.conf["slow.secs"])


class SlowBatches(Noting):
    """Takes its time for each tuple of a batch."""

    def process_batch(self, batch: Batch) -> None:
        self.notes.note(batch=len(batch))
        for tup in batch:
            self.taken(tup)
            time.sleep(self.conf["slow.secs"])


class OneRequest(Noting):
    """Takes as long for a batch of one as for any other."""

    def process_batch(self, batch: Batch) -> None:
        self.notes.note(batch=len(batch))
        for tup in batch:
            self.taken(tup)
        time.sleep(self.conf["slow.secs"])


class Unequal(Noting):
    """One task of the pool takes twenty times as long as the others."""

    def process(self, tup: Tuple) -> None:
        self.taken(tup)
        time.sleep(self.conf["slow.secs"] * (20 if self.context.task_index == 0 else 1))


class ByCount(Noting):
    """Acks a batch when it is whole, and the rest when no more can come."""

    auto_ack = False

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().initialize(conf, context)
        self.batch: list[Tuple] = []

    def process(self, tup: Tuple) -> None:
        self.taken(tup)
        self.batch.append(tup)
        if len(self.batch) == 500:
            self.flush()

    def flush(self) -> None:
        for held in self.batch:
            self.ack(held)
        self.batch.clear()


class ByTick(ByCount):
    """Acks what it has at each tick."""

    def process(self, tup: Tuple) -> None:
        self.taken(tup)
        self.batch.append(tup)

    def process_tick(self, tup: Tuple) -> None:
        self.flush()


class Forgets(Noting):
    """Does not ack every hundredth number when it comes first, and acks it when it comes again."""

    auto_ack = False

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().initialize(conf, context)
        self.forgotten: set[int] = set()

    def process(self, tup: Tuple) -> None:
        self.taken(tup)
        n = tup.values[0]
        if n % 100 == 0 and n not in self.forgotten:
            self.forgotten.add(n)
        else:
            self.ack(tup)


class ForgetsForGood(Forgets):
    """Acks every hundredth number never."""

    def process(self, tup: Tuple) -> None:
        self.forgotten.clear()
        super().process(tup)


class InThreads(Noting):
    """Works on its tuples in four threads, and holds eight at most. From number 300 on each takes ten times as long."""

    outputs = ["n"]
    auto_ack = False
    max_unacked = 8

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().initialize(conf, context)
        self.pool = ThreadPoolExecutor(4)
        self.lock, self.open = threading.Lock(), 0

    def process(self, tup: Tuple) -> None:
        with self.lock:
            self.open += 1
            self.notes.note(held=self.open)
        self.pool.submit(self.work, tup)

    def work(self, tup: Tuple) -> None:
        time.sleep(self.conf["slow.secs"] * (10 if tup.values[0] >= 300 else 1))
        self.taken(tup)
        self.emit([tup.values[0]], anchors=[tup])
        with self.lock:  # before it is acked: counted are never more than it holds
            self.open -= 1
        self.ack(tup)


class Behind(Bolt):
    def process(self, tup: Tuple) -> None:
        pass


CONFIG = {"slow.results": "", "slow.count": 1000, "slow.secs": 0.003}


class OneSlow(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    slow = Slow.spec(inputs=[numbers])


class SlowByBatch(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    slow = SlowBatches.spec(inputs=[numbers])


class Requests(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    slow = OneRequest.spec(inputs=[numbers])


class Becoming(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    slow = BecomesSlow.spec(inputs=[numbers])


class Pool(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    slow = Unequal.spec(inputs={numbers: Grouping.SHUFFLE}, par=4)


class Counting(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    slow = ByCount.spec(inputs=[numbers])


class Ticking(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    slow = ByTick.spec(inputs=[numbers], config={"topology.tick.tuple.freq.secs": 0.3})


class Threads(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    slow = InThreads.spec(inputs=[numbers])
    behind = Behind.spec(inputs=[slow])


class Forgetting(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    slow = Forgets.spec(inputs=[numbers])


class Once(Numbers):
    """Replays nothing."""

    max_fails = 0


class AwaitsForGood(AsyncBolt):
    """Its call on every hundredth number never returns."""

    async def process(self, tup: Tuple) -> None:
        if tup.values[0] % 100 == 0:
            await asyncio.Event().wait()


class AwaitingForGood(Topology):
    config = CONFIG
    numbers = Once.spec()
    slow = AwaitsForGood.spec(inputs=[numbers])


class ForgettingForGood(Topology):
    config = CONFIG
    numbers = Once.spec()
    slow = ForgetsForGood.spec(inputs=[numbers])
