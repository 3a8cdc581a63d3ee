"""The files that a record passes are the ones its pages list: counted by profiler, against a scripted broker.

A file counts when one of its functions is handed the record, as an argument or as what it gives back: as bytes, in a
message, in columns, in a batch, as a row or as a tuple. What a method holds in ``self`` does not count, and neither
does an object that has the record among much else (a partition's manager, a queue): it decides when, not what.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any

from streamlet import Bolt, Topology, Tuple
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.producer import FutureRecordMetadata, Producer
from streamlet.kafka.producer.producer_batch import ProducerBatch
from streamlet.kafka.producer.record_future import SenderThread
from streamlet.kafka.protocol.schema import Reader
from streamlet.runtime.tasks.emitter import Work
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig
from tests.docs.pages import ROOT
from tests.patience import PATIENCE_S
from tests.scripted.fake_cluster import FakeCluster

INTERNALS = ROOT / "docs" / "internals"
PACKAGE = f"{ROOT / 'streamlet'}/"
MARK = "a record to follow"
CARRIERS = (FutureRecordMetadata, Reader, RequestFuture, Tuple, Work)
DEEPEST = 8
"""Levels of containers and messages to look into."""
TAKES_LISTS, TAKES_NAMES = 0x04, 0x08
"""Flags of a function's code: it has ``*args``, it has ``**kwargs``."""


def carries(value: Any, depth: int = DEEPEST) -> bool:
    """Return whether a value is the record, or has it among its parts."""
    parts: Any = ()
    if isinstance(value, bytes | bytearray | memoryview):
        return MARK.encode() in bytes(value)
    if isinstance(value, str):
        return MARK in value
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, list | tuple | set | deque):
        parts = value
    elif dataclasses.is_dataclass(value) and (is_frozen(value) or isinstance(value, ProducerBatch)):
        parts = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    elif isinstance(value, CARRIERS):
        parts = [getattr(value, name, None) for name in type(value).__slots__]
    return depth > 0 and any(carries(part, depth - 1) for part in parts)


def is_frozen(value: Any) -> bool:
    """Return whether it is a plain value, not an object that changes."""
    return not isinstance(value, type) and value.__dataclass_params__.frozen


class FilesHandedTheRecord:
    """A profile function: notes each file of the package whose function is handed the record."""

    def __init__(self) -> None:
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
        if any(map(carries, handed)):
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


def listed(page: str) -> set[str]:
    """Return the files in a page's table; its text must tell their number."""
    text = (INTERNALS / page).read_text(encoding="utf-8").split("## Files on the way", 1)[1].split("\n## ", 1)[0]
    intro, _, table = text.partition("| --- | --- |")
    files = re.findall(r"`([\w/]+\.py)`", table)
    assert re.search(rf"\b{len(files)}\s+files", intro), f"{page} lists {len(files)} files, and its text says otherwise"
    return set(files)


def test_a_records_way_from_socket_to_process_is_the_one_of_its_page() -> None:
    """14 at most."""
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
    assert len(found) <= 14


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
