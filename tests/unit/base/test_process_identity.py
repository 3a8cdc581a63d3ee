"""A process by number and start: a number that comes again is another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from streamlet.base.process_identity import start_ticks
from tests.patience import PATIENCE_S


def test_our_own_start_is_the_same_each_time_and_not_before_our_parents() -> None:
    own, parent = start_ticks(os.getpid()), start_ticks(os.getppid())
    assert own is not None and own == start_ticks(os.getpid())
    assert parent is None or parent <= own


def test_a_process_is_there_until_it_ends_and_not_as_a_zombie() -> None:
    """A zombie holds its number, and nothing of it runs."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        began = start_ticks(process.pid)
        assert began is not None and began >= (start_ticks(os.getpid()) or 0)
        assert process.stdin is not None
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has fetched its status
        assert start_ticks(process.pid) is None
    finally:
        process.wait(PATIENCE_S)
    assert start_ticks(process.pid) is None


def test_a_number_that_nobody_has_is_none() -> None:
    assert start_ticks(int(Path("/proc/sys/kernel/pid_max").read_text()) + 1) is None


def test_a_name_with_blanks_and_brackets_moves_no_field() -> None:
    """The kernel writes the name as it is, in the middle of the numbers."""
    rename = "open('/proc/self/comm', 'w').write('a) S 1 (b'); print(flush=True); import sys; sys.stdin.read()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", rename], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        assert Path(f"/proc/{process.pid}/comm").read_text() == "a) S 1 (b\n"
        began, own = start_ticks(process.pid), start_ticks(os.getpid())
        assert began is not None and own is not None and began >= own
