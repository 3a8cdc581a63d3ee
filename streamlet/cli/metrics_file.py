"""``--metrics-file``: the last status in Prometheus' text format, for node_exporter's textfile collector.

A file and not a port, because nothing of a run listens without authentication. Needs the extra ``metrics``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from streamlet.backends.contract import RunRequest, RunStatus
from streamlet.base.errors import BadInput
from streamlet.cli.show import View

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = logging.getLogger(__name__)

_COUNTERS = {
    "emitted": "Tuples emitted",
    "executed": "Tuples processed",
    "acked": "Trees (spouts) or tuples (bolts) acked",
    "failed": "Trees (spouts) or tuples (bolts) failed",
    "errors": "Exceptions raised by the component's code",
}
_PARTITION = {
    "position": "Next offset to be emitted",
    "committed": "Offset up to which all is done and stored",
    "lag": "Records between the position and the log's end",
}


class MetricsUnavailable(BadInput):
    """The extra ``metrics`` is not installed, or its file cannot be written."""


class MetricsFile:
    """A view that shows nothing itself: it passes everything to another one, and writes a file at each status."""

    def __init__(self, path: Path, view: View) -> None:
        self._path = path
        self._view = view
        # What no file shows goes straight on.
        self.on_event, self.log, self.notice = view.on_event, view.log, view.notice
        self.finish, self.close = view.finish, view.close
        self._topology = ""
        self._complained = False
        self._last = RunStatus("starting", 0.0)
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
        try:
            self._write(self._last)
        except OSError as error:
            raise MetricsUnavailable(
                f"--metrics-file {self._path} cannot be written: {error.strerror}. Name a file in a folder that exists "
                "and that you may write to; it is replaced about once a second."
            ) from error
        self._view.start(request, backend)

    def on_status(self, status: RunStatus) -> None:
        self._last = status
        self._keep(status)
        self._view.on_status(status)

    def killed(self, exit_status: int) -> None:
        self._view.killed(exit_status)
        # The last act of the process: a write that this signal interrupted is never resumed, so the file is whole.
        with contextlib.suppress(Exception):
            self._write(dataclasses.replace(self._last, state="killed"))

    def failed(self, error: BaseException, exit_status: int) -> None:
        # Written once more: a scrape cannot tell a file that nobody renews from a run that goes on.
        self._keep(dataclasses.replace(self._last, state="failed"))
        self._view.failed(error, exit_status)

    def _keep(self, status: RunStatus) -> None:
        try:
            self._write(status)
            self._complained = False
        except OSError as error:  # a full disk must not end a run that works
            if not self._complained:
                log.warning("--metrics-file %s is out of date: %s.", self._path, error.strerror)
            self._complained = True

    def _write(self, status: RunStatus) -> None:
        self._write_to_textfile(str(self._path), _Families(self._topology, status))


class _Families:
    """What prometheus-client takes for a registry: something that can be asked for its metrics."""

    def __init__(self, topology: str, status: RunStatus) -> None:
        self._topology = topology
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of one status."""
        yield from self._run()
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
            ("streamlet_pending_trees", "Trees that are open", self._status.pending),
            ("streamlet_workers", "Workers the run has", len(self._status.workers)),
        ):
            family = GaugeMetricFamily(name, text, labels=["topology"])
            family.add_metric([self._topology], value)
            yield family

    def _hanging(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        labels = ["topology", "component", "task", "call"]
        family = GaugeMetricFamily(
            "streamlet_hanging_seconds", "How long a call that takes too long has taken", labels=labels
        )
        for row in self._status.hanging:
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
        own = GaugeMetricFamily("streamlet_component_metric", "What a component reports", labels=[*labels, "name"])
        for row in self._status.components:
            for quantile, value in (("0.5", row.p50_ms), ("0.99", row.p99_ms)):
                if value is not None:
                    latency.add_metric([self._topology, row.name, quantile], value / 1000)
            for name, number in row.metrics.items():
                own.add_metric([self._topology, row.name, name], number)
        yield latency
        yield own

    def _partitions(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        labels = ["topology", "topic", "partition"]
        for name, text in _PARTITION.items():
            gauge = GaugeMetricFamily(f"streamlet_partition_{name}", text, labels=labels)
            for row in self._status.partitions:
                if row.get(name) is not None:
                    gauge.add_metric([self._topology, str(row["topic"]), str(row["partition"])], row[name])
            yield gauge
