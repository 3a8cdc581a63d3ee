"""A check of received tuples: each must follow a route of the plan. Pure.

A frame with a valid tag comes from a worker of the run. Whether it fits the plan is checked nonetheless: the other end
may have a bug, and a tuple of wrong width, or for a task that is elsewhere, would end this worker.
"""

from __future__ import annotations

from streamlet.components.columns import Columns
from streamlet.model.plan import Plan, stream_of
from streamlet.runtime.links.wire import BadFrame
from streamlet.runtime.tasks.emitter import Incoming


class RouteCheck(dict[tuple[int, int, str], int]):
    """(source, target, stream) -> number of fields of a tuple; -1 without a route. Filled as it is asked."""

    def __init__(self, plan: Plan, worker: int) -> None:
        self._plan = plan
        self._worker = worker
        self._worker_of = {task.task_id: task.worker for task in plan.tasks}

    def __missing__(self, key: tuple[int, int, str]) -> int:
        width = self._width(*key)
        # Only routes are kept: a plan has few, a peer could send any number of wrong keys.
        if width >= 0:
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
        """Refuse a frame with tuples that no route brings here. Raises BadFrame.

        A run must lead from a task of the sending worker to a task of this one that reads the stream, and its tuples
        must have as many fields as the stream. An answer about queues may name only tasks of the sending worker; its
        tuples may wait for any task.
        """
        for run in incoming.runs:
            width = self[run.source, run.target, run.stream]
            if width < 0 or self._worker_of[run.source] != incoming.worker:
                raise BadFrame(f"A run from worker {incoming.worker} goes where the plan has no route.")
            widths = {len(run.values.by_field)} if isinstance(run.values, Columns) else set(map(len, run.values))
            if not widths <= {width}:
                raise BadFrame(f"A tuple from worker {incoming.worker} has more or fewer fields than its stream.")
        if incoming.answer is not None:
            tasks = {incoming.answer.slowest, *(held[1] for held in incoming.answer.held)} - {0}
            if any(self._worker_of.get(int(task)) != incoming.worker for task in tasks):
                raise BadFrame(f"An answer from worker {incoming.worker} names a task that it does not have.")
            if not self._worker_of.keys() >= set(incoming.answer.waiting.values()):
                raise BadFrame(f"An answer from worker {incoming.worker} names a task that nobody has.")
