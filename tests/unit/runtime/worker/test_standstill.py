"""When a process stood still: nobody looked, though somebody looks often."""

from __future__ import annotations

import subprocess
import sys

from streamlet.runtime.worker.standstill import Standstill, gap_of
from tests.patience import PATIENCE_S


def test_a_time_without_a_look_is_found_by_whoever_looks_next() -> None:
    """The loop may be the first to run after the lock was held; the one that looks often comes later."""
    stood: list[tuple[float, float]] = []
    standstill = Standstill(lambda began, ended: stood.append((began, ended)), lambda: 0)
    standstill.look(1.0)
    standstill.look(90.0)
    assert stood == [], "nobody has said that he looks often"
    standstill.look(91.0, gap_s=2.0)
    standstill.look(93.0, gap_s=2.0)
    assert stood == []
    standstill.look(100.0)
    standstill.look(100.1, gap_s=2.0)
    assert stood == [(93.0, 100.0)]
    standstill.look(110.0, gap_s=2.0)
    assert standstill.within(95.0, 103.0) == [(95.0, 100.0), (100.1, 103.0)]
    assert standstill.within(0.0, 93.0) == standstill.within(110.0, 120.0) == []


def test_a_process_that_was_stopped_has_waited_for_no_lock() -> None:
    """Who waits for the lock wakes up all the time. Where the system counts no such thing, nobody knows."""
    woken = iter([100, 106, 2106, 2200])
    standstill = Standstill(woken=lambda: next(woken), loop_woken=lambda: 0)
    for now in (0.0, 10.0, 20.0, 20.5):
        standstill.look(now, gap_s=2.0)
    assert standstill.within(1.0, 20.0) == [(1.0, 10.0), (10.0, 20.0)]
    assert standstill.held_s(1.0, 10.0)[0] == 0.0 and standstill.held_s(1.0, 15.0) == (5.0, False)
    uncounted = Standstill(woken=lambda: 0)
    for now in (0.0, 10.0):
        uncounted.look(now, gap_s=2.0)
    assert uncounted.held_s(1.0, 10.0)[0] == 9.0


HOLDS_AND_STANDS = """
import ctypes, os, signal, subprocess, threading, time
from streamlet.runtime.worker.standstill import Standstill

standstill, over, ended = Standstill(), threading.Event(), []

def looks():
    while not over.wait(0.05):
        standstill.look(time.monotonic(), gap_s=1.0)

def holds():
    began = time.monotonic()
    ctypes.PyDLL(None).sleep(2)
    ended.append((began, time.monotonic()))

looking = threading.Thread(target=looks)
looking.start()
time.sleep(0.2)
holds()
time.sleep(0.2)
threading.Thread(target=holds).start()
while len(ended) < 2:  # no wait for a lock of its own
    pass
time.sleep(0.2)
waker = subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {os.getpid()}"])
stopped = time.monotonic()
os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(0.2)
over.set()
looking.join()
waker.wait()
print(*standstill.held_s(*ended[0]), standstill.held_s(*ended[1])[0], len(standstill.within(stopped, time.monotonic())),
      standstill.held_s(stopped, time.monotonic())[0])
"""


def test_the_lock_that_a_call_holds_is_told_from_a_process_that_is_stopped() -> None:
    """As the system counts, here and now. In a process of its own: it counts for all threads of one."""
    done = subprocess.run(
        [sys.executable, "-c", HOLDS_AND_STANDS], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    here, by_loop, elsewhere, times, stopped = done.stdout.split()
    assert (float(here) > 1.5, by_loop, float(elsewhere) > 1.5) == (True, "True", True), done.stdout
    assert int(times) >= 1 and float(stopped) == 0.0, done.stdout


def test_a_call_that_hangs_soon_makes_a_look_be_missed_soon() -> None:
    """But never one that is only on its way."""
    assert (gap_of(5.0, 1.0, 30.0), gap_of(5.0, 1.0, 6.0), gap_of(5.0, 1.0, 1.0)) == (5.0, 3.0, 2.0)
