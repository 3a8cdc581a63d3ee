"""Bolts that work on several tuples at once, for calls that wait: on threads, or on an asyncio loop.

The runtime gives a tuple to the bolt and goes on. Emits of ``process`` are anchored to its tuple, wherever it runs; the
tuple is acked when ``process`` returns, and failed when it raises, as in any bolt. How many tuples a bolt has at once
is bounded (``max_unacked``): the others wait in its queue, where they do not time out.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from traceback import FrameSummary, StackSummary, extract_stack
from typing import TYPE_CHECKING, Any, ClassVar

from streamlet.base.errors import BadEmit
from streamlet.components.bolt import Bolt
from streamlet.components.component import BoltPort
from streamlet.components.context import TopologyContext
from streamlet.components.default_anchors import anchored_emits
from streamlet.components.tuples import Tuple

if TYPE_CHECKING:  # at run time where a bolt needs it: it takes as long to import as all of this package
    import asyncio

_at_work: ContextVar[Tuple | None] = ContextVar("at_work", default=None)
"""The tuple that this thread, or this coroutine, processes."""

CLOSING_S = 3.5
"""Seconds that a bolt's loop may take for ``async_cleanup`` and its last coroutines: less than a worker may to stop."""

LAST_CALLS_S = 1.0
"""Seconds that ``cleanup`` waits for threads that are still in ``process``."""


class ConcurrentBolt(Bolt):
    """A bolt that processes its tuples elsewhere. Derive from one of the two below.

    ``auto_anchor``, ``auto_ack`` and ``auto_fail``, of the class or set in ``initialize``, mean ``process``, as in any
    bolt. ``emit``, ``ack`` and ``fail`` may be called wherever it runs; ticks and ``initialize`` are called on the
    worker's own loop.
    """

    answers_for_untracked: ClassVar[bool] = True

    @classmethod
    def takes_batches(cls) -> bool:
        return False

    @classmethod
    def acks_at_once(cls) -> bool:
        return False  # whatever the class's flags say of `process`, its tuple is open until that has returned

    def bind(self, port: BoltPort) -> None:
        super().bind(port)
        # Rule: nothing of ours is an attribute of the bolt. Any name is the user's, and one that is set twice (`_loop`,
        # `_port`, `_running`) would break in a thread, where nobody sees it.
        pool = _Threads(self, port) if isinstance(self, ThreadedBolt) else _Loop(self, port)
        # What the runtime calls is named like the user's method, and unwraps to it: errors name the user's line.
        begin = functools.update_wrapper(functools.partial(pool.begin, self.initialize), self.initialize)
        give = functools.update_wrapper(functools.partial(pool.give), self.process)
        end = functools.update_wrapper(functools.partial(pool.end, self.cleanup), self.cleanup)
        own = {"initialize": begin, "process": give, "cleanup": end, "where_held": pool.where}
        vars(self).update(anchored_emits(port, pool.at_work), **own, blocks_held=pool.blocker)


class ThreadedBolt(ConcurrentBolt):
    """A bolt whose ``process`` runs on threads, so many at once. For libraries that block.

    Tuples leave in the order of the answers. ``process`` is called from several threads at once: what they share (a
    client that is safe to share, a lock around a dict) is the bolt's to choose.
    """

    threads: ClassVar[int] = 8

    at_least_one: ClassVar[Mapping[str, str]] = {"threads": "It is how many threads call process at once"}

    def most_unacked(self) -> int | None:  # twice: so that each thread has the next one at hand
        return 2 * self.threads if self.max_unacked is None else self.max_unacked


class AsyncBolt(ConcurrentBolt):
    """A bolt whose ``process`` is a coroutine, for libraries that are awaited.

    It runs on an asyncio loop in a thread of the task's own, for ``at_once`` tuples at most. A session, or whatever has
    to live on that loop, is made in ``async_initialize`` and closed in ``async_cleanup``.
    """

    must_define: ClassVar[str] = "process"

    at_once: ClassVar[int] = 100

    at_least_one: ClassVar[Mapping[str, str]] = {"at_once": "It is how many tuples it works on at once"}

    def most_unacked(self) -> int | None:
        return self.at_once if self.max_unacked is None else self.max_unacked

    async def process(self, tup: Tuple) -> None:  # type: ignore[override]  # awaited, on the bolt's own loop
        """Handle one tuple."""
        raise NotImplementedError(f"{type(self).__name__} does not define process(tup)")

    async def async_initialize(self) -> None:
        """Prepare, once, on the bolt's loop, after ``initialize``."""

    async def async_cleanup(self) -> None:
        """Finish, once, on the bolt's loop, before ``cleanup``."""


class _UnderWay:
    """Notes when a tuple's call begins and ends. On the call's thread."""

    # Rule: the end is said before the result is handed over, which the loop may take long after. While it is in another
    # bolt's call, this one would seem to hang.

    __slots__ = ("_port", "_tup")

    def __init__(self, port: BoltPort, tup: Tuple) -> None:
        self._port = port
        self._tup = tup

    def __enter__(self) -> None:
        # On a loop, too: what blocks it (an emit that waits for room) keeps the other tuples from their beginning.
        self._port.begins(self._tup)

    def __exit__(self, *_: object) -> None:
        self._port.ends(self._tup)


class _Pool:
    """What a bolt's tuples are processed on. Made, and called but for ``settle``, on the worker's loop."""

    def __init__(self, bolt: ConcurrentBolt, port: BoltPort) -> None:
        self.bolt = bolt
        self.process: Callable[[Tuple], Any] = bolt.process
        self._port = port
        self._acks = self._anchors = True

    def begin(
        self, initialize: Callable[[Mapping[str, Any], TopologyContext], None], conf: Any, context: TopologyContext
    ) -> None:
        """Call ``initialize``, and take over what it has set."""
        initialize(conf, context)
        # Rule: to the runtime this is a bolt that acks and anchors by hand, whatever its flags said until here. One
        # with auto_ack would be acked when its tuple has been given to a thread, before anything is done.
        self._acks, self._anchors = self.bolt.auto_ack, self.bolt.auto_anchor
        vars(self.bolt).update(auto_ack=False, auto_anchor=False)

    def at_work(self) -> Sequence[Tuple]:
        """Return what an emit without anchors belongs to. Any thread."""
        tup = _at_work.get() if self._anchors else None
        return [] if tup is None else [tup]

    def give(self, tup: Tuple) -> None:
        """Begin to process a tuple elsewhere."""
        raise NotImplementedError

    def settle(self, tup: Tuple, error: BaseException | None) -> None:
        """Ack or fail a tuple that was processed, on its thread."""
        try:
            if error is not None:
                self._port.raised(error, tup)
            elif self._acks:
                self._port.ack(tup)
        except BadEmit:
            pass  # The run has closed without it. It is known to be open, and was counted where nobody sends it again.

    def where(self, tup: Tuple) -> list[FrameSummary]:
        """Return where the call for a tuple stands; empty: it has not begun."""
        raise NotImplementedError

    def blocker(self) -> Tuple | None:
        """Return the tuple whose call holds up all others; None: none does."""
        return None

    def close(self) -> None:
        """End what tuples are processed on."""
        raise NotImplementedError

    def end(self, cleanup: Callable[[], None]) -> None:
        """Close, and call the user's ``cleanup`` in any case."""
        try:
            self.close()
        finally:
            cleanup()


class _Threads(_Pool):
    """The threads of one bolt; they begin with its first tuples."""

    bolt: ThreadedBolt

    def __init__(self, bolt: ThreadedBolt, port: BoltPort) -> None:
        super().__init__(bolt, port)
        self._waiting: SimpleQueue[Tuple | None] = SimpleQueue()
        self._started: list[threading.Thread] = []
        self._thread_of: dict[Tuple, int] = {}

    def give(self, tup: Tuple) -> None:
        if len(self._started) < self.bolt.threads:  # with the first tuples: `initialize` may have set how many
            thread = threading.Thread(
                target=self._run, name=f"{self.bolt.component_name}-{len(self._started)}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # the system gives no further thread: those that there are do the work
                if not self._started:
                    raise
            else:
                self._started.append(thread)
        self._waiting.put(tup)

    def _run(self) -> None:
        """Process tuples, one after the other. One of the threads."""
        while (tup := self._waiting.get()) is not None:
            _at_work.set(tup)
            self._thread_of[tup] = threading.get_ident()
            try:
                with _UnderWay(self._port, tup):
                    self.process(tup)
            except BaseException as error:  # noqa: BLE001 - a thread's sys.exit() ends the run like a call's
                self.settle(tup, error)
            else:
                self.settle(tup, None)
            del self._thread_of[tup]
            _at_work.set(None)
            del tup

    def where(self, tup: Tuple) -> list[FrameSummary]:
        frame = sys._current_frames().get(self._thread_of.get(tup, 0))
        return [] if frame is None else [*extract_stack(frame)]

    def close(self) -> None:
        with contextlib.suppress(Empty):  # left by a drain that was cut short: their trees are open
            while True:  # not until it seems empty: the threads take from it, too
                self._waiting.get_nowait()
        for _ in self._started:
            self._waiting.put(None)
        # Rule: `cleanup` closes what threads use, so it waits for them: a bolt may ack before its call is over. Not for
        # long, for one may hang, and a worker that takes too long to stop is killed before its other cleanups.
        deadline = time.monotonic() + LAST_CALLS_S
        for thread in self._started:
            thread.join(max(0.0, deadline - time.monotonic()))


class _Loop(_Pool):
    """The asyncio loop of one bolt, in a thread of its own."""

    bolt: AsyncBolt

    def begin(
        self, initialize: Callable[[Mapping[str, Any], TopologyContext], None], conf: Any, context: TopologyContext
    ) -> None:
        import asyncio

        super().begin(initialize, conf, context)
        self._loop = asyncio.new_event_loop()
        self._ends = self._asked = False
        self._running: dict[Tuple, asyncio.Task[None]] = {}
        name = f"{context.component_name}-asyncio"
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(_answer(self.bolt.async_initialize), self._loop).result()
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._ends = True
        self._loop.stop()

    def _serve(self) -> None:
        """Run the loop until the bolt stops it; cancel its last tasks, as ``asyncio.run`` does."""
        import asyncio

        try:
            while not self._ends:
                # Rule: nobody but the bolt ends its loop: each tuple from there on would fail, and be given up. A task
                # that wants to leave ends the run, as a call does; what is under way goes on until then.
                try:
                    self._loop.run_forever()
                except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
                    self._end_run(error)
            # Rule: whatever the user has begun on the loop ends with it. Python would tell of a task that is left.
            self._loop.run_until_complete(_cancel(asyncio.all_tasks(self._loop)))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _end_run(self, error: BaseException) -> None:
        def act() -> None:
            raise error

        with contextlib.suppress(BadEmit):  # it ends by itself
            self._port.hand_over(act)

    def give(self, tup: Tuple) -> None:
        self._loop.call_soon_threadsafe(self._begin, tup)

    def _begin(self, tup: Tuple) -> None:
        self._running[tup] = self._loop.create_task(self._run(tup))  # asyncio itself keeps no task alive

    async def _run(self, tup: Tuple) -> None:
        _at_work.set(tup)  # of this task alone: each has a context of its own
        try:
            with _UnderWay(self._port, tup):
                await _answer(self.process, tup)
        except BaseException as error:  # noqa: BLE001 - a coroutine's sys.exit() ends the run like a call's
            self.settle(tup, error)
        else:
            self.settle(tup, None)
        finally:
            del self._running[tup]

    def where(self, tup: Tuple) -> list[FrameSummary]:
        # The task names its first coroutine only. Each coroutine names the one that it awaits.
        task, frames = self._running.get(tup), []
        awaited: Any = None if task is None else task.get_coro()
        if getattr(awaited, "cr_running", False):  # it does not await: its frames are those of the loop's thread
            frame = sys._current_frames().get(self._thread.ident or 0)
            return [] if frame is None else [*extract_stack(frame)]
        while (frame := getattr(awaited, "cr_frame", None)) is not None:
            frames.append((frame, frame.f_lineno))
            awaited = awaited.cr_await
        return [*StackSummary.extract(iter(frames))]

    def blocker(self) -> Tuple | None:
        # Rule: a loop that has answered nothing since the last question is held up by the coroutine that it runs. The
        # others wait for the loop, however long ago they began.
        blocked, self._asked = self._asked, True
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._answers)
        running = [tup for tup, task in [*self._running.items()] if getattr(task.get_coro(), "cr_running", False)]
        return running[0] if blocked and running else None

    def _answers(self) -> None:
        self._asked = False

    def close(self) -> None:
        import asyncio
        from concurrent.futures import TimeoutError as NotDone

        ending = asyncio.run_coroutine_threadsafe(self._finish(), self._loop)
        try:
            ending.result(CLOSING_S)
        except NotDone:
            if ending.done():  # it is the user's
                raise
            raise TimeoutError(
                f"async_cleanup, or a call on the bolt's loop, had not returned {CLOSING_S:g} s after the end"
            ) from None
        finally:
            self._stop()
            self._thread.join(LAST_CALLS_S)

    async def _finish(self) -> None:
        # Rule: first what works on tuples, then `async_cleanup`, which closes what they use.
        await _cancel({*self._running.values()})
        await _answer(self.bolt.async_cleanup)


async def _answer(call: Callable[..., Any], *arguments: Any) -> None:
    """Make a call on the loop, and await it."""
    answer = call(*arguments)
    if hasattr(answer, "__await__"):  # a plain one is done by now, and held up the others meanwhile
        await answer


async def _cancel(tasks: set[Any]) -> None:
    import asyncio

    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
