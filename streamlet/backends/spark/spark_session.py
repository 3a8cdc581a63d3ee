"""A Spark session for one run: the present one, or a new one that ends with the run."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamlet.backends.folders import spark_folder
from streamlet.backends.spark.masters import Master
from streamlet.backends.spark.preflight import error_line
from streamlet.base.environment import environment
from streamlet.base.errors import BadInput

KILL_ON_IDLE = "spark.sql.execution.pyspark.udf.killOnIdleTimeout"
LOOPBACK = "127.0.0.1"
STOP_S = 15.0
"""Seconds that the end of a session, and then of its JVM's process, may take."""

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


class Session:
    """A running Spark application. ``open_session`` makes one; any thread may use it."""

    def __init__(
        self, spark: Any, local: bool, process: subprocess.Popen[bytes] | None, directory: Path | None
    ) -> None:
        self.spark = spark
        self.context = spark.sparkContext
        self.local = local
        self.process = process
        self.directory = directory
        self._kill_on_idle = spark.conf.get(KILL_ON_IDLE, "false")
        # A resident worker reads no input for as long as it lives; that is not idling.
        spark.conf.set(KILL_ON_IDLE, "false")

    @property
    def master(self) -> str:
        """The master's URL."""
        return str(self.context.master)

    def conf(self) -> dict[str, str]:
        """Return the application's settings."""
        return dict(self.context.getConf().getAll())

    def driver_host(self) -> str:
        """Return the address of this machine for executors."""
        return LOOPBACK if self.local else self.conf().get("spark.driver.host", LOOPBACK)

    def executors(self) -> list[Executor]:
        """Return the executors registered now."""
        # The status store has no public Python face; its Scala one has been stable since 2.3.
        listed = self.context._jsc.sc().statusStore().executorList(True)
        found = [listed.apply(index) for index in range(listed.size())]
        only_driver = self.master.startswith("local") and not self.master.startswith("local-cluster")
        return [
            Executor(each.id(), each.maxTasks(), each.activeTasks())
            for each in found
            if only_driver or each.id() != "driver"
        ]

    def alive(self) -> bool:
        """Tell whether the driver's JVM is there."""
        if self.process is not None:
            return self.process.poll() is None
        try:
            return not self.context._jsc.sc().isStopped()
        except Exception:  # noqa: BLE001 - py4j raises half a dozen kinds when the JVM is gone
            return False

    def kill(self) -> None:
        """Send SIGKILL to our own JVMs; their Python workers go with them. For signal handlers."""
        if self.process is not None and self.directory is not None:
            _kill_group(self.process)
            shutil.rmtree(self.directory, ignore_errors=True)

    def close(self) -> None:
        """Stop our own session; leave another's as we found it."""
        if self.directory is None:
            with contextlib.suppress(Exception):  # the JVM may be gone, and the setting with it
                self.spark.conf.set(KILL_ON_IDLE, self._kill_on_idle)
            return
        _stop(self.spark, self.process)
        shutil.rmtree(self.directory, ignore_errors=True)


class Cancelled(Exception):
    """The user wants the run to end before it began."""


def active_session() -> Session | None:
    """Return the session that this process has already, if any."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    # A context without a JVM is dead, and pyspark has not noticed: a session would be made of it.
    if context is None or context._jvm is None:  # None: its JVM is gone, and pyspark has not noticed
        return None
    return Session(SparkSession.builder.getOrCreate(), context.master.startswith("local"), None, None)


def open_session(
    master: Master,
    app_name: str,
    debug: bool,
    cancelled: Callable[[], bool],
    on_kill: Callable[[Callable[[], None]], None] = lambda act: None,
) -> Session:
    """Start a session on ``master``. Raises BadInput or Cancelled.

    Blocks for 5 to 20 s. ``on_kill`` is given an act that ends the JVM at once, for a signal handler, also while it is
    only coming up.
    """
    directory = spark_folder()
    opening = _Opening(master, app_name, directory, None if debug else directory / "driver.log")
    on_kill(opening.kill)
    # On a thread of its own: on the main thread pyspark would replace the handler of SIGINT, and a Ctrl-C would have to
    # wait.
    opening.thread.start()
    while opening.thread.is_alive():
        opening.thread.join(0.1)
        if cancelled():
            opening.abandon()
            raise Cancelled
    if opening.error is not None:
        said = f"{opening.error}\n{opening.log_tail()}"
        opening.abandon()
        raise BadInput(
            f"Spark did not start on {master.url}: {error_line(said)} With --debug its whole log is shown."
        ) from opening.error
    return Session(opening.spark, master.local, opening.process, directory)


class _Opening:
    """A session that is being made."""

    def __init__(self, master: Master, app_name: str, directory: Path, log: Path | None) -> None:
        self.master = master
        self.app_name = app_name
        self.directory = directory
        self.log = log
        self.spark: Any = None
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
            gateway = launch_gateway(conf, options)
        self.process = gateway.proc
        if self.abandoned.is_set():
            raise Cancelled
        self.spark = SparkSession(SparkContext(conf=conf, gateway=gateway))

    def _settings(self) -> dict[str, str]:
        settings = {"spark.speculation": "false", "spark.ui.showConsoleProgress": "false", KILL_ON_IDLE: "false"}
        if self.master.local:
            settings |= {
                "spark.driver.host": LOOPBACK,
                "spark.driver.bindAddress": LOOPBACK,
                "spark.ui.enabled": "false",
                "spark.local.dir": str(self.directory),
                "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
                "spark.driver.extraJavaOptions": f"{QUICK_JVM} -Djava.io.tmpdir={self.directory}",
                "spark.executor.extraJavaOptions": f"{QUICK_JVM} -Djava.io.tmpdir={self.directory}",
            }
        return settings

    def _environment(self) -> dict[str, str]:
        if not self.master.local:
            return {}
        values = {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_LOCAL_HOSTNAME": "localhost", "SPARK_HOME": str(self._home())}
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
        return self.log.read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """Send SIGKILL to the JVM.

        One whose number is not known yet ends with this process, at the end of its pipe.
        """
        self.abandoned.set()
        if self.process is not None:
            _kill_group(self.process)
        shutil.rmtree(self.directory, ignore_errors=True)

    def abandon(self) -> None:
        """Leave nothing of it, once its JVM is up. Until then nobody has its number."""
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
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        _kill_group(process)
        process.wait()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def wait_for_executors(
    session: Session, enough: Callable[[list[Executor]], bool], timeout_s: float, cancelled: Callable[[], bool]
) -> list[Executor]:
    """Wait until the executors are enough or time is over. Raises Cancelled."""
    deadline = time.monotonic() + timeout_s
    while True:
        executors = session.executors()
        if enough(executors) or time.monotonic() >= deadline:
            return executors
        if cancelled():
            raise Cancelled
        time.sleep(0.1)
