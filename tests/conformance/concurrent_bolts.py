"""Bolts on threads and on an asyncio loop: each with all its tuples accounted for."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import AsyncBolt, Bolt, ReliableSpout, ThreadedBolt, Topology, TopologyContext, Tuple


class Notes:
    """Lines in a file of this task's own. Any thread."""

    def __init__(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        path = Path(conf["at_once.results"]) / f"{context.component_name}.{context.task_index}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, line: object) -> None:
        os.write(self._file, f"{line}\n".encode())


class Numbers(ReliableSpout):
    outputs = ["n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.n, self.count = 0, conf["at_once.count"]

    def next_tuple(self) -> None:
        if self.n < self.count:
            self.emit([self.n], tup_id=self.n)
            self.n += 1

    def caught_up(self) -> bool:
        return self.n == self.count and not self.has_unfinished()


class AtOnce:
    """How many run now, and were at most."""

    def __init__(self) -> None:
        self.lock, self.now, self.most = threading.Lock(), 0, 0

    def __enter__(self) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *raised: object) -> None:
        with self.lock:
            self.now -= 1


class OnThreads(ThreadedBolt):
    outputs = ["n", "square"]
    threads = 5

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.notes, self.at_once, self.conf = Notes(conf, context), AtOnce(), conf
        self.tried: set[int] = set()

    def process(self, tup: Tuple) -> None:
        (n,) = tup.values
        with self.at_once:
            time.sleep(self.conf["at_once.secs"] if n != 3 else self.conf["at_once.secs_of_3"])
            if n % 50 == 7 and n not in self.tried and self.conf["at_once.raises"]:
                self.tried.add(n)
                raise ValueError(f"not the first time, {n}")
        self.emit([n, n * n])

    def cleanup(self) -> None:
        self.notes.note(self.at_once.most)


class OnALoop(AsyncBolt):
    outputs = ["n", "square"]
    at_once = 5

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.notes, self.running, self.conf = Notes(conf, context), AtOnce(), conf
        self.tried: set[int] = set()

    async def async_initialize(self) -> None:
        self.loop = asyncio.get_running_loop()

    async def process(self, tup: Tuple) -> None:
        (n,) = tup.values
        assert asyncio.get_running_loop() is self.loop
        with self.running:
            await asyncio.sleep(self.conf["at_once.secs"] if n != 3 else self.conf["at_once.secs_of_3"])
            if n % 50 == 7 and n not in self.tried and self.conf["at_once.raises"]:
                self.tried.add(n)
                raise ValueError(f"not the first time, {n}")
        self.emit([n, n * n])

    async def async_cleanup(self) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.notes.note(self.running.most)


class Squares(Bolt):
    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.notes = Notes(conf, context)

    def process(self, tup: Tuple) -> None:
        n, square = tup.values
        assert square == n * n
        self.notes.note(n)


CONFIG = {
    "at_once.results": "",
    "at_once.count": 1000,
    "at_once.secs": 0.002,
    "at_once.secs_of_3": 0.0,
    "at_once.raises": False,
}


class Threads(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    work = OnThreads.spec(inputs=[numbers])
    squares = Squares.spec(inputs=[work])


class Loops(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    work = OnALoop.spec(inputs=[numbers])
    squares = Squares.spec(inputs=[work])


class Many(ThreadedBolt):
    """Much from each: its emits wait for a slow reader."""

    outputs = ["n"]
    threads = 5

    def process(self, tup: Tuple) -> None:
        for _ in range(60):
            self.emit(tup.values)


class SlowReader(Bolt):
    def process(self, tup: Tuple) -> None:
        time.sleep(0.004)


class Floods(Topology):
    config = CONFIG
    numbers = Numbers.spec()
    work = Many.spec(inputs=[numbers])
    reader = SlowReader.spec(inputs=[work])
