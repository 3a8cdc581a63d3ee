"""A wall clock that a test can step: on PYTHONPATH it is imported by every interpreter of a run.

STREAMLET_TEST_CLOCK names a file of two 64-bit numbers: nanoseconds to add to the wall clock, and how often it was
read. The monotonic clock stays as it is, as when a person or NTP sets the time of a machine.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Callable

_WORD = struct.Struct("<q")


def _step(path: str) -> None:
    with open(path, "r+b") as file:
        shared = mmap.mmap(file.fileno(), 16)
    real_ns: Callable[[], int] = time.time_ns

    def time_ns() -> int:
        _WORD.pack_into(shared, 8, _WORD.unpack_from(shared, 8)[0] + 1)
        return real_ns() + int(_WORD.unpack_from(shared, 0)[0])

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9


if "STREAMLET_TEST_CLOCK" in os.environ:
    _step(os.environ["STREAMLET_TEST_CLOCK"])
