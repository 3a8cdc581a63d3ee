"""The development cluster that stays: ``up`` starts it, ``down`` ends it, and it outlives both commands.

One a user. What runs is written into a state file below a 0700 directory; ``up`` and ``down`` hold its lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamlet.devcluster import probes
from streamlet.devcluster.dev_cluster import DevCluster
from streamlet.devcluster.errors import DevStackError, NotAsWanted
from streamlet.devcluster.installation import Progress, silent
from streamlet.devcluster.jars import RELEASES
from streamlet.devcluster.machine import ProcessIdentity
from streamlet.devcluster.members import noted_kind
from streamlet.devcluster.spark_servers import LOOPBACK, SparkPorts, SparkServers, page_of

WELL_KNOWN_PORTS = (2181, 9092, 9093, 9094)
"""ZooKeeper's and the brokers', taken where they are free: what documentation and other tools expect."""

_PIDS = 1 << 31


@dataclass(frozen=True, slots=True)
class ResidentProcess:
    """One server: ``name`` is "ZooKeeper" or "broker N"; it listens on 127.0.0.1:``port``."""

    name: str
    port: int
    log: str
    identity: ProcessIdentity
    page: int = 0
    """The port of its web page, of Spark's servers."""

    def health(self) -> str:
        """Return ``answers``, ``silent`` or ``gone``. Silent: it runs, but does not answer its protocol."""
        if not self.identity.alive:
            return "gone"
        if self.page:
            return "answers" if page_of(LOOPBACK, self.page) is not None else "silent"
        with contextlib.suppress(OSError, probes.ProtocolError):
            if self.name == "ZooKeeper":
                return "answers" if probes.zookeeper_serves(self.port) else "silent"
            probes.kafka_state(self.port)
            return "answers"
        return "silent"


@dataclass(frozen=True, slots=True)
class ResidentSpark:
    """A Spark cluster beside Kafka: the master first, then its workers."""

    processes: tuple[ResidentProcess, ...]

    @property
    def master_url(self) -> str:
        """``spark://127.0.0.1:port``."""
        return f"spark://{LOOPBACK}:{self.processes[0].port}"

    @property
    def workers(self) -> int:
        return len(self.processes) - 1

    @property
    def gone(self) -> tuple[ResidentProcess, ...]:
        """Servers that have ended since they were started."""
        return tuple(process for process in self.processes if not process.identity.alive)

    def loss(self) -> str | None:
        """Return a sentence about ended servers and how to start them; None if all run."""
        names = [process.name for process in self.gone]
        if not names:
            return None
        have, them = ("has", "it") if len(names) == 1 else ("have", "them")
        return f"{' and '.join(names)} {have} ended: `streamlet dev up` starts {them} again."


@dataclass(frozen=True, slots=True)
class Resident:
    """What ``up`` started. ``kafka`` is "3.9" or "4"; ``directory`` holds data and logs."""

    kafka: str
    brokers: int
    directory: str
    processes: tuple[ResidentProcess, ...]
    spark: ResidentSpark | None = None

    @property
    def zookeeper(self) -> str | None:
        """``127.0.0.1:port``, None on 4.x."""
        ports = [process.port for process in self.processes if process.name == "ZooKeeper"]
        return f"127.0.0.1:{ports[0]}" if ports else None

    @property
    def bootstrap_servers(self) -> str:
        """``127.0.0.1:port,...``."""
        return ",".join(f"127.0.0.1:{p.port}" for p in self.processes if p.name != "ZooKeeper")

    @property
    def everything(self) -> tuple[ResidentProcess, ...]:
        """Every server, those of Spark too."""
        return self.processes + (self.spark.processes if self.spark is not None else ())

    @property
    def gone(self) -> tuple[ResidentProcess, ...]:
        """The processes of Kafka that have ended since they were started."""
        return tuple(process for process in self.processes if not process.identity.alive)

    @property
    def gone_brokers(self) -> frozenset[int]:
        """The ids of the brokers among them."""
        return frozenset(int(process.name.split()[1]) for process in self.gone if process.name != "ZooKeeper")

    @property
    def living_servers(self) -> str:
        """``bootstrap_servers`` without those that have ended: somebody else may listen there by now."""
        gone = self.gone
        return ",".join(f"127.0.0.1:{p.port}" for p in self.processes if p.name != "ZooKeeper" and p not in gone)

    def loss(self) -> str | None:
        """Return a sentence about ended parts and how to start them; None if all run."""
        gone = self.gone
        if not gone:
            return None
        ids = sorted(self.gone_brokers)
        parts = ["ZooKeeper"] if len(gone) > len(ids) else []
        if ids:
            parts.append(f"{len(ids)} of {self.brokers} broker{'s' if self.brokers > 1 else ''}")
        which = f" (broker {', '.join(map(str, ids))})" if 0 < len(ids) < self.brokers else ""
        have, them = ("has", "it") if len(gone) == 1 else ("have", "them")
        return (
            f"{' and '.join(parts)} {have} ended{which}: `streamlet dev up` starts {them} again, on the data there is."
        )

    def described(self) -> str:
        """Describe the cluster in a few words."""
        return _described(self.kafka, self.brokers)


@dataclass(frozen=True, slots=True)
class Up:
    """What ``up`` found or made; ``already``: it was up, nothing was started."""

    resident: Resident
    already: bool
    taken: tuple[str, ...] = ()
    """A sentence for each usual port that another program had when the cluster was started."""


@dataclass(frozen=True, slots=True)
class Down:
    """What ``down`` ended and removed; both empty when nothing was up."""

    ended: tuple[ResidentProcess, ...]
    removed: str | None


def state_directory() -> Path:
    """Return ``$XDG_STATE_HOME/streamlet/dev``, by default below ``~/.local/state``."""
    root = os.environ.get("XDG_STATE_HOME", "")
    base = Path(root) if root.startswith("/") else Path.home() / ".local" / "state"
    return base / "streamlet" / "dev"


def up(
    kafka: str | None = None,
    brokers: int | None = None,
    *,
    spark_workers: int | None = None,
    progress: Progress = silent,
) -> Up:
    """Start the cluster, or find that it is up. Returns when every server answers.

    Options that are not given stay as they were. With ``spark_workers`` a Spark cluster of so many workers is part of
    it from then on.

    A cluster that has ended, by a reboot or a kill, is started again on its data, and of
    one that has ended in part, that part. Without one it is "3.9" with 1 broker. Another kind or size than the one that
    is up, or that has data, is refused: NotAsWanted; nothing is ended or removed but by ``down``.
    """
    state = state_directory()
    with _locked(state):
        found = _read(state)
        _refuse_other_spark(found, spark_workers)
        return _with_spark(state, _kafka_up(state, found, kafka, brokers, progress), spark_workers, progress)


def _kafka_up(state: Path, found: Resident | None, kafka: str | None, brokers: int | None, progress: Progress) -> Up:
    if found is None:
        kafka, brokers = _as_begun(state / "cluster", kafka, brokers)
        return _started_at(_start(state, kafka, brokers, WELL_KNOWN_PORTS, progress), WELL_KNOWN_PORTS)
    _refuse_another(found, kafka or found.kafka, brokers or found.brokers)
    gone = found.gone
    if not gone:
        return Up(found, already=True)
    if len(gone) < len(found.processes):
        return Up(_revive(state, found, gone, progress), already=False)
    progress(f"{found.described()} had ended; starting it again on its data")
    taken = [process.port for process in found.processes]
    # The ports it had: what people wrote into topologies and shells goes on working.
    ports = (*([] if found.kafka == "3.9" else [WELL_KNOWN_PORTS[0]]), *taken)
    return _started_at(_start(state, found.kafka, found.brokers, ports, progress, found.spark), ports)


def _as_begun(directory: Path, kafka: str | None, brokers: int | None) -> tuple[str, int]:
    """Return the kind and size to start where nothing is on record. Raises NotAsWanted."""
    # Rule: data that a start left which was killed or failed are those of its kind. Another Kafka ends at them, with a
    # line about its files that names no remedy.
    begun = noted_kind(directory)
    wanted = (kafka or (begun[0] if begun else "3.9"), brokers or (begun[1] if begun else 1))
    if begun is not None and wanted != begun:
        raise NotAsWanted(
            f"A start of another development cluster, {_described(*begun)}, did not come to its end, and has left data "
            f"in {directory}. To start that one: `streamlet dev up`. To have {_described(*wanted)} instead, remove the "
            f"data first with `streamlet dev down`, then: `streamlet dev up --kafka {wanted[0]} --brokers {wanted[1]}`."
        )
    return wanted


def _started_at(made: Resident, ports: tuple[int, ...]) -> Up:
    """Return the started cluster, and which wanted ports were taken.

    ``ports``: ZooKeeper, first broker, second, ...
    """
    # Rule: a port other than the usual one is said. Programs from documentation would talk to another cluster there.
    wanted = ports if made.kafka == "3.9" else ports[1:]
    taken = tuple(
        f"{port} is taken by another program: {process.name} is at 127.0.0.1:{process.port}; write that into your file."
        for process, port in zip(made.processes, wanted, strict=False)
        if process.port != port
    )
    return Up(made, already=False, taken=taken)


def _refuse_other_spark(found: Resident | None, workers: int | None) -> None:
    there = found.spark if found is not None else None
    if there is None or workers in (None, there.workers):
        return
    raise NotAsWanted(
        f"A Spark cluster of another size is part of the development cluster already: {there.master_url} with "
        f"{there.workers} worker{'' if there.workers == 1 else 's'}. To use it, leave the number out. To have another, "
        "end everything first with `streamlet dev down`, which removes Kafka's topics, too."
    )


def _with_spark(state: Path, made: Up, workers: int | None, progress: Progress) -> Up:
    """Start the Spark cluster that is wanted, or its ended servers."""
    there = made.resident.spark
    if (workers is None) if there is None else not there.gone:
        return made
    ports = None
    if there is not None:
        ports = SparkPorts(tuple(one.port for one in there.processes), tuple(one.page for one in there.processes))
    directory = Path(made.resident.directory) / "spark"
    servers = SparkServers(workers or 0, directory, ports=ports, detachable=True, progress=progress)
    servers.start(None if there is None else {process.name for process in there.gone})
    kept = {} if there is None else {process.name: process for process in there.processes if process.identity.alive}

    def described() -> Resident:
        fresh = {
            member.name: ResidentProcess(
                member.name, member.port, str(member.log), ProcessIdentity.of(member.jvm.pid), page
            )
            for member, page in zip(servers.members, servers.pages, strict=True)
            if member.jvm is not None
        }
        processes = tuple({**kept, **fresh}[member.name] for member in servers.members)
        return dataclasses.replace(made.resident, spark=ResidentSpark(processes))

    return Up(_let_go(state, servers, described), already=False, taken=made.taken)


def _refuse_another(found: Resident, kafka: str, brokers: int) -> None:
    if (found.kafka, found.brokers) == (kafka, brokers):
        return
    instead = (
        f"To have {_described(kafka, brokers)} instead, end it first with `streamlet dev down`, which removes its "
        f"topics, then start the other: `streamlet dev up --kafka {kafka} --brokers {brokers}`."
    )
    loss = found.loss()
    if len(found.gone) == len(found.processes):
        raise NotAsWanted(
            f"There is another development cluster: {found.described()}. It has ended, by a reboot or a kill, and its "
            f"data is in {found.directory}. To start it again as it was: `streamlet dev up`. {instead}"
        )
    raise NotAsWanted(
        f"Another development cluster is up already: {found.described()}, at {found.bootstrap_servers}. {instead} "
        + (loss or "To use it as it is, nothing has to be done: `streamlet dev status` shows it.")
    )


def _revive(state: Path, found: Resident, gone: tuple[ResidentProcess, ...], progress: Progress) -> Resident:
    """Start the ones that have ended; those that run are left alone."""
    ports = {process.name: process.port for process in found.processes}
    cluster = DevCluster(found.kafka, found.brokers, found.directory, progress=progress, detachable=True)
    cluster.revive(ports, {process.name for process in gone})

    def with_those() -> Resident:
        # Those that ran on keep their entry: their processes are not this cluster's to describe.
        fresh = {process.name: process for process in _started(cluster)}
        return dataclasses.replace(found, processes=tuple(fresh.get(old.name, old) for old in found.processes))

    return _let_go(state, cluster, with_those)


def _start(
    state: Path,
    kafka: str,
    brokers: int,
    ports: tuple[int, ...],
    progress: Progress,
    spark: ResidentSpark | None = None,
) -> Resident:
    directory = state / "cluster"
    cluster = DevCluster(kafka, brokers, directory, preferred_ports=ports, progress=progress, detachable=True).start()
    return _let_go(state, cluster, lambda: Resident(kafka, brokers, str(cluster.directory), _started(cluster), spark))


def _started(cluster: DevCluster) -> tuple[ResidentProcess, ...]:
    return tuple(
        ResidentProcess(member.name, member.port, str(member.log), ProcessIdentity.of(member.jvm.pid))
        for member in cluster.members
        if member.jvm is not None
    )


def _let_go(state: Path, cluster: DevCluster | SparkServers, described: Callable[[], Resident]) -> Resident:
    """Write down what runs now, then let it live on without us."""
    try:
        resident = described()
        # Written before they are let go: until then the servers die with this process, afterwards `down` knows them.
        _write(state, resident)
        cluster.release()
    except BaseException:  # Ctrl-C too
        cluster.stop()
        raise
    return resident


def _described(kafka: str, brokers: int) -> str:
    return f"Kafka {RELEASES[kafka].kafka} with {brokers} broker{'s' if brokers > 1 else ''}"


def status() -> Resident | None:
    """Return the recorded cluster, or None; ask each process for its ``health()``."""
    return _read(state_directory())


def require() -> Resident:
    """Return the cluster, if at least one broker answers.

    ``loss`` tells which parts have ended. Raises NotAsWanted.
    """
    # No lock: a command that only uses the cluster must not wait for an `up` that is fetching jars.
    found = status()
    if found is None:
        raise NotAsWanted("No development cluster is up. Start one: `streamlet dev up`.")
    gone = found.gone
    brokers = [process for process in found.processes if process.name != "ZooKeeper" and process not in gone]
    if not brokers:
        raise NotAsWanted(
            f"The development cluster ({found.described()}) has ended since it was started, by a reboot or a kill; its "
            f"logs are in {found.directory}. Start it again, on its data: `streamlet dev up`."
        )
    if gone and not any(process.health() == "answers" for process in brokers):
        raise NotAsWanted(
            f"The development cluster ({found.described()}) does not answer; its logs are in {found.directory}. "
            f"{found.loss()}"
        )
    return found


def down() -> Down:
    """End every process of the cluster and remove its data and logs.

    Nothing is left, also when part of it had died. Raises DevStackError for files that could not be removed; the
    cluster stays on record, for the next ``down``.
    """
    state = state_directory()
    if not state.exists():
        return Down((), None)
    with _locked(state):
        found = _read(state)
        ended = () if found is None else _end(found)
        directory = state / "cluster"
        there = os.path.lexists(directory)
        if there:
            _remove(directory)
        with _kept_in(state):
            _file(state).unlink(missing_ok=True)
        return Down(ended, str(directory) if there else None)


def _remove(directory: Path) -> None:
    """Remove as much as possible. Raises DevStackError, naming a file that is left."""
    try:
        shutil.rmtree(directory)
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        if os.path.lexists(directory):
            raise DevStackError(
                f"The development cluster's processes have ended, but its data in {directory} cannot be removed: "
                f"{_left_in(directory)}: {error.strerror or error}. Fix that, then run `streamlet dev down` again."
            ) from error


def _left_in(directory: Path) -> Path:
    # Not the error's own name: from Python 3.13 on `rmtree` puts the folder there, not the file.
    files = (path for path in sorted(directory.rglob("*")) if path.is_symlink() or not path.is_dir())
    return next(files, directory)


def _end(resident: Resident) -> tuple[ResidentProcess, ...]:
    return tuple(process for process in reversed(resident.everything) if _killed(process))


def _killed(process: ResidentProcess) -> bool:
    try:
        return process.identity.kill()
    except OSError as error:
        raise DevStackError(
            f"{process.name} of the development cluster (pid {process.identity.pid}) cannot be ended: "
            f"{error.strerror or error}. End it by hand, then run `streamlet dev down` again."
        ) from error


# -- the state file


def _file(state: Path) -> Path:
    return state / "state.json"


@contextlib.contextmanager
def _locked(state: Path) -> Iterator[None]:
    """Let one ``up`` or ``down`` run at a time; the other waits."""
    with contextlib.ExitStack() as held:
        with _kept_in(state):
            state.mkdir(parents=True, exist_ok=True)
            # After mkdir, which obeys the umask: data and logs are this user's alone.
            state.chmod(0o700)
            lock = held.enter_context((state / "lock").open("a"))
            # Held over the whole of `up` or `down`, minutes if jars are fetched: two of them would start two clusters
            # on one directory. The file stays: who waits for a removed one would hold a lock that nobody else sees.
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _kept_in(state: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DevStackError(
            f"The development cluster's state cannot be kept in {state}: {error.strerror or error}. Make room there "
            "or make it writable, or let XDG_STATE_HOME name another directory."
        ) from error


def _write(state: Path, resident: Resident) -> None:
    # Written beside and renamed: `status` takes no lock and must never read half a file.
    fresh = _file(state).with_suffix(".new")
    with _kept_in(state):
        fresh.write_text(json.dumps(dataclasses.asdict(resident), indent=1), encoding="utf-8")
        fresh.replace(_file(state))


def _read(state: Path) -> Resident | None:
    try:
        text = _file(state).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DevStackError(
            f"{_file(state)}, which says what development cluster is up, cannot be read: {error.strerror or error}. "
            "Make it readable, or let XDG_STATE_HOME name another directory."
        ) from error
    try:
        # Read field by field, and nothing is guessed: `down` kills the processes that stand here.
        told = json.loads(text.decode())
        processes = tuple(map(_process, told["processes"]))
        spark = told.get("spark")
        others = None if spark is None else ResidentSpark(tuple(map(_process, spark["processes"])))
        if others is not None and others.workers < 1:
            raise ValueError("spark without workers")
        kafka = str(told["kafka"])
        if kafka not in RELEASES:
            raise ValueError(f"kafka {kafka}")
        return Resident(kafka, int(told["brokers"]), str(told["directory"]), processes, others)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DevStackError(
            f"{_file(state)} does not say what a development cluster's state says ({type(error).__name__}: {error}). "
            "End its processes by hand, if there are any, and remove the file."
        ) from error


def _process(told: Any) -> ResidentProcess:
    identity = told["identity"]
    return ResidentProcess(
        str(told["name"]),
        int(told["port"]),
        str(told["log"]),
        ProcessIdentity(_pid(identity["pid"]), int(identity["started"]), str(identity["boot"])),
        int(told.get("page", 0)),
    )


def _pid(told: object) -> int:
    if not isinstance(told, int) or not 0 < told < _PIDS:
        raise ValueError(f"pid {told!r}")
    return told
