"""The process of each worker, as its components wrote it into ``pid.WORKER``."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.marked_processes import Marked
from tests.patience import PATIENCE_S


def worker_pid(folder: Path, worker: int) -> int:
    """Return the last process that said it is this worker. A file that is just being written is empty."""
    deadline = time.monotonic() + PATIENCE_S
    while not (text := (folder / f"pid.{worker}").read_text()):
        assert time.monotonic() < deadline, f"pid.{worker} stays empty"
        time.sleep(0.01)
    return int(text)


def kill_worker(folder: Path, worker: int, run: Marked) -> None:
    """Kill this worker of a run that lives: its replacement, where the last one has died."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            os.kill(worker_pid(folder, worker), signal.SIGKILL)
            return
        except ProcessLookupError:
            assert run.process.poll() is None, f"the run had ended before worker {worker} could be killed"
            assert time.monotonic() < deadline, f"worker {worker} was not replaced"
            time.sleep(0.05)
