"""Slots without Spark: jobs that are threads or plain processes, the listener and the supervision real."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from tests.scripted.backends.spark.test_launcher import Run, wait_until


def test_a_slot_that_is_killed_comes_back_with_the_next_epoch(tmp_path: Path) -> None:
    """Every number reaches the witness, and the run ends by itself."""
    run = Run(tmp_path, **{"numbers.count": 3000, "numbers.per.second": 2000.0})

    def kill() -> None:
        wait_until(lambda: len(run.witness()) > 600)
        os.kill(run.coordinator.pids[1], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    run.go()
    killer.join()
    assert (1, 2) in run.jobs.running
    assert (0, 2) not in run.jobs.running
    assert set(run.witness()) == set(range(3000))
    assert run.result.reason == "caught_up"
