"""Names in a component's class that are nearly those of a hook, which nothing would call. Pure.

A ``clean_up`` beside our ``cleanup`` is no mistake for Python, and a bolt's last work is never done.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from types import FunctionType

from streamlet.model.own_attributes import attributes_of_self, methods_of, users_classes

CALLED = (
    *("initialize", "process", "process_batch", "process_tick", "group_key", "cleanup", "on_timer"),
    *("next_tuple", "activate", "deactivate", "caught_up"),
)
"""Methods that a run calls. A bolt has `ack` and `fail` for its own calls."""

READ = (
    *("outputs", "config", "auto_anchor", "auto_ack", "auto_fail", "exit_on_exception", "batch_size"),
    *("on_batch_error", "max_unacked", "timer_interval_s", "max_fails", "replay_backoff"),
    *("secs_between_batches", "ticks_between_batches"),
)
"""Attributes that a run reads of the class."""

ALIKE = 0.85
"""Least likeness of two names, where 1 is the same."""


def misspelt(cls: type) -> Iterator[str]:
    """Yield a warning for each unused name that is nearly a hook's."""
    own = users_classes(cls)
    functions = [function for base in own for _, function in methods_of(base)]
    used = {attribute for function in functions for attribute in attributes_of_self(function, "LOAD_")}
    for base in own:
        for name, value in vars(base).items():
            if name.startswith("_") or name in used or _is_ours(cls, name):
                continue
            hooks = CALLED if isinstance(value, FunctionType) else () if callable(value) else READ
            near = difflib.get_close_matches(name, [hook for hook in hooks if _is_ours(cls, hook)], 1, ALIKE)
            if near:
                shown = f"{base.__module__}.{base.__qualname__}"
                yield f"{shown} has {name}, which nothing uses: did you mean {near[0]!r}?"


def _is_ours(cls: type, name: str) -> bool:
    return any(name in vars(base) for base in cls.__mro__ if base.__module__.startswith("streamlet."))
