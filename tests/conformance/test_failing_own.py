"""An error that a bolt catches and gives to fail is told as one that process raises."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.backends.outcome import TreesFailed
from streamlet.base.errors import StreamletError
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.conformance.conftest import backend_named
from tests.conformance.test_concurrent_bolts import backends
from tests.run_observer import Watcher

FILE = Path(__file__).with_name("failing_own.py")


def ran(backend: str, workers: int, name: str, watcher: Watcher) -> RunResult:
    topology = load_topology(FILE, name)
    settings = resolve(topology.config, {"streamlet.until.caught.up": True})
    request = RunRequest(topology, settings, file=FILE, attribute=name, workers=workers, until_caught_up=True)
    return backend_named(backend).run(request, watcher, Stop())


@pytest.mark.parametrize("name", ["Caught", "CaughtThere"])
@backends
def test_an_error_that_fail_is_given_is_told_with_place_and_traceback_and_named_at_the_end(
    backend: str, workers: int, name: str
) -> None:
    """Once in full, and counted; it was shown nowhere, and the end said that nothing had been raised."""
    watcher = Watcher()
    with pytest.raises(TreesFailed) as caught:
        ran(backend, workers, name, watcher)
    price = caught.value.result.components["price"]
    assert (price.errors, price.failed, price.acked) == (200, 200, 1800)
    told = [text for text in watcher.texts if "price (task 2) raised NameError at" in text]
    assert len(told) == 1 and "undefined_name(tup)" in told[0] and "failing_own.py" in told[0]
    assert "price (task 2) raised NameError at" in caught.value.message
    assert "by itself" not in caught.value.message


@pytest.mark.parametrize("name", ["AllThere", "AllLate"])
@backends
def test_a_typing_error_that_every_tuple_is_failed_for_ends_the_run_by_name(
    backend: str, workers: int, name: str
) -> None:
    """Also where the bolt had been given its last tuple before it failed one: no call followed that looked."""
    with pytest.raises(StreamletError, match="raised on each of its first 1,000 tuples") as caught:
        ran(backend, workers, name, Watcher())
    assert "the last time NameError (" in caught.value.message and "failing_own.py" in caught.value.message
