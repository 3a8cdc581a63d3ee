"""When a worker looks for garbage in reference cycles."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from streamlet.runtime.worker import collector
from streamlet.runtime.worker.collector import ALL, CALM_S, LEAST_ALLOCATIONS, RAISED, YOUNG, Collector, GarbageWatch

MIB = 1 << 20
STEP = 16 * MIB


class Process:
    """A process whose memory is what lives, and young and old garbage; a second a look."""

    def __init__(self) -> None:
        self.live, self.young, self.old, self.now = 40 * MIB, 0, 0, 0.0
        self.watch = GarbageWatch(self.resident, STEP)
        self.collections: list[int] = []
        self.highest = self.found = 0

    @property
    def resident(self) -> int:
        return self.live + self.young + self.old

    def look(self, took_s: float = 0.001) -> None:
        self.now += 1.0
        self.highest = max(self.highest, self.resident)
        generation = self.watch.due(self.resident, self.now)
        if generation is None:
            return
        self.collections.append(generation)
        before = self.resident
        self.young = 0
        if generation == ALL:
            self.old = 0
        self.watch.collected(generation, self.found, before, self.resident, took_s, self.now)


def test_nothing_is_collected_while_memory_stays() -> None:
    process = Process()
    for n in range(100):
        process.young = n % 10 * MIB
        process.look()
    assert process.collections == []


def test_young_garbage_never_grows_beyond_a_step_and_python_looks_more_often() -> None:
    """One call of a user's may make gigabytes of it, and only Python itself can look meanwhile."""
    process = Process()
    for _ in range(1000):
        process.young += 4 * MIB
        process.look()
    assert process.highest <= 40 * MIB + STEP + 4 * MIB and set(process.collections) == {YOUNG}
    assert process.watch.allocations == LEAST_ALLOCATIONS


def test_old_garbage_is_found_when_the_young_was_not_it() -> None:
    process = Process()
    for _ in range(1000):
        process.old += 4 * MIB
        process.look()
    assert process.highest <= 40 * MIB + 2 * STEP and process.collections.count(ALL) > 100


def test_old_garbage_does_not_grow_while_young_garbage_keeps_being_found() -> None:
    """Of each round's 20 MiB the young collection gives back 14; the rest has outlived one and waits for all."""
    process = Process()
    for _ in range(1000):
        process.young, process.old = 14 * MIB, process.old + 6 * MIB
        process.look()
    assert process.highest <= 40 * MIB + 2 * STEP + 20 * MIB


def test_what_grows_and_is_no_garbage_is_looked_at_ever_more_rarely() -> None:
    """A bolt that counts words for a day: each look would take longer than the one before."""
    process = Process()
    for _ in range(2560):
        process.live += 4 * MIB
        process.look()
    assert process.collections.count(ALL) <= 12


def test_a_collection_that_takes_long_and_gives_nothing_waits_with_the_next_one() -> None:
    process = Process()
    for _ in range(100):
        process.live += STEP
        process.look(took_s=2.0)
    assert len(process.collections) <= 14


def test_python_looks_rarely_again_when_nothing_grows_any_more() -> None:
    process = Process()
    for _ in range(50):
        process.young += STEP
        process.look()
    assert process.watch.allocations == LEAST_ALLOCATIONS
    for _ in range(int(CALM_S * 10)):
        process.look()
    assert process.watch.allocations == RAISED[0]


def test_garbage_is_looked_for_as_before_when_its_places_are_used_again() -> None:
    """The allocator keeps them: resident memory shrinks by nothing, however much was found."""
    process = Process()
    process.found = 10_000
    for _ in range(100):
        process.live += STEP
        process.look()
    assert process.collections.count(ALL) >= 50 // 2


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.parametrize("own", [False, True])
def test_thresholds_of_the_users_own_stay(own: bool, thresholds: None) -> None:
    gc.set_threshold(*((500, 9, 9) if own else collector.USUAL))
    Collector(256 * MIB).close()
    assert gc.get_threshold() == ((500, 9, 9) if own else RAISED)


MAKES_CYCLES = """
import gc
import subprocess
import sys
from streamlet.runtime.worker.collector import Collector

ours = Collector(64 << 20)
for _ in range(300):
    cycle = [b"x" * (1 << 20)]
    cycle.append(cycle)
    ours._looks_at = 0.0
    ours.collect_if_due()
print(sum(type(one) is list and len(one) == 2 and one[1] is one for one in gc.get_objects()))
"""


def test_cycles_of_a_process_are_collected_when_they_hold_much() -> None:
    """Ten objects a megabyte: by their number Python would look after gigabytes.

    In a process of its own: one that was larger before does not grow.
    """
    done = subprocess.run([sys.executable, "-c", MAKES_CYCLES], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100


@pytest.mark.parametrize(("stays", "trimmed"), [(-8, 0), (3, 0), (4, 1), (27, 1), (30, 1), (31, 1)])
def test_memory_that_hardly_shrinks_though_much_was_found_is_given_back(
    stays: int, trimmed: int, thresholds: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 30 MiB that had grown the allocator kept all but three: by and by a worker of 64 MiB took 150."""
    ours = Collector(64 * MIB)
    before = 200 * MIB
    sizes = [before + 30 * MIB, before + stays * MIB, before]
    trims: list[int] = []
    monkeypatch.setattr(ours, "_watch", GarbageWatch(before, STEP))
    monkeypatch.setattr(ours._resident, "bytes", lambda: sizes.pop(0))
    monkeypatch.setattr(ours, "_trim", trims.append)
    monkeypatch.setattr(collector.gc, "collect", lambda generation: 100_000)
    ours.collect_if_due()
    assert len(trims) == trimmed
    ours.close()


def test_a_worker_without_a_free_descriptor_starts_and_collects_later(
    thresholds: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was out of them for a moment ended the run."""
    no_more = OSError(errno.EMFILE, "Too many open files")
    with monkeypatch.context() as used_up:
        used_up.setattr(os, "open", Mock(side_effect=no_more))
        ours = Collector(1 << 30)
        ours.collect_if_due()
        assert ours._resident.bytes() == 0
    assert ours._resident.bytes() > 0
    ours.close()
