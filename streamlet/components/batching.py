"""Bolts that collect tuples and process them by the batch (pystorm's, their traps closed).

A batch is processed on the bolt's own thread, at a tick. Its tuples stay open until then, so
``topology.max.spout.pending`` bounds how many there are, and the time between batches must be shorter than
``topology.message.timeout.secs``.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from streamlet.base.errors import StreamletError, hurts_one_tuple, text_of
from streamlet.base.printable import cut
from streamlet.components.bolt import Bolt
from streamlet.components.component import BoltPort
from streamlet.components.default_anchors import anchored_emits
from streamlet.components.tuples import OPEN, Tuple
from streamlet.model.plan import TICK_PERIOD


class BatchFailed(StreamletError):
    """``process_batch`` raised; the tuples of that batch have failed. Its cause is the error of the user."""


class BadKey(StreamletError):
    """``group_key`` returned what cannot be a key; its tuple has failed."""


class BatchingBolt(Bolt):
    """A bolt that processes what came between ticks, grouped by key. Override ``process_batch``.

    What it emits there is anchored to all tuples of the batch; they are acked when it returns, and failed when it
    raises, while other batches go on. ``auto_anchor``, ``auto_ack`` and ``auto_fail`` mean the batch. Ticks come every
    ``topology.tick.tuple.freq.secs`` of the component's config.
    """

    must_define: ClassVar[str] = "process_batch"
    needs_ticks: ClassVar[bool] = True
    """Whether ``check`` refuses a topology that gives it no ticks: no batch would ever be processed."""

    ticks_between_batches: ClassVar[int] = 1

    _batches: dict[Hashable, list[Tuple]]
    _batch: list[Tuple]
    """The batch under work."""
    _ticks: int
    """Ticks since the last batches."""

    def group_key(self, tup: Tuple) -> Hashable:
        """Return the key of a tuple's batch."""
        return None

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:  # type: ignore[override]  # pystorm's arguments
        """Handle the tuples of one key that came between two ticks.

        Not ``Bolt.process_batch``, which takes a ``Batch``.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define process_batch(key, tups)")

    @classmethod
    def takes_batches(cls) -> bool:
        return False

    @classmethod
    def acks_at_once(cls) -> bool:
        return False  # whatever the class's flags say of a batch, its tuples are open until a tick

    def process(self, tup: Tuple) -> None:
        """Put a tuple into its batch."""
        key = self.group_key(tup)
        try:
            batch = self._batches.setdefault(key, [])
        except TypeError:
            raise BadKey(
                f"{self.component_name} (task {self.task_id}): group_key{_defined_at(self.group_key)} returned "
                f"{key!r:.80}, a {type(key).__name__}, on a tuple from {tup.component}, and a batch's key must be "
                "hashable: return a str, a number or a tuple of these."
            ) from None
        batch.append(tup)

    def process_tick(self, tup: Tuple) -> None:
        """Process all batches at each ``ticks_between_batches``-th tick."""
        self._ticks += 1
        if self._ticks >= self.ticks_between_batches:
            self._ticks = 0
            self.process_batches()

    def expect_early_tick(self) -> None:
        self._ticks = self.ticks_between_batches  # the others may not come

    def waits_for_tick(self, tups: Iterable[Tuple]) -> bool:
        """Tell whether all these tuples are in batches that wait."""
        waiting = {id(tup) for batch in self._batches.values() for tup in batch}
        return waiting.issuperset(map(id, tups))

    def process_batches(self) -> None:
        """Process all batches now. Raises BatchFailed of the last that failed, after all of them."""
        batches, self._batches = self._batches, {}
        failures: list[BatchFailed] = []
        for key, tups in self._parted(batches):
            self._batch = tups
            try:
                # Rule: a list of its own. What the bolt takes out of it would be neither acked nor failed, and an emit
                # would be anchored to the others alone: lost in silence when it fails.
                self.process_batch(key, [*tups])
            except BaseException as error:
                if not hurts_one_tuple(error):
                    raise
                failures.append(self._failed(key, tups, error))
            else:
                for tup in tups if self._acks_batches else ():
                    self.ack(tup)
            finally:
                self._batch = []
        for failed in failures[:-1]:
            self._complain(failed, None)
        if failures:
            raise failures[-1]

    def _parted(self, batches: Mapping[Any, list[Tuple]]) -> Iterator[tuple[Any, list[Tuple]]]:
        """Yield each batch with its key; a tuple of a last try is one by itself."""
        for key, tups in batches.items():
            alone = dict.fromkeys(self._last_tries(tups))
            if others := [tup for tup in tups if tup not in alone] if alone else tups:
                yield key, others
            for tup in alone:
                yield key, [tup]

    def _failed(self, key: Any, tups: list[Tuple], error: BaseException) -> BatchFailed:
        # Those without a tree in any case: nobody would settle them later, and only their failure is counted.
        for tup in tups:
            if self._fails_batches or not tup.root:
                self._fail_told(tup, error)
        # A call with wrong arguments fails in this file: the place to look at is then the method that was called.
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
        at = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else _defined_at(self.process_batch)
        then = _what_follows(tups, self._fails_batches)
        on = "exit_on_exception ends the run" if self.exit_on_exception else "the bolt goes on with the next batch"
        failed = BatchFailed(
            f"{self.component_name} (task {self.task_id}) raised {type(error).__name__}{at} in process_batch, on "
            f"{len(tups)} tuple(s) of key {key!r:.80}: {cut(text_of(error))}. {then}; {on}."
        )
        failed.__cause__ = error
        return failed

    def bind(self, port: BoltPort) -> None:
        super().bind(port)
        # The class's flags mean a batch. To the runtime, this is a bolt that acks, fails and anchors by hand.
        cls = type(self)
        self._acks_batches, self._fails_batches, anchors_batches = cls.auto_ack, cls.auto_fail, cls.auto_anchor
        self._batches, self._batch, self._ticks = {}, [], 0
        self._complain, self._last_tries = port.complain, port.last_tries
        self._fail_told = port.fail_told
        emits = anchored_emits(port, self._anchors if anchors_batches else list)
        vars(self).update(emits, auto_ack=False, auto_anchor=False)

    def _anchors(self) -> Sequence[Tuple]:
        """Return what an emit without anchors belongs to: the tuples of the batch that are open."""
        # All of them where none is: the emit comes too late, and is refused.
        return [tup for tup in self._batch if tup.state == OPEN or not tup.root] or self._batch


def _defined_at(method: Any) -> str:
    """Return `` (FILE:LINE)`` of a method's definition; empty if it has none."""
    code = getattr(inspect.unwrap(method), "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""


def _what_follows(tups: Sequence[Tuple], fails: bool) -> str:
    """Return what it means for tuples that their batch raised. ``fails``: the tracked ones fail, too."""
    untracked = sum(not tup.root for tup in tups)
    if not untracked:
        return "They have failed, and their spouts were told" if fails else "auto_fail is off: they are open"
    if untracked == len(tups):
        return "They are not tracked, so no spout hears of them and nobody sends them again"
    if not fails:
        return f"auto_fail is off: they are open, but {untracked} of them are not tracked, so nobody sends those again"
    return f"They have failed; {untracked} of them are not tracked, so nobody sends those again"


class TicklessBatchingBolt(BatchingBolt):
    """A batching bolt with a period of its own: ``secs_between_batches``."""

    secs_between_batches: ClassVar[float] = 2

    @classmethod
    def _own_config(cls) -> Mapping[str, Any]:
        # The runtime's ticks are timers of the loop: no thread of the bolt's own is needed, as pystorm's has.
        return {**cls.config, TICK_PERIOD: cls.secs_between_batches}
