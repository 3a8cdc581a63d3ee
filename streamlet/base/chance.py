"""The random numbers of the library itself: for pauses, first choices and the like.

Rule: never those of the module ``random``. That generator is the user's, who may have seeded it to have a program do
the same again; a thread of ours that draws from it would change what comes next.
"""

from __future__ import annotations

import random

CHANCE = random.SystemRandom()
"""Has no state, so threads and forked children share nothing by it."""

uniform = CHANCE.random
"""Returns a number from 0 up to 1."""
