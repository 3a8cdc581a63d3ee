"""Producers on three brokers that are killed, paused and robbed of their leaders, with a seed that can be given again.

    python -m tests.soak.long_producer [--records 1000000] [--rounds 20] [--kills 20] [--seed N] [--kafka 4]
                                         [--only idempotent|transactions|read_process_write|memory]

Ends with 1 at the first scenario in which anything does not hold, and says its seed.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback

from streamlet.devcluster import DevCluster
from tests.faults import producer_rounds

SCENARIOS = ("idempotent", "transactions", "read_process_write", "memory")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.long_producer", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000, help="a fifth of them for the other scenarios")
    parser.add_argument("--rounds", type=int, default=20, help="kills, pauses and leader moves")
    parser.add_argument("--kills", type=int, default=20, help="of the reading and writing process")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kafka", default="4")
    parser.add_argument("--only", choices=SCENARIOS)
    asked = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if asked.seed is None else asked.seed
    with DevCluster(asked.kafka, brokers=3) as cluster:
        for name in [asked.only] if asked.only else SCENARIOS:
            print(f"{name}: --only {name} --seed {seed} --kafka {asked.kafka}", flush=True)
            play = getattr(producer_rounds, name)
            share = asked.records if name == "idempotent" else asked.records // 5
            try:
                found = play(cluster, share, asked.kills if name == "read_process_write" else asked.rounds, seed)
            except Exception:
                traceback.print_exc()
                return 1
            for hit in found.hits:
                print(f"  {hit}")
            print(
                f"  {found.records} records as they should be, {found.aborted} aborted, {found.seconds:.0f} s; "
                f"{found.metrics}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
