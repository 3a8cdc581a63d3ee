"""``bin/demo`` as a newcomer sees it, in an empty home: both backends, and nothing left afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT

MARK = "STREAMLET_DEMO_MARK"


def family(mark: str) -> list[str]:
    """Every process that descends from the demo, however far, and is alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


@pytest.mark.real
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_demo_counts_on_processes_and_on_spark_and_leaves_nothing(tmp_path: Path) -> None:
    """200 000 lines; counts equal the console consumer's, offsets in ZooKeeper equal the log end, read by kazoo.

    Setting up .venv is what CI did before this test could run; the steps after it run here, with a home that holds
    neither jars nor a Maven repository.
    """
    mark, home = uuid.uuid4().hex, tmp_path / "home"
    home.mkdir()
    environ = {**os.environ, MARK: mark, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    environ |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(ROOT / "bin" / "demo_steps.py")],
        cwd=tmp_path,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("counts equal the console consumer's: 1,200,000 words") == 2, done.stdout
    assert done.stdout.count("offsets in ZooKeeper equal the log end") == 2, done.stdout
    assert done.stdout.endswith("All counts agree.\n"), done.stdout
    assert family(mark) == []
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == []
