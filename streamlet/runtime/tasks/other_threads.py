"""Calls of ``emit``, ``ack`` and ``fail`` on other threads than the loop's, on their way to the loop.

A pool's callback, a client library's thread, an asyncio loop: any of them may call a component's port. The call waits
in a queue of its task, in the order of its thread, until the loop takes it. The queue is bounded: an emit waits for
room, which is how back pressure reaches other threads; acks and failures never wait, for they are what makes room.

The price on the loop's own thread is one question for each emit, ``here``: whether this thread holds a lock that the
loop takes once and keeps. The interpreter answers without making an object, in a third of the time that a look at the
thread's number takes.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from streamlet.base.errors import BadEmit, NoRoom
from streamlet.base.pools import is_pools
from streamlet.runtime.tasks.emitter import Emitter, row_bytes
from streamlet.runtime.tasks.in_hand import TASK, InHand
from streamlet.runtime.tasks.untracked_counts import TaskCells, cells_apart

QUEUE_ROWS = 10_000
"""Emitted rows that may wait for one task, where no setting says otherwise."""

QUEUE_BYTES = 64 << 20
"""Bytes of them, where no setting says otherwise."""

WAIT_S = 30.0
"""Seconds that an emit of another thread may wait for room, where no setting says otherwise."""

STEP_S = 1.0
"""Seconds of such a wait between two looks at whether the loop goes on."""

TaskCall = Callable[[], object]

Waits = Callable[[Sequence[Any]], Callable[[], None]]
"""Takes the anchors of an emit that begins to wait for room; returns what to call when it waits no longer."""


class OtherThreads:
    """What other threads have asked of one worker's tasks. Any thread puts, the loop takes."""

    def __init__(
        self,
        most: int = QUEUE_ROWS,
        wait_s: float = WAIT_S,
        wake: Callable[[], None] = lambda: None,
        most_bytes: int = QUEUE_BYTES,
        in_hand: InHand | None = None,
    ) -> None:
        """Set the bounds: ``most`` emitted rows may wait for one task, an emit ``wait_s`` for room.

        0 s: not at all. ``wake`` ends the loop's sleep. ``most_bytes``: of the rows. ``in_hand``: what the loop calls.
        """
        self.most = most
        self.most_bytes = most_bytes
        self.wait_s = wait_s
        self._mine = threading.RLock()
        self._mine.acquire()
        self.here: Callable[[], bool] = self._mine._is_owned  # type: ignore[attr-defined]  # threading.Condition asks it too
        """Tells whether the calling thread is the one that made this object: the loop's."""
        self.lock = threading.Lock()
        self.waiting = 0
        """Calls that wait, of all tasks. Changed under ``lock``; the loop may look without it."""
        self.wake = wake
        self.turns = 0
        """Turns that the loop has begun. The loop counts; any thread may look."""
        self._words = (InHand() if in_hand is None else in_hand).words
        self.is_copy = False
        """Whether this process was forked from the worker: its outboxes are copies, which nobody empties."""
        _live.add(self)

    def is_away(self, task_id: int, turns: int) -> bool:
        """Tell whether the loop is in another task's call.

        And has been since it counted ``turns``.
        """
        return self.turns == turns and self._words[TASK] not in (0, task_id)

    def forked(self) -> None:
        """Belong to no thread of this process, a child of the worker."""
        # Rule: what a forked child emits, acks or fails is refused. Its thread is the loop's by its number, and the
        # tuple would go into a copy of an outbox and be lost without a word.
        self.is_copy = True
        self._mine._at_fork_reinit()  # type: ignore[attr-defined]  # as logging does with its locks
        self.lock = threading.Lock()  # the old one may have been held at the fork


_live: weakref.WeakSet[OtherThreads] = weakref.WeakSet()


def _all_forked() -> None:
    for others in _live:
        others.forked()


os.register_at_fork(after_in_child=_all_forked)


WRONG, FULL, ENDED = "wrong", "full", "ended"
"""Why an emit of another thread is refused: it is a wrong one, it finds no room, the run ends."""


@dataclass
class RefusedEmits:
    """Emits of other threads that were refused for one kind of reason."""

    kind: str
    """WRONG, FULL or ENDED."""
    rows: int
    """How many rows they had."""
    gone: int
    """Those that nobody else answers for: no open anchor, and no caller who might do it again."""
    error: Exception
    """Why the latest was refused."""


class HandedOver(NamedTuple):
    """A call of another thread, on its way to the loop."""

    act: TaskCall
    rows: int
    """The rows that it emits."""
    untracked: int
    """How many of them nobody tracks."""
    size: int
    """The bytes of all."""


def _nothing_stands(anchors: Sequence[Any]) -> Callable[[], None]:
    return lambda: None


class TaskCalls:
    """The calls of other threads for one task, in order."""

    def __init__(self, others: OtherThreads, component: str, cells: TaskCells | None = None, task_id: int = 0) -> None:
        """Begin. ``cells`` hold how many rows wait here and were refused, as they change."""
        self._cells = cells_apart() if cells is None else cells
        self._task_id = task_id
        self.waits: Waits = _nothing_stands
        """Called, under ``OtherThreads.lock``, where an emit begins to wait for room."""
        self.here = others.here
        self._others = others
        self._component = component
        self._queue: deque[HandedOver] = deque()
        self.rows = 0
        """Emitted rows that wait here. Changed under ``OtherThreads.lock``; the loop may look without it."""
        self.untracked = 0
        """Those of them that no tree knows: dropped, nobody would send them again."""
        self._untracked_taken = 0
        """Such rows of calls that the loop has taken and not counted yet."""
        self._gone_taken = 0
        """Refused rows that ``take_refused`` has returned and nobody has counted yet."""
        self._bytes = 0
        self._line: deque[threading.Condition] = deque()
        """Emits that wait for room, the oldest first: each its own wake-up. Changed under ``OtherThreads.lock``."""
        self._refusal = ""
        self.used = False
        """Whether another thread has ever called: the component has threads of its own."""
        self.emitted = False
        """Whether one of those calls was an emit."""
        self._refused: dict[str, RefusedEmits] = {}
        """Emits that were refused since they were last taken. Changed under ``OtherThreads.lock``."""

    def __len__(self) -> int:
        return len(self._queue)

    def row(
        self, emitter: Emitter, tup: Sequence[Any], stream: str | None, direct_task: int | None, need_task_ids: bool
    ) -> list[Any]:
        """Check an emit of another thread; return a copy of its values. Raises what an emit raises."""
        # Here, where the caller can be told; and copied, for the caller may change its list before it is sent.
        if need_task_ids:
            raise BadEmit(
                f"{self._component} emitted with need_task_ids on a thread of its own: which tasks receive a tuple is "
                "known only when the loop sends it. Ask for them in process or next_tuple."
            )
        return emitter.checked(tup, emitter.routes(stream, direct_task))

    def put(
        self,
        act: TaskCall,
        name: str,
        rows: Sequence[Sequence[Any]] = (),
        *,
        tracked: bool = False,
        anchors: Sequence[Any] = (),
    ) -> None:
        """Hand a call, with the rows it emits, over to the loop. Any thread but its own.

        One with rows waits for room, ``OtherThreads.wait_s`` at most. Raises NoRoom when there is none, BadEmit when
        the run ends, or in a forked process. ``anchors``: the tuples that wait with it.
        """
        others = self._others
        if others.is_copy:
            raise BadEmit(
                f"{self._component} called {name} in a process that was forked from its worker. Nobody sends what is "
                "emitted there, nor hears of its acks: hand results back to the worker (a pool's future, a queue), and "
                f"call {name} there."
            )
        size = sum(map(row_bytes, rows))
        with others.lock:
            if rows and (self.is_full or self._line) and not self._refusal and others.wait_s > 0:
                self._wait_for_room(anchors)
            if self._refusal:
                raise BadEmit(f"{self._component} called {name} on a thread of its own {self._refusal}", run_ends=True)
            if rows and self.is_full:
                raise NoRoom(
                    f"{self._component} called {name} on a thread of its own, and {self.rows:,} tuples of such calls "
                    f"were waiting already ({others.wait_s:g} s for room: streamlet.threads.wait.secs, 0 not to wait). "
                    "This one was not taken: emit it again later, or slow down what calls."
                )
            first, self.used = not self._queue, True
            self.emitted |= bool(rows)
            untracked = 0 if tracked else len(rows)
            self._queue.append(HandedOver(act, len(rows), untracked, size))
            self.rows += len(rows)
            self.untracked += untracked
            self._note_untracked()
            self._bytes += size
            others.waiting += 1
        if first:
            others.wake()

    def _wait_for_room(self, anchors: Sequence[Any]) -> None:
        """Wait for room, as long as an emit may.

        Or until the run ends. Under ``OtherThreads.lock``.
        """
        # Rule: give room in the order of those who wait for it. Where the first at the lock took it, one of several
        # threads that emit all the time found none for as long as an emit may wait, and its tuple failed.
        others, left_s = self._others, self._others.wait_s
        turn, goes_on = threading.Condition(others.lock), self.waits(anchors)
        self._line.append(turn)
        try:
            while left_s > 0 and not self._refusal and (self.is_full or self._line[0] is not turn):
                turns, began, step_s = others.turns, time.monotonic(), min(left_s, STEP_S)
                turn.wait(step_s)
                # Rule: the wait for room is bounded by time in which the loop goes on. While it is in one call of
                # another bolt, nobody could make room: that one is named, and no tuple of this bolt pays for it. In a
                # call of this very bolt the time counts: the call may wait for this thread.
                if not others.is_away(self._task_id, turns):
                    left_s -= min(time.monotonic() - began, step_s)  # more: the process stood still
        finally:
            self._line.remove(turn)
            self._call_next()
            goes_on()

    def _call_next(self) -> None:
        """Wake the first that waits for room, if there is some. Under ``OtherThreads.lock``."""
        if self._line and not self.is_full:
            self._line[0].notify()

    def note_refused(self, error: Exception, rows: int, has_open_anchor: bool) -> None:
        """Note that an emit of ``rows`` rows was refused. Any thread.

        ``has_open_anchor``: a tuple that is not settled yet answers for it.
        """
        # Rule: the run, too, tells of each refused emit of a thread. A pool keeps what its calls raise in a future that
        # nobody looks at: a bolt whose every emit was refused would end with nothing sent, and status 0.
        # Who finds no room may try again. A thread that is no pool's brings news of its own, which come too late at the
        # end; a pool's works on what the bolt was given.
        if self._others.is_copy:
            # Rule: a forked child writes nothing on the page, which it shares with its worker. What it is refused, it
            # has heard itself; the worker would count a row that it has never seen.
            return
        kind = FULL if isinstance(error, NoRoom) else ENDED if getattr(error, "run_ends", False) else WRONG
        answered = kind == FULL or (kind == ENDED and not is_pools()) or has_open_anchor
        with self._others.lock:
            self.used = True
            before = self._refused.get(kind)
            gone = (before.gone if before else 0) + (0 if answered else rows)
            self._refused[kind] = RefusedEmits(kind, (before.rows if before else 0) + rows, gone, error)
            self._note_gone()

    def take_refused(self) -> list[RefusedEmits]:
        """Return newly refused emits, one entry a kind of error.

        Call ``note_refused_taken`` when they are counted.
        """
        if not self._refused:
            return []
        with self._others.lock:
            taken, self._refused = self._refused, {}
            self._gone_taken += sum(each.gone for each in taken.values())
        return [*taken.values()]

    def note_refused_taken(self) -> None:
        """Note that what ``take_refused`` returned is counted elsewhere."""
        with self._others.lock:
            self._gone_taken = 0
            self._note_gone()

    def _note_gone(self) -> None:
        self._cells.refused[0] = self._gone_taken + sum(each.gone for each in self._refused.values())

    def _note_untracked(self) -> None:
        # Rule: with what the loop has taken and not counted. A thread may call in between, and a worker that is killed
        # then would have those rows nowhere.
        self._cells.handed[0] = self._untracked_taken + self.untracked

    @property
    def is_full(self) -> bool:
        """Whether emits wait for room."""
        return self.rows >= self._others.most or self._bytes >= self._others.most_bytes

    def take(self, most: int, emits: bool) -> list[HandedOver]:
        """Return waiting calls, oldest first, for the loop to make. Without ``emits`` it stops at the first emit.

        Call ``note_taken`` when they are made.
        """
        # Acks and failures in front of the first emit pass even while emits must wait: they are what makes room.
        others, queue = self._others, self._queue
        taken: list[HandedOver] = []
        with others.lock:
            while queue and len(taken) < most and (emits or not queue[0].rows):
                call = queue.popleft()
                taken.append(call)
                self.rows -= call.rows
                self.untracked -= call.untracked
                self._untracked_taken += call.untracked
                self._bytes -= call.size
            others.waiting -= len(taken)
            self._call_next()
        return taken

    def give_back(self, left: Sequence[HandedOver]) -> None:
        """Put calls that were taken and not made before all others."""
        with self._others.lock:
            self._queue.extendleft(reversed(left))
            for call in left:
                self.rows += call.rows
                self.untracked += call.untracked
                self._untracked_taken -= call.untracked
                self._bytes += call.size
            self._others.waiting += len(left)

    def note_taken(self) -> None:
        """Note that what ``take`` returned is done, and counted elsewhere."""
        with self._others.lock:
            self._untracked_taken = 0
            self._note_untracked()

    def refuse(self, why: str) -> None:
        """Refuse calls from now on, also those that wait for room; queued ones are still taken."""
        with self._others.lock:
            self._refusal = why
            for turn in self._line:
                turn.notify()
