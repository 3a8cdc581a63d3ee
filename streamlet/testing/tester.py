"""The base of both testers: a loop on a clock moved by hand, with each emit, ack, failure and error noted.

Both run what a worker runs, the loop with its routing, tracking, time-outs and ticks, on the calling thread, with a
seed and a clock that moves only by ``advance``. So a test is repeatable, never sleeps and starts nothing. Emits are
recorded at the component's own ``emit``, so they are seen whether or not anybody reads the stream.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import random
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

from streamlet.base.clock import ManualClock
from streamlet.base.errors import StreamletError, WrongArgument
from streamlet.components.batch import Batch
from streamlet.components.bolt import Bolt
from streamlet.components.reliable_spout import ReliableSpout
from streamlet.components.spout import FailReason, FailureCause, Spout
from streamlet.model.plan import Plan
from streamlet.model.spec import SPOUT
from streamlet.model.stream import DEFAULT_STREAM
from streamlet.runtime.links.links import Links
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.tasks.building import LiveTask, WorkerContext
from streamlet.runtime.tasks.emitter import Run
from streamlet.runtime.tasks.spout_task import SpoutTask
from streamlet.runtime.worker.loop import DRAINING, WorkerLoop
from streamlet.testing import waiting
from streamlet.testing.given import GivenRow, GivenSpout, check_stream

STEP_S = 0.1
"""Seconds of one step of the clock at most.

Spouts are asked after each, so those that emit by the clock are not late.
"""

MOST_TUPLES = 500_000
"""Tuples at one moment, emitted by spouts or given to bolts, before the topology is taken for endless.

Given rows come to an end, however many: they begin the count again.
"""

MOST_TURNS = 2_000
"""Turns of the loop at one moment that do nothing, before the topology is taken for endless."""

LOOK_S = 0.002
"""Seconds between two looks at what a bolt's threads have done."""


class Emitted(NamedTuple):
    """One call of ``emit``, with its values at that moment."""

    component: str
    task: int
    stream: str
    values: list[Any]
    direct_task: int | None = None


class Raised(NamedTuple):
    """What a call of a bolt raised. ``values``: None where there was no tuple, of a batch a list of its rows."""

    component: str
    task: int
    error: BaseException
    values: list[Any] | None
    by_batch: bool = False
    call: str = ""
    """The method that was called, as ``process`` or ``process_tick``, where it is known."""


class KeptLetter(tuple[list[Any], str]):
    """A dead letter: the pair of its values and reason, with ``tries`` besides."""

    # A pair, whatever else is known of it: a test writes down what it expects as ([""], "no customer").
    tries: int

    def __new__(cls, values: list[Any], reason: str, tries: int) -> Self:
        made = super().__new__(cls, (values, reason))
        made.tries = tries
        return made

    @property
    def values(self) -> list[Any]:
        return self[0]

    @property
    def reason(self) -> str:
        return self[1]


class WorkAtOneMoment:
    """Counts tuples while the clock stands. Raises StreamletError where they seem to have no end."""

    # Rule: the bound is of work, and not of turns. A turn is as long as the loop makes it: a long run has many, and a
    # loop of bolts has one without an end, for the clock stands.
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._tuples: Counter[str] = Counter()
        """By component."""
        self._emits: dict[int, int] = {}
        self._done = self._idle = 0

    def begin(self) -> None:
        """Count from zero."""
        self._tuples.clear()
        self._done = self._idle = 0

    def given(self, run: Run) -> None:
        """Count tuples that a bolt is given."""
        self._count(run.target, len(run.roots))

    def turned(self, spouts: Mapping[int, SpoutTask], *, takes_given: bool) -> None:
        """Count a turn, and what spouts emitted in it. Given rows begin the count again."""
        for task, spout in spouts.items():
            self._count(task, spout.emits - self._emits.get(task, 0))
            self._emits[task] = spout.emits
        if takes_given:
            self.begin()
            return
        done = self._tuples.total()
        self._idle += done == self._done
        self._done = done
        if self._idle >= MOST_TURNS:
            raise StreamletError(
                f"The topology did not come to rest in {MOST_TURNS:,} turns in which nothing was done, at one moment "
                "of the clock. Look for a spout or a thread that has the loop called again and again."
            )

    def _count(self, task: int, tuples: int) -> None:
        self._tuples[self._plan.tasks[task - 1].component] += tuples
        if self._tuples.total() <= MOST_TUPLES:
            return
        (most, of_most), *_ = self._tuples.most_common(1)
        does = "emitted by" if self._plan.topology.component(most).kind == SPOUT else "given to"
        raise StreamletError(
            f"The topology was still busy after {MOST_TUPLES:,} tuples at one moment of the clock, {of_most:,} of them "
            f"{does} {most}. A test needs spouts that come to an end, or that emit by the clock: give a list in place "
            "of one that always has more. Bolts that emit in a circle need a way out of it."
        )


class Tester:
    """The loop, the clock and the notes of both testers."""

    def __init__(
        self,
        plan: Plan,
        conf: Mapping[str, Any],
        links: Links,
        seed: int,
        clock: ManualClock | None,
        raise_errors: bool,
        overrides: Mapping[str, Mapping[str, Any]],
    ) -> None:
        if clock is not None and not isinstance(clock, ManualClock):
            raise WrongArgument(f"clock= is {clock!r}: give a streamlet.testing.ManualClock, or leave it out.")
        self.clock = clock or ManualClock()
        self.log: list[Emitted] = []
        """Every emit of every component, in order."""
        self.errors: list[Raised] = []
        """Every exception of a bolt, in order, also those that a call of the tester raised."""
        self._raise_errors = raise_errors
        self._raised = 0
        self._acked: dict[str, list[Any]] = defaultdict(list)
        self._failed: dict[str, list[Any]] = defaultdict(list)
        self._fail_reasons: dict[str, list[str]] = defaultdict(list)
        """Of each of ``_failed``, in its order."""
        self._given_up: dict[str, list[Any]] = defaultdict(list)
        self._dead_letters: dict[str, list[KeptLetter]] = defaultdict(list)
        self._work = WorkAtOneMoment(plan)
        self._open = True
        self._ended = False
        """Whether an error has ended what a run would be."""
        rng = random.Random(seed)
        shared = WorkerContext(
            plan=plan,
            worker=0,
            epoch=1,
            topology_id=str(uuid.uuid4()),  # not of the seed: each tester is a run (`InlineBackend.run`)
            conf=conf,
            clock=self.clock,
            rng=rng,
            report=self._note_error,
            wake=lambda: self._loop.post(lambda: None),
            overrides=overrides,
            tells_given=False,  # a test asks for them: only an error that a bolt raises ends it
            built=self._record,
        )
        self._loop = WorkerLoop(shared, links, self._work.given)
        try:
            self._loop.initialize()
            self._loop.activate()
        except BaseException:
            self._shut(clean=False)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._shut(clean=False)  # the first error is the one to be seen

    def close(self) -> None:
        """Stop as at the end of a run.

        Tuples under way are worked off, and each bolt with ticks gets its last one, unless an error has ended the run;
        then come ``cleanup`` of bolts and ``close`` of spouts. Raises the first error, after all of that. Tuples that
        wait for time or threads stay open.
        """
        if not self._open:
            return
        self._raised = len(self.errors)  # an error that has ended it was raised by the call that met it
        try:
            self._drain()
        except BaseException:
            self._shut(clean=False)
            raise
        raised = self._shut(clean=not self._ended)  # nor does a run call `cleanup` after such an error
        if self._loop.ledgers.failure is not None:  # of a last tick, with exit_on_exception
            raise self._loop.ledgers.failure
        self._raise_first()
        for error in raised:
            raise error

    def _drain(self) -> None:
        """Work off tuples under way; give bolts their last ticks, down the topology."""
        # Rule: a tester ends as a run does: what a bolt keeps of acked tuples until its next tick is nowhere else.
        if self._ended:
            return
        self._loop.pause(DRAINING)
        self._turn()
        for step in range(self._loop.quiet_steps):
            self._loop.be_quiet(step + 1)
            self._turn()

    @contextlib.contextmanager
    def _noting_the_end(self) -> Iterator[None]:
        """Note an error that would end a run at once."""
        try:
            yield
        except BaseException:
            self._ended = True
            with contextlib.suppress(Exception):  # the first error is the one to be seen
                self._loop.left_over(settled=True, ticks=False)  # what was acked or failed before it is noted
            raise

    def run(self) -> None:
        """Work until nothing is left to do at this moment.

        Raises what a bolt raised meanwhile.
        """
        self._check_open()
        self._turn()
        self._raise_first()

    def wait(self, seconds: float = 10.0, *, until_held_by: Sequence[str] = ()) -> None:
        """Work until no thread of a bolt has a tuple.

        Every tuple is then acked, failed, or in a batch of a BatchingBolt that waits for its tick. Another bolt may
        have threads as well as ticks: ``until_held_by`` names those that may go on holding tuples. The one call that
        takes real time, at most ``seconds``; the tester's clock stands still. Raises as ``run``, and StreamletError
        with the tuples still open when the time is over.
        """
        self._check_open()
        _check_seconds("wait", seconds)
        waiting.check_bolts(self._loop, until_held_by)
        end = time.monotonic() + seconds
        self.run()
        while (still_open := self._still_open())[0]:
            if waiting.no_thread_has_any(self._loop, until_held_by) and not waiting.let_more_in(self._loop):
                return
            if time.monotonic() >= end:
                raise StreamletError(waiting.in_vain(self._loop, seconds, *still_open))
            time.sleep(LOOK_S)
            self.run()

    def _still_open(self) -> tuple[str, str]:
        """Say how much is open, and which; empty: nothing."""
        raise NotImplementedError

    def advance(self, seconds: float) -> None:
        """Let time pass: ticks, time-outs and replays happen when they are due.

        Raises as ``run``.
        """
        self._check_open()
        _check_seconds("advance", seconds)
        if seconds < 0:
            raise ValueError(f"a clock cannot go back ({seconds} seconds)")
        self._turn()
        clock, timers = self.clock, self._loop.timers
        end = clock.monotonic() + seconds
        while (now := clock.monotonic()) < end:
            due = timers.next_due()
            clock.advance(min(end, now + STEP_S, due if due > now else end) - now)
            self._turn()
        self._raise_first()

    def _turn(self) -> None:
        work, left = self._work, self._rows_left()
        work.begin()
        while True:
            with self._noting_the_end():
                self._loop.turn()
            if self._loop.at_rest:
                return
            before, left = left, self._rows_left()
            work.turned(self._loop.spouts, takes_given=left < before)

    def _rows_left(self) -> int:
        """Count the given rows that no spout has taken yet."""
        return 0

    def _raise_first(self) -> None:
        new, self._raised = self.errors[self._raised :], len(self.errors)
        if new and self._raise_errors:
            first = new[0]
            what = f"a batch of {len(first.values or ())} tuples," if first.by_batch else "the tuple"
            on = f"in {first.call or 'a call of its own'}" if first.values is None else f"on {what} {first.values!r}"
            first.error.add_note(f"raised by {first.component} (task {first.task}) {on}")
            if remedy := self._remedy(first):
                first.error.add_note(remedy)
            raise first.error

    def _remedy(self, raised: Raised) -> str:
        """Say how to mend the test, where it caused the error."""
        return ""

    def _note_error(self, component: str, task: int, error: BaseException, tup: Any, called: Any) -> None:
        values = tup.rows if isinstance(tup, Batch) else None if tup is None else list(tup.values)
        call = getattr(called, "__name__", "")
        self.errors.append(Raised(component, task, error, values, isinstance(tup, Batch), call))

    def _check_open(self) -> None:
        if not self._open:
            raise StreamletError(
                "This tester is closed: its components have had their cleanup and take nothing more. Call it inside "
                "of the `with` block; what it recorded can still be read."
            )
        if self._ended:
            raise StreamletError(
                "An error that ends a run has ended this one, and nothing would be processed any more. What the tester "
                "recorded can still be read; make another one to go on."
            )

    def _shut(self, clean: bool) -> list[BaseException]:
        if not self._open:
            return []
        self._open = False
        return [told.__cause__ or told for told in self._loop.close(clean)]  # a test expects the component's own error

    def _emitted(self, component: str, stream: str) -> list[list[Any]]:
        # "It emits nothing" is what a test may say of a bolt that declares no stream at all.
        definition = self._loop.plan.topology.component(component)
        if definition.streams() or stream != DEFAULT_STREAM:
            check_stream(definition, stream)
        return [made.values for made in self.log if (made.component, made.stream) == (component, stream)]

    def _live(self, component: str) -> list[LiveTask]:
        return [live for live in self._loop.tasks.values() if live.plan.component == component]

    # -- recording -------------------------------------------------------------------------------------------

    def _record(self, live: LiveTask) -> None:
        """Put recorders in front of a component's emits, acks and failures. Called before ``initialize``."""
        name, own = live.plan.component, vars(live.component)
        if isinstance(live.component, Bolt):
            # The task may choose another closure after `initialize`, which sees auto_anchor: ask it each time. One that
            # the bolt has put around it stays: it may name the anchors.
            bound = own["emit"]
            tasks_own = bound is live.task.emit
            emit = (lambda *values, **more: live.task.emit(*values, **more)) if tasks_own else bound
            own["emit"] = self._recording(live, emit)
            own["emit_many"] = self._recording_many(live, own["emit_many"], 0)
            if live.component.takes_batches():
                own["process_batch"] = self._without_withdrawn(live, live.component.process_batch)
            return
        spout = cast(Spout, live.component)
        own["emit"] = self._recording(live, own["emit"])
        own["emit_many"] = self._recording_many(live, own["emit_many"], 1)
        own["emit_each"] = self._recording_many(live, own["emit_each"], 1)
        own["ack_many"] = _noting(spout.ack_many, self._acked[name])
        fail_many = _noting(spout.fail_many, self._failed[name])
        own["fail_many"] = _noting_why(spout, fail_many, self._fail_reasons[name])
        if isinstance(spout, ReliableSpout):
            own["given_up"] = _noting_given_up(spout, self._given_up[name], self._dead_letters[name])

    def _without_withdrawn(self, live: LiveTask, process_batch: Callable[[Batch], None]) -> Callable[[Batch], None]:
        """Wrap a call, so that emits it took back are forgotten."""

        @functools.wraps(process_batch)
        def recorded(batch: Batch) -> None:
            before = len(self.log)
            try:
                process_batch(batch)
            except BaseException:
                if cast(BoltTask, live.task).bolt_emits.may_be_taken_back(batch):
                    del self.log[before:]
                raise

        return recorded

    def _recording(self, live: LiveTask, emit: Callable[..., Any]) -> Callable[..., Any]:
        # A bolt's third argument is anchors, a spout's second tup_id and third stream: both also come by name.
        stream_at = 1 if isinstance(live.component, Bolt) else 2

        def recorded(tup: Sequence[Any], *rest: Any, **more: Any) -> Any:
            answer = emit(tup, *rest, **more)  # what it refuses was not emitted
            kept = copy.deepcopy([*tup])
            stream = more.get("stream", rest[stream_at - 1] if len(rest) >= stream_at else None)
            direct = more.get("direct_task", rest[2] if len(rest) > 2 else None)
            self._note(live, stream, kept, direct)
            return answer

        return recorded

    def _recording_many(self, live: LiveTask, emit_many: Callable[..., Any], stream_at: int) -> Callable[..., Any]:
        def recorded(tuples: Iterable[Sequence[Any]], *rest: Any, **more: Any) -> Any:
            rows = [*tuples]
            result = emit_many(rows, *rest, **more)
            stream = more.get("stream", rest[stream_at] if len(rest) > stream_at else None)
            for row in rows:
                self._note(live, stream, copy.deepcopy([*row]), None)
            return result

        return recorded

    def _note(self, live: LiveTask, stream: str | None, values: list[Any], direct_task: int | None) -> None:
        made = Emitted(live.plan.component, live.plan.task_id, stream or DEFAULT_STREAM, values, direct_task)
        self.log.append(made)


def said_of(cause: FailureCause | None) -> str:
    """Return what a bolt said of a failure, as ``ValueError: why``; empty: nothing."""
    return ": ".join(filter(None, (cause.error, cause.text))) if cause is not None else ""


def why_failed(spout: Spout) -> str:
    """Return why the present messages of a spout fail."""
    if spout.fail_cause is None and spout.fail_reason is not FailReason.FAILED:
        return str(spout.fail_reason.value)
    return said_of(spout.fail_cause)


def _check_seconds(taker: str, seconds: object) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds < math.inf:
        raise WrongArgument(f"{taker} takes a number of seconds, and {seconds!r} is not one.")


def _noting(tell: Callable[[Sequence[Any]], None], noted: list[Any]) -> Callable[[Sequence[Any]], None]:
    def note(tup_ids: Sequence[Any]) -> None:
        noted.extend(each.values if isinstance(each, GivenRow) else each for each in tup_ids)
        tell(tup_ids)

    return note


def _noting_why(
    spout: Spout, fail_many: Callable[[Sequence[Any]], None], reasons: list[str]
) -> Callable[[Sequence[Any]], None]:
    def note(tup_ids: Sequence[Any]) -> None:
        reasons.extend([why_failed(spout)] * len(tup_ids))
        fail_many(tup_ids)

    return note


def _noting_given_up(
    spout: ReliableSpout, rows: list[Any], letters: list[KeptLetter]
) -> Callable[[Any, Sequence[Any], int], None]:
    given_up = spout.given_up

    def note(tup_id: Any, values: Sequence[Any], fails: int) -> None:
        rows.append(list(values))
        by_bolt = spout.fail_reason is FailReason.DEAD_LETTER
        if by_bolt or (isinstance(spout, GivenSpout) and spout.makes_letter):
            letters.append(KeptLetter(list(values), why_failed(spout), fails))
        given_up(tup_id, values, fails)

    return note
