"""Which fault comes when, from a seed. Pure."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Kind = tuple[str, str]
"""What is done, and to whom."""

DECK: dict[Kind, int] = {
    ("kill", "worker"): 11, ("kill", "coordinator"): 3, ("kill", "broker"): 3, ("kill", "zookeeper"): 3,
    ("stop", "worker"): 5, ("stop", "coordinator"): 3, ("stop", "broker"): 2, ("stop", "zookeeper"): 2,
    ("cut", "links"): 3, ("cut", "kafka"): 2, ("cut", "zookeeper"): 2,
    ("silence", "links"): 2, ("silence", "kafka"): 2, ("silence", "zookeeper"): 1,
    ("slow", "links"): 2, ("slow", "kafka"): 1, ("slow", "zookeeper"): 1,
    ("fill", "disk"): 2, ("step", "clock"): 2,
}  # fmt: skip
"""How many cards of each kind are in the deck. A deck is dealt to its end before the next one is shuffled."""

MEANWHILE: tuple[Kind, ...] = (("kill", "worker"),) * 3 + (("cut", "links"), ("step", "clock"))
"""What may come while a lasting fault lasts."""

MEANWHILE_SHARE = 0.3
LONGEST_STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """One fault. ``pick`` (0..1) chooses among those whom it may hit; ``hold_s``: until it is undone.

    ``gap_s``: seconds of work before it. ``meanwhile``: another one, in the middle of this one.
    """

    number: int
    what: str
    whom: str
    gap_s: float
    hold_s: float
    pick: float
    more: dict[str, Any]
    meanwhile: Step | None = None

    @property
    def kind(self) -> Kind:
        return self.what, self.whom

    def __str__(self) -> str:
        more = "".join(f" {name}={value}" for name, value in self.more.items())
        meanwhile = f", meanwhile {self.meanwhile}" if self.meanwhile else ""
        lasts = f" for {self.hold_s:.1f} s" if self.hold_s else ""
        chosen = f"after {self.gap_s:.1f} s, pick {self.pick:.2f}{more}"
        return f"#{self.number} {self.what} {self.whom}{lasts} ({chosen}){meanwhile}"


def steps(seed: int) -> Iterator[Step]:
    """Faults without end. The same seed gives the same ones."""
    chance = random.Random(seed)
    number = itertools.count(1)
    while True:
        deck = [kind for kind, count in DECK.items() for _ in range(count)]
        chance.shuffle(deck)
        for what, whom in deck:
            step_number = next(number)
            gap_s, pick, hold_s = chance.uniform(0.3, 2.5), chance.random(), _hold_s(what, whom, chance)
            more = _more(what, whom, chance)
            meanwhile = None
            if hold_s >= 1.0 and chance.random() < MEANWHILE_SHARE:
                second = chance.choice(MEANWHILE)
                wait_s = hold_s * chance.uniform(0.1, 0.6)
                meanwhile = Step(next(number), *second, wait_s, 0.0, chance.random(), _more(*second, chance))
            yield Step(step_number, what, whom, gap_s, hold_s, pick, more, meanwhile)


def _hold_s(what: str, whom: str, chance: random.Random) -> float:
    """Seconds. Stops are of every order of magnitude, so that some end before each time-out and some after it."""
    if what == "stop":
        return math.exp(chance.uniform(math.log(0.5), math.log(LONGEST_STOP_S)))
    if what == "silence":
        return math.exp(chance.uniform(math.log(0.5), math.log(30.0)))
    if what == "kill" and whom in ("broker", "zookeeper"):
        return chance.uniform(0.0, 6.0)
    return chance.uniform(2.0, 8.0) if what in ("slow", "fill") else 0.0


def _more(what: str, whom: str, chance: random.Random) -> dict[str, Any]:
    if what == "silence":
        return {"ways": chance.choice(("both", "there", "back"))}
    if what == "slow":
        return {"bytes_s": chance.choice((20_000, 100_000, 400_000)), "delay_s": chance.choice((0.0, 0.02, 0.2))}
    if what == "step":
        return {"by_s": chance.choice((-86_400, -3_600, -30, 30, 3_600, 86_400 * 30))}
    if (what, whom) == ("kill", "coordinator"):
        return {"at_once": chance.random() < 0.5}
    return {}
