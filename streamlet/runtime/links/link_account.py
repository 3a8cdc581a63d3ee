"""The account of the untracked tuples that go over one worker's links. Pure.

Nobody sends an untracked tuple again, so what a lost link takes along is counted, by its two ends together: each notes
what had gone which way when the link broke, and says over the next one how much it had read of the other. What a worker
that died takes along is counted by the coordinator, from the same numbers (``backends.untracked_losses``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from streamlet.runtime.tasks.emitter import Run


class LinkAccount:
    """How many untracked tuples went each way, by task. On the loop's thread."""

    def __init__(self, tasks_on: Mapping[int, Sequence[int]]) -> None:
        """Count from nothing. ``tasks_on``: the tasks of each worker."""
        self._tasks_on = tasks_on
        self.sent: Counter[int] = Counter()
        """Task elsewhere -> tuples sent to it, without those that lost links took along."""
        self.lost: Counter[int] = Counter()
        """Task elsewhere -> tuples for it that lost links took along."""
        self._in_doubt: dict[int, Counter[int]] = {}
        """Worker whose link was lost -> ``sent`` of then, until it says how much it has read."""
        self._read: defaultdict[int, Counter[int]] = defaultdict(Counter)
        """Worker -> task here -> tuples that it has sent and that were read."""
        self._to_tell: dict[int, dict[int, int]] = {}
        """Worker whose link was lost -> ``_read`` of then, until there is a link to say it over."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether a worker has still to say how much it read."""
        return bool(self._in_doubt)

    def sends(self, runs: Sequence[Run], too_large: Sequence[Run]) -> None:
        """Count what leaves; ``too_large``: those of it that no frame could hold."""
        for run in runs:
            self.sent[run.target] += run.untracked_count
        for run in too_large:
            self.sent[run.target] -= run.untracked_count

    def reads(self, worker: int, run: Run) -> None:
        """Count what came."""
        self._read[worker][run.target] += run.untracked_count

    def link_broke(self, worker: int) -> None:
        """Note the tuples of each way over a lost link, all read."""
        self._in_doubt[worker] = Counter({task: self.sent[task] for task in self._tasks_on[worker]})
        self._to_tell[worker] = dict(self._read[worker])

    def tell(self) -> Iterator[tuple[int, dict[int, int]]]:
        """Yield once each worker of a lost link, and its tuples read."""
        while self._to_tell:
            yield self._to_tell.popitem()

    def settle(self, worker: int, read: Mapping[int, int]) -> Counter[int]:
        """Count by task what a worker did not read; ``read``: its word."""
        lost = +(self._in_doubt.pop(worker, Counter()) - Counter(read))
        self.sent -= lost
        self.lost += lost
        return lost

    def exchanged_with(self, worker: int) -> tuple[dict[int, int], dict[int, int]]:
        """Return the tuples sent to and read of a worker, by task."""
        return {task: self.sent[task] for task in self._tasks_on[worker]}, dict(self._read[worker])

    def all_exchanged(self) -> tuple[dict[int, int], dict[int, dict[int, int]]]:
        """Return the tuples sent, by task, and read, by worker and task."""
        return dict(+self.sent), {worker: dict(read) for worker, read in self._read.items()}

    def forget(self, worker: int) -> None:
        """Forget a worker that died, whose tuples are counted elsewhere."""
        self.write_off(worker)
        self._read.pop(worker, None)
        for task in self._tasks_on[worker]:
            self.sent.pop(task, None)

    def write_off(self, worker: int) -> None:
        """Expect no word of a dead worker, and have none for it."""
        self._in_doubt.pop(worker, None)
        self._to_tell.pop(worker, None)
