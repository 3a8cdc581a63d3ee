"""The run's log and its handlers of signals come back, and a line says once whose code took them."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from streamlet.base.termination_signals import keep
from streamlet.runtime.worker.process_watch import ProcessWatch


@pytest.fixture(autouse=True)
def kept_handler() -> Iterator[None]:
    undo = keep(lambda *_: None, [signal.SIGTERM, signal.SIGHUP])
    yield
    undo()


def test_each_signal_is_told_once_though_it_is_put_back_each_time() -> None:
    told: list[tuple[str, str, str, int]] = []
    watch = ProcessWatch(lambda *line: told.append(line))
    watch.look("count", "count", 3)
    assert told == []
    for _ in range(3):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        watch.look("count", "count", 3)
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    watch.look("A component")
    assert [(level, text.partition(",")[0], component, task) for level, text, component, task in told] == [
        ("warning", "count changed what SIGTERM does here", "count", 3),
        ("warning", "A component changed what SIGHUP does here", "", 0),
    ]
