"""What a worker takes at most where much waits, fails, or dies in cycles, against the setting that bounds it.

    python -m tests.soak.memory_bounds [--records 500000] [--held 64 256]

Four cases, each with streamlet's setting of the garbage collector and with one of the user's own: a fan-out between
bolts, messages of a ReliableSpout that fail once, records of a KafkaSpout that fail once, trees of nodes that know
their parents. Prints the highest resident memory of the worker (``VmHWM``), in MiB. Ends with 1 where one took more
than the setting and 60 MiB, or left something out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from streamlet.backends.contract import RunResult
from tests.scripted.backends.test_memory_bounds import run, run_failing_records

ON_TOP_MIB = 60
"""What a worker may take beside the setting: the interpreter, modules, a call's emits."""

Case = Callable[..., tuple[RunResult, dict[int, float]]]


def cases(records: int) -> dict[str, tuple[Case, str, int]]:
    """Return by name how a case is run, and which component acks how many tuples."""

    def fan_out(**conf: Any) -> tuple[RunResult, dict[int, float]]:
        return run("FanOut", **conf)

    def messages(**conf: Any) -> tuple[RunResult, dict[int, float]]:
        return run("Failing", messages=records, **conf)

    def of_kafka(**conf: Any) -> tuple[RunResult, dict[int, float]]:
        return run_failing_records(records // 4, **conf)

    def trees(**conf: Any) -> tuple[RunResult, dict[int, float]]:
        return run("Trees", messages=30_000, nodes=20, bytes=1000, kept=500, **conf)

    return {
        "fan-out, 400 000 tuples of 500 B": (fan_out, "count", 400_000),
        f"{records:,} messages of 1 kB that fail": (messages, "messages", records),
        f"{records:,} records of 1 kB that fail": (of_kafka, "lines", records // 4 * 4),
        "30 000 trees in cycles": (trees, "parse", 30_000),
    }


def main() -> int:
    """Run every case with both collectors; print the table."""
    options = argparse.ArgumentParser(prog="python -m tests.soak.memory_bounds", description=__doc__.splitlines()[0])
    options.add_argument("--records", type=int, default=500_000)
    options.add_argument("--held", type=int, nargs="+", default=[64, 256])
    given = options.parse_args()
    wrong = 0
    print(
        "| case | a worker may hold | collector | most, MiB | allowed | seconds |\n|---|---|---|---|---|---|",
        flush=True,
    )
    for name, (begin, component, wanted) in cases(given.records).items():
        for held in given.held:
            for collector in ("ours", "own"):
                began = time.monotonic()
                settings = {"streamlet.worker.memory.bytes": held << 20, "collector": collector}
                result, mib = begin(**settings)
                most, took = max(mib.values()), time.monotonic() - began
                wrong += most > held + ON_TOP_MIB or result.components[component].acked != wanted
                shown = f"| {name} | {held} | {collector} | {most:.0f} | {held + ON_TOP_MIB} | {took:.0f} |"
                print(shown.replace(",", " "), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
