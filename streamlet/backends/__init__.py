"""Backends: one topology inline, in worker processes, or in slots of Spark executors."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamlet.backends.inline import InlineBackend
    from streamlet.backends.processes import ProcessesBackend
    from streamlet.backends.spark import SparkBackend

__all__ = ["InlineBackend", "ProcessesBackend", "SparkBackend"]

_MODULES = {"InlineBackend": "inline", "ProcessesBackend": "processes", "SparkBackend": "spark"}


def __getattr__(name: str) -> Any:
    # `import streamlet` imports this package: the sockets and selectors of a runtime that is not asked for would
    # double the time that takes, and pyspark need not be installed.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
