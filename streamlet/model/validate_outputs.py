"""Checks of what a component declares to emit. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from streamlet.model.stream import Stream

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def outputs_problem(outputs: Any) -> str | None:
    """Why ``outputs`` declares no streams; None if it does, or declares none on purpose."""
    if outputs is None or outputs == [] or outputs == ():
        return None
    if isinstance(outputs, (str, Stream)):
        outputs = [outputs]
    if not isinstance(outputs, (list, tuple)):
        return f"outputs is {outputs!r:.80}, which is neither a list of field names nor of streams."
    if not any(isinstance(item, Stream) for item in outputs):
        return _fields_problem(outputs, "outputs")
    if not all(isinstance(item, Stream) for item in outputs):
        return "outputs mixes streams and field names."
    for stream in outputs:
        if not isinstance(stream.name, str) or not NAME.fullmatch(stream.name):
            return f"A stream cannot be called {stream.name!r}."
        if stream.name.startswith("__"):
            return f"The stream name {stream.name!r} begins with two underscores: such names are streamlet's own."
        problem = _fields_problem(stream.fields, f"the stream {stream.name!r}")
        if problem is not None:
            return problem
    twice = [name for name, count in Counter(stream.name for stream in outputs).items() if count > 1]
    return f"outputs declares the stream {twice[0]!r} twice." if twice else None


def _fields_problem(fields: Iterable[Any], where: str) -> str | None:
    names = list(fields)
    for name in names:
        if not isinstance(name, str) or not name:
            return f"{where} holds {name!r:.80}, which is no field name."
    twice = [name for name, count in Counter(names).items() if count > 1]
    return f"{where} names the field {twice[0]!r} twice." if twice else None
