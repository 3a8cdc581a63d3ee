"""``Topology``, the class that users derive from; ``model.topology`` has its metaclass and the data it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from streamlet.backends.contract import RunResult
from streamlet.model.topology import TopologyMeta, TopologySpec
from streamlet.running import RunOptions, run


class Topology(metaclass=TopologyMeta):
    """Subclass it and name components in the body; the attribute names are the component names.

    >>> from streamlet import Bolt, Grouping, Spout
    >>> class Lines(Spout):
    ...     outputs = ["line"]
    >>> class Split(Bolt):
    ...     outputs = ["word"]
    >>> class Count(Bolt):
    ...     pass
    >>> class WordCount(Topology):
    ...     lines = Lines.spec()
    ...     split = Split.spec(inputs=[lines], par=2)
    ...     count = Count.spec(inputs={split: Grouping.fields("word")}, par=2)
    >>> [(component.name, component.par) for component in WordCount.__topology__.components]
    [('lines', 1), ('split', 2), ('count', 2)]

    ``config`` may hold Storm's keys (``topology.max.spout.pending`` ...) and keys of your own.
    """

    config: ClassVar[Mapping[str, Any]] = {}
    __topology__: ClassVar[TopologySpec]

    @classmethod
    def run(cls, **options: Unpack[RunOptions]) -> RunResult:
        """Run this topology to its end; the options are those of :func:`streamlet.run`."""
        return run(cls, **options)
