"""What a component may know about where it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streamlet.base.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class TopologyContext:
    """Handed to ``initialize``. Task ids are dense from 1; ``task_index`` counts within the component.

    ``epoch`` grows by one with each restart of the worker; ``topology_id`` is fresh for each run.
    ``wake`` may be called from any thread to make the worker's loop look at this component again.
    """

    topology_name: str
    topology_id: str
    component_name: str
    task_id: int
    task_index: int
    task_count: int
    worker: int = 0
    epoch: int = 1
    tasks: Mapping[int, str] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    wake: Callable[[], None] = lambda: None
    # Chance comes from here, and time from `clock`: with a seed and a clock of its own a run can be repeated.
    uniform: Callable[[], float] | None = None
    """A source of numbers in [0, 1), seeded where the run is (``streamlet.seed``); None: use your own."""

    def component_tasks(self, component: str) -> list[int]:
        """Return the task ids of a component, ascending."""
        return sorted(task for task, name in self.tasks.items() if name == component)
