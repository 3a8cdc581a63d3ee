"""The ``spark`` backend: check, start Spark, check again, let the coordinator run."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from streamlet.backends.contract import Observer, RunRequest, RunResult, RunStatus, Stop
from streamlet.backends.run_certificate import check_certificates
from streamlet.backends.run_coordinator import RunCoordinator
from streamlet.backends.spark import preflight
from streamlet.backends.spark.holders import executors_text, holders, slots_of
from streamlet.backends.spark.jobs import SparkJobs, run_tasks, spark_thread
from streamlet.backends.spark.launcher import SlotLauncher
from streamlet.backends.spark.loss import SparkLost, spark_lost
from streamlet.backends.spark.masters import DEFAULT_MASTER, check_slots, parse_master, too_few_slots
from streamlet.backends.spark.packing import Pack, read_pack
from streamlet.backends.spark.parcels import NOTHING, Sent, sent
from streamlet.backends.spark.shipping import make_archive
from streamlet.backends.spark.spark_session import (
    BIND_ADDRESS,
    DRIVER_HOST,
    Cancelled,
    Executor,
    Session,
    active_session,
    given_session,
    open_session,
    wait_for_executors,
)
from streamlet.base.errors import BadInput, text_of
from streamlet.base.installed import installed_version
from streamlet.base.log_line import RUN_LOGGER
from streamlet.runtime.links.server import bind_socket
from streamlet.runtime.worker.log_lines import line_now

LOCAL_S = 300.0
"""Seconds for all executors of a local master: a starved machine takes minutes."""

TOLD_AFTER_S = 5.0
"""Seconds before a line says that the run waits for executors."""

PROBE_S = 300.0
"""Seconds for the first Python tasks; executors may be started for them."""

SLOWEST = 2 << 20
"""Bytes that an executor unpacks in a second. Measured on an overloaded machine: 5 MiB."""

CANCEL_S = 5.0
"""Seconds for a cancelled probe to end."""

MOST_PROBES = 64

_owner = threading.Lock()
"""Held by the run of this process that has a session of its own."""
_quiet = threading.Lock()
"""Guards ``_levels``."""
_levels: list[int] = []
"""The level of py4j's logger before the first of the runs that keep it quiet; once for each of them."""
_TAKEN = (
    "Another run of this program has started Spark for itself: its session has slots for that run only, and ends with "
    "it. Wait for that run; or make one session with slots for all runs, and give it to each of them: "
    "backend=SparkBackend(spark)."
)


class SparkBackend:
    """Workers in slots of Spark executors.

    ``session``, a ``pyspark.sql.SparkSession``, is used and left as it was; without one the active session of this
    process, or that of its ``spark-submit``. Where there is none, one is started on ``request.master`` and stopped at
    the end. Raises BadInput for a session of Spark Connect.
    """

    name = "spark"

    def __init__(self, session: Any = None, *, debug: bool = False) -> None:
        if session is not None:
            preflight.check_given(session)
        self._given = session
        self._own: Session | None = None
        self._debug = debug

    def run(self, request: RunRequest, observer: Observer, stop: Stop) -> RunResult:
        """Run on Spark; see ``Backend.run``.

        Raises BadInput for everything that would make the run hang or fail later.
        """
        started = time.monotonic()
        if request.file is None:
            raise BadInput("Spark executors import the topology from its file; a topology without one runs inline.")
        preflight.check_pyspark(installed_version("pyspark"))
        check_certificates(request.conf)  # before Spark starts, which takes its time
        named = request.conf["streamlet.spark.archive"]
        pack = None if named is None else read_pack(Path(named))
        code_zip = make_archive(request.file)
        with _quiet_py4j():
            return self._run_on_session(code_zip, pack, request, observer, stop, started)

    def _run_on_session(
        self, code_zip: bytes, pack: Pack | None, request: RunRequest, observer: Observer, stop: Stop, started: float
    ) -> RunResult:
        try:
            session = self._standing(request) or self._start(request, observer, stop)
        except Cancelled:
            return _cancelled_result(started)
        stop.on_kill(session.kill)
        try:
            with contextlib.ExitStack() as held:
                with _told_if_lost(session):
                    preflight.check_session(session.conf(), request.workers, session.pins_threads())
                    if session.taken_back:
                        _say(observer, preflight.taken_back_text(session.taken_back))
                    if warning := preflight.overhead_warning(session.master, session.conf()):
                        observer.on_event(line_now("warning", warning, RUN_LOGGER))
                    found = _await_slots(session, request, observer, stop)
                    files = request.conf["streamlet.shared"] or {}
                    parcels = held.enter_context(sent(session, None if pack is None else pack.file, files))
                    _probe(session, request.workers, stop, pack, parcels)
                took = time.monotonic() - started
                also = "" if pack is None else f" and the archive {pack}"
                _say(observer, f"Spark is up after {took:.0f} s on {session.master}, with {found}{also}")
                return self._run(session, code_zip, parcels, request, observer, stop)
        except Cancelled:
            return _cancelled_result(started)
        finally:
            session.close()
            if session is self._own:
                _owner.release()

    def _standing(self, request: RunRequest) -> Session | None:
        """Return the session that is there already. Raises BadInput where another master was asked for."""
        if self._given is None and _owner.locked():
            raise BadInput(_TAKEN)
        session = given_session(self._given) if self._given is not None else active_session()
        if session is not None and request.master not in (None, session.master):
            session.close()
            raise BadInput(
                f"The master {request.master} was asked for, and this program has a Spark session on {session.master} "
                "already, which would be used. Leave the master out, or stop that session first."
            )
        return session

    def _start(self, request: RunRequest, observer: Observer, stop: Stop) -> Session:
        assert request.file is not None
        master = parse_master(request.master or DEFAULT_MASTER, len(os.sched_getaffinity(0)))
        preflight.check_java(os.environ)
        preflight.check_spark_home(os.environ, installed_version("pyspark") or "")
        check_slots(master, request.workers)
        preflight.check_reachable(master)
        # Rule: a session that a run has made is that run's alone. It has the slots for that run, and ends with it.
        if not _owner.acquire(blocking=False):
            raise BadInput(_TAKEN)
        try:
            _say(observer, f"Starting Spark on {master.url}")
            name = f"streamlet {request.topology.name} ({request.file.name})"
            self._own = open_session(master, name, self._debug, lambda: stop.asked, stop.on_kill, request.workers)
        except BaseException:
            _owner.release()
            raise
        return self._own

    def _run(
        self,
        session: Session,
        code_zip: bytes,
        parcels: Sent,
        request: RunRequest,
        observer: Observer,
        stop: Stop,
    ) -> RunResult:
        assert request.file is not None
        coordinator = RunCoordinator(_with_time_to_unpack(request, parcels), observer, stop, self._debug)
        stop.look = coordinator.look
        stop.on_kill(lambda: shutil.rmtree(coordinator.directory, ignore_errors=True))
        run_id, secret = coordinator.run_id, coordinator.secret
        folder = str(Path.cwd()) if session.here else None
        # Whatever raises from here on leaves nothing in a session that lives on, and no folder.
        with contextlib.ExitStack() as after:
            after.callback(shutil.rmtree, coordinator.directory, ignore_errors=True)
            with _told_if_lost(session):
                jobs = SparkJobs(
                    session,
                    code_zip,
                    run_id=run_id,
                    secret=secret,
                    topology=request.topology.name,
                    file=str(request.file.absolute()),
                    folder=folder,
                    certificate=coordinator.certificate,
                    sent=parcels,
                )
            after.callback(jobs.close)
            stop.on_kill(jobs.kill)
            host, binds = session.driver_host(), session.bind_host()
            listens = host if session.here else ""
            dialled_host = host if binds != host else ""
            launcher = SlotLauncher(jobs, binds, listens, run_id, secret, coordinator.certificate, dialled_host)
            return coordinator.run(launcher)


@contextlib.contextmanager
def _told_if_lost(session: Session) -> Iterator[None]:
    """Raise SparkLost for whatever fails while entered, if the application is gone."""
    try:
        yield
    except SparkLost:
        raise
    except Exception as error:
        # Rule: ask whether the application is there before a step's own reason is believed. Each step before a run asks
        # Spark something, and would find another one: no slots, no Python on the executors, an error of py4j.
        lost = session.lost()
        if lost is None or isinstance(error, Cancelled):
            raise
        raise spark_lost(lost, running=False) from error


def _with_time_to_unpack(request: RunRequest, parcels: Sent) -> RunRequest:
    # A slot on an executor that was not there at the start fetches and unpacks everything before it dials.
    start = "streamlet.worker.start.timeout.secs"
    return dataclasses.replace(request, conf={**request.conf, start: request.conf[start] + parcels.size / SLOWEST})


@contextlib.contextmanager
def _quiet_py4j() -> Iterator[None]:
    """Keep py4j's debug lines and tracebacks out of logs while entered."""
    logger, root = logging.getLogger("py4j"), logging.getLogger()
    # Rule: the last of the runs in it puts the level back, in whatever order they end. One that put back what it had
    # found would leave the level of another run for good, and let a run that goes on be loud.
    with _quiet:
        _levels.append(_levels[0] if _levels else logger.level)
        logger.setLevel(logging.WARNING)
        root.addFilter(_is_not_of_py4j)
    try:
        yield
    finally:
        with _quiet:
            level = _levels.pop()
            if not _levels:
                root.removeFilter(_is_not_of_py4j)
                logger.setLevel(level)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    # Each call that a dead JVM interrupts logs a traceback on the root logger, and raises: who made the call tells it.
    return Path(record.pathname).parent.name != "py4j"


def _say(observer: Observer, text: str) -> None:
    observer.on_event(line_now("info", text, RUN_LOGGER))


def _await_slots(session: Session, request: RunRequest, observer: Observer, stop: Stop) -> str:
    """Wait for a free slot for every worker; return what there is, in words. Raises BadInput."""
    dynamic = preflight.is_on(session.conf(), preflight.DYNAMIC)
    wanted = 0 if dynamic else request.workers
    # All executors of a local master, for then Spark spreads the slots over them, and no further one will come.
    least = parse_master(session.master, 1).executors or 0 if session.local else 0

    def enough(found: list[Executor]) -> bool:
        slots, busy = slots_of(found)
        return len(found) >= least and (slots - busy >= wanted or (session.local and slots < wanted))

    def wait(done: Callable[[list[Executor]], bool], seconds: float) -> list[Executor]:
        return wait_for_executors(session, done, max(0.0, seconds), lambda: stop.asked)

    limit_s = request.conf["streamlet.spark.slots.timeout.secs"]
    executors = wait(enough, min(limit_s, TOLD_AFTER_S))
    # Rule: a local master's own executors may take minutes; slots that others hold are waited for as everywhere.
    if len(executors) < least:
        _say(observer, f"Waiting for executors, for up to {LOCAL_S:g} s: {executors_text(executors)} so far")
        executors = wait(lambda found: len(found) >= least, LOCAL_S - TOLD_AFTER_S)
    if len(executors) >= least and not enough(executors):
        slots, busy = slots_of(executors)
        held = f", {busy} of them busy" if busy else ""
        _say(observer, f"Waiting for task slots, for up to {limit_s:g} s: {executors_text(executors)}{held} so far")
        executors = wait(enough, limit_s - TOLD_AFTER_S)
    slots, busy = slots_of(executors)
    if slots - busy < wanted:
        held = holders(session, executors)
        raise BadInput(too_few_slots(session.master, request.workers, slots, busy, held, session.ours))
    if dynamic:
        return "executors started as workers need them"
    return executors_text(executors)


def _listener(session: Session) -> socket.socket:
    """Listen where executors report. Raises BadInput."""
    try:
        return bind_socket(("tcp", session.bind_host(), 0))
    except OSError as error:
        raise BadInput(
            f"Executors report to this machine, and nothing can listen here at {session.bind_host()} ({error}). It "
            f"comes from {BIND_ADDRESS}, or from {DRIVER_HOST} where that is not set. Set {DRIVER_HOST} to an address "
            f"of this machine that executors reach; where theirs is another (a container, a NAT), set {BIND_ADDRESS} "
            "to one of its own, too."
        ) from error


def _probe(
    session: Session,
    workers: int,
    stop: Stop,
    pack: Pack | None = None,
    parcels: Sent = NOTHING,
) -> None:
    """Check what each executor lacks, unpack and start its Python daemon. Raises BadInput or Cancelled."""
    found: list[str] = []
    failure: list[str] = []
    slots = slots_of(session.executors())[0] or workers
    with _listener(session) as listener:
        listener.listen()
        host, port = listener.getsockname()[:2]
        address = host if session.bind_host() == session.driver_host() else session.driver_host(), port
        task = preflight.make_probe(address, parcels.packages, parcels.shared)
        group = f"streamlet-preflight-{address[1]}"

        def run_probe() -> None:
            try:
                found.extend(run_tasks(session, task, min(slots, MOST_PROBES), group, "streamlet preflight"))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is explained below
                failure.append(text_of(error))

        thread = spark_thread(run_probe, "preflight")
        thread.start()
        try:
            limit_s = PROBE_S + parcels.size / SLOWEST
            ended = _ended_within(thread, limit_s, stop)
        finally:
            # However the wait ends: a session that the user goes on with would keep the job, and its slots.
            if thread.is_alive():
                _cancel_probe(session, group, thread)
        if not ended:
            raise BadInput(
                f"Spark ran no Python task within {limit_s:.0f} s: the master {session.master} has no free slot, or "
                f"its executors do not come up. {holders(session, session.executors())} Its web page and the logs of "
                "its workers say more."
            )
    if failure:
        if (lost := session.lost()) is not None:
            raise spark_lost(lost, running=False, said=[preflight.error_line(failure[0])])
        raise BadInput(preflight.explain_probe(failure[0]))
    preflight.judge(preflight.read_reports(found), address, session.spark.version, pack)


def _cancel_probe(session: Session, group: str, probe: threading.Thread) -> None:
    """Cancel the probe's job; wait at most CANCEL_S seconds for its end."""
    deadline = time.monotonic() + CANCEL_S

    def cancel() -> None:
        # Again and again: Spark forgets a cancel that comes before the job.
        while probe.is_alive() and time.monotonic() < deadline:
            with contextlib.suppress(Exception):  # py4j raises half a dozen kinds when the JVM is gone
                session.context.cancelJobGroup(group)
            probe.join(0.2)

    # On another thread: a signal may have interrupted a call of py4j on this one, whose connection serves one at a
    # time.
    canceller = threading.Thread(target=cancel, name="cancel preflight", daemon=True)
    canceller.start()
    canceller.join(CANCEL_S)


def _ended_within(thread: threading.Thread, timeout_s: float, stop: Stop) -> bool:
    deadline = time.monotonic() + timeout_s
    while thread.is_alive() and time.monotonic() < deadline:
        thread.join(0.1)
        if stop.asked:
            raise Cancelled
    return not thread.is_alive()


def _cancelled_result(started: float) -> RunResult:
    return RunResult("interrupted", RunStatus("ended", time.monotonic() - started), drained=True)
