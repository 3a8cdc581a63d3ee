"""What workers hold at most, seen from outside: the highest resident memory of their processes, as Linux counts it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.backends.processes import ProcessesBackend
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.marked_processes import command_line
from tests.run_observer import Watcher
from tests.scripted.fake_cluster import FakeCluster
from tests.whole_batches import BatchFields, NewRecord, encode_batch

HOARDS = Path(__file__).parents[2] / "topologies" / "hoards.py"
HELD_MIB = 64
"""What a worker may hold here, by its setting."""
ALLOWED_MIB = HELD_MIB + 60


def _children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has just ended
            found += map(int, (task / "children").read_text().split())
    return found


class Highest:
    """The highest resident memory of each process of a module that this one has started, while the context is open."""

    def __init__(self, module: str = "streamlet.runtime.worker.worker") -> None:
        self.module = module
        self.mib: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Highest:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            for pid in _children():
                try:
                    if self.module in command_line(pid):
                        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                        self.mib[pid] = next(int(line.split()[1]) / 1024 for line in lines if "VmHWM" in line)
                except (OSError, StopIteration):  # it has just ended
                    continue


def run(
    name: str, workers: int = 1, overrides: Mapping[str, Mapping[str, Any]] = {}, **conf: Any
) -> tuple[RunResult, dict[int, float]]:
    """Run a topology to its end; return how it ended, and the most that each worker held (MiB)."""
    topology = load_topology(HOARDS, name)
    given = {
        "streamlet.worker.memory.bytes": HELD_MIB << 20,
        "topology.message.timeout.secs": 120,
        "streamlet.until.caught.up": True,
        **conf,
    }
    request = RunRequest(
        topology,
        resolve(topology.config, given),
        overrides,
        file=HOARDS,
        attribute=name,
        workers=workers,
        until_caught_up=True,
    )
    with Highest() as highest:
        result = ProcessesBackend().run(request, Watcher(), Stop())
    return result, highest.mib


@pytest.mark.parametrize("collector", ["ours", "own"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_fan_out_between_bolts_stays_within_what_a_worker_may_hold(workers: int, collector: str) -> None:
    """2 000 open trees, each of 200 tuples of half a kilobyte: without a bound they are all there at once."""
    result, mib = run("FanOut", workers, collector=collector)
    assert result.components["count"].acked == 400_000
    assert max(mib.values()) < ALLOWED_MIB


@pytest.mark.parametrize(("name", "tuples"), [("OneCall", 800_000), ("OneCallOfNumbers", 2_000_000)])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_one_call_emits_is_held_by_its_own_worker_and_by_no_other(workers: int, name: str, tuples: int) -> None:
    """20 MB of a call: they come on top where it is made; the receiver is sent no more than it may hold."""
    result, mib = run(name, workers)
    assert result.components["count"].acked == tuples
    assert max(mib.values()) < ALLOWED_MIB
    if workers == 2:
        assert min(mib.values()) < HELD_MIB


def test_what_one_call_emits_stays_within_it_inline() -> None:
    with Highest("streamlet") as highest:
        told = ["run", f"{HOARDS}:OneCall", "--backend", "inline", "--until-caught-up"]
        told += ["-c", f"streamlet.worker.memory.bytes={HELD_MIB << 20}"]
        done = subprocess.run([sys.executable, "-m", "streamlet", *told], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "800,000" in done.stdout
    assert max(highest.mib.values()) < ALLOWED_MIB


@pytest.mark.parametrize("collector", ["ours", "own"])
def test_messages_that_wait_for_their_replay_stay_within_it(collector: str) -> None:
    """Failed messages are no open trees: only their bytes can stop new ones."""
    result, mib = run("Failing", collector=collector)
    assert result.components["messages"].acked == 150_000
    assert max(mib.values()) < ALLOWED_MIB


def test_rare_large_messages_among_small_ones_stay_within_it() -> None:
    """One in 64, which no look at one in so many may see."""
    result, mib = run("HeldMixed")
    assert result.components["messages"].acked == 64 * 200
    assert max(mib.values()) < ALLOWED_MIB


@pytest.mark.parametrize("workers", [1, 2])
def test_rare_large_rows_among_small_ones_stay_within_it(workers: int) -> None:
    """Before a bolt, where one row in 64 is measured: at no place among them may the large ones hide."""
    for offset in (0, 33):
        result, mib = run("WaitingMixed", workers, offset=offset)
        assert result.components["slow"].acked == 64 * 200
        assert max(mib.values()) < ALLOWED_MIB, offset


@pytest.mark.parametrize("workers", [1, 2])
def test_large_rows_among_empty_ones_that_a_fast_bolt_makes_stay_within_it(workers: int) -> None:
    """One in five: a slice of 128 has 25 MB of them, in a few milliseconds, and one row by chance seldom tells."""
    for _ in range(3):
        result, mib = run("GrowOfFewToSlow", workers)
        assert result.components["slow"].acked == 2000
        assert max(mib.values()) < ALLOWED_MIB


@pytest.mark.parametrize("name", ["LargeRowsToSlow", "GrowToSlow"])
@pytest.mark.parametrize("workers", [1, 2])
def test_rows_of_a_megabyte_that_are_made_faster_than_worked_on_stay_within_it(workers: int, name: str) -> None:
    """By a spout without ids, or by a bolt: each in a call of its own, and a turn has time for a hundred."""
    result, mib = run(name, workers)
    assert result.components["slow"].acked == 400
    assert max(mib.values()) < ALLOWED_MIB


def run_failing_records(
    each: int, workers: int = 1, small: int = 0, size: int = 1000, retry_ms: int = 1000, **conf: Any
) -> tuple[RunResult, dict[int, float]]:
    """Run one where each record of ``size`` fails once; so many lie in each of four partitions.

    Behind each are so many ``small`` ones that do not.
    """
    value, in_batch = b"x" * size, 250_000 // size
    with FakeCluster({"lines": 4}) as cluster:
        for partition in range(4):
            first, end = partition * each, (partition + 1) * each
            for base in range(first, end, in_batch):
                records: list[NewRecord] = []
                for number in range(base, min(base + in_batch, end)):
                    records += [NewRecord(b"%06d" % number + value)] + [NewRecord(b"small")] * small
                cluster.log("lines", partition).append(encode_batch(records, BatchFields()))
        where = {"lines": {"hosts": f"kafka://{cluster.broker.address}", "retry_initial_delay_ms": retry_ms}}
        return run("FailingRecords", workers, where, **conf)


@pytest.mark.parametrize("collector", ["ours", "own"])
@pytest.mark.parametrize(("held_mib", "each"), [(16, 8000), (HELD_MIB, 20_000)])
def test_records_that_wait_for_their_retry_stay_within_it(held_mib: int, each: int, collector: str) -> None:
    """Of a KafkaSpout, where each partition alone may keep 64 MiB; a worker may keep half of its memory."""
    held = {"streamlet.worker.memory.bytes": held_mib << 20}
    result, mib = run_failing_records(each, collector=collector, **held)
    assert result.components["fails"].failed == 4 * each == result.components["lines"].acked
    assert max(mib.values()) < held_mib + 60


def test_larger_records_that_fail_among_small_ones_stay_within_it() -> None:
    """120 MB of records below 16 KiB, one in eight: a mean of all that was read would let the spout keep them all."""
    result, mib = run_failing_records(2000, small=7, size=15_000, retry_ms=2500)
    assert result.components["fails"].failed == 8000 and result.components["lines"].acked == 64_000
    assert max(mib.values()) < ALLOWED_MIB


@pytest.mark.parametrize("collector", ["ours", "own"])
@pytest.mark.parametrize(("nodes", "size", "kept"), [(20, 1000, 500), (5, 20_000, 100), (2, 100_000, 0)])
def test_garbage_in_reference_cycles_stays_within_it(nodes: int, size: int, kept: int, collector: str) -> None:
    """Whether it dies young, after a while, or in few large objects that hardly count as allocations."""
    result, mib = run(
        "Trees", messages=6000 if size > 20_000 else 30_000, nodes=nodes, bytes=size, kept=kept, collector=collector
    )
    assert result.components["parse"].acked == result.components["messages"].emitted > 0
    assert max(mib.values()) < ALLOWED_MIB
