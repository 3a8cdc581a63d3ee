"""A worker whose coordinator hangs up: it ends, and what it leaves alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from streamlet.model.plan import fingerprint, make_plan
from streamlet.model.settings import resolve
from streamlet.runtime.worker.channel import ControlChannel
from streamlet.runtime.worker.loading import load_topology
from streamlet.runtime.worker.messages import Ready, WorkerPlan, from_worker
from tests.patience import PATIENCE_S

FILE = """
from streamlet import Bolt, Spout, Topology

class Numbers(Spout):
    outputs = ["n"]

    def next_tuple(self): ...

class Sink(Bolt):
    def process(self, tup): ...

class T(Topology):
    numbers = Numbers.spec()
    sink = Sink.spec(inputs=[numbers])
"""


def test_a_worker_that_is_given_up_leaves_the_sockets_of_the_others(tmp_path: Path) -> None:
    """It may have stood still, and have a successor whose socket lies in the folder: its parent lives."""
    file, folder = tmp_path / "t.py", tmp_path / "sockets"
    file.write_text(FILE)
    folder.mkdir()
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", "-m", "streamlet.runtime.worker.worker", str(theirs.fileno())]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with theirs:
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environ)
    channel = ControlChannel.inherited(ours)
    try:
        channel.send(_plan(file, folder))
        told = channel.receive(wait=True)
        assert isinstance(from_worker(told[0], 1, 2), Ready)
        channel.close()
        process.wait(PATIENCE_S)
        assert folder.exists()
    finally:
        channel.close()
        process.kill()
        process.wait()


def _plan(file: Path, folder: Path) -> WorkerPlan:
    topology = load_topology(file)
    return WorkerPlan(
        worker=0,
        epoch=1,
        workers=1,
        file=str(file),
        attribute=None,
        fingerprint=fingerprint(make_plan(topology, 1)),
        conf=dict(resolve(topology.config, {})),
        overrides={},
        run_id=b"r" * 16,
        secret=b"s" * 32,
        listen=("unix", str(folder)),
        heartbeat_s=1.0,
        debug=False,
        page="",
        careful=[],
        careful_s=0.0,
        crashes={},
        code={},
        code_folder="",
        build="",
    )
