"""Slots as Spark jobs: one task, one stage, no barrier; its own job group and its own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from streamlet.backends.spark.preflight import error_line
from streamlet.backends.spark.shipping import EXIT_SCHEMA, Slot, make_host
from streamlet.backends.spark.spark_session import Session


class SparkJobs:
    """Slots as Spark jobs; see ``launcher.Jobs``. ``close`` takes the archive back from the executors."""

    def __init__(
        self, session: Session, archive: bytes, run_id: bytes, secret: bytes, file: str, folder: str | None
    ) -> None:
        self._session = session
        # A broadcast variable, not addPyFile: that cannot be taken back from a session that goes on, breaks the session
        # when the file is deleted, and puts itself on the driver's sys.path.
        self._archive = session.context.broadcast(archive)
        self._run_id = run_id
        self._secret = secret
        self._file = file
        self._folder = folder

    def _group(self, worker: int, epoch: int) -> str:
        return f"streamlet-{self._run_id.hex()}-{worker}.{epoch}"

    def run(self, worker: int, epoch: int, address: tuple[str, int]) -> str:
        host = make_host(
            Slot(self._archive, address, self._run_id, self._secret, worker, epoch, self._file, self._folder)
        )
        try:
            rows = run_tasks(
                self._session, host, EXIT_SCHEMA, 1, self._group(worker, epoch), f"streamlet worker {worker}.{epoch}"
            )
        except Exception as error:  # noqa: BLE001 - py4j and Spark raise a dozen kinds; the slot is gone with each
            said = str(error)
            if "cancelled" in said and self._group(worker, epoch) in said:
                return "was cancelled"
            return f"was lost by Spark: {error_line(said)}"
        return str(rows[0]["why"])

    def cancel(self, worker: int, epoch: int) -> None:
        self._session.context.cancelJobGroup(self._group(worker, epoch))

    def alive(self) -> bool:
        return self._session.alive()

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        return spark_thread(target, name)

    def close(self) -> None:
        """Free the archive."""
        if self._session.alive():
            self._archive.destroy()


def run_tasks(session: Session, task: Any, schema: str, count: int, group: str, description: str) -> list[Any]:
    """Run ``task`` in ``count`` tasks of one job; return their rows. Blocks, so it runs on a thread of its own."""
    context = session.context
    context.setJobGroup(group, description, interruptOnCancel=False)
    rows: list[Any] = session.spark.range(0, count, 1, count).mapInArrow(task, schema).collect()
    return rows


def spark_thread(target: Callable[[], None], name: str) -> threading.Thread:
    """Make a thread with a JVM thread of its own.

    A job group is a property of the JVM thread, which ends with this one.
    """
    from pyspark import InheritableThread

    thread: threading.Thread = InheritableThread(target=target, name=name, daemon=True)
    return thread
