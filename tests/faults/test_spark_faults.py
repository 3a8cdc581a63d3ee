"""The script of faults on a Spark over three hosts: it leaves nothing when it is killed, whatever stands still then."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.network import Network
from tests.marked_processes import descendants, living_family
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.real, pytest.mark.spark]

COMMAND = [sys.executable, "-m", "tests.soak.spark_faults", "--busy", "--only", "stop executor", "--seed", "7"]


@pytest.fixture
def hosts() -> None:
    """Skips where there can be none."""
    try:
        with Network("one"):
            pass
    except RuntimeError as refused:
        pytest.skip(f"Spark over several hosts was not tried. {refused}")


def test_all_processes_die_with_the_script_though_an_executor_is_stopped(hosts: None) -> None:
    """kill -9 of the script while an executor stands still, which notices nothing of it."""
    script = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True)
    try:
        assert script.stdout is not None
        (folder,) = re.findall(r"run in (\S+):", script.stdout.readline())
        stopped = wait_for_a_stopped_jvm(script.pid)
        family = living_family(script.pid)
        assert stopped in [one.pid for one in family] and len(family) > 10
        script.send_signal(signal.SIGKILL)
        script.wait()
        deadline = time.monotonic() + PATIENCE_S
        while left := [one for one in family if one.alive] or Path(folder).exists():
            assert time.monotonic() < deadline, left
            time.sleep(0.1)
    finally:
        script.kill()
        script.communicate()


def wait_for_a_stopped_jvm(script: int) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        for pid in descendants(script):
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                if state == "T" and b"CoarseGrained" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
            except OSError:
                continue
        assert time.monotonic() < deadline, "no executor was stopped"
        time.sleep(0.2)
