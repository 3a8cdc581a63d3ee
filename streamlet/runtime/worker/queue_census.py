"""Asking all workers what they have in their queues, and answering them. On the loop's thread.

A worker with spouts asks while it has open trees: often while a window may still grow, once a second at least. What it
hears steers how many trees its spouts may have open (``tracking.window``), and says which of the old ones have timed
out (``tracking.overdue``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from streamlet.base.clock import Clock
from streamlet.base.notices import Notices
from streamlet.components.tuples import Tuple
from streamlet.model.plan import Plan
from streamlet.runtime.links.links import Departures, Links
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.tasks.building import LiveTask, WorkerContext
from streamlet.runtime.tasks.emitter import Work
from streamlet.runtime.tasks.in_hand import CALL, CALLS, COUNT, TASK
from streamlet.runtime.tasks.ledgers import Ledgers
from streamlet.runtime.tasks.shuffle import CALM
from streamlet.runtime.tasks.spout_task import SpoutTask
from streamlet.runtime.tasks.user_errors import AGAIN_S, Holder, forgotten_by, timed_out, waits_long
from streamlet.runtime.worker.timers import Timers
from streamlet.tracking.census import Answer, Ask, Census, CensusResult
from streamlet.tracking.overdue import NOBODY
from streamlet.tracking.roots import entry_of, owner_task
from streamlet.tracking.shared_roots import each_entry, each_root

SOON_S = 0.005
"""Seconds to the next round after one that let no window grow; doubled each time, up to LATEST_S."""

LATEST_S = 1.0
"""Seconds between two rounds at most; a quarter of the shortest target if that is less."""

STEER_S = 0.1
"""Seconds that a load is measured for, and between two changes of the shuffles that follow it."""

PACE_TUPLES = 8
PACE_S = 0.010
"""Seconds of work, or tuples, after which a bolt's time for a tuple is measured again."""

WAIT_TOLD_S = 1.0
"""Seconds before a notice of a long wait, which all rounds meanwhile must find."""

WAIT_AGAIN_S = 60.0
"""Seconds before the next notice that the same task waits."""


PROCESS = CALLS.index("process")
"""The number of a call with tuples, also of a whole batch."""


class QueueCensus:
    """Both sides of a census in one worker. ``queued`` returns what waits for its bolts."""

    def __init__(
        self,
        shared: WorkerContext,
        tasks: Mapping[int, LiveTask],
        ledgers: Ledgers,
        links: Links,
        timers: Timers,
        queued: Callable[[], Iterator[Work]],
        departures: Departures,
        slept_s: Callable[[], float],
    ) -> None:
        self._shared = shared
        self._plan: Plan = shared.plan
        self._me = shared.worker
        self._tasks = tasks
        self._ledgers = ledgers
        self._links = links
        self._timers = timers
        self._queued = queued
        self._departures = departures
        self._load = _Load(shared.clock, slept_s)
        self._loads: Sequence[float] = ()
        self._shuffled_at = 0.0
        self._workers = range(shared.plan.workers)
        # Numbers of one epoch are never those of another: an answer to a dead predecessor counts for nothing.
        self._census = Census(self._workers, shared.epoch << 32)
        self._scheduled = False
        self._apart_s = SOON_S
        self._paces: dict[int, _Pace] = {}
        self._waits_since: dict[int, float] = {}
        """When the first of the latest rounds ended that all found a wait above a spout's target, by its task."""
        self._told_wait: Notices[int] = Notices(WAIT_AGAIN_S)
        self._told_expired: Notices[tuple[int, int]] = Notices(AGAIN_S)
        self._unreported: Counter[tuple[int, int]] = Counter()
        """Trees that timed out since it was last told, by spout task and the task that holds them."""
        self._explained: set[tuple[int, int]] = set()
        """Those that the end of the run knows."""

    # -- asking ------------------------------------------------------------------------------------------------

    def begin_if_due(self, now: float) -> None:
        """Begin asking if a spout has open trees. Called once a turn."""
        if not self._scheduled and any(spout.pending for spout in self._ledgers.spouts.values()):
            self._waits_since.clear()
            self._next(now)

    def reset(self) -> None:
        """Forget the present round: a link was lost, and every tree failed."""
        self._census.reset()
        self._scheduled = False
        for spout in self._ledgers.spouts.values():
            spout.counting = None

    def _next(self, due: float) -> None:
        self._scheduled = True
        self._timers.once(due, partial(self._ask, self._census.number))

    def _ask(self, number: int) -> None:
        if number != self._census.number:
            return  # reset since
        # Also for trees that were opened and done since: a spout whose trees last for no more than a turn would have
        # nothing open at any question, and never hear that its window may grow.
        spouts = [spout for spout in self._ledgers.spouts.values() if spout.wants_census]
        if not spouts:
            self._scheduled = False
            return
        now = self._shared.clock.monotonic()
        marks = [spout.census_begins(now) for spout in spouts]
        floors, bounds = [floor for floor, _ in marks], [bound for _, bound in marks if bound]
        ask = Ask(self._census.begin(), floors, bounds, self._loads)
        for worker in self._workers:
            if worker != self._me:
                self._departures.to(worker).ask = ask
        self._take(self._me, self._answer(ask))

    def heard(self, worker: int, ask: Ask | None, answer: Answer | None) -> None:
        """Take a frame's question and answer. Call it after everything else of the frame."""
        if answer is not None:
            self._take(worker, answer)
        if ask is not None:
            self._departures.to(worker).answer = self._answer(ask)
            self._steer_shuffles(ask.loads)

    def _take(self, worker: int, answer: Answer) -> None:
        found = self._census.take(worker, answer)
        if found is None:
            return
        self._loads = found.loads
        self._steer_shuffles(found.loads)
        now = self._shared.clock.monotonic()
        changes = [self._judge(spout, found, now) for spout in self._ledgers.spouts.values() if spout.counting]
        if True in changes:
            self._apart_s = 0.0
        elif False in changes:
            self._apart_s = SOON_S
        else:
            targets = [spout.window.target_s / 4 for spout in self._ledgers.spouts.values()]
            latest_s = STEER_S if self._shared.shuffles else LATEST_S
            self._apart_s = min(max(2 * self._apart_s, SOON_S), latest_s, *targets)
        self._next(now + self._apart_s)

    def _steer_shuffles(self, loads: Sequence[float]) -> None:
        """Let the shuffles of this worker know the loads of all."""
        # Not more often than loads are measured: several workers ask, and each brings news of the same time.
        now = self._shared.clock.monotonic()
        if loads and now - self._shuffled_at >= STEER_S:
            self._shuffled_at = now
            for shuffle in self._shared.shuffles:
                shuffle.measured(dict(enumerate(loads)))

    # -- what follows from it ----------------------------------------------------------------------------------

    def _judge(self, spout: SpoutTask, found: CensusResult, now: float) -> bool | None:
        """Steer a spout's window; end its trees that timed out.

        Returns whether to ask again soon: as ``PendingWindow.measured``.
        """
        changed = spout.steer(found)
        if found.wait_s <= spout.window.target_s:
            self._waits_since.pop(spout.task_id, None)
        elif now - self._waits_since.setdefault(spout.task_id, now) >= WAIT_TOLD_S:
            # Rule: tell of a long wait when all rounds of a second have found it. A bolt's time for a tuple is that of
            # a few, and two that the system held up for a tenth of a second make a queue look many times as long.
            self._tell_wait(spout, found, now)
        expired = self._ledgers.tell_failures(spout, partial(spout.expire, found, now))
        if expired:
            self._tell_expired(spout, expired)
        return True if spout.overdue.in_doubt else changed

    def _tell_wait(self, spout: SpoutTask, found: CensusResult, now: float) -> None:
        if self._told_wait.due(spout.task_id, now) is not None:
            text = waits_long(self._name(spout.task_id), self._name(found.slowest), found.wait_s, spout.window)
            self._shared.tell("warning", text, self._name(found.slowest), found.slowest)

    def _tell_expired(self, spout: SpoutTask, expired: Mapping[int, int]) -> None:
        now = self._shared.clock.monotonic()
        for task, count in Counter(expired.values()).items():
            key = spout.task_id, task
            self._unreported[key] += count
            if self._told_expired.due(key, now) is not None:
                holder = None if task == NOBODY else self._holder(task)
                text = timed_out(self._name(spout.task_id), self._unreported.pop(key), spout.pending.timeout_s, holder)
                if holder is not None and key not in self._explained:
                    self._explained.add(key)
                    self._shared.explain(forgotten_by(holder, spout.pending.timeout_s))
                about = spout.task_id if holder is None else task
                self._shared.tell("error", text, self._name(about), about)

    def _holder(self, task_id: int) -> Holder:
        name = self._name(task_id)
        # Rule: of calls that are under way, nobody forgot a tuple: no ack is missing, and no setting for a bolt that
        # acks by itself would help.
        has_calls = getattr(self._plan.topology.component(name).cls, "answers_for_untracked", False)
        return Holder(name, task_id, has_calls)

    def _name(self, task_id: int) -> str:
        return self._plan.tasks[task_id - 1].component

    # -- answering ---------------------------------------------------------------------------------------------

    def _answer(self, ask: Ask) -> Answer:
        """Count this worker's tuples, between two calls of user code."""
        counts: Counter[int] = Counter()
        bounds = {owner_task(bound): bound for bound in ask.bounds}
        waiting: dict[int, int] = {}
        for work in self._queued():
            counts[work.run.target] += work.left
            if bounds:
                waiting |= dict.fromkeys(_older(work.run.multi, work.run.roots[-work.left :], bounds), work.run.target)
        for task_id, live in self._tasks.items() if bounds else ():
            for batch in live.task.held.batches if isinstance(live.task, BoltTask) else ():
                waiting |= dict.fromkeys(_older(batch.multi, batch.roots, bounds), task_id)
            # Rule: what a bolt holds while emits of its threads wait for room is queued, and not forgotten. Its readers
            # are slow; timed out, it would be emitted again, behind itself. So is what waits for one of its threads.
            for tup in _queued_in(live.task) if isinstance(live.task, BoltTask) else ():
                roots = [root for root, _ in tup.anchors] if tup.anchors else [tup.root]
                waiting |= dict.fromkeys(_older(False, roots, bounds), task_id)
        leaving = 0  # nobody here knows how long their tasks will take
        for run in self._departures.staying():
            leaving += len(run.roots)
            waiting |= dict.fromkeys(_older(run.multi, run.roots, bounds), run.target)
        waits = {task: count * self._cost(task) for task, count in counts.items()}
        sent, received = self._links.traffic()
        return Answer(
            ask.number,
            counts.total() + leaving,
            sum(waits.values(), 0.0),  # of one worker, since its tasks take turns on one thread
            max(waits, key=waits.__getitem__, default=0),
            sent,
            received,
            waiting,
            self._held(bounds, {owner_task(floor): floor for floor in ask.floors}),
            self._load_now(),
        )

    def _load_now(self) -> float:
        """Return the load of this worker as shuffles should see it."""
        # Rule: a worker is full while a bolt of it rests, and not calm while one holds tuples for longer than a load is
        # measured. Work that goes on in other threads, or in a producer, does not keep the loop awake: shuffles would
        # bring all tuples to a pool that is full, and leave those of other workers idle.
        now = self._shared.clock.monotonic()
        bolts = [live.task for live in self._tasks.values() if isinstance(live.task, BoltTask)]
        if self._shared.resting or any(bolt.held.is_full(now) for bolt in bolts):
            return 1.0
        holds = any(now - since >= STEER_S for bolt in bolts for since in islice(bolt.held.given.values(), 1))
        return max(self._load.measured(), CALM) if holds else self._load.measured()

    def work_left(self) -> tuple[float, float]:
        """Return the seconds of work in queues, and the slowest call's."""
        # Of a bolt that takes seconds for a tuple none may be queued, and one be under work.
        counts: Counter[int] = Counter()
        for work in self._queued():
            counts[work.run.target] += work.left
        # Rule: with what other threads have handed over. It is taken over while the run ends, and a bolt may need as
        # long for it as for all that is queued.
        shares: dict[int, float] = {}
        for live in self._tasks.values():
            if live.task.calls.rows:
                readers = Counter(self._name(box.target) for box in live.boxes)
                for box in live.boxes:
                    share = live.task.calls.rows / readers[self._name(box.target)]
                    shares[box.target] = shares.get(box.target, 0.0) + share
        for task, live in self._tasks.items():  # what it works on elsewhere
            if isinstance(live.task, BoltTask) and live.task.held.most:
                counts[task] += len(live.task.held)
        paces = {task: self._pace(task) for task, live in self._tasks.items() if isinstance(live.task, BoltTask)}
        wait_s = sum(count * paces[task] for task, count in counts.items())
        wait_s += sum(share * paces.get(task, 0.0) for task, share in shares.items())
        # Rule: with a whole call, for all tuples of a batch, or a tick. One that is under way is in no queue, and a
        # drain that is too short for it ends with its worker killed at work.
        bolts = [live.task for live in self._tasks.values() if isinstance(live.task, BoltTask)]
        calls_s = [bolt.call_s(paces[bolt.task_id]) for bolt in bolts]
        return float(wait_s), float(max(calls_s, default=0.0))

    def at_work_s(self) -> float:
        """Return the seconds that the tuples in the present call may take. Any thread."""
        words = self._shared.in_hand.words
        pace = self._paces.get(words[TASK]) if words[CALL] == PROCESS else None
        return words[COUNT] * pace.seconds if pace is not None else 0.0

    def _held(self, bounds: Mapping[int, int], floors: Mapping[int, int]) -> list[tuple[int, int, float]]:
        """Return the old tuples that user code holds; forget those of trees that are closed."""
        found = []
        now = self._shared.clock.monotonic()
        for task_id, live in self._tasks.items():
            if not isinstance(live.task, BoltTask):
                continue
            for tup in list(live.task.held.given):
                roots = [*each_root(root for root, _ in tup.anchors or ((tup.root, 0),))]
                if all(root < floors.get(owner_task(root), 0) for root in roots):
                    # Rule: a call that still runs keeps its place, though its tuple has timed out. The bolt would else
                    # be given as many more, which nobody works on, and which time out in their turn.
                    if not live.task.bolt.where_held(tup):
                        live.task.held.let_go(tup)
                    continue
                since = live.task.held.at_work_since(tup, now)
                found += [(root, task_id, now - since) for root in roots if root < bounds.get(owner_task(root), 0)]
        return found

    def _cost(self, task_id: int) -> float:
        """Return the seconds that each tuple in a task's queue costs."""
        # Rule: of a bolt that takes batches, only what one more tuple costs. What a call costs by itself is the same
        # for any queue: a window that is made smaller for it ends at one tree, with a whole request for each tuple.
        task = self._tasks[task_id].task
        assert isinstance(task, BoltTask)
        return min(self._pace(task_id), task.slices.batches.each_s)

    def _pace(self, task_id: int) -> float:
        """Return the seconds that a task lately took for a tuple."""
        live = self._tasks[task_id]
        pace = self._paces.get(task_id) or self._paces.setdefault(task_id, _Pace())
        assert isinstance(live.task, BoltTask)
        taken_s = live.task.taken_s(self._shared.clock.monotonic())
        return pace.measured(live.task.stats.executed, taken_s, max(1, live.task.held.most))


def _queued_in(bolt: BoltTask) -> Iterable[Tuple]:
    """Return the tuples that a bolt holds and that count as queued."""
    return bolt.held.given if bolt.calls.is_full else bolt.held.waiting()


def _older(multi: bool, roots: Iterable[Any], bounds: Mapping[int, int]) -> Iterator[int]:
    """Yield the ledger's entries of old trees: below their spout's bound."""
    flat = map(entry_of, chain.from_iterable(roots)) if multi else each_entry(roots)
    return (entry for entry in flat if entry < bounds.get(owner_task(entry), 0))


class _Load:
    """Measures how much of its time a worker's loop is awake.

    Over the last tenth of a second or more.
    """

    __slots__ = ("_at", "_clock", "_load", "_slept_before", "_slept_s")

    def __init__(self, clock: Clock, slept_s: Callable[[], float]) -> None:
        self._clock = clock
        self._slept_s = slept_s
        self._at = clock.monotonic()
        self._slept_before = slept_s()
        self._load = 0.0

    def measured(self) -> float:
        # Awake, not processor time: a bolt that waits for a database keeps its worker busy.
        now = self._clock.monotonic()
        seconds = now - self._at
        if seconds >= STEER_S:
            slept = self._slept_s()
            self._load = min(max(1.0 - (slept - self._slept_before) / seconds, 0.0), 1.0)
            self._at, self._slept_before = now, slept
        return self._load


class _Pace:
    """Seconds a tuple of one task, from its counters at intervals."""

    __slots__ = ("_busy_s", "_executed", "seconds")

    def __init__(self) -> None:
        self._executed = 0
        self._busy_s = 0.0
        self.seconds = 0.0

    def measured(self, executed: int, busy_s: float, at_once: int = 1) -> float:
        """Return seconds a tuple. ``at_once``: tuples that it may have under work."""
        tuples, seconds = executed - self._executed, busy_s - self._busy_s
        if not tuples:  # none in so long, of those that it has
            self.seconds = max(self.seconds, seconds / at_once)
        elif tuples >= PACE_TUPLES or seconds >= PACE_S or not self._executed:
            # Half of it from before: one long call among many short ones does not close the window.
            latest = seconds / tuples
            self.seconds = (self.seconds + latest) / 2 if self._executed else latest
            self._executed, self._busy_s = executed, busy_s
        return self.seconds
