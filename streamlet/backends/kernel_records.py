"""What the kernel knows about a worker's process: its processor time, its memory, and who was killed for memory.

Only files in /proc and /sys are read, each within microseconds. A file that is not there says nothing: all answers may
be None. The judgement of a death (``killed_for_memory``) is pure.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
UNLIMITED = 1 << 60
"""A limit of memory that means none: version 1 of control groups writes a huge number."""


@dataclass(frozen=True, slots=True)
class Processor:
    """Processor seconds of a process, and whether a signal stopped it."""

    used_s: float
    stopped: bool


@dataclass(frozen=True, slots=True)
class Memory:
    """One look at a process's memory. ``group`` and its limit: the control group, empty and None where there is none.

    ``group_kills`` and ``machine_kills`` count processes that the kernel has killed for memory since it started.
    """

    resident_bytes: int | None
    group: str
    limit_bytes: int | None
    group_kills: int | None
    machine_kills: int | None
    group_folder: Path | None = None


def processor(pid: int, proc: Path = Path("/proc")) -> Processor | None:
    """Look at the processor time of a process."""
    stat = _read(proc / str(pid) / "stat")
    if stat is None:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and parentheses
    return Processor((int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND, fields[0] in "Tt")


def memory(pid: int, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Memory | None:
    """Look at the memory of a living process."""
    status = _read(proc / str(pid) / "status")
    if status is None:
        return None
    resident = [int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS:")]
    group, folder, top = _group(_read(proc / str(pid) / "cgroup") or "", groups)
    kills = _group_kills(folder) if folder is not None else None
    limit = _limit(folder, top) if folder is not None else None
    return Memory(resident[0] if resident else None, group, limit, kills, machine_kills(proc), folder)


def machine_kills(proc: Path = Path("/proc")) -> int | None:
    """Count the processes that the kernel has killed for memory."""
    return _count(_read(proc / "vmstat"), "oom_kill")


def killed_for_memory(before: Memory, proc: Path = Path("/proc")) -> str:
    """Return why a process was killed by SIGKILL, if for memory; else nothing.

    As a part of a sentence.
    """
    held = f"; it held {size(before.resident_bytes)} when somebody looked last" if before.resident_bytes else ""
    kills = _group_kills(before.group_folder) if before.group_folder is not None else None
    if kills is not None and before.group_kills is not None and kills > before.group_kills:
        of = f" of {size(before.limit_bytes)}" if before.limit_bytes is not None else ""
        return (
            f" by the kernel's out-of-memory killer, for the memory limit{of} of its control group {before.group}{held}"
        )
    now = machine_kills(proc)
    if now is not None and before.machine_kills is not None and now > before.machine_kills:
        return f", and the kernel's out-of-memory killer was at work: memory is used up{held}"
    return ""


def size(count: int) -> str:
    """Return ``64 MiB``, ``3.1 GiB``."""
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count >> 20} MiB"


def _group(lines: str, groups: Path) -> tuple[str, Path | None, Path]:
    """Return the control group that limits memory: its name, its folder, and the folder of all of them."""
    for line in lines.splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers == "memory":
            return name, _folder(groups / "memory", name), groups / "memory"
    for line in lines.splitlines():
        if line.startswith("0::"):
            return line[3:], _folder(groups, line[3:]), groups
    return "", None, groups


def _folder(top: Path, name: str) -> Path | None:
    # In a container the name may be that of the host, and the container's own group is mounted at the top.
    found = top / name.lstrip("/")
    return found if found.is_dir() else top if top.is_dir() else None


def _group_kills(folder: Path) -> int | None:
    text = _read(folder / "memory.events")
    return _count(text if text is not None else _read(folder / "memory.oom_control"), "oom_kill")


def _limit(folder: Path, top: Path) -> int | None:
    """Return the lowest limit of a group and those around it."""
    limits = []
    for one in (folder, *folder.parents):
        if not one.is_relative_to(top):
            break
        text = (_read(one / "memory.max") or _read(one / "memory.limit_in_bytes") or "").strip()
        if text.isdigit() and int(text) < UNLIMITED:
            limits.append(int(text))
    return min(limits, default=None)


def _count(text: str | None, name: str) -> int | None:
    for line in (text or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name:
            return int(words[1])
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
