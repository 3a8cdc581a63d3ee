"""Temporary directories go with their owners."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from streamlet.devcluster.machine import OwnedDirectory, sweep


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_dead_owners_directory_is_swept_and_a_living_ones_is_not(temporary: Path) -> None:
    """Whoever makes the next one cleans up after the killed."""
    program = (
        "import os, sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from streamlet.devcluster.machine import OwnedDirectory\n"
        "print(OwnedDirectory().path, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, temporary], stdout=subprocess.PIPE, text=True, check=False)
    dead = Path(done.stdout.strip())
    assert dead.is_dir()
    unmarked = temporary / "streamlet-dev-just-made"
    unmarked.mkdir()
    living = OwnedDirectory()
    assert not dead.exists()
    assert sweep() == []
    assert living.path.exists() and unmarked.exists()
    living.remove()
