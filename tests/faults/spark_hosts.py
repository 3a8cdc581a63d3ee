"""A standalone Spark over the hosts of a ``network.Network``: master and driver on one, a worker on each other one.

``with spark_hosts(network, folder) as spark``: what runs ``inside(DRIVER)`` with ``spark.environ`` reaches the cluster
at ``spark.url``. Nothing of it outlives this process, not even a stopped executor: everything carries a mark.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from streamlet.backends.spark.spark_session import QUICK_JVM
from streamlet.base.environment import environment
from streamlet.devcluster.installation import find_java
from streamlet.devcluster.jvm import Jvm, log_tail
from streamlet.devcluster.spark_servers import find_spark, page_of, server_command
from tests.faults.network import Network
from tests.faults.rig import wait_for
from tests.faults.sweeper import kill, marked, sweeping
from tests.marked_processes import command_line, descendants, lives, parent

DRIVER, WORKERS = "driver", ("one", "two")
MASTER_PORT, MASTER_PAGE, WORKER_PORT, WORKER_PAGE = 7077, 8080, 7078, 8081
MARK = "STREAMLET_TEST_HOSTS"

LOST_AFTER_S = 10
"""Seconds of silence after which the master gives a machine up (60 by default), and Spark's driver an executor (120):
whoever waits for a lost machine waits for Spark, and learns nothing more of streamlet."""

DEFAULTS = f"""
spark.executor.memory 512m
spark.executor.extraJavaOptions {QUICK_JVM}
spark.driver.extraJavaOptions {QUICK_JVM}
spark.executor.heartbeatInterval 2s
spark.network.timeout {LOST_AFTER_S}s
spark.network.timeoutInterval 1s
spark.storage.blockManagerTimeoutIntervalMs 1000
"""


class SparkHosts:
    """The servers. Methods belong to the process's first thread; ``start`` and ``kill`` name a host."""

    def __init__(self, network: Network, folder: Path, environ: dict[str, str]) -> None:
        self.network = network
        self.folder = folder
        self.address = network.address(DRIVER)
        self.url = f"spark://{self.address}:{MASTER_PORT}"
        self.environ = environ
        """What a driver needs, as a user of the cluster sets it."""
        self._servers: dict[str, Jvm] = {}
        self._home, self._java = find_spark(), find_java(wheel=False).path.parent.parent

    def start(self, host: str) -> None:
        """Launch the server of a host, which is there a while later."""
        folder = self.folder / host
        folder.mkdir(exist_ok=True)
        ports = (MASTER_PORT, MASTER_PAGE) if host == DRIVER else (WORKER_PORT, WORKER_PAGE)
        master = None if host == DRIVER else self.url
        where = (folder, self.network.address(host), *ports, master)
        more = {"spark.worker.timeout": str(LOST_AFTER_S)}
        with self.network.inside(host):
            command = server_command(self._home, self._java, *where, more=more)
            self._servers[host] = Jvm(f"Spark on {host}", command, folder / "server.log")

    def start_all(self) -> None:
        for host in (DRIVER, *WORKERS):
            self.start(host)
        self.await_workers(*WORKERS)

    def await_workers(self, *hosts: str) -> None:
        """Wait until the master serves, and counts these and no others among the living."""
        addresses = sorted(map(self.network.address, hosts))
        wait_for(f"workers on {hosts}", lambda: self.state() == ("ALIVE", addresses), told=self.tails)

    def state(self) -> tuple[str, list[str]]:
        """What the master says of itself, and the addresses of workers that live."""
        with self.network.inside(DRIVER):
            told = page_of(self.address, MASTER_PAGE) or {}
        workers: object = told.get("workers")
        living = [one for one in (workers if isinstance(workers, list) else ()) if one["state"] == "ALIVE"]
        return str(told.get("status")), sorted(one["host"] for one in living)

    def tails(self) -> str:
        return "; ".join(f"{host}: {log_tail(jvm.log)}" for host, jvm in self._servers.items())

    def revive(self) -> None:
        """Start the servers that do not run."""
        for host, jvm in list(self._servers.items()):
            if not jvm.alive:
                jvm.kill()
                self.start(host)
        self.await_workers(*WORKERS)

    def log_of(self, host: str) -> Path:
        return self._servers[host].log

    def below(self, host: str) -> list[int]:
        """What the worker on a host has started: executors, their Python daemons and workers."""
        return [pid for pid in descendants(self._servers[host].pid) if lives(pid)]

    def executor_of(self, worker: int) -> int:
        """The executor's JVM that a Python worker belongs to."""
        executor = parent(parent(worker))
        assert "CoarseGrained" in " ".join(command_line(executor)), command_line(executor)
        return executor

    def kill(self, host: str) -> None:
        """SIGKILL to the server of a host and to all that it has started."""
        below = descendants(self._servers[host].pid)
        for pid in (self._servers[host].pid, *below, *self.below(host)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._servers[host].kill()

    def close(self) -> None:
        for jvm in self._servers.values():
            jvm.kill()

    def power_off(self, host: str) -> None:
        """Let a host vanish: silent first, so that nobody hears of the end of what ran there."""
        self.network.power_off(host)
        self.kill(host)


@contextlib.contextmanager
def spark_hosts(network: Network, folder: Path) -> Iterator[SparkHosts]:
    """The servers, on the hosts DRIVER and WORKERS. All that is started meanwhile ends with this, and the folder."""
    (folder / "spark-defaults.conf").write_text(DEFAULTS)
    mark = uuid.uuid4().hex
    environ = {
        "SPARK_LOCAL_IP": network.address(DRIVER),
        "SPARK_CONF_DIR": str(folder),
        "PYSPARK_PYTHON": sys.executable,
    }
    # The servers have the mark from here, and executors from them.
    with sweeping(f"{MARK}={mark}", folder), environment({MARK: mark}):
        spark = SparkHosts(network, folder, environ)
        try:
            spark.start_all()
            yield spark
        finally:
            spark.close()
            while left := marked(f"{MARK}={mark}"):
                kill(left)
                time.sleep(0.02)
