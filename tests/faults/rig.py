"""The rig of one round: a topic with numbered lines, a witness, a watcher of the offsets, and runs to be hurt."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streamlet.devcluster import DevCluster
from streamlet.devcluster.jvm import keeper_command
from tests.faults.evidence import WORDS, Evidence
from tests.faults.offset_watcher import OffsetWatcher
from tests.patience import PATIENCE_S

HERE = Path(__file__).parent
ZK_ROOT = "/streamlet"
VOCABULARY = [f"word{n}" for n in range(50)]
MAX_PENDING = 500
COMMIT_INTERVAL_S = 0.25
COMMIT_MARGIN_S = 0.75
"""What an ack takes to the spout, a commit to ZooKeeper's disk, and a busy machine to let either happen."""
WINDOW_NS = int((COMMIT_INTERVAL_S + COMMIT_MARGIN_S) * 1e9)

HELD_FROM = 0.95
"""Share of a partition from where on the bolts keep the lines; runs are hurt before."""

DEFAULTS: dict[str, Any] = {
    "batch": 64,
    "pause_s": 0.004,
    "fail_every": 0,
    "swallow": (),
    "spouts": 1,
    "splits": 2,
    "counts": 2,
    "hold": "",
    "held_from": 0,
    "spout": {"state_update_interval_ms": int(COMMIT_INTERVAL_S * 1000)},
}


def wait_for(what: str, reached: Callable[[], Any], patience_s: float = PATIENCE_S, told: Any = lambda: "") -> Any:
    """Look until it is so; what ``reached`` gave. ``told`` is asked for what to add to the failure."""
    deadline = time.monotonic() + patience_s
    while not (found := reached()):
        assert time.monotonic() < deadline, f"waited {patience_s:.0f} s for {what}, which did not happen. {told()}"
        time.sleep(0.01)
    return found


class Kept:
    """A process that lives no longer than this one, however this one ends. What it says goes to ``log``."""

    def __init__(self, command: list[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        with log.open("ab") as out:
            self._keeper = subprocess.Popen(
                keeper_command("owned", command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=out,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        assert self._keeper.stdout is not None
        with self._keeper.stdout as said:
            self.pid = int(said.readline())
        self.log = log

    def signal(self, number: signal.Signals) -> None:
        """To the process, unless it has ended."""
        if self._keeper.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    @property
    def ended(self) -> bool:
        return self._keeper.poll() is not None

    def status(self, patience_s: float) -> int:
        """Wait for its end; its exit status (128 + signal)."""
        return self._keeper.wait(patience_s)

    def close(self) -> None:
        self.signal(signal.SIGKILL)
        self._keeper.wait()

    def said(self) -> str:
        return self.log.read_text(errors="replace")


class Run:
    """``streamlet run FILE --json`` in a process of its own; ``mark`` is in the environment of all it starts."""

    def __init__(self, file: Path, folder: Path, conf: Mapping[str, Any], backend: str, workers: int) -> None:
        self.mark = f"STREAMLET_TEST_RUN={uuid.uuid4()}"
        self.scratch = Path(tempfile.mkdtemp(prefix="slt", dir="/tmp"))
        settings = [part for key, value in conf.items() for part in ("-c", f"{key}={value}")]
        command = [sys.executable, "-m", "streamlet", "run", str(file), "--backend", backend, *settings]
        command += ["--workers", str(workers), "--until-caught-up", "--json"]
        name, _, value = self.mark.partition("=")
        environment = {name: value, "TMPDIR": str(self.scratch), "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = Kept(command, folder / f"run-{self.mark[-6:]}.log", environment)

    def kill(self) -> None:
        """SIGKILL to the coordinator: the process whose name is ``streamlet run``."""
        os.kill(self.process.pid, signal.SIGKILL)

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What it said as JSON."""
        lines = [line for line in self.process.said().splitlines() if line.startswith("{")]
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def finish(self, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """Wait until it ends by itself, well; its result."""
        try:
            status = self.process.status(patience_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the run did not end within {patience_s:.0f} s: {self.tail()}") from None
        assert status == 0, f"exit status {status}: {self.tail()}"
        return self.events("result")[-1]

    def tail(self) -> str:
        return self.process.said()[-6000:]

    def alive(self) -> list[int]:
        """Processes of this run that are there, however they came to be."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        try:
            return self.mark.encode() in Path(f"/proc/{pid}/environ").read_bytes() and not _is_keeper(pid)
        except OSError:
            return False

    def close(self) -> None:
        self.process.close()
        wait_for("the run's processes to end", lambda: not self.alive(), 15, self.alive)
        shutil.rmtree(self.scratch)


@contextlib.contextmanager
def _standing_still(run: Run, stays: int | None) -> Iterator[None]:
    """Stop the Python processes below the run's own; let all but ``stays`` go on at the end."""
    held = [pid for pid in run.alive() if pid != run.process.pid and _is_python(pid)]
    try:
        _signal_each(held, signal.SIGSTOP)
        yield
    finally:
        _signal_each([pid for pid in held if pid != stays], signal.SIGCONT)


def _signal_each(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_python(pid: int) -> bool:
    try:
        return "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False


def _is_keeper(pid: int) -> bool:
    return b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()


class Rig:
    """One topic, one spout id. ``evidence`` and ``watcher`` outlive every run that is started.

    ``hurts``: how often a run will be hurt. Until the last time its bolts keep the end of the topic: no run is over
    before, on a machine that is busy elsewhere.
    """

    def __init__(self, cluster: DevCluster, folder: Path, lines: int, partitions: int, seed: int, hurts: int) -> None:
        assert cluster.zookeeper is not None
        self._hurts = hurts
        self.cluster = cluster
        self.folder = folder
        self.random = random.Random(seed)
        self.seed = seed
        self.name = f"f{uuid.uuid4().hex[:12]}"
        self.counts = dict.fromkeys(range(partitions), lines // partitions)
        self.socket = Path(tempfile.mkdtemp(prefix="slw", dir="/tmp")) / "w"
        self.file = folder / "witness"
        self.stack = contextlib.ExitStack()
        self.runs: list[Run] = []

    def __enter__(self) -> Rig:
        with self.stack:
            self._produce()
            self.stack.callback(self.socket.parent.rmdir)
            self.stack.callback(self.socket.unlink, missing_ok=True)
            if self._hurts:
                self._hold.touch()
            self.witness = Kept(
                [sys.executable, str(HERE / "witness.py"), str(self.socket), str(self.file)], self.folder / "w.log"
            )
            self.stack.callback(self.witness.close)
            wait_for("the witness", self.file.exists)
            self.evidence = Evidence(self.file, self.counts)
            data_dir = self.cluster.directory / "zookeeper" / "data"
            assert self.cluster.zookeeper is not None
            self.watcher = OffsetWatcher(self.cluster.zookeeper, f"{ZK_ROOT}/{self.name}", len(self.counts), data_dir)
            self.stack.callback(self.watcher.close)
            self.stack = self.stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    @property
    def _hold(self) -> Path:
        return self.file.with_name(self.file.name + ".hold")

    def _produce(self) -> None:
        wait_for("the topic", self._create_topic)
        producer = Producer(
            {"bootstrap.servers": self.cluster.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True}
        )
        landed: list[tuple[bytes, int, int]] = []
        for partition, count in self.counts.items():
            for offset in range(count):
                words = " ".join(self.random.choice(VOCABULARY) for _ in range(WORDS))
                producer.produce(
                    self.name,
                    f"{partition}-{offset} {words}",
                    partition=partition,
                    on_delivery=lambda _, m: landed.append((m.value(), m.partition(), m.offset())),
                )
                producer.poll(0)
        assert producer.flush(60) == 0
        assert all(value.startswith(b"%d-%d " % (p, offset)) for value, p, offset in landed), "ids are not offsets"
        assert len(landed) == sum(self.counts.values())

    def _create_topic(self) -> bool:
        """A broker that an earlier test took its ZooKeeper from may refuse for a moment."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        topic = NewTopic(self.name, num_partitions=len(self.counts), replication_factor=1)
        try:
            admin.create_topics([topic], operation_timeout=20)[self.name].result(30)
        except KafkaException as error:
            return error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        return True

    # -- running

    def topology(self, **settings: Any) -> Path:
        """The topology's file with its settings filled in; each has a name of its own."""
        values = {**DEFAULTS, **settings}
        values |= {"zookeeper": self.cluster.zookeeper, "topic": self.name, "zk_root": ZK_ROOT, "id": self.name}
        values |= {"hold": str(self._hold), "held_from": int(HELD_FROM * min(self.counts.values()))}
        values |= {"witness": str(self.socket), "spout": {**DEFAULTS["spout"], **settings.get("spout", {})}}
        file = self.folder / f"lines_{uuid.uuid4().hex[:8]}.py"
        text = (HERE / "topology.py").read_text()
        assert "SETTINGS: dict[str, Any] = {}" in text
        file.write_text(text.replace("SETTINGS: dict[str, Any] = {}", f"SETTINGS: dict[str, Any] = {values!r}"))
        return file

    def start(self, file: Path | None = None, *, backend: str = "processes", workers: int = 2, **conf: Any) -> Run:
        """Start a run. ``conf`` has underscores for dots. No tree times out: what recovers, does so by itself."""
        settings: dict[str, Any] = {"topology.max.spout.pending": MAX_PENDING, "topology.message.timeout.secs": 900}
        settings |= {key.replace("_", "."): value for key, value in conf.items()}
        run = Run(file or self.topology(), self.folder, settings, backend, workers)
        self.runs.append(run)
        self.stack.callback(run.close)
        return run

    def wait_for_done(self, share: float, told: Callable[[], str] = str) -> None:
        """Until that share of all lines is wholly stored."""
        wanted = int(share * self.evidence.total)
        wait_for(
            f"{wanted} lines to be stored",
            lambda: len(self.evidence.read().done) >= wanted,
            told=lambda: f"{len(self.evidence.done)} are. {told()}",
        )

    def hurt(self, run: Run, share: float, act: Callable[[], Any], stays: int | None = None) -> int:
        """Do ``act`` once that share is done, with trees pending; when (ns, monotonic).

        The workers stand still meanwhile, but for a moment, so that trees which are pending stay so until ``act``.
        ``stays`` is a process that ``act`` stops for longer.
        """
        assert self._hurts, "the rig has to know before that its runs are hurt, and how often"
        self.wait_for_done(share, run.tail)
        while True:
            with _standing_still(run, stays):
                at = time.monotonic_ns()
                pending = self.evidence.read().pending_at(at)
                if pending:
                    act()
                    break
            assert len(self.evidence.done) < self.evidence.total, f"all was over before: {run.tail()}"
            time.sleep(0.001)
        self._hurts -= 1
        if not self._hurts:
            self._hold.unlink()
        print(f"seed {self.seed}: hurt at {share:.1%} of {self.evidence.total} lines, {pending} trees pending")
        return at

    # -- what must hold when all is over

    def check(self) -> None:
        """Nothing lost, no commit ahead of its time, the offsets at the log's end, no process left."""
        evidence = self.evidence.read()
        missing = evidence.missing()
        assert not missing, f"{len(missing)} lines were lost, first {missing[:5]}"
        history = self.watcher.history()
        evidence.check_commits(history)
        assert self.watcher.offsets() == self.log_ends() == self.counts
        for run in self.runs:
            wait_for("the run's processes to end", lambda run=run: not run.alive(), 10, run.alive)
        seen = sum(version.seen for versions in history.values() for version in versions)
        total = sum(map(len, history.values()))
        print(f"{total} versions of the offset nodes, {seen} of them seen by kazoo; nothing ahead of the witness")

    def log_ends(self) -> dict[int, int]:
        """By librdkafka. A broker that has just come back may not know its partitions yet."""
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": "ends"})
        ends: dict[int, int] = {}

        def known() -> bool:
            with contextlib.suppress(KafkaException):
                for n in self.counts:
                    ends[n] = consumer.get_watermark_offsets(TopicPartition(self.name, n), timeout=20)[1]
            return len(ends) == len(self.counts)

        try:
            wait_for("the ends of the log", known)
        finally:
            consumer.close()
        return ends

    def check_duplicates(self, at: int, until: int, *, spout_died: bool) -> None:
        """What was stored and came again is bounded: what was open, and, if the spout's ledger died, what was done
        within the last commit interval. Commits had kept that pace until then.
        """
        again, history = self.evidence.replayed_between(at, until), self.watcher.history()
        self.evidence.check_pace(history, at, WINDOW_NS)
        for partition, versions in history.items():
            offset = max((version.offset for version in versions if version.written_ns <= at), default=0)
            below = sorted(line for line in again if line[0] == partition and line[1] < offset)
            assert not below, f"lines below the committed offset {offset} came again: {below[:5]}"
        bound = self.evidence.replays_allowed(at, WINDOW_NS, MAX_PENDING) if spout_died else MAX_PENDING
        print(f"{len(again)} lines came again, at most {bound} may")
        assert len(again) <= bound


@contextlib.contextmanager
def rig(cluster: DevCluster, folder: Path, lines: int, seed: int, partitions: int = 2, hurts: int = 0) -> Iterator[Rig]:
    """A rig that is taken down however the round ends."""
    with Rig(cluster, folder, lines, partitions, seed, hurts) as made:
        yield made
