"""A group of ours, librdkafka's and Java's members through many joins and leaves, with a seed that can be given again.

    python -m tests.soak.long_group --rounds 5 --changes 20 [--seed N]

Ends with 1 at the first round in which anything does not hold, and says its seed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import traceback
from pathlib import Path

from streamlet.devcluster import DevCluster
from tests.faults import mixed_group


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.long_group", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None, help="of the first round; the next ones count on from it")
    parser.add_argument("--newer", action="store_true", help="in the newer protocol (KIP-848), with a classic member")
    asked = parser.parse_args()
    first = random.SystemRandom().getrandbits(32) if asked.seed is None else asked.seed
    with DevCluster("4") as cluster:
        for number in range(asked.rounds):
            seed = first + number
            print(f"round {number + 1} of {asked.rounds}: --seed {seed} --changes {asked.changes}", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                try:
                    print(mixed_group.play(cluster, Path(folder), seed, asked.changes, newer=asked.newer), flush=True)
                except Exception:
                    traceback.print_exc()
                    return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
