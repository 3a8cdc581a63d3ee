"""Slots as Spark jobs: one task, one stage, no barrier; its own job group and its own thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from streamlet.backends.spark.holders import held_up
from streamlet.backends.spark.loss import Loss
from streamlet.backends.spark.parcels import NOTHING, Sent, broadcast, destroy
from streamlet.backends.spark.preflight import error_line
from streamlet.backends.spark.shipping import Slot, make_host
from streamlet.backends.spark.spark_session import Session
from streamlet.base.errors import text_of
from streamlet.runtime.supervision.worker_states import HeldUp


class SparkJobs:
    """Slots as Spark jobs; see ``launcher.Jobs``. ``close`` takes the code back from the executors."""

    def __init__(
        self,
        session: Session,
        code_zip: bytes,
        *,
        run_id: bytes,
        secret: bytes,
        topology: str,
        file: str,
        folder: str | None,
        certificate: bytes = b"",
        sent: Sent = NOTHING,
    ) -> None:
        self._session = session
        # A broadcast variable, not addPyFile: that cannot be taken back from a session that goes on, breaks the session
        # when the file is deleted, and puts itself on the driver's sys.path.
        self._code_zip = broadcast(session.context, code_zip)
        self._run_id = run_id
        self._secret = secret
        self._topology = topology
        self._file = file
        self._folder = folder
        self._certificate = certificate
        self._sent = sent
        self._running: set[str] = set()
        """Groups of the slots that run. Slots' threads write, ``kill`` reads a copy."""

    def _group(self, worker: int, epoch: int) -> str:
        return f"streamlet-{self._run_id.hex()}-{worker}.{epoch}"

    def run(self, worker: int, epoch: int, address: tuple[str, int]) -> str:
        slot = Slot(
            self._code_zip,
            address,
            run_id=self._run_id,
            secret=self._secret,
            worker=worker,
            epoch=epoch,
            file=self._file,
            folder=self._folder,
            certificate=self._certificate,
            sent=self._sent,
        )
        host = make_host(slot)
        group = self._group(worker, epoch)
        description = f"streamlet {self._topology}: worker {worker}, epoch {epoch}"
        self._running.add(group)
        try:
            rows = run_tasks(self._session, host, 1, group, description)
        except Exception as error:  # noqa: BLE001 - py4j and Spark raise a dozen kinds; the slot is gone with each
            said = text_of(error)  # py4j asks the JVM for it, which may be gone
            if "cancelled" in said and group in said:
                return "was cancelled"
            return f"was lost by Spark: {error_line(said)}"
        finally:
            self._running.discard(group)
        return str(rows[0]["why"])

    def cancel(self, worker: int, epoch: int) -> None:
        self._session.context.cancelJobGroup(self._group(worker, epoch))

    def kill(self) -> None:
        """Cancel every slot, and wait for nothing. For signal handlers."""
        # On another thread: a handler may interrupt a call of py4j on its own thread, whose connection serves one at a
        # time.
        threading.Thread(target=self._cancel_all, args=(tuple(self._running),), name="kill", daemon=True).start()

    def _cancel_all(self, groups: tuple[str, ...]) -> None:
        for group in groups:
            with contextlib.suppress(Exception):  # py4j raises half a dozen kinds when the JVM is gone
                self._session.context.cancelJobGroup(group)

    def lost(self) -> Loss | None:
        return self._session.lost()

    def held_up(self, workers: frozenset[tuple[int, int]]) -> HeldUp:
        groups = {(worker, epoch): self._group(worker, epoch) for worker, epoch in workers}
        return held_up(self._session, groups, f"streamlet-{self._run_id.hex()}-")

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        return spark_thread(target, name)

    def close(self) -> None:
        """Free the code on the executors."""
        destroy(self._session, [self._code_zip])


def run_tasks(session: Session, task: Any, count: int, group: str, description: str) -> list[Any]:
    """Run ``task`` in ``count`` tasks of one job; return what they yield. Blocks, so it runs on a thread of its own."""
    context = session.context
    context.setJobGroup(group, description, interruptOnCancel=False)
    # Rule: an RDD, not a DataFrame. Its Python workers import no pyarrow and no pandas, which would have to be
    # installed on the executors; and a list, for the rows of a range are read by Spark itself, which then gives the
    # Python worker of a slot to the next task.
    rows: list[Any] = context.parallelize([None] * count, count).mapPartitions(task).collect()
    return rows


def spark_thread(target: Callable[[], None], name: str) -> threading.Thread:
    """Make a thread with a JVM thread of its own.

    A job group is a property of the JVM thread, which ends with this one.
    """
    from pyspark import InheritableThread

    thread: threading.Thread = InheritableThread(target=target, name=name, daemon=True)
    return thread
