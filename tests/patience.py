"""How long a test waits for something that must happen at all.

Nobody who passes waits that long: it is for a starved machine, where starting Spark alone has taken two
minutes.
A promise in seconds (a stop within 5 s) is asserted in seconds, where it is tested.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 240.0


def until(condition: Callable[[], bool]) -> None:
    """Wait for the condition, with a deadline."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)
