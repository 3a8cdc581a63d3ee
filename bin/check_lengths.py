"""No Python file over 400 lines without its reason. Exit status 1 if there is one."""

import subprocess
import sys
from pathlib import Path

MOST = 400
REASONS: dict[str, str] = {
    "tests/conformance/suite.py": "one list of cases that every backend must pass: divided, one half could be left out",
    "tests/scripted/kafka/net/test_network_client.py": "one scripted far end serves every rule of poll's order",
    "tests/unit/spouts/kafka/test_manager.py": "one state machine drives every rule of PartitionManager",
    "tests/real/spouts/kafka/test_traps.py": "the 14 traps of storm-kafka in one place, as the issue lists them",
}
"""Path -> why this file may be longer."""


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    wrong = 0
    for name in sorted(set(listed.stdout.split())):
        path = Path(name)
        if not path.exists():  # deleted, and not yet committed
            continue
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MOST and name not in REASONS:
            print(
                f"{name} has {lines} lines; {MOST} is the most. Divide it, or give its reason in bin/check_lengths.py."
            )
            wrong += 1
        if lines <= MOST and name in REASONS:
            print(f"{name} has only {lines} lines: take its reason out of bin/check_lengths.py.")
            wrong += 1
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
