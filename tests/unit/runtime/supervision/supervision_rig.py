"""A supervisor whose workers do what healthy workers do."""

from __future__ import annotations

from typing import Any

from streamlet.runtime.links.links import Traffic
from streamlet.runtime.supervision.instructions import Instruction, Start
from streamlet.runtime.supervision.supervisor import Limits, Supervisor
from streamlet.runtime.worker.messages import Whole

ADDRESS = ("unix", "/s", 0)
QUIET: Traffic = ({}, {})


class CheckedSupervisor(Supervisor):
    """Checks its invariants after each event."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name.startswith("_") or name == "validate" or not callable(value):
            return value

        def checked(*args: Any, **more: Any) -> Any:
            out = value(*args, **more)
            self.validate()
            return out

        return checked


def running(
    workers: int = 2, spouts: frozenset[int] = frozenset({0}), limits: Limits | None = None, **more: Any
) -> Supervisor:
    """A supervisor whose workers are all up."""
    supervisor = CheckedSupervisor(workers, spouts, limits or Limits(), **more)
    assert supervisor.begin(0.0) == [Start(index, 1) for index in range(workers)]
    out = bring_up(supervisor, range(workers), 1.0)
    assert out[-1] == Whole(supervisor.version)
    return supervisor


def bring_up(supervisor: Supervisor, indexes: object, now: float) -> list[object]:
    """Let these workers do all that a healthy worker does; every instruction that followed."""
    out: list[object] = []
    epochs = {index: worker.epoch for index, worker in supervisor.workers.items()}
    for index in indexes:  # type: ignore[attr-defined]
        out += supervisor.ready(index, epochs[index], ADDRESS, now)
        out += supervisor.initialized(index, epochs[index])
    for index in supervisor.workers:
        out += supervisor.linked(index, epochs[index], supervisor.version)
    return out


def all_quiet(supervisor: Supervisor, now: float, step: int = 1, done: bool = True) -> list[Instruction]:
    """Let every worker say that it is quiet and still empty; what followed of the last one."""
    out: list[Instruction] = []
    for index, worker in supervisor.workers.items():
        out = supervisor.state(
            index, worker.epoch, drained=True, caught_up=False, now=now, done=done, traffic=QUIET, quiet=step
        )
    return out
