"""An ensemble of three ZooKeepers and brokers in it, each to be killed, stopped and started again by itself."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from streamlet.devcluster import broker_settings, probes
from streamlet.devcluster.installation import Installation, find_java
from streamlet.devcluster.jars import RELEASES, ensure_jars
from streamlet.devcluster.jvm import Jvm, log_tail
from streamlet.devcluster.machine import free_ports

ZOOKEEPERS = 3
START_S = 120.0


class Server:
    """One JVM with its files and port."""

    def __init__(self, name: str, command: list[str], log: Path, port: int) -> None:
        self.name = name
        self.port = port
        self._command = command
        self._log = log
        self.jvm: Jvm | None = None

    def launch(self) -> None:
        self.jvm = Jvm(self.name, self._command, self._log)

    @property
    def running(self) -> Jvm:
        assert self.jvm is not None, f"{self.name} was never started"
        return self.jvm

    def tail(self) -> str:
        return log_tail(self._log)


class Servers:
    """Three ZooKeepers and ``brokers`` brokers of Kafka 3.9, below ``folder``; ``with`` starts and ends them.

    ``zookeeper`` and ``bootstrap_servers`` are direct; clients of ``proxied`` pass the ports there: (group, port, port
    behind it). What a broker tells its clients is its proxied address.
    """

    def __init__(self, folder: Path, brokers: int) -> None:
        folder.mkdir()
        java = find_java()
        installation = Installation("3.9", java, ensure_jars(RELEASES["3.9"], java), folder)
        installation.write_logging()
        ports = iter(free_ports(4 * ZOOKEEPERS + 3 * brokers))
        quorum = [(next(ports), next(ports), next(ports), next(ports)) for _ in range(ZOOKEEPERS)]
        self.zookeepers = [_zookeeper(installation, number, quorum) for number in range(ZOOKEEPERS)]
        self.data_dirs = [folder / f"zookeeper-{number}" / "data" for number in range(ZOOKEEPERS)]
        self.zookeeper = ",".join(f"127.0.0.1:{server.port}" for server in self.zookeepers)
        self.proxied_zookeeper = ",".join(f"127.0.0.1:{outer}" for *_, outer in quorum)
        self.proxied = [("zookeeper", outer, inner) for inner, _, _, outer in quorum]
        self.brokers: list[Server] = []
        inner = []
        for number in range(brokers):
            outside, behind, inside = next(ports), next(ports), next(ports)
            self.proxied.append(("kafka", outside, behind))
            inner.append(f"127.0.0.1:{inside}")
            listeners = (outside, behind, inside)
            self.brokers.append(_broker(installation, number, listeners, self.zookeeper, brokers))
        self.bootstrap_servers = ",".join(inner)
        self.nodes = KazooClient(self.zookeeper, timeout=6.0, connection_retry={"max_tries": -1, "max_delay": 0.5})

    def __enter__(self) -> Servers:
        try:
            for server in self.zookeepers:
                server.launch()
            self._await("ZooKeepers to serve", self.zookeepers, lambda: all(map(_serves, self.zookeepers)))
            self.nodes.start(30)
            for server in self.brokers:
                server.launch()
            self._await("brokers to serve", self.brokers, self.brokers_serve)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):
            self.nodes.stop()
            self.nodes.close()
        for server in [*self.brokers, *self.zookeepers]:
            if server.jvm is not None:
                server.jvm.kill()

    def leader(self) -> int:
        """The number of the ensemble's leader; -1 while there is none."""
        for number, server in enumerate(self.zookeepers):
            with contextlib.suppress(OSError):
                if "Mode: leader" in probes.four_letter_word(server.port, "srvr"):
                    return number
        return -1

    def revive_zookeeper(self, number: int) -> None:
        """Start a killed one again; ``healthy`` says when it serves."""
        self.zookeepers[number].launch()

    def revive_broker(self, number: int, pump: Callable[[], None]) -> None:
        """Start a killed one again, once ZooKeeper has forgotten it: it would refuse before."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with contextlib.suppress(KazooException, KazooTimeoutError):
                if self.nodes.exists(f"/brokers/ids/{number}") is None:
                    break
            pump()
        self.brokers[number].launch()

    def healthy(self, topic: str) -> bool:
        """Whether everything serves, and every partition of the topic has all its replicas in sync."""
        with contextlib.suppress(OSError, probes.ProtocolError, KazooException, KazooTimeoutError):
            if not all(map(_serves, self.zookeepers)) or not self.brokers_serve():
                return False
            return all(len(state["isr"]) == len(self.brokers) for state in self.states(topic).values())
        return False

    def states(self, topic: str) -> dict[int, dict[str, Any]]:
        """Partition -> leader and replicas in sync, as they stand in ZooKeeper."""
        root = f"/brokers/topics/{topic}/partitions"
        return {int(n): json.loads(self.nodes.get(f"{root}/{n}/state")[0]) for n in self.nodes.get_children(root)}

    def brokers_serve(self) -> bool:
        everyone = frozenset(range(len(self.brokers)))
        with contextlib.suppress(OSError, probes.ProtocolError):
            states = [probes.kafka_state(server.port) for server in self.brokers]
            return all(state.brokers >= everyone and state.controller >= 0 for state in states)
        return False

    @staticmethod
    def _await(what: str, servers: Sequence[Server], done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_S
        while not done():
            dead = [server for server in servers if not server.running.alive]
            assert not dead, f"{dead[0].name} ended: {dead[0].tail()}"
            assert time.monotonic() < deadline, f"waited {START_S:.0f} s for {what}: {servers[0].tail()}"
            time.sleep(0.1)


def _serves(server: Server) -> bool:
    try:
        return server.jvm is not None and server.jvm.alive and probes.zookeeper_serves(server.port)
    except OSError:
        return False


def _zookeeper(installation: Installation, number: int, quorum: Sequence[tuple[int, int, int, int]]) -> Server:
    home = installation.directory / f"zookeeper-{number}"
    (home / "data").mkdir(parents=True)
    (home / "data" / "myid").write_text(f"{number + 1}\n")
    values = broker_settings.zookeeper(home / "data", quorum[number][0]) | {"initLimit": 10, "syncLimit": 5}
    for other, (_, peer, election, _) in enumerate(quorum):
        values[f"server.{other + 1}"] = f"127.0.0.1:{peer}:{election}"
    (home / "zoo.cfg").write_text(broker_settings.properties(values))
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    command = installation.server_command(main, str(home / "zoo.cfg"), heap_mb=192)
    return Server(f"ZooKeeper {number}", command, home / "server.log", quorum[number][0])


def _broker(
    installation: Installation, number: int, listeners: tuple[int, int, int], zookeeper: str, count: int
) -> Server:
    home = installation.directory / f"broker-{number}"
    home.mkdir()
    outside, behind, inside = listeners
    values: dict[str, object] = broker_settings.broker_with_zookeeper(number, inside, 0, home / "data", count)
    # ZooKeeper's node lists the listeners in this order, and a reader of it takes the first that it can speak to.
    values |= {
        "zookeeper.connect": zookeeper,
        "listeners": f"PROXIED://127.0.0.1:{behind},INSIDE://127.0.0.1:{inside}",
        "advertised.listeners": f"PROXIED://127.0.0.1:{outside},INSIDE://127.0.0.1:{inside}",
        "listener.security.protocol.map": "PROXIED:PLAINTEXT,INSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "replica.lag.time.max.ms": 5000,
        "log.segment.bytes": 64 << 20,
        "log.retention.ms": -1,
    }
    (home / "server.properties").write_text(broker_settings.properties(values))
    command = installation.server_command("kafka.Kafka", str(home / "server.properties"), heap_mb=384)
    return Server(f"broker {number}", command, home / "server.log", inside)
