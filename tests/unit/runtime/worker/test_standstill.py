"""When a process stood still: nobody looked, though somebody looks often."""

from __future__ import annotations

import subprocess
import sys
import threading

from streamlet.runtime.worker.standstill import Standstill, Stood, gap_of
from tests.patience import PATIENCE_S


def test_a_time_without_a_look_is_found_by_whoever_looks_next() -> None:
    """The loop may be the first to run after the lock was held; the one that looks often comes later."""
    stood: list[tuple[float, float]] = []
    standstill = Standstill(lambda one: stood.append((one.began, one.ended)), thread_woken=lambda thread: 0)
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
    woken = {threading.get_native_id(): 100, 1: 5, 2: 0, 3: 7}
    standstill = Standstill(stood.append, lambda: (1, 2, 3), lambda thread: woken.get(thread, 0))
    standstill.look(0.0, gap_s=2.0)
    woken[3] += 900  # for its work, before the process was stopped
    standstill.look(10.0, gap_s=2.0)
    woken[threading.get_native_id()] += 2000
    woken[1] += 2000
    standstill.look(20.0, gap_s=2.0)
    assert [one[:3] for one in stood] == [(0.0, 10.0, False), (10.0, 20.0, True)] and stood[1].waited == {1}
    assert [standstill.kept_s(thread, 1.0, 15.0) for thread in (1, 2, 3)] == [14.0, 9.0, 9.0]
    uncounted = Standstill(stood.append, thread_woken=lambda thread: 0)
    for now in (0.0, 10.0):
        uncounted.look(now, gap_s=2.0)
    assert stood[-1].held and uncounted.kept_s(1, 0.0, 10.0) == 0.0


def test_a_lock_that_is_taken_while_a_look_counts_is_no_stop_of_the_process() -> None:
    """To read a count lets others run. The look has its time, and the wakes of the three seconds after it."""
    stood: list[Stood] = []
    me, now, wakes, holds = threading.get_native_id(), [0.0], [100], [False]

    def woken(thread: int) -> int:
        if thread == me and holds[0]:
            holds[0], now[0], wakes[0] = False, now[0] + 3.0, wakes[0] + 600
        return wakes[0] if thread == me else 0

    standstill = Standstill(stood.append, thread_woken=woken, clock=lambda: now[0])
    for second in range(8):
        now[0] = max(now[0], float(second))
        holds[0] = second == 2
        standstill.look(now[0], gap_s=1.5)
    assert [one[:3] for one in stood] == [(1.0, 5.0, True)]


def test_what_a_thread_has_woken_up_for_its_work_is_no_wait_for_the_lock() -> None:
    """It may hold the lock itself, from just before the next look on."""
    stood: list[Stood] = []
    busy, waits = 10, 11
    woken = {threading.get_native_id(): 0, busy: 0, waits: 0}
    standstill = Standstill(stood.append, lambda: (busy, waits), lambda thread: woken.get(thread, 0))
    for second in range(4):
        standstill.look(float(second), gap_s=2.0)
        woken[busy] += 1000
        woken[waits] += 300
    woken[waits] += 200 * 6
    woken[threading.get_native_id()] += 200 * 6
    standstill.look(10.0, gap_s=2.0)
    assert [(one.held, one.waited) for one in stood] == [(True, {waits})]


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

def tell(began, act, *args):
    act(*args)
    middle = began + 1.2
    while True:  # no wait for a lock of its own
        for one in [*found]:  # a machine that is busy elsewhere may make others
            if one.began < middle < one.ended:
                print(one.held, *sorted(ids[thread] for thread in one.waited), flush=True)
                return

def stop():
    waker = subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)
    waker.wait()

looking = threading.Thread(target=looks)
looking.start()
time.sleep(0.2)
tell(time.monotonic(), ctypes.PyDLL(None).sleep, 2)
time.sleep(0.2)
tell(time.monotonic(), threading.Thread(target=holds).start)
time.sleep(0.2)
tell(time.monotonic(), stop)
over.set()
looking.join()
"""


def test_the_lock_that_a_call_holds_is_told_from_a_process_that_is_stopped() -> None:
    """As the system counts, here and now. In a process of its own: it counts for all threads of one."""
    told: list[list[str]] = []
    # Where too many want the processors, a thread that waits seldom gets to ask for the lock. Then it is not known to
    # have waited, and once in a while nothing is: but never is one named that did not.
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", HOLDS_AND_STANDS], capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        told.append(done.stdout.splitlines())
        assert "holds" not in done.stdout and "main" not in told[-1][0] and told[-1][2] == "False", told
        if told[-1] == ["True looks", "True looks main", "False"]:
            return
    raise AssertionError(told)


def test_a_call_that_hangs_soon_makes_a_look_be_missed_soon() -> None:
    """But never one that is only on its way."""
    assert (gap_of(5.0, 1.0, 30.0), gap_of(5.0, 1.0, 6.0), gap_of(5.0, 1.0, 1.0)) == (5.0, 3.0, 2.0)
