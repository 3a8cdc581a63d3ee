"""What dead workers took along: by what outlives them, and by what the living say."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from streamlet import Bolt, Spout, Topology
from streamlet.backends.untracked_losses import TupleLoss, UntrackedLosses
from streamlet.model.plan import Plan, make_plan
from streamlet.runtime.tasks.untracked_counts import Counted
from tests.seeds import seeds


class Numbers(Spout):
    outputs = ["n"]


class Relay(Bolt):
    outputs = ["n"]


class Store(Bolt):
    pass


class Chain(Topology):
    numbers = Numbers.spec()
    relay = Relay.spec(inputs=[numbers], par=3)
    store = Store.spec(inputs=[relay], par=3)


PLAN = make_plan(Chain.__topology__, 3)
"""Tasks by worker: 1, 4, 7 on the first; 2, 5 on the second; 3, 6 on the third. 2, 3, 4 relay, 5, 6, 7 store."""


@pytest.fixture
def losses() -> UntrackedLosses:
    assert [[task.task_id for task in PLAN.tasks_on(worker)] for worker in range(3)] == [[1, 4, 7], [2, 5], [3, 6]]
    return UntrackedLosses(PLAN)


def test_what_went_to_a_dead_worker_and_was_not_done_is_lost(losses: UntrackedLosses) -> None:
    """From each of the others, and what it emitted to itself."""
    assert losses.died(1, 1, Counted({2: 70, 5: 20}, {5: 30}, {}), {0, 1, 2}, ends=False) == []
    assert losses.exchanged(0, 1, 1, {2: 90, 5: 1}, {}) == []
    assert losses.exchanged(2, 1, 1, {5: 4}, {}) == [TupleLoss(1, 1, False, Counter(relay=20, store=15))]


def test_what_a_dead_worker_emitted_and_nobody_read_is_lost(losses: UntrackedLosses) -> None:
    losses.died(1, 1, Counted({2: 90}, {6: 50, 7: 40}, {2: 3}), {0, 2}, ends=True)
    losses.exchanged(0, 1, 1, {2: 90}, {7: 40})
    assert losses.exchanged(2, 1, 1, {}, {6: 41}) == [TupleLoss(1, 1, True, Counter(store=9, relay=3))]


def test_a_death_that_took_nothing_along_is_no_loss(losses: UntrackedLosses) -> None:
    losses.died(1, 1, Counted({2: 90}, {6: 90}, {}), {0, 2}, ends=False)
    assert losses.exchanged(0, 1, 1, {2: 90}, {}) == losses.exchanged(2, 1, 1, {}, {6: 90}) == losses.settle() == []


def test_what_waits_now_is_what_went_to_a_task_less_what_it_has_done(losses: UntrackedLosses) -> None:
    """From all workers, its own among them; what threads have handed over stands under their component."""
    losses.heard(0, Counted({}, {2: 100, 3: 40}, {1: 6}), {})
    losses.heard(1, Counted({2: 90}, {6: 50}, {}), {})
    assert losses.waiting() == Counter(relay=50, store=50, numbers=6)
    losses.heard(2, Counted({3: 40, 6: 51}, {}, {}), {})  # a moment later than the others
    assert losses.waiting() == Counter(relay=10, numbers=6)


def test_what_went_to_and_came_from_dead_workers_does_not_wait(losses: UntrackedLosses) -> None:
    losses.heard(0, Counted({}, {2: 100}, {}), {})
    losses.heard(2, Counted({6: 45}, {}, {}), {})
    losses.died(1, 1, Counted({2: 90}, {6: 50}, {}), {0, 2}, ends=False)
    losses.exchanged(0, 1, 1, {2: 100}, {})
    losses.exchanged(2, 1, 1, {}, {6: 48})
    assert losses.waiting() == Counter(store=3)


def test_what_went_to_earlier_epochs_is_not_lost_again(losses: UntrackedLosses) -> None:
    """Neither at the second death of a worker, nor at that of one which had sent to the first."""
    losses.died(1, 1, Counted({2: 90}, {6: 90}, {}), {0, 2}, ends=False)
    losses.exchanged(0, 1, 1, {2: 100}, {})
    assert losses.exchanged(2, 1, 1, {}, {6: 90}) == [TupleLoss(1, 1, False, Counter(relay=10))]
    losses.died(1, 2, Counted({2: 30}, {6: 30}, {}), {0, 2}, ends=False)
    losses.exchanged(0, 1, 2, {2: 30}, {})
    assert losses.exchanged(2, 1, 2, {}, {6: 30}) == []
    losses.died(0, 1, Counted({}, {2: 131}, {}), {1, 2}, ends=False)
    losses.exchanged(1, 0, 1, {}, {})
    assert losses.exchanged(2, 0, 1, {}, {}) == [TupleLoss(0, 1, False, Counter(relay=1))], "it had not left"
    losses.died(2, 1, Counted({6: 121}, {}, {}), {0, 1}, ends=False)
    losses.exchanged(0, 2, 1, {}, {})
    assert losses.exchanged(1, 2, 1, {6: 3}, {}) == [TupleLoss(2, 1, False, Counter(store=2))], "read of two dead: 120"


def test_of_two_that_die_together_what_was_between_them_is_lost_once(losses: UntrackedLosses) -> None:
    losses.died(1, 1, Counted({2: 90}, {6: 90}, {}), {0, 2}, ends=False)
    losses.exchanged(0, 1, 1, {2: 90}, {})
    assert losses.died(2, 1, Counted({6: 70}, {5: 8}, {}), {0}, ends=False) == [
        TupleLoss(1, 1, False, Counter(store=8))
    ]
    assert losses.exchanged(0, 2, 1, {}, {}) == [TupleLoss(2, 1, False, Counter(store=20))]


def test_of_two_that_die_at_once_nothing_is_lost_if_all_was_done(losses: UntrackedLosses) -> None:
    """Each is taken for living until its own death is judged."""
    losses.died(1, 1, Counted({2: 90}, {6: 90}, {}), {0, 2}, ends=False)
    losses.died(2, 1, Counted({6: 90}, {}, {}), {0}, ends=False)
    assert losses.exchanged(0, 1, 1, {2: 90}, {}) == [] == losses.exchanged(0, 2, 1, {}, {}) == losses.settle()


def test_without_a_page_the_last_heartbeat_counts_and_the_end_waits_for_nobody(losses: UntrackedLosses) -> None:
    losses.heard(1, Counted({2: 60}, {}, {}), {})
    losses.heard(0, Counted({}, {2: 90}, {}), {2: 88})
    losses.died(1, 1, None, {0, 2}, ends=True)
    assert losses.settle() == [TupleLoss(1, 1, True, Counter(relay=28))]
    assert losses.settle() == [] == losses.died(1, 1, None, set(), ends=True), "noted once"


def test_what_closed_workers_sent_each_other_and_nobody_read_is_on_the_way(losses: UntrackedLosses) -> None:
    assert losses.closed(0, {2: 90, 6: 5}, {1: {7: 8}}) == []
    losses.closed(2, {}, {0: {6: 5}})
    assert losses.on_the_way() == Counter(), "the other end may still close"
    losses.closed(1, {7: 20}, {0: {2: 89}})
    assert losses.on_the_way() == Counter(relay=1, store=12)


@pytest.mark.parametrize("is_first", [True, False])
def test_what_a_worker_dies_with_after_others_have_closed_is_lost(losses: UntrackedLosses, is_first: bool) -> None:
    """It emitted to one that had closed, and was sent what it never did."""
    if is_first:
        losses.closed(0, {2: 90}, {1: {7: 30}})
    told = losses.died(1, 1, Counted({2: 60}, {7: 50}, {}), {0}, ends=True)
    if not is_first:
        told += losses.closed(0, {2: 90}, {1: {7: 30}})
    assert told + losses.settle() == [TupleLoss(1, 1, True, Counter(relay=30, store=20))]
    assert losses.on_the_way() == Counter(), "counted with the death"


class Traffic:
    """Three workers that emit, send, read and work at random, and die; what is truly lost is counted beside it."""

    def __init__(self, rng: random.Random, plan: Plan) -> None:
        self.rng, self.plan, self.losses = rng, plan, UntrackedLosses(plan)
        self.epochs = dict.fromkeys(range(3), 1)
        self.lost: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self.unanswered: list[tuple[int, int, int, dict[int, int], dict[int, int]]] = []
        self.names = {task.task_id: task.component for task in plan.tasks}
        self.home = {task.task_id: task.worker for task in plan.tasks}
        self.done: dict[int, Counter[int]] = {}
        self.emitted: dict[int, Counter[int]] = {}
        self.sent: dict[int, Counter[int]] = {}
        self.read: dict[tuple[int, int], Counter[int]] = {}
        self.staying: Counter[tuple[int, int]] = Counter()
        """(worker, task elsewhere) -> what waits in the worker until it is sent."""
        self.flight: Counter[tuple[int, int]] = Counter()
        self.inbox: Counter[int] = Counter()
        for worker in range(3):
            self.begin(worker)

    def begin(self, worker: int) -> None:
        self.done[worker], self.emitted[worker], self.sent[worker] = Counter(), Counter(), Counter()
        for other in range(3):
            self.read[worker, other] = Counter()

    def step(self) -> None:
        worker, task = self.rng.randrange(3), self.rng.randint(2, 7)
        match self.rng.choice(["emit", "send", "read", "work", "work", "answer"]):
            case "emit":
                count = self.rng.randint(1, 9)
                self.emitted[worker][task] += count
                if self.home[task] == worker:
                    self.inbox[task] += count
                else:
                    self.staying[worker, task] += count
            case "send":
                count = self.staying.pop((worker, task), 0)
                self.sent[worker][task] += count
                self.flight[worker, task] += count
            case "read":
                count = self.rng.randint(0, self.flight[worker, task])
                self.arrive(worker, task, count)
            case "work":
                count = self.rng.randint(0, self.inbox[task])
                self.inbox[task] -= count
                self.done[self.home[task]][task] += count
            case "answer":
                self.answer(1)

    def arrive(self, worker: int, task: int, count: int) -> None:
        self.flight[worker, task] -= count
        self.inbox[task] += count
        self.read[self.home[task], worker][task] += count

    def answer(self, most: int) -> None:
        for _ in range(min(most, len(self.unanswered))):
            self.tell(self.losses.exchanged(*self.unanswered.pop(0)))

    def tell(self, losses: list[TupleLoss]) -> None:
        for loss in losses:
            self.told.update(loss.tuples)

    def die(self, worker: int) -> None:
        """Its last words arrive, or are cut short; what it holds, and what is on the way to it, is lost."""
        for other in {0, 1, 2} - {worker}:
            for task in (task.task_id for task in self.plan.tasks_on(other)):
                self.arrive(worker, task, self.rng.randint(0, self.flight[worker, task]))
                self.lose(task, self.flight.pop((worker, task), 0) + self.staying.pop((worker, task), 0))
            for task in (task.task_id for task in self.plan.tasks_on(worker)):
                self.lose(task, self.flight.pop((other, task), 0))
        for task in (task.task_id for task in self.plan.tasks_on(worker)):
            self.lose(task, self.inbox.pop(task, 0))
        counts = Counted(dict(self.done[worker]), dict(self.emitted[worker]), {})
        self.unanswered = [answer for answer in self.unanswered if answer[0] != worker]
        self.tell(self.losses.died(worker, self.epochs[worker], counts, {0, 1, 2}, ends=False))
        mine = [task.task_id for task in self.plan.tasks_on(worker)]
        for other in {0, 1, 2} - {worker}:
            sent = {task: self.sent[other].pop(task, 0) for task in mine}
            read, self.read[other, worker] = dict(self.read[other, worker]), Counter()
            self.unanswered.append((other, worker, self.epochs[worker], sent, read))
        self.epochs[worker] += 1
        self.begin(worker)

    def close(self, worker: int) -> None:
        """It names what waits in it, and says what went each way; what others send it from now on, nobody reads."""
        for task in (task.task_id for task in self.plan.tasks_on(worker)):
            for other in {0, 1, 2} - {worker}:
                self.arrive(other, task, self.rng.randint(0, self.flight[other, task]))
            self.inbox.pop(task, None)
        read = {other: dict(self.read[worker, other]) for other in {0, 1, 2} - {worker}}
        self.tell(self.losses.closed(worker, dict(self.sent[worker]), read))

    def send_late(self, worker: int) -> None:
        """What it emits in a call that others do not wait for."""
        for task in (task for task, home in self.home.items() if home != worker and task > 1):
            count = self.rng.randint(0, 9)
            self.emitted[worker][task] += count
            self.sent[worker][task] += count
            self.flight[worker, task] += count

    def lose(self, task: int, count: int) -> None:
        self.lost[self.names[task]] += count


@pytest.mark.parametrize("seed", seeds("losses"))
def test_whatever_happens_what_is_told_is_what_is_lost(seed: int) -> None:
    """Each death is answered at once, before the next: then the numbers are exact."""
    rng = random.Random(seed)
    made = Traffic(rng, PLAN)
    for _ in range(30):
        for _ in range(rng.randint(1, 60)):
            made.step()
        made.die(rng.randrange(3))
        made.answer(9)
    assert +made.told == +made.lost and made.lost.total() > 0


@pytest.mark.parametrize("seed", seeds("losses"))
def test_in_whatever_order_workers_close_what_nobody_reads_is_counted_exactly(seed: int) -> None:
    rng = random.Random(seed)
    made = Traffic(rng, PLAN)
    for _ in range(5):
        for _ in range(rng.randint(1, 60)):
            made.step()
        made.die(rng.randrange(3))
        made.answer(9)
    for _ in range(rng.randint(1, 60)):
        made.step()
    for worker in rng.sample(range(3), 3):
        made.send_late(worker)
        made.close(worker)
    lost: Counter[str] = Counter()
    for (_, task), count in made.flight.items():
        lost[made.names[task]] += count
    assert +made.told == +made.lost and made.losses.settle() == []
    assert made.losses.on_the_way() == +lost and lost.total() > 0


@pytest.mark.parametrize("seed", seeds("losses"))
def test_of_workers_that_die_before_they_have_told_nothing_is_missing(seed: int) -> None:
    """Then what was between two of them may be counted higher, never lower."""
    rng = random.Random(seed)
    made = Traffic(rng, PLAN)
    for _ in range(30):
        for _ in range(rng.randint(1, 20)):
            made.step()
        made.die(rng.randrange(3))
    made.answer(999)
    made.tell(made.losses.settle())
    assert made.told >= made.lost and made.lost.total() > 0
