"""Bolts: what consumes tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from traceback import FrameSummary
from typing import Any, ClassVar, Literal

from streamlet.components.batch import Batch
from streamlet.components.columns import as_columns
from streamlet.components.component import BoltPort, Component, not_running
from streamlet.components.tuples import TICK_STREAM, Tuple, TupleId
from streamlet.model.own_attributes import sets_itself
from streamlet.model.spec import BOLT, ComponentSpec

KeptInTests = Callable[[Batch], tuple[list[Any], Mapping[int, Exception]]]
"""Makes what a bolt would write for a batch, and the errors of tuples by their place."""


class Bolt(Component):
    """A consumer of tuples. Override ``process``, or ``process_batch`` for many tuples in one call.

    By default an emitted tuple is anchored to the present one, which is acked when ``process`` returns and failed when
    it raises; the three class attributes turn each of that off. An exception fails the tuple's tree, is logged, and the
    bolt goes on with the next tuple; with ``exit_on_exception`` it ends the run. With ``process_batch`` all of this
    means the batch.
    """

    must_define: ClassVar[str] = "process"
    """The method a class must define before it can run; ``model.validate`` checks it."""

    auto_anchor: ClassVar[bool] = True
    auto_ack: ClassVar[bool] = True
    auto_fail: ClassVar[bool] = True
    exit_on_exception: ClassVar[bool] = False
    """Whether an exception of ``process`` or ``process_tick`` ends the run. True in pystorm."""

    batch_size: ClassVar[int] = 1024
    """Most tuples in one call of ``process_batch``. It gets what waits, and waits for none."""

    on_batch_error: ClassVar[Literal["fail", "split"]] = "fail"
    """Whether an exception of ``process_batch`` fails the batch, or only the tuples that raise alone.

    With "split" the emits of the first try are withdrawn, and each tuple comes again as a batch of one.
    """

    named_values: ClassVar[bool | None] = None
    """Whether ``tup.values`` has the fields as attributes; None: where the class's own file uses one."""

    answers_for_held: ClassVar[bool] = False
    """Whether the bolt bounds by itself how long tuples stay open.

    Such tuples do not time out; they count as queued. For a bolt that takes batches.
    """

    max_unacked: ClassVar[int | None] = None
    """Most tuples that it may hold, neither acked nor failed; None: any number.

    The others wait in its queue, where they do not time out, and fewer trees are opened. For a bolt with
    ``auto_ack = False`` and threads of its own; may be set in ``initialize``, too.
    """

    at_least_one: ClassVar[Mapping[str, str]] = {}
    """Attributes that are whole numbers, 1 or more, and what each is; told where one is not."""

    answers_for_untracked: ClassVar[bool] = False
    """Whether it acks or fails each untracked tuple, too, and says when work on a tuple begins and ends.

    Without it an untracked tuple is done that nobody keeps after its call; one that is dropped later without ack or
    fail has failed. Only with ``auto_ack = False``.
    """

    commits_epochs: ClassVar[bool] = False
    """Whether it commits in ``topology.delivery: exactly-once`` (``components.epoch_tuples``)."""

    timer_interval_s: ClassVar[float | None] = None
    """Seconds between two calls of ``on_timer``; None: it is not called."""

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        inputs: Any = None,
        par: int | None = None,
        config: Mapping[str, Any] | None = None,
        outputs: Any = None,
    ) -> ComponentSpec:
        """Make this bolt a line of a topology. ``inputs``: a list of sources, or ``{source: Grouping}``."""
        merged = {**cls._own_config(), **(config or {})}
        tasks = cls.par if par is None else par
        return ComponentSpec(cls, BOLT, name=name, inputs=inputs, par=tasks, config=merged, outputs=outputs)

    @classmethod
    def _own_config(cls) -> Mapping[str, Any]:
        """Return the settings of every task of this class."""
        return cls.config

    @classmethod
    def acks_at_once(cls) -> bool:
        """Tell whether no tuple of it stays open for long.

        Its tuples are acked and failed for it, or it bounds by itself how long they wait.
        """
        # Rule: who sets a flag in a method may ack by hand. Asked of the class alone, its trees would be tracked as
        # sets, and a bolt that collects nearly all tuples that may be open would wait for ever.
        later = sets_itself(cls, "auto_ack", "auto_fail")
        return cls.auto_fail and (cls.auto_ack or cls.answers_for_held) and not later

    def process(self, tup: Tuple) -> None:
        """Handle one tuple."""
        raise NotImplementedError(f"{type(self).__name__} does not define process(tup)")

    def process_batch(self, batch: Batch) -> None:
        """Handle the tuples of one stream of one task that wait. A class that defines it needs no ``process``."""
        raise NotImplementedError(f"{type(self).__name__} does not define process_batch(batch)")

    @classmethod
    def takes_batches(cls) -> bool:
        """Tell whether the runtime calls ``process_batch``, and not ``process``."""
        return cls.process_batch is not Bolt.process_batch

    def process_tick(self, tup: Tuple) -> None:
        """Handle a tick: one comes every ``topology.tick.tuple.freq.secs``, if set."""

    def expect_early_tick(self) -> None:
        """Make the next tick do all that waits for one.

        It follows at once. The run ends, and this may be the last; or a drain waits for what this bolt keeps, and asks
        again in a second.
        """

    def where_held(self, tup: Tuple) -> list[FrameSummary]:
        """Return where its own threads stand with a tuple; empty: nobody knows."""
        return []

    def blocks_held(self) -> Tuple | None:
        """Return the tuple whose call holds up all others; None: none does.

        Asked now and then: it has held them up since the last question.
        """
        return None

    def on_timer(self) -> None:
        """Do upkeep, each ``timer_interval_s``, also in a drain."""

    @classmethod
    def wiring_problems(
        cls, kwargs: Mapping[str, Any], sources: Iterable[tuple[str, Sequence[str]]]
    ) -> Iterable[tuple[str, str]]:
        """Yield (problem, remedy) of the arguments of ``spec``, before a run.

        ``sources``: the name and fields of each stream that the bolt reads.
        """
        # It yields, as one that overrides it may: `check` refuses a generator only in place of a plain method.
        yield from ()

    @classmethod
    def time_out_problems(cls, kwargs: Mapping[str, Any], spout: str, timeout_s: float) -> Iterable[tuple[str, str]]:
        """Yield (problem, remedy) where it keeps tuples too long, before a run.

        Of all tuples that reach it, those of ``spout`` time out first, after ``timeout_s``.
        """
        yield from ()

    @classmethod
    def kept_in_tests(cls, kwargs: Mapping[str, Any], component: str) -> KeptInTests | None:
        """Return what stands for this bolt in a ``TopologyTester``.

        None: the bolt itself. A class that writes outside returns a function that says what it would write, and
        writes nothing. ``kwargs``: the arguments of its constructor.
        """
        return None

    def most_unacked(self) -> int | None:
        """Return the most tuples that it may hold; None: any number. Asked once, after ``initialize``."""
        return self.max_unacked

    def emit(
        self,
        tup: Sequence[Any],
        stream: str | None = None,
        anchors: Sequence[Tuple | TupleId] | Batch | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Send a tuple on: ``tup`` is a list of values, one a field. Raises ValueCannotTravel.

        ``anchors`` are tuples or their ``id``, or a batch; None means the present tuple or batch (if ``auto_anchor``),
        ``[]`` none. Returns the receiving task ids if ``need_task_ids``. The error names component, stream and field of
        a value that the wire could not carry unchanged.
        """
        raise not_running("emit")

    def emit_many(
        self,
        tuples: Iterable[Sequence[Any]],
        stream: str | None = None,
        anchors: Sequence[Tuple | TupleId] | Batch | None = None,
    ) -> None:
        """Send several tuples on, in order; none of them unless all can travel. Errors as ``emit``."""
        raise not_running("emit_many")

    def emit_columns(
        self,
        *columns: Iterable[Any],
        stream: str | None = None,
        anchors: Sequence[Tuple | TupleId] | Batch | None = None,
    ) -> None:
        """Send columns on, one for each field, as ``emit_many`` sends rows.

        A column is a list, or anything else that is iterable or has ``tolist`` (numpy, pandas, arrow). The cheapest way
        from batch to batch: no row is made. Raises ValueError for columns of different lengths.
        """
        self.emit_many(as_columns(columns), stream, anchors)

    def ack(self, tup: Tuple | TupleId | Batch) -> None:
        """Finish a tuple, given itself or its ``id``; only with ``auto_ack = False``. A second ack is ignored.

        A batch: all its tuples that are still open.
        """
        raise not_running("ack")

    def fail(self, tup: Tuple | TupleId | Batch, reason: str | BaseException | None = None) -> None:
        """Fail a tuple's tree, given the tuple or its ``id``: its spout hears it at once. A batch: as ``ack``.

        ``reason`` goes along to the spout: a dead letter has it. An exception is told, too, as one that ``process``
        raises.
        """
        raise not_running("fail")

    def dead_letter(self, tup: Tuple | TupleId | Batch, reason: str) -> None:
        """Fail a tuple past all retries: the record it came from goes to the dead letters, with ``reason``.

        A batch: all its tuples that are still open. Any thread, as ``fail``. Raises BadEmit where the spout keeps no
        dead letters, or the tuple is not tracked.
        """
        raise not_running("dead_letter")

    @staticmethod
    def is_tick(tup: Tuple) -> bool:
        """Tell whether the runtime made this tuple as a tick."""
        return tup.stream == TICK_STREAM

    def bind(self, port: BoltPort) -> None:
        # On the instance and not by a method that forwards: an emit is one call of the task's closure.
        own = {"emit": port.emit, "emit_many": port.emit_many, "ack": port.ack, "fail": port.fail}
        vars(self).update(own, dead_letter=port.dead_letter, report_metric=port.report_metric)
