"""Streams: what a component emits, by name and fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

DEFAULT_STREAM = "default"


class StreamId(NamedTuple):
    """One stream of one component, by names; usable wherever ``inputs`` wants a source."""

    component: str
    stream: str = DEFAULT_STREAM

    def __str__(self) -> str:
        return self.component if self.stream == DEFAULT_STREAM else f"{self.component}[{self.stream}]"


class Stream:
    """A declared output: field names in order, the stream's name, and whether the producer picks the task.

    ``direct`` streams are emitted with ``direct_task=`` only (Storm's direct grouping).
    """

    __slots__ = ("direct", "fields", "name")

    def __init__(self, fields: Sequence[str] = (), name: str = DEFAULT_STREAM, direct: bool = False) -> None:
        # A text is one name and not the sequence of its letters.
        self.fields = tuple(fields) if not isinstance(fields, str) else (fields,)
        self.name = name
        self.direct = direct

    def __repr__(self) -> str:
        return f"Stream({list(self.fields)!r}, name={self.name!r}, direct={self.direct!r})"
