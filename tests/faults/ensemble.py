"""Three ZooKeepers, each on a host of a ``network.Network``, and a spout's offset store that writes to them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kazoo.client import KazooClient

from streamlet.base.errors import StreamletError
from streamlet.coordination.node_store import NodeStoreUnavailable
from streamlet.coordination.zookeeper import ZooKeeperNodeStore
from streamlet.devcluster import broker_settings, probes
from streamlet.devcluster.installation import Installation, find_java
from streamlet.devcluster.jars import RELEASES, ensure_jars
from streamlet.devcluster.jvm import Jvm, log_tail
from streamlet.spouts.kafka.activity import Activity, Background, Steps
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.stores.offset_store import (
    CommitOutcome,
    CommitPosition,
    Owner,
    Reason,
    StartDecision,
    StoredOffset,
)
from streamlet.spouts.kafka.stores.zookeeper_offsets import ZooKeeperOffsets
from tests.faults.network import Network
from tests.faults.rig import wait_for
from tests.memory_nodes import Place

T = TypeVar("T")

PORT = 2181
PARTITION = Partition("words", 0)
SESSION_S = 4.0
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
TICK_MS = 500
SYNC_TICKS = 4
"""A follower or leader that the others do not hear for 2 s is out."""


class ThreeZooKeepers:
    """An ensemble on the hosts ``zk1``, ``zk2`` and ``zk3`` of a network."""

    names = ("zk1", "zk2", "zk3")

    def __init__(self, network: Network, folder: Path) -> None:
        self.network = network
        self.servers = ",".join(f"{network.address(name)}:{PORT}" for name in self.names)
        self._jvms: dict[str, Jvm] = {}
        java = find_java()
        jars = ensure_jars(RELEASES["3.9"], java)
        self._commands: dict[str, tuple[list[str], Path]] = {}
        for number, name in enumerate(self.names, 1):
            home = folder / name
            (home / "data").mkdir(parents=True)
            (home / "data" / "myid").write_text(str(number))
            installation = Installation("3.9", java, jars, home)
            installation.write_logging()
            (home / "zoo.cfg").write_text(broker_settings.properties(self._settings(home)))
            command = installation.server_command(MAIN, str(home / "zoo.cfg"), heap_mb=128)
            self._commands[name] = command, home / "server.log"

    def _settings(self, home: Path) -> dict[str, object]:
        values = broker_settings.zookeeper(home / "data", PORT)
        del values["clientPortAddress"]
        values |= {"tickTime": TICK_MS, "initLimit": 20, "syncLimit": SYNC_TICKS}
        return values | {
            f"server.{number}": f"{self.network.address(name)}:2888:3888" for number, name in enumerate(self.names, 1)
        }

    def __enter__(self) -> ThreeZooKeepers:
        try:
            for name in self.names:
                self.start(name)
            self.await_leader()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for jvm in self._jvms.values():
            jvm.kill()

    def start(self, name: str) -> None:
        command, log = self._commands[name]
        with self.network.inside(name):
            self._jvms[name] = Jvm(name, command, log)

    def kill(self, name: str) -> None:
        self._jvms[name].kill()

    def pause(self, name: str) -> None:
        self._jvms[name].pause()

    def resume(self, name: str) -> None:
        self._jvms[name].resume()

    def cut_off(self, name: str, *, client: str | None = None) -> None:
        """Let a member hear neither the others nor, with ``client``, that host."""
        for other in {*self.names, *([client] if client else [])} - {name}:
            self.network.black_hole(name, other)

    def mode(self, name: str) -> str:
        """``leader``, ``follower``, or nothing when it serves nobody."""
        with self.network.inside(name), contextlib.suppress(OSError):
            said = probes.four_letter_word(PORT, "srvr")
            return said.partition("Mode: ")[2].split("\n")[0]
        return ""

    def await_leader(self, *besides: str) -> str:
        """Wait until a member other than ``besides`` leads, and all others follow; its name."""
        there = [name for name in self.names if name not in besides]
        modes: dict[str, str] = {}

        def led() -> bool:
            modes.update({name: self.mode(name) for name in there})
            return sorted(modes.values()) == sorted(["leader", *["follower"] * (len(there) - 1)])

        wait_for("the ensemble to have a leader", led, told=lambda: {n: log_tail(self._commands[n][1]) for n in there})
        return next(name for name, mode in modes.items() if mode == "leader")


@dataclass
class Writer:
    """A spout's offset store on a host: it claims one partition and commits 1, 2, 3 ... to it."""

    store: ZooKeeperNodeStore
    topology_id: str
    root: str = "/streamlet/spout"
    partition: Partition = PARTITION
    committed: int = 0
    """The last offset whose commit was answered."""
    unknown: list[StreamletError] = field(default_factory=list)
    """Commits without an answer, or refused."""
    slowest_s: float = 0.0

    def __post_init__(self) -> None:
        self._background = Background("reads", lambda: None)
        owner = Owner(self.topology_id, "words")
        self.offsets = ZooKeeperOffsets(self.store, self._background, self.root, owner, "zk", Place())

    def open(self, meanwhile: Callable[[], None] = lambda: None) -> StartDecision:
        """Claim the partition; ``meanwhile`` runs after the read and before the write."""

        def decide(stored: StoredOffset | None) -> Steps[StartDecision]:
            meanwhile()
            yield from ()
            reason = Reason.FIRST_EARLIEST if stored is None else Reason.STORED
            return StartDecision(0 if stored is None else stored.offset, reason)

        decision = _done(self.offsets.open(self.partition, None, None, decide))
        self.committed = decision.offset
        return decision

    def open_again(self, patience_s: float = 60.0) -> StartDecision:
        """Claim the partition until that is answered, as a spout does."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                return self.open()
            except NodeStoreUnavailable:
                assert time.monotonic() < deadline
                time.sleep(0.2)

    def commit(self, offset: int) -> CommitOutcome:
        """One round; what came of it."""
        since = time.monotonic()
        outcome = _done(self.offsets.commit({self.partition: CommitPosition(offset)}))[self.partition]
        self.slowest_s = max(self.slowest_s, time.monotonic() - since)
        if outcome is None:
            assert offset >= self.committed
            self.committed = offset
        else:
            self.unknown.append(outcome)
            if not outcome.retriable:
                raise outcome
        return outcome

    def commit_until(self, count: int, patience_s: float = 60.0) -> None:
        """Go on, each time one further, until that many more commits were answered."""
        deadline, answered, offset = time.monotonic() + patience_s, 0, self.committed
        while answered < count:
            assert time.monotonic() < deadline, f"{answered} of {count} commits were answered: {self.unknown[-3:]}"
            offset += 1
            answered += self.commit(offset) is None
            time.sleep(0.005)

    def close(self) -> None:
        self._background.close()
        self.store.close()


def _done(steps: Steps[T]) -> T:
    activity = Activity(steps)
    wait_for("the store to answer", activity.poll, 60)
    return activity.take()


@contextlib.contextmanager
def writer(network: Network, host: str, servers: str, topology_id: str = "run-1") -> Iterator[Writer]:
    """A writer whose connections are those of ``host``."""
    with network.inside(host):
        store = ZooKeeperNodeStore(servers, session_timeout_s=SESSION_S, request_timeout_s=3)
        made = Writer(store, topology_id)
    try:
        yield made
    finally:
        made.close()


def read_by_kazoo(network: Network, host: str, servers: str, path: str) -> tuple[bytes, int]:
    """What the ensemble has, by kazoo alone, after a ``sync``."""
    with network.inside(host):
        client = KazooClient(servers)
        client.start(20)
    try:
        client.sync(path)
        data, stat = client.get(path)
        return data, stat.version
    finally:
        client.stop()
        client.close()
