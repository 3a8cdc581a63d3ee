"""Ask all workers of a run about their queues, for the workers with spouts. Pure.

A worker answers between two calls of user code, after it has read its links. So nothing is "under work" in an answer:
a worker that is busy in a call answers late, and until then nobody draws a conclusion.

The answers of a round are not of one moment. A tuple may leave a worker that has not answered yet for one that has, and
be in no answer of the round. Three things together exclude that: two rounds in a row without the tree; every frame that
a worker had sent by its answer in the first was received by the answer of the second (``CensusResult.settled``); and no
delta for the tree meanwhile (``Overdue``), for a tuple that moves on leaves one, which comes before the answer on the
link.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple


class Ask(NamedTuple):
    """A question to another worker."""

    number: int
    floors: Sequence[int]
    """The oldest open root of each spout task that asks: older trees are closed."""
    bounds: Sequence[int]
    """A root for each spout task with trees older than the time-out: those below it are looked for."""
    loads: Sequence[float] = ()
    """Of each worker, as it said in the asker's last round; empty before the first."""


class Answer(NamedTuple):
    """What one worker has at one moment between two calls."""

    number: int
    queued: int
    wait_s: float
    """Estimated seconds to work off all that is queued."""
    slowest: int
    """The task that needs most of these; 0 for none."""
    sent: Mapping[int, int]
    received: Mapping[int, int]
    """Frames over the present link, by worker at the other end."""
    waiting: Mapping[int, int]
    """The ledgers' entries of trees below the bounds that have a tuple in a queue, and the task of one such tuple."""
    held: Sequence[Sequence[float]]
    """(root, task, seconds) of tuples that user code was given so long ago and neither acked nor failed."""
    load: float
    """Share of its time that it was busy lately, 0 to 1."""


class CensusResult(NamedTuple):
    """What a round of answers says together."""

    queued: int
    wait_s: float
    """That of the worker where it is longest."""
    slowest: int
    settled: bool
    waiting: Mapping[int, int]
    """As in the answers."""
    held: Mapping[int, tuple[int, float]]
    """Root -> task that has held a tuple of it longest, and the seconds."""
    loads: Sequence[float]
    """Of each worker, by its number."""


class Census:
    """The asker's side: one round after another, each complete when every worker has answered."""

    __slots__ = ("_answers", "_sent_before", "_workers", "asking", "number")

    def __init__(self, workers: Collection[int], first: int) -> None:
        """Make the census of these workers; rounds are numbered from ``first``."""
        self._workers = workers
        self._answers: dict[int, Answer] = {}
        self._sent_before: dict[int, Mapping[int, int]] | None = None
        self.asking = False
        self.number = first

    def begin(self) -> int:
        """Begin a round; return its number, which every answer must bear."""
        self.number += 1
        self.asking = True
        self._answers.clear()
        return self.number

    def reset(self) -> None:
        """Forget all rounds: a link was lost, and its counts and answers with it."""
        self.asking = False
        self.number += 1
        self._answers.clear()
        self._sent_before = None

    def take(self, worker: int, answer: Answer) -> CensusResult | None:
        """Take an answer; return the findings if it was the last one missing."""
        # An answer to an earlier round says what a worker had then: trees that were opened since are not in it.
        if not self.asking or answer.number != self.number:
            return None
        self._answers[worker] = answer
        if len(self._answers) < len(self._workers):
            return None
        self.asking = False
        settled = self._settled()
        self._sent_before = {worker: answer.sent for worker, answer in self._answers.items()}
        return _result_of([self._answers[worker] for worker in sorted(self._workers)], settled)

    def _settled(self) -> bool:
        """Tell whether every frame sent by the last round has been received."""
        # Compared link by link. One sum over all would let frames of one link stand for those of another.
        return self._sent_before is not None and all(
            count <= self._answers[receiver].received.get(sender, 0)
            for sender, counts in self._sent_before.items()
            for receiver, count in counts.items()
            if receiver in self._answers
        )


def _result_of(answers: Sequence[Answer], settled: bool) -> CensusResult:
    longest = max(answers, key=lambda answer: answer.wait_s)
    held: dict[int, tuple[int, float]] = {}
    for answer in answers:
        for root, task, seconds in answer.held:
            if held.get(int(root), (0, -1.0))[1] < seconds:
                held[int(root)] = int(task), seconds
    waiting = {entry: task for answer in answers for entry, task in answer.waiting.items()}
    queued, loads = sum(a.queued for a in answers), [answer.load for answer in answers]
    return CensusResult(queued, longest.wait_s, longest.slowest, settled, waiting, held, loads)
