"""A page is shared by two processes through a file, and outlives the one that writes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamlet.runtime.tasks.in_hand import holding
from streamlet.runtime.tasks.untracked_counts import UntrackedCounts
from streamlet.runtime.worker.page_file import make_page, map_page

DIES = """
import os, signal, sys
from streamlet.runtime.tasks.in_hand import InHand
from streamlet.runtime.tasks.untracked_counts import UntrackedCounts
from streamlet.runtime.worker.page_file import map_page
page = map_page(sys.argv[1])
InHand(page).note_tuple(3, 7 << 48, ["last words"], 1.5)
counts = UntrackedCounts(3, page)
counts.done[2], counts.emitted[0], counts.handed[2] = 7, 8, 9
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_wrote_is_read(tmp_path: Path) -> None:
    page = make_page(str(tmp_path / "page"), 3)
    assert holding(page) is None
    assert subprocess.run([sys.executable, "-c", DIES, str(tmp_path / "page")], check=False).returncode == -9
    held = holding(page)
    assert held is not None
    assert (held.task, held.began, held.roots, held.values) == (3, 1.5, (7 << 48,), "['last words']")
    assert UntrackedCounts(3, page).look() == ({3: 7}, {1: 8}, {3: 9})


def test_a_page_that_is_not_there_or_too_small_is_none(tmp_path: Path) -> None:
    assert map_page("") is None and map_page(str(tmp_path / "elsewhere")) is None
    (tmp_path / "short").write_bytes(b"short")
    assert map_page(str(tmp_path / "short")) is None


def test_a_page_is_made_once(tmp_path: Path) -> None:
    make_page(str(tmp_path / "page"), 3)
    with pytest.raises(FileExistsError):
        make_page(str(tmp_path / "page"), 3)
