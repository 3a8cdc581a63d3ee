"""Spouts: where tuples come from."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar, Protocol, cast

from streamlet.components.component import Component, TaskPort, outside
from streamlet.model.spec import SPOUT, ComponentSpec


class FailReason(enum.Enum):
    """Why a tree failed. Only the first two may be the message's own fault."""

    FAILED = "a bolt failed it"
    TIMED_OUT = "it took longer than topology.message.timeout.secs"
    LOST = "it may have been lost with a worker or a link"


class SpoutPort(TaskPort, Protocol):
    """What the runtime binds to a spout, beside what it binds to any component."""

    @property
    def emit_many(self) -> Callable[..., None]: ...


class Spout(Component):
    """Override ``next_tuple``. All methods run on the worker's loop: none may block, but ``initialize``.

    A tuple emitted with ``tup_id`` is tracked: sooner or later ``ack(tup_id)`` or ``fail(tup_id)`` is called
    once, on this instance, after ``next_tuple`` has returned. Without ``tup_id`` it is not tracked.
    """

    must_define: ClassVar[str] = "next_tuple"
    """The method that a class must define before it can run; ``model.validate`` looks at it."""

    answers_for_failures: ClassVar[bool] = False
    """True for a spout that emits again whatever fails, or gives it up by a policy that its user has named. Of any
    other a message that failed, and was not acked under the same id since, is told at the end (exit status 1).
    """

    fail_reason: FailReason = FailReason.FAILED
    """Why the trees of the present ``fail`` or ``fail_many`` have failed. What was LOST says nothing against a message:
    do not count it towards a limit of tries.
    """

    timer_interval_s: ClassVar[float | None] = None
    """The runtime calls ``on_timer`` at least this often, also while the spout is paused."""

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        par: int = 1,
        config: Any = None,
        outputs: Any = None,
    ) -> ComponentSpec:
        """This spout as a line of a topology."""
        merged = {**cls.config, **(config or {})}
        return ComponentSpec(cls, SPOUT, name=name, par=par, config=merged, outputs=outputs)

    def next_tuple(self) -> None:
        """Emit what is at hand, or nothing, and return. Called again at once while it emits."""
        raise NotImplementedError(f"{type(self).__name__} does not define next_tuple()")

    def emit(
        self,
        values: Sequence[Any],
        tup_id: Hashable | None = None,
        stream: str | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Send a tuple into the topology; ``tup_id`` (any hashable) makes it the root of a tracked tree.

        Returns the receiving task ids if ``need_task_ids``. Raises ValueCannotTravel.
        """
        raise outside("emit")

    def emit_many(
        self, tuples: Iterable[Sequence[Any]], tup_id: Hashable | None = None, stream: str | None = None
    ) -> None:
        """Send several tuples of *one* tree: it is acked when all are, and failed when one is (K6)."""
        raise outside("emit_many")

    def ack(self, tup_id: Any) -> None:
        """The tree of ``tup_id`` was processed to its last tuple."""

    def fail(self, tup_id: Any) -> None:
        """The tree of ``tup_id`` failed, timed out, or may have been lost with a worker: see ``fail_reason``."""

    def ack_many(self, tup_ids: Sequence[Any]) -> None:
        """``ack`` for each; override it where one pass over many is cheaper."""
        for tup_id in tup_ids:
            self.ack(tup_id)

    def fail_many(self, tup_ids: Sequence[Any]) -> None:
        """``fail`` for each."""
        for tup_id in tup_ids:
            self.fail(tup_id)

    def activate(self) -> None:
        """Tuples may flow from now on."""

    def deactivate(self) -> None:
        """No ``next_tuple`` until ``activate``; acks and fails still come."""

    def close(self) -> None:
        """The last call of all, clean stop or not; release connections, within a second or two."""

    def fileno(self) -> int | None:
        """A descriptor that becomes readable when ``next_tuple`` has work. None: the runtime polls each ms.

        It is looked at only while ``next_tuple`` may be called: not while the spout is paused or has
        ``topology.max.spout.pending`` trees open.
        """
        return None

    def on_timer(self) -> None:
        """Periodic upkeep: see ``timer_interval_s``."""

    def caught_up(self) -> bool:
        """With ``--until-caught-up``: this task has nothing more to emit and remembers that all was done."""
        return False

    def unfinished_count(self) -> int | None:
        """How many messages were emitted and are neither acked nor given up, where the spout keeps them."""
        return None

    def partition_status(self) -> list[dict[str, Any]]:
        """What the live table shows of a partitioned source, from numbers at hand (no I/O)."""
        return []

    def bind(self, port: TaskPort) -> None:
        vars(self).update(emit=port.emit, emit_many=cast(SpoutPort, port).emit_many, report_metric=port.report_metric)
