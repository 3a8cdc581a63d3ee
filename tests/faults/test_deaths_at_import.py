"""Workers that end while they import the topology's file."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from streamlet.backends.contract import RunRequest, Stop
from streamlet.backends.outcome import RunFailed
from streamlet.backends.processes import ProcessesBackend
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.run_observer import Watcher

pytestmark = pytest.mark.faults

FILE = """
import ctypes, os
from streamlet import Bolt, Spout, Topology

if os.getpid() != RUN:
    END

class Numbers(Spout):
    outputs = ["n"]
    def next_tuple(self):
        pass

class Nothing(Bolt):
    def process(self, tup):
        pass

class Ends(Topology):
    numbers = Numbers.spec()
    nothing = Nothing.spec(inputs=[numbers])
"""


@pytest.mark.parametrize(
    ("end", "told"),
    [("os._exit(3)", "ended with status 3"), ("ctypes.string_at(0)", "was killed by SIGSEGV")],
    ids=["exit", "crash"],
)
def test_a_file_that_ends_the_worker_that_imports_it_ends_the_run_in_seconds(
    end: str, told: str, tmp_path: Path
) -> None:
    """It took 21 starts and a minute and a half, and the advice was about components, of which there was none."""
    file = tmp_path / f"ends_{told[-1]}.py"
    file.write_text(FILE.replace("RUN", str(os.getpid())).replace("END", end))
    topology = load_topology(file)
    request = RunRequest(topology, resolve(topology.config, {}), file=file, workers=1, seconds=300)
    watcher, began = Watcher(), time.monotonic()
    with pytest.raises(RunFailed) as failed:
        ProcessesBackend().run(request, watcher, Stop())
    # A core that is written slowly keeps the kernel from saying how: then its channel has told that it ended.
    how, where = f"({told}|hung up)", "while it imported the topology's file, before any component was made"
    assert re.search(f"started 5 times and never came up, the last time because it {how} {where}", failed.value.message)
    assert "look at what that file" in failed.value.message and "components do" not in failed.value.message
    assert sum(where in text for text in watcher.texts) == 5, watcher.texts
    assert time.monotonic() - began < 60
