"""Trees that were open when the worker of their spout died are not done because its replacement is quiet."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.backends.outcome import TuplesLeft
from streamlet.backends.processes import ProcessesBackend
from streamlet.cli.show import ending
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from streamlet.runtime.worker.loop import SPOUT_BUDGET
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

pytestmark = pytest.mark.faults

FILE = """
import os, time
from pathlib import Path
from streamlet import Backoff, Bolt, ReliableSpout, Spout, Topology

NOTES = Path(__file__).parent

class Begins(ReliableSpout):
    # It begins again at its first number, and takes its time for that.
    outputs = ["n"]
    def initialize(self, conf, context):
        begins_again = (NOTES / "pid").exists()
        (NOTES / "pid").write_text(str(os.getpid()))
        time.sleep(0.5 * begins_again)
        self.n = 0
    def next_tuple(self):
        if self.n < 600:
            self.n += 1
            self.emit([self.n], self.n)

class Slowly(Begins):
    # Second time it is slow: what it sends first was acked.
    def initialize(self, conf, context):
        self.pause_s = 0.05 * (NOTES / "pid").exists()
        super().initialize(conf, context)
    def next_tuple(self):
        time.sleep(self.pause_s)
        super().next_tuple()

class Silent(Begins):
    # Second time its source is away.
    def initialize(self, conf, context):
        self.away = (NOTES / "pid").exists()
        super().initialize(conf, context)
    def next_tuple(self):
        if not self.away:
            super().next_tuple()

class Durable(Begins):
    # A queue that hands out again what was not acked.
    answers_for_failures = True
    def initialize(self, conf, context):
        super().initialize(conf, context)
        self.acked = open(NOTES / "acked", "a+", buffering=1)
        self.acked.seek(0)
        self.known = {int(line) for line in self.acked}
    def next_tuple(self):
        while self.n < 600 and self.n + 1 in self.known:
            self.n += 1
        super().next_tuple()
    def ack(self, tup_id):
        super().ack(tup_id)
        self.acked.write(f"{tup_id}\\n")

class Forgets(Spout):
    # A queue that forgets what it has handed out: its place outlives the process.
    outputs = ["n"]
    place = NOTES / "place"
    def initialize(self, conf, context):
        (NOTES / "pid").write_text(str(os.getpid()))
        self.n = int(self.place.read_text()) if self.place.exists() else 0
    def next_tuple(self):
        if self.n < 600:
            self.n += 1
            Path(f"{self.place}.new").write_text(str(self.n))
            os.replace(f"{self.place}.new", self.place)
            self.emit([self.n], self.n)
    def caught_up(self):
        return self.n >= 600

class Waits(Silent):
    # Every tenth fails once, and waits long for its next try; nothing else is open when its worker dies.
    max_fails = None
    replay_backoff = Backoff(initial=1000.0, maximum=1000.0)
    asked = 0
    def next_tuple(self):
        super().next_tuple()
        self.asked += len(self.unacked_tuples) <= self.n // 10 == 60  # once the page of its worker is of now, too
        if self.asked > 9 and not self.away:
            os.kill(os.getpid(), 9)

class Store(Bolt):
    def initialize(self, conf, context):
        self.file = open(NOTES / "stored", "a")
    def process(self, tup):
        if "SPOUT" == "Waits":
            if tup.values[0] % 10 == 0:
                raise ValueError("not yet")
        else:
            time.sleep(0.005)
        self.file.write(f"{tup.values[0]}\\n")
        self.file.flush()

class Made(Topology):
    numbers = SPOUT.spec()
    store = Store.spec(inputs=[numbers], par=2)
"""


class Killing(Watcher):
    """Kills the spout's worker when some numbers are stored; asks for the end while its replacement begins."""

    def __init__(self, folder: Path, stop: Stop | None, lives_s: float = 0.0, after: int = 60) -> None:
        super().__init__()
        self.after = after
        self.lives_s = lives_s
        self.folder, self.stop = folder, stop
        self.thread = threading.Thread(target=self.kill)
        self.thread.start()

    def kill(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        stored = self.folder / "stored"
        while not stored.exists() or len(stored.read_text().split()) < self.after:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        killed = (self.folder / "pid").read_text()
        os.kill(int(killed), signal.SIGKILL)
        while self.stop is not None and (self.folder / "pid").read_text() in ("", killed):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(self.lives_s)
        if self.stop is not None:
            self.stop.ask()


def ran(folder: Path, spout: str, watcher: Watcher, stop: Stop, **more: Any) -> RunResult:
    file = folder / f"owes_{spout.lower()}.py"
    file.write_text(FILE.replace("SPOUT", spout))
    topology = load_topology(file)
    until = {"streamlet.until.caught.up": more.get("until_caught_up", False)}
    settings = {key: more.pop(key) for key in [*more] if "." in key}
    conf = resolve(topology.config, {"streamlet.worker.heartbeat.secs": 0.2, **until, **settings})
    request = RunRequest(topology, conf, file=file, attribute="Made", workers=2, **more)
    return ProcessesBackend().run(request, watcher, stop)


def stored(folder: Path) -> int:
    return len({*(folder / "stored").read_text().split()})


def test_what_a_dead_spout_had_open_is_open_when_the_run_ends_before_its_replacement_sends_it(tmp_path: Path) -> None:
    """A replacement that stands when the run ends is asked for nothing; the run said that all was done."""
    stop = Stop()
    watcher = Killing(tmp_path, stop)
    result = ran(tmp_path, "Begins", watcher, stop)
    watcher.thread.join()
    assert (result.reason, result.drained) == ("interrupted", False)
    assert result.status.pending == result.components["numbers"].open > 0
    assert not any("what was open is replayed" in text for text in watcher.texts), watcher.texts


def test_what_a_dead_spout_had_open_is_in_doubt_when_its_replacement_has_not_come_so_far(tmp_path: Path) -> None:
    """It stood, and sent again what was acked before; the run said that all was done, and no more."""
    stop = Stop()
    watcher = Killing(tmp_path, stop, lives_s=0.8)
    result = ran(tmp_path, "Slowly", watcher, stop)
    watcher.thread.join()
    numbers = result.components["numbers"]
    assert (result.reason, result.drained, numbers.owed) == ("interrupted", True, 0)
    assert 600 - stored(tmp_path) > 0 and numbers.in_doubt > 0
    assert re.search(r"done; \d+ tuple trees? of numbers were open when a worker died, and only", ending(result))


def test_a_run_whose_time_is_over_before_a_dead_spouts_replacement_emits_fails_and_says_so(tmp_path: Path) -> None:
    watcher = Killing(tmp_path, None)
    with pytest.raises(TuplesLeft, match=r"what a dead worker had open came again: it left [\d,]+ open") as caught:
        ran(tmp_path, "Silent", watcher, Stop(), seconds=8.0)
    watcher.thread.join()
    assert caught.value.exit_status == 1


def test_what_waited_for_its_next_try_when_its_spout_died_is_owed_like_an_open_tree(tmp_path: Path) -> None:
    """No tree of it was open: the run said that everything was done, status 0, with 60 of 600 missing."""
    with pytest.raises(TuplesLeft, match=r"what a dead worker had open came again: it left 60 open") as caught:
        ran(tmp_path, "Waits", Watcher(), Stop(), seconds=4.0, **{"streamlet.worker.heartbeat.secs": 5.0})
    assert caught.value.result is not None
    numbers = caught.value.result.components["numbers"]
    assert (numbers.open, numbers.owed) == (60, 60) and stored(tmp_path) == 540


def test_a_durable_spout_that_had_nothing_open_owes_nothing_and_waits_for_nothing(tmp_path: Path) -> None:
    """All was acked since the last heartbeat. Its replacement has nothing to send, and it would be open for days."""
    stop = Stop()
    watcher = Killing(tmp_path, stop, lives_s=1.0, after=600)
    result = ran(tmp_path, "Durable", watcher, stop, **{"streamlet.worker.heartbeat.secs": 3.0})
    watcher.thread.join()
    assert result.drained and result.components["numbers"].open == 0 and stored(tmp_path) == 600


def test_open_trees_of_a_spout_that_sends_nothing_again_are_lost_with_its_worker(tmp_path: Path) -> None:
    """Of 600 hundreds were never stored, and the run ended with status 0."""
    stop = Stop()
    watcher = Killing(tmp_path, None)
    with pytest.raises(TuplesLeft, match=r"tuples were lost: (up to )?[\d,]+ at numbers") as caught:
        ran(tmp_path, "Forgets", watcher, stop, until_caught_up=True)
    watcher.thread.join()
    assert caught.value.result is not None
    lost = caught.value.result.components["numbers"].lost
    # Those of the turn in which it died had not left.
    assert 0 < 600 - stored(tmp_path) <= lost + SPOUT_BUDGET
    assert any("open tuple trees along" in text for text in watcher.texts)
