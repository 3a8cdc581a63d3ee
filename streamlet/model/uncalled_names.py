"""Names in a component's class that mean something to pystorm, and nothing here. Pure.

A program that comes from there relies on a call or a value; with nothing said, what it does would not be done.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from streamlet.model.own_attributes import attributes_of_self, methods_of, users_classes
from streamlet.model.pystorm_names import COMPONENT, CONSTRUCTOR, CURRENT, INNER
from streamlet.model.spec import BOLT, SPOUT

UNCALLED = {
    **COMPONENT,
    **INNER,
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

STREAMS_OF_STORM = ("input_stream", "output_stream", "rdb_signal")
"""Arguments of pystorm's constructor that no other constructor has."""


def uncalled(cls: type, kind: str) -> Iterator[tuple[str, str]]:
    """Yield each definition that nothing calls, attribute that nothing sets or reads."""
    shown = f"{cls.__module__}.{cls.__qualname__}"
    own = users_classes(cls)
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
    if getattr(cls, "must_define", None) == "process_batch":
        yield from _unbatched(shown, own)
    yield from _attributes(cls, kind, shown, own)
    yield from _constructor(shown, own)


def _unbatched(shown: str, own: list[type]) -> Iterator[tuple[str, str]]:
    """Yield a ``process`` of a BatchingBolt that no batch comes of."""
    owner = next((cls for cls in own if "process" in vars(cls)), None)
    reached = ("process", "process_batch", "_batches", "ack")
    if owner is not None and not any(_names(vars(owner)["process"], name) for name in reached):
        yield (
            f"{shown} defines process, which in a BatchingBolt puts a tuple into its batch: what this one is given "
            "comes into none, and is neither acked nor failed.",
            "Call super().process(tup) in it, or derive the class from Bolt.",
        )


def _attributes(cls: type, kind: str, shown: str, own: list[type]) -> Iterator[tuple[str, str]]:
    """Yield attributes of ``self`` that nothing sets, or that nothing reads."""
    functions = [(name, function) for base in own for name, function in methods_of(base)]
    loaded = {attribute for _, function in functions for attribute in attributes_of_self(function, "LOAD_")}
    stored = {attribute: name for name, function in functions for attribute in attributes_of_self(function, "STORE_")}
    made_on_demand = _defines(own, "__getattr__") or _defines(own, "__getattribute__")
    for name, answer in {**COMPONENT, **CURRENT}.items():
        if name in loaded and name not in stored and not _defines(own, name) and not made_on_demand:
            yield (
                f"{shown} uses self.{name}, which is not there: {answer}.",
                "`streamlet docs migrating-from-streamparse` lists all differences.",
            )
    # Rule: what is read of the class alone is refused where a method sets it on the task: the plan is made, and a
    # batch's flags are taken, before a method runs. Who reads it again has an attribute of their own.
    for name in _of_the_class(cls, kind, functions):
        if name in stored and name not in loaded:
            yield (
                f"{shown} sets self.{name} in {stored[name]}, and nothing reads it there: it is read of the class, "
                "before a task is made.",
                f"Write it in the body of the class: {name} = ...; an attribute of your own needs another name.",
            )


def _of_the_class(cls: type, kind: str, functions: list[tuple[str, FunctionType]]) -> Iterator[str]:
    """Yield the names that are read of the class alone."""
    yield from ("outputs", "par")
    # Many keep what they are given as self.config; only who writes settings into it means the component's.
    made = [function.__code__ for name, function in functions if name == "__init__"]
    if any(text.startswith(("topology.", "streamlet.")) for code in made for text in _constants(code)):
        yield "config"
    if kind == SPOUT:
        yield "exit_on_exception"
    if getattr(cls, "must_define", None) == "process_batch":
        yield from ("auto_ack", "auto_fail", "auto_anchor")
    if hasattr(cls, "secs_between_batches"):
        yield "secs_between_batches"


def _constructor(shown: str, own: list[type]) -> Iterator[tuple[str, str]]:
    """Yield arguments of pystorm's constructor that a class has."""
    for base in own:
        made = vars(base).get("__init__")
        if not isinstance(made, FunctionType):
            continue
        code = made.__code__
        takes = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        named = {*takes, *_constants(code)}
        for name in STREAMS_OF_STORM:
            if name in named:
                yield (
                    f"{shown} has {name} in its __init__, which nothing here gives or takes: {CONSTRUCTOR[name]}.",
                    "Call super().__init__() without arguments, or prepare in initialize(self, conf, context).",
                )


def _constants(code: CodeType) -> Iterator[str]:
    """Yield the texts in a function's code, names of arguments too."""
    for constant in code.co_consts:
        yield from (one for one in (constant if isinstance(constant, tuple) else [constant]) if isinstance(one, str))


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
