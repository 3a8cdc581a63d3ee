"""When the tuples that a bolt gets time out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamlet.model.plan import TIME_OUT
from streamlet.model.spec import SPOUT
from streamlet.model.topology import ComponentDef, TopologySpec


@dataclass(frozen=True, slots=True)
class TimeOut:
    """The time-out of a spout's tuples."""

    spout: str
    seconds: float


def first_time_out(topology: TopologySpec, bolt: str, conf: Mapping[str, Any]) -> TimeOut | None:
    """Return the shortest time-out of tuples that reach a bolt; None: none times out.

    ``conf``: the run's settings, each with a value. Raises TypeError or ValueError for values that are no numbers. An
    input that names no component is passed over.
    """
    # Rule: the shortest, of the spouts behind a bolt, and of no other. A bolt that keeps tuples for longer than one of
    # them has that spout's tuples again and again, and nobody takes the first copies from it; with a longer time-out of
    # another spout the run looked sound. Nothing of a spout that is not tracked times out.
    found = []
    for spout in spouts_behind(topology, bolt):
        own = {**conf, **spout.config}
        if int(own["topology.acker.executors"]) != 0:
            found.append(TimeOut(spout.name, float(own[TIME_OUT])))
    return min(found, key=lambda one: one.seconds, default=None)


def spouts_behind(topology: TopologySpec, bolt: str) -> list[ComponentDef]:
    """Return the spouts whose tuples reach a bolt."""
    known = {component.name: component for component in topology.components}
    behind: dict[str, None] = {}
    todo = [bolt]
    while todo:
        sources = [sub.source.component for sub in known[todo.pop()].inputs if sub.source.component in known]
        todo += [source for source in sources if source not in behind]
        behind.update(dict.fromkeys(sources))
    return [known[name] for name in behind if known[name].kind == SPOUT]
