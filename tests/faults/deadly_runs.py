"""Runs of a topology in which one tuple of 3,000 is deadly, and what became of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.backends.outcome import TreesFailed
from streamlet.backends.processes import ProcessesBackend
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

COUNT = 3000

FILE = """
import ctypes, os, signal, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from streamlet import AsyncBolt, Bolt, ReliableSpout, ThreadedBolt, TicklessBatchingBolt, Topology

COUNT = 3000
FOLDER = Path(__file__).parent

class Numbers(ReliableSpout):
    outputs = ["n", "text"]
    def initialize(self, conf, context):
        self.n = 0
    def next_tuple(self):
        if self.n < COUNT:
            self.n += 1
            self.emit([self.n, f"number {self.n}"], tup_id=self.n)
    def caught_up(self):
        return self.n == COUNT and not self.has_unfinished()
    def given_up(self, tup_id, values, fails):
        super().given_up(tup_id, values, fails)
        with (FOLDER / "given_up").open("a") as file:
            file.write(f"{tup_id} {self.fail_reason.name}\\n")

def segfault():
    ctypes.string_at(0)

def leave():
    os._exit(7)

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def leave_once():
    try:
        (FOLDER / "left").touch(exist_ok=False)
    except FileExistsError:
        return
    os._exit(7)

def hang():
    threading.Event().wait()

class Pass(Bolt):
    outputs = ["n", "text"]
    def process(self, tup):
        self.emit(tup.values)

class Records(Bolt):
    def initialize(self, conf, context):
        self.out = (FOLDER / f"done.{context.task_id}.{context.epoch}").open("a", buffering=1)
    def work_on(self, tup):
        if tup.values[0] == 1234:
            HOW()
        self.out.write(f"{tup.values[0]}\\n")
DEADLY
class Made(Topology):
    numbers = Numbers.spec()
    passing = Pass.spec(inputs=[numbers])
    deadly = Deadly.spec(inputs=[passing], par=PAR)
    if Deadly.outputs:
        behind = Behind.spec(inputs=[deadly])
"""


PLAIN = """
class Deadly(Records):
    def process(self, tup):
        self.work_on(tup)
"""


def run(
    folder: Path, how: str, workers: int, par: int = 1, deadly: str = PLAIN, **conf: Any
) -> tuple[Watcher, RunResult | TreesFailed]:
    file = folder / f"deadly_{folder.name}.py"  # a module is imported once
    file.write_text(FILE.replace("DEADLY", deadly).replace("HOW", how).replace("PAR", str(par)))
    topology = load_topology(file)
    settings = {
        "streamlet.until.caught.up": True,
        "streamlet.worker.heartbeat.secs": 0.2,
        "streamlet.worker.restarts.max": 5,
        **conf,
    }
    request = RunRequest(
        topology, resolve(topology.config, settings), file=file, workers=workers, until_caught_up=True,
        seconds=PATIENCE_S,
    )  # fmt: skip
    watcher = Watcher()
    try:
        return watcher, ProcessesBackend().run(request, watcher, Stop())
    except TreesFailed as failed:  # a message was given up, and no policy of the class says that this is right
        return watcher, failed


def done(folder: Path) -> Counter[int]:
    return Counter(int(line) for file in folder.glob("done.*") for line in file.read_text().split())


def deaths(watcher: Watcher) -> list[str]:
    return [text for text in watcher.texts if text.startswith("worker ") and " deadly (task " in text]
