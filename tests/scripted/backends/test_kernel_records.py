"""What the kernel's files say of a process: read as they are here, and as they are elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamlet.backends.kernel_records import Memory, killed_for_memory, memory, processor, size
from tests.patience import PATIENCE_S


def test_this_process_is_seen(tmp_path: Path) -> None:
    used = processor(os.getpid())
    assert used is not None and used.used_s > 0 and not used.stopped
    look = memory(os.getpid())
    assert look is not None and look.resident_bytes is not None and look.resident_bytes > 1 << 20
    assert processor(1 << 30) is None and memory(1 << 30) is None


def test_a_stopped_process_is_known() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]) as process:
        try:
            os.kill(process.pid, signal.SIGSTOP)
            until = time.monotonic() + PATIENCE_S
            while not ((used := processor(process.pid)) and used.stopped):
                assert time.monotonic() < until
                time.sleep(0.01)
        finally:
            process.kill()


class Kernel:
    """A /proc and a /sys with one process in a group. ``version``: of the control groups."""

    def __init__(self, folder: Path, version: int, limit: str = "67108864") -> None:
        self.proc, self.groups, self.version = folder / "proc", folder / "cgroup", version
        own = self.proc / "7"
        own.mkdir(parents=True)
        (own / "status").write_text("Name:\tpython (x) y\nVmRSS:\t   65000 kB\n")
        self.group = self.groups / ("memory" if version == 1 else "") / "job" / "worker"
        self.group.mkdir(parents=True)
        (own / "cgroup").write_text("9:cpu:/\n4:memory:/job/worker\n0::/\n" if version == 1 else "0::/job/worker\n")
        (self.group / ("memory.limit_in_bytes" if version == 1 else "memory.max")).write_text("9223372036854771712\n")
        name = "memory.limit_in_bytes" if version == 1 else "memory.max"
        (self.group.parent / name).write_text(f"{limit}\n")
        self.kills(0, 3)

    def kills(self, group: int, machine: int) -> None:
        if self.version == 1:
            (self.group / "memory.oom_control").write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {group}\n")
        else:
            (self.group / "memory.events").write_text(f"low 0\nhigh 0\nmax 9\noom 1\noom_kill {group}\n")
        (self.proc / "vmstat").write_text(f"nr_free_pages 1\noom_kill {machine}\n")

    def look(self) -> Memory:
        found = memory(7, self.proc, self.groups)
        assert found is not None
        return found


@pytest.mark.parametrize("version", [1, 2])
def test_a_kill_for_the_limit_of_a_group_is_called_that(tmp_path: Path, version: int) -> None:
    kernel = Kernel(tmp_path, version)
    before = kernel.look()
    assert before.limit_bytes == 64 << 20, "of the group around it"
    assert killed_for_memory(before, kernel.proc) == ""
    kernel.kills(1, 4)
    assert killed_for_memory(before, kernel.proc) == (
        " by the kernel's out-of-memory killer, for the memory limit of 64 MiB of its control group /job/worker; it "
        "held 63 MiB when somebody looked last"
    )


def test_a_kill_elsewhere_on_a_machine_without_memory_is_not_pinned_on_the_group(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, 2, limit="max")
    before = kernel.look()
    assert before.limit_bytes is None
    kernel.kills(0, 4)
    assert "the kernel's out-of-memory killer was at work" in killed_for_memory(before, kernel.proc)


def test_without_the_files_nothing_is_said(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, 1)
    before = kernel.look()
    (kernel.group / "memory.oom_control").unlink()
    (kernel.proc / "vmstat").unlink()
    assert killed_for_memory(before, kernel.proc) == ""
    (kernel.proc / "7" / "cgroup").unlink()
    assert kernel.look() == Memory(65000 << 10, "", None, None, None)


def test_sizes_have_a_unit() -> None:
    assert (size(64 << 20), size(3 << 30), size(5)) == ("64 MiB", "3.0 GiB", "0 MiB")
