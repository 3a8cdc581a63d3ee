"""The ledgers of a worker's spouts, and how acks and failures reach them.

The high bits of a root name the spout task that opened it (``tracking.pending``), so a bolt's worker knows without
asking where the ledger of a delta is: here, or in another worker, and then the delta travels with the turn's tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from streamlet.base.clock import Clock
from streamlet.base.errors import StreamletError, hurts_one_tuple
from streamlet.components.spout import FailReason, FailureCause
from streamlet.model.plan import Plan
from streamlet.runtime.tasks.emitter import Outgoing, Run
from streamlet.runtime.tasks.failure_causes import FailureCauses
from streamlet.runtime.tasks.in_hand import UNWATCHED, CallWatch, InHand
from streamlet.runtime.tasks.settling import drop, left_of_run
from streamlet.runtime.tasks.spout_task import SpoutTask
from streamlet.runtime.tasks.user_errors import behind, spout_failed
from streamlet.tracking.roots import owner_task
from streamlet.tracking.shared_roots import Root, spread

_ASKED = frozenset({"next_tuple", "may_send", "on_timer", "kept_bytes", "activate", "deactivate", "pause_parts"})
"""Calls that a spout is spared once it is retired."""
_HEARD = frozenset({"ack", "fail", "on_drain", "emit"})
"""Calls that it still gets: how its trees end, and what its threads emitted before."""


class Ledgers:
    """Acks and failures of one worker, on their way to the ledgers. On the loop's thread.

    ``acks`` (root -> delta), ``fails`` and ``causes`` are filled by the worker's bolts during a turn; ``outgoing``
    returns what the turn sends to another worker.
    """

    def __init__(
        self,
        plan: Plan,
        clock: Clock,
        acks: dict[Root, int],
        fails: list[int],
        outgoing: Callable[[int], Outgoing],
        in_hand: InHand,
        causes: FailureCauses | None = None,
        final: Callable[[int, int, int, int], None] = lambda task_id, given_up, kept, lost: None,
        unfinished: Callable[[int, int], None] = lambda task_id, messages: None,
        watch: CallWatch = UNWATCHED,
    ) -> None:
        """Begin without spouts.

        ``final`` takes a spout's task, and how many messages it has given up, how many of these it keeps elsewhere, and
        how many it has lost; ``unfinished``, how many are neither acked nor given up.
        """
        self.spouts: dict[int, SpoutTask] = {}
        self.retires = False
        """Whether a spout that raises is retired, and the turn goes on: then ``failure`` must be looked at after it."""
        self.failure: StreamletError | None = None
        """The first error that retired a spout, or that was raised when everything had been worked off."""
        self._plan = plan
        self._clock = clock
        self._acks = acks
        self._fails = fails
        self._causes = FailureCauses() if causes is None else causes
        self._outgoing = outgoing
        self._in_hand = in_hand
        self._final = final
        self._unfinished = unfinished
        self._watch = watch
        self._worker_of: Mapping[int, int] = {task.task_id: task.worker for task in plan.spout_tasks}
        owners = list(self._worker_of)
        self._sole_owner = owners[0] if len(owners) == 1 else None

    def settle(self) -> None:
        """Bring the turn's ack deltas and failures to their ledgers."""
        # Failures first: an ack of the same turn may complete a tree in which another tuple has failed
        # (`Outbox.put_block`).
        if self._fails:
            failed = list(self._fails)
            self._fails.clear()
            self.apply_fails(failed, causes=self._causes.take())
        if self._acks:
            self._acks.pop(0, None)  # what untracked tuples left there
            by_root = spread(self._acks)
            roots, deltas = list(by_root), list(by_root.values())
            self._acks.clear()
            self.apply_acks(roots, deltas)

    def apply_acks(self, roots: list[int], deltas: list[int]) -> None:
        """Apply deltas by root here, or pass them on to another worker."""
        if self._sole_owner is not None:  # one spout task owns every root: no need to look at each
            self._acks_of(self._sole_owner, roots, deltas)
            return
        by_task: dict[int, tuple[list[int], list[int]]] = {}
        for root, delta in zip(roots, deltas, strict=True):
            columns = by_task.setdefault(owner_task(root), ([], []))
            columns[0].append(root)
            columns[1].append(delta)
        for task_id, columns in by_task.items():
            self._acks_of(task_id, *columns)

    def _acks_of(self, task_id: int, roots: list[int], deltas: list[int]) -> None:
        spout = self.spouts.get(task_id)
        if spout is not None:
            now = self._clock.monotonic()
            self.guard(spout, "ack", partial(spout.apply_acks, zip(roots, deltas, strict=True), now))
        elif task_id in self._worker_of:
            outgoing = self._outgoing(self._worker_of[task_id])
            outgoing.roots += roots
            outgoing.deltas += deltas

    def apply_fails(
        self, roots: list[int], reason: FailReason = FailReason.FAILED, causes: Mapping[int, FailureCause] = {}
    ) -> None:
        """Fail trees here, or pass the roots on to another worker.

        The reason does not travel, for a failure by a bolt needs none; the causes do.
        """
        told: dict[int, SpoutTask] = {}
        for root in roots:
            task_id = owner_task(root)
            spout = self.spouts.get(task_id)
            if spout is not None:
                told[task_id] = spout
                self.guard(spout, "fail", partial(spout.apply_fails, [root], reason, causes.get(root)))
            elif task_id in self._worker_of:
                outgoing = self._outgoing(self._worker_of[task_id])
                outgoing.fails.append(root)
                if root in causes:
                    outgoing.causes[root] = causes[root]
        for spout in told.values():
            self.note_final(spout)

    def tell_failures(self, spout: SpoutTask, act: Callable[[], Any]) -> Any:
        """Make a call that tells a spout of failures."""
        told = self.guard(spout, "fail", act)
        self.note_final(spout)
        return told

    def note_final(self, spout: SpoutTask) -> None:
        """Note a spout's final numbers where they outlive this process."""
        # Rule: noted when its spout has been told, and not by the next heartbeat. Its worker may die before: nobody
        # would hear of it, and a run that has lost tuples would end with status 0.
        kept = self.guard(spout, "kept_count", spout.spout.kept_count)
        lost = spout.untracked_lost + self.guard(spout, "lost_count", spout.spout.lost_count)
        self._final(spout.task_id, self._given_up(spout), kept, lost)
        self.note_unfinished(spout)

    def note_unfinished(self, spout: SpoutTask) -> None:
        """Note a spout's unfinished messages where they outlive this process."""
        # Rule: also what has failed and waits for its next try. No tree of it is open, and when its worker died a run
        # that ended before it came again said that everything was done.
        # An error of the spout's own count waits for the next heartbeat: raised here, it would hide one of the turn.
        try:
            count = spout.unfinished()
        except Exception:  # noqa: BLE001 - as above
            count = len(spout.pending)
        self._unfinished(spout.task_id, count)

    def _given_up(self, spout: SpoutTask) -> int:
        """Count a spout's messages that nobody sends again."""
        given_up: int = self.guard(spout, "given_up_count", spout.spout.given_up_count)
        return given_up if spout.hears_failures else max(given_up, spout.stats.unreplayed)

    def apply_crashes(self, roots: list[int], how: str, component: str) -> None:
        """Fail the trees of spouts here whose tuples a worker died of; the others' workers hear of it themselves."""
        for spout in self.spouts.values():
            own = [root for root in roots if owner_task(root) == spout.task_id]
            self.tell_failures(spout, partial(spout.apply_crashes, own, how, component))

    def fail_unsendable(self, runs: list[Run]) -> None:
        """Fail the trees of tuples for a worker without a link."""
        # Only trees of spouts here. A frame says that a tree failed, not why, so a failure sent to another worker would
        # count against the message; that worker hears of the lost link itself, and then fails everything it has open.
        # So its edges stay in its ledgers, too: without the failure, its sets would look as if they were done.
        roots: list[int] = []
        acks: dict[Root, int] = {}
        for run in runs:
            drop(left_of_run(run), acks, roots)
        self.apply_fails([root for root in set(roots) if owner_task(root) in self.spouts], FailReason.LOST)
        for entry, edge in spread(acks).items():
            if owner_task(entry) in self.spouts:
                self._acks[entry] = self._acks.get(entry, 0) ^ edge

    def drop(self, run: Run) -> None:
        """Fail the trees of tuples that cannot be sent."""
        roots: list[int] = []
        drop(left_of_run(run), self._acks, roots)
        self.apply_fails(roots)

    def fail_everything(self) -> int:
        """Fail every open tree; return how many there were. Any of them may have used a link that is gone."""
        failed = self.pending()
        for spout in self.spouts.values():
            self.tell_failures(spout, spout.fail_all)
        return failed

    def pending(self) -> int:
        """Count open trees. Any thread: spouts may still be added meanwhile."""
        return sum(len(spout.pending) for spout in list(self.spouts.values()))

    def unfinished(self) -> int:
        """Count messages neither acked nor given up: open trees, failures to be replayed."""
        return sum(self.guard(spout, "unfinished_count", spout.unfinished) for spout in self.spouts.values())

    def note_open(self) -> None:
        """Update each spout's counters of open, given up, kept and lost messages."""
        for spout in self.spouts.values():
            stats, spout_of_user = spout.stats, spout.spout
            stats.open = self.guard(spout, "unfinished_count", spout.unfinished)
            stats.given_up = self._given_up(spout)
            stats.kept = self.guard(spout, "kept_count", spout_of_user.kept_count)
            stats.lost = spout.untracked_lost + self.guard(spout, "lost_count", spout_of_user.lost_count)
            self.note_final(spout)

    def caught_up(self) -> bool:
        """Tell whether every spout here is done, without an open tree."""
        return not self.pending() and all(
            self.guard(spout, "caught_up", spout.spout.caught_up) for spout in self.spouts.values()
        )

    def partitions(self) -> list[dict[str, Any]]:
        """Return the rows of all spouts about the partitions they read."""
        rows: list[dict[str, Any]] = []
        for spout in self.spouts.values():
            rows += self.guard(spout, "partition_status", partial(self._rows_of, spout))
        return rows

    def _rows_of(self, spout: SpoutTask) -> list[dict[str, Any]]:
        # Read to the end here, inside the guard: a generator raises only then, as does a None that was returned.
        rows = [{"component": self._name(spout.task_id), **row} for row in spout.spout.partition_status()]
        if any(row.get("oldest_open") is not None for row in rows) and spout.places:
            places = {spout.spout.lasting_id(tup_id): task for tup_id, task in spout.places.items()}
            for row in rows:
                task = places.get((row.get("topic"), row.get("partition"), row.get("oldest_open")))
                if task is not None:
                    row["waits_at"] = self._name(task)
        return rows

    def _name(self, task_id: int) -> str:
        return self._plan.tasks[task_id - 1].component

    def message_of(self, root: int) -> Any:
        """Return what the root's spout calls its message in every run; None unless it is open here."""
        spout = self.spouts.get(owner_task(root))
        tup_id = spout.pending.message_of(root) if spout is not None else None
        if spout is None or tup_id is None:
            return None
        return self.guard(spout, "lasting_id", partial(spout.spout.lasting_id, tup_id))

    def guard(self, spout: SpoutTask, where: str, act: Callable[[], Any]) -> Any:
        """Call into a spout. Raises its own StreamletError, or ComponentFailed.

        A spout that is retired by its error is asked for nothing more, and hears only how its trees end.
        """
        if spout.retired and where in _ASKED:
            return None
        spout.called_at = now = self._clock.monotonic()
        self._in_hand.note_call(spout.task_id, where, now)
        try:
            return act()
        except BaseException as error:
            if not hurts_one_tuple(error):
                raise
            name = self._plan.tasks[spout.task_id - 1].component
            failure = spout_failed(name, spout.task_id, where, error, getattr(spout.spout, where, None))
            if not self.retires or where not in _ASKED | _HEARD:
                raise failure from behind(failure, error)
            failure.__cause__ = behind(failure, error)
            self.failure = self.failure or failure
            spout.retired, spout.active = True, False
            spout.calls.refuse("after it had raised, and the run ends by that. It was not taken.")
            return None
        finally:
            # Rule: a spout's call that takes long is looked back at like a bolt's. It may hold the interpreter's lock,
            # and nobody takes what the threads of bolts emit meanwhile.
            if self._clock.monotonic() - now >= self._watch.long_s:
                self._watch.look_back(spout.task_id, where, now, "")
            self._in_hand.clear()
