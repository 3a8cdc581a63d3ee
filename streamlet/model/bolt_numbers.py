"""Numbers of a bolt that a class, or its ``initialize``, may set wrong. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

HELD = "It is the most tuples that it may hold, neither acked nor failed"


def not_numbers(bolt: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield the wrong numbers of a bolt, or of its class: name, value, meaning."""
    # Of a class only what stands there: a property has its value when the task runs.
    of = inspect.getattr_static if isinstance(bolt, type) else getattr
    for name, what in (*getattr(bolt, "at_least_one", {}).items(), ("max_unacked", "")):
        value: Any = of(bolt, name, None)
        number = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if not (number or (value is None and not what) or (isinstance(bolt, type) and hasattr(value, "__get__"))):
            yield name, value, f"{what or HELD}: a whole number, 1 or more{'' if what else '; None is for any number'}."
