"""The loop of a worker: one thread that reads, runs tasks, settles acks, sends.

One turn, in this order: read frames; run bolts; settle acks and failures; run due timers; let spouts emit; run the
bolts they emitted to; send. A turn's work is sent when the turn ends, so batches grow with the load and a lone tuple
waits for nobody.

No locks: tasks, ledgers and links belong to this thread, and others only ``post``. Nothing blocks but the one
``select`` between turns, and users' code. So everything else is bounded: how long bolts run (``TURN_S``, ``BOLTS_S``),
how long spouts are asked, how many bytes are read of a link in one turn. While what they feed is full, spouts pause and
bolts wait (``BackPressure``).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import selectors
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from streamlet.base.errors import StreamletError, ValueCannotTravel, hurts_one_tuple
from streamlet.base.untracked import NOBODY_SENDS, untracked_text
from streamlet.components.batching import BatchingBolt
from streamlet.components.bolt import Bolt
from streamlet.model.bolt_numbers import not_numbers
from streamlet.model.paused import PausedPart
from streamlet.model.plan import TICK_PERIOD, Plan
from streamlet.runtime.links.link_account import LinkAccount
from streamlet.runtime.links.links import Departures, Links
from streamlet.runtime.links.wire import MAX_DATA_FRAME
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.tasks.building import LiveTask, WorkerContext, build_task, component_names, takes_batches
from streamlet.runtime.tasks.emitter import Inbox, Outbox, Run, Work
from streamlet.runtime.tasks.ledgers import Ledgers
from streamlet.runtime.tasks.other_threads import OtherThreads
from streamlet.runtime.tasks.spout_task import SpoutTask
from streamlet.runtime.tasks.untracked_counts import UntrackedCounts
from streamlet.runtime.tasks.user_errors import (
    ComponentFailed,
    behind,
    could_not_start,
    exited,
)
from streamlet.runtime.worker.back_pressure import BackPressure
from streamlet.runtime.worker.closing import close_components
from streamlet.runtime.worker.long_calls import LongCalls
from streamlet.runtime.worker.memory_growth import MemoryGrowth
from streamlet.runtime.worker.process_watch import LOOK_S as PROCESS_LOOK_S
from streamlet.runtime.worker.process_watch import ProcessWatch
from streamlet.runtime.worker.queue_census import QueueCensus
from streamlet.runtime.worker.spout_wakeups import SpoutWakeups
from streamlet.runtime.worker.spout_weights import SpoutWeights
from streamlet.runtime.worker.thread_watch import LOOK_S as THREADS_LOOK_S
from streamlet.runtime.worker.thread_watch import ThreadWatch
from streamlet.runtime.worker.timers import Timers

logger = logging.getLogger("streamlet")

SPOUT_BUDGET = 128
"""Most calls of one spout in one turn: the size of a batch under load."""

BATCH_BUDGET = 512
"""As SPOUT_BUDGET, for a spout all of whose readers take batches: the larger, the less a tuple costs them."""

TURN_S = 0.010
"""Seconds that a bolt may run before the loop reads its links again."""

POLL_S = 0.001
"""Seconds to sleep when a spout without a descriptor had nothing (Storm's 1 ms)."""

BOLTS_S = 0.100
"""Seconds that bolts may work off short runs while a stop, timer or peer waits."""

IDLE_S = 1.0
"""Seconds of the longest sleep: a missed wake-up costs no more."""

DRAINING = "draining"
"""The reason of the pause that ends a run."""

THREAD_CALLS = 256
"""Most calls of other threads that the loop makes for a bolt in one turn."""

FINISH_LINKS_S = 0.4
"""Seconds that a worker which stops with tuples under way may take to read its links to their end."""

LINKS_MISSING = frozenset({"starting", "recovering"})
"""Reasons of a pause while some worker has no link: emitted tuples have to wait."""

LEAVING = "tuples wait to leave"
"""The reason of the pause while tuples stay until another worker has room (``Departures``)."""

FINISH_S = 2.0
"""Seconds for open trees to be acked after an error has ended the worker."""

FINISH_STILL_S = 0.5
"""Seconds without one that is acked after which nothing more is waited for."""

Trace = Callable[[Run], None]


def _too_large_error(component: str, stream: str, *, untracked: bool) -> StreamletError:
    follows = "nobody sends it again, for it is not tracked" if untracked else "its tree has failed"
    return ValueCannotTravel(
        f"{component} emitted a tuple on stream {stream!r} that is larger than the {MAX_DATA_FRAME >> 20} MiB which "
        f"may travel to another worker at once. It was not sent, and {follows}. Emit the name of where the data lies, "
        "or its parts as tuples of their own."
    )


class WorkerLoop:
    """All tasks of one worker, and their turns.

    Built, initialised, run and closed on one thread. Other threads may only call ``post``.
    """

    # Long: the steps of one turn, and each of them changes the same queues, pauses and outboxes. What has a state of
    # its own is elsewhere: `Inbox`, `BackPressure`, `Ledgers`, `OtherThreads`, `QueueCensus`, `Timers`.

    def __init__(self, shared: WorkerContext, links: Links, trace: Trace | None = None) -> None:
        self.shared = shared
        self.plan: Plan = shared.plan
        self.links = links
        self.clock = shared.clock
        self.selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._posted: deque[Callable[[], None]] = deque()
        self._trace = trace
        self._worker_of = {task.task_id: task.worker for task in shared.plan.tasks}
        self.tasks: dict[int, LiveTask] = {}
        memory, depths = shared.conf["streamlet.worker.memory.bytes"], shared.plan.depths()
        self.untracked = UntrackedCounts(len(shared.plan.tasks), shared.page)
        self.account = LinkAccount(
            {worker: [task.task_id for task in shared.plan.tasks_on(worker)] for worker in range(shared.plan.workers)}
        )
        self.departures = Departures(
            links,
            self.account,
            min(shared.conf["streamlet.link.high.water.bytes"], memory // 32),
            lambda runs: self.ledgers.fail_unsendable(runs),
            self._fail_too_large,
        )
        to = self.departures.to
        bounded: list[BoltTask] = []
        self.long_calls = LongCalls(shared, self.tasks, bounded, self.post)
        self.ledgers = Ledgers(
            shared.plan,
            shared.clock,
            shared.acks,
            shared.fails,
            to,
            shared.in_hand,
            shared.causes,
            self.untracked.note_final,
            self.untracked.note_open,
            self.long_calls.watch,
        )
        self.spouts = self.ledgers.spouts
        bolts = [task for task in shared.plan.bolt_tasks if task.worker == shared.worker]
        self.inbox = Inbox(
            [task.task_id for task in sorted(bolts, key=lambda task: depths[task.component], reverse=True)],
            shared.conf["streamlet.inbox.high.water.tuples"],
            memory // 4,
            [task.task_id for task in bolts if takes_batches(shared.plan, task.component)],
        )
        self.back_pressure = BackPressure(
            shared.plan,
            shared.worker,
            self.inbox,
            self.departures,
            shared.resting,
            shared.clock,
            self.pause,
            self.resume,
            bounded,
        )
        self._grown = False
        """Whether the process has grown in a turn that is not over."""
        self.growth = MemoryGrowth(memory)
        self.weights = SpoutWeights(
            memory // 2,
            lambda spout, most: self.ledgers.guard(spout, "kept_bytes", partial(spout.weigh, most)),
            self._component_of,
        )
        self._turn_bytes: int = memory // 32
        """Bytes after which the turn of a task ends."""
        self._holders: list[BoltTask] = []
        """The bolts that may hold untracked tuples: nobody sends those again."""
        self.paused: set[str] = {"starting"}
        self.quiet = 0
        self._timed: dict[int, int] = {}
        """How many tuples each bolt with a timer had been given when that was called last."""
        self._ticking = shared.plan.ticking(shared.conf)
        self.other_threads = OtherThreads(
            shared.conf["streamlet.threads.queue.max"],
            shared.conf["streamlet.threads.wait.secs"],
            self.wake,
            memory // 8,
            shared.in_hand,
        )
        self.stopped = False
        self.at_rest = False
        """Whether the last turn has left nothing to do before a timer, a spout or another worker brings something."""
        self.timers = Timers()
        self._thread_watch = ThreadWatch(shared.tell, self._note_final)
        self._process_watch = ProcessWatch(shared.tell)
        self.wakeups = SpoutWakeups(
            self.selector,
            lambda spout: self.ledgers.guard(spout, "fileno", spout.spout.fileno),
            self._component_of,
            shared.tell,
        )
        self._slept_s = 0.0
        self.census = QueueCensus(
            shared,
            self.tasks,
            self.ledgers,
            links,
            self.timers,
            lambda: iter(self.inbox),
            self.departures,
            lambda: self._slept_s,
        )

    # -- life ----------------------------------------------------------------------------------------------

    def initialize(self) -> None:
        """Build every task and call ``initialize`` on it. Raises ComponentFailed for errors of the user's code."""
        self.selector.register(self._wake_read, selectors.EVENT_READ, self._drain_wake)
        self.links.attach(self.selector)
        now = self.clock.monotonic()
        self._process_watch.look("The topology's file, or a library that it uses,")
        for task in self.plan.tasks_on(self.shared.worker):
            where, began = "its constructor", self.clock.monotonic()
            self.shared.in_hand.note_call(task.task_id, where, began)
            try:
                cells = self.untracked.cells_of(task.task_id)
                live = self.tasks[task.task_id] = build_task(
                    self.shared, task, self.other_threads, cells, self.long_calls.watch, self._emitted_much
                )
                self.shared.built(live)
                self.long_calls.is_over(task.task_id, where, began)
                where, began = "initialize", self.clock.monotonic()
                self.shared.in_hand.note_call(task.task_id, where, began)
                live.component.initialize(live.conf, live.context)
                self.long_calls.is_over(task.task_id, where, began)
            except BaseException as error:
                if not hurts_one_tuple(error):
                    raise
                cls = self.plan.topology.component(task.component).cls
                called = cls if where != "initialize" else live.component.initialize
                told = could_not_start(task.component, task.task_id, where, error, called)
                raise told from behind(told, error)
            whose = f"{task.component}, or a library that it uses,"
            self._process_watch.look(whose, task.component, task.task_id)
            if isinstance(live.task, SpoutTask):
                self._add_spout(live.task, now)
            else:
                assert isinstance(live.component, Bolt)
                self._check_numbers(live.component, task.component)
                live.task.initialized()
                self._add_bolt(live, now)
        self.long_calls.begin(self.timers, now)
        self.timers.every(IDLE_S, self.wakeups.renew, now)
        later = "A component, or a library that one uses,"
        self.timers.every(PROCESS_LOOK_S, lambda: self._process_watch.look(later), now)
        self.timers.every(THREADS_LOOK_S, lambda: self._thread_watch.look(self.tasks.values()), now)
        self.shared.in_hand.clear()

    def _add_spout(self, spout: SpoutTask, now: float) -> None:
        self.spouts[spout.task_id] = spout
        name = self.plan.tasks[spout.task_id - 1].component
        self.wakeups.add(spout)
        period_s = spout.spout.timer_interval_s
        if period_s is not None:
            on_timer = partial(self.ledgers.guard, spout, "on_timer", spout.spout.on_timer)
            self._call_every(period_s, on_timer, f"The spout {name}", now)

    def _add_bolt(self, live: LiveTask, now: float) -> None:
        period_s = live.conf[TICK_PERIOD]
        if period_s is not None:
            self.timers.every(period_s, partial(self.tick, live, period_s), now)
        assert isinstance(live.component, Bolt) and isinstance(live.task, BoltTask)
        if live.task.held.most or live.component.answers_for_untracked:
            self.back_pressure.bounded.append(live.task)
        if live.component.answers_for_untracked or not live.component.auto_ack:
            self._holders.append(live.task)
        if live.component.timer_interval_s is not None:
            name = f"The bolt {live.plan.component}"
            self._call_every(live.component.timer_interval_s, partial(self._on_timer, live), name, now)

    def _check_numbers(self, bolt: Bolt, name: str) -> None:
        """Check the numbers that ``initialize`` may set. Raises ComponentFailed."""
        for attribute, value, what in not_numbers(bolt):
            raise ComponentFailed(f"The bolt {name} has {attribute} = {value!r} after initialize. {what}")

    def _call_every(self, period_s: float, on_timer: Callable[[], None], whose: str, now: float) -> None:
        try:
            self.timers.every(period_s, on_timer, now)
        except (TypeError, ValueError):
            raise ComponentFailed(
                f"{whose} has timer_interval_s = {period_s!r}. It is the seconds between calls of on_timer, more than "
                "0; None is for no calls."
            ) from None

    def pause(self, reason: str) -> None:
        """Keep spouts from emitting until every reason is gone."""
        self.paused.add(reason)
        self._set_active()
        if reason == DRAINING:
            self._refuse_calls(SpoutTask, "while the run ends: nothing new begins. It was not taken.")
            for spout in self.spouts.values():
                self.ledgers.guard(spout, "on_drain", spout.spout.on_drain)

    def resume(self, reason: str) -> None:
        """Take one reason away."""
        self.paused.discard(reason)
        self._set_active()

    def _set_active(self) -> None:
        for spout in self.spouts.values():
            spout.active = not (self.paused or spout.paused or spout.retired)

    def activate(self) -> None:
        """Let the first tuples flow."""
        for spout in self.spouts.values():
            if not spout.paused:
                self.ledgers.guard(spout, "activate", spout.spout.activate)
        self.resume("starting")
        for live in self.tasks.values():
            self._collect(live)  # what a bolt emitted in `initialize`

    def pause_parts(self, parts: Sequence[PausedPart]) -> None:
        """Let these parts of spouts emit nothing, and all others go on: somebody asked for it."""
        for spout in self.spouts.values():
            mine = [part for part in parts if part.spout == self._component_of(spout.task_id)]
            # Part by part first: a spout that goes on must know by then what of it does not.
            self.ledgers.guard(spout, "pause_parts", partial(spout.spout.pause_parts, mine))
            whole = any(not part.topic for part in mine)
            if whole == spout.paused:
                continue
            spout.paused = whole
            self._set_active()
            if self.activated:
                name = "deactivate" if whole else "activate"
                self.ledgers.guard(spout, name, getattr(spout.spout, name))

    @property
    def quiet_steps(self) -> int:
        """How many steps of quiet there are: one for each depth at which bolts get ticks, and one at least."""
        return max(1, len(self._ticking))

    def be_quiet(self, step: int) -> None:
        """Give the bolts of one depth their last tick and timer: every queue of the run was empty.

        Steps count from 1 and go down the topology; what a tick emits is worked off between two of them.
        """
        # What a bolt keeps until its next tick is in no queue and, acked, in no tree.
        for live in self.tasks.values():
            if isinstance(live.task, BoltTask) and self._last_step(live) == step:
                for last in (self._on_timer, self._tick_early):
                    with self._keeping_failure():
                        last(live)
                    self._collect(live)  # also what it emitted before it raised
        self.quiet = step
        if step == self.quiet_steps:
            self._refuse_calls(BoltTask, "after everything had been worked off and the run closes. It was not taken.")

    def _last_step(self, live: LiveTask) -> int:
        """Return the step of quiet of a bolt's last tick and timer."""
        # Of a timer that a bolt has set on itself the plan does not know.
        steps = (step for step, names in enumerate(self._ticking, 1) if live.plan.component in names)
        return next(steps, self.quiet_steps)

    @contextlib.contextmanager
    def _keeping_failure(self) -> Iterator[None]:
        """Keep an error that ends the run in ``ledgers.failure``, and go on."""
        # Rule: what ends the run at its very end ends nothing else. The others get their last tick and their cleanup:
        # what they keep of acked tuples is nowhere else, and nobody reads it again.
        try:
            yield
        except StreamletError as error:
            self.ledgers.failure = self.ledgers.failure or error
        except SystemExit as error:
            self.ledgers.failure = self.ledgers.failure or exited(error, component_names(self.tasks.values()))
        finally:
            self.shared.in_hand.clear()

    def tick_now(self) -> None:
        """Give bolts their tick early, unless they have had their last."""
        for live in self.tasks.values():
            if isinstance(live.task, BoltTask):
                self._tick_early(live)

    @property
    def idle(self) -> bool:
        """Whether no tuple waits in this worker, though trees may be open."""
        waits = self.inbox or self.departures.waiting or self.other_threads.waiting or self.account.is_in_doubt
        return not waits and not any(bolt.holds_untracked() for bolt in self._holders)

    @property
    def stands(self) -> bool:
        """Whether every tuple here waits until a bolt settles others."""
        return not (self.inbox.ready or self.departures.waiting or self.other_threads.waiting)

    @property
    def activated(self) -> bool:
        """Whether ``activate`` was called."""
        return "starting" not in self.paused

    def processed(self) -> int:
        """Count the tuples that bolts here have processed."""
        return sum(live.task.stats.executed for live in self.tasks.values())

    def untracked_waiting(self) -> dict[str, int]:
        """Count the untracked tuples that wait here, by their bolt."""
        counts: Counter[str] = Counter()
        for work in self.inbox:
            if not work.run.multi and work.left > 0:
                counts[self._component_of(work.run.target)] += work.run.roots[-work.left :].count(0)
        for run in self.departures.staying():
            counts[self._component_of(run.target)] += run.untracked_count
        for target, lost in self.departures.undeliverable.items():
            counts[self._component_of(target)] += lost
        for live in self.tasks.values():  # what their threads emitted is in no queue of a reader yet
            counts[live.plan.component] += live.task.calls.untracked
        for bolt in self._holders:
            counts[self._component_of(bolt.task_id)] += bolt.held.untracked
        return {component: count for component, count in counts.items() if count}

    def left_over(self, settled: bool, ticks: bool) -> dict[str, int]:
        """Read frames still under way, without processing them; count untracked tuples, by bolt.

        Not ``settled``: other workers may have sent something. ``ticks``: bolts get the last ticks that they have not
        had. A tracked tuple is known to the ledger of its spout.
        """
        for step in range(self.quiet, self.quiet_steps if ticks else 0):
            self.be_quiet(step + 1)  # what a bolt keeps until its next tick is counted, too
        self._make_last_calls()
        for live in self.tasks.values():
            self._collect(live)
        # Rule: what a last tick or call has acked is known to its spout before that commits. The work is done; left
        # unsettled, the next run would do it again after each drain that was cut short.
        self._settle_last()
        self._flush()
        if not settled:
            self.links.finish(FINISH_LINKS_S)
            self._receive()
            self._settle_last()
        return self.untracked_waiting()

    def _settle_last(self) -> None:
        with self._keeping_failure():
            self.ledgers.settle()
        for spout in self.spouts.values():  # one may emit when it hears of an ack: that is counted, too
            self._collect(self.tasks[spout.task_id])

    def _make_last_calls(self) -> None:
        """Make what calls of other threads are left, past all marks: emits are counted where they were for."""
        self._refuse_calls(object, "after the run had closed. It was not taken.")
        for live in self.tasks.values():
            for call in live.task.calls.take(live.task.calls.rows + len(live.task.calls), emits=True):
                with self._keeping_failure():
                    if isinstance(live.task, SpoutTask):
                        self.ledgers.guard(live.task, "emit", partial(live.task.make_handed_over, call.act))
                    else:
                        call.act()

    def _component_of(self, task_id: int) -> str:
        return self.plan.tasks[task_id - 1].component

    def close(self, clean: bool) -> list[ComponentFailed]:
        """Close all components, and the loop; return what they raised, by name."""
        self.long_calls.close()
        self._refuse_calls(object, "after the run had closed. It was not taken.")
        raised = close_components(self.tasks.values(), self.shared, clean, self.long_calls.is_over)
        self._thread_watch.look(self.tasks.values())
        self.links.close()
        self.selector.close()
        self.growth.resident.close()
        os.close(self._wake_read)
        wake, self._wake_write = self._wake_write, -1  # its number may be another file's soon, and threads still post
        os.close(wake)
        return raised

    # -- other threads ---------------------------------------------------------------------------------------

    def post(self, act: Callable[[], None]) -> None:
        """Run ``act`` on the loop's thread, soon. Any thread."""
        self._posted.append(act)
        self.wake()

    def wake(self) -> None:
        """End the loop's sleep. Any thread."""
        # A full pipe means that a wake-up is on its way; a closed one, that the loop is gone.
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"\0")

    def _drain_wake(self) -> None:
        os.read(self._wake_read, 4096)

    def _take_calls(self) -> bool:
        """Make the calls that other threads have handed over; tell whether there was one."""
        taken = 0
        for live in self.tasks.values():
            run = live.task
            if not len(run.calls):
                continue
            if isinstance(run, SpoutTask):
                taken += self._take_calls_of_spout(run)
            else:
                # Above the marks emits wait, and then their threads. Acks and failures do not.
                # Rule: a bolt that rests, or is full, may emit: what its threads emit stands before the acks that end
                # its rest.
                taken += self._take_calls_of_bolt(run)
            self._collect(live)
        return taken > 0

    def _take_calls_of_bolt(self, bolt: BoltTask) -> int:
        calls = bolt.calls.take(THREAD_CALLS, emits=bolt.task_id not in self.back_pressure.behind_full)
        made = 0
        try:
            for made, call in enumerate(calls, 1):  # noqa: B007 - how many, also of an error
                call.act()
        finally:
            # Rule: an error that ends the run drops no call that was taken with its own: they are made while the open
            # trees are finished, or counted.
            bolt.calls.give_back(calls[made:])
            bolt.note_held()
        return made

    def _take_calls_of_spout(self, spout: SpoutTask) -> int:
        """Make the emits that other threads handed over for a spout.

        While it might be asked for tuples, and in a drain.
        """
        taken = 0
        # A paused spout's calls wait for it to go on. At the end they are made: what was taken over is not dropped.
        if spout.paused and DRAINING not in self.paused:
            return 0
        while self.paused <= {DRAINING} and taken < THREAD_CALLS and not spout.full and len(spout.calls):
            for call in spout.calls.take(1, emits=True):
                self.ledgers.guard(spout, "emit", partial(spout.make_handed_over, call.act))
                taken += 1
        return taken

    def _refuse_calls(self, kind: type, why: str) -> None:
        for live in self.tasks.values():
            if isinstance(live.task, kind):
                live.task.calls.refuse(why)

    # -- the turn --------------------------------------------------------------------------------------------

    def turn(self, sleep_s: float = 0.0) -> float:
        """Do one turn; return how long the next may wait for something to read.

        Waits at most ``sleep_s``, then works.
        """
        self.other_threads.turns += 1
        if sleep_s > 0:
            fell_asleep = self.clock.monotonic()
            events = self.selector.select(sleep_s)
            self._slept_s += self.clock.monotonic() - fell_asleep
        else:
            events = self.selector.select(0)
        for key, _ in events:
            if key.data is not None:
                key.data()
        while self._posted:
            self._posted.popleft()()
        now = self.clock.monotonic()
        self._receive()
        self._run_bolts(now)
        in_hand = self.shared.in_hand
        in_hand.clear()
        self.ledgers.settle()
        self.timers.run_due(now)
        again = bool(self.other_threads.waiting) and self._take_calls()
        again |= self._ask_spouts(now)
        full = [spout for spout in self.spouts.values() if spout.full]
        # Worked off in the same turn, so that what a lone tuple leads to leaves with this turn's frames.
        if self.inbox:
            self._run_bolts(now)
            in_hand.clear()
            self.ledgers.settle()
        paused = bool(self.paused)
        self.back_pressure.look()
        self._flush()
        if again or self.inbox.ready or self._posted or self.shared.acks or self.shared.fails or self.departures:
            self.at_rest = False
            return 0.0
        # What was worked off since the spouts were asked may let them go on, and nothing else would wake the loop.
        go_on = (paused and not self.paused) or not all(spout.full for spout in full) or self._emitted_since()
        # Rule: who asks whether anything is left asks for this, and not for a sleep. A tick that takes longer than its
        # period is due again when the turn ends: that loop never sleeps, and its run would have no end.
        self.at_rest = not go_on
        return 0.0 if go_on else self._sleep()

    def _receive(self) -> None:
        for incoming in self.links.received():
            self._enqueue(incoming.runs)
            for run in incoming.runs:
                if run.has_untracked:
                    self.account.reads(incoming.worker, run)
            if incoming.full is not None:
                self.back_pressure.heard(incoming.worker, incoming.full)
            if incoming.fails:  # before acks, as in `Ledgers.settle`
                self.ledgers.apply_fails(incoming.fails, causes=incoming.causes)
            if incoming.roots:
                self.ledgers.apply_acks(incoming.roots, incoming.deltas)
            if incoming.read is not None:
                self._settle_doubt(incoming.worker, incoming.read)
            # After everything else of the frame: its tuples are queued here by now, and its deltas are in the ledger.
            # Only so does an answer without a tree mean something.
            if incoming.ask is not None or incoming.answer is not None:
                self.census.heard(incoming.worker, incoming.ask, incoming.answer)

    def _enqueue(self, runs: list[Run]) -> None:
        for run in runs:
            self.inbox.add(run)

    def _run_bolts(self, now: float) -> None:
        # Time is counted over all runs in the inbox: many short runs take as long as one long run, and a stop would
        # wait for all of them.
        inbox, until, over = self.inbox, now + TURN_S, now + BOLTS_S
        while (work := inbox.next() or self._next_after_a_look()) is not None:
            live = self.tasks[work.run.target]
            if self._trace is not None and work.left == len(work.run.roots):
                self._trace(work.run)
            assert isinstance(live.task, BoltTask)
            before, by_slices = work.left, inbox.deepest_first
            try:
                live.task.execute(work, now if by_slices else until)
            finally:  # also where an error ends the run: what was done before it is done
                inbox.ran(work, before)
                live.task.note_held()
                self._collect(live)
            if live.task.held and work.run.target in self.back_pressure.suspects:
                self._finish_held(live)
            ended = self.clock.monotonic()
            self._recount_if_grown(ended)
            if inbox.grown or self.back_pressure.rests_changed:
                self.back_pressure.look()
            if live.task.slices.is_slow or inbox.slow:
                inbox.note_pace(work.run.target, live.task.slices.is_slow)
            # What leaves is not counted by the links before the turn ends, so too much of it ends the turn.
            if (work.left > 0 and not by_slices) or self.departures.are_many:
                return
            if ended >= (until if by_slices else over):
                return

    def _finish_held(self, live: LiveTask) -> None:
        """Give a suspect that waits for ticks one at once."""
        if isinstance(live.component, BatchingBolt) and live.conf[TICK_PERIOD] is not None:
            self.tick(live, live.conf[TICK_PERIOD], early=True)

    def _next_after_a_look(self) -> Work | None:
        """Look again at who must wait; return the run that is next then."""
        if not self.inbox.waits:
            return None
        self.back_pressure.look()
        return self.inbox.next()

    def _collect(self, live: LiveTask) -> None:
        """Move what a task emitted to its receivers."""
        rows = 0
        for box in live.boxes:
            if box:
                runs = box.take()
                for run in runs:
                    rows += len(run.roots)
                    if run.has_untracked:
                        self.untracked.emitted[run.target - 1] += run.untracked_count
                worker = self._worker_of[box.target]
                if worker == self.shared.worker:
                    self._enqueue(runs)
                else:
                    self.departures.add(worker, runs)
        if isinstance(live.task, BoltTask):
            emits = live.task.bolt_emits
            if rows or emits.copied:
                emits.note_emitted(rows)
            # Rule: noted after what it has emitted for them. A worker that is killed in between seems to have taken
            # along tuples that were done. The other way round, lost ones would seem done, and nobody would hear of it.
            self.untracked.done[live.plan.task_id - 1] = live.task.untracked_done
            self._note_final(live)
        live.task.in_outboxes[0] = 0
        if live.task.calls.used:
            live.task.calls.note_taken()

    def _note_final(self, live: LiveTask) -> None:
        """Note a bolt's final numbers where they outlive this process."""
        if isinstance(live.task, BoltTask):
            self.untracked.note_final(live.plan.task_id, live.task.stats.given_up, 0, live.task.stats.lost)

    def _ask_spouts(self, now: float) -> bool:
        """Ask each spout for tuples; return whether one should be asked again at once."""
        self._recount_if_grown(now)
        self.back_pressure.look()
        if self.weights.look_if_due(self.spouts.values(), now):
            # Rule: note on the page what a spout gives up by itself, long before a heartbeat: a record that cannot be
            # decoded, a dead letter that is written. Its worker may die meanwhile.
            for spout in self.spouts.values():
                self.ledgers.note_final(spout)
        again = False
        # What a spout emits while it may not be asked (in `initialize`, `fail`, `on_timer`) waits in its outboxes until
        # tuples may travel, and then travels at once, in a drain too.
        travels = self.paused.isdisjoint(LINKS_MISSING)
        for spout in self.spouts.values():
            try:
                if spout.active:
                    ask = partial(spout.turn, BATCH_BUDGET if spout.by_batch else SPOUT_BUDGET, now)
                    if self.ledgers.guard(spout, "next_tuple", ask):
                        again |= not spout.spout.rests
                        # Rule: asked before anything of this turn leaves, or is said to be done. A process may stand
                        # still in the middle of a turn, and wake when its tuples are another's.
                        if not self.ledgers.guard(spout, "may_send", spout.spout.may_send):
                            self._take_back(self.tasks[spout.task_id], spout)
                spout.note_emitted()
                if spout.has_complete and (spout.active or travels):
                    self.ledgers.guard(spout, "ack", spout.deliver_complete)
            finally:
                self.ledgers.note_unfinished(spout)
                if travels:
                    self._collect(self.tasks[spout.task_id])  # also what it emitted before it raised
        # Rule: the census begins when all links stand. A question to a worker without a link is lost, and a round that
        # gets no answer never ends: no window would grow, and no tuple time out. A spout may emit before, by its timer.
        # With a worker dead for good no round would end, and the trees are not waited for.
        if travels and not self.departures.written_off:
            self.census.begin_if_due(now)
        return again

    def _emitted_much(self, boxes: Collection[Outbox]) -> bool:
        """Tell whether a turn has emitted as much as it may."""
        # Rule: measure each row when the process has grown, and only then: one row in 128 by chance does not see the
        # megabyte of every fifth, and a turn of a few milliseconds makes fifty of them.
        if not self.growth.look(self.clock.monotonic()):
            return sum(box.weigh() for box in boxes) >= self._turn_bytes
        self._grown = True
        here = self.shared.worker
        places = [(box, self.inbox if self._worker_of[box.target] == here else self.departures) for box in boxes]
        return sum(box.measure(place.sizes) for box, place in places) >= self._turn_bytes

    def _recount_if_grown(self, now: float) -> None:
        """Measure all that waits, if the process takes more memory than ever."""
        # Rule: between two turns of bolts, also where it grew in one. In its middle the rows that are done still count
        # in the inbox: measured there, they would be taken off twice.
        if self._grown or (now >= self.growth.looks_at and self.growth.look(now)):
            self._grown = False
            self.inbox.recount()
            self.departures.recount()

    def _emitted_since(self) -> bool:
        """Tell whether a spout has emitted since it was asked: in ``ack`` or ``fail``."""
        return self.paused.isdisjoint(LINKS_MISSING) and any(
            spout.has_complete or any(self.tasks[spout.task_id].boxes) for spout in self.spouts.values()
        )

    def _take_back(self, live: LiveTask, spout: SpoutTask) -> None:
        """Drop what a spout's outboxes hold; its messages fail as lost, and rows without one are counted."""
        runs = [run for box in live.boxes if box for run in box.take()]
        self.ledgers.fail_unsendable(runs)
        untracked = sum(run.untracked_count for run in runs if run.has_untracked)
        lost = self.ledgers.tell_failures(spout, partial(spout.take_back, untracked))
        if lost:
            logger.warning(
                "%s (task %d) lost %d untracked tuples: its right to emit was over before they could leave, and nobody "
                "sends them again. Emit with tup_id, so that what is taken back is sent again.",
                live.plan.component,
                spout.task_id,
                lost,
            )

    def recover(self, lost: Iterable[int]) -> int:
        """Apply the deltas that did arrive, then fail all open trees.

        For the loss of links to the workers in ``lost``. This worker's spouts emit nothing until ``recovered``. Returns
        how many trees failed.
        """
        self.pause("recovering")
        self._receive()
        self.ledgers.settle()
        for worker in lost:
            self.back_pressure.forget(worker)
            self.departures.link_lost(worker)
        self.back_pressure.order()
        self.census.reset()
        return self.ledgers.fail_everything()

    def link_broke(self, worker: int) -> None:
        """Note what had gone each way over a link that is lost. Pauses the spouts until ``recovered``."""
        self._receive()
        if worker in self.departures.written_off:
            return
        self.account.link_broke(worker)
        self.pause("recovering")

    def _settle_doubt(self, worker: int, read: Mapping[int, int]) -> None:
        for task, count in self.account.settle(worker, read).items():
            self.untracked.emitted[task - 1] -= count
            component = self._component_of(task)
            tuples = untracked_text({component: count})
            self.shared.tell(
                "error",
                f"The link to worker {worker} that was lost took {tuples} along. {NOBODY_SENDS}",
                component,
                task,
            )

    def lost_with_links(self) -> dict[str, int]:
        """Count the untracked tuples that lost links took along, by their bolt."""
        counts: Counter[str] = Counter()
        for task, count in self.account.lost.items():
            counts[self._component_of(task)] += count
        return dict(counts)

    def write_off(self, workers: Iterable[int]) -> None:
        """Wait no longer for workers that have died: the run ends, and nobody is replaced."""
        for worker in workers:
            self.departures.write_off(worker)
        self.departures.look()
        self.back_pressure.order()

    def be_careful(self, tasks: Iterable[int], seconds: float) -> None:
        """Let these tasks, where they are here, process single tuples."""
        runs = [self.tasks[task_id].task for task_id in tasks if task_id in self.tasks]
        self.back_pressure.suspects.suspect(
            [run for run in runs if isinstance(run, BoltTask)], self.clock.monotonic(), seconds
        )

    def recovered(self) -> None:
        """Let spouts emit again: all links stand."""
        for worker, read in self.account.tell():
            if worker not in self.departures.written_off:
                self.departures.to(worker).read = read
        self.resume("recovering")
        self.back_pressure.tell_again()

    def finish_open_trees(self) -> None:
        """Finish the open trees after an error that ends the worker.

        They may still be acked, and then committed by ``close``; unacked, those records would be read again.
        """
        if not self.activated:
            return
        self.pause("failed")
        self.back_pressure.order()  # the one that ended the run is given nothing more
        bolts = [live.task for live in self.tasks.values() if isinstance(live.task, BoltTask)]
        now, left = self.clock.monotonic(), math.inf
        deadline = still = now + FINISH_S
        while (pending := self.ledgers.pending()) and not self.stopped:
            # An answer of brokers may take longer than bolts do, and its records are written.
            if pending != left or any(bolt.held.batches and not bolt.ended_run for bolt in bolts):
                left, still = pending, now + FINISH_STILL_S
            if now >= min(deadline, still):
                return
            # The spout may raise at each turn: its first reason counts. And so it does before a `sys.exit()` of another
            # bolt, which would pass for a death of the worker.
            with contextlib.suppress(Exception, SystemExit):
                self.turn(0.01)
            now = self.clock.monotonic()

    # -- timers ----------------------------------------------------------------------------------------------

    def tick(self, live: LiveTask, period_s: float, early: bool = False) -> None:
        """Give a bolt its tick, and send the tuples it emits. ``early``: it comes before its time."""
        assert isinstance(live.task, BoltTask)
        if self.quiet < self._last_step(live):
            now = self.clock.monotonic()
            self.shared.in_hand.note_call(live.plan.task_id, "process_tick", now, live.task.held.given)
            live.task.tick(period_s, early)
            self.long_calls.is_over(live.plan.task_id, "process_tick", now)
            self.shared.in_hand.clear()
            live.task.note_held()
            self._collect(live)

    def _tick_early(self, live: LiveTask) -> None:
        """Give a bolt its tick before its time, if it gets ticks."""
        period_s = live.conf[TICK_PERIOD]
        if period_s is not None:
            self.tick(live, period_s, early=True)

    def _on_timer(self, live: LiveTask) -> None:
        assert isinstance(live.task, BoltTask)
        assert isinstance(live.component, Bolt)
        # Rule: no on_timer after a bolt's last one, as with ticks: what it emits would reach workers that close. But a
        # spout may emit in a drain, too, and a bolt may ack in `on_timer`: one that was given more has it again.
        is_over = self.quiet >= self._last_step(live) and self._timed.get(live.plan.task_id) == live.task.stats.executed
        if live.component.timer_interval_s is None or is_over:
            return
        self._timed[live.plan.task_id] = live.task.stats.executed
        now = self.clock.monotonic()
        self.shared.in_hand.note_call(live.plan.task_id, "on_timer", now, live.task.held.given)
        live.task.call(live.component.on_timer)
        self.long_calls.is_over(live.plan.task_id, "on_timer", now)
        self.shared.in_hand.clear()
        live.task.note_held()
        self._collect(live)

    # -- the end of a turn -------------------------------------------------------------------------------------

    def _flush(self) -> None:
        if self.departures.send(self.back_pressure.full_elsewhere, self.paused.isdisjoint(LINKS_MISSING)):
            (self.pause if self.departures.held else self.resume)(LEAVING)
            self.back_pressure.order()

    def _fail_too_large(self, runs: list[Run]) -> None:
        """Fail the trees of tuples that no frame can hold. The link lives on, and the user reads who emitted them."""
        for run in runs:
            component = self.plan.tasks[run.source - 1].component
            live, gone = self.tasks[run.source], run.untracked_count
            error = _too_large_error(component, run.stream, untracked=gone > 0)
            self.shared.report(component, run.source, error, None, None)
            self.ledgers.drop(run)
            # Counted as lost before it is counted as sent no more: a death in between would find it nowhere.
            if isinstance(live.task, SpoutTask):
                live.task.untracked_lost += gone
                self.ledgers.note_final(live.task)
            else:
                live.task.stats.lost += gone
                self._note_final(live)
            self.untracked.emitted[run.target - 1] -= gone

    def _sleep(self) -> float:
        self.wakeups.watch()
        # From now, not from when the turn began: a turn may take as long as its bolts, and a timer would be late by it.
        due = max(0.0, self.timers.next_due() - self.clock.monotonic())
        # Calls that wait for room, which an ack or a bolt of this very turn may have made. Those of paused spouts wait
        # for a command, which wakes the loop.
        waiting = self.other_threads.waiting
        if waiting and waiting > sum(len(spout.calls) for spout in self.spouts.values() if spout.paused):
            return min(POLL_S, due)
        # A spout without a descriptor cannot wake the loop, so it is asked each millisecond. One that may not emit
        # waits for the ack that makes room, and that wakes the loop.
        if self.wakeups.must_poll():
            return min(POLL_S, due)
        return min(due, IDLE_S)
