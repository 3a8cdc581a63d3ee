"""Two programs of docs/guide/delivery-semantics.md, killed at the moment that tells them apart: around a commit.

The broker kills: when the commit of a certain offset comes in, either before it is stored or after that.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streamlet.kafka.protocol.schema import ApiKey
from tests.docs.pages import ROOT, blocks
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import CLOSE
from tests.scripted.fake_cluster import FakeCluster

PAGE = ROOT / "docs" / "guide" / "delivery-semantics.md"
RECORDS, KILLED_AT = 60, 30
THOSE_BEFORE = {str(number) for number in range(KILLED_AT - 10, KILLED_AT)}
"""The records that the killed commit is about: a poll gives ten."""


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def run_twice(name: str, group: str, stored: bool, folder: Path) -> Counter[str]:
    """Kill a program of the page at a commit, run it again to the end; return how often each record was done."""
    file, out = folder / name, folder / "out"
    file.write_text(next(block.text for block in blocks(PAGE) if block.says.get("file") == name))
    with FakeCluster().fill("t", RECORDS) as cluster:
        running: list[subprocess.Popen[bytes]] = []

        def commit(request: Any) -> Any:
            ends = {row.committed_offset for topic in request.topics for row in topic.partitions}
            if len(running) > 1 or KILLED_AT not in ends:
                return cluster.commit(request)
            if stored:
                cluster.commit(request)
            running[0].kill()
            return CLOSE

        cluster.broker.on(ApiKey.OFFSET_COMMIT, commit)
        arguments = [sys.executable, str(file), cluster.broker.address, "t", str(out)]
        deadline = time.monotonic() + PATIENCE_S
        for _ in range(2):
            environ = {**os.environ, "PYTHONPATH": str(ROOT)}
            process = subprocess.Popen(arguments, env=environ, preexec_fn=_die_with_parent)
            running.append(process)
            try:
                while process.poll() is None and not at_the_end(cluster, group, out):
                    assert time.monotonic() < deadline
                    time.sleep(0.005)
            finally:
                process.kill()
                process.wait(10)
        assert at_the_end(cluster, group, out), "the second run ends because all is done, and not by itself"
        return Counter(out.read_text().split())


def at_the_end(cluster: FakeCluster, group: str, out: Path) -> bool:
    kept = cluster.committed.get((group, "t", 0))
    done = kept is not None and kept.committed_offset == RECORDS
    return done and out.exists() and str(RECORDS - 1) in out.read_text().split()


@pytest.mark.parametrize("stored", [True, False], ids=["after the commit", "before the commit"])
def test_c9_at_most_once_loses_what_was_committed_and_not_done(stored: bool, tmp_path: Path) -> None:
    """Committed and killed: these are never done. Killed before that: nothing is lost. Nothing is ever done twice."""
    found = run_twice("at_most_once.py", "most", stored, tmp_path)
    everything = {str(number) for number in range(RECORDS)}
    assert set(found) == (everything - THOSE_BEFORE if stored else everything)
    assert set(found.values()) == {1}


@pytest.mark.parametrize("stored", [True, False], ids=["after the commit", "before the commit"])
def test_c9_at_least_once_does_again_what_was_done_and_not_committed(stored: bool, tmp_path: Path) -> None:
    """Killed before the commit is stored: these are done twice. After that: once, as all others. None is lost."""
    found = run_twice("at_least_once.py", "least", stored, tmp_path)
    assert set(found) == {str(number) for number in range(RECORDS)}
    assert {value for value, times in found.items() if times == 2} == (set() if stored else THOSE_BEFORE)
    assert set(found.values()) <= {1, 2}
