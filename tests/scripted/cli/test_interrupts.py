"""The second signal: its last line and its status, whatever the run makes of the kill."""

from __future__ import annotations

import subprocess
import sys

from tests.patience import PATIENCE_S

KILLED = """
import os, signal, sys, time
from streamlet.backends.contract import Stop
from streamlet.cli.interrupts import SAME_S, Interrupts, signals_to

def last_line(status, last):
    time.sleep(0.5)
    os.write(1, b"killed")

stop = Stop()
stop.on_kill(lambda: ACT)
interrupts = Interrupts(stop, lambda text: None, last_line)
with signals_to(interrupts.came):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(2 * SAME_S)
    os.kill(os.getpid(), signal.SIGINT)
    while not stop.killed:
        time.sleep(0.01)
    interrupts.give_way()
    os.write(1, b"failed")
sys.exit(1)
"""


def ended(act: str) -> tuple[int, str]:
    """Status and output of a program whose run ends as soon as it is killed."""
    command = [sys.executable, "-c", KILLED.replace("ACT", act)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stdout


def test_a_run_that_ends_of_the_kill_leaves_last_line_and_status_to_it() -> None:
    assert ended("None") == (130, "killed")


def test_an_act_of_the_kill_that_fails_keeps_nobody_from_the_end() -> None:
    assert ended("1 / 0") == (130, "killed")
