"""Bolts: what consumes tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from streamlet.components.component import Component, TaskPort, outside
from streamlet.components.tuples import TICK_STREAM, Tuple
from streamlet.model.spec import BOLT, ComponentSpec


class Bolt(Component):
    """A consumer of tuples. Override ``process``.

    By default an emitted tuple is anchored to the present one, which is acked when ``process`` returns and failed when
    it raises; the three class attributes turn each of that off. An exception fails the tuple's tree, is logged, and the
    bolt goes on with the next tuple.
    """

    must_define: ClassVar[str] = "process"
    """The method a class must define before it can run; ``model.validate`` checks it."""

    auto_anchor: ClassVar[bool] = True
    auto_ack: ClassVar[bool] = True
    auto_fail: ClassVar[bool] = True

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        inputs: Any = None,
        par: int = 1,
        config: Mapping[str, Any] | None = None,
        outputs: Any = None,
    ) -> ComponentSpec:
        """Make this bolt a line of a topology. ``inputs``: a list of sources, or ``{source: Grouping}``."""
        merged = {**cls.config, **(config or {})}
        return ComponentSpec(cls, BOLT, name=name, inputs=inputs, par=par, config=merged, outputs=outputs)

    def process(self, tup: Tuple) -> None:
        """Handle one tuple."""
        raise NotImplementedError(f"{type(self).__name__} does not define process(tup)")

    def process_tick(self, tup: Tuple) -> None:
        """Handle a tick: one comes every ``topology.tick.tuple.freq.secs``, if set."""

    def emit(
        self,
        tup: Sequence[Any],
        stream: str | None = None,
        anchors: Sequence[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Send a tuple on: ``tup`` is a list of values, one a field. Raises ValueCannotTravel.

        ``anchors`` None means the present tuple (if ``auto_anchor``), ``[]`` means none. Returns the receiving task ids
        if ``need_task_ids``. The error names component, stream and field of a value that the wire could not carry
        unchanged.
        """
        raise outside("emit")

    def ack(self, tup: Tuple) -> None:
        """Finish a tuple; only with ``auto_ack = False``. A second ack is ignored."""
        raise outside("ack")

    def fail(self, tup: Tuple) -> None:
        """Fail a tuple's tree: its spout hears it at once."""
        raise outside("fail")

    @staticmethod
    def is_tick(tup: Tuple) -> bool:
        """Tell whether the runtime made this tuple as a tick."""
        return tup.stream == TICK_STREAM

    def bind(self, port: TaskPort) -> None:
        # On the instance and not by a method that forwards: an emit is one call of the task's closure.
        vars(self).update(emit=port.emit, ack=port.ack, fail=port.fail, report_metric=port.report_metric)
