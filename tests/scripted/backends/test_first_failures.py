"""A bolt that fails every tuple is shown at once, with its traceback, and ends the run."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from streamlet.backends.contract import RunRequest, RunStatus, Stop
from streamlet.backends.inline import InlineBackend
from streamlet.backends.processes import ProcessesBackend
from streamlet.model.settings import resolve
from streamlet.runtime.tasks.user_errors import EveryTupleFailed
from streamlet.runtime.worker.loading import load_topology
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

FILE = """
from streamlet import Bolt, ReliableSpout, Topology

class Numbers(ReliableSpout):
    outputs = ["n"]
    max_fails = None
    answers_for_failures = True  # what is left when the time is over is no matter of these tests
    n = 0
    def next_tuple(self):
        if self.n < 20_000:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return self.n == 20_000 and not self.has_unfinished()

def look_up(word):
    return {}[word]

class Typo(Bolt):
    seen = 0
    def process(self, tup):
        self.seen += 1
        if self.seen > GOOD or self.seen in (1, 2):
            look_up(tup.values[0])
    def cleanup(self):
        print(self.seen)

class Made(Topology):
    numbers = Numbers.spec()
    typo = Typo.spec(inputs=[numbers])
"""


class EndsAfter(Watcher):
    """Ends the run once a bolt has raised more than so often."""

    def __init__(self, errors: float) -> None:
        super().__init__()
        self.stop = Stop()
        self.errors = errors

    def on_status(self, status: RunStatus) -> None:
        super().on_status(status)
        if any(row.errors > self.errors for row in status.components):
            self.stop.ask()


def run(folder: Path, backend: str, good: int = 0, errors: float = math.inf, **conf: Any) -> Watcher:
    file = folder / f"typo_{backend}_{good}_{len(conf)}.py"
    file.write_text(FILE.replace("GOOD", str(good)))
    topology = load_topology(file)
    watcher = EndsAfter(errors)
    request = RunRequest(topology, resolve(topology.config, conf), file=file, workers=2, seconds=PATIENCE_S)
    runner: Any = InlineBackend() if backend == "inline" else ProcessesBackend()
    try:
        runner.run(request, watcher, watcher.stop)
    finally:
        shown = [text for level, text in watcher.events if level == "error"]
        assert "typo (task 2) raised KeyError at" in shown[0] and "typo_" in shown[0]
        assert "return {}[word]" in shown[0] and "look_up(tup.values[0])" in shown[0], "no traceback"
        assert "bolt_task.py" not in shown[0], "of the user's lines alone"
        assert sum("return {}[word]" in text for text in shown) == 1, "the first one alone"
    return watcher


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_run_whose_first_1000_tuples_all_fail_ends_with_the_error(tmp_path: Path, backend: str) -> None:
    with pytest.raises(Exception, match=r"typo \(task 2\) raised on each of its first [\d,]+ tuples") as caught:
        run(tmp_path, backend)
    text = str(caught.value)
    assert "KeyError" in text and "first_failures" not in text and "streamlet.first.failures.max" in text
    assert "each of its first 1,000 tuples, the last time KeyError" in text
    assert "they are read again, but for those that a spout has given up by then or that are not tracked" in text
    assert backend == "processes" or isinstance(caught.value, EveryTupleFailed)


GIVEN_UP = """
from typo_{name} import Numbers
from streamlet import Bolt, Topology

class Few(Numbers):
    max_fails = 0

class Fails(Bolt):
    def process(self, tup):
        raise ConnectionError("away")

class GivesUp(Topology):
    config = {{"topology.max.spout.pending": 100}}
    numbers = Few.spec()
    fails = Fails.spec(inputs=[numbers], par=8)
"""


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_each_task_counts_its_own_first_failures_and_more_have_failed_by_then(tmp_path: Path, backend: str) -> None:
    """As the page says: with eight tasks each of them may have failed nearly as many, and what is given up is told."""
    (tmp_path / f"typo_{tmp_path.name}.py").write_text(FILE.replace("GOOD", "0"))
    file = tmp_path / f"gives_up_{tmp_path.name}_{backend}.py"
    file.write_text(GIVEN_UP.format(name=tmp_path.name))
    topology = load_topology(file, "GivesUp")
    conf = resolve(topology.config, {"streamlet.first.failures.max": 100})
    request = RunRequest(topology, conf, file=file, attribute="GivesUp", workers=1, seconds=PATIENCE_S)
    runner: Any = InlineBackend() if backend == "inline" else ProcessesBackend()
    with pytest.raises(Exception, match=r"^fails \(task \d\) raised on each of its first 100 tuples") as caught:
        runner.run(request, Watcher(), Stop())
    row = getattr(caught.value, "result").components["numbers"]  # noqa: B009 - of an Exception
    assert 100 <= row.given_up <= 8 * 100 + 100, "no more than each task its first, and what is under way"
    assert row.given_up > 100, "more than one task's"


FAILS = """
from typo_{name} import Numbers
from streamlet import Bolt, Topology

class Fails(Bolt):
    seen = 0
    def process(self, tup):
        self.seen += 1
        if {raises} and self.seen % 2:
            raise ConnectionError("away")
        self.fail(tup)

class Catches(Topology):
    numbers = Numbers.spec()
    fails = Fails.spec(inputs=[numbers])

class FailsAtTick(Bolt):
    config = {{"topology.tick.tuple.freq.secs": 0.1}}
    auto_ack = False
    def initialize(self, conf, context):
        self.kept = []
    def process(self, tup):
        self.kept.append(tup)
    def process_tick(self, tup):
        for one in self.kept:
            self.fail(one)
        self.kept.clear()

class Collects(Topology):
    numbers = Numbers.spec()
    fails = FailsAtTick.spec(inputs=[numbers])
"""


@pytest.mark.parametrize("backend", ["inline", "processes"])
@pytest.mark.parametrize(
    ("name", "raises", "how"),
    [
        ("Catches", False, r"failed each of its first 1,000 tuples by itself: it called self\.fail, and .*"),
        ("Catches", True, r"raised on, or failed by itself \(\d+\), each of its first 1,000 tuples, the last time it "
                          r"raised ConnectionError \(.*\): away"),
        ("Collects", False, r"failed each of its first 1,000 tuples by itself: it called self\.fail, .*"),
    ],
)  # fmt: skip
def test_a_run_whose_first_1000_tuples_the_bolt_fails_by_itself_ends_too(
    tmp_path: Path, backend: str, name: str, raises: bool, how: str
) -> None:
    """A client that is set up wrong, whose errors the bolt catches, is what fails them all."""
    (tmp_path / f"typo_{tmp_path.name}.py").write_text(FILE.replace("GOOD", "0"))
    file = tmp_path / f"fails_{tmp_path.name}_{backend}.py"
    file.write_text(FAILS.format(name=tmp_path.name, raises=raises))
    topology = load_topology(file, name)
    request = RunRequest(topology, resolve(topology.config, {}), file=file, attribute=name, workers=2, seconds=30.0)
    runner: Any = InlineBackend() if backend == "inline" else ProcessesBackend()
    with pytest.raises(Exception, match=rf"^fails \(task 2\) {how}\. What fails every tuple"):
        runner.run(request, Watcher(), Stop())


@pytest.mark.parametrize(("good", "conf"), [(3, {}), (0, {"streamlet.first.failures.max": 0})])
def test_one_success_or_the_setting_lets_the_run_go_on(tmp_path: Path, good: int, conf: dict[str, Any]) -> None:
    watcher = run(tmp_path, "inline", good, errors=2000, **conf)
    assert watcher.stop.asked, "it ended by itself"


ACKS_FIRST = """
from typo_{name} import Numbers
from streamlet import Bolt, Topology

class AcksFirst(Bolt):
    outputs = ["n"]
    auto_ack = False
    def process(self, tup):
        self.ack(tup)
        self.emit([tup.values[0]])

class Acks(Topology):
    numbers = Numbers.spec()
    acks = AcksFirst.spec(inputs=[numbers])
"""


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_run_whose_first_1000_tuples_are_acked_and_then_all_fail_ends_too(tmp_path: Path, backend: str) -> None:
    """An emit behind the ack is refused each time: nothing came through, and the run ended with status 0."""
    (tmp_path / f"typo_{tmp_path.name}.py").write_text(FILE.replace("GOOD", "0"))
    file = tmp_path / f"acks_{tmp_path.name}_{backend}.py"
    file.write_text(ACKS_FIRST.format(name=tmp_path.name))
    topology = load_topology(file, "Acks")
    request = RunRequest(topology, resolve(topology.config, {}), file=file, attribute="Acks", workers=2, seconds=30.0)
    runner: Any = InlineBackend() if backend == "inline" else ProcessesBackend()
    with pytest.raises(Exception, match=r"raised on each of its first 1,000 tuples, the last time BadEmit") as caught:
        runner.run(request, Watcher(), Stop())
    assert re.search(r"had acked 1,0\d\d before it raised; those are not read again\.", str(caught.value))
