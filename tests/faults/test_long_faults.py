"""The script of many faults, for a few of them: it comes to its end, and leaves nothing when it is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.marked_processes import living_family
from tests.patience import PATIENCE_S

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="it mounts a small disk, to fill it"),
]

COMMAND = [sys.executable, "-m", "tests.soak.long_faults", "--busy", "--minutes", "4"]


def test_a_slice_of_faults_holds_and_its_results_are_kept(tmp_path: Path) -> None:
    """Four kills of workers, with trees pending each time."""
    results = tmp_path / "results.json"
    asked = ["--faults", "4", "--seed", "7", "--only", "kill worker", "--results", str(results)]
    done = subprocess.run([*COMMAND, *asked], capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
    assert "4 faults in 1 slices" in done.stdout
    assert results.exists()


def test_all_processes_die_with_the_script_though_one_is_stopped() -> None:
    """kill -9 while a worker stands still: it cannot notice that it was left behind."""
    asked = [*COMMAND, "--seed", "7", "--only", "stop worker"]
    script = subprocess.Popen(asked, stdout=subprocess.PIPE, text=True)
    said = ""
    try:
        assert script.stdout is not None
        for line in script.stdout:
            said += line
            if "#" in line:
                break
        time.sleep(5)  # for the fault itself to begin; a kill at any other moment must do as well
        family = living_family(script.pid)
        assert len(family) > 8
        script.send_signal(signal.SIGKILL)
        script.wait()
        deadline = time.monotonic() + PATIENCE_S
        while left := [one for one in family if one.alive]:
            assert time.monotonic() < deadline, left
            time.sleep(0.1)
        (folder,) = re.findall(r"slice in (\S+):", said)
        assert not Path(folder).exists()
    finally:
        script.kill()
        script.communicate()
