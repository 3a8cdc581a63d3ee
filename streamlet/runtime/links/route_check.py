"""Which runs of tuples a worker may get from another: those that the plan has a route for. Pure."""

from __future__ import annotations

from streamlet.model.plan import Plan, stream_of
from streamlet.runtime.links.wire import BadFrame
from streamlet.runtime.tasks.emitter import Incoming


class RouteCheck(dict[tuple[int, int, str], int]):
    """(source, target, stream) -> how many fields a tuple has; filled as it is asked, -1 for what is not in the plan.

    A frame with a valid tag comes from a worker of the run. That it fits the plan is checked nonetheless: what a bolt
    or the loop takes for granted of a tuple must not depend on the other end being free of bugs.
    """

    def __init__(self, plan: Plan, worker: int) -> None:
        self._plan = plan
        self._worker = worker
        self._worker_of = {task.task_id: task.worker for task in plan.tasks}

    def __missing__(self, key: tuple[int, int, str]) -> int:
        width = self._width(*key)
        if width >= 0:  # what a plan has is bounded, what a frame may hold is not
            self[key] = width
        return width

    def _width(self, source: int, target: int, stream: str) -> int:
        plan = self._plan
        if source not in self._worker_of or self._worker_of.get(target) != self._worker:
            return -1
        sender, receiver = plan.tasks[source - 1].component, plan.tasks[target - 1].component
        for route in plan.routes:
            if (route.source.component, route.source.stream, route.target) == (sender, stream, receiver):
                return len(stream_of(plan.topology.component(sender), stream).fields)
        return -1

    def check(self, incoming: Incoming) -> None:
        """Raises BadFrame for a run that is not between a task of the sending worker and one of this worker's that
        reads the stream, or whose tuples have another number of fields than the stream.
        """
        for run in incoming.runs:
            width = self[run.source, run.target, run.stream]
            if width < 0 or self._worker_of[run.source] != incoming.worker:
                raise BadFrame(f"A run from worker {incoming.worker} goes where the plan has no route.")
            if not set(map(len, run.values)) <= {width}:
                raise BadFrame(f"A tuple from worker {incoming.worker} has more or fewer fields than its stream.")
