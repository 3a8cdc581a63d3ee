"""A Spark session for one run: the present one, or a new one that ends with the run."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamlet.backends.folders import spark_folder
from streamlet.backends.processes import wait_until_ended
from streamlet.backends.spark.loss import Loss, spark_lost
from streamlet.backends.spark.masters import (
    ClusterView,
    Master,
    all_here,
    cores_of,
    parse_master,
    read_master_page,
)
from streamlet.backends.spark.preflight import (
    FOREIGN,
    TAKEN_BACK,
    check_connect,
    check_given,
    explain_start,
    is_on,
)
from streamlet.base.environment import environment
from streamlet.base.errors import BadInput, text_of

LOOPBACK = "127.0.0.1"
DRIVER_HOST = "spark.driver.host"
EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
BIND_ADDRESS = "spark.driver.bindAddress"
PAGE_S = 3.0
"""Seconds for a page of Spark's to answer."""

STOP_S = 15.0
"""Seconds that the end of a session, and then of its JVM's process, may take."""

LOG_TAIL = 16_000
"""Characters of a JVM's log that are looked at for a reason. Stack traces stand behind it."""

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""Options for the masters of a developer's own machine.

They start in half the time, and compute slower. JVMs do not compute here; Python does.
"""


@dataclass(frozen=True, slots=True)
class Executor:
    """One executor as the driver sees it."""

    id: str
    slots: int
    busy: int
    cores: int = 0
    excluded: bool = False
    """Whether Spark gives it no task, after those that failed there."""


class Session:
    """A running Spark application. ``open_session`` makes one; any thread may use it."""

    def __init__(
        self,
        spark: Any,
        local: bool,
        process: subprocess.Popen[bytes] | None,
        directory: Path | None,
        taken_back: Sequence[str] = (),
    ) -> None:
        """Hold a session. ``taken_back``: settings of the user's files that it has off."""
        self.spark = spark
        self.context = spark.sparkContext
        self.local = local
        self.process = process
        self.directory = directory
        self.taken_back = taken_back

    @property
    def master(self) -> str:
        """The master's URL."""
        return str(self.context.master)

    @property
    def ours(self) -> bool:
        """Whether it was started for a run, and ends with it."""
        return self.directory is not None

    @property
    def here(self) -> bool:
        """Whether every executor is on this machine."""
        master = parse_master(self.master, 1)
        if master.local or not master.loopback:
            return master.local
        own = str(self.context._jvm.org.apache.spark.util.Utils.localCanonicalHostName())
        return all_here(master, self.conf().get(DRIVER_HOST), own)

    def application_id(self) -> str:
        """Return the id that the cluster gave the application."""
        return str(self.context.applicationId)

    def conf(self) -> dict[str, str]:
        """Return the application's settings."""
        return dict(self.context.getConf().getAll())

    def pins_threads(self) -> bool:
        """Tell whether each thread here has one of the JVM's for itself."""
        from py4j.clientserver import ClientServer  # type: ignore[import-untyped]  # py4j is not typed

        return isinstance(self.context._gateway, ClientServer)

    def driver_host(self) -> str:
        """Return the address of this machine for executors."""
        return LOOPBACK if self.here else self.conf().get(DRIVER_HOST, LOOPBACK)

    def bind_host(self) -> str:
        """Return the address of this machine to listen at for executors."""
        # Rule: apart where the user has set it. In a container or behind a NAT, what executors dial is none of this
        # machine's own addresses.
        return LOOPBACK if self.here else self.conf().get(BIND_ADDRESS) or self.driver_host()

    def executors(self) -> list[Executor]:
        """Return the executors registered now."""
        # The status store has no public Python face; its Scala one has been stable since 2.3.
        listed = self.context._jsc.sc().statusStore().executorList(True)
        found = [listed.apply(index) for index in range(listed.size())]
        only_driver = self.master.startswith("local") and not self.master.startswith("local-cluster")
        return [
            Executor(each.id(), each.maxTasks(), each.activeTasks(), each.totalCores(), each.isExcluded())
            for each in found
            if only_driver or each.id() != "driver"
        ]

    def running_jobs(self, without: str = "\0") -> list[str]:
        """Return what this application runs now: a description, or a number, for each job.

        Not those whose group begins with ``without``.
        """
        store = self.context._jsc.sc().statusStore()
        found = []
        for number in self.context.statusTracker().getActiveJobsIds():
            with contextlib.suppress(Exception):  # it has ended meanwhile; py4j raises what Spark does
                group, said = store.job(number).jobGroup(), store.job(number).description()
                if group.isDefined() and str(group.get()).startswith(without):
                    continue
                found.append(f"job {number}" + (f" ({said.get()})" if said.isDefined() else ""))
        return found

    def waits(self, group: str) -> bool:
        """Return whether a group's job has no task on any executor."""
        tracker = self.context.statusTracker()
        active = {*tracker.getActiveJobsIds()} & {*tracker.getJobIdsForGroup(group)}
        stages = [stage for job in active if (info := tracker.getJobInfo(job)) for stage in info.stageIds]
        tasks = [found.numActiveTasks for stage in stages if (found := tracker.getStageInfo(stage))]
        return bool(active) and not any(tasks)

    def cluster(self) -> ClusterView | None:
        """Ask the master of a standalone cluster who has its cores. None elsewhere, or without an answer."""
        if not self.master.startswith("spark://"):
            return None
        try:
            return _ask_master(self.context)
        except Exception:  # noqa: BLE001 - py4j and Spark raise a dozen kinds; the answer only makes an error clearer
            return None

    def lost(self) -> Loss | None:
        """Return how the application ended; None while it is there."""
        if self.process is not None and self.process.poll() is not None:
            return Loss.JVM_ENDED
        return _loss_of(self.context)

    def kill(self) -> None:
        """Send SIGKILL to our own JVMs; their Python workers go with them. For signal handlers."""
        if self.process is not None and self.directory is not None:
            _kill_group(self.process)
            shutil.rmtree(self.directory, ignore_errors=True)

    def close(self) -> None:
        """Stop our own session; leave another's as we found it."""
        if self.directory is None:
            return
        _stop(self.spark, self.process)
        shutil.rmtree(self.directory, ignore_errors=True)


def _ask_master(context: Any) -> ClusterView | None:
    # A driver is not told where its master's page is. Each worker's page names it, and the master names those; what it
    # says of cores in use is lost on the way to a driver. The message has had no public face since 1.0.
    java = context._jvm
    classes = java.java.lang.Thread.currentThread().getContextClassLoader()
    # The field, not its accessor: py4j looks at all methods of a class, and one of these names a class that is not
    # there.
    field = classes.loadClass("org.apache.spark.SparkEnv").getDeclaredField("rpcEnv")
    field.setAccessible(True)
    environment = field.get(context._jsc.sc().env())
    request = classes.loadClass("org.apache.spark.deploy.DeployMessages$RequestMasterState$")
    ask = request.getField("MODULE$").get(request)
    answer = java.scala.reflect.ClassTag.apply(
        classes.loadClass("org.apache.spark.deploy.DeployMessages$MasterStateResponse")
    )
    for host, port in parse_master(context.master, 1).addresses:
        address = java.org.apache.spark.rpc.RpcAddress(host, port)
        told = environment.setupEndpointRef(address, "Master").askSync(ask, answer)
        if told.status().toString() == "ALIVE":
            pages = [worker.webUiAddress() for worker in told.workers() if worker.state().toString() == "ALIVE"]
            if not pages:
                return ClusterView(0, 0, 0, 0, ())
            return read_master_page(_page(_page(pages[0])["masterwebuiurl"]))
    return None


def _page(url: str) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a cluster's machines are near
    with opener.open(f"{url.rstrip('/')}/json/", timeout=PAGE_S) as answer:
        return json.load(answer)


class Cancelled(Exception):
    """The user wants the run to end before it began."""


def active_session() -> Session | None:
    """Return the session that this process has already, if any.

    With that of its ``spark-submit``. Raises BadInput.
    """
    check_connect(os.environ)
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    if "PYSPARK_GATEWAY_PORT" in os.environ and context is None:
        return _standing(_submitted())
    # A context without a JVM is dead, and pyspark has not noticed: a session would be made of it.
    if context is None or context._jvm is None:
        return None
    return _standing(SparkSession.builder.getOrCreate())


def _standing(spark: Any) -> Session:
    """Return a session that is there already and stays."""
    return Session(spark, spark.sparkContext.master.startswith("local"), None, None)


def _submitted() -> Any:
    """Make the session of a program that ``spark-submit`` started.

    Its JVM is there already.
    """
    from pyspark.sql import SparkSession

    made: list[Any] = []
    # Not on the main thread, where pyspark would replace the handler of SIGINT: Ctrl-C is to drain.
    thread = threading.Thread(target=lambda: made.append(SparkSession.builder.getOrCreate()), name="spark", daemon=True)
    thread.start()
    thread.join()
    if not made:
        raise BadInput("spark-submit's JVM made no session: what it said stands above.")
    return made[0]


def given_session(spark: Any) -> Session:
    """Return a session that the user made. Raises BadInput."""
    check_given(spark)
    if _loss_of(spark.sparkContext) is not None:
        raise BadInput(
            "The session that SparkBackend was given has been stopped: make a new one, with "
            "SparkSession.builder.getOrCreate(), and a new SparkBackend of it."
        )
    return _standing(spark)


def _loss_of(context: Any) -> Loss | None:
    try:
        return Loss.STOPPED if context._jsc is None or context._jsc.sc().isStopped() else None
    except Exception:  # noqa: BLE001 - py4j raises half a dozen kinds when the JVM is gone
        return Loss.JVM_ENDED


def open_session(
    master: Master,
    app_name: str,
    debug: bool,
    cancelled: Callable[[], bool],
    on_kill: Callable[[Callable[[], None]], None] = lambda act: None,
    workers: int = 2,
) -> Session:
    """Start a session on ``master``. Raises BadInput or Cancelled.

    Blocks for 5 to 20 s. ``on_kill`` is given an act that ends the JVM at once, for a signal handler, also while it is
    only coming up.
    """
    directory = spark_folder()
    opening = _Opening(master, app_name, directory, None if debug else directory / "driver.log", workers)
    on_kill(opening.kill)
    # On a thread of its own: on the main thread pyspark would replace the handler of SIGINT, and a Ctrl-C would have to
    # wait.
    opening.thread.start()
    while opening.thread.is_alive():
        opening.thread.join(0.1)
        if cancelled():
            opening.abandon()
            raise Cancelled
        # Spark itself would ask three times, for a minute.
        if master.addresses and FOREIGN in (tail := opening.log_tail()):
            opening.abandon()
            raise BadInput(f"Spark did not start on {master.url}: {explain_start(tail)}")
    if opening.error is not None:
        # Rule: name the type of an error. By that `explain_start` finds Python's own among the lines that Spark prints.
        said = f"{type(opening.error).__name__}: {text_of(opening.error)}\n{opening.log_tail()}"
        opening.abandon()
        raise BadInput(
            f"Spark did not start on {master.url}: {explain_start(said)} With --debug its whole log is shown."
        ) from opening.error
    return Session(opening.spark, master.local, opening.process, directory, opening.taken_back)


class _Opening:
    """A session that is being made."""

    def __init__(self, master: Master, app_name: str, directory: Path, log: Path | None, workers: int = 1) -> None:
        self.master = master
        self.workers = workers
        self.app_name = app_name
        self.directory = directory
        self.log = log
        self.spark: Any = None
        self.taken_back: list[str] = []
        """Settings that the user's files have on, and this session off."""
        self.process: subprocess.Popen[bytes] | None = None
        self.error: BaseException | None = None
        self.abandoned = threading.Event()
        self.thread = threading.Thread(target=self._open, name="spark", daemon=True)

    def _open(self) -> None:
        root = logging.getLogger()  # py4j logs the end of a JVM there, with a traceback
        root.addFilter(self._is_news)
        try:
            with environment(self._environment()):
                self._launch()
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits for this one
            self.error = error
        finally:
            root.removeFilter(self._is_news)

    def _is_news(self, record: logging.LogRecord) -> bool:
        """Drop log records about a JVM that we have killed ourselves."""
        return not (self.abandoned.is_set() and record.thread == self.thread.ident)

    def _launch(self) -> None:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        conf = SparkConf(loadDefaults=False).setMaster(self.master.url).setAppName(self.app_name)
        for key, value in self._settings().items():
            conf.set(key, value)
        with contextlib.ExitStack() as files:
            # In a process session of its own: a terminal sends Ctrl-C to the whole group, and the JVM would die before
            # the drain.
            options: dict[str, Any] = {"start_new_session": True}
            if self.log is not None:
                options["stdout"] = options["stderr"] = files.enter_context(self.log.open("wb"))
            files.enter_context(self._process_noted())
            gateway = launch_gateway(conf, options)
        if self.abandoned.is_set():
            raise Cancelled
        SparkContext._ensure_initialized(gateway=gateway)
        whole = SparkConf(_jvm=SparkContext._jvm)  # with what spark-defaults.conf says
        # Without a bound an application takes every core of a standalone cluster, for as long as it runs.
        if self.master.addresses and not whole.contains("spark.cores.max"):
            whole.set("spark.cores.max", str(cores_of(self.workers, whole.get("spark.task.cpus", "1") or "1")))
        # Rule: not before the launch, which would hide what the user's file says. What a run takes away, it tells.
        self.taken_back = [name for name in TAKEN_BACK if is_on({name: whole.get(name, "")}, name)]
        for name in TAKEN_BACK:
            whole.set(name, "false")
        for key, value in self._settings_here(whole).items():
            whole.set(key, value)
        context = SparkContext(conf=whole, gateway=gateway)
        # It prints a traceback when the JVM dies, which the run tells in a sentence.
        context._accumulatorServer.handle_error = lambda *of_request: None
        self.spark = SparkSession(context)

    @contextlib.contextmanager
    def _process_noted(self) -> Iterator[None]:
        """Note the JVM's process as soon as it is started."""
        # Rule: know the JVM's number before the JVM answers. pyspark tells it only then, and a run that is given up
        # meanwhile could neither kill a JVM that hangs nor end before it.
        from pyspark import java_gateway

        start = java_gateway.Popen

        def start_noted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:  # Any: pyspark's own
            process: subprocess.Popen[bytes] = start(*arguments, **options)
            if threading.current_thread() is self.thread:
                self.process = process
                if self.abandoned.is_set():  # given up in the moment before the line above
                    _kill_group(process)
            return process

        java_gateway.Popen = start_noted
        try:
            yield
        finally:
            java_gateway.Popen = start

    def _settings(self) -> dict[str, str]:
        settings = {"spark.ui.showConsoleProgress": "false"}
        if self.master.local or self.master.loopback:
            settings |= {
                "spark.ui.enabled": "false",
                "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
            }
        return settings

    def _settings_here(self, whole: Any) -> dict[str, str]:
        """Return settings for executors on this machine; none where a user's ``spark.driver.host`` leads elsewhere.

        ``whole``: the settings so far, with the user's.
        """
        driver = whole.get(DRIVER_HOST, None)
        if not all_here(self.master, driver, LOOPBACK):
            return {}
        return {
            DRIVER_HOST: LOOPBACK if self.master.local or driver is None else driver,
            BIND_ADDRESS: LOOPBACK,
            # Rule: beside what the user's file says, which wins. A disk with room, a flag that a library needs: nobody
            # would find out who took them away.
            "spark.local.dir": whole.get("spark.local.dir", str(self.directory)),
            EXECUTOR_OPTIONS: f"{self._java_options()} {whole.get(EXECUTOR_OPTIONS, '')}".rstrip(),
        }

    def _java_options(self) -> str:
        return f"{QUICK_JVM} -Djava.io.tmpdir={self.directory}"

    def _environment(self) -> dict[str, str]:
        if not self.master.local and not self.master.loopback:
            return {}
        values = {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_LOCAL_HOSTNAME": "localhost"}
        # Not as spark.driver.extraJavaOptions, which would hide the one in the user's file.
        values["SPARK_SUBMIT_OPTS"] = f"{self._java_options()} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".rstrip()
        if self.master.local:
            values["SPARK_HOME"] = str(self._home())
        if "PYSPARK_PYTHON" not in os.environ:
            values["PYSPARK_PYTHON"] = sys.executable
        return values

    def _home(self) -> Path:
        """Make a Spark home of links.

        local-cluster writes ``work/`` into Spark's home whatever the settings say; that home may be read-only, and is
        not ours.
        """
        import pyspark

        real = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
        home = self.directory / "home"
        home.mkdir()
        for entry in real.iterdir():
            if entry.name != "work":
                (home / entry.name).symlink_to(entry)
        return home

    def log_tail(self) -> str:
        """Return the end of the JVM's log."""
        if self.log is None or not self.log.exists():
            return ""
        return self.log.read_text(errors="replace")[-LOG_TAIL:]

    def kill(self) -> None:
        """Send SIGKILL to the JVM, one that only comes up as well."""
        self.abandoned.set()
        if self.process is not None:
            _kill_group(self.process)
        shutil.rmtree(self.directory, ignore_errors=True)

    def abandon(self) -> None:
        """Kill the JVM and leave nothing of it."""
        self.abandoned.set()
        if self.process is not None:
            _kill_group(self.process)
        self.thread.join(STOP_S)
        _stop(self.spark, self.process)
        shutil.rmtree(self.directory, ignore_errors=True)


def _stop(stoppable: Any, process: subprocess.Popen[bytes] | None) -> None:
    """Stop the application, then the JVM, which pyspark would keep."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if stoppable is not None:
        # With its JVM gone, pyspark warns, or raises half-way and keeps its session: the next one would be made of it.
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stoppable.stop()
        SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None
    gateway = SparkContext._gateway  # the next session needs a JVM of its own
    if gateway is not None and process is not None and getattr(gateway, "proc", None) is process:
        with contextlib.suppress(Exception):
            gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()  # the JVM ends when its parent's end of the pipe does
        # Rule: kill the group before the process is reaped. Afterwards its number may be another program's.
        wait_until_ended([process], STOP_S)
        _kill_group(process)
        process.wait()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def wait_for_executors(
    session: Session, enough: Callable[[list[Executor]], bool], timeout_s: float, cancelled: Callable[[], bool]
) -> list[Executor]:
    """Wait until the executors are enough or time is over. Raises Cancelled or SparkLost."""
    deadline = time.monotonic() + timeout_s
    while True:
        executors = session.executors()
        # An application that was stopped still answers: it has no executors, and will have none.
        if (lost := session.lost()) is not None:
            raise spark_lost(lost, running=False)
        if enough(executors) or time.monotonic() >= deadline:
            return executors
        if cancelled():
            raise Cancelled
        time.sleep(0.1)
