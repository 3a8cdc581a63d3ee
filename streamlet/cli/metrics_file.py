"""``--metrics-file``: the last status in Prometheus' text format, for node_exporter's textfile collector.

A file and not a port, because nothing of a run listens without authentication. Needs the extra ``metrics``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from streamlet.backends.contract import RunRequest, RunResult, RunStatus
from streamlet.base.errors import BadInput
from streamlet.base.hand_over import HandOver
from streamlet.base.readable import is_there
from streamlet.cli.show import View
from streamlet.cli.writer_lock import WriterLock
from streamlet.model.spec import SPOUT

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = logging.getLogger(__name__)

_COUNTERS = {
    "emitted": "Tuples emitted, each once whatever its readers",
    "executed": "Tuples processed",
    "acked": "Trees (spouts) or tuples (bolts) acked",
    "failed": "Trees (spouts) or tuples (bolts) failed",
    "timed_out": "Of the failed trees, those that timed out",
    "given_up": "Messages and untracked tuples that failed and that nobody sends again",
    "kept": "Of the messages given up, those that are kept as dead letters",
    "lost": "Untracked tuples and trees that nobody sends again, and records that the source has no more",
    "errors": "Exceptions raised by the component's code",
}
_PARTITION = {
    "position": "Next offset to be emitted",
    "committed": "Offset up to which all is done and stored",
    "lag": "Offsets between the committed one and the log's end, as of the last answer",
    "held_back": "Offsets that an open transaction keeps from readers",
    "behind_s": "Seconds since the time of the next record to be done; 0: there is none",
    "answered_s": "Seconds since a broker last answered a fetch of it",
    "oldest_open": "Lowest offset that was emitted and is not done",
    "open_s": "Seconds since that was emitted first",
}


class MetricsUnavailable(BadInput):
    """The extra ``metrics`` is not installed, or its file cannot be written."""


ANSWER_S = 5.0
"""Seconds that a disk may take over a write before it counts as one that hangs."""


LAST_S = 0.5
"""Seconds that a run which is killed waits for a write that is under way."""


class MetricsFile:
    """A view that shows nothing itself: it passes everything to another one, and writes a file at each status.

    A thread of its own writes: a server of files that is away, or a disk that hangs, costs the file and nothing else.
    """

    def __init__(self, path: Path, view: View) -> None:
        self._path = self._target = path
        self._view = view
        # What no file shows goes straight on.
        self.on_event, self.log, self.notice = view.on_event, view.log, view.notice
        self.close = view.close
        self._topology = ""
        self._complained = False
        self._lock: WriterLock | None = None
        self._over = False
        """True from the last write on: nothing is written any more."""
        self._last = RunStatus("starting", 0.0)
        self._began_s: float | None = None
        """When the write began that has not returned; None between two."""
        self._written = HandOver("metrics-file", lambda _count: None, self._complain)
        try:
            # Here and not above: the package is an extra, and only this option needs it.
            from prometheus_client import write_to_textfile
        except ImportError as error:
            raise MetricsUnavailable(
                "--metrics-file needs prometheus-client, which is not installed here: "
                "pip install 'streamlet-storm[metrics]'."
            ) from error
        self._write_to_textfile: Callable[..., None] = write_to_textfile

    def start(self, request: RunRequest, backend: str) -> None:
        self._topology = request.topology.name
        self._check_place()
        raised: list[OSError] = []
        holders: list[str] = []

        def write() -> None:
            # Rule: one run at a time, and before the first write. Two that replace one file make each reader jump
            # between them, and neither run would notice.
            self._lock = WriterLock(self._target)
            if holder := self._lock.take(self._topology):
                holders.append(holder)
                return
            try:
                self._write(self._last)
            except OSError as error:
                raised.append(error)

        self._written.give(write)
        answered = self._answered()
        if holders:
            self._over = True
            raise MetricsUnavailable(
                f"--metrics-file {self._path} is being written by {holders[0]}. Give each run a file of its own, or "
                "end that one first."
            )
        if raised or not answered:
            self._over = True  # refused: nobody waits for the file any more
            why = raised[0].strerror if raised else f"its disk does not answer within {ANSWER_S:g} s"
            raise MetricsUnavailable(
                f"--metrics-file {self._path} cannot be written: {why}. Name a file in a folder that exists "
                "and that you may write to; it is replaced about once a second."
            )
        self._view.start(request, backend)

    def _check_place(self) -> None:
        """Follow a link; refuse a device or pipe. Raises MetricsUnavailable."""
        # Each write renames a new file over the old one. Over a device, that takes the device from every process.
        self._target = self._path.resolve()
        if is_there(self._target) and not self._target.is_file():
            self._over = True
            raise MetricsUnavailable(
                f"--metrics-file {self._path} is a device, a pipe or a folder, and would be replaced about once a "
                "second. Name a file: a new one, or one that this option has written."
            )

    def on_status(self, status: RunStatus) -> None:
        self._last = status
        self._written.give(lambda: self._keep(status), replaces="status")
        self._warn_if_hanging()
        self._view.on_status(status)

    def finish(self, result: RunResult, exit_status: int = 0) -> None:
        self._written.give(self._release)
        self._answered()
        self._warn_if_hanging()
        self._view.finish(result, exit_status)

    def killed(self, exit_status: int, last: RunStatus | None) -> None:
        self._view.killed(exit_status, last)
        self._last = last or self._last
        # The last act of the process. A write under way on the other thread would come after this one, and the file
        # would say for ever that the run goes on.
        self._over = True
        self._written.finish(lambda done: done.wait(LAST_S))
        with contextlib.suppress(Exception):
            # What waits and is not tracked is lost by it.
            rows = [
                dataclasses.replace(row, lost=row.lost + row.untracked, untracked=0) for row in self._last.components
            ]
            self._write(dataclasses.replace(self._last, state="killed", components=tuple(rows)))
            self._release()

    def failed(self, error: BaseException, exit_status: int) -> None:
        # Written once more: a scrape cannot tell a file that nobody renews from a run that goes on.
        last = dataclasses.replace(self._last, state="failed")
        self._written.give(lambda: self._keep(last), replaces="status")
        self._written.give(self._release)
        self._answered()
        self._view.failed(error, exit_status)

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _answered(self) -> bool:
        """Wait a while for the file; tell whether everything is written."""
        return self._written.finish(lambda done: done.wait(ANSWER_S))

    def _warn_if_hanging(self) -> None:
        """Tell of a write that does not return."""
        began_s = self._began_s
        if began_s is not None and (since_s := time.monotonic() - began_s) >= ANSWER_S and not self._complained:
            self._complained = True
            log.warning("--metrics-file %s is out of date: its disk has not answered for %.0f s.", self._path, since_s)

    def _keep(self, status: RunStatus) -> None:
        if self._over:
            return
        try:
            self._write(status)
            self._complained = False
        except OSError as error:  # a full disk must not end a run that works
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            why = (error.strerror if isinstance(error, OSError) else None) or repr(error)
            log.warning("--metrics-file %s is out of date: %s.", self._path, why)
        self._complained = True

    def _write(self, status: RunStatus) -> None:
        self._began_s = time.monotonic()
        try:
            self._write_to_textfile(str(self._target), _Families(self._topology, status))
        finally:
            self._began_s = None


class _Families:
    """What prometheus-client takes for a registry: something that can be asked for its metrics."""

    def __init__(self, topology: str, status: RunStatus) -> None:
        self._topology = topology
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of one status."""
        yield from self._run()
        yield from self._workers()
        yield from self._hanging()
        yield from self._components()
        yield from self._partitions()

    def _run(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        state = GaugeMetricFamily("streamlet_run", "1 for the state the run is in", labels=["topology", "state"])
        state.add_metric([self._topology, self._status.state], 1)
        yield state
        for name, text, value in (
            ("streamlet_run_seconds", "Seconds since the run began", self._status.elapsed_s),
            (
                "streamlet_pending_trees",
                "Trees that are open, and failures that wait to be sent again",
                self._status.pending,
            ),
            ("streamlet_workers", "Workers the run has", len(self._status.workers)),
        ):
            family = GaugeMetricFamily(name, text, labels=["topology"])
            family.add_metric([self._topology], value)
            yield family

    def _workers(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        labels = ["topology", "worker", "host", "executor"]
        family = GaugeMetricFamily("streamlet_worker_epoch", "How often a worker was started", labels=labels)
        for row in self._status.workers:
            where = [str(row.get(name) or "") for name in ("host", "executor")]
            family.add_metric([self._topology, str(row["worker"]), *where], row["epoch"])
        yield family

    def _hanging(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        labels = ["topology", "component", "task", "call"]
        family = GaugeMetricFamily(
            "streamlet_hanging_seconds", "How long a call that takes too long has taken", labels=labels
        )
        # The file outlives the run, and nothing hangs any more.
        for row in self._status.hanging if self._status.state != "ended" else ():
            family.add_metric([self._topology, row["component"], str(row["task"]), row["call"]], row["seconds"])
        yield family

    def _components(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        labels = ["topology", "component"]
        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily(f"streamlet_{name}", text, labels=labels)
            for row in self._status.components:
                counter.add_metric([self._topology, row.name], getattr(row, name))
            yield counter
        latency = GaugeMetricFamily(
            "streamlet_latency_seconds", "From emit to ack (spouts), of one tuple (bolts)", labels=[*labels, "quantile"]
        )
        window = GaugeMetricFamily("streamlet_window_trees", "Trees that a spout may have open now", labels=labels)
        wait = GaugeMetricFamily("streamlet_queue_wait_seconds", "How long its tuples wait in queues", labels=labels)
        own = GaugeMetricFamily("streamlet_component_metric", "What a component reports", labels=[*labels, "name"])
        for row in self._status.components:
            if row.kind == SPOUT:
                window.add_metric([self._topology, row.name], row.window)
                wait.add_metric([self._topology, row.name], row.wait_ms / 1000)
            for quantile, value in (("0.5", row.p50_ms), ("0.99", row.p99_ms)):
                if value is not None:
                    latency.add_metric([self._topology, row.name, quantile], value / 1000)
            for name, number in row.metrics.items():
                own.add_metric([self._topology, row.name, name], number)
        yield window
        yield wait
        yield latency
        yield own

    def _partitions(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        # The spout too: two may read one topic, and a series is there once.
        labels = ["topology", "component", "topic", "partition"]
        for name, text in _PARTITION.items():
            unit = f"{name.removesuffix('_s')}_seconds" if name.endswith("_s") else name
            gauge = GaugeMetricFamily(f"streamlet_partition_{unit}", text, labels=labels)
            for row in self._status.partitions:
                if row.get(name) is not None:
                    place = [str(row.get(label, "")) for label in labels[1:]]
                    gauge.add_metric([self._topology, *place], row[name])
            yield gauge
