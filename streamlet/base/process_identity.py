"""Processes by number and start: numbers come again, a number with its start does not."""

from __future__ import annotations

from pathlib import Path


def start_ticks(pid: int) -> int | None:
    """Return the start of a process in ticks since the boot; None when it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may hold spaces and parentheses; state is the first field after it, start the 20th.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])
