"""A folder and a home for a page of the documentation; a cluster it starts ends with the test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Sandbox


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    """Where one page is run. A cluster started there goes down when the test, or its runner, has ended."""
    box = Sandbox(tmp_path)
    # The end of this guard's standard input is our end, however we end.
    body = "import sys; sys.stdin.read()\nfrom streamlet.devcluster import resident; resident.down()"
    guard = subprocess.Popen(
        [sys.executable, "-c", body],
        stdin=subprocess.PIPE,
        start_new_session=True,
        cwd=ROOT,
        env={**os.environ, "XDG_STATE_HOME": box.environment["XDG_STATE_HOME"], "PYTHONPATH": str(ROOT)},
    )
    yield box
    guard.communicate()
    assert guard.returncode == 0
