"""Components that emit, ack and fail on threads of their own: a pool's, a plain thread, an asyncio loop's."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from streamlet import BadEmit, Bolt, NoRoom, ReliableSpout, Spout, Topology, TopologyContext, Tuple
from tests.conformance.untracked_ways import Slow

COUNT = 20_000
THREADS = 4


class ThreadedSpout(ReliableSpout):
    """Four threads emit a quarter each, as a client library's would."""

    outputs = ["n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.threads = [threading.Thread(target=self.push, args=(k,)) for k in range(THREADS)]

    def push(self, k: int) -> None:
        for n in range(k * COUNT // THREADS, (k + 1) * COUNT // THREADS):
            self.emit([n], tup_id=n)

    def activate(self) -> None:
        for thread in self.threads:
            thread.start()

    def next_tuple(self) -> None: ...

    def caught_up(self) -> bool:
        return not any(thread.is_alive() for thread in self.threads) and not self.has_unfinished()


class TwiceFromThreads(ThreadedSpout):
    """Two threads emit the same ids, each as soon as it can; how often they were refused is written down."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.refused, self.folder = [0, 0], Path(conf["accounts.folder"])
        self.threads = [threading.Thread(target=self.push, args=(k,)) for k in range(2)]

    def push(self, k: int) -> None:
        for n in range(COUNT):
            try:
                self.emit([n], tup_id=n)
            except ValueError:
                self.refused[k] += 1

    def close(self) -> None:
        (self.folder / "refused").write_text(str(sum(self.refused)))


class PooledBolt(Bolt):
    """Gives each tuple to a pool; its threads emit and ack, and fail each hundredth tuple the first time."""

    auto_ack = False
    outputs = ["n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.pool, self.failed = ThreadPoolExecutor(THREADS), set[int]()

    def process(self, tup: Tuple) -> None:
        self.pool.submit(self.work, tup)

    def work(self, tup: Tuple) -> None:
        n = tup.values[0]
        if n % 100 == 0 and n not in self.failed:
            self.failed.add(n)
            self.fail(tup)
            return
        self.emit([n], anchors=[tup])
        self.ack(tup)

    def cleanup(self) -> None:
        self.pool.shutdown()


class AsyncBolt(Bolt):
    """Works in an asyncio loop that runs on a thread of its own."""

    auto_ack = False
    outputs = ["n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.events = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.events.run_forever)
        self.thread.start()

    def process(self, tup: Tuple) -> None:
        asyncio.run_coroutine_threadsafe(self.work(tup), self.events)

    async def work(self, tup: Tuple) -> None:
        await asyncio.sleep(0)
        self.emit(tup.values, anchors=[tup])
        self.ack(tup)

    def cleanup(self) -> None:
        self.events.call_soon_threadsafe(self.events.stop)
        self.thread.join()
        self.events.close()


class FromThreads(Topology):
    config = {"accounts.folder": "", "accounts.sleep_s": 0.0}
    numbers = ThreadedSpout.spec()
    pooled = PooledBolt.spec(inputs=[numbers])
    through_asyncio = AsyncBolt.spec(inputs=[pooled])
    seen = Slow.spec(inputs=[through_asyncio])


class PatientSpout(ThreadedSpout):
    """Its threads are refused when there is no room, wait as they like, and emit again."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().initialize(conf, context)
        self.folder, self.refusals = conf["accounts.folder"], list[str]()

    def push(self, k: int) -> None:
        for n in range(k * COUNT // THREADS, (k + 1) * COUNT // THREADS):
            while not self.is_taken(n):
                time.sleep(0.002)

    def is_taken(self, n: int) -> bool:
        try:
            self.emit([n], tup_id=n)
        except NoRoom as refused:
            self.refusals.append(str(refused))
            return False
        return True

    def close(self) -> None:
        with open(f"{self.folder}/refusals", "w") as file:
            file.write("\n".join(self.refusals))


class WithoutWaiting(Topology):
    config = {"accounts.folder": "", "accounts.sleep_s": 0.0}
    numbers = PatientSpout.spec()
    seen = Slow.spec(inputs=[numbers])


class LateSpout(Spout):
    """Its thread goes on when the run ends, and writes down what it was told."""

    outputs = ["n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.folder = conf["accounts.folder"]
        self.thread = threading.Thread(target=self.push)

    def activate(self) -> None:
        self.thread.start()

    def push(self) -> None:
        n = 0
        try:
            while True:
                self.emit([n])
                n += 1
        except Exception as error:
            with open(f"{self.folder}/refused", "w") as file:
                file.write(f"{n} {type(error).__name__} {error}")

    def next_tuple(self) -> None: ...

    def close(self) -> None:
        self.thread.join()


class LateThread(Topology):
    config = {"accounts.folder": "", "accounts.sleep_s": 0.0}
    late = LateSpout.spec()
    seen = Slow.spec(inputs=[late])


class Endless(Bolt):
    """A thread of it emits as fast as it is let, and writes down how many were taken."""

    outputs = ["n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.folder = Path(conf["threads.results"])
        self.thread = threading.Thread(target=self.push)
        self.thread.start()

    def push(self) -> None:
        taken = 0
        try:
            while True:
                self.emit([taken])
                taken += 1
        except BadEmit:
            (self.folder / "taken").write_text(str(taken))

    def process(self, tup: Tuple) -> None: ...


class Once(Spout):
    """Emits nothing: a bolt needs something to read."""

    outputs = ["n"]

    def next_tuple(self) -> None: ...


class Processed(Bolt):
    """Takes its time, and writes down how many it has processed."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.folder, self.n = Path(conf["threads.results"]), 0

    def process(self, tup: Tuple) -> None:
        time.sleep(0.001)
        self.n += 1

    def cleanup(self) -> None:
        (self.folder / "processed").write_text(str(self.n))


class CutShort(Topology):
    config = {"threads.results": "", "streamlet.inbox.high.water.tuples": 100}
    once = Once.spec()
    endless = Endless.spec(inputs=[once])
    processed = Processed.spec(inputs=[endless])


class TwoThreads(Topology):
    config = {"accounts.folder": "", "accounts.sleep_s": 0.005}
    numbers = TwiceFromThreads.spec()
    seen = Slow.spec(inputs=[numbers])
