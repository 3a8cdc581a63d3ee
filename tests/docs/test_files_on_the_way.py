"""The files that a record or a tuple passes are the ones its page lists: counted by profiler, in this process.

A file counts when one of its functions is handed the record, as an argument or as what it gives back: as bytes, in a
message, in columns, in a batch, as a row or as a tuple. What a method holds in ``self`` does not count, and neither
does an object that has the record among much else (a partition's manager, a queue): it decides when, not what.
"""

from __future__ import annotations

import dataclasses
import random
import re
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from types import FrameType
from typing import Any

from streamlet import Bolt, Spout, Topology, Tuple
from streamlet.base.clock import SystemClock
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.producer import FutureRecordMetadata, Producer
from streamlet.kafka.producer.producer_batch import ProducerBatch
from streamlet.kafka.producer.record_future import SenderThread
from streamlet.kafka.protocol.schema import Reader
from streamlet.model.plan import make_plan
from streamlet.model.settings import resolve
from streamlet.runtime.links.dialing import Secured
from streamlet.runtime.links.handshake import DATA, Hello
from streamlet.runtime.links.links import SocketLinks
from streamlet.runtime.links.route_check import RouteCheck
from streamlet.runtime.links.wire import FrameReader, FrameWriter
from streamlet.runtime.tasks.building import WorkerContext
from streamlet.runtime.tasks.emitter import Incoming, Outgoing, Work
from streamlet.runtime.worker.loop import WorkerLoop
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig
from streamlet.tracking.roots import first_root
from tests.docs.pages import ROOT
from tests.patience import PATIENCE_S
from tests.scripted.fake_cluster import FakeCluster

INTERNALS = ROOT / "docs" / "internals"
PACKAGE = f"{ROOT / 'streamlet'}/"
MARK = "a record to follow"
OF_ONE_TURN = (Incoming, Outgoing, ProducerBatch)
CARRIERS = (FutureRecordMetadata, Reader, RequestFuture, Tuple, Work)
CENSUS = {"runtime/worker/queue_census.py", "tracking/census.py", "tracking/overdue.py"}
"""Files that ask about open trees by their roots, while an ack goes its own way."""

DEEPEST = 8
"""Levels of containers and messages to look into."""
TAKES_LISTS, TAKES_NAMES = 0x04, 0x08
"""Flags of a function's code: it has ``*args``, it has ``**kwargs``."""


def carries(value: Any, mark: str | int = MARK, depth: int = DEEPEST) -> bool:
    """Return whether a value is the record, or has it among its parts."""
    parts: Any = ()
    if isinstance(value, bytes | bytearray | memoryview):
        return (mark.encode() if isinstance(mark, str) else mark.to_bytes(8, "big")) in bytes(value)
    if isinstance(value, str | int):
        return type(value) is type(mark) and mark in (value if isinstance(value, str) else (value,))
    if isinstance(value, dict):
        parts = (*value, *value.values())
    elif isinstance(value, list | tuple | set | deque):
        parts = value
    elif dataclasses.is_dataclass(value) and (is_frozen(value) or isinstance(value, OF_ONE_TURN)):
        parts = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    elif isinstance(value, CARRIERS):
        parts = [getattr(value, name, None) for name in type(value).__slots__]
    return depth > 0 and any(carries(part, mark, depth - 1) for part in parts)


def is_frozen(value: Any) -> bool:
    """Return whether it is a plain value, not an object that changes. A message is frozen for type checkers only."""
    is_message = any("wire" in field.metadata for field in dataclasses.fields(value))
    return not isinstance(value, type) and (value.__dataclass_params__.frozen or is_message)


class FilesHandedTheRecord:
    """A profile function: notes each file of the package whose function is handed the record.

    ``mark``: the record's text, or a root for the way of an ack.
    """

    def __init__(self, mark: str | int = MARK) -> None:
        self.mark = mark
        self.files: set[str] = set()
        self.over = False
        self.threads = {threading.current_thread()}

    def __call__(self, frame: FrameType, event: str, given: Any) -> None:
        code = frame.f_code
        if self.over or event not in ("call", "return") or not code.co_filename.startswith(PACKAGE):
            return
        thread = threading.current_thread()
        if thread not in self.threads and not isinstance(thread, SenderThread):
            return  # one of the scripted broker's, which uses the same protocol
        count = code.co_argcount + code.co_kwonlyargcount
        count += bool(code.co_flags & TAKES_LISTS) + bool(code.co_flags & TAKES_NAMES)
        handed = [frame.f_locals.get(name) for name in code.co_varnames[:count] if name != "self"]
        if event == "return":  # a buffer that was handed in empty is full now
            handed.append(given)
        if any(carries(one, self.mark) for one in handed):
            self.files.add(code.co_filename.removeprefix(PACKAGE))

    def during(self, act: Callable[[], object]) -> set[str]:
        """Run ``act``; return the files, of a producer's thread too."""
        before = sys.getprofile()
        sys.setprofile(self)
        try:
            act()
        finally:
            sys.setprofile(before)
        return self.files


def listed(page: str, row: str = "") -> set[str]:
    """Return the files in a page's table, or in one row of it; its text must tell the number of all."""
    text = (INTERNALS / page).read_text(encoding="utf-8").split("## Files on the way", 1)[1].split("\n## ", 1)[0]
    intro, _, table = text.partition("| --- | --- |")
    files = re.findall(r"`([\w/]+\.py)`", table)
    if row:
        (line,) = (line for line in table.splitlines() if line.startswith(f"| {row} |"))
        return set(re.findall(r"`([\w/]+\.py)`", line))
    assert re.search(rf"\b{len(files)}\s+files", intro), f"{page} lists {len(files)} files, and its text says otherwise"
    return set(files)


def test_a_records_way_from_socket_to_process_is_the_one_of_its_page() -> None:
    """17 at most: a partition's ledger and buffer can each be read alone, and columns take the place of rows."""
    with FakeCluster({"lines": 1}) as cluster:
        cluster.write("lines", MARK)
        way = FilesHandedTheRecord()

        class See(Bolt):
            def process(self, tup: Tuple) -> None:
                way.over = way.over or MARK in tup.values[0]

        class Follow(Topology):
            lines = KafkaSpout.spec(config=SpoutConfig(KafkaHosts(cluster.broker.address), "lines", id="way"))
            see = See.spec(inputs=[lines])

        found = way.during(lambda: Follow.run(backend="inline"))
    assert way.over
    assert found == listed("record.md")
    assert len(found) <= 17


def test_a_produced_records_way_to_the_socket_is_the_one_of_its_page() -> None:
    """8 of the producer's at most; with key and headers, and without."""
    with FakeCluster({"lines": 1}) as cluster:
        way = FilesHandedTheRecord()
        threading.setprofile(way)
        try:
            producer = Producer(bootstrap_servers=cluster.broker.address)
        finally:
            threading.setprofile(None)
        with producer:

            def send(**record: Any) -> None:
                future = producer.send("lines", value=MARK.encode(), **record)
                future.add_callback(lambda _metadata: None)
                future.get(PATIENCE_S)

            found = set(way.during(lambda: send(key=MARK.encode(), headers=[("about", MARK.encode())])))
            with_those_of_a_plain_one = way.during(send)
    assert found == listed("send.md")
    assert found == with_those_of_a_plain_one
    assert len([file for file in found if file.startswith("kafka/producer/")]) <= 8


class Says(Spout):
    outputs = ["line"]
    acked = False

    def next_tuple(self) -> None:
        if not self.context_of_test.sent:
            self.context_of_test.sent = True
            self.emit([MARK], tup_id=1)

    def ack(self, tup_id: Hashable) -> None:
        self.context_of_test.acked = True


class TwoWorkers:
    """A spout's worker and a bolt's, both on this thread, and a socket between them."""

    def __init__(self, topology: type[Topology]) -> None:
        self.sent = self.acked = False
        plan = make_plan(topology.__topology__, 2)
        self.loops = []
        key, socks = b"k" * 32, socket.socketpair()
        for index, sock in enumerate(socks):
            links = SocketLinks(lambda *lost: None, RouteCheck(plan, index).check)
            shared = WorkerContext(
                plan=plan,
                worker=index,
                epoch=1,
                topology_id="way",
                conf=resolve({}, {}),
                clock=SystemClock(),
                rng=random.Random(index),
                report=lambda *error: None,
                wake=lambda: None,
                built=lambda live: setattr(live.component, "context_of_test", self),
            )
            self.loops.append(WorkerLoop(shared, links))
            self.loops[-1].initialize()
            hello = Hello(DATA, b"r" * 16, index, 1, 1 - index)
            links.add(Secured(sock, hello, FrameWriter(key), FrameReader(key, 1 << 20)), 1 - index, 1)
        for loop in self.loops:
            loop.activate()

    def run(self) -> None:
        """Turn both loops until the spout has heard of its tree."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.acked and time.monotonic() < deadline:
            for loop in self.loops:
                loop.turn()
        assert self.acked

    def close(self) -> None:
        for loop in self.loops:
            loop.close(clean=False)


def test_a_tuples_way_from_emit_to_process_and_its_acks_way_home_are_those_of_their_page() -> None:
    """8 at most to another worker's bolt; the ack passes no other file than the page says."""

    class See(Bolt):
        def process(self, tup: Tuple) -> None: ...

    class Follow(Topology):
        says = Says.spec()
        see = See.spec(inputs=[says])

    found = {}
    for name, mark in (("to the bolt", MARK), ("home", first_root(1, 1))):
        workers = TwoWorkers(Follow)
        try:
            found[name] = set(FilesHandedTheRecord(mark).during(workers.run))
        finally:
            workers.close()
    assert found["to the bolt"] == listed("tuple.md", "to the bolt")
    assert len(found["to the bolt"]) <= 8
    assert found["home"] - found["to the bolt"] - CENSUS == listed("tuple.md", "home")
