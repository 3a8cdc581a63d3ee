"""Seeds of tests that draw at random: fresh in each run, the same in all processes of one, repeatable by name.

``STREAMLET_TESTS_SEED=N bin/test ...`` repeats a run; a seed stands in the name of each test that has one.
"""

from __future__ import annotations

import os
import random

_NAME = "STREAMLET_TESTS_SEED"
# In the environment, because the processes of a parallel run must collect the same tests under the same names.
RUN = os.environ.setdefault(_NAME, str(random.SystemRandom().randrange(2**32)))


def seeds(what: str, count: int = 1) -> list[int]:
    """``count`` numbers of 32 bits for the test that is named."""
    rng = random.Random(f"{RUN} {what}")
    return [rng.randrange(2**32) for _ in range(count)]
