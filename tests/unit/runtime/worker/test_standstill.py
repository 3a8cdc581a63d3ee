"""When a process stood still: nobody looked, though somebody looks often."""

from __future__ import annotations

import subprocess
import sys

from streamlet.runtime.worker.standstill import Standstill, Stood, gap_of
from tests.patience import PATIENCE_S


def test_a_time_without_a_look_is_found_by_whoever_looks_next() -> None:
    """The loop may be the first to run after the lock was held; the one that looks often comes later."""
    stood: list[tuple[float, float]] = []
    standstill = Standstill(lambda one: stood.append((one.began, one.ended)), lambda: 0)
    standstill.look(1.0)
    standstill.look(90.0)
    assert stood == [], "nobody has said that he looks often"
    standstill.look(91.0, gap_s=2.0)
    standstill.look(93.0, gap_s=2.0)
    assert stood == []
    standstill.look_if_missed(94.9)
    standstill.look_if_missed(100.0)
    standstill.look(100.1, gap_s=2.0)
    assert stood == [(93.0, 100.0)]
    standstill.look(99.0)
    standstill.look(110.0, gap_s=2.0)
    assert stood == [(93.0, 100.0), (100.1, 110.0)], "a look that comes late makes no time of its own"


def test_a_process_that_was_stopped_has_waited_for_no_lock() -> None:
    """Who waits for the lock wakes up all the time. Where the system counts no such thing, nobody knows."""
    stood: list[Stood] = []
    woken, threads = iter([100, 106, 2106, 2200]), {1: iter([5, 5, 2005, 2005]), 2: iter([0] * 4), 3: iter([7] * 4)}
    standstill = Standstill(stood.append, lambda: next(woken), threads.keys, lambda thread: next(threads[thread]))
    for now in (0.0, 10.0, 20.0, 20.5):
        standstill.look(now, gap_s=2.0)
    assert stood == [Stood(0.0, 10.0, False, frozenset()), Stood(10.0, 20.0, True, frozenset([1]))]
    assert [standstill.kept_s(thread, 1.0, 15.0) for thread in (1, 2, 3)] == [14.0, 9.0, 9.0]
    uncounted = Standstill(stood.append, woken=lambda: 0)
    for now in (0.0, 10.0):
        uncounted.look(now, gap_s=2.0)
    assert stood[-1].held and uncounted.kept_s(1, 0.0, 10.0) == 0.0


HOLDS_AND_STANDS = """
import ctypes, os, signal, subprocess, threading, time
from streamlet.runtime.worker.standstill import Standstill

found, over, ids = [], threading.Event(), {threading.get_native_id(): "main"}
standstill = Standstill(found.append, threads=lambda: [*ids])

def looks():
    ids[threading.get_native_id()] = "looks"
    while not over.wait(0.05):
        standstill.look(time.monotonic(), gap_s=1.0)

def holds():
    ids[threading.get_native_id()] = "holds"
    time.sleep(0.2)
    ctypes.PyDLL(None).sleep(2)

def next_found(number):
    while len(found) < number:  # no wait for a lock of its own
        pass

looking = threading.Thread(target=looks)
looking.start()
time.sleep(0.2)
ctypes.PyDLL(None).sleep(2)
next_found(1)
threading.Thread(target=holds).start()
next_found(2)
time.sleep(0.2)
waker = subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {os.getpid()}"])
os.kill(os.getpid(), signal.SIGSTOP)
next_found(3)
over.set()
looking.join()
waker.wait()
for one in found:
    print(one.held, *sorted(ids[thread] for thread in one.waited))
"""


def test_the_lock_that_a_call_holds_is_told_from_a_process_that_is_stopped() -> None:
    """As the system counts, here and now. In a process of its own: it counts for all threads of one."""
    done = subprocess.run(
        [sys.executable, "-c", HOLDS_AND_STANDS], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout.splitlines()[:3] == ["True looks", "True looks main", "False"]


def test_a_call_that_hangs_soon_makes_a_look_be_missed_soon() -> None:
    """But never one that is only on its way."""
    assert (gap_of(5.0, 1.0, 30.0), gap_of(5.0, 1.0, 6.0), gap_of(5.0, 1.0, 1.0)) == (5.0, 3.0, 2.0)
