"""Bolts that work on several tuples at once, for calls that wait: on threads, or on an asyncio loop.

The runtime gives a tuple to the bolt and goes on. Emits of ``process`` are anchored to its tuple, wherever it runs; the
tuple is acked when ``process`` returns, and failed when it raises, as in any bolt. How many tuples a bolt has at once
is bounded (``max_unacked``): the others wait in its queue, where they do not time out.
"""

from __future__ import annotations

import functools
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar

from streamlet.components.bolt import Bolt
from streamlet.components.component import BoltPort
from streamlet.components.context import TopologyContext
from streamlet.components.default_anchors import anchored_emits
from streamlet.components.tuples import Tuple

if TYPE_CHECKING:  # at run time where a bolt needs it: it takes as long to import as all of this package
    import asyncio

_at_work: ContextVar[Tuple | None] = ContextVar("at_work", default=None)
"""The tuple that this thread, or this coroutine, processes."""

CLOSING_S = 5.0
"""Seconds that a bolt's loop may take for ``async_cleanup`` and its last coroutines."""


class ConcurrentBolt(Bolt):
    """A bolt that processes its tuples elsewhere. Derive from one of the two below.

    The class's ``auto_anchor``, ``auto_ack`` and ``auto_fail`` mean ``process``, as in any bolt. ``emit``, ``ack`` and
    ``fail`` may be called wherever it runs; ticks and ``initialize`` are called on the worker's own loop.
    """

    answers_for_untracked: ClassVar[bool] = True

    _acks: bool
    _port: BoltPort

    @classmethod
    def takes_batches(cls) -> bool:
        return False

    @classmethod
    def acks_at_once(cls) -> bool:
        return False  # whatever the class's flags say of `process`, its tuple is open until that has returned

    def bind(self, port: BoltPort) -> None:
        super().bind(port)
        # The class's flags mean `process`. To the runtime, this is a bolt that acks and anchors by hand.
        cls = type(self)
        self._port, self._acks, anchors_tuple = port, cls.auto_ack, cls.auto_anchor

        def at_work() -> Sequence[Tuple]:
            tup = _at_work.get() if anchors_tuple else None
            return [] if tup is None else [tup]

        # What the runtime calls is named like the user's method, and unwraps to it: errors name the user's line.
        give = functools.update_wrapper(functools.partial(self._give), self.process)
        end = functools.update_wrapper(functools.partial(self._end, self.cleanup), self.cleanup)
        own = {"process": give, "cleanup": end, "auto_ack": False, "auto_anchor": False}
        vars(self).update(anchored_emits(port, at_work), **own)

    def _give(self, tup: Tuple) -> None:
        """Begin to process a tuple elsewhere. On the worker's loop."""
        raise NotImplementedError

    def _close(self) -> None:
        """End what tuples are processed on. On the worker's loop."""
        raise NotImplementedError

    def _end(self, cleanup: Callable[[], None]) -> None:
        try:
            self._close()
        finally:
            cleanup()


class ThreadedBolt(ConcurrentBolt):
    """A bolt whose ``process`` runs on threads, so many at once. For libraries that block.

    Tuples leave in the order of the answers. ``process`` is called from several threads at once: what they share (a
    client that is safe to share, a lock around a dict) is the bolt's to choose.
    """

    threads: ClassVar[int] = 8

    _waiting: SimpleQueue[Tuple | None]
    _started: list[threading.Thread]
    _thread_of: dict[Tuple, int]

    @property
    def max_unacked(self) -> int:  # type: ignore[override]  # twice: so that each thread has the next one at hand
        return 2 * self.threads

    def bind(self, port: BoltPort) -> None:
        run = functools.partial(self._run, self.process)
        super().bind(port)
        self._waiting, self._started, self._thread_of = SimpleQueue(), [], {}
        self._serve: Callable[[], None] = run

    def _give(self, tup: Tuple) -> None:
        if len(self._started) < self.threads:  # with the first tuples: `initialize` may have set how many
            name = f"{self.component_name}-{len(self._started)}"
            self._started.append(threading.Thread(target=self._serve, name=name, daemon=True))
            self._started[-1].start()
        self._waiting.put(tup)

    def _run(self, process: Callable[[Tuple], None]) -> None:
        """Process tuples, one after the other. One of the threads."""
        while (tup := self._waiting.get()) is not None:
            _at_work.set(tup)
            self._thread_of[tup] = threading.get_ident()
            try:
                process(tup)
            except BaseException as error:  # noqa: BLE001 - a thread's sys.exit() ends the run like a call's
                self._port.raised(error, tup)
            else:
                if self._acks:
                    self.ack(tup)
            del self._thread_of[tup]
            _at_work.set(None)
            del tup

    def where_held(self, tup: Tuple) -> list[traceback.FrameSummary]:
        frame = sys._current_frames().get(self._thread_of.get(tup, 0))
        return [] if frame is None else [*traceback.extract_stack(frame)]

    def _close(self) -> None:
        for _ in self._started:
            self._waiting.put(None)


class AsyncBolt(ConcurrentBolt):
    """A bolt whose ``process`` is a coroutine, for libraries that are awaited.

    It runs on an asyncio loop in a thread of the task's own, for ``at_once`` tuples at most. A session, or whatever has
    to live on that loop, is made in ``async_initialize`` and closed in ``async_cleanup``.
    """

    at_once: ClassVar[int] = 100

    _loop: asyncio.AbstractEventLoop
    _running: dict[Tuple, asyncio.Task[None]]

    @property
    def max_unacked(self) -> int:  # type: ignore[override]  # it is a number of the instance here
        return self.at_once

    async def process(self, tup: Tuple) -> None:  # type: ignore[override]  # awaited, on the bolt's own loop
        """Handle one tuple."""
        raise NotImplementedError(f"{type(self).__name__} does not define process(tup)")

    async def async_initialize(self) -> None:
        """Prepare, once, on the bolt's loop, after ``initialize``."""

    async def async_cleanup(self) -> None:
        """Finish, once, on the bolt's loop, before ``cleanup``."""

    def bind(self, port: BoltPort) -> None:
        process, initialize = self.process, self.initialize
        super().bind(port)
        self._coroutine: Callable[[Tuple], Coroutine[Any, Any, None] | None] = process

        @functools.wraps(initialize)
        def begin(conf: Mapping[str, Any], context: TopologyContext) -> None:
            import asyncio

            initialize(conf, context)
            self._loop, self._running = asyncio.new_event_loop(), {}
            name = f"{context.component_name}-asyncio"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
            asyncio.run_coroutine_threadsafe(self.async_initialize(), self._loop).result()

        vars(self)["initialize"] = begin

    def _serve(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _give(self, tup: Tuple) -> None:
        self._loop.call_soon_threadsafe(self._begin, tup)

    def _begin(self, tup: Tuple) -> None:
        self._running[tup] = self._loop.create_task(self._run(tup))  # asyncio itself keeps no task alive

    async def _run(self, tup: Tuple) -> None:
        _at_work.set(tup)  # of this task alone: each has a context of its own
        try:
            # A plain method has done its work by now, and held up the others meanwhile.
            if (answer := self._coroutine(tup)) is not None:
                await answer
        except BaseException as error:  # noqa: BLE001 - a coroutine's sys.exit() ends the run like a call's
            self._port.raised(error, tup)
        else:
            if self._acks:
                self.ack(tup)
        finally:
            del self._running[tup]

    def where_held(self, tup: Tuple) -> list[traceback.FrameSummary]:
        # A task's own stack ends at its first coroutine: that awaits the next, down to what all of them wait for.
        task, frames = self._running.get(tup), []
        awaited: Any = None if task is None else task.get_coro()
        while (frame := getattr(awaited, "cr_frame", None)) is not None:
            frames.append((frame, frame.f_lineno))
            awaited = awaited.cr_await
        return [*traceback.StackSummary.extract(iter(frames))]

    def _close(self) -> None:
        import asyncio

        try:
            asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result(CLOSING_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)

    async def _finish(self) -> None:
        import asyncio

        await self.async_cleanup()
        left = [*self._running.values()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
