"""A standalone Spark cluster on loopback: a master and workers, as JVMs that never outlive their owner."""

from __future__ import annotations

import contextlib
import functools
import http.client
import importlib.util
import os
import shutil
import signal
import time
import urllib.request
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from streamlet.devcluster.errors import ClusterFailed, SparkMissing
from streamlet.devcluster.installation import Progress, find_java, silent
from streamlet.devcluster.jvm import SMALL_FLAGS, Jvm, log_tail
from streamlet.devcluster.machine import free_ports, is_free, listens
from streamlet.devcluster.members import Member

LOOPBACK = "127.0.0.1"
MASTER = "Spark master"
WORKER = "Spark worker"

WELL_KNOWN_SPARK_PORTS = (7077, 8080)
"""The master's, and its page's, taken where they are free."""

CORES_OF_WORKER = 2
"""Task slots of a worker, whatever the machine has: a worker of a topology mostly waits."""

MEMORY_OF_WORKER_MIB = 2048
"""Two executors of the default size: with one, a lost worker's executor would find no room at the other."""

START_TIMEOUT_S = 180.0
"""Seconds to wait for a start on a starved machine; a JVM that dies is noticed at once."""

PAGE_TIMEOUT_S = 2.0
"""Seconds for a page to answer."""

PORT_TRIES = 4


@dataclass(frozen=True, slots=True)
class SparkPorts:
    """Where each server listens, and its page; the master first."""

    servers: tuple[int, ...]
    pages: tuple[int, ...]


class SparkServers:
    """``with SparkServers(2, directory) as spark``: ``spark.master_url`` names it to sessions.

    ``host`` is the address of this machine, or of the network namespace that the calling thread is in. Methods belong
    to one thread at a time.
    """

    def __init__(
        self,
        workers: int,
        directory: Path,
        *,
        ports: SparkPorts | None = None,
        host: str = LOOPBACK,
        cores: int = CORES_OF_WORKER,
        detachable: bool = False,
        progress: Progress = silent,
    ) -> None:
        self.host = host
        self.directory = directory
        self._count = workers
        self._ports = ports
        self._cores = cores
        self._detachable = detachable
        self._progress = progress
        self.members: list[Member] = []
        self.pages: tuple[int, ...] = ()

    def __enter__(self) -> SparkServers:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def master_url(self) -> str:
        return f"spark://{self.host}:{self.members[0].port}"

    def start(self, only: Collection[str] | None = None) -> None:
        """Start all servers, or those named; return when each worker is known to the master.

        Raises JavaMissing, SparkMissing or ClusterFailed, and leaves nothing of it running.
        """
        for left in reversed(range(1 if self._ports is not None else PORT_TRIES)):
            ports = self._ports or _choose(self._count)
            self._lay_out(ports)
            starting = range(len(self.members)) if only is None else self._named(only)
            if self._ports is not None:
                self._lay_out(self._with_free_pages(ports, starting))
            try:
                self._start(starting)
                return
            except ClusterFailed as error:
                self.stop()
                # Somebody may take a port between our look and the JVM's bind, seconds later.
                if left == 0 or "BindException" not in error.message:
                    raise
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Kill every server that runs, a worker with its executors. May be repeated."""
        for member in reversed(self.members):
            _kill(member)

    def release(self) -> None:
        """Let them live on without us; the object reaches nothing afterwards."""
        for member in self.members:
            if member.jvm is not None:
                member.jvm.release()
                member.jvm = None

    def kill(self, number: int) -> None:
        """Kill a server (SIGKILL), a worker with its executors: 0 is the master."""
        _kill(self.members[number])

    def _named(self, names: Collection[str]) -> list[int]:
        return [number for number, member in enumerate(self.members) if member.name in names]

    def _with_free_pages(self, ports: SparkPorts, starting: Collection[int]) -> SparkPorts:
        """Return the ports, with other ones for pages that were taken meanwhile."""
        # A server keeps its own port, for people wrote that into files. Its page, which no program needs, must not keep
        # a cluster from coming back: the usual 8080 is what many others want.
        pages = list(ports.pages)
        for number in starting:
            if not is_free(pages[number], self.host):
                (pages[number],) = free_ports(1)
                name, taken = self.members[number].name, ports.pages[number]
                self._progress(f"port {taken} is taken by another program: the page of {name} is on {pages[number]}")
        return SparkPorts(ports.servers, tuple(pages))

    def _lay_out(self, ports: SparkPorts) -> None:
        self.pages = ports.pages
        java = find_java(progress=self._progress, wheel=False)
        home = find_spark()
        names = [MASTER, *(f"{WORKER} {number}" for number in range(len(ports.servers) - 1))]
        self.members = []
        for name, port, page in zip(names, ports.servers, ports.pages, strict=True):
            folder = self.directory / name.lower().replace(" ", "-")
            folder.mkdir(parents=True, exist_ok=True)
            command = self._command(home, java.path.parent.parent, folder, name, port, page, ports.servers[0])
            self.members.append(Member(name, port, folder / "server.log", command))

    def _command(
        self, home: Path, java_home: Path, folder: Path, name: str, port: int, page: int, master: int
    ) -> list[str]:
        url = None if name == MASTER else f"spark://{self.host}:{master}"
        return server_command(home, java_home, folder, self.host, port, page, url, self._cores)

    def _start(self, numbers: Sequence[int]) -> None:
        started = [number for number in numbers if number == 0]
        if len(numbers) == len(self.members):
            # Of the old workers and applications none lives: a master that waits for them grants no executors for up to
            # a minute.
            shutil.rmtree(self.members[0].log.parent / "recovery", ignore_errors=True)
        if started:
            self._progress(f"starting the Spark master on {self.host}:{self.members[0].port}")
            self._launch(0)
            self._await(0, lambda: page_of(self.host, self.pages[0]) is not None)
        workers = [number for number in numbers if number]
        if workers:
            self._progress(f"starting {len(workers)} Spark worker{'s' if len(workers) > 1 else ''}")
        for number in workers:
            self._launch(number)
        for number in workers:
            self._await(number, functools.partial(self._is_known, number))
        if started:
            self._await(0, self._grants)

    def _launch(self, number: int) -> None:
        member = self.members[number]
        member.jvm = Jvm(member.name, member.command, member.log, detachable=self._detachable)

    def _grants(self) -> bool:
        """Tell whether the master grants executors: it recovers nothing."""
        return (page_of(self.host, self.pages[0]) or {}).get("status") == "ALIVE"

    def _is_known(self, number: int) -> bool:
        """Tell whether the master counts a worker among the living."""
        told = page_of(self.host, self.pages[0]) or {}
        workers = told.get("workers", ())
        return any(
            each["port"] == self.members[number].port and each["state"] == "ALIVE"
            for each in (workers if isinstance(workers, list) else ())
        )

    def _await(self, number: int, done: Callable[[], bool]) -> None:
        member = self.members[number]
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if done() and member.jvm is not None and listens(member.jvm.pid, member.port):
                return
            if not member.alive:
                raise self._failure(f"{member.name} ended before it was ready", member)
            if time.monotonic() > deadline:
                raise self._failure(f"{member.name} was not ready within {START_TIMEOUT_S:.0f} s", member)
            time.sleep(0.05)

    def _failure(self, what: str, member: Member) -> ClusterFailed:
        page = self.pages[self.members.index(member)]
        return ClusterFailed(
            f"{what} ({self.host}:{member.port}, page on {page}). The end of its log, {member.log}: "
            f"{log_tail(member.log)} Look for a full disk, too little memory (256 MB each) or another process on one "
            "of those ports."
        )


def server_command(
    home: Path,
    java_home: Path,
    folder: Path,
    host: str,
    port: int,
    page: int,
    master: str | None,
    cores: int = CORES_OF_WORKER,
    more: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return the command of a server: a worker of ``master``, or, with None, a master.

    ``more``: settings of Spark's own.
    """
    where = ["--host", host, "--port", str(port), "--webui-port", str(page)]
    if master is None:
        main = ["org.apache.spark.deploy.master.Master", *where]
    else:
        size = ["--cores", str(cores), "--memory", f"{MEMORY_OF_WORKER_MIB}m"]
        main = ["org.apache.spark.deploy.worker.Worker", *where, *size, master]
    settings = {
        # Spark would take the next free port, sixteen times, where nobody looks for it.
        "spark.port.maxRetries": "0",
        # A master that is started again knows its workers and applications.
        "spark.deploy.recoveryMode": "FILESYSTEM",
        "spark.deploy.recoveryDirectory": str(folder / "recovery"),
        "spark.master.rest.enabled": "false",  # a second way in, which nobody here takes
        "java.io.tmpdir": str(folder),
        **more,
    }
    options = " ".join([*SMALL_FLAGS, "-XX:-UsePerfData", *(f"-D{key}={value}" for key, value in settings.items())])
    environ = {
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(home),
        # Not the user's, which may name other directories and ports. None: a JVM takes no archive of classes where a
        # folder with files is on the class path.
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_IP": host,  # pages too listen there only
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": options,
    }
    # `env` and Spark's script each become what they start: the keeper's child is the JVM in the end.
    pairs = [f"{key}={value}" for key, value in environ.items()]
    return ["/usr/bin/env", *pairs, str(home / "bin" / "spark-class"), *main]


def _kill(member: Member) -> None:
    jvm = member.jvm
    if jvm is None:
        return
    if jvm.alive:
        # The keeper gave it a session of its own, in which its executors are.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(jvm.pid, signal.SIGKILL)
    jvm.kill()


def _choose(workers: int) -> SparkPorts:
    master, page, *others = free_ports(2 + 2 * workers, WELL_KNOWN_SPARK_PORTS)
    return SparkPorts((master, *others[:workers]), (page, *others[workers:]))


def find_spark(environ: Mapping[str, str] = os.environ) -> Path:
    """Return SPARK_HOME, or pyspark's own folder. Raises SparkMissing."""
    if given := environ.get("SPARK_HOME"):
        home = Path(given)
        if not (home / "bin" / "spark-class").is_file():
            raise SparkMissing(f"SPARK_HOME={given} holds no bin/spark-class. Unset it, or let it name a Spark.")
        return home
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SparkMissing(
            "A Spark cluster needs pyspark, which this Python does not have. Install it with: pip install "
            "'streamlet-storm[spark]'"
        )
    return Path(spec.origin).parent


def page_of(host: str, port: int) -> dict[str, object] | None:
    """Return what a server's page says as JSON; None while nobody answers."""
    import json

    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        # Past any proxy of the environment: it is this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{host}:{port}/json/", timeout=PAGE_TIMEOUT_S) as answer:
            told = json.load(answer)
            return told if isinstance(told, dict) else None
    return None
