"""The problems of a topology as data, and the error that carries them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from streamlet.base.errors import BadInput


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a topology cannot run. ``component`` is None where the topology as a whole is meant."""

    component: str | None
    message: str
    remedy: str

    def __str__(self) -> str:
        where = f"{self.component}: " if self.component else ""
        return f"{where}{self.message} {self.remedy}"


class InvalidTopology(BadInput):
    """A topology with problems; ``problems`` has them all, the message too."""

    def __init__(self, topology: str, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        if len(problems) == 1:
            message = f"{topology} cannot run. {problems[0]}"
        else:
            listed = "\n".join(f"{number}. {problem}" for number, problem in enumerate(problems, 1))
            message = f"{topology} cannot run: {len(problems)} problems.\n{listed}"
        super().__init__(message)


def nearest(wrong: Any, right: Iterable[str], otherwise: str) -> str:
    """Ask for the nearest right name, or return ``otherwise``."""
    # A low cutoff: a wrong guess costs the reader less than a list of all names.
    near = difflib.get_close_matches(str(wrong), list(right), n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else otherwise


def listed(names: Iterable[str]) -> str:
    """Join names for a sentence."""
    return ", ".join(sorted(names)) or "none"
