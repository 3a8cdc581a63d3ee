"""Many rounds of kill -9, each with a seed that can be given again.

    python -m tests.soak.long_kills --rounds 60 [--seed N] [--kind count|spout|run|slot] [--lines 20000]

Rounds take turns among the kinds. Ends with 1 at the first round in which anything does not hold, and says its seed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

from streamlet.devcluster import DevCluster
from tests.faults import rounds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.long_kills", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=None, help="of the first round; the next ones count on from it")
    parser.add_argument("--kind", choices=rounds.KINDS, help="this kind only")
    parser.add_argument("--lines", type=int, default=20_000)
    asked = parser.parse_args()
    first = random.SystemRandom().getrandbits(32) if asked.seed is None else asked.seed
    began = time.monotonic()
    with DevCluster("3.9") as cluster:
        for number in range(asked.rounds):
            kind = asked.kind or rounds.KINDS[number % len(rounds.KINDS)]
            seed = first + number
            print(f"round {number + 1} of {asked.rounds}: {kind}, --kind {kind} --seed {seed} --rounds 1")
            with tempfile.TemporaryDirectory() as folder:
                try:
                    rounds.play(cluster, Path(folder), kind, seed, asked.lines)
                except Exception:
                    traceback.print_exc()
                    return 1
    print(f"{asked.rounds} rounds, nothing lost, nothing committed too early, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
