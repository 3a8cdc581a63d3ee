"""Runs the suite's topology once a backend, and gives the tests what its tasks wrote down."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from streamlet.backends.contract import RunRequest, Stop
from streamlet.backends.inline import InlineBackend
from streamlet.backends.outcome import TreesFailed
from streamlet.backends.processes import ProcessesBackend
from streamlet.base.environment import environment
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.faults.network import Network
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

SUITE = Path(__file__).with_name("suite.py")


class Outcome:
    """What a run left behind: lines by component, and how it ended."""

    crossed = 0
    """Packets between the hosts of two workers, where these have hosts of their own."""

    def __init__(self, backend: str, folder: Path, ended: TreesFailed, watcher: Watcher) -> None:
        self.backend = backend
        self.said = ended.message
        self.result = ended.result
        self.watcher = watcher
        self._lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for path in sorted(folder.glob("*.jsonl")):
            for line in path.read_text().splitlines():
                self._lines[path.name.split(".")[0]].append(json.loads(line))

    def lines(self, component: str, what: str) -> list[dict[str, Any]]:
        """Lines of one kind of one component, in order within each task."""
        assert self._lines[component], f"{component} wrote nothing at all"
        return [line for line in self._lines[component] if line["what"] == what]

    def ids(self, component: str, what: str) -> list[Any]:
        """The ids a spout heard of."""
        return [line["id"] for line in self.lines(component, what)]

    def values(self, component: str) -> list[Any]:
        """The values of every tuple a recording bolt saw."""
        return [line["values"] for line in self.lines(component, "tuple")]


def backend_named(name: str) -> Any:
    """The backend of that name; Spark's is imported only when it is wanted."""
    if name == "inline":
        return InlineBackend()
    if name.startswith("processes"):
        return ProcessesBackend()
    from streamlet.backends.spark import SparkBackend

    return SparkBackend()


def run_suite(backend: str, folder: Path, master: str | None = None) -> Outcome:
    """Run the whole suite on one backend."""
    topology = load_topology(SUITE)
    tls = {"streamlet.links.tls": backend.endswith("-tls")}
    conf = resolve(topology.config, {"suite.results": str(folder), "streamlet.until.caught.up": True, **tls})
    watcher = Watcher()
    request = RunRequest(
        topology, conf, file=SUITE, attribute="Suite", workers=2, until_caught_up=True, seconds=PATIENCE_S,
        master=master,
    )  # fmt: skip
    # Many of its trees fail for good, as they are meant to.
    with pytest.raises(TreesFailed) as ended:
        backend_named(backend).run(request, watcher, Stop())
    return Outcome(backend, folder, ended.value, watcher)


def run_suite_on_hosts(folder: Path, servers: Path) -> Outcome:
    """Run it on a standalone Spark: driver and both executors on hosts of their own."""
    from tests.faults.spark_hosts import DRIVER, WORKERS, spark_hosts

    with contextlib.ExitStack() as stack:
        try:
            network = stack.enter_context(Network(DRIVER, *WORKERS))
        except RuntimeError as refused:
            pytest.skip(f"Spark over several hosts was not tried. {refused}")
        spark = stack.enter_context(spark_hosts(network, servers))
        with environment(spark.environ), network.inside(DRIVER):
            outcome = run_suite("spark-hosts", folder, spark.url)
        outcome.crossed = min(way.passed for way in network.both(*WORKERS))
    return outcome


@pytest.fixture(
    scope="session",
    params=[
        "inline", "processes", "processes-tls", pytest.param("spark", marks=pytest.mark.spark),
        pytest.param("spark-hosts", marks=pytest.mark.spark),
    ],
)  # fmt: skip
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """One run of the suite; every test looks at the same one."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "spark-hosts":
        return run_suite_on_hosts(folder, tmp_path_factory.mktemp("servers"))
    return run_suite(request.param, folder)
