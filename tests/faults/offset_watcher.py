"""An outside watcher of the nodes that hold the offsets: kazoo alone, and ZooKeeper's own log for what kazoo missed."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

from tests.faults.zookeeper_log import BAD_VERSION, CREATE, CREATE2, ERROR, SET_DATA, read_log

LOG_TICK_NS = 2_000_000
"""ZooKeeper's log has milliseconds of the wall clock: a version may be so much younger than it says."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a partition's node. ``written_ns``: not later than this, on the monotonic clock."""

    partition: int
    version: int
    offset: int
    owner_epoch: int
    session: int
    written_ns: int
    seen: bool
    """kazoo saw it, too."""


class OffsetWatcher:
    """Watches ``root/partition_N`` from before it exists until ``close``."""

    def __init__(self, servers: str, root: str, partitions: int, *data_dirs: Path) -> None:
        self._root = root
        self._partitions = partitions
        self._data_dirs = data_dirs
        self._lock = threading.Lock()
        self._seen: dict[tuple[int, int], bytes] = {}
        # A short session: a ZooKeeper that is just starting may take a connection and never answer it.
        self._client = KazooClient(servers, timeout=4.0, connection_retry={"max_tries": -1, "max_delay": 0.5})
        self._client.start(20)
        for number in range(partitions):
            self._client.DataWatch(self._path(number), self._watch(number))

    def _path(self, partition: int) -> str:
        return f"{self._root}/partition_{partition}"

    def _watch(self, partition: int) -> Any:
        def changed(data: bytes | None, stat: Any) -> None:
            if stat is not None:
                with self._lock:
                    self._seen[(partition, stat.version)] = data or b""

        return changed

    def now(self) -> dict[int, dict[str, Any]]:
        """What stands in the nodes."""
        patient = KazooRetry(max_tries=-1, deadline=30, max_delay=0.5, ignore_expire=True)
        return {n: json.loads(patient(self._client.get, self._path(n))[0]) for n in range(self._partitions)}

    def offsets(self) -> dict[int, int]:
        """Partition -> committed offset."""
        return {number: node["offset"] for number, node in self.now().items()}

    def history(self) -> dict[int, list[Version]]:
        """Every version of each node, from its first; what kazoo saw must stand in the log, word for word."""
        with self._lock:
            seen = dict(self._seen)
        wall_to_monotonic = time.monotonic_ns() - time.time_ns()
        paths = {self._path(number): number for number in range(self._partitions)}
        found: dict[int, list[Version]] = {number: [] for number in range(self._partitions)}
        for entry in read_log(*self._data_dirs):
            if entry.kind not in (CREATE, CREATE2, SET_DATA) or entry.path not in paths:
                continue
            number = paths[entry.path]
            was_seen = seen.pop((number, entry.version), None)
            assert was_seen in (None, entry.data), (number, entry.version, was_seen, entry.data)
            node = json.loads(entry.data)
            written = entry.time_ms * 1_000_000 + wall_to_monotonic + LOG_TICK_NS
            found[number].append(
                Version(
                    number, entry.version, node["offset"], node["owner_epoch"], entry.session, written, bool(was_seen)
                )
            )
        assert not seen, f"kazoo saw versions that ZooKeeper's log has not: {sorted(seen)}"
        for versions in found.values():
            assert [v.version for v in versions] == list(range(len(versions))), "the log has holes"
        return found

    def refused_since(self, monotonic_ns: int) -> int:
        """How many conditional writes ZooKeeper has refused since then, because the version was another one."""
        since_ms = (monotonic_ns + time.time_ns() - time.monotonic_ns()) // 1_000_000
        return sum(
            entry.kind == ERROR and entry.error == BAD_VERSION and entry.time_ms >= since_ms
            for entry in read_log(*self._data_dirs)
        )

    def close(self) -> None:
        self._client.stop()
        self._client.close()
