"""Running a bolt: its tuples or batches, what it acks and fails. What it emits is in ``bolt_emits``.

The life of a tuple here: ``execute`` takes it from a run, ``process`` handles it, each ``emit`` XORs a random edge into
the tuple's ``children``, and the ack XORs ``edge ^ children`` into ``acks[root]``. Consecutive tuples mostly belong to
the same tree, so the deltas of a slice are combined before they reach the dictionary, and those of a turn before they
leave for the ledger (``ledgers``).

Pure but for the user's code. Deliberately absent: any look at other tasks, sockets or the ledgers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from math import inf
from sys import getrefcount
from typing import Any

from streamlet.base.clock import Clock
from streamlet.base.errors import BadEmit, hurts_one_tuple
from streamlet.components.batch import Batch, tuple_or_batch
from streamlet.components.batching import BatchFailed, BatchingBolt
from streamlet.components.bolt import Bolt
from streamlet.components.spout import FailureCause
from streamlet.components.tuples import ACKED, OPEN, Tuple, TupleId, tick_tuple, tuple_of
from streamlet.model.delivery import EPOCH_STREAMS
from streamlet.runtime.tasks import settling
from streamlet.runtime.tasks.bolt_emits import BoltEmits, ReportError
from streamlet.runtime.tasks.emitter import MAKE_S, WEIGH_AFTER_S, Emitter, Outbox, Work
from streamlet.runtime.tasks.failure_causes import FailureCauses, cause_of
from streamlet.runtime.tasks.first_failures import FirstFailures
from streamlet.runtime.tasks.held_tuples import HeldTuples
from streamlet.runtime.tasks.in_hand import (
    BEGAN,
    CALL,
    CALLS,
    COUNT,
    LENGTH,
    TASK,
    UNWATCHED,
    CallWatch,
    InHand,
    shortened,
)
from streamlet.runtime.tasks.other_threads import OtherThreads, TaskCalls
from streamlet.runtime.tasks.slices import SLICE_S, SliceSize
from streamlet.runtime.tasks.task_stats import TaskStats
from streamlet.runtime.tasks.untracked_counts import TaskCells
from streamlet.runtime.tasks.user_errors import (
    Defined,
    behind,
    bolt_ended_run,
    called_by_users,
    every_tuple_failed,
    never_settled,
)
from streamlet.runtime.tasks.values import copied
from streamlet.tracking.roots import is_last_try, owner_task
from streamlet.tracking.shared_roots import Root, each_root


class _Holder:
    """Stands for a BoltTask in the question below."""

    _current: object = None


def _unkept() -> int:
    # Counted, not assumed, in the shape that the question has in the slice: the number depends on the interpreter. One
    # too many, and a tuple that somebody kept would be filled again.
    tup = _Holder._current = object()
    return getrefcount(tup)


UNKEPT = _unkept()
"""References to a tuple that only the slice holds.

These are its variable, ``BoltEmits.current`` and, in some interpreters, the argument of the question itself.
"""


def _unkept_batch() -> int:
    def asked_as_the_batch_is(batch: object) -> int:
        return getrefcount(batch)

    return asked_as_the_batch_is(object())


UNKEPT_BATCH = _unkept_batch()
"""References to a batch that only the call of ``_process_batch`` holds."""


class BoltTask:
    """A bolt instance with everything bound. Lives on the loop's thread.

    ``acks`` (root -> delta) and ``fails`` are the worker's, shared by all its tasks and emptied each turn.
    ``first_failures``: after so many tuples without one success ``execute`` raises EveryTupleFailed; 0: never.
    ``emitted_much`` tells whether what waits in the outboxes is as much as one turn may emit.
    """

    # Long: slice, process, ack and failure meet in the present tuple, and no call between them may cost a tuple
    # anything. The rest is elsewhere: emits (`bolt_emits`), acks as deltas (`settling`), calls of other threads.

    def __init__(
        self,
        bolt: Bolt,
        emitter: Emitter,
        acks: dict[Root, int],
        fails: list[int],
        getrandbits: Callable[[int], int],
        sources: dict[int, str],
        clock: Clock,
        report: ReportError,
        *,
        task_id: int = 0,
        first_failures: int = 0,
        named: Mapping[tuple[str, str], type[Tuple]] | None = None,
        fields: Mapping[tuple[str, str], Sequence[str]] | None = None,
        boxes: Collection[Outbox] = (),
        in_hand: InHand | None = None,
        calls: TaskCalls | None = None,
        cells: TaskCells | None = None,
        tells_given: bool = True,
        resting: set[int] | None = None,
        causes: FailureCauses | None = None,
        without_dead_letters: Mapping[int, str] = {},
        longest_wait_s: float = inf,
        watch: CallWatch = UNWATCHED,
        emitted_much: Callable[[], bool] = lambda: False,
    ) -> None:
        self.bolt = bolt
        self.calls = TaskCalls(OtherThreads(), emitter.component) if calls is None else calls
        self.task_id = task_id
        self.in_hand = in_hand or InHand()
        self.emitter = emitter
        self.acks = acks
        self.fails = fails
        self.causes = FailureCauses() if causes is None else causes
        self._without_dead_letters = without_dead_letters
        """The tasks of spouts that keep no dead letters, with their names."""
        self.getrandbits = getrandbits
        self.sources = sources
        self.clock = clock
        self.report = report
        self.watch = watch
        self._emitted_much = emitted_much
        self._tells_given = tells_given
        self.named = named or {}
        """Tuple class of each (component, stream) that the bolt reads by field name."""
        self.stats = TaskStats()
        self.report_metric = self.stats.report_metric
        self.bolt_emits = BoltEmits(bolt, emitter, self.calls, acks, getrandbits, self.stats, report, boxes, cells)
        self.in_outboxes = self.bolt_emits.in_outboxes
        self.held = HeldTuples(self._forgotten, watch.look_if_missed)
        self.calls.waits = self._waits_for_room
        self._untracked_taken = 0
        """Untracked tuples that ``execute`` was given and has finished, held ones among them."""
        self._resting = set() if resting is None else resting
        self.ended_run = False
        """Its error ends the run (``exit_on_exception``): nothing of the bolt is called any more."""
        self._by_batch = bolt.takes_batches()
        self._commits = bolt.commits_epochs
        self._splits = bolt.on_batch_error == "split"
        self._may_emit = bool(emitter.streams)
        self._parts = False
        """Whether the bolt may settle the rows of the present run in any order."""
        self._split_left = 0
        """Rows of a batch that was split that have not been begun."""
        self._fields = fields or {}
        self._weigh_after_s = WEIGH_AFTER_S * (1 + len(boxes) // 4)  # a look takes longer, the more there are
        self.slices = SliceSize(bolt.batch_size if self._by_batch else None, longest_wait_s)
        self._tick_s = 0.0
        """Seconds of the latest tick, or half of those before it."""
        self._noted_held = 0
        self.failures = FirstFailures(first_failures)
        self.emit, self.emit_many = self.bolt_emits.fastest(), self.bolt_emits.emit_many
        bolt.bind(self)

    def initialized(self) -> None:
        """Take over what ``initialize`` may set: ``auto_anchor`` and ``max_unacked``."""
        self.held.bound(self.bolt.most_unacked() or 0)
        before, self.emit = self.emit, self.bolt_emits.fastest()
        if vars(self.bolt).get("emit") is before:  # else it has put something of its own around it
            self.bolt.bind(self)

    # -- acking --------------------------------------------------------------------------------------------

    def ack(self, tup: Tuple | TupleId | Batch) -> None:
        """Ack a tuple, or a batch. A second ack, or one after a failure, changes nothing. Any thread."""
        if not self.calls.here():
            # Rule: what another thread hands over is checked there, where the caller can be told. On the loop a wrong
            # argument would end the run.
            given = tuple_or_batch(tup)
            self._note_leaves(given)
            self.calls.put(partial(self.ack, given), "ack")
        elif isinstance(tup, Batch):
            acked = settling.ack(tup, self.acks)
            self.stats.acked += acked
            if self._commits and tup.stream in EPOCH_STREAMS:
                self.stats.set_apart("acked", acked)
            self.held.let_batch_go(tup)
        else:
            one = tuple_of(tup)
            acked = settling.ack_tuple(one, self.acks)
            self.stats.acked += acked
            if self._commits and one.stream in EPOCH_STREAMS:
                self.stats.set_apart("acked", acked)
            left = self.held.leaving.get(one)
            since = self.held.let_go(one) if self.held.given or left is not None else None
            if since is not None and self.bolt.answers_for_untracked:
                self.stats.latency.add((self.clock.monotonic() if left is None else left) - since)

    def fail(self, tup: Tuple | TupleId | Batch, reason: str | BaseException | None = None) -> None:
        """Fail every tree of a tuple, or of a batch; ``reason`` travels to the spout. Any thread."""
        given, cause = tuple_or_batch(tup), cause_of(self.emitter.component, reason)
        error = reason if isinstance(reason, BaseException) else None
        if not self.calls.here():
            self._note_leaves(given)
            self.calls.put(partial(self._fail_handed_over, given, cause, error), "fail")
            return
        self._fail_for(given, cause, error)

    def _fail_handed_over(self, given: Tuple | Batch, cause: FailureCause, error: BaseException | None) -> None:
        self._fail_for(given, cause, error)
        # Rule: what another thread failed is judged where the loop fails it. By then the bolt may have been given its
        # last tuple, and no call of it follows that would look.
        if self.failures.at_limit:
            self._stop_if_all_failed()

    def last_tries(self, tups: list[Tuple]) -> list[Tuple]:
        """Return the tuples that are given up if they fail once more."""
        return [tup for tup in tups if is_last_try(tup.root)]

    def fail_told(self, tup: Tuple | Batch, error: BaseException) -> None:
        """Fail a tuple or batch for an error; its caller tells it."""
        self.failures.note(self._fail(tup, cause_of(self.emitter.component, error)))

    def _fail_for(self, given: Tuple | Batch, cause: FailureCause, error: BaseException | None) -> None:
        before, failed = self.failures.count, self._fail(given, cause)
        self.failures.note(failed)
        if failed and error is not None:
            # Rule: an exception that `fail` is given is one of the bolt's, as if `process` had raised it. Threads and
            # coroutines of its own have no other way to say so, and a typing error would be shown nowhere.
            self.stats.errors += 1
            self.failures.blame(error, before)
            if self._tells_given:
                self.report(error, given, self._called)

    def dead_letter(self, tup: Tuple | TupleId | Batch, reason: str) -> None:
        """Fail every tree of a tuple or batch, past all retries. Any thread.

        Raises BadEmit where the message would not be kept.
        """
        # Refused here, where the bolt can be told: a spout that keeps no dead letters would lose the message.
        given, cause = tuple_or_batch(tup), cause_of(self.emitter.component, reason, to_dead_letters=True)
        self._check_dead_letters(given)
        if not self.calls.here():
            self.calls.put(partial(self._fail, given, cause), "dead_letter")
            return
        # No failure of the bolt's: it has judged the tuple, so it is not counted with those that end a run.
        self._fail(given, cause)

    def _check_dead_letters(self, given: Tuple | Batch) -> None:
        roots = [given.root] if isinstance(given, Tuple) else given.roots
        if isinstance(given, Tuple) and given.anchors:
            roots = [root for root, _ in given.anchors]
        elif isinstance(given, Batch) and given.multi:
            roots = [*chain.from_iterable(given.roots)]
        tracked = {owner_task(root) for root in each_root(roots) if root}
        said = f"{self.emitter.component} called dead_letter on a "
        if not tracked and given.state == OPEN:
            raise BadEmit(
                f"{said}tuple that is not tracked: no spout knows the record that it came from. Emit it in the spout "
                "with a tup_id, or anchored to the tuple at hand, and leave topology.acker.executors above 0."
            )
        for name in {self._without_dead_letters[task] for task in tracked & self._without_dead_letters.keys()}:
            raise BadEmit(
                f"{said}tuple of the spout {name}, which keeps no dead letters. A KafkaSpout does with "
                'SpoutConfig(on_poison="dead-letter", dead_letter_topic=...); for any other spout use self.fail.'
            )

    def _fail(self, given: Tuple | Batch, cause: FailureCause) -> int:
        """Fail a tuple or a batch here; return how many tuples failed."""
        first = len(self.fails)
        # Rule: an untracked tuple that fails is counted here, by the runtime or by the bolt itself. No spout hears of
        # it, so only this count keeps a run that lost it from ending well.
        self.stats.give_up_untracked(settling.open_untracked(given))
        if isinstance(given, Batch):
            failed = settling.fail(given, self.acks, self.fails)
            self.held.let_batch_go(given)
        else:
            failed = settling.fail_tuple(given, self.acks, self.fails)
            if self.held.given or self.held.leaving:
                self.held.let_go(given)
        self.stats.failed += failed
        if self._commits and given.stream in EPOCH_STREAMS:
            self.stats.set_apart("failed", failed)
        self.causes.note(self.fails[first:], cause)
        return failed

    # -- receiving -----------------------------------------------------------------------------------------

    def execute(self, work: Work, until: float) -> None:
        """Process a run in order, slice by slice, until done or ``until``.

        Or until many bytes were emitted. ``work.left`` says how many tuples remain. What the user's code raises fails
        that tuple only.
        """
        before = work.left
        now = started = self.clock.monotonic()
        weighs_at = now + self._weigh_after_s
        words, times, slices = self.in_hand.words, self.in_hand.times, self.slices
        words[CALL] = words[LENGTH] = 0
        self._part_blocks(work)
        while work.left > 0:
            if (most := self._room()) <= 0:
                break
            size = work.batch_of(most) if self._by_batch else most
            # Where a death or a hang can be looked up from outside: two numbers a slice, and in full for a tuple that
            # is alone in its slice because the bolt is slow.
            if size == 1 and slices.notes_each:
                self._note_tuple(work, now)
            else:
                words[COUNT] = size if size < work.left else work.left
                times[BEGAN] = now
                words[TASK] = self.task_id
            try:
                (self._process_as_batch if self._by_batch else self._process_slice)(work, size)
            except BaseException:
                self._break_off(work, size)
                self._note_executed(work, before, now, now - started)
                raise
            work.left -= size
            began, now = now, self.clock.monotonic()
            if now - began > SLICE_S:
                started += self._was_slow(work, size, began, now, cut=size < most)
            elif size == most and (size < slices.most or slices.careful_until is not None):
                slices.grow(now)
            if now >= until:
                break
            if now >= weighs_at or now - began >= size * MAKE_S:
                if self._ends_by_bytes():
                    break
                weighs_at = now + self._weigh_after_s
        self._note_executed(work, before, now, now - started)
        if self.failures.at_limit:
            self._stop_if_all_failed()

    def _room(self) -> int:
        """Return how many tuples the next slice may take; 0: the bolt holds as many as it may."""
        return self.held.room(self.slices.size) if self.held.allowed else self.slices.size

    def _ends_by_bytes(self) -> bool:
        """Tell whether many bytes were emitted; let the next slice be smaller then."""
        # Rule: many bytes end the turn of a bolt, as they end a spout's: no mark counts them before it is over. A large
        # row takes long to make, so slices of a fast bolt are not looked at one by one.
        if not self._emitted_much():
            return False
        self.slices.halve()
        return True

    def _was_slow(self, work: Work, size: int, began: float, now: float, *, cut: bool) -> float:
        """Take note of a slice that took long; look back at one that took very long.

        ``cut``: a batch that a last try has made small. Returns the seconds that count for nothing: it could not go on.
        """
        # Rule: a bolt on the loop is not slow for the time in which another's call held the interpreter's lock. Of one
        # with calls of 3 ms the log said that its tuples take 24 s.
        kept_s = self._look_back(work, size, began) if now - began >= self.watch.long_s else 0.0
        # Rule: a batch that was cut says nothing of how long tuples take. A call with a cost of its own, one insert for
        # all, would look slow with one tuple, and the batches of the others shrink to one, too.
        if not cut:
            self.slices.was_slow(size + min(0, work.left), now - began - kept_s, now)
        return kept_s

    def _look_back(self, work: Work, size: int, began: float) -> float:
        """Say what a slice that took long was about; return its seconds of no progress."""
        run = work.run
        first = len(run.roots) - (work.left + size)
        count = min(size, len(run.roots) - first)
        source = self.sources.get(run.source, "?")
        if self._by_batch:
            on = f" on a batch of {count:,} tuples from {source}"
        elif count == 1:
            on = f" on a tuple from {source}, {shortened(run.values[first])}"
        else:
            on = f" on one of {count} tuples from {source}"
        return self.watch.look_back(self.task_id, self._called.__name__, began, on)

    def _break_off(self, work: Work, size: int) -> None:
        """Leave of a run what the bolt had not begun.

        And what it was at where the process is to end.
        """
        # Rule: an error that ends the run settles no tuple but its own. By whole slices, those that were done would be
        # said to be lost, and those that the bolt had begun to hold would be missing in what it was given.
        if self._by_batch:
            waits = max(0, work.left - size) + self._split_left
            self._split_left = 0
        else:
            waits = sum(1 for _ in work.rows)
            if not work.run.multi and self.bolt.auto_ack:
                self.stats.acked += work.left - waits - 1  # all but the tuple at fault; see `_process_slice`
        at = self.bolt_emits.current
        work.stop_at(waits + (0 if at is None else len(at) if isinstance(at, Batch) else 1))

    def _note_executed(self, work: Work, before: int, now: float, took_s: float) -> None:
        """Count the tuples of a run that the bolt was called for; ``before`` were left of it."""
        self.bolt_emits.current = None
        done = before - max(work.left, 0)
        if work.run.has_untracked:
            first = len(work.run.roots) - before
            self._untracked_taken += work.run.roots[first : first + done].count(0)
            self.held.forget_unreachable(now)
        self.stats.ran(done, took_s, ended=not self.bolt.answers_for_untracked)
        if self._commits and work.run.stream in EPOCH_STREAMS:
            self.stats.set_apart("executed", done)

    def _forgotten(self, tup: Tuple) -> None:
        """Fail an untracked tuple that the bolt kept and dropped."""
        error = never_settled(self.emitter.component, self.task_id, tup)
        self._fail(tup, cause_of(self.emitter.component, error))
        self.report(error, tup, None)

    def _part_blocks(self, work: Work) -> None:
        """Give each row its own edge where the bolt needs it."""
        # Rule: a block has its edge on its last row, so its rows must be done in order, and the last one last. A bolt
        # that acks or fails by hand may do so in any order: the tree would be complete while others are open. A batch
        # parts its block only when it is asked for its tuples: most are settled whole.
        run = work.run
        self._parts = not (run.multi or (self.bolt.auto_ack and self.bolt.auto_fail))
        if not self._parts or self._by_batch:
            return
        first, work.parted = work.parted, len(run.roots)
        if first < work.parted:
            settling.part_blocks(run.roots, run.edges, first, self.getrandbits, self.acks)

    def note_held(self) -> None:
        """Note the tuples that the bolt holds: its threads may be at work on them."""
        # Not what waits for the bolt's tick: nothing happens to that outside of calls. Nor what a bolt of ours holds,
        # which is with the brokers.
        count = len(self.held)
        if not (count or self._noted_held) or self.bolt.answers_for_held:
            return
        # Rule: a bolt that is made to work elsewhere has threads before one of them has called: the first tuple may be
        # the deadly one.
        has_threads = self.calls.used or self.bolt.answers_for_untracked
        if has_threads or not isinstance(self.bolt, BatchingBolt):
            self._noted_held = count
            self.in_hand.note_held(self.task_id, self.held.given, has_threads, self.slices.careful_until is not None)

    def note_at_fault(self, tup: Tuple) -> None:
        """Note a held tuple, with its messages, that its bolt hangs on."""
        self.in_hand.note_held(self.task_id, [tup], has_threads=True, in_full=True)

    def taken_s(self, now: float) -> float:
        """Return the seconds taken for the tuples so far."""
        # Rule: with those in which it was full. A call that hands a tuple to a pool takes microseconds, and how fast
        # the pool is shows only in how long the next tuple has to wait for it.
        return self.stats.busy_s + self.held.full_s(now)

    def call_s(self, pace_s: float) -> float:
        """Return the seconds that one call may take; ``pace_s``: that a tuple lately took."""
        return max(self.slices.call_s(pace_s), self._tick_s)

    def _note_tuple(self, work: Work, now: float) -> None:
        run = work.run
        index = len(run.roots) - work.left
        self.in_hand.note_tuple(self.task_id, run.roots[index], run.values[index], now)

    @property
    def present(self) -> Tuple | Batch | None:
        """The tuple or batch that is processed now. Any thread: it may hold another's values a moment later."""
        return self.bolt_emits.current

    def _stop_if_all_failed(self) -> None:
        """Raise EveryTupleFailed unless a tuple has succeeded."""
        failures = self.failures
        failures.at_limit = False
        if self.stats.acked == failures.acked:
            name, acked = self.emitter.component, failures.acked
            by_itself, error, count = failures.by_itself, failures.last_error, failures.allowed
            raise every_tuple_failed(name, self.task_id, count, error, by_itself, self._called, acked)

    @property
    def _called(self) -> Callable[..., Any]:
        return self.bolt.process_batch if self._by_batch else self.bolt.process

    def _process_slice(self, work: Work, size: int) -> None:
        # Long: the loop over tuples, written out. A call for each tuple costs more than all that it would name.
        run = work.run
        bolt = self.bolt
        if run.multi or not bolt.auto_ack:
            self._process_slice_by_hand(work, size)
            return
        process, acks = bolt.process, self.acks
        component, stream, source = self.sources.get(run.source, "?"), run.stream, run.source
        make = self.named.get((component, stream), Tuple)
        last = delta = 0
        otherwise = 0  # ended in another way than by the ack below
        tup: Tuple | None = None
        try:
            for root, edge, values in islice(work.rows, size):
                # A tuple nobody kept is filled again: that is twice as fast as making one, for every tuple there is.
                if tup is None:
                    tup = self.bolt_emits.current = make(values, component, stream, source, root, edge)
                else:
                    tup.values = values
                    tup.root = root
                    tup.edge = edge
                    tup.children = 0
                try:
                    process(tup)
                except BaseException as error:
                    if not hurts_one_tuple(error):
                        raise
                    self._raised(error, tup)
                    otherwise += 1
                    tup = None
                    continue
                if tup.state:
                    otherwise += 1
                    tup = None
                    continue
                # Deltas of one root are joined before they go into the dictionary: runs often hold many tuples of one
                # tree.
                if root == last:
                    delta ^= edge ^ tup.children
                else:
                    if last:
                        acks[last] = acks.get(last, 0) ^ delta
                    last = root
                    delta = edge ^ tup.children
                if getrefcount(tup) != UNKEPT:
                    tup.state = ACKED
                    tup = None
        finally:  # also where an error ends the run: what was done before it is done
            if last:
                acks[last] = acks.get(last, 0) ^ delta
            self.stats.acked -= otherwise
        self.stats.acked += min(size, work.left)

    def _process_slice_by_hand(self, work: Work, size: int) -> None:
        """Process tuples with several roots, and those of bolts that ack themselves."""
        run, bolt = work.run, self.bolt
        component = self.sources.get(run.source, "?")
        make = self.named.get((component, run.stream), Tuple)
        given = self.clock.monotonic()
        for root, edge, values in islice(work.rows, size):
            if run.multi:
                anchors = tuple(zip(root, edge, strict=True))
                tup = make(values, component, run.stream, run.source, root[0], edge[0], anchors)
            else:
                tup = make(values, component, run.stream, run.source, root, edge)
            self.bolt_emits.current = tup
            try:
                bolt.process(tup)
            except BaseException as error:
                if not hurts_one_tuple(error):
                    raise
                self._raised(error, tup)
                continue
            if bolt.auto_ack:
                self.ack(tup)
            elif tup.state == OPEN and (tup.root or getrefcount(tup) > UNKEPT):
                # Rule: an untracked tuple that the bolt does not ack, and does not keep, is done: nobody could settle
                # it. One that it keeps has failed if it is dropped without an ack: an error on a thread of its own
                # would else be a loss without a word.
                self.held.add(tup, given)

    def _process_as_batch(self, work: Work, size: int) -> None:
        run = work.run
        start = len(run.roots) - work.left
        source = (self.sources.get(run.source, "?"), run.stream)
        kind, fields = self.named.get(source, Tuple), self._fields.get(source, ())
        seed = None
        if self._parts:
            settling.close_block(run, min(start + size, len(run.roots)), self.getrandbits, self.acks)
            seed = self.getrandbits(64)
        batch = settling.take_batch(run, start, start + size, source[0], fields, kind, self._may_emit, seed)
        self._process_batch(batch)

    def _process_batch(self, batch: Batch) -> None:
        emits = self.bolt_emits
        emits.current = batch
        may_split = self._splits and len(batch) > 1
        mark = emits.mark() if may_split else None
        # Rule: each tuple comes again as it came. What the call that raised has changed in place would else be changed
        # twice, without a word.
        rows = [copied(values) for values in batch.peek()] if may_split else []
        emits.named_anchors.clear()
        try:
            self.bolt.process_batch(batch)
        except BaseException as error:
            if not hurts_one_tuple(error):
                raise
            emits.current = None
            if mark is None or not emits.may_be_taken_back(batch):
                self._batch_raised(error, batch)
                return
        else:
            mark = None
        emits.current = None
        # Rule: not inside of the `except`. What a tuple raises when it comes alone would have the batch's error as its
        # context, and the user would read of both, with our calls between them.
        if mark is not None:
            emits.take_back(mark)
            self._process_one_by_one(batch, rows)
            return
        if batch.state != OPEN:
            return
        if self.bolt.auto_ack:
            self.stats.acked += settling.ack(batch, self.acks)
        else:
            settling.settle_children(batch, self.acks)
            if self.bolt.answers_for_held:
                self.held.batches[batch] = None
            else:
                emits.named_anchors.clear()  # they would look like a batch that the bolt keeps
                self.held.add_open(batch, self.clock.monotonic(), kept=getrefcount(batch) > UNKEPT_BATCH)

    def _process_one_by_one(self, batch: Batch, rows: Sequence[list[Any]]) -> None:
        """Process the rows of a batch that was split."""
        for index, values in enumerate(rows):
            self._split_left = len(rows) - index - 1
            self._process_batch(settling.batch_of_one(batch, index, values))

    def _batch_raised(self, error: BaseException, batch: Batch) -> None:
        self.stats.errors += 1
        before = self.failures.count
        if batch.state == ACKED:
            self.failures.note_acked(len(batch))
        elif self.bolt.auto_fail:
            self.fail_told(batch, error)
        else:
            self.failures.note(len(batch))
            self._fail_untracked(batch, error)
            settling.settle_children(batch, self.acks)
            self.held.add_open(batch, self.clock.monotonic(), kept=True)
        self.failures.blame(error, before)
        self.report(error, batch, self.bolt.process_batch)
        self._end_run(error, self.bolt.process_batch)

    def _fail_untracked(self, batch: Batch, error: BaseException) -> None:
        cause = cause_of(self.emitter.component, error)
        for tup in batch.tuples:
            if not tup.root:
                self._fail(tup, cause)

    def _raised(self, error: BaseException, tup: Tuple) -> None:
        # No longer the present tuple: what the bolt emits from elsewhere must not be anchored to a tree that has
        # failed.
        self.bolt_emits.current = None
        self.stats.errors += 1
        before = self.failures.count
        # Rule: an untracked tuple that raised has failed, whatever ``auto_fail`` says. It has no time-out that might
        # settle it, and it counts as given up here: left open, it would count again when the bolt fails or acks it.
        if self.bolt.auto_fail or not tup.root:
            self.fail_told(tup, error)
        elif tup.state == OPEN:
            self.failures.note(1)
            self.held.add(tup, self.clock.monotonic())
        if tup.state == ACKED:
            self.failures.note_acked(1)
        self.failures.blame(error, before)
        self.report(error, tup, self.bolt.process)
        self._end_run(error, self.bolt.process)

    # -- what a bolt with threads of its own needs besides -------------------------------------------------

    def raised(self, error: BaseException, tup: Tuple) -> None:
        """Treat an error as one that ``process`` raised on a tuple. Any thread."""
        if not self.calls.here():
            if self.bolt.auto_fail or not tup.root:
                self._note_leaves(tup)
            self.calls.put(partial(self.raised, error, tup), "process")
            return
        if not hurts_one_tuple(error):
            raise error
        current = self.bolt_emits.current
        self._raised(error, tup)
        self.bolt_emits.current = current
        if self.failures.at_limit:
            self._stop_if_all_failed()

    def _note_leaves(self, given: Tuple | Batch) -> None:
        if isinstance(given, Tuple):
            self.held.leaves(given, self.clock.monotonic())

    def begins(self, tup: Tuple) -> None:
        """Note that work on a held tuple begins now. Any thread."""
        self.held.begins(tup, self.clock.monotonic())

    def ends(self, tup: Tuple) -> None:
        """Note that a held tuple is worked on no longer. Any thread."""
        self.held.ends(tup)

    def _waits_for_room(self, anchors: Sequence[Tuple | Batch]) -> Callable[[], None]:
        calls = self.held.waits_for_room(anchors, self.clock.monotonic())
        return lambda: self.held.has_room(calls, self.clock.monotonic())

    @property
    def works_elsewhere(self) -> bool:
        """Whether the bolt works on tuples outside of ``process``: on threads, or at ticks."""
        return self.calls.used or self.bolt.answers_for_untracked or isinstance(self.bolt, BatchingBolt)

    @property
    def untracked_done(self) -> int:
        """How many untracked tuples the bolt is done with."""
        return self._untracked_taken - self.held.untracked

    def holds_untracked(self) -> bool:
        """Tell whether the bolt may still settle untracked tuples."""
        if not self.bolt.answers_for_untracked:
            self.held.forget_unreachable()
        return self.held.untracked > 0

    def hand_over(self, act: Callable[[], None]) -> None:
        """Have the loop make a call of the bolt's, soon. Any thread. Raises BadEmit when the run ends."""
        self.calls.put(partial(self._make_handed_over, act), "a function of its own")

    def _make_handed_over(self, act: Callable[[], None]) -> None:
        self.in_hand.note_call(self.task_id, CALLS[-1], self.clock.monotonic(), self.held.given)
        self.call(act)
        self.in_hand.clear()

    def call(self, act: Callable[[], None]) -> None:
        """Make a call of the bolt's own; treat its error like that of a tick."""
        if self.ended_run:
            return
        try:
            act()
        except BaseException as error:
            if not hurts_one_tuple(error):
                raise
            self._note_error(error, None, act)
            self._end_run(error, act)
        if self.failures.at_limit:
            self._stop_if_all_failed()

    def complain(self, error: BaseException, tup: Tuple | Batch | None) -> None:
        """Tell an error as if ``process`` had raised it; nothing is failed by it."""
        self._note_error(error, tup, None if tup is None else self._called)

    def _note_error(self, error: BaseException, tup: Tuple | Batch | None, called: Defined) -> None:
        self.stats.errors += 1
        self.failures.last_error = error
        self.report(error, tup, called)

    def rest(self, rests: bool) -> None:
        """Note whether the bolt wants no tuples for now. The loop looks at it after each call of the bolt."""
        (self._resting.add if rests else self._resting.discard)(self.task_id)

    def tick(self, period_s: float, early: bool = False) -> None:
        """Give the bolt its tick. It anchors emitted tuples to nothing. ``early``: it comes before its time."""
        if self.ended_run:
            return
        before, began, collected = self.failures.count, self.clock.monotonic(), bool(self.held.given)
        try:
            if early:
                self.bolt.expect_early_tick()
            self.bolt.process_tick(tick_tuple(period_s))
            self.stats.tick_failed = 0
        except BaseException as error:
            if not hurts_one_tuple(error):
                raise
            self.stats.errors += 1
            # What a tick was to do is in no tree. Where its tuples fail by it, their spouts do what is to be done.
            self.stats.tick_failed = int(not isinstance(error, BatchFailed))
            self.stats.tick_errors += self.stats.tick_failed
            if isinstance(error, BatchFailed):  # its tuples were failed for what it raised, not by themselves
                self.failures.blame(error.__cause__ or error, before)
            self.report(error, None, self.bolt.process_tick)
            self._end_run(error, self.bolt.process_tick)
        if collected or not isinstance(self.bolt, BatchingBolt):  # else there was nothing to do
            self._tick_s = max(self.clock.monotonic() - began, self._tick_s / 2)
        if self.failures.at_limit:  # it may fail there what it has collected
            self._stop_if_all_failed()

    def _end_run(self, error: BaseException, called: Callable[..., Any]) -> None:
        if self.bolt.exit_on_exception:
            # Rule: its error is the last that happens to such a bolt. It is given nothing more while the worker waits
            # for the acks of others: it may have been set to write nothing after what failed.
            self.ended_run = True
            self.rest(True)
            told = bolt_ended_run(self.emitter.component, type(self.bolt), error, called)
            raise told from behind(told, error)


for _method in (BoltTask.ack, BoltTask.fail):
    called_by_users(_method)
