"""A process that holds the interpreter's lock and whose parent is killed ends all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from streamlet.runtime.worker.parents_end import END_S
from tests.marked_processes import REPOSITORY
from tests.patience import PATIENCE_S

CHILD = """
import ctypes, os
from pathlib import Path
from streamlet.runtime.worker.parents_end import end_after_parent
end_after_parent()
Path("pid").write_text(str(os.getpid()))
ctypes.PyDLL(None).sleep(600)  # with the lock; a signal interrupts the first
ctypes.PyDLL(None).sleep(600)
"""
PARENT = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {CHILD!r}])
time.sleep(600)
"""


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a4_a_process_that_holds_the_interpreter_ends_after_its_parent(tmp_path: Path) -> None:
    """Not before, and not at once: until then it could have ended in order."""
    given = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=tmp_path, env=given)
    file, pid = tmp_path / "pid", 0
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not pid:
            assert time.monotonic() < deadline
            pid = int((file.exists() and file.read_text()) or 0)
            time.sleep(0.01)
        time.sleep(1.0)
        assert lives(pid)
        parent.kill()
        died = time.monotonic()
        while lives(pid):
            assert time.monotonic() - died < END_S + 3
            time.sleep(0.05)
        assert time.monotonic() - died > END_S - 1.5
    finally:
        parent.kill()
        parent.wait()
        if pid and lives(pid):
            os.kill(pid, signal.SIGKILL)
