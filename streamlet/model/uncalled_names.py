"""Definitions in a component's class that nothing here calls, though pystorm would. Pure.

A program that comes from there relies on such a call; with nothing said, what it does would not be done.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType
from typing import Any

from streamlet.model.pystorm_names import COMPONENT
from streamlet.model.spec import BOLT, SPOUT

UNCALLED = {
    **COMPONENT,
    "is_heartbeat": "heartbeats do not come as tuples",
    "is_tick": "ticks come to process_tick, and to nothing else",
    "raise_exception": "an exception of process is logged, counted and fails its tuple; what you want to handle you "
    "catch there",
}
"""Names that pystorm calls, or looks at -> what takes their place."""

BOUND = {
    BOLT: ("emit", "emit_many", "ack", "fail", "report_metric"),
    SPOUT: ("emit", "emit_many", "emit_each", "room", "report_metric"),
}
"""By kind: methods that the runtime sets on each instance, over those of its class."""


def uncalled(cls: type, kind: str) -> Iterator[tuple[str, str]]:
    """Yield message and remedy for each definition that nothing calls."""
    shown = f"{cls.__module__}.{cls.__qualname__}"
    own = [base for base in cls.__mro__ if not base.__module__.startswith("streamlet.") and base is not object]
    for name in BOUND[kind]:
        if _defines(own, name):
            yield (
                f"{shown} defines {name}, which the runtime sets on each task: that of the class is never called.",
                f"Give it another name, let it call self.{name}, and call it instead.",
            )
    for name, answer in UNCALLED.items():
        # Who calls it from another method has a method of their own under that name. From itself is no such call:
        # `super().run()` stands in most that were written for pystorm.
        if _defines(own, name) and not any(_names(value, name) for value in _others(own, name)):
            yield (
                f"{shown} defines {name}, which nothing here calls: {answer}.",
                "Take it away; a method of your own needs another name.",
            )


def _defines(classes: list[type], name: str) -> bool:
    return any(name in vars(cls) for cls in classes)


def _others(classes: list[type], name: str) -> Iterator[Any]:
    for cls in classes:
        yield from (value for key, value in vars(cls).items() if key != name)


def _names(value: Any, name: str) -> bool:
    """Tell whether a function has this name in its code."""
    made = [value.fget, value.fset] if isinstance(value, property) else [getattr(value, "__func__", value)]
    codes = [code for one in made if isinstance(code := getattr(one, "__code__", None), CodeType)]
    while codes:
        code = codes.pop()
        if name in code.co_names:
            return True
        codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return False
