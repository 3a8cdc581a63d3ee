"""Spouts: where tuples come from."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, cast

from streamlet.base.backoff import Backoff
from streamlet.base.errors import StreamletError
from streamlet.components.component import Component, TaskPort, not_running
from streamlet.components.kept_bytes import KeptBytes
from streamlet.model.paused import PausedPart
from streamlet.model.spec import SPOUT, ComponentSpec


class FailReason(enum.Enum):
    """Why a tree failed. Only LOST is certainly not the message's own fault."""

    FAILED = "a bolt failed it"
    TIMED_OUT = "it took longer than topology.message.timeout.secs"
    LOST = "it may have been lost with a worker or a link"
    CRASHED = "its worker died while a bolt was at work on it"
    DEAD_LETTER = "a bolt sent it to the dead letters"


WORKER_DIED = "WorkerDied"
"""The ``error`` of a tuple that a worker died of."""


class FailureCause(NamedTuple):
    """Why a tuple failed: the bolt, and what it raised or said."""

    component: str
    error: str = ""
    """The class of the exception; empty where the bolt failed the tuple by itself; WORKER_DIED."""
    text: str = ""
    """The error's text, or the bolt's reason; cut to 500 characters."""
    to_dead_letters: bool = False
    """Whether the bolt called ``dead_letter``."""


class TriesInTests(NamedTuple):
    """The tries of a row in a test."""

    max_fails: int | None
    """Retries after the first try; None: without end."""
    backoff: Backoff
    keeps_letters: bool = False
    """Whether a row that is given up is a dead letter."""
    stops: Callable[[int, int, FailureCause | None], StreamletError] | None = None
    """Makes the error that ends the run with a row that is given up; None: the run goes on.

    It is given the row's place in its list, its tries and the cause.
    """


class MessageIds(Sequence[Hashable]):
    """Ids for ``emit_each`` that are made when one is asked for. Never changes; none of them is None.

    The spout gets the same object back, in ``ack_many``, where all of these messages are done.
    """

    # A spout whose ids can be told from a few numbers pays for no object for each message.
    __slots__ = ()


class SpoutPort(TaskPort, Protocol):
    """The runtime's half of a spout, beside a component's."""

    @property
    def emit_many(self) -> Callable[..., None]: ...
    @property
    def emit_each(self) -> Callable[..., bool]: ...
    @property
    def room(self) -> Callable[[], int]: ...
    @property
    def here(self) -> Callable[[], bool]: ...
    @property
    def emit_from_other_thread(self) -> Callable[..., list[int] | None]: ...
    @property
    def emit_many_from_other_thread(self) -> Callable[..., None]: ...
    @property
    def emit_each_from_other_thread(self) -> Callable[..., None]: ...
    @property
    def kept(self) -> KeptBytes: ...
    @property
    def as_last_try(self) -> Callable[[Callable[[], object]], None]: ...


class Spout(Component):
    """A source of tuples. Override ``next_tuple``.

    All methods run on the worker's loop: none may block, but ``initialize``. A tuple emitted with ``tup_id`` is
    tracked: sooner or later ``ack(tup_id)`` or ``fail(tup_id)`` is called once, on this instance, after ``next_tuple``
    has returned. Without ``tup_id`` it is not tracked.
    """

    must_define: ClassVar[str] = "next_tuple"
    """The method a class must define before it can run; ``model.validate`` checks it."""

    exit_on_exception: ClassVar[bool] = True
    """True, always: a spout that raises cannot say which of its messages are safe."""

    answers_for_failures: ClassVar[bool] = False
    """True for a spout that emits every failure again, or gives it up by its user's policy.

    For any other, a message that failed, and was not acked under the same id since, is reported at the end (exit status
    1).
    """

    tells_epochs: ClassVar[bool] = False
    """Whether it takes part in ``topology.delivery: exactly-once`` (``components.epoch_tuples``)."""

    rests: bool = False
    """Set True by a ``next_tuple`` after whose emits there is no work before the descriptor of ``fileno`` is readable.

    The runtime then sleeps on that, and sets it back before the next turn.
    """

    fail_reason: FailReason = FailReason.FAILED
    """The reason of the present ``fail`` or ``fail_many``.

    LOST says nothing against a message: do not count it towards a limit of tries.
    """

    fail_detail: str = ""
    """With CRASHED: how the worker died and what it had in hand, for a sentence: "was killed by SIGSEGV ..."."""

    fail_deaths: int = 0
    """With CRASHED: how many workers have died at work on the message."""

    fail_cause: FailureCause | None = None
    """What the bolt said of the present ``fail``, or how its worker died; None: nobody knows (a time-out, a loss)."""

    fail_final: bool = False
    """With CRASHED, DEAD_LETTER: the message is to be given up now, whatever tries it has left."""

    holds_back: bool = False
    """True while ``kept_bytes`` is as much as it may be: emit what failed, and no new message.

    The runtime sets it, and does not ask a ReliableSpout for new messages meanwhile.
    """

    timer_interval_s: ClassVar[float | None] = None
    """Seconds between calls of ``on_timer``, also while the spout is paused; None: none."""

    @classmethod
    def spec(
        cls, name: str | None = None, par: int | None = None, config: Any = None, outputs: Any = None
    ) -> ComponentSpec:
        """Make this spout a line of a topology."""
        merged = {**cls.config, **(config or {})}
        tasks = cls.par if par is None else par
        return ComponentSpec(cls, SPOUT, name=name, par=tasks, config=merged, outputs=outputs)

    @classmethod
    def gives_up_by(cls, kwargs: Mapping[str, Any], exactly_once: bool) -> str:
        """Return its policy that gives up messages never tried alone.

        As it is written, ``max_fails = 0``; "" without one. ``kwargs`` are those of its line in the topology.
        """
        return ""

    def next_tuple(self) -> None:
        """Emit the tuples at hand, or none, and return. Called again at once while it emits."""
        raise NotImplementedError(f"{type(self).__name__} does not define next_tuple()")

    def emit(
        self,
        tup: Sequence[Any],
        tup_id: Hashable | None = None,
        stream: str | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Send a tuple into the topology: ``tup`` is a list of values. Raises ValueCannotTravel.

        ``tup_id`` (any hashable) makes it the root of a tracked tree. Returns the receiving task ids if
        ``need_task_ids``.
        """
        raise not_running("emit")

    def emit_many(
        self, tuples: Iterable[Sequence[Any]], tup_id: Hashable | None = None, stream: str | None = None
    ) -> None:
        """Send several tuples of one tree: acked when all are, failed with one."""
        raise not_running("emit_many")

    def emit_each(self, tuples: Iterable[Sequence[Any]], tup_ids: Iterable[Hashable]) -> bool:
        """Send tuples on the default stream, each with its own tree.

        None of them unless all can travel. Returns whether they are tracked as one set, which needs readers that take
        batches and no bolt that acks by hand: ``ack_many`` then gets their ids in one call, but for those that fail.
        """
        raise not_running("emit_each")

    def as_last_try(self, emit: Callable[[], object]) -> None:
        """Make the last emit of a message before it is given up.

        Bolts take what comes of it alone, in a batch of one.
        """
        emit()

    def room(self) -> int:
        """Return how many messages may still be emitted in this turn.

        For a ``next_tuple`` that emits several in one call.
        """
        raise not_running("room")

    def ack(self, tup_id: Any) -> None:
        """Note that the tree of ``tup_id`` was processed to its last tuple."""

    def fail(self, tup_id: Any) -> None:
        """Note that the tree of ``tup_id`` failed: see ``fail_reason``."""

    # The runtime calls only these two: a spout that has a cheaper way for many overrides them and pays no call for
    # each.
    def ack_many(self, tup_ids: Sequence[Any]) -> None:
        """Call ``ack`` for each; override it for one cheaper pass over many."""
        for tup_id in tup_ids:
            self.ack(tup_id)

    def fail_many(self, tup_ids: Sequence[Any]) -> None:
        """Call ``fail`` for each."""
        for tup_id in tup_ids:
            self.fail(tup_id)

    def kept_bytes(self) -> int:
        """Return about the bytes of the messages kept to be sent again. Override it if you keep any.

        What waits for a retry is no open tree, so only this bounds it.
        """
        return 0

    def activate(self) -> None:
        """Begin: tuples may flow from now on."""

    def deactivate(self) -> None:
        """Rest: no ``next_tuple`` until ``activate``; acks and fails still come.

        At ``streamlet runs pause``, and at the end of a run.
        """

    def pause_parts(self, parts: Sequence[PausedPart]) -> None:
        """Emit nothing of these parts, and all others; also for a retry.

        Each call names all of them. For a spout that reads partitions (``partition_status``).
        """

    def begin_close(self) -> None:
        """Begin to let go, after a clean end: called on all spouts of a worker before the first ``close``."""

    def close(self) -> None:
        """Release connections, within a second or two; the last call, clean stop or not."""

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when ``next_tuple`` has work.

        None: the runtime polls each ms. It is asked for at the start and each second, for a client that connects again
        has another one; None at the start is final. It is looked at only while ``next_tuple`` may be called: not while
        the spout is paused or has ``topology.max.spout.pending`` trees open.
        """
        return None

    def on_timer(self) -> None:
        """Do periodic upkeep: see ``timer_interval_s``."""

    def on_drain(self) -> None:
        """Finish: the run ends, and ``next_tuple`` is called no more."""

    @classmethod
    def exactly_once_problems(cls, kwargs: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (problem, remedy) of a spout that cannot deliver exactly once."""
        if not cls.tells_epochs:
            yield (
                f"topology.delivery is exactly-once, and {cls.__qualname__} reads from elsewhere than Kafka: what it "
                "has read cannot be committed together with the records that are written.",
                "Read from Kafka, or leave topology.delivery out.",
            )

    def may_send(self) -> bool:
        """Tell whether the tuples of this turn may leave; asked after the emits, before they do.

        False: they are taken back, and their messages fail as lost. For a spout whose right to emit ends with time.
        """
        return True

    def caught_up(self) -> bool:
        """Tell whether this task has nothing more to emit, for ``--until-caught-up``.

        True promises that it remembers that all was done.
        """
        return False

    @classmethod
    def is_bounded(cls, kwargs: Mapping[str, Any]) -> bool:
        """Tell whether it comes to an end by itself, with ``caught_up``.

        ``kwargs``: of the constructor. A run whose spouts all do ends as with ``--until-caught-up``.
        """
        return False

    @classmethod
    def takes_dead_letters(cls, kwargs: Mapping[str, Any]) -> bool:
        """Tell whether bolts may send its messages to the dead letters.

        ``kwargs``: of the constructor. True: ``fail`` comes with DEAD_LETTER then, and keeps the message somewhere.
        """
        return False

    @classmethod
    def tries_in_tests(cls, kwargs: Mapping[str, Any]) -> TriesInTests | None:
        """Return how a ``TopologyTester`` tries rows that fail.

        They are of a list that stands for this spout. None: as a ReliableSpout with its defaults. ``kwargs``: of the
        constructor.
        """
        return None

    def lasting_id(self, tup_id: Any) -> Any:
        """Return the message's name in every run; by default its id.

        A message at whose work a worker died is known by it, also to a spout that died with that worker. Override it
        where each start gives new ids.
        """
        return tup_id

    def unfinished_count(self) -> int | None:
        """Count emitted messages neither acked nor given up; None if unknown."""
        return None

    def given_up_count(self) -> int:
        """Count messages that failed and that this spout has given up."""
        return 0

    def kept_count(self) -> int:
        """Count those of the messages given up that this spout keeps elsewhere."""
        return 0

    def lost_count(self) -> int:
        """Count records that the source had no more before they were read."""
        return 0

    def partition_status(self) -> list[dict[str, Any]]:
        """Return rows for the live table, from numbers at hand (no I/O)."""
        return []

    def bind(self, port: TaskPort) -> None:
        own = cast(SpoutPort, port)
        vars(self).update(emit=port.emit, emit_many=own.emit_many, emit_each=own.emit_each, room=own.room)
        vars(self).update(report_metric=port.report_metric, as_last_try=own.as_last_try)


def hears_failures(spout: type[Spout]) -> bool:
    """Tell whether a spout hears of failures, and may replay."""
    return spout.fail is not Spout.fail or spout.fail_many is not Spout.fail_many
