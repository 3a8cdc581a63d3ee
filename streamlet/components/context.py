"""What a component may know about where it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamlet.base.clock import Clock, SystemClock


class SharedFiles(dict[str, Path]):
    """Name -> file or folder, for this worker to read."""

    def __missing__(self, name: str) -> Path:
        have = f"There is: {', '.join(sorted(self))}." if self else "Nothing is shared in this run."
        raise KeyError(f"{name!r} is not a file of streamlet.shared: give --shared {name}=PATH. {have}")


@dataclass(frozen=True, slots=True)
class TopologyContext(Mapping[str, Any]):
    """Handed to ``initialize``. Task ids are dense from 1; ``task_index`` counts within the component.

    ``epoch`` grows by one with each restart of the worker; ``topology_id`` is fresh for each run, with a seed,
    too. ``run_began``: all workers had stood before, so this one takes the place of one that died.
    ``wake`` may be called from any thread to make the worker's loop look at this component again.

    It is a mapping, too, with the keys that Storm gives to components in other languages: ``context["taskid"]``.
    """

    topology_name: str
    topology_id: str
    component_name: str
    task_id: int
    task_index: int
    task_count: int
    worker: int = 0
    epoch: int = 1
    run_began: bool = False
    tasks: Mapping[int, str] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    wake: Callable[[], None] = lambda: None
    # Chance comes from here, and time from `clock`: with a seed and a clock of its own a run can be repeated.
    uniform: Callable[[], float] | None = None
    """A source of numbers in [0, 1), seeded where the run is (``streamlet.seed``); None: use your own."""

    first_time_out_s: float | None = None
    """Seconds after which the first time out of all tuples that may reach this bolt; None: none of them does."""

    outputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Stream -> fields of what this component emits."""

    sources: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """Component -> stream -> fields of what this component reads."""

    shared: Mapping[str, Path] = field(default_factory=SharedFiles)
    """Name -> where the file or folder of ``streamlet.shared`` lies for this worker. To be read, not written."""

    def component_tasks(self, component: str) -> list[int]:
        """Return the task ids of a component, ascending."""
        return sorted(task for task, name in self.tasks.items() if name == component)

    def __getitem__(self, key: str) -> Any:
        match key:
            case "taskid":
                return self.task_id
            case "componentid":
                return self.component_name
            case "task->component":
                return {str(task): name for task, name in self.tasks.items()}
            case "streams":
                return list(self.outputs)
            case "stream->outputfields":
                return {stream: list(fields) for stream, fields in self.outputs.items()}
            case "source->stream->fields":
                return {name: {s: list(f) for s, f in streams.items()} for name, streams in self.sources.items()}
        own = f"context.{key} is an attribute. " if hasattr(self, key) else ""
        raise KeyError(f"A context has not the key {key!r}. {own}As in Storm it has {', '.join(_STORMS_KEYS)}.")

    def __iter__(self) -> Iterator[str]:
        return iter(_STORMS_KEYS)

    def __len__(self) -> int:
        return len(_STORMS_KEYS)


_STORMS_KEYS = (
    *("taskid", "componentid", "task->component"),
    *("streams", "stream->outputfields", "source->stream->fields"),
)
