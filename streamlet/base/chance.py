"""The random numbers of the library itself: for pauses, first choices and the like.

Rule: never those of the module ``random``. That generator is the user's, who may have seeded it to have a program do
the same again; a thread of ours that draws from it would change what comes next.
"""

from __future__ import annotations

import os
import random

CHANCE = random.Random()
"""A generator of our own (a forked child begins at another number). Any thread."""

# Rule: not the system's generator (``SystemRandom``). A producer draws at each change of its sticky partition, with its
# lock held, and each of those draws would release the interpreter: its two threads would change places tens of times a
# request, for a sixth of the rate of ``send_many``.
os.register_at_fork(after_in_child=CHANCE.seed)

uniform = CHANCE.random
"""Returns a number from 0 up to 1."""
