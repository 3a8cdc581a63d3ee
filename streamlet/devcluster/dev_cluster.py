"""A real ZooKeeper and real Kafka brokers on loopback, for tests, the demo and a laptop; faults by name."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Self

from streamlet.devcluster import probes
from streamlet.devcluster.certificates import Certificates, make_certificates
from streamlet.devcluster.errors import ClusterFailed, DevStackError
from streamlet.devcluster.installation import Installation, Progress, find_java, silent
from streamlet.devcluster.jars import RELEASES, ensure_jars
from streamlet.devcluster.jvm import Jvm, log_tail
from streamlet.devcluster.machine import OwnedDirectory, listens
from streamlet.devcluster.members import Member, data_directory, format_storage, laid_out, lay_out, note_kind
from streamlet.devcluster.tools import KafkaTools

START_TIMEOUT_S = 180.0
"""Seconds to wait for a start on a starved machine; a JVM that dies is noticed at once."""
_PORT_TRIES = 4
_STOP_GRACE_S = 10.0
"""Seconds that a JVM may take to stop before it is killed."""


_BAD_JAR = r"ClassNotFoundException|NoClassDefFoundError|Could not find or load main class|ZipException|JarException"
_OTHER_DATA = (
    r"unexpected version in \S*meta\.properties|INCONSISTENT_CLUSTER_ID|InconsistentClusterId|stored clusterId"
)
"""What a JVM or Kafka says of a truncated jar, and of data that another cluster wrote."""


class _PortTaken(Exception):
    """Somebody took a port between our look and the JVM's bind."""


class DevCluster(KafkaTools):
    """Real servers on 127.0.0.1: ``with DevCluster(kafka="3.9") as cluster:``.

    They start in 2 to 4 s, and are stopped at the end of the block.

    ``kafka``: "3.9" (ZooKeeper mode) or "4" (KRaft); ``brokers``: 1 or 3 (or 0: ZooKeeper alone).
    ``directory`` holds data and logs and is kept; without one a temporary directory is used and removed.
    ``figures`` leaves the JVMs their best compiler and collector. ``broker_settings`` go into every broker's
    properties last, of a tuple one value each. ``preferred_ports``: (ZooKeeper, first broker, second, ...), taken
    where free. ``secured`` gives every broker TLS and SASL listeners too (:meth:`secure_servers`,
    :attr:`certificates`; needs ``openssl``).

    Every process dies with the one that called ``start``, even one killed with SIGKILL. Methods that change
    the cluster belong to one thread at a time; broker indexes count from 0 and are the broker ids.
    """

    # Long: each server's start, stop, kill and pause, and the files and ports that they share. Kafka's own tools are in
    # `KafkaTools`, what watches over processes in `keeper`.

    def __init__(
        self,
        kafka: str = "3.9",
        brokers: int = 1,
        directory: Path | str | None = None,
        *,
        figures: bool = False,
        broker_settings: Mapping[str, object] | None = None,
        preferred_ports: tuple[int, ...] = (),
        progress: Progress = silent,
        start_timeout_s: float = START_TIMEOUT_S,
        detachable: bool = False,
        secured: bool = False,
    ) -> None:
        if kafka not in RELEASES:
            raise ValueError(f"kafka={kafka!r}: choose from {', '.join(RELEASES)}")
        if brokers not in ((0, 1, 3) if kafka == "3.9" else (1, 3)):
            raise ValueError(f"brokers={brokers!r}: choose 1 or 3 (0, on 3.9 only: a ZooKeeper alone)")
        self.kafka = kafka
        self._count = brokers
        self._wanted_directory = None if directory is None else Path(directory)
        self._figures = figures
        self._extra = dict(broker_settings or {})
        self._preferred_ports = preferred_ports
        self._progress = progress
        self._start_timeout_s = start_timeout_s
        self._detachable = detachable
        self._secured = secured
        self._certificates: Certificates | None = None
        self._owned: OwnedDirectory | None = None
        self._installation: Installation | None = None
        self._zookeeper: Member | None = None
        self._brokers: list[Member] = []

    def __repr__(self) -> str:
        state = "".join("+" if member.alive else "-" for member in self._brokers) or "not started"
        return f"<DevCluster kafka={self.kafka} brokers={state}>"

    # -- where it is

    @property
    def installation(self) -> Installation:
        if self._installation is None:
            raise DevStackError("The development cluster has not been started: call start() first.")
        return self._installation

    @property
    def directory(self) -> Path:
        """Data, configuration and logs."""
        return self.installation.directory

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{member.port}" for member in self._brokers)

    def secure_servers(self, protocol: str) -> str:
        """Return the addresses of listeners: SSL, SASL_PLAINTEXT or SASL_SSL."""
        return ",".join(f"127.0.0.1:{member.secure_ports[protocol]}" for member in self._brokers)

    @property
    def certificates(self) -> Certificates:
        """Those of a secured cluster."""
        if self._certificates is None:
            raise DevStackError("This development cluster has no certificates: start one with secured=True.")
        return self._certificates

    @property
    def zookeeper(self) -> str | None:
        """``127.0.0.1:port``; None on 4.x, which has none."""
        return None if self._zookeeper is None else f"127.0.0.1:{self._zookeeper.port}"

    @property
    def members(self) -> list[Member]:
        """ZooKeeper first, where there is one, then the brokers by id."""
        return [*([] if self._zookeeper is None else [self._zookeeper]), *self._brokers]

    # -- life

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start everything, and return when every broker answers.

        Jars that are not cached are fetched first.

        Raises ``JavaMissing``, ``JarsUnavailable`` or ``ClusterFailed``; nothing is left running then.
        """
        return self._begin(self._start_on_free_ports)

    def revive(self, ports: Mapping[str, int], gone: Collection[str]) -> Self:
        """Start only the servers in ``gone``, on their files and ports.

        The others of ``directory`` run without this object, which neither reaches nor ends them. ``ports``: those of
        all, by name. Returns and raises as ``start`` does.
        """
        return self._begin(lambda: self._start_again(ports, gone))

    def _begin(self, start: Callable[[], None]) -> Self:
        if self._installation is not None:
            raise DevStackError("This development cluster has been started already: stop() it first.")
        if not hasattr(os, "pidfd_open"):
            raise DevStackError("The development cluster needs Linux (pidfd_open, kernel 5.3 or newer).")
        # What the user has to fix is found before a directory is made or a port is chosen.
        java = find_java(progress=self._progress)
        jars = ensure_jars(RELEASES[self.kafka], java, progress=self._progress)
        try:
            if self._wanted_directory is None:
                self._owned = OwnedDirectory()
            directory = self._owned.path if self._owned else self._wanted_directory
            assert directory is not None
            directory.mkdir(parents=True, exist_ok=True)
            self._installation = Installation(self.kafka, java, jars, directory.absolute(), self._figures)
            self._installation.write_logging()
            start()
        # Apart from the other errors: a full or read-only disk is for the user to fix, and nothing in its text says
        # where.
        except OSError as error:
            self.stop()
            where = self._wanted_directory or tempfile.gettempdir()
            raise ClusterFailed(
                f"The development cluster could not be started in {where}: {error.strerror or error}. Make room "
                "there, or let TMPDIR (or DevCluster's directory) name another place."
            ) from error
        except BaseException:  # Ctrl-C too: nothing may be left running
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every process and remove the temporary directory. May be repeated; takes at most seconds."""
        self._stop_members()
        self._zookeeper, self._brokers, self._installation, self._certificates = None, [], None, None
        if self._owned is not None:
            self._owned.remove()
            self._owned = None

    def _stop_members(self) -> None:
        # A kept directory is closed in order; one that will be removed needs only a kill.
        # Brokers end before their ZooKeeper: a broker that loses it waits for it instead of closing its logs.
        for member in reversed(self.members):
            if member.jvm is not None:
                if self._owned is None and member.alive:
                    member.jvm.stop(_STOP_GRACE_S)
                member.jvm.kill()

    def release(self) -> None:
        """Let a ``detachable`` cluster live on without this process.

        The object reaches nothing afterwards.
        """
        for member in self.members:
            if member.jvm is not None:
                member.jvm.release()
                member.jvm = None

    def _start_on_free_ports(self) -> None:
        # A port that was free may be taken before the JVM binds it, seconds later. Then everything is laid out again:
        # brokers name each other's ports in their files.
        for left in reversed(range(_PORT_TRIES)):
            self._lay_out()
            try:
                self._start_all()
                return
            except _PortTaken as error:
                self._stop_members()
                if left == 0:
                    raise ClusterFailed(str(error)) from error

    def _start_all(self) -> None:
        if self._zookeeper is not None:
            self.start_zookeeper()
        if not self._brokers:
            return
        plural = "s" if self._count > 1 else ""
        self._progress(f"starting Kafka {RELEASES[self.kafka].kafka}, {self._count} broker{plural}")
        for number, member in enumerate(self._brokers):
            self._await_old_session(number)
            self._launch(member)
        self._await_brokers(range(self._count))

    def _start_again(self, ports: Mapping[str, int], gone: Collection[str]) -> None:
        there = {name: laid_out(self.installation, name, port) for name, port in ports.items()}
        self._zookeeper = there.pop("ZooKeeper", None)
        self._brokers = list(there.values())
        numbers = [number for number, member in enumerate(self._brokers) if member.name in gone]
        try:
            if "ZooKeeper" in gone:
                self.start_zookeeper()
            for number in numbers:
                self._await_old_session(number)
                self._progress(f"starting {self._brokers[number].name} on 127.0.0.1:{self._brokers[number].port}")
                self._launch(self._brokers[number])
            self._await_brokers(numbers)
        except _PortTaken as error:
            raise ClusterFailed(str(error)) from error

    # -- faults and their undoing

    def kill(self, broker: int) -> None:
        """Kill a broker (SIGKILL)."""
        self._jvm(self._brokers[broker]).kill()

    def pause(self, broker: int) -> None:
        """Stop a broker (SIGSTOP): its connections stay, nothing is answered."""
        self._jvm(self._brokers[broker]).pause()

    def resume(self, broker: int) -> None:
        """Continue a paused broker (SIGCONT)."""
        self._jvm(self._brokers[broker]).resume()

    def restart(self, broker: int, *, graceful: bool = True) -> None:
        """Start the broker again on its port, and return when it answers.

        After a kill this waits up to 6 s, until its old session has expired: a 3.9 broker refuses to
        start while the node it left in ZooKeeper is there.
        """
        member = self._brokers[broker]
        if member.jvm is not None:
            if graceful and member.alive:
                member.jvm.stop(_STOP_GRACE_S)
            member.jvm.kill()
        self._await_old_session(broker)
        self._launch(member)
        self._await_brokers([broker])

    def stop_zookeeper(self) -> None:
        """Kill the ZooKeeper (SIGKILL); its data stays."""
        self._jvm(self._the_zookeeper()).kill()

    def start_zookeeper(self) -> None:
        """Start it (again) on its port and data; returns when it serves."""
        member = self._the_zookeeper()
        self._progress(f"starting ZooKeeper on 127.0.0.1:{member.port}")
        self._launch(member)
        self._await("ZooKeeper to serve", member, lambda: probes.zookeeper_serves(member.port))

    def pause_zookeeper(self) -> None:
        """Stop the ZooKeeper (SIGSTOP)."""
        self._jvm(self._the_zookeeper()).pause()

    def resume_zookeeper(self) -> None:
        """Continue the ZooKeeper (SIGCONT)."""
        self._jvm(self._the_zookeeper()).resume()

    def expire_session(self, session_id: int, password: bytes) -> None:
        """Expire a client's ZooKeeper session (kazoo: ``client.client_id``)."""
        probes.expire_session(self._the_zookeeper().port, session_id, password)

    def dump_log(self, topic: str, partition: int, broker: int = 0) -> str:
        """Return the output of ``kafka-dump-log`` for one replica's segments."""
        data = data_directory(self.installation, broker)
        return self.dump_segments(sorted((data / f"{topic}-{partition}").glob("*.log")))

    # -- how it starts

    def _lay_out(self) -> None:
        note_kind(self.directory, self.kafka, self._count)
        if self._secured and self._certificates is None:
            self._certificates = make_certificates(self.directory / "certificates")
        self._zookeeper, self._brokers = lay_out(
            self.installation, self._count, self._preferred_ports, self._extra, self._certificates
        )
        if self.kafka == "4":
            refused = format_storage(self.installation, self._brokers, self._start_timeout_s)
            if refused is not None:
                raise self._failure("Kafka's storage could not be formatted", refused)

    def _launch(self, member: Member) -> None:
        member.jvm = Jvm(member.name, member.command, member.log, detachable=self._detachable)

    def _await_old_session(self, broker: int) -> None:
        """Wait, on 3.9, until ZooKeeper has forgotten a killed broker.

        It may be one of an earlier run of the directory.
        """
        if self._zookeeper is None:
            return
        # A broker whose own id is still in ZooKeeper ends at once; the node goes when the session of the killed one
        # expires.
        port, node = self._zookeeper.port, f"/brokers/ids/{broker}\n"

        def gone() -> bool:
            return node not in probes.four_letter_word(port, "dump")

        self._await(f"broker {broker}'s old session to expire", self._zookeeper, gone)

    def _await_brokers(self, brokers: Iterable[int]) -> None:
        """Wait until each broker names all running ones, and a controller."""
        # All that run, and not only the new one: a topic with three copies can then be made at once.
        running = frozenset(number for number, member in enumerate(self._brokers) if member.alive)
        for number in brokers:
            member = self._brokers[number]

            # The port as a default: a closure would see the loop's last member.
            def serves(port: int = member.port) -> bool:
                state = probes.kafka_state(port)
                return state.brokers >= running and state.controller >= 0

            self._await(f"{member.name} to serve", member, serves)

    def _await(self, what: str, member: Member, done: Callable[[], bool]) -> None:
        """Poll ``done`` until it holds; the member's end, or the deadline, ends the wait with its log.

        A member without a process here runs without us.
        """
        deadline = time.monotonic() + self._start_timeout_s
        while True:
            with contextlib.suppress(OSError, probes.ProtocolError):
                # Somebody else may have taken the port since it was chosen, and answer there, too.
                if done() and (member.jvm is None or listens(member.jvm.pid, member.port)):
                    return
            if member.jvm is not None and not member.alive:
                raise self._ended(member)
            if time.monotonic() > deadline:
                raise self._failure(f"Waited {self._start_timeout_s:.0f} s for {what}, which did not happen", member)
            time.sleep(0.05)

    def _ended(self, member: Member) -> Exception:
        error = self._failure(f"{member.name} ended before it was ready", member)
        tail = log_tail(member.log)
        # ZooKeeper and Kafka, and each version of them, say it in one of these two ways.
        return _PortTaken(error.message) if "Address already in use" in tail or "BindException" in tail else error

    def _failure(self, what: str, member: Member) -> ClusterFailed:
        tail = log_tail(member.log)
        return ClusterFailed(
            f"{what} (Kafka {RELEASES[self.kafka].kafka}, 127.0.0.1:{member.port}). The end of its log: "
            f"{tail} The whole log was {member.log}; a kept one: DevCluster(directory=...). {self._remedy(tail)}"
        )

    def _remedy(self, tail: str) -> str:
        """Say what helps against what a server's log ends with."""
        if re.search(_BAD_JAR, tail):
            return (
                f"A jar of Kafka in {self.installation.jars} is damaged or gone: remove that directory, and the next "
                "start fetches all of them again."
            )
        if re.search(_OTHER_DATA, tail):
            return (
                f"The data in {self.directory} are of another cluster: remove them, those of `streamlet dev up` with "
                "`streamlet dev down`, and start again."
            )
        return "Look for a full disk, too little memory (512 MB a broker) or another process on that port."

    def _the_zookeeper(self) -> Member:
        if self._zookeeper is None:
            raise DevStackError(f"This development cluster runs Kafka {self.kafka}, which has no ZooKeeper.")
        return self._zookeeper

    @staticmethod
    def _jvm(member: Member) -> Jvm:
        if member.jvm is None:
            raise DevStackError(f"{member.name} has not been started.")
        return member.jvm
