"""Groupings as values: which tasks of a bolt receive a tuple. ``runtime/tasks/emitter.py`` has the choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from streamlet.base.errors import BadInput
from streamlet.model.pystorm_names import GROUPING, missing


@dataclass(frozen=True, slots=True)
class Grouping:
    """How a stream is divided among the tasks of its consumer. Names are Storm's (and streamparse's).

    ``Grouping.SHUFFLE`` spreads evenly, ``fields("word")`` sends equal values to the same task, ``ALL``
    copies to every task, ``GLOBAL`` sends everything to the lowest task id, ``NONE`` means that any task will
    do (it is SHUFFLE), ``LOCAL_OR_SHUFFLE`` prefers tasks of the same worker, ``DIRECT`` lets the producer
    name the task.
    """

    kind: str
    field_names: tuple[Any, ...] = ()
    """Strings, in a topology that is valid."""

    SHUFFLE: ClassVar[Grouping]
    ALL: ClassVar[Grouping]
    GLOBAL: ClassVar[Grouping]
    NONE: ClassVar[Grouping]
    LOCAL_OR_SHUFFLE: ClassVar[Grouping]
    DIRECT: ClassVar[Grouping]

    @classmethod
    def fields(cls, *names: str | Sequence[str]) -> Grouping:
        """Send equal values of these fields to the same task. One list of names is as good."""
        only = names[0] if len(names) == 1 else None
        return cls("fields", tuple(only) if isinstance(only, (list, tuple)) else names)

    @classmethod
    def shuffle(cls) -> Grouping:
        """Send to every task in turn."""
        return cls.SHUFFLE

    @classmethod
    def all(cls) -> Grouping:
        """Copy to every task."""
        return cls.ALL

    @classmethod
    def local_or_shuffle(cls) -> Grouping:
        """Prefer tasks of the same worker, else take every task in turn."""
        return cls.LOCAL_OR_SHUFFLE

    @classmethod
    def custom_object(cls, *java: Any) -> Grouping:
        """Raise BadInput: a grouping is no Java class here."""
        raise BadInput(missing("Grouping", "custom_object", GROUPING))

    @classmethod
    def custom_serialized(cls, *java: Any) -> Grouping:
        """Raise BadInput: a grouping is no Java class here."""
        raise BadInput(missing("Grouping", "custom_serialized", GROUPING))

    @classmethod
    def partial_key(cls, *names: str) -> Grouping:
        """Raise BadInput: there is none yet."""
        raise BadInput(
            "Grouping.partial_key is not there yet. For a key that one task cannot keep up with: emit a part beside "
            "the key (a number from 0 to 7, say), group by both with Grouping.fields, and let another bolt, "
            "grouped by the key alone, add up what the parts come to."
        )

    def __str__(self) -> str:
        return f"fields({', '.join(map(str, self.field_names))})" if self.kind == "fields" else str(self.kind)


# `global` and `none` are not callable names in Python, so all parameterless groupings are constants.
Grouping.SHUFFLE = Grouping("shuffle")
Grouping.ALL = Grouping("all")
Grouping.GLOBAL = Grouping("global")
Grouping.NONE = Grouping("none")
Grouping.LOCAL_OR_SHUFFLE = Grouping("local_or_shuffle")
Grouping.DIRECT = Grouping("direct")

KINDS = frozenset({"shuffle", "all", "global", "none", "local_or_shuffle", "direct", "fields"})
