"""A shuffle between two workers keeps its tuples near while there is room, and shares the work when there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamlet.backends.contract import RunRequest, Stop
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.conformance.conftest import backend_named
from tests.conformance.near_or_far import SPOUT_PID
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher

FILE = Path(__file__).with_name("near_or_far.py")


def seen_near_and_far(folder: Path, last: int, **config: Any) -> tuple[int, int]:
    """How many of the last numbers were processed in the spout's worker, and in the other."""
    topology = load_topology(FILE)
    own = {key.replace("__", "."): value for key, value in config.items()}
    conf = resolve(topology.config, {"near.folder": str(folder), "streamlet.until.caught.up": True, **own})
    request = RunRequest(
        topology, conf, file=FILE, attribute="NearOrFar", workers=2, seconds=PATIENCE_S, until_caught_up=True
    )
    result = backend_named("processes").run(request, Watcher(), Stop())
    assert result.reason == "caught_up"
    numbers = {path.stem: {int(line) for line in path.read_text().split()} for path in folder.glob("*.seen")}
    count = conf["near.count"]
    assert sum(map(len, numbers.values())) == count == len(set().union(*numbers.values())), "each number once"
    near = numbers[(folder / SPOUT_PID).read_text()]
    in_spouts_worker = len(near & {*range(count - last, count)})
    return in_spouts_worker, last - in_spouts_worker


def test_with_little_to_do_tuples_stay_in_their_worker(tmp_path: Path) -> None:
    near, far = seen_near_and_far(tmp_path, 400)
    assert near > far, "half of them left for a worker that had no more room than this one"


def test_when_its_worker_is_busy_the_other_gets_its_share(tmp_path: Path) -> None:
    """Two seconds of work a second: two workers do as much together. Few may be open: each share is of loads seen."""
    busy = {"near__work__secs": 0.005, "near__rate": 10_000, "topology__max__spout__pending": 40}
    near, far = seen_near_and_far(tmp_path, 1200, **busy)
    assert far > 300 < near


def test_storms_setting_makes_it_even(tmp_path: Path) -> None:
    even = {"topology__disable__loadaware__messaging": True}
    assert seen_near_and_far(tmp_path, 1600, **even) == (800, 800)
